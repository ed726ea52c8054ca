"""The gradient-norm bound: it holds, is tight, is refused; and the notes' two implications fail."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence
from margin.sequence.convolution import tcn
from margin.sequence.dynamics import gradient_by_lag as measure
from margin.sequence.dynamics import gradient_claims
from margin.sequence.dynamics.contraction import Contraction, contractions
from margin.sequence.dynamics.gradient_claims import bound, decay, demo, feeding_back, has_bound, has_feedback
from margin.sequence.linear import linear_system, lru, mingru
from margin.sequence.recurrent import bidirectional, deep_transition, elman, gru, lstm, stack_memory
from margin.sequence.recurrent.readouts import SequenceClassifier
from margin.sequence.recurrent.torch_recurrent import TorchRecurrence

SIMPLE = {
    "elman": lambda: elman.classifier(3, 2, hidden=5, layers=2),
    "relu": lambda: elman.classifier(3, 2, hidden=5, nonlinearity="relu"),
    "deep": lambda: deep_transition.classifier(3, 2, hidden=5),
    "linear": lambda: linear_system.classifier(3, 2, width=4, states=5),
    "lru": lambda: lru.classifier(3, 2, width=4, states=5),
    "bidirectional": lambda: bidirectional.classifier(3, 2, cell="elman", hidden=5),
}
OTHERS = {
    "lstm": lambda: lstm.classifier(3, 2, hidden=5),
    "gru": lambda: gru.classifier(3, 2, hidden=5, reset="before"),
    "mingru": lambda: mingru.classifier(3, 2, hidden=5),
    "stack memory": lambda: stack_memory.classifier(3, 2, hidden=5, capacity=4),
}


def subject_of(model: nn.Module, *more: Tensor, time: int = 20) -> Subject:
    x = torch.randn(4, time, 3, generator=Generator().manual_seed(0))
    batch = Batch((x, *more), torch.arange(4) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


def linear(A: Tensor) -> Subject:
    """A model whose only recurrence is the linear system of transition A."""
    layer = linear_system.LinearSystem(3, states=len(A))
    with torch.no_grad():
        layer.A.copy_(A)
    return subject_of(SequenceClassifier(layer, 2), time=40)


def largest(finding: Finding) -> float:
    return float(finding.value.max())


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_holds_at_random(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    for more in ((), (torch.tensor([20, 0, 7, 1]),)):
        finding = bound(subject_of(SIMPLE[name](), *more))
        assert finding.verdict == Verdict.HOLDS
        assert finding.high is not None and bool((finding.value > 0).all())


def test_it_is_tight_for_a_scaled_orthogonal_linear_network() -> None:
    Q, _ = torch.linalg.qr(torch.randn(6, 6, generator=Generator().manual_seed(1)))
    for g in (0.5, 1.0, 1.5):
        finding = bound(linear(g * Q))
        assert finding.verdict == Verdict.HOLDS
        assert largest(finding) == pytest.approx(float(finding.high.max()), rel=2e-9)  # type: ignore[union-attr]
        for key in ("least norm", "largest norm"):
            curve = finding.curves[f"recurrence: {key}"]
            seen = ~curve.isnan()
            torch.testing.assert_close(
                curve[seen], finding.curves["recurrence: bound"][seen], rtol=1e-4, atol=0
            )


def test_a_smaller_promise_would_be_violated() -> None:
    """The value is what the promise is compared with: 1 percent less, and it does not hold."""
    Q, _ = torch.linalg.qr(torch.randn(6, 6, generator=Generator().manual_seed(1)))
    finding = bound(linear(0.9 * Q))
    less = dataclasses.replace(finding, high=0.99 * finding.high)  # type: ignore[operator]
    assert less.verdict == Verdict.VIOLATED


def test_below_one_gradients_vanish_and_above_it_they_need_not_explode() -> None:
    """sigma_1 < 1 implies vanishing: 004 prints >=. sigma_1 = 10 of a nilpotent U: all is gone in 6 steps."""
    shift = torch.diag(torch.ones(5), 1)
    small, large = bound(linear(0.5 * shift)), bound(linear(10 * shift))
    assert small.verdict == large.verdict == Verdict.HOLDS
    assert "vanishing is implied (sigma_1(A) = 0.5)" in small.statement
    assert "explosion is allowed, not implied (sigma_1(A) = 10)" in large.statement
    for subject in (linear(0.5 * shift), linear(10 * shift)):
        assert float(decay(subject).value) == 0
    one = bound(linear(torch.eye(6)))
    assert "neither explosion nor, by it, vanishing" in one.statement


def test_saturated_units_vanish_though_the_norm_is_above_one() -> None:
    """A stable network needs no norm of 1: units at +-1 have no slope."""
    model = elman.classifier(3, 2, hidden=5)
    with torch.no_grad():
        model.recurrence.layer.weight_hh_l0.copy_(3 * torch.eye(5))  # type: ignore[union-attr,operator]
    finding = bound(subject_of(model))
    assert finding.verdict == Verdict.HOLDS
    assert float(finding.high) == pytest.approx(3)  # type: ignore[arg-type]
    assert float(decay(subject_of(model)).value) < 0.6


class Doubled(TorchRecurrence):
    """A simple recurrent network whose state grows threefold after each step."""

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        y, (h,) = super().step(x, state)
        return y, (3 * h,)


def test_a_layer_whose_step_is_no_phi_of_an_affine_map_is_unfounded_by_name() -> None:
    model = SequenceClassifier(Doubled(nn.RNN(3, 5, batch_first=True)), 2)
    finding = bound(subject_of(model))
    assert finding.verdict == Verdict.UNFOUNDED
    (premise,) = [p for p in finding.premises if p.status == "refuted"]
    assert "recurrence" in premise.text and "Doubled" in premise.evidence


class Scaled(nn.RNN):
    """Torch's layer, whose last state is three times too large."""

    def forward(self, x, h=None):  # type: ignore[no-untyped-def]
        y, h = super().forward(x, h)
        return y, 3 * h


