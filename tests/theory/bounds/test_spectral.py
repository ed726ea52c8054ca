"""Bounds by norms: the matrices written out, the formulas by hand, a case that is not vacuous, refusals."""

import math

import pytest
import torch
from torch import Generator, nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.bounds.ladder import ladder
from margin.theory.bounds.samples import vc_bound
from margin.theory.bounds.spectral import (
    PERTURBED,
    SPECTRAL,
    VC,
    Network,
    Norms,
    by_dimension,
    by_norms,
    grid_nats,
    margin_shares,
    network_of,
    norms_of,
    perturbation_bound,
    spectral_bound,
)
from margin.theory.signal.chain import chain_of


def matrix_of(layer: nn.Module, shape: tuple[int, ...]) -> torch.Tensor:
    """An affine layer written out: its matrix, its bias a column, and a row that carries the constant."""
    size = math.prod(shape)
    zero = layer(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
    columns = layer(torch.eye(size, dtype=torch.float64).reshape(size, *shape)).flatten(1).T - zero[:, None]
    whole = torch.cat((columns, zero[:, None]), 1)
    return torch.cat((whole, torch.eye(size + 1, dtype=torch.float64)[-1:])).detach()


def measured(matrix: torch.Tensor) -> tuple[float, float, float]:
    return (
        float(torch.linalg.matrix_norm(matrix, 2)),
        float(matrix.norm(dim=1).sum()),
        float(matrix.norm()),
    )


def test_the_norms_of_a_linear_layer_are_exact() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 3).double()
    matrix = matrix_of(layer, (4,))
    assert norms_of(layer, (), 1) == pytest.approx(measured(matrix))
    assert norms_of(layer, (), 1, last=True) == pytest.approx(measured(matrix[:-1]))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
def test_the_norms_of_a_convolution_are_no_less_than_those_of_its_matrix(stride: int, padding: int) -> None:
    """Without padding and stride the sums are those of the matrix; the spectral norm exceeds it a little."""
    torch.manual_seed(1)
    layer = nn.Conv2d(2, 3, 3, padding=padding, stride=stride).double()
    matrix = matrix_of(layer, (2, 6, 6))
    places = len(matrix) // 3
    found, exact = norms_of(layer, (6 + 2 * padding,) * 2, places), measured(matrix)
    assert all(a >= b - 1e-9 for a, b in zip(found, exact, strict=True))
    if not padding:
        assert found[1:] == pytest.approx(exact[1:])
    if stride == 1:
        assert found.spectral < 1.6 * exact[0]


def test_the_lengths_of_the_grid_are_a_code() -> None:
    """Kraft's sum over all integers is .75: 2 (1/2 - 1/4) + ... telescopes to (2 - 1/2) / 2."""
    total = sum(math.exp(-grid_nats(k)) for k in range(-20_000, 20_001))
    assert total == pytest.approx(0.75, abs=1e-4)
    assert grid_nats(3) == grid_nats(-3) == pytest.approx(math.log(2 * 4 * 5))


NORMS = (Norms(1.7, 3.0, 2.0), Norms(0.4, 0.9, 0.5))
"""Rounded upwards the spectral norms are 2 and 1/2, the rows 4 and 1."""


def test_the_spectral_bound_by_hand() -> None:
    """gamma .3 counts as 1/4; 2^1 2^-1 = 1; (2^(2/3) + 2^(2/3))^(3/2) = 2^(3/2) 2."""
    n, delta = 10**9, 0.1
    found = spectral_bound(0.05, NORMS, width=7, length=50.0, margin=0.3, n=n, delta=delta)
    complexity = 72 * math.log(n) * math.sqrt(math.log(98)) * 50 / (0.25 * n) * 1 * 2**1.5 * 2
    paid = sum(grid_nats(k) for k in (-2, 1, -1, 2, 0))
    chance = 3 * math.sqrt((paid + math.log(10)) / (2 * n))
    assert found == pytest.approx(0.05 + 8 / n**1.5 + complexity + chance, rel=1e-9)
    assert 0.05 < found < 0.06
    assert spectral_bound(0.05, NORMS, width=7, length=50.0, margin=0.3, n=1000, delta=delta) == 1.0


