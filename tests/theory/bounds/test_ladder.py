"""The ladder of bounds: rungs by hand, codes by enumeration, and what the first screen says of them."""

import dataclasses
import itertools
import math

import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import binom
from sklearn.neighbors import KNeighborsClassifier
from torch import Generator, nn

import margin
from margin.auditing.report.plots import plot
from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.bounds import ladder as rungs
from margin.theory.bounds.binary_kl import binary_kl, kl_upper
from margin.theory.bounds.description import enumerated_nats, quantized, stored_nats
from margin.theory.bounds.figures import rungs as draw_rungs
from margin.theory.bounds.ladder import BINOMIAL, CONSTANT, HOEFFDING, QUANTIZED, STORED, demo, ladder
from margin.theory.bounds.samples import occam_bound
from margin.theory.prediction.held_out import stated


def test_the_held_out_rungs_by_hand() -> None:
    """4 of 80 wrong, each rung at half of 4.995 %: the tail is .024975, the root sqrt(-ln .024975 / 160)."""
    found = ladder(demo())
    known = dict(zip(found.labels, found.value.tolist(), strict=True))
    assert list(known) == [BINOMIAL, HOEFFDING]
    assert binom.cdf(4, 80, known[BINOMIAL]) == pytest.approx(0.024975)
    assert known[HOEFFDING] == pytest.approx(0.05 + math.sqrt(-math.log(0.024975) / 160))
    assert found.verdict is Verdict.MEASURED


def classifier(n: int, weight: float = 30.0) -> Subject:
    """A line that tells two clouds apart, of n training and 200 held-out examples, a few of them noise."""
    g = Generator().manual_seed(0)
    x = torch.randn(n + 200, 20, generator=g)
    y = (x[:, 0] > 0).long()
    y = torch.where(torch.rand(n + 200, generator=g) < 0.03, 1 - y, y)
    model = nn.Linear(20, 2)
    with torch.no_grad():
        model.weight.uniform_(-0.3, 0.3)
        model.weight[:, 0] = torch.tensor([-weight, weight])
        model.bias.zero_()
    train, test = Batch((x[:n],), y[:n]), Batch((x[n:],), y[n:])
    return Subject(model=model, test=[test], train=[train], task=CLASSES, objective=risk(CLASSES))


def test_few_weights_and_many_examples_have_bounds_from_the_training_part() -> None:
    """42 numbers of 32 bits are 931.6 nats: the divergence granted is (931.6 + ln 80) / 10,000."""
    subject = classifier(10_000)
    found = ladder(subject)
    known = dict(zip(found.labels, found.value.tolist(), strict=True))
    assert list(known)[:4] == [BINOMIAL, HOEFFDING, STORED, QUANTIZED]
    x, y = subject.train[0].inputs[0], subject.train[0].targets
    with torch.no_grad():
        wrong = float((subject.model(x).argmax(1) != y).double().mean())
    granted = float(binary_kl(wrong, known[STORED]))
    assert granted == pytest.approx((42 * 32 * math.log(2) + math.log(4 / 0.04995)) / 10_000)
    assert wrong < known[QUANTIZED] < known[STORED] < 0.25


def test_a_model_without_stored_weights_has_no_bound_by_its_training_examples() -> None:
    """A neighbor's label, of coins: right for all that it saw, for half of the rest."""
    g = Generator().manual_seed(0)
    x, y = torch.randn(600, 5, generator=g), torch.randint(2, (600,), generator=g)
    model = KNeighborsClassifier(1).fit(x[:400].numpy(), y[:400].numpy())
    parts = {"data": (x[400:].numpy(), y[400:].numpy()), "train": (x[:400].numpy(), y[:400].numpy())}
    audit = margin.audit(model, **parts, claims=["bounds.ladder", "memorization"])
    assert float(audit["memorization.accuracy"].value[0]) == 1
    found = audit["bounds.ladder"]
    assert found.labels == (BINOMIAL, HOEFFDING)  # an Occam bound of 0 nats would say .014
    assert float(found.value.min()) > 0.5
    assert not any("chose nothing of the model" in p.text for p in found.premises)
    assert any("chose nothing of the model" in p.text for p in ladder(classifier(100)).premises)


