"""ChebNet against the eigenbasis, dense recurrences, its first-order case, and how far it looks."""

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.spectral.chebnet import ChebConv, chebnet, chebyshev, chebyshev_filter, clenshaw
from margin.geometric.spectral.laplacian import (
    Symmetric,
    adjacency,
    cycle,
    laplacian,
    path,
    rescaled,
    weighted_random,
)


def drawn(seed: int = 0) -> tuple[Tensor, Tensor]:
    return weighted_random(12, 0.4, seed)


def made(edge_index: Tensor, size: int, weight: Tensor | None = None, how: str = "none") -> Symmetric:
    return laplacian(adjacency(edge_index, size, weight, dtype=torch.float64), normalization=how)


def signals(size: int = 12, count: int = 3) -> Tensor:
    return torch.randn(size, count, dtype=torch.float64, generator=Generator().manual_seed(1))


def nothing(edge_index: Tensor) -> Tensor:
    return torch.zeros(edge_index.shape[1], 0, dtype=torch.float64)


def layer(order: int = 2, **options: object) -> ChebConv:
    torch.manual_seed(0)
    return ChebConv(3, 2, order=order, **options).double()


@pytest.mark.parametrize("order", [0, 1, 2, 5])
def test_the_filter_is_a_cosine_of_angles_in_the_eigenbasis(order: int) -> None:
    """T_k(cos a) = cos(k a)."""
    edge_index, weight = drawn()
    L_hat, x = rescaled(made(edge_index, 12, weight, "symmetric"), 2.0), signals()
    values, U = torch.linalg.eigh(L_hat.dense())
    theta = torch.randn(order + 1, dtype=torch.float64, generator=Generator().manual_seed(2))
    angle = values.clamp(-1, 1).arccos()
    response = sum(theta[k] * torch.cos(k * angle) for k in range(order + 1))
    torch.testing.assert_close(
        chebyshev_filter(L_hat, x, theta), U @ (response[:, None] * (U.T @ x)), rtol=0, atol=1e-7
    )
    terms = theta[:, None, None] * x
    torch.testing.assert_close(clenshaw(L_hat, terms), chebyshev_filter(L_hat, x, theta), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2, 4])
@pytest.mark.parametrize("how", ["symmetric", "none"])
def test_a_layer_is_its_formula_with_dense_matrices(order: int, how: str) -> None:
    edge_index, weight = drawn()
    conv, x = layer(order, normalization=how, edge_weight="first", largest="lanczos"), signals()
    L = made(edge_index, 12, weight, how).dense()
    L_hat = 2 * L / torch.linalg.eigvalsh(L)[-1] - torch.eye(12, dtype=torch.float64)
    T, expected = [x, L_hat @ x], torch.zeros(12, 2, dtype=torch.float64)
    for _ in range(order):
        T.append(2 * L_hat @ T[-1] - T[-2])
    for k in range(order + 1):
        expected += T[k] @ conv.theta[k].T
    torch.testing.assert_close(conv(x, edge_index, weight[:, None]), expected + conv.bias, rtol=0, atol=1e-10)


def test_the_first_order_is_the_gcn_before_it_is_renormalized() -> None:
    """K = 1, lambda_max = 2, theta_1 = -theta_0: theta (I + D^-1/2 A D^-1/2)."""
    edge_index, _ = drawn()
    conv, x = layer(1), signals()
    with torch.no_grad():
        conv.theta[1].copy_(-conv.theta[0])
    A = torch.zeros(12, 12, dtype=torch.float64)
    A[edge_index[1], edge_index[0]] = 1.0
    root = A.sum(1).rsqrt().masked_fill(A.sum(1) == 0, 0.0)
    coupling = torch.eye(12, dtype=torch.float64) + root[:, None] * A * root
    alone = A.sum(1) == 0  # L's row is 0, so L^ is -1 there
    coupling[alone, alone] = 2.0
    torch.testing.assert_close(
        conv(x, edge_index, nothing(edge_index)), coupling @ x @ conv.theta[0].T, rtol=0, atol=1e-12
    )


def test_without_rescaling_the_polynomials_leave_their_interval() -> None:
    """T_4 of the normalized Laplacian itself grows to T_4(2) = 97 on a bipartite graph; rescaled it is 1."""
    L = made(cycle(8), 8, None, "symmetric")
    x = torch.eye(8, dtype=torch.float64)
    assert abs(float(torch.linalg.matrix_norm(chebyshev(L, x, 4)[4], 2)) - 97) < 1e-9
    assert abs(float(torch.linalg.matrix_norm(chebyshev(rescaled(L, 2.0), x, 4)[4], 2)) - 1) < 1e-9


@pytest.mark.parametrize(("order", "layers"), [(0, 1), (1, 1), (2, 1), (2, 2), (1, 3)])
def test_a_node_looks_exactly_so_many_edges_far(order: int, layers: int) -> None:
    torch.manual_seed(0)
    model = chebnet(3, 0, 4, hidden=32, layers=layers, order=order).double().eval()
    edge_index, x = path(15), signals(15).requires_grad_()
    logits = model(x, edge_index, nothing(edge_index), torch.tensor([15]))
    (gradient,) = torch.autograd.grad(logits[7].sum(), x)
    far = (torch.arange(15) - 7).abs()
    assert not gradient[far > order * layers].any()
    assert bool(gradient[far == order * layers].any(1).all())