def test_the_perturbation_bound_by_hand() -> None:
    n, delta, h, B, gamma = 10**14, 0.1, 7, 2.0, 0.25
    found = perturbation_bound(0.05, NORMS, width=h, radius=B, margin=0.3, n=n, delta=delta)
    ratios = (2 / 1.7) ** 2 + (0.5 / 0.4) ** 2
    kl = (42 * 2 * B) ** 2 * h * math.log(4 * h * 2) * math.e**2 / (2 * gamma**2) * (1.7 * 0.4) ** 2 * ratios
    paid = grid_nats(-2) + grid_nats(math.ceil(math.log(1.7 * 0.4)))
    assert found == pytest.approx(0.05 + 4 * math.sqrt((kl + math.log(6 * n / delta) + paid) / (n - 1)))
    assert 0.05 < found < 0.06


@pytest.mark.parametrize("bound", [spectral_bound, perturbation_bound])
def test_numbers_out_of_range_are_refused(bound) -> None:
    more = {"width": 3, ("length" if bound is spectral_bound else "radius"): 1.0}
    with pytest.raises(ValueError, match="margin must be above 0"):
        bound(0.1, NORMS, margin=0.0, n=10, delta=0.1, **more)
    with pytest.raises(ValueError, match="delta must lie in"):
        bound(0.1, NORMS, margin=1.0, n=10, delta=1.0, **more)


def test_the_bound_by_the_dimension_by_hand() -> None:
    """Two inputs, 3 hidden units, K outputs: 9 and 4 weights; R = 3 + 2 = 5, depths 9 + 13 = 22."""
    inner = 2 * math.e * 5
    dimension = 2 + 22 * math.log2(2 * inner * math.log2(inner))
    n = 10**8
    growth = dimension * math.log(math.e * n / dimension)
    for classes, pairs in ((2, 1), (4, 6)):
        network = Network(NORMS, (2, 3, classes), (9, 4 * classes), 2)
        found = by_dimension(network, classes, 0.1, n, 0.05)
        assert found == pytest.approx(float(vc_bound(0.1, pairs * growth, n, 0.05)))
        assert found < 1


def test_margins_are_tried_at_powers_of_two() -> None:
    margins = torch.tensor([-1.0, 0.3, 0.6, 2.5], dtype=torch.float64)
    assert margin_shares(margins) == [(0.25, 0.25), (0.5, 0.5), (1.0, 0.75), (2.0, 0.75)]
    assert margin_shares(-margins.abs()) == []


def subject_of(model: nn.Module, n: int = 40) -> Subject:
    generator = Generator().manual_seed(0)
    x = torch.randn(n, 2, 6, 6, generator=generator)
    y = (x.mean((1, 2, 3)) > 0).long()
    return Subject(
        model=model, test=[Batch((x,), y)], train=[Batch((x,), y)], task=CLASSES, objective=risk(CLASSES)
    )


def head(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(2, 3, 3), *layers, nn.Flatten(), nn.Linear(48, 2))


def test_a_network_of_convolutions_is_read_as_a_chain() -> None:
    model = head(nn.ReLU())
    network = network_of(chain_of(model, (torch.zeros(2, 2, 6, 6),)))
    assert network.widths == (72, 48, 2)
    assert network.weights == (57, 98)
    assert network.pieces == 2
    assert network.norms[0] == norms_of(model[0], (6, 6), 16)  # type: ignore[index,arg-type]


@pytest.mark.parametrize(
    ("layers", "rungs"),
    [
        ((nn.ReLU(),), {SPECTRAL, PERTURBED, VC}),
        ((nn.Hardtanh(),), {SPECTRAL, VC}),
        ((nn.Tanh(),), {SPECTRAL}),
        ((nn.Tanh(), nn.ReLU()), {SPECTRAL}),
        ((nn.Sigmoid(),), set()),  # it maps 0 to 1/2
        ((nn.BatchNorm2d(3), nn.ReLU()), set()),
        ((nn.LeakyReLU(-2.0),), set()),
        ((nn.Hardtanh(0.5, 1.0),), set()),
    ],
)
def test_a_theorem_is_asked_of_the_networks_that_it_is_about(
    layers: tuple[nn.Module, ...], rungs: set[str]
) -> None:
    found = by_norms(subject_of(head(*layers)), 0.01)
    assert set(found) == rungs
    assert all(0 <= value <= 1 for value in found.values())


def test_the_ladder_has_them_as_rungs_that_cost_the_others_nothing_to_speak_of() -> None:
    subject = subject_of(head(nn.ReLU()))
    found = ladder(subject)
    assert set(found.labels) >= {SPECTRAL, PERTURBED, VC}
    other = ladder(subject_of(head(nn.Sigmoid())))
    assert len(found.labels) == len(other.labels) + 3
