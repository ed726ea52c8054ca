"""Deep residual perceptrons: the formula, the affine map at zero parameters, bad sizes."""

import pytest
import torch
from torch import nn

from margin.feedforward.mlp.model import ResidualMLP


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_the_formula_and_the_affine_map_at_zero(activation: str) -> None:
    torch.manual_seed(0)
    model = ResidualMLP(4, 3, width=5, depth=7, activation=activation).double()
    x = torch.randn(9, 2, 2, dtype=torch.float64)
    phi = torch.relu if activation == "relu" else lambda z: torch.sigmoid(z) - 0.5
    z = x.flatten(1) @ model.embedding.weight.T + model.embedding.bias
    for layer in model.layers:
        W, b = layer.branch.parameters()
        z = z + phi(z @ W.T + b)
    assert torch.allclose(model(x), z @ model.head.weight.T + model.head.bias, rtol=0, atol=1e-12)
    for parameter in model.layers.parameters():
        nn.init.zeros_(parameter)
    assert torch.equal(model(x), model.head(model.embedding(x.flatten(1))))


def test_the_sizes() -> None:
    model = ResidualMLP(4, 3, width=5, depth=7)
    assert len(model.layers) == 7
    assert sum(p.numel() for p in model.parameters()) == 5 * 5 + 7 * 5 * 6 + 3 * 6
    assert len(ResidualMLP(4, 3, depth=0).layers) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [({"width": 0}, "width must be at least 1: got 0"), ({"depth": -1}, "depth must be at least 0: got -1")],
)
def test_bad_sizes_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResidualMLP(4, 3, **options)
