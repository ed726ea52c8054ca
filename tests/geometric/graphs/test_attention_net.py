"""What attention networks share: what is dropped is drawn head by head, and ELU stands between layers."""

import torch
import torch.nn.functional as F

from margin.geometric.graphs.attention import GATLayer, gat


def test_attention_is_dropped_for_each_head_by_itself_and_only_in_training() -> None:
    """Seed fixed. 2 heads on 2,000 loops: both weights stay with probability 1/4; standard error .0097."""
    layer = GATLayer(1, 2, 1, attention_dropout=0.5)
    with torch.no_grad():
        layer.linear.weight.fill_(1.0)
    x, nothing = torch.ones(2000, 1), torch.zeros(2, 0, dtype=torch.int64)
    torch.manual_seed(0)
    found = layer(x, nothing, torch.zeros(0, 0))
    assert set(found.unique().tolist()) == {0.0, 2.0}
    assert abs(float((found > 0).all(1).double().mean()) - 0.25) < 0.045
    assert layer.eval()(x, nothing, torch.zeros(0, 0)).unique().tolist() == [1.0]


def test_elu_stands_between_the_layers() -> None:
    torch.manual_seed(0)
    model = gat(2, 0, 3, hidden=4, heads=2).double().eval()
    x = torch.randn(5, 2).double()
    edges, attr = torch.tensor([[0, 1], [1, 2]]), torch.zeros(2, 0).double()
    first, second = model.layers
    expected = second(F.elu(first(x, edges, attr)), edges, attr)
    torch.testing.assert_close(model(x, edges, attr, torch.tensor([5])), expected)
    assert float(expected.detach().min()) < 0  # nothing follows the last