class OnAGraph(nn.Module):
    """Each node reads the next, of a fixed ring: no part of the nodes can be asked."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.nodes, self.layer = nodes, nn.Linear(20, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) != self.nodes:
            raise IndexError("edges point to nodes that are not there")
        out: torch.Tensor = self.layer(x + x.roll(1, 0))
        return out


def test_the_nodes_of_one_graph_have_no_bounds_by_norms() -> None:
    """The theorems by norms speak of maps of one vector; its batch cannot be cut to find out its layers."""
    x, y = (torch.randn(60, 20, generator=Generator().manual_seed(0)), torch.arange(60) % 2)
    audit = margin.audit(OnAGraph(60), (x, y), train=(x, y), claims="bounds.ladder")
    assert [a.broken for a in audit.answers] == [""]
    assert audit["bounds.ladder"].labels == (BINOMIAL, HOEFFDING, STORED, QUANTIZED)


def test_the_bound_of_a_quantized_copy_is_of_its_own_errors(monkeypatch) -> None:
    """A copy that answers all alike errs for a half of the training examples, however short it is."""
    subject = classifier(10_000)

    def constant(model, levels):
        twin = nn.Linear(20, 2)
        nn.init.zeros_(twin.weight)
        return twin, 1.0

    monkeypatch.setattr(rungs, "quantized", constant)
    found = dict(zip(ladder(subject).labels, ladder(subject).value.tolist(), strict=True))
    assert 0.49 < found[QUANTIZED] < 0.52


def test_the_choice_among_copies_is_paid_for() -> None:
    """The best of three at a third of a rung's 1.24875 %, each by its own errors on the training part."""
    subject = classifier(10_000)
    x, y = subject.train[0].inputs[0], subject.train[0].targets
    bounds = []
    for levels in (3, 9, 33):
        twin, nats = quantized(subject.model, levels)
        with torch.no_grad():
            risk = float((twin(x).argmax(1) != y).double().mean())
        granted = (nats - math.log(0.04995 / 4 / 3)) / 10_000
        bounds.append((risk, granted, float(kl_upper(risk, granted))))
    best = min(bound for *_, bound in bounds)
    assert float(ladder(subject).value[3]) == pytest.approx(best, abs=1e-12)


def test_a_quantized_copy_has_few_values_and_leaves_the_model() -> None:
    model = nn.Linear(5, 4)
    before = model.weight.clone()
    twin, _ = quantized(model, 3)
    assert len(twin.weight.unique()) == 3
    assert torch.equal(model.weight, before)


def test_a_long_description_is_vacuous_and_says_one() -> None:
    found = ladder(classifier(50))
    assert found.value[2:4].tolist() == [pytest.approx(1, abs=0.1), 1.0]


def test_the_code_of_a_sequence_is_a_law_over_all_sequences() -> None:
    """Kraft: the probabilities e^-length of all 3^5 sequences sum to 1. By hand: 5 counts, 6 orders."""
    total = 0.0
    for word in itertools.product(range(3), repeat=5):
        total += math.exp(-enumerated_nats(torch.bincount(torch.tensor(word), minlength=3)))
    assert total == pytest.approx(1)
    assert enumerated_nats(torch.tensor([2, 2])) == pytest.approx(math.log(5 * 6))


def test_the_length_of_a_network_counts_what_is_stored_and_what_is_written() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()  # 15 + 6 numbers, 6 and a count kept
    assert stored_nats(model) == pytest.approx((15 + 6 + 6 + 1) * 64 * math.log(2))
    twin, nats = quantized(model, 4)
    code = (
        (model[0].weight - model[0].weight.min()) / (model[0].weight.max() - model[0].weight.min()) * 3
    ).round()
    counts = torch.bincount(code.flatten().long(), minlength=4)
    assert nats == pytest.approx((28 - 12 + 2) * 64 * math.log(2) + enumerated_nats(counts))
    assert torch.equal(twin[0].bias, model[0].bias)
    assert (twin[0].weight - model[0].weight).abs().max() <= (
        model[0].weight.max() - model[0].weight.min()
    ) / 6 + 1e-12
    assert float(occam_bound(0.0, 100, 0.05, choice=nats)) == pytest.approx(
        1 - math.exp(-(nats - math.log(0.05)) / 100)
    )
    with pytest.raises(ValueError, match="levels must be at least 2: got 1"):
        quantized(model, 1)


def test_a_constant_matrix_is_written_too() -> None:
    model = nn.Linear(2, 2)
    nn.init.ones_(model.weight)
    twin, _ = quantized(model, 2)
    assert torch.equal(twin.weight, model.weight)


def test_an_output_that_is_not_finite_has_no_bound() -> None:
    subject = demo()
    outputs = subject.test[0].inputs[0].clone()
    outputs[3, 0] = math.nan
    found = ladder(dataclasses.replace(subject, test=[subject.test[0]._replace(inputs=(outputs,))]))
    assert found.verdict is Verdict.FAILED


def test_copies_between_the_parts_refute_the_premise() -> None:
    subject = classifier(400)
    leaked = dataclasses.replace(subject, test=[subject.train[0]])
    assert ladder(leaked).verdict is Verdict.UNFOUNDED


