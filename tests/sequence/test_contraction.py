"""The most that a step can stretch: of each kind of layer, by brute force; refused where it is not so."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.sequence import elman, gru, lru, lstm, mingru
from margin.sequence.contraction import contractions, simple, step_is_its_own, stretch
from margin.sequence.deep_transition import DeepTransition
from margin.sequence.gradient_by_lag import flat, unflat
from margin.sequence.heard import Heard
from margin.sequence.linear_system import LinearSystem, classifier
from margin.sequence.lru import LRU
from margin.sequence.recurrence import Recurrence, State
from margin.sequence.torch_recurrent import TorchRecurrence

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
    premise = step_is_its_own(Heard("here", layer, x, None))
    assert premise.status == "refuted" and "here" in premise.text
    assert "Doubled, whose step differs from a TorchRecurrence's" in premise.evidence
    layer.factor = 1.0
    assert step_is_its_own(Heard("here", layer, x, None)).status == "sampled"
    assert step_is_its_own(Heard("here", made("lru"), x, None)).status == "proved"