def test_what_a_recurrence_holds_may_not_be_another_layer_or_have_a_hook() -> None:
    torch.manual_seed(0)
    inside = SequenceClassifier(TorchRecurrence(Scaled(3, 5, batch_first=True)), 2)
    hooked = elman.classifier(3, 2, hidden=5)
    hooked.recurrence.layer.register_forward_hook(lambda m, x, y: (y[0], 3 * y[1]))  # type: ignore[union-attr,operator]
    for model in (inside, hooked):
        assert bound(subject_of(model)).verdict == Verdict.UNFOUNDED


def unit(modulus: float) -> Subject:
    """A model whose only recurrence is a linear recurrent unit of eigenvalues of one modulus."""
    layer = lru.LRU(3, states=3)
    with torch.no_grad():
        layer.nu.fill_(math.log(-math.log(modulus)))
    return subject_of(SequenceClassifier(layer, 2), time=600)


def orthogonal(size: float, states: int = 3, time: int = 600) -> Subject:
    generator = Generator().manual_seed(1)
    Q, _ = torch.linalg.qr(torch.randn(states, states, generator=generator, dtype=torch.float64))
    subject = linear(Q)
    with torch.no_grad():
        subject.model.double().recurrence.A.mul_(size)  # type: ignore[union-attr,operator]
    return subject_of(subject.model, time=time)


@pytest.mark.parametrize("size", [0.25, 0.24, 0.236, 0.233, 0.1])
def test_norms_without_digits_are_not_judged(size: float) -> None:
    """At lag 512 the norm .24^512 is subnormal: its root was 1e-9 above the bound, or below."""
    for subject in (unit(size), orthogonal(size)):
        finding = bound(subject)
        assert finding.verdict == Verdict.HOLDS
        assert float(finding.value) == pytest.approx(size, rel=1e-6)


def test_where_no_norm_has_its_digits_the_factor_is_0() -> None:
    """Also where the first example has no step and thus no norm."""
    for size, expected in ((1e-200, 1e-200), (1e-295, 0.0), (0.0, 0.0)):
        subject = orthogonal(size, time=20)
        (x,) = subject.test[0].inputs
        for inputs in ((x,), (x, torch.tensor([0, 20, 3, 1]))):
            batch = subject.test[0]._replace(inputs=inputs)
            finding = bound(dataclasses.replace(subject, test=[batch]))
            assert finding.verdict == Verdict.HOLDS
            assert float(finding.value) == pytest.approx(expected, rel=1e-6, abs=0)


