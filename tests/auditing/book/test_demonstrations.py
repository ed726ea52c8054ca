"""Demonstrations show what their theorem is about: a promise that cuts, a value away from the trivial one."""

from collections.abc import Callable

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.core.catalog import claims, resolve
from margin.core.findings import Finding, Verdict, finding_of
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import learn, risk


def found(name: str) -> Finding:
    claim = claims()[name]
    return finding_of(claim, resolve(claim.demo)())


def by_label(finding: Finding) -> dict[str, float]:
    return dict(zip(finding.labels, finding.value.tolist(), strict=True))


def law_is_of_order_a_tenth(finding: Finding) -> bool:
    return 0.05 < float(finding.low) < 0.2 and abs(float(finding.value - finding.low)) < 0.02


def bottleneck_is_narrower_than_both_ends(finding: Finding) -> bool:
    strength = finding.curves["singular values"]
    return float(finding.high) == 2 < len(strength) - 1 and bool((strength[2:] < 1e-9 * strength[0]).all())


def training_raised_it(finding: Finding) -> bool:
    value = by_label(finding)
    return value["now"] > value["at the start"] + 0.02


def three_norms_differ(finding: Finding) -> bool:
    return len(set(finding.value.tolist())) == 3


def some_steps_are_too_long(finding: Finding) -> bool:
    value = by_label(finding)
    return 0 < value["heun"] < value["euler"] / 5 and value["dpm++"] < value["ddim"] / 5


def labels_and_predictions_are_both_counted(finding: Finding) -> bool:
    return len(finding.labels) == 3 and bool(((finding.value > 0.6) & (finding.value < 0.95)).all())


SHOWN: dict[str, Callable[[Finding], bool]] = {
    "classic/hopfield.flip_probability": law_is_of_order_a_tenth,
    "classic/hopfield.unstable_bits": law_is_of_order_a_tenth,
    "classic/associative_memory.lost": lambda f: 0.1 < float(f.value) < 0.9,
    "classic/linear_network.rank": bottleneck_is_narrower_than_both_ends,
    "theory/symmetry.alignment": lambda f: 0.05 < float(f.value) < 0.5,
    "theory/regions.on_segments": lambda f: bool((100 * f.value < f.high).all()) and len(f.labels) == 4,
    "text/attention.maps": lambda f: bool((f.value < f.value.new_tensor([4, 7])).all()),
    "geometric/graph.homophily": labels_and_predictions_are_both_counted,
    "generative/sampler.steps": some_steps_are_too_long,
    "generative/codes.reconstruction": lambda f: 0 <= float(f.value - f.low) < 0.02,
    "sequence/seq2seq.by_length": lambda f: float(f.curves["share of right next tokens"].min()) > 0.6,
    "sequence/attention_seq2seq.alignment": lambda f: by_label(f)["same place from the end"] > 0.7,
    "theory/ntk.alignment": training_raised_it,
    "robust/attacks.linear": three_norms_differ,
    "theory/bounds.certificate": lambda f: 0.2 < float(f.high) < 0.5,
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_demonstration_shows_something(name: str) -> None:
    finding = found(name)
    assert finding.verdict in (Verdict.HOLDS, Verdict.MEASURED)
    assert SHOWN[name](finding)


DRAWN = (
    *(
        "theory/rates.stationary",
        "theory/rates.linear",
        "theory/rates.accelerated",
        "theory/rates.heavy_ball",
    ),
    *("theory/bounds.coverage", "theory/bounds.finite_class", "theory/bounds.uniform"),
    "classic/max_margin.optimality",
)


@pytest.mark.parametrize("name", DRAWN)
def test_a_demonstration_is_drawn(name: str) -> None:
    claim = claims()[name]
    assert "<svg" in plot(claim.figure, found(name), "x")


@pytest.mark.parametrize("name", [name for name in DRAWN if ".rates" in name or "/rates" in name])
def test_what_a_method_leaves_is_drawn_below_its_bound_at_every_step(name: str) -> None:
    finding = found(name)
    step, measured, bound = (finding.curves[key] for key in ("step", "measured", "bound"))
    assert step.tolist() == list(range(1, 101))
    assert bool((measured <= bound + 1e-9).all())
    for i, value in zip((0, 9, 99), finding.value, strict=True):  # the table's rows lie on the curve
        assert measured[i] == value
    if not name.endswith("stationary"):
        assert float(bound[9] / measured[9]) < 100  # a valley so long that the bound is of use


def test_bounds_are_drawn_with_the_risk_that_they_bound() -> None:
    coverage = found("theory/bounds.coverage")
    curves = coverage.curves
    errors, risk_ = curves["errors in the sample"], curves["the risk"]
    assert bool((risk_ == risk_[0]).all())
    assert errors[0] / 100 < risk_[0] < errors[-1] / 100
    for name in coverage.labels:  # a bound rises with the errors, and lies above their share
        bound = curves[f"bound, {name}"]
        assert bool((bound.diff() >= 0).all())
        assert bool((bound >= errors / 100).all())
    uniform = found("theory/bounds.uniform").curves
    assert bool((uniform["share of samples that are farther off"] <= uniform["promised at most"]).all())
    many = found("theory/bounds.finite_class").curves
    assert bool((many["risk"].diff() >= 0).all())
    assert bool((many["Chernoff and a union"] >= many["errors on one sample"]).all())


def test_support_vectors_lie_at_the_least_margin() -> None:
    curves = found("classic/max_margin.optimality").curves
    (a, b), on = curves["boundary"], curves["support vectors"]
    along = (b - a) / (b - a).norm()
    away = (on - a) - ((on - a) @ along)[:, None] * along
    everyone = curves["points"] - a
    least = (everyone - (everyone @ along)[:, None] * along).norm(dim=1).min()
    assert len(on) >= 2
    torch.testing.assert_close(away.norm(dim=1), least.expand(len(on)), rtol=1e-5, atol=1e-6)


def test_a_demonstration_is_trained_the_same_way_each_time_and_moves_no_generator() -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    batch, ends = Batch((x,), (x[:, 0] > 0).long()), []
    for _ in range(2):
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight.zero_()
            model.bias.zero_()
        before = torch.get_rng_state()
        learn(model, risk(CLASSES), batch, steps=30, lr=0.1)
        assert torch.equal(before, torch.get_rng_state())
        ends.append(model.weight.detach())
    assert torch.equal(*ends)
    assert bool((model(x).argmax(1) == batch.targets).double().mean() > 0.8)
