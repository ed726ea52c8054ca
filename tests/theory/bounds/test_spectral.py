"""Bounds by norms: matrices written out, what the lemmas give, each lemma, where they promise, refusals."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq, minimize
from torch import Generator, nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES, class_margins
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.bounds.ladder import ladder
from margin.theory.bounds.pac_bayes import pac_bayes_kl
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


def covered(s: list[float], b: list[float], length: float, width: int) -> float:
    """ln N at eps 1 of all layers together, the split of eps among them found by descent."""
    before, behind = np.cumprod([1.0, *s[:-1]]), np.cumprod([1.0, *s[:0:-1]])[::-1]

    def nats(logits: np.ndarray) -> float:
        parts = np.exp(logits) / np.exp(logits).sum() / behind
        return float(((np.array(b) * before * length / parts) ** 2).sum() * math.log(2 * width**2))

    found = minimize(lambda x: math.log(nats(x)), np.zeros(len(s)), method="Nelder-Mead",
                     options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000})  # fmt: skip
    return nats(found.x)


def test_the_spectral_bound_is_what_its_lemmas_give() -> None:
    """Covers split by a search, the chain integrated by quadrature; gamma .3 counts as 1/4."""
    n, delta, length, width = 2000, 0.1, 0.01, 7
    found = spectral_bound(0.05, NORMS, width=width, length=length, margin=0.3, n=n, delta=delta)
    nats = covered([2, 0.5], [4, 1], length, width)
    slope = 2 / 0.25  # of the loss by the outputs
    integral = quad(lambda u: math.sqrt(nats * slope**2 / math.exp(2 * u)) * math.exp(u),
                    math.log(1 / n), math.log(math.sqrt(n)))[0]  # fmt: skip
    complexity = 4 / n / math.sqrt(n) + 12 / n * integral
    own = delta * math.exp(-sum(grid_nats(k) for k in (-2, 1, -1, 2, 0)))
    once = math.sqrt(math.log(2 / own) / (2 * n))
    assert found == pytest.approx(0.05 + 2 * complexity + once + 2 * once, rel=1e-6)
    assert 0.3 < found < 0.9
    assert found - spectral_bound(0.05, NORMS, width=width, length=0.0001, margin=0.3, n=n, delta=delta) > 0.1
    assert spectral_bound(0.05, NORMS, width=7, length=50.0, margin=0.3, n=1000, delta=delta) == 1.0


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_few_matrices_of_one_entry_cover_a_layer_tightly(draws: int) -> None:
    """Step 1, all centers written out: each A Z is within b |Z| / (1 + sqrt k) of one, a corner no nearer."""
    rng = np.random.default_rng(0)
    Z, b = rng.standard_normal((2, 3)), 1.5
    total = float(np.linalg.norm(Z))
    one_entry = [sign * b * total * np.outer(np.eye(2)[r], Z[c] / np.linalg.norm(Z[c]))
                 for sign in (-1, 1) for r in range(2) for c in range(2)]  # fmt: skip
    shrunk = math.sqrt(draws) / (1 + math.sqrt(draws))
    centers = np.stack([
        shrunk * sum(kinds) / draws for kinds in itertools.combinations_with_replacement(one_entry, draws)
    ])  # fmt: skip
    reach = b * total / (1 + math.sqrt(draws))

    def off(outputs: np.ndarray) -> float:
        return float(np.linalg.norm(centers - outputs, axis=(1, 2)).min())

    for _ in range(200):
        A = rng.standard_normal((2, 2))
        A *= b / np.linalg.norm(A, axis=1).sum()
        assert off(A @ Z) <= reach
    # were Z one row alone, its outputs would have the whole length
    assert off(one_entry[0]) == pytest.approx(reach, rel=1e-9)


def test_a_margin_changes_by_less_than_twice_the_change_of_the_outputs() -> None:
    """Step 3: sqrt(2) times, met where one score rises and the other falls; not once."""
    generator = Generator().manual_seed(3)
    one, other = torch.randn(2, 10_000, 4, generator=generator, dtype=torch.float64)
    labels = torch.zeros(10_000, dtype=torch.long)
    ratio = (class_margins(one, labels) - class_margins(other, labels)).abs() / (one - other).norm(dim=1)
    assert 1.2 < float(ratio.max()) <= math.sqrt(2)


def test_the_perturbation_bound_is_what_its_lemmas_give() -> None:
    """Layers are scaled one by one, sigma is what moves outputs by gamma / 4; .3 counts as 1/2."""
    n, delta, h, B, gamma = 20_000, 0.1, 7, 0.5, 128.0
    norms = (Norms(20.7, 30.0, 22.0), Norms(0.4, 0.9, 0.5), Norms(1.1, 1.9, 1.5))
    found = perturbation_bound(0.05, norms, width=h, radius=0.3, margin=130.0, n=n, delta=delta)
    product = 20.7 * 0.4 * 1.1
    beta, place = product ** (1 / 3), math.ceil(math.log(product))
    assert place == 3
    above = math.exp(place / 3)
    # the chance that a layer exceeds t sigma is one in six
    t = brentq(lambda t: 2 * h * math.exp(-(t**2) / (2 * h)) - 1 / 6, 1, 100)
    sigma = brentq(lambda s: math.e * B * above**2 * 3 * s * t - gamma / 4, 1e-9, 1e9)
    kl = sum((beta * one.frobenius / one.spectral) ** 2 for one in norms) / (2 * sigma**2)
    own = delta / 2 * math.exp(-grid_nats(7) - grid_nats(-1) - grid_nats(3))
    held = float(pac_bayes_kl(0.05, 2 * (kl + math.log(2)), n, own))
    assert found == pytest.approx(held + math.log(2 / delta) / n, rel=1e-9)
    assert 100 < kl < 0.1 * n
    assert 0.1 < found < 0.9


def test_outputs_change_by_less_than_e_times_the_sum() -> None:
    """Lemma 2: (1 + 1/d)^d - 1 of a chain of ones, more than the sum; random networks of ReLUs less."""
    assert (1 + 1 / 8) ** 8 - 1 > 1.5
    generator = Generator().manual_seed(4)
    for _ in range(200):
        W = [torch.randn(5, 5, generator=generator, dtype=torch.float64) for _ in range(4)]
        U = [torch.randn(5, 5, generator=generator, dtype=torch.float64) for _ in range(4)]
        U = [u * (_largest(w) / 4 / _largest(u)) for u, w in zip(U, W, strict=True)]
        x = torch.randn(5, generator=generator, dtype=torch.float64)
        moved, still = x, x
        for number, (w, u) in enumerate(zip(W, U, strict=True)):
            still, moved = w @ still, (w + u) @ moved
            if number < 3:
                still, moved = still.relu(), moved.relu()
        promised = math.e * float(x.norm()) * math.prod(map(_largest, W)) * 4 / 4
        assert float((moved - still).norm()) <= promised


def _largest(matrix: torch.Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


def test_half_of_the_normal_matrices_are_no_larger_than_promised() -> None:
    """All three of 400 draws stay below t, where half would be enough; half of t is exceeded by most."""
    h, d = 6, 3
    t = math.sqrt(2 * h * math.log(4 * h * d))
    drawn = torch.randn(400, d, h, h, generator=Generator().manual_seed(5), dtype=torch.float64)
    share = (torch.linalg.matrix_norm(drawn, 2).amax(1) <= t).double().mean()
    assert float(share) > 0.5
    assert float((torch.linalg.matrix_norm(drawn, 2) > t / 2).double().mean()) > 0.5


def test_half_of_a_law_diverges_by_at_most_twice_as_much_and_two_bits() -> None:
    """Step 4, on laws over six outcomes; KL alone, doubled, is exceeded where the law is the prior."""
    rng = np.random.default_rng(1)
    exceeded = 0
    for _ in range(300):
        p = rng.dirichlet(np.ones(6))
        q = p if rng.random() < 0.3 else rng.dirichlet(np.ones(6))
        kl = float((q * np.log(q / p)).sum())
        for size in range(1, 6):
            kept = list(range(size))
            if (mass := float(q[kept].sum())) >= 0.5:
                half = float((q[kept] / mass * np.log(q[kept] / mass / p[kept])).sum())
                assert half <= 2 * (kl + math.log(2)) + 1e-12
                exceeded += half > 2 * kl
    assert exceeded > 10


def test_bounds_by_norms_hold_where_they_promise_something() -> None:
    """One layer, three inputs on a line of which one is answered wrongly: the risk is its probability.

    Each of 40 samples may fail with probability .01, by a margin that makes 1e-9 of it.
    """
    W = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    x, y = torch.tensor([-2.0, 1.5, 0.5], dtype=torch.float64), torch.tensor([1, 0, 1])
    chance = np.array([0.6, 0.3, 0.1])
    scores = torch.stack((x, torch.ones(3, dtype=torch.float64)), 1) @ W.T
    margins, lengths = class_margins(scores, y), (x.square() + 1).sqrt()
    norms = (Norms(_largest(W), float(W.norm(dim=1).sum()), float(W.norm())),)
    rng = np.random.default_rng(2)
    for n, least in ((10**9, 0.1), (10**6, 0.1)):
        for _ in range(20):
            counts = rng.multinomial(n, chance)
            share = float(counts[(margins <= 1).numpy()].sum() / n)
            length = math.sqrt(float(counts @ lengths.square().numpy()))
            bound = (
                spectral_bound(share, norms, width=3, length=length, margin=1.0, n=n, delta=0.01)
                if n == 10**9
                else perturbation_bound(
                    share, norms, width=3, radius=float(lengths.max()), margin=1.0, n=n, delta=0.01
                )
            )
            assert least <= bound < 0.6


def test_inputs_longer_than_all_of_the_sample_count_as_errors() -> None:
    """Step 6: what n draws below all of a share p of inputs leave of it; the bound grants that share."""
    n, delta = 50, 0.02
    granted = math.log(2 / delta) / n
    assert (1 - granted) ** n <= delta / 2 < (1 - 0.9 * granted) ** n
    huge = perturbation_bound(0.0, NORMS, width=2, radius=1e-9, margin=1e9, n=n, delta=delta)
    assert huge > granted + 0.1


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
    exact = torch.tensor([0.5, 2.0], dtype=torch.float64)  # a margin that is a power is at most that
    assert margin_shares(exact) == [(0.5, 0.5), (1.0, 0.5), (2.0, 1.0)]


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
