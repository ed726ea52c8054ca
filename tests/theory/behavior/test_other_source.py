"""Another source: areas by brute force over all pairs, uncertainties in closed form, data that do not fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from torch import nn

import margin
from margin.auditing.report.sentences import sentences
from margin.auditing.subject.other_source import with_other_source
from margin.core.options import Training
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.math.probability.mixtures import Mixture
from margin.theory.behavior.other_source import (
    demo,
    has_other_source,
    is_unsure,
    out_of_distribution,
    uncertainties,
)

DOUBLE = torch.float64


def pairs(own: np.ndarray, other: np.ndarray) -> float:
    """The share of all pairs in which the other is larger, ties half."""
    return float(((other[:, None] > own) + 0.5 * (other[:, None] == own)).mean())


class Spread(nn.Module):
    """The law N(0, x_0^2), or the logits x."""

    def forward(self, x):
        return x[:, 0]

    def predictive(self, x):
        return Mixture(torch.zeros(1, len(x), dtype=DOUBLE), x[None, :, 0].double() ** 2)


def test_uncertainties_of_classes_are_entropy_and_what_the_largest_probability_leaves() -> None:
    z = torch.tensor([[2.0, 0.5, -1.0], [0.0, 0.0, 0.0], [800.0, 0.0, 0.0]], dtype=DOUBLE)
    found = uncertainties(CLASSES, nn.Identity(), Batch((z,)))
    p = z.softmax(1).numpy()
    assert np.allclose(found[:, 0], entropy(p, axis=1)) and np.allclose(found[:, 1], 1 - p.max(1))
    assert bool(found.isfinite().all()) and found[2].abs().max() < 1e-300


def test_the_area_is_the_share_of_pairs_in_order_and_examples_of_weight_0_are_none() -> None:
    i = torch.arange(40, dtype=DOUBLE)
    own, other = (
        3 * (i * 1.7).sin()[:, None] * torch.tensor([1.0, 0.3, 0.0]),
        (i[:9] * 0.9).cos()[:, None] * 2,
    )
    other = other * torch.tensor([1.0, -0.4, 0.2], dtype=DOUBLE)
    weight = torch.ones(9, dtype=DOUBLE)
    weight[[2, 5]] = 0
    own = own.to(DOUBLE)
    subject = replace(
        demo(),
        model=nn.Identity(),
        test=[Batch((own[:25],), torch.zeros(25).long()), Batch((own[25:],), torch.zeros(15).long())],
        ood=[Batch((other,), None, weight)],
    )
    found = out_of_distribution(subject)
    kept = other[weight > 0]
    for column, label in enumerate(("predictive entropy", "1 - largest probability")):
        a, b = (uncertainties(CLASSES, nn.Identity(), Batch((x,)))[:, column].numpy() for x in (own, kept))
        assert found.labels[column] == label
        assert float(found.value[column]) == pytest.approx(pairs(a, b), rel=1e-12)
        assert float(found.interval[0][column]) < pairs(a, b) < float(found.interval[1][column])
    assert " of 7 and 40 examples" in found.statement


def test_of_the_demonstration_seven_pairs_in_eight_are_in_order() -> None:
    # a tie of equal logits that rounds apart counts half of one pair of 40,000 more or less
    assert out_of_distribution(demo()).value.tolist() == pytest.approx([7 / 8, 7 / 8], abs=2e-5)


def test_the_variance_of_a_law_ranks_values() -> None:
    own, other = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[2.0], [-4.0]])
    subject = replace(
        demo(), model=Spread(), task=VALUES, test=[Batch((own,), torch.zeros(3))], ood=[Batch((other,))]
    )
    found = out_of_distribution(subject)
    assert found.labels == ("predictive variance",)
    assert float(found.value) == pytest.approx((1.5 + 3) / 6)


def test_it_is_asked_where_there_is_another_source_and_something_to_be_unsure_by() -> None:
    subject = demo()
    assert has_other_source(subject) and is_unsure(subject)
    assert not has_other_source(replace(subject, ood=()))
    assert not has_other_source(replace(subject, independent=False))
    assert not is_unsure(replace(subject, task=VALUES))
    assert is_unsure(replace(subject, task=VALUES, model=Spread()))


@pytest.mark.parametrize(
    ("shift", "level", "begins"),
    [
        (0.0, "warn", "Only in part less sure of the other source than of its own: in .875"),
        (0.98, "warn", "Not known to be less sure"),
        (3.0, "bad", "Surer of the other source than of its own"),
    ],
)
def test_the_sentence_says_whether_it_is_less_sure(shift: float, level: str, begins: str) -> None:
    subject = demo()
    given = subject.ood[0].inputs[0] + shift
    audit = margin.audit(replace(subject, ood=()), ood=given, claims=["out_of_distribution"])
    (said,) = [s for s in sentences(audit) if s.claims == ("theory/predictive.out_of_distribution",)]
    assert (
        said.level == level and said.text.startswith(begins) and "the larger predictive entropy" in said.text
    )
    assert audit.facts["examples of another source"] == 200


def test_uncertainty_that_tells_is_good() -> None:
    subject = demo()
    audit = margin.audit(subject, ood=subject.ood[0].inputs[0] / 4, claims=["out_of_distribution"])
    assert [s.level for s in sentences(audit) if "sure of the other source" in s.text] == ["good"]


def test_data_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must have the shape of the held-out ones, \(N, 1\): got \(N, 3\)"):
        with_other_source(demo(), torch.zeros(4, 3))
    with pytest.raises(ValueError, match="the data of another source must have at least one example"):
        with_other_source(demo(), torch.zeros(0, 1))


def test_a_run_reads_them_by_its_own_columns_whatever_their_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))

    def written(name: str, header: str, rows: np.ndarray, last: list[str]) -> Path:
        path = tmp_path / name
        lines = [f"{a},{b},{c}" if c else f"{a},{b}" for (a, b), c in zip(rows, last, strict=True)]
        path.write_text("\n".join([header, *lines]))
        return path

    kinds = ["yes" if a > 0 else "no" for a in x[:, 0]]
    data = margin.open_source(str(written("own.csv", "a,b,kind", x, kinds)), {"target": "kind"})
    run = margin.train("mlp", data, training=Training(epochs=20, lr=1e-2, seed=0), out=tmp_path / "run")
    other = written("other.csv", "a,b,kind", x / 20, ["never seen"] * 120)
    areas = margin.audit(run, ood=str(other), claims=["out_of_distribution"])["out_of_distribution"].value
    arrays = margin.audit(run, ood=x / 20, claims=["out_of_distribution"])["out_of_distribution"].value
    assert float(areas[0]) > 0.9 and torch.allclose(areas, arrays)
    named = written("named.csv", "a,b,kind", x / 20, ["left", "right"] * 60)
    given = margin.open_source(str(named), {"target": "kind", "test": 0.5, "val": 0.0})
    audit = margin.audit(run, ood=given, claims=["out_of_distribution"])
    assert audit.facts["examples of another source"] == 60
    with pytest.raises(ValueError, match=r"must be read as the held-out ones are: .*no column 'b'"):
        margin.audit(run, ood=str(written("odd.csv", "a,c", x, [""] * 120)))
