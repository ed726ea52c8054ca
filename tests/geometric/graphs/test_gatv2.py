"""Dynamic graph attention: the formula by loops, with and without edge features."""

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.graphs.attention import GATv2Layer, gatv2


def drawn(size: int = 7, edges: int = 14, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, directed edges with loops and double edges, features of edges; the last node is isolated."""
    g = Generator().manual_seed(seed)
    x = torch.randn(size, 4, generator=g).double()
    return x, torch.randint(size - 1, (2, edges), generator=g), torch.randn(edges, 2, generator=g).double()


def attended(edges: Tensor, attr: Tensor, i: int, size: int) -> list[tuple[int, Tensor]]:
    """The nodes to which i attends, itself last, with the features of each edge."""
    found, own, around = [], [], []
    for k in range(edges.shape[1]):
        j, target = edges[:, k].tolist()
        if target == i:
            (own if j == i else around).append(attr[k])
            if j != i:
                found.append((j, attr[k]))
    loop = torch.stack(own or around).mean(0) if own or around else torch.zeros(attr.shape[1]).double()
    return [*found, (i, loop)]


def by_hand(layer: GATv2Layer, x: Tensor, edges: Tensor, attr: Tensor) -> Tensor:
    L, R = layer.linear.weight.reshape(2, layer.heads, layer.width, -1)
    rows = []
    for i in range(len(x)):
        heads = []
        for k in range(layer.heads):
            scores, values = [], []
            for j, e in attended(edges, attr, i, len(x)):
                z = L[k] @ x[i] + R[k] @ x[j]
                if layer.edge is not None:
                    z = z + layer.edge.weight.reshape(layer.heads, layer.width, -1)[k] @ e
                scores.append(layer.score[k] @ torch.where(z > 0, z, layer.slope * z))
                values.append(R[k] @ x[j])
            heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
        rows.append(torch.cat(heads) if layer.merge == "concat" else torch.stack(heads).mean(0))
    return torch.stack(rows) + layer.bias


@pytest.mark.parametrize("merge", ["concat", "mean"])
@pytest.mark.parametrize("edge_features", [0, 2])
def test_it_is_its_formula(merge: str, edge_features: int) -> None:
    x, edges, attr = drawn()
    torch.manual_seed(0)
    layer = GATv2Layer(4, 3, 2, edge_features=edge_features, merge=merge, slope=0.3).double()  # type: ignore[arg-type]
    torch.nn.init.normal_(layer.bias)
    torch.testing.assert_close(layer(x, edges, attr), by_hand(layer, x, edges, attr), rtol=0, atol=1e-12)


def test_its_weights_sum_to_1_at_scores_of_1e8() -> None:
    x, edges, attr = drawn()
    layer = GATv2Layer(4, 3, 2, edge_features=2).double()
    where, weights = layer.attention(1e8 * x, edges, 1e8 * attr)
    torch.testing.assert_close(
        torch.zeros(7, 3).double().index_add(0, where[1], weights), torch.ones(7, 3).double()
    )


def test_the_network_has_edge_features_in_every_layer() -> None:
    torch.manual_seed(0)
    model = gatv2(4, 2, 3, hidden=2, heads=2).double().eval()
    x, edges, attr = drawn()
    attr.requires_grad_()
    model(x, edges, attr, torch.tensor([7])).sum().backward()
    assert attr.grad is not None
    assert bool(attr.grad.any())
