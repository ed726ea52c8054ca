"""Networks of one hidden layer: the formula, sums of nets, tanh as sigmoids and a constant."""

import numpy as np
import pytest
import torch
from torch import Tensor

from margin.feedforward.mlp.sigmoid_net import SigmoidNet, concatenated, sigmoid_net

FEATURES, UNITS = 3, 5


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def numbers(units: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    return normal(units, FEATURES, seed=seed), normal(units, seed=seed + 1), normal(units, seed=seed + 2)


@pytest.mark.parametrize("constant", [None, -0.7])
def test_the_formula(constant: float | None) -> None:
    W, b, v = numbers(UNITS, 0)
    net = sigmoid_net(W, b, v, None if constant is None else torch.tensor(constant).double())
    x = normal(7, FEATURES, seed=9)
    expected = (1 / (1 + np.exp(-(x.numpy() @ W.numpy().T + b.numpy())))) @ v.numpy() + (constant or 0.0)
    assert np.allclose(net(x).detach().numpy(), expected, rtol=0, atol=1e-7 if constant else 1e-13)
    assert net(x).shape == (7,)


def test_a_unit_has_n_weights_one_bias_and_one_readout() -> None:
    net = SigmoidNet(FEATURES, units=UNITS, constant=False)
    assert sum(p.numel() for p in net.parameters()) == UNITS * (FEATURES + 2)
    assert net.hidden.bias.shape == (UNITS,)  # of the units, not of the variables
    assert (
        sum(p.numel() for p in SigmoidNet(FEATURES, units=UNITS).parameters()) == UNITS * (FEATURES + 2) + 1
    )


@pytest.mark.parametrize("constants", [(None, None), (0.5, None), (None, -2.0), (0.5, -2.0)])
def test_the_sum_of_two_nets_is_the_concatenated_net(constants: tuple[float | None, float | None]) -> None:
    pair = [
        sigmoid_net(*numbers(units, units), None if c is None else torch.tensor(c, dtype=torch.float64))
        for units, c in zip((UNITS, 2), constants, strict=True)
    ]
    whole, x = concatenated(*pair), normal(7, FEATURES, seed=9)
    assert whole.hidden.out_features == UNITS + 2
    assert torch.allclose(whole(x), pair[0](x) + pair[1](x), rtol=0, atol=1e-13)
    assert (whole.readout.bias is None) == (constants == (None, None))


@pytest.mark.parametrize("constant", [None, 0.25])
def test_a_net_of_tanh_is_one_of_sigmoids_and_a_constant(constant: float | None) -> None:
    W, b, v = numbers(UNITS, 3)
    x = normal(7, FEATURES, seed=9)
    c = None if constant is None else torch.tensor(constant, dtype=torch.float64)
    net = sigmoid_net(W, b, v, c, activation="tanh")
    expected = torch.tanh(x @ W.T + b) @ v + (constant or 0.0)
    assert torch.allclose(net(x), expected, rtol=0, atol=1e-13)
    without = sigmoid_net(2 * W, 2 * b, 2 * v, c)
    assert not torch.allclose(without(x), expected, atol=1e-3)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="units must be at least 1: got 0"):
        SigmoidNet(3, units=0)
    with pytest.raises(ValueError, match="the nets must have one number of variables: got 3 and 4"):
        concatenated(SigmoidNet(3), SigmoidNet(4))