@pytest.mark.parametrize(
    ("values", "drawn", "said"),
    [
        (
            (0.05, 0.1, 0.45, 0.6, 1.0),
            2,
            "a constant answer errs on .45 (dashed);\n3 more bounds say no more than that",
        ),
        ((0.05, 0.1, 0.2, 0.3, 0.44), 5, "a constant answer errs on .45 (dashed)"),
        (
            (0.45, 0.9, 1.0, 1.0, 1.0),
            0,
            "a constant answer errs on .45 (dashed);\n5 bounds say no more than that",
        ),
    ],
)
def test_the_picture_folds_what_a_constant_answer_says_too(
    values: tuple[float, ...], drawn: int, said: str
) -> None:
    names = tuple(f"bound {value:g}, {i}" for i, value in enumerate(values))
    bound = ladder(demo())
    axes = Figure().subplots()
    curves = {CONSTANT: torch.tensor([0.45], dtype=torch.float64)}
    value = torch.tensor(values, dtype=torch.float64)
    assert draw_rungs(axes, dataclasses.replace(bound, value=value, labels=names, curves=curves))
    assert [bar.get_width() for bar in axes.patches] == list(values[:drawn])
    assert axes.texts[-1].get_text() == said


def test_the_errors_of_a_constant_answer_are_those_of_the_commonest_class() -> None:
    subject = classifier(100)
    labels = subject.test[0].targets
    found = ladder(subject)
    assert float(found.curves[CONSTANT]) == pytest.approx(
        min(int(labels.sum()), int((1 - labels).sum())) / 200
    )
    assert "(dashed)" in plot("margin.theory.bounds.figures:rungs", found, "a")  # the report draws it


def test_the_best_of_several_models_pays_for_the_choice() -> None:
    """4 of 80 wrong, the best of 50: tails of .024975 / 50, and ln 50 more below the root."""
    found = ladder(dataclasses.replace(demo(), compared=50))
    known = dict(zip(found.labels, found.value.tolist(), strict=True))
    assert binom.cdf(4, 80, known[BINOMIAL]) == pytest.approx(0.024975 / 50)
    assert known[HOEFFDING] == pytest.approx(0.05 + math.sqrt((math.log(50) - math.log(0.024975)) / 160))
    assert "at once of the 50 models that the examples compared with 95% confidence" in found.statement
    assert any("nothing but this model, of 50 made without them" in p.text for p in found.premises)
    alone, unsaid = (ladder(dataclasses.replace(demo(), compared=models)) for models in (1, None))
    assert torch.equal(alone.value, unsaid.value) and alone.statement == unsaid.statement
    assert [p.text for p in alone.premises if p.text.startswith("the held-out examples chose")] == [
        "the held-out examples chose nothing"
    ]
    assert any("--selected-on-test N" in p.evidence for p in unsaid.premises)
    assert not any("--selected-on-test N" in p.evidence for p in alone.premises)


def test_the_training_examples_pay_for_the_choice_too() -> None:
    """Of several shapes the held-out examples chose one: each has its bounds at 1/50 of its probability."""
    subject = classifier(10_000)
    found = [ladder(dataclasses.replace(subject, compared=models)) for models in (50, 1)]
    more, alone = (dict(zip(one.labels, one.value.tolist(), strict=True)) for one in found)
    with torch.no_grad():
        wrong = float(
            (subject.model(subject.train[0].inputs[0]).argmax(1) != subject.train[0].targets).double().mean()
        )
    granted = [float(binary_kl(wrong, one[STORED])) for one in (more, alone)]
    assert granted[0] - granted[1] == pytest.approx(math.log(50) / 10_000, rel=1e-6)
    assert more[QUANTIZED] > alone[QUANTIZED]


def test_bounds_by_capacity_pay_for_the_choice_with_their_own_part(monkeypatch) -> None:
    monkeypatch.setattr(rungs, "by_norms", lambda part, delta: {"given": delta})
    found = ladder(dataclasses.replace(classifier(100), compared=50))
    known = dict(zip(found.labels, found.value.tolist(), strict=True))
    assert known["given"] == pytest.approx(0.05 * 0.001 / 50)


@pytest.mark.parametrize(("paid", "holds"), [(30, True), (1, False)])
def test_the_bound_of_the_best_of_thirty_covers_as_often_as_it_says(paid: int, holds: bool) -> None:
    """1,000 draws of 30 models that all err on 3 of 10: the best of them on 60 examples is no better.

    Each rung may fail on 2.4975 % of the draws: of 1,000 more than 46 with probability below 1e-4. What does
    not pay fails where some model errs on 10 or fewer, which by the binomial law is so on 34 of 100.
    """
    often = 1 - (1 - binom.cdf(10, 60, 0.3)) ** 30
    generator = Generator().manual_seed(11)
    errors = torch.rand(1000, 30, 60, generator=generator).lt(0.3).sum(2).amin(1)
    bounds = {}
    for count in errors.unique().tolist():
        labels = torch.arange(60) % 2
        predicted = torch.where(torch.arange(60) < count, 1 - labels, labels)
        subject = stated(nn.functional.one_hot(predicted, 2).double(), labels, task=CLASSES)
        bounds[count] = ladder(dataclasses.replace(subject, compared=paid)).value
    failed = torch.stack([bounds[count] for count in errors.tolist()]).lt(0.3).sum(0)
    assert (failed <= 46).all() if holds else abs(int(failed[0]) - 1000 * often) < 60


def test_so_many_models_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="selected_on_test must count this model, at least 1: got 0"):
        dataclasses.replace(demo(), compared=0)
