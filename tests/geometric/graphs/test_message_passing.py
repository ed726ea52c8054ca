"""Message passing with functions of one's own: by loops, equivariant, the ball of k edges, odd graphs."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.geometric.graphs.message_passing import MessagePassing


class Psi(nn.Module):
    def __init__(self, width: int, edge_width: int = 2) -> None:
        super().__init__()
        self.map = nn.Linear(2 * width + edge_width, width)

    def forward(self, x_i: Tensor, x_j: Tensor, e: Tensor) -> Tensor:
        return self.map(torch.cat((x_i, x_j, e), 1)).tanh()


class Phi(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        return self.map(torch.cat((x, seen), 1))


def layer(how: str = "sum", edge_width: int = 2) -> MessagePassing:
    torch.manual_seed(0)
    return MessagePassing(Psi(3, edge_width), Phi(3), how=how).double()  # type: ignore[arg-type]


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(0)
    x = torch.randn(6, 3, generator=g).double()
    return x, torch.randint(5, (2, 12), generator=g), torch.randn(12, 2, generator=g).double()


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_it_is_its_formula(how: str) -> None:
    """Node 5 is isolated: it aggregates 0."""
    x, edges, attr = drawn()
    own, rows = layer(how), []
    for i in range(6):
        messages = [
            own.psi(x[i : i + 1], x[j : j + 1], attr[k : k + 1])
            for k, (j, t) in enumerate(edges.T.tolist())
            if t == i
        ]
        several = torch.cat(messages) if messages else torch.zeros(1, 3).double()
        seen = {"sum": several.sum(0), "mean": several.mean(0), "max": several.amax(0)}[how]
        rows.append(own.phi(x[i : i + 1], seen[None])[0])
    torch.testing.assert_close(own(x, edges, attr), torch.stack(rows), rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_renumbered_nodes_get_renumbered_rows(how: str) -> None:
    x, edges, attr = drawn()
    own, g = layer(how), Generator().manual_seed(3)
    pi, order = torch.randperm(6, generator=g), torch.randperm(12, generator=g)
    found = own(x[pi], pi.argsort()[edges][:, order], attr[order])
    torch.testing.assert_close(found, own(x, edges, attr)[pi])


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_k_layers_see_the_ball_of_k_edges_exactly(how: str) -> None:
    """On a directed path 0 -> 1 -> ... -> 6 node 6 depends on 6, 5, .. 6 - k, and on no other."""
    path = torch.stack((torch.arange(6), torch.arange(1, 7)))
    own = layer(how, 0)
    for k in range(4):
        x = torch.randn(7, 3, generator=Generator().manual_seed(1)).double().requires_grad_()
        rows = x
        for _ in range(k):
            rows = own(rows, path, torch.zeros(6, 0).double())
        (gradient,) = torch.autograd.grad(rows[6].sum(), x)
        assert gradient.any(1).tolist() == [6 - k <= j for j in range(7)]


def test_without_edges_every_node_aggregates_0() -> None:
    x, _, attr = drawn()
    own = layer("max")
    found = own(x, torch.zeros(2, 0, dtype=torch.int64), attr[:0])
    torch.testing.assert_close(found, own.phi(x, torch.zeros_like(x)))


def test_it_is_twice_differentiable() -> None:
    x, edges, attr = drawn()
    assert torch.autograd.gradgradcheck(lambda z: layer()(z, edges, attr), (x.requires_grad_(),))


def test_it_refuses() -> None:
    with pytest.raises(Exception, match="median"):
        layer("median")
