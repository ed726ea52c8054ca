"""Stacks: equal to torch's layers, read upward, and refuse sizes that do not fit."""

import pytest
import torch
from torch import nn

from margin.sequence.recurrent.elman import DeepTransition
from margin.sequence.recurrent.layers import Stacked, TorchRecurrence, widths
from margin.sequence.recurrent.lstm import CellMatrixLSTM


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_it_equals_torchs_layers(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    both = kind(3, 4, 2, batch_first=True)
    low, high = kind(3, 4, batch_first=True), kind(4, 4, batch_first=True)
    low.load_state_dict({n: p for n, p in both.state_dict().items() if n.endswith("_l0")})
    high.load_state_dict(
        {n.replace("_l1", "_l0"): p for n, p in both.state_dict().items() if n.endswith("_l1")}
    )
    model, x = Stacked([TorchRecurrence(low), TorchRecurrence(high)]), torch.randn(5, 6, 3)
    expected, hidden = both(x)
    outputs, state = model(x)
    torch.testing.assert_close(outputs, expected)
    hidden = hidden if kind is nn.LSTM else (hidden,)
    torch.testing.assert_close(torch.stack(state[:: len(hidden)])[:, :, 0], hidden[0])


def test_one_layer_is_itself_and_kinds_may_differ() -> None:
    torch.manual_seed(0)
    one, x = DeepTransition(3, hidden=4), torch.randn(2, 5, 3)
    assert torch.equal(Stacked([one])(x)[0], one(x)[0])
    mixed = Stacked([CellMatrixLSTM(3, hidden=2), DeepTransition(2, hidden=4)])
    outputs, state = mixed(x)
    assert [tuple(s.shape) for s in state] == [(2, 2), (2, 2), (2, 4)]
    assert outputs.shape == (2, 5, 4)


def test_dropout_lies_between_layers_alone() -> None:
    """Dropout of everything between: the upper layer sees zeros, but the input is read in full."""
    torch.manual_seed(0)
    low, high = DeepTransition(3, hidden=4), DeepTransition(4, hidden=4)
    model, x = Stacked([low, high], dropout=0.5), torch.randn(2, 5, 3)
    model.dropout = nn.Dropout(1.0)
    torch.testing.assert_close(model(x)[0], high(torch.zeros(2, 5, 4))[0])
    y, s = model.step(x[:, 0], model.initial(x))
    torch.testing.assert_close(y, high(torch.zeros(2, 1, 4))[0][:, 0])
    torch.testing.assert_close(s[0], low(x[:, :1])[0][:, 0])
    assert torch.equal(Stacked([low], dropout=0.5)(x)[0], low(x)[0])


def test_what_does_not_fit_is_refused() -> None:
    for layers in (0, -1):
        with pytest.raises(ValueError, match=f"layers must be at least 1: got {layers}"):
            widths(3, 4, layers)
    assert widths(3, 4, 1) == [3]
    assert widths(3, 4, 3) == [3, 4, 4]
    with pytest.raises(ValueError, match="at least 1 layer: got 0"):
        Stacked([])
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\): got 1$"):
        Stacked([DeepTransition(3, hidden=4)], dropout=1)
    with pytest.raises(ValueError, match="layer 0 gives 4 numbers, layer 1 reads 3"):
        Stacked([DeepTransition(3, hidden=4), DeepTransition(3, hidden=4)])