def test_graphs_of_a_batch_do_not_mix_and_nodes_may_be_renumbered() -> None:
    torch.manual_seed(0)
    model = chebnet(3, 0, 4, largest="bound").double().eval()
    one, other = cycle(5), path(4)
    x = signals(9)
    both = torch.cat((one, other + 5), 1)
    found = model(x, both, nothing(both), torch.tensor([5, 4]))
    alone = model(x[5:], other, nothing(other), torch.tensor([4]))
    torch.testing.assert_close(found[5:], alone, rtol=0, atol=1e-12)
    order = torch.randperm(9, generator=Generator().manual_seed(3))
    place = order.argsort()
    moved = model(x[order], place[both], nothing(both), torch.tensor([9]))
    torch.testing.assert_close(moved, found[order], rtol=0, atol=1e-12)


def test_a_bag_of_words_is_read_where_it_is_not_0() -> None:
    torch.manual_seed(0)
    model = chebnet(40, 0, 3).double().eval()
    x = torch.zeros(12, 40, dtype=torch.float64)
    x[torch.arange(12), torch.arange(12) * 3] = 1.0
    edge_index, _ = drawn()
    rest = (edge_index, nothing(edge_index), torch.tensor([12]))
    sparse, dense = model(x, *rest), model(x.clone().requires_grad_(), *rest)
    torch.testing.assert_close(sparse, dense, rtol=0, atol=1e-12)
    for logits in (sparse, dense):
        logits.square().sum().backward()
    first = model.layers[0].linear.weight.grad
    assert bool(first.isfinite().all())
    assert bool(first.any())


def test_edges_that_change_are_read_anew() -> None:
    conv, x = layer(), signals(6)
    edge_index = cycle(6)
    weight = torch.ones(12, 1, dtype=torch.float64)
    before = conv(x, edge_index, weight)
    edge_index.copy_(edge_index.flip(1))  # the same edges in another order
    torch.testing.assert_close(conv(x, edge_index, weight), before, rtol=0, atol=1e-12)
    edge_index[:, :] = torch.cat((path(6), torch.zeros(2, 2, dtype=torch.int64)), 1)
    expected = conv(x, path(6), weight[:10])
    torch.testing.assert_close(conv(x, edge_index, weight), expected, rtol=0, atol=1e-12)
    assert (expected - before).abs().max() > 1e-3
    weighted = layer(edge_weight="first")
    first = weighted(x, edge_index, weight)
    torch.testing.assert_close(first, expected, rtol=0, atol=1e-12)
    weight[:10] *= torch.arange(1.0, 6).repeat(2)[:, None]
    assert (weighted(x, edge_index, weight) - first).abs().max() > 1e-3


@pytest.mark.parametrize("order", [1, 3])
def test_nodes_without_edges_get_numbers(order: int) -> None:
    """L^ = -I: T_k is (-1)^k."""
    conv, x = layer(order), signals(4)
    none = torch.zeros(2, 0, dtype=torch.int64)
    expected = x @ sum((-1.0) ** k * conv.theta[k] for k in range(order + 1)).T
    torch.testing.assert_close(conv(x, none, nothing(none)), expected, rtol=0, atol=1e-12)
    assert conv(x[:0], none, nothing(none)).shape == (0, 2)


def test_the_response_of_a_layer_is_what_it_multiplies_an_eigenvector_by() -> None:
    conv = layer(3)
    L = made(cycle(7), 7, None, "symmetric")
    values, U = torch.linalg.eigh(L.dense())
    for k in (0, 2, 6):
        x = torch.zeros(7, 3, dtype=torch.float64)
        x[:, 1] = U[:, k]
        expected = U[:, k, None] * conv.response(values, 2.0)[k, :, 1]
        torch.testing.assert_close(conv(x, cycle(7), nothing(cycle(7))), expected, rtol=0, atol=1e-9)


def test_a_derivative_is_right_to_the_second_order() -> None:
    conv = layer()
    edge_index, _ = drawn()
    x = signals().requires_grad_()
    f = lambda x: conv(x, edge_index, nothing(edge_index)).tanh()
    assert torch.autograd.gradcheck(f, (x,))
    assert torch.autograd.gradgradcheck(f, (x,))
    jacobian = torch.func.jacrev(f)(x.detach())
    torch.testing.assert_close(torch.autograd.functional.jacobian(f, x), jacobian, rtol=0, atol=1e-12)


def test_bad_options_and_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match="order must be at least 0: got -1"):
        ChebConv(3, 2, order=-1)
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\): got 1"):
        ChebConv(3, 2, dropout=1.0)
    with pytest.raises(ValueError, match="edge_weight first needs edges that carry a number"):
        chebnet(3, 0, 2, edge_weight="first")
    with pytest.raises(ValueError, match=r"at least 1: got 2 layers, \[3, 0, 2\] channels"):
        chebnet(3, 0, 2, hidden=0)
    with pytest.raises(ValueError, match="at least 1: got 0 layers"):
        chebnet(3, 0, 2, layers=0)
    one_way = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="undirected graph: there is an edge 0 -> 1, but none 1 -> 0"):
        layer()(signals(2), one_way, nothing(one_way))
