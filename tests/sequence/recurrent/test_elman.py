"""Elman networks: equal to the formula, to nn.RNN, and a hand case."""

import math

import pytest
import torch
from torch import nn

from margin.sequence.recurrent.elman import classifier, elman, language, recurrence, regressor


def test_it_is_its_formula_and_torchs_with_zero_biases() -> None:
    """z_t = tanh(U z_{t-1} + V x_t), and not V z + U x or the next input: kills swapped matrices."""
    torch.manual_seed(0)
    U, V, x = torch.randn(4, 4), torch.randn(4, 3), torch.randn(2, 6, 3)
    model = recurrence(3, hidden=4)
    layer = model.layer
    with torch.no_grad():
        layer.weight_hh_l0.copy_(U)
        layer.weight_ih_l0.copy_(V)
        layer.bias_hh_l0.zero_()
        layer.bias_ih_l0.zero_()
    outputs, (last,) = model(x)
    z = torch.zeros(2, 4)
    for t in range(6):
        z = torch.tanh(z @ U.T + x[:, t] @ V.T)
        torch.testing.assert_close(outputs[:, t], z)
        torch.testing.assert_close(elman(outputs[:, t - 1] if t else torch.zeros(2, 4), x[:, t], U, V), z)
    torch.testing.assert_close(last[:, 0], z)
    torch.testing.assert_close(layer(x)[0], outputs)


def test_a_hand_case() -> None:
    """One unit, U = 1/2, V = 1: tanh(1) and then tanh(tanh(1) / 2 - 1)."""
    one = torch.ones(1, 1)
    z = elman(torch.zeros(1, 1), one, 0.5 * one, one)
    assert float(z) == pytest.approx(0.7615941559557649)
    assert float(elman(z, -one, 0.5 * one, one)) == pytest.approx(math.tanh(math.tanh(1) / 2 - 1))


def test_relu_with_the_identity_adds_up_its_inputs() -> None:
    """U = I, V = I, no bias: z_T = sum x_t for x >= 0, over 200 steps without fading."""
    model = recurrence(2, hidden=2, nonlinearity="relu", recurrent_init="identity")
    with torch.no_grad():
        model.layer.weight_ih_l0.copy_(torch.eye(2))
        model.layer.bias_ih_l0.zero_()
        model.layer.bias_hh_l0.zero_()
    x = torch.rand(3, 200, 2)
    torch.testing.assert_close(model(x)[0][:, -1], x.sum(1))


def test_the_models_have_their_shapes_and_options() -> None:
    x, lengths = torch.randn(3, 5, 2), torch.tensor([5, 0, 2])
    assert classifier(2, 4, hidden=6, layers=2, dropout=0.1)(x, lengths).shape == (3, 4)
    assert regressor(2, pool="mean")(x, lengths).shape == (3,)
    tokens = torch.randint(7, (3, 5))
    assert language(7, embedding=8, hidden=8, readout="tied")(tokens, lengths).shape == (3, 5, 7)
    assert isinstance(recurrence(2).layer, nn.RNN)
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"^hidden must be at least 1: got {size}$"):
            recurrence(2, hidden=size)
        with pytest.raises(ValueError, match=f"^layers must be at least 1: got {size}$"):
            recurrence(2, layers=size)
    with pytest.raises(ValueError, match=r"^dropout must be in \[0, 1\): got 1$"):
        recurrence(2, layers=2, dropout=1)
