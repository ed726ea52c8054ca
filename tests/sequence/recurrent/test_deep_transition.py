"""Deep transitions: depth 1 is Elman's, deeper ones are their formula."""

import pytest
import torch
from torch import nn

from margin.sequence.recurrent.elman import DeepTransition, deep_transition


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_of_depth_one_it_is_torchs(nonlinearity: str) -> None:
    torch.manual_seed(0)
    layer = nn.RNN(3, 4, batch_first=True, nonlinearity=nonlinearity)
    model, x = DeepTransition(3, hidden=4, depth=1, nonlinearity=nonlinearity), torch.randn(2, 7, 3)
    with torch.no_grad():
        model.read.weight.copy_(layer.weight_ih_l0)
        model.read.bias.copy_(layer.bias_ih_l0 + layer.bias_hh_l0)
        model.recur.weight.copy_(layer.weight_hh_l0)
    torch.testing.assert_close(model(x)[0], layer(x)[0])
    assert not list(model.rest)


def test_a_deeper_one_is_a_perceptron_of_state_and_input() -> None:
    torch.manual_seed(0)
    model, x = DeepTransition(3, hidden=4, depth=3), torch.randn(2, 5, 3)
    joint = nn.Linear(7, 4)
    with torch.no_grad():
        joint.weight.copy_(torch.cat((model.recur.weight, model.read.weight), 1))
        joint.bias.copy_(model.read.bias)
    mlp = nn.Sequential(joint, nn.Tanh(), model.rest[0], nn.Tanh(), model.rest[1], nn.Tanh())
    z = torch.zeros(2, 4)
    outputs, _ = model(x)
    for t in range(5):
        z = mlp(torch.cat((z, x[:, t]), 1))
        torch.testing.assert_close(outputs[:, t], z)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="depth must be at least 1: got 0"):
        DeepTransition(3, depth=0)
    assert deep_transition(3, 5, depth=2)(torch.randn(2, 4, 3)).shape == (2, 5)
