"""Bidirectional recurrences: equal to torch's, symmetric in time, reading everything."""

import pytest
import torch
from torch import nn

from margin.sequence.recurrent.bidirectional import Bidirectional, classifier, recurrence
from margin.sequence.recurrent.elman import DeepTransition
from margin.sequence.recurrent.layers import TorchRecurrence

LENGTHS = torch.tensor([6, 3, 0, 1])


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_it_equals_torchs(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    both = kind(3, 4, batch_first=True, bidirectional=True)
    parts = []
    for end in ("_l0", "_l0_reverse"):
        layer = kind(3, 4, batch_first=True)
        named = {n.removesuffix("_reverse"): p for n, p in both.state_dict().items() if n.endswith(end)}
        layer.load_state_dict(named)
        parts.append(TorchRecurrence(layer))
    model, x = Bidirectional(*parts), torch.randn(4, 6, 3)
    torch.testing.assert_close(model(x)[0], both(x)[0])
    some = LENGTHS > 0
    packed = nn.utils.rnn.pack_padded_sequence(x[some], LENGTHS[some], batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(both(packed)[0], batch_first=True)
    outputs, state = model(x, LENGTHS)
    torch.testing.assert_close(outputs[some], expected)
    _, hidden = both(packed)
    h = hidden[0] if kind is nn.LSTM else hidden
    torch.testing.assert_close(model.final(outputs, LENGTHS)[some], torch.cat((h[0], h[1]), -1))
    assert not model.final(outputs, LENGTHS)[~some].any()
    assert len(state) == (4 if kind is nn.LSTM else 2)


def test_swapped_weights_on_a_reversed_input_give_the_reversed_output() -> None:
    torch.manual_seed(0)
    a, b = DeepTransition(3, hidden=4), DeepTransition(3, hidden=4)
    x = torch.randn(2, 6, 3)
    forth = Bidirectional(a, b)(x)[0]
    back = Bidirectional(b, a)(x.flip(1))[0].flip(1)
    torch.testing.assert_close(forth, torch.cat((back[..., 4:], back[..., :4]), -1))


def test_every_output_reads_every_step() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 6, 3, requires_grad=True)
    outputs, _ = recurrence(3, cell="elman", hidden=4)(x)
    for t in range(6):
        (grad,) = torch.autograd.grad(outputs[0, t].sum(), x, retain_graph=True)
        assert bool(grad[0].any(1).all())


def test_the_last_pool_has_read_the_whole_sequence_in_both_directions() -> None:
    """The outputs at the last step alone would have read it backward for one step only."""
    torch.manual_seed(0)
    x, lengths = torch.randn(2, 6, 3, requires_grad=True), torch.tensor([6, 4])
    model = recurrence(3, cell="elman", hidden=4, layers=2)
    outputs, _ = model(x, lengths)
    final = model.final(outputs, lengths)
    for half in (slice(0, 4), slice(4, 8)):
        (grad,) = torch.autograd.grad(final[:, half].sum(), x, retain_graph=True)
        assert bool(grad[0].any(1).all())
        assert bool(grad[1, :4].any(1).all())
        assert not grad[1, 4:].any()


def test_it_has_no_step_and_takes_no_other_form() -> None:
    model = recurrence(3, hidden=4)
    assert not model.causal
    one = DeepTransition(3, hidden=4)
    with pytest.raises(ValueError, match="has no step"):
        model.step(torch.zeros(1, 3), model.initial(torch.zeros(1, 3)))
    with pytest.raises(ValueError, match="causal each"):
        Bidirectional(one, Bidirectional(one, one))
    with pytest.raises(ValueError, match="layers must be at least 1: got 0"):
        recurrence(3, layers=0)
    with pytest.raises(ValueError, match="input sizes 3 and 2"):
        Bidirectional(one, DeepTransition(2, hidden=4))


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_the_classifier(cell: str) -> None:
    model = classifier(3, 5, cell=cell, hidden=4, layers=2, dropout=0.1)
    assert model(torch.randn(4, 6, 3), LENGTHS).shape == (4, 5)
