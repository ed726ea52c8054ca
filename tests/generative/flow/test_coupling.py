"""Affine couplings: the Jacobian by autograd, exact inverses, halves that change roles."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.generative.flow.coupling import PIECE, Affine, Couplings, in_pieces, standard_normal


def couplings(features: int, context: int = 0, layers: int = 3, seed: int = 0) -> Couplings:
    torch.manual_seed(seed)
    return Couplings(
        features, context, monotone=Affine(), layers=layers, hidden=(16, 16), activation="tanh"
    ).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("features", [2, 3, 5, 8])
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_the_log_determinant_is_that_of_the_jacobian(features: int, layers: int) -> None:
    flow, x = couplings(features, layers=layers), drawn(4, features)
    _, log_det = flow(x)
    for row, found in zip(x, log_det, strict=True):
        J = torch.func.jacrev(lambda one: flow(one[None])[0][0])(row)
        torch.testing.assert_close(found, torch.linalg.slogdet(J).logabsdet, atol=1e-10, rtol=0)


@pytest.mark.parametrize("features", [2, 3, 5, 8])
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_the_inverse_is_exact(features: int, layers: int) -> None:
    flow, x = couplings(features, layers=layers), 3 * drawn(100, features)
    torch.testing.assert_close(flow.inverse(flow(x)[0]), x, atol=1e-10, rtol=0)
    torch.testing.assert_close(flow(flow.inverse(x))[0], x, atol=1e-10, rtol=0)
    single, x32 = flow.float(), x.float()
    torch.testing.assert_close(single.inverse(single(x32)[0]), x32, atol=1e-5, rtol=0)


def test_a_layer_is_the_papers_formula() -> None:
    """y1 = x1, y2 = x2 exp(s) + t by hand: a network of biases alone, then the roles change."""
    flow = couplings(3, layers=2)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.zero_()
        flow.networks[0][-1].bias.copy_(torch.tensor([0.3, -0.7, 5.0, -1.0]))  # of features 2 and 3
        flow.networks[1][-1].bias.copy_(torch.tensor([0.1, 2.0]))  # of feature 1
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    s2, s3, s1 = (2 * math.tanh(raw) for raw in (0.3, -0.7, 0.1))
    expected = [[math.exp(s1) + 2, 2 * math.exp(s2) + 5, 3 * math.exp(s3) - 1]]
    with torch.no_grad():
        y, log_det = flow(x)
    assert y.tolist() == [pytest.approx(expected[0])]
    assert float(log_det) == pytest.approx(s1 + s2 + s3)


def test_the_first_coupling_moves_the_second_half_and_the_next_the_first() -> None:
    flow, x = couplings(5, layers=2), drawn(1, 5)
    J = torch.func.jacrev(lambda one: flow(one[None])[0][0])(x[0])
    assert flow.sizes == (2, 3)
    # z_b = g(x_b; x_a); z_a = g(x_a; z_b): within z_b, the numbers of x_b do not meet
    inner = J[2:, 2:]
    torch.testing.assert_close(inner, inner.diagonal().diag())
    assert bool((J[:2] != 0).all())


def test_the_scale_is_bounded() -> None:
    x, raw = torch.ones(1, 1), torch.tensor([[1e9, 0.0]])
    y, log = Affine(1.5).forward(x, raw)
    assert float(log) == 1.5
    assert float(y) == pytest.approx(math.exp(1.5))
    assert float(Affine(1.5).inverse(y, raw)) == pytest.approx(1.0)


def test_a_context_is_seen_by_every_network() -> None:
    flow, x = couplings(4, context=2, layers=3), drawn(6, 4)
    context = drawn(6, 2, seed=5)
    z, _ = flow(x, context)
    torch.testing.assert_close(flow.inverse(z, context), x, atol=1e-10, rtol=0)
    assert not torch.allclose(flow(x, context + 1)[0], z)
    assert all(network[0].in_features == 2 + 2 for network in flow.networks)


def test_a_coupling_needs_two_halves_that_move() -> None:
    with pytest.raises(ValueError, match=r"got 1 feature"):
        couplings(1)
    with pytest.raises(ValueError, match=r"layers must be at least 2, that both halves move: got 1"):
        couplings(2, layers=1)
    for limit in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"max_log_scale must be positive"):
            Affine(limit)


def test_the_normal_density_is_torchs() -> None:
    z = drawn(5, 3)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)
    torch.testing.assert_close(standard_normal(z), expected)


def test_many_rows_are_mapped_in_pieces_where_no_gradient_is_asked() -> None:
    seen: list[int] = []

    def double(x: Tensor, y: Tensor) -> Tensor:
        seen.append(len(x))
        return x + y

    rows = torch.arange(2.0 * PIECE + 1)
    with torch.no_grad():
        assert torch.equal(in_pieces(double, rows, rows), 2 * rows)
        in_pieces(double, rows[:PIECE], rows[:PIECE])
    assert seen == [PIECE, PIECE, 1, PIECE]
    in_pieces(double, rows.requires_grad_(), rows)
    assert seen[-1] == len(rows)
