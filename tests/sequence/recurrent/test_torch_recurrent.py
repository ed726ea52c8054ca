"""Torch's layers as recurrences: equal to torch, of length 0, and how their matrices begin."""

import pytest
import torch
from torch import nn

from margin.sequence.recurrent import elman, gru, lstm
from margin.sequence.recurrent.layers import TorchRecurrence, initialize_recurrent

LAYERS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.mark.parametrize("kind", LAYERS)
def test_it_equals_torch_with_and_without_lengths(kind: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[kind](3, 4, 2, batch_first=True)
    model, x, lengths = TorchRecurrence(layer), torch.randn(5, 6, 3), torch.tensor([6, 2, 0, 5, 1])
    outputs, state = model(x)
    expected, hidden = layer(x)
    torch.testing.assert_close(outputs, expected)
    hidden = hidden if kind == "lstm" else (hidden,)
    for mine, theirs in zip(state, hidden, strict=True):
        torch.testing.assert_close(mine.transpose(0, 1), theirs)
    ragged, after = model(x, lengths)
    for i, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(ragged[i, :n], expected[i, :n])  # causal: the same prefix
        torch.testing.assert_close(after[0][i, -1], expected[i, n - 1] if n else torch.zeros(4))


def test_all_lengths_zero_and_empty_batches_keep_their_state() -> None:
    model = gru.recurrence(2, hidden=3)
    state = (torch.randn(4, 1, 3),)
    outputs, after = model(torch.randn(4, 5, 2), torch.zeros(4, dtype=torch.int64), state)
    assert not outputs.any()
    assert torch.equal(after[0], state[0])


def test_another_form_of_layer_is_refused() -> None:
    for layer in (
        nn.GRU(2, 3),
        nn.GRU(2, 3, batch_first=True, bidirectional=True),
        nn.LSTM(2, 4, batch_first=True, proj_size=2),
    ):
        with pytest.raises(ValueError, match="one direction, examples first, no projection"):
            TorchRecurrence(layer)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_recurrent_matrix_of_every_gate_begins_as_asked(kind: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[kind](3, 4, 2)
    before = {n: p.detach().clone() for n, p in layer.named_parameters()}
    initialize_recurrent(layer, "uniform")
    assert all(torch.equal(p, before[n]) for n, p in layer.named_parameters())
    initialize_recurrent(layer, "orthogonal")
    for name, p in layer.named_parameters():
        if not name.startswith("weight_hh"):
            assert torch.equal(p, before[name])
            continue
        for gate in p.split(4):
            torch.testing.assert_close(gate @ gate.T, torch.eye(4))
    initialize_recurrent(layer, "identity")
    for gate in layer.weight_hh_l1.split(4):
        assert torch.equal(gate, torch.eye(4))


def test_dropout_acts_between_layers_in_training_alone() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 3)
    for module in (elman, lstm, gru):
        model = module.recurrence(3, hidden=8, layers=2, dropout=0.5)
        assert not torch.equal(model(x)[0], model(x)[0])
        model.eval()
        assert torch.equal(model(x)[0], model(x)[0])