def test_each_layer_has_the_rounding_of_its_own_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a layer of bound 1e9 a factor 1e-6 above a bound of about 1 is still violated."""
    torch.manual_seed(0)
    model = linear_system.classifier(3, 2, width=4, states=5).double()
    with torch.no_grad():
        model.recurrence.blocks[1].core.A.mul_(1e9)  # type: ignore[union-attr,operator,index]
    subject = subject_of(model)
    assert bound(subject).verdicts == [Verdict.HOLDS, Verdict.HOLDS]

    def smaller(one: Recurrence) -> list[Contraction]:
        (part,) = contractions(one)
        return [part._replace(stretch=part.stretch * (1 - 1e-6) if part.stretch < 10 else part.stretch)]

    monkeypatch.setattr(gradient_claims, "contractions", smaller)
    assert bound(subject).verdicts == [Verdict.VIOLATED, Verdict.HOLDS]


def test_many_linear_recurrent_units_are_judged_without_an_error() -> None:
    """400 real numbers: by products with vectors the value stood 4e-8 below the bound, with an error."""
    torch.manual_seed(0)
    finding = bound(subject_of(lru.classifier(3, 2, width=8, states=200, layers=1), time=64))
    assert finding.verdict == Verdict.HOLDS and finding.kind == "exact"
    assert float(finding.value) == pytest.approx(float(finding.high), rel=2e-9)  # type: ignore[arg-type]


def test_nan_and_sequences_without_a_step_fail() -> None:
    model = elman.classifier(3, 2, hidden=5)
    empty = subject_of(model, torch.zeros(4, dtype=torch.int64))
    for ask in (bound, decay):
        finding = ask(empty)
        assert finding.verdict == Verdict.FAILED and "no step" in finding.failure
    with torch.no_grad():
        model.recurrence.layer.weight_hh_l0.fill_(math.nan)  # type: ignore[union-attr,operator]
    for ask in (bound, decay):
        finding = ask(subject_of(model))
        assert finding.verdict == Verdict.FAILED and "recurrence are not finite" in finding.failure


@pytest.mark.parametrize("name", [*SIMPLE, *OTHERS])
def test_any_recurrence_is_measured_on_what_the_model_gives_it(name: str) -> None:
    torch.manual_seed(0)
    subject = subject_of((SIMPLE | OTHERS)[name](), torch.tensor([20, 0, 7, 20]))
    assert has_feedback(subject)
    finding = decay(subject)
    assert finding.verdict == Verdict.MEASURED
    assert finding.curves["lag"].tolist() == list(range(1, 21))
    (first, *_) = finding.labels
    median, most = (finding.curves[f"{first}: {what} norm"] for what in ("median", "largest"))
    seen = ~median.isnan()
    assert seen.nonzero()[:, 0].add(1).tolist() == [1, 2, 3, 4, 6, 8, 11, 16, 20]
    assert bool((median <= most)[seen].all())


def test_the_factor_is_the_norm_at_the_longest_lag_a_step() -> None:
    subject = demo()
    (layer,) = (one for _, one in feeding_back(subject.model))
    x, lengths = subject.test[0].inputs
    found = measure.by_lag(layer.double().eval(), x.double(), lengths)
    ends = [float(found.norms[i, -1]) ** (1 / 30) for i in (0, 3)]
    ends.append(float(measure.by_lag(layer, x[1:2, :12].double()).norms[0, -1]) ** (1 / 12))
    assert float(decay(demo()).value) == pytest.approx(sorted(ends)[1], rel=1e-5)


def test_a_large_state_is_asked_by_products_with_vectors_and_the_error_is_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    subject = subject_of(elman.classifier(3, 2, hidden=5))
    exact = bound(subject)
    monkeypatch.setattr(measure, "EXACT", 4)
    finding = bound(subject)
    assert finding.kind == "estimate" and finding.interval is not None
    assert finding.verdict == Verdict.HOLDS
    assert finding.interval[0] - 1e-12 <= exact.value <= finding.interval[1] + 1e-12
    assert decay(subject).verdict == Verdict.MEASURED


def test_convolutions_feed_nothing_back_and_gated_cells_have_no_bound() -> None:
    assert not has_feedback(subject_of(tcn.classifier(3, 2)))
    assert not has_bound(subject_of(OTHERS["gru"]()))
    assert has_bound(subject_of(SIMPLE["elman"]()))
    assert [n for n, _ in feeding_back(SIMPLE["bidirectional"]())] == [
        "recurrence.layers.0.ahead",
        "recurrence.layers.0.back",
    ]
    none = dataclasses.replace(subject_of(SIMPLE["elman"]()), test=())
    assert not has_feedback(none) and not has_bound(none)


def test_asking_leaves_no_trace() -> None:
    subject, before = demo(), torch.get_rng_state()
    weights = {k: v.clone() for k, v in subject.model.state_dict().items()}
    assert decay(subject).verdict == Verdict.MEASURED
    assert bound(subject).verdict == Verdict.HOLDS
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(v, weights[k]) for k, v in subject.model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in subject.model.parameters())
