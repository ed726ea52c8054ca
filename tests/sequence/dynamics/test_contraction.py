"""The most that a step can stretch: of each kind of layer, by brute force; refused where it is not so."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Premise
from margin.nn.recurrence import Recurrence, State
from margin.sequence.dynamics.gradients import contractions, flat, simple, step_of_its_class, stretch, unflat
from margin.sequence.linear import lru, mingru
from margin.sequence.linear.linear_system import LinearSystem, classifier
from margin.sequence.linear.lru import LRU
from margin.sequence.recurrent import elman, gru, lstm
from margin.sequence.recurrent.captured import Captured
from margin.sequence.recurrent.elman import DeepTransition
from margin.sequence.recurrent.layers import TorchRecurrence

KINDS = {
    "tanh": lambda: elman.recurrence(2, hidden=4, layers=2),
    "relu": lambda: elman.recurrence(2, hidden=4, nonlinearity="relu"),
    "deep": lambda: DeepTransition(2, hidden=4, depth=3),
    "linear": lambda: LinearSystem(2, states=4),
    "lru": lambda: LRU(2, states=4),
}


def made(name: str) -> Recurrence:
    torch.manual_seed(0)
    return KINDS[name]().double()


def derivative(layer: Recurrence, x: Tensor, row: Tensor, part: slice) -> Tensor:
    """The derivative of a part of the new state by the same part of the old."""
    like = layer.initial(x)

    def after(z: Tensor) -> Tensor:
        return flat(layer.step(x, unflat(z[None], like))[1])[0]

    return torch.autograd.functional.jacobian(after, row)[part, part]


@pytest.mark.parametrize("name", KINDS)
def test_no_step_stretches_more_and_where_slopes_are_steepest_a_step_stretches_so_much(name: str) -> None:
    layer, generator = made(name), Generator().manual_seed(0)
    x = torch.zeros(1, 2, dtype=torch.float64)
    size = flat(layer.initial(x)).shape[1]
    for part in contractions(layer):
        norms = []
        for _ in range(20):
            row = torch.randn(size, generator=generator, dtype=torch.float64)
            norms.append(float(torch.linalg.matrix_norm(derivative(layer, x, row, part.part), 2)))
        assert max(norms) <= part.stretch * (1 + 1e-12)
    if name != "deep":  # there the largest vectors of one matrix need not be those of the next
        with torch.no_grad():
            for key, parameter in layer.named_parameters():
                if "bias" in key:
                    parameter.fill_(1e3 if name == "relu" else 0.0)
        row = torch.zeros(size, dtype=torch.float64)
        for part in contractions(layer):
            J = derivative(layer, x, row, part.part)
            assert float(torch.linalg.matrix_norm(J, 2)) == pytest.approx(part.stretch, rel=1e-12)


def test_the_stretch_is_alpha_times_the_spectral_norm() -> None:
    U = torch.tensor([[3.0, 0], [4, 5]])  # U^T U has the eigenvalues 45 and 5
    assert stretch(U) == pytest.approx(math.sqrt(45), rel=1e-12)
    assert stretch(U, 0.25) == pytest.approx(math.sqrt(45) / 4, rel=1e-12)
    assert math.isnan(stretch(torch.full((2, 2), math.nan)))


def test_parts_are_the_layers_states_and_are_named() -> None:
    two = contractions(made("tanh"))
    assert [(part.name, part.part) for part in two] == [("layer 1", slice(0, 4)), ("layer 2", slice(4, 8))]
    assert two[0].stretch != two[1].stretch
    (one,) = contractions(made("lru"))
    assert (one.name, one.part) == ("", slice(0, 8))
    deep = made("deep")
    norms = [
        float(torch.linalg.matrix_norm(p, 2))
        for p in map(Tensor.detach, deep.parameters())
        if p.shape == (4, 4)
    ]
    assert contractions(deep)[0].stretch == pytest.approx(math.prod(norms), rel=1e-12)


def test_the_layers_are_found_by_name_and_gated_cells_are_none() -> None:
    assert [name for name, _ in simple(elman.classifier(2, 2))] == ["recurrence"]
    blocks = ["recurrence.blocks.0.core", "recurrence.blocks.1.core"]
    assert [name for name, _ in simple(classifier(2, 2))] == blocks
    assert [name for name, _ in simple(lru.classifier(2, 2))] == blocks
    assert [name for name, _ in simple(LRU(2))] == ["LRU"]
    for other in (lstm.classifier(2, 2), gru.classifier(2, 2), mingru.classifier(2, 2), nn.Linear(2, 2)):
        assert simple(other) == []
    with pytest.raises(ValueError, match="no bound is known of a step of MinGRU"):
        contractions(mingru.MinGRU(2))


class Doubled(TorchRecurrence):
    """A simple recurrent network whose state doubles after each step."""

    factor = 2.0

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, (h,) = super().step(x, state)
        return y, (self.factor * h,)


def test_a_layer_whose_step_is_another_is_refused_by_name() -> None:
    layer, x = Doubled(nn.RNN(2, 4, batch_first=True)).double(), torch.zeros(1, 3, 2, dtype=torch.float64)
    premise = step_of_its_class(Captured("here", layer, x, None))
    assert premise.status == "refuted" and "here" in premise.text
    assert "Doubled, whose step differs from a TorchRecurrence's" in premise.evidence
    layer.factor = 1.0
    assert step_of_its_class(Captured("here", layer, x, None)).status == "sampled"


def asked(layer: Recurrence) -> Premise:
    return step_of_its_class(Captured("here", layer, torch.zeros(1, 3, 2, dtype=torch.float64), None))


@pytest.mark.parametrize("name", KINDS)
def test_the_formula_is_the_step_and_a_subclass_that_keeps_it_is_sampled(name: str) -> None:
    layer = made(name)
    assert asked(layer).status == "proved"
    layer.__class__ = type("Named", (type(layer),), {})
    premise = asked(layer)
    assert premise.status == "sampled" and "it is a Named, whose" in premise.evidence


def test_the_formula_has_no_bias_where_there_is_none() -> None:
    layer = Doubled(nn.RNN(2, 4, batch_first=True, bias=False, nonlinearity="relu")).double()
    layer.factor = 1.0
    assert asked(layer).status == "sampled"


def test_large_values_are_compared_relative_to_their_size() -> None:
    layer = Doubled(nn.RNN(2, 4, batch_first=True, nonlinearity="relu")).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(1e8)
    layer.factor = 1.0
    assert asked(layer).status == "sampled"
    layer.factor = 1 + 1e-8
    assert asked(layer).status == "refuted"


class Tripled(nn.RNN):
    """Torch's layer, whose last state is three times too large."""

    def forward(self, x, h=None):  # type: ignore[no-untyped-def]
        y, h = super().forward(x, h)
        return y, 3 * h


