"""Layer by layer and part by part: the answers of a pass over the whole graph."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.geometric.graphs.attention import gat, gatv2
from margin.geometric.graphs.gcn import GCN
from margin.geometric.graphs.gin import gin
from margin.geometric.graphs.node_net import layered
from margin.geometric.graphs.sage import GraphSAGE


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(0)
    x = torch.randn(31, 4, generator=g).double()
    return x, torch.randint(30, (2, 90), generator=g), torch.rand(90, 2, generator=g).double()


MODELS = {
    "gcn": lambda: GCN(4, 3, layers=3, edge_weight="first"),
    "gat": lambda: gat(4, 2, 3, layers=3),
    "gatv2": lambda: gatv2(4, 2, 3),
    "sage": lambda: GraphSAGE(4, 3),
    "sage max": lambda: GraphSAGE(4, 3, how="max"),
    "gin": lambda: gin(4, 3),
}


@pytest.mark.parametrize("part", [1, 7, 31, 1000])
@pytest.mark.parametrize("name", MODELS)
def test_it_gives_the_answers_of_the_whole_graph(name: str, part: int) -> None:
    torch.manual_seed(0)
    model: nn.Module = MODELS[name]().double().eval()  # type: ignore[no-untyped-call]
    x, edges, attr = drawn()
    whole = model(x, edges, attr, torch.tensor([31]))
    torch.testing.assert_close(layered(model, x, edges, attr, part=part), whole, rtol=0, atol=1e-10)  # type: ignore[arg-type]


def test_without_nodes_or_edges() -> None:
    model = GCN(4, 3).double().eval()
    x, edges, attr = drawn()
    assert layered(model, x[:0], edges[:, :0], attr[:0]).shape == (0, 3)
    alone = model(x, edges[:, :0], attr[:0], torch.tensor([31]))
    torch.testing.assert_close(layered(model, x, edges[:, :0], attr[:0], part=4), alone)


def test_it_refuses() -> None:
    with pytest.raises(ValueError, match="evaluation mode"):
        layered(GCN(4, 3), *drawn())
    with pytest.raises(ValueError, match="part must be at least 1: got 0"):
        layered(GCN(4, 3).eval(), *drawn(), part=0)
