"""Residual layers: the formula, the identity at zero parameters, the gradient through a hundred layers."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from margin.nn.activations import ACTIVATIONS
from margin.nn.dense import Residual, projected_residual_layer, residual_layer

DEPTH, WIDTH = 100, 64


def zeroed(layer: Residual) -> Residual:
    for parameter in layer.branch.parameters():
        nn.init.zeros_(parameter)
    return layer


def inputs(features: int = 5) -> Tensor:
    return 3 * torch.randn(7, features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_formula() -> None:
    torch.manual_seed(0)
    x = inputs()
    layer, wide = (
        residual_layer(5, activation="sigmoid").double(),
        projected_residual_layer(5, 3, activation="sigmoid").double(),
    )
    for made, shortcut in ((layer, np.eye(5)), (wide, wide.shortcut.weight.detach().numpy())):
        W, b = (p.detach().numpy() for p in made.branch.parameters())
        expected = x.numpy() @ shortcut.T + 1 / (1 + np.exp(-(x.numpy() @ W.T + b))) - 0.5
        assert np.allclose(made(x).detach().numpy(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_zero_parameters_give_the_identity_to_the_bit(activation: str) -> None:
    x = inputs()
    assert torch.equal(zeroed(residual_layer(5, activation=activation).double())(x), x)
    wide = zeroed(projected_residual_layer(5, 3, activation=activation).double())
    assert torch.equal(wide(x), x @ wide.shortcut.weight.T)


def test_without_phi_of_zero_a_sigmoid_layer_is_no_identity() -> None:
    x = inputs()
    printed = Residual(nn.Sequential(nn.Linear(5, 5), nn.Sigmoid()), nn.Identity()).double()
    assert torch.allclose(zeroed(printed)(x) - x, torch.full_like(x, 0.5), atol=1e-12)


def test_a_projection_by_the_identity_is_the_square_layer() -> None:
    torch.manual_seed(0)
    x = inputs()
    square, wide = residual_layer(5).double(), projected_residual_layer(5, 5).double()
    wide.branch.load_state_dict(square.branch.state_dict())
    nn.init.eye_(wide.shortcut.weight)
    assert torch.allclose(square(x), wide(x), rtol=0, atol=1e-14)


def first_gradient(net: nn.Sequential, first: nn.Linear) -> float:
    x = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (grad,) = torch.autograd.grad(net(x).square().mean(), first.weight)
    return float(grad.norm())


def test_the_gradient_reaches_the_first_of_a_hundred_sigmoid_layers() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid()) for _ in range(DEPTH))
    ).double()
    torch.manual_seed(0)
    deep = nn.Sequential(*(residual_layer(WIDTH, activation="sigmoid") for _ in range(DEPTH))).double()
    with_shortcuts = first_gradient(deep, deep[0].branch[0])
    without = first_gradient(plain, plain[0][0])
    assert with_shortcuts > 1e3 * without
    assert with_shortcuts > 1e-4  # it has not vanished itself


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: residual_layer(0), "features must be at least 1: got 0"),
        (lambda: projected_residual_layer(0, 3), "in_features must be at least 1: got 0"),
        (lambda: projected_residual_layer(3, -1), "out_features must be at least 1: got -1"),
    ],
)
def test_a_width_that_is_not_positive_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