class Negated(nn.Linear):
    """A matrix with another sign."""

    def forward(self, input: Tensor) -> Tensor:
        return -super().forward(input)


def test_what_is_inside_a_layer_is_looked_at_too() -> None:
    premise = asked(TorchRecurrence(Tripled(2, 4, batch_first=True)).double())
    assert premise.status == "refuted"
    assert "it is a Tripled in its layer, whose step differs from a TorchRecurrence's" in premise.evidence
    deep = made("deep")
    deep.recur = Negated(4, 4, bias=False).double()
    premise = asked(deep)
    assert premise.status == "refuted" and "a Negated in its recur" in premise.evidence


def test_hooks_that_change_a_step_refute_it_and_others_do_not() -> None:
    for change, status in ((3.0, "refuted"), (1.0, "sampled")):
        layer = made("tanh")
        layer.layer.register_forward_hook(lambda *a, c=change: (a[2][0], c * a[2][1]))  # type: ignore[union-attr,operator]
        premise = asked(layer)
        assert premise.status == status
        assert "a TorchRecurrence with a hook in its layer" in premise.evidence
        deep = made("deep")
        deep.read.register_forward_hook(lambda *_: None)  # type: ignore[union-attr,operator]
        deep.recur.register_forward_pre_hook(lambda m, given, c=change: (c * given[0],))  # type: ignore[union-attr,operator]
        assert asked(deep).status == status


@pytest.mark.parametrize("name", ["lru", "linear", "deep"])
def test_a_step_set_on_the_layer_itself_is_looked_at(name: str) -> None:
    layer = made(name)
    own = layer.step
    layer.step = lambda x, state: (own(x, state)[0], (2 * own(x, state)[1][0],))  # type: ignore[method-assign]
    premise = asked(layer)
    assert premise.status == "refuted" and "with a step of its own" in premise.evidence
