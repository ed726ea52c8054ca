"""Densely connected perceptrons: bookkeeping of widths, who reads whom, gradients past a dead successor."""

import pytest
import torch
from torch import Tensor, nn

from margin.feedforward.mlp.model import MLP, DenseBlock, DenseMLP

FEATURES, GROWTH, DEPTH = 4, 3, 5


def dense() -> DenseMLP:
    torch.manual_seed(0)
    return DenseMLP(FEATURES, 2, growth=GROWTH, depth=DEPTH, activation="tanh").double()


def inputs() -> Tensor:
    return torch.randn(9, FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_layer_l_reads_n_plus_l_g_numbers() -> None:
    model = dense()
    widths = [layer[0].in_features for layer in model.block.layers]
    assert widths == [4, 7, 10, 13, 16] and model.head.in_features == model.block.out_features == 19
    expected = sum(GROWTH * (FEATURES + i * GROWTH + 1) for i in range(DEPTH)) + 2 * 20
    assert sum(p.numel() for p in model.parameters()) == expected


def test_the_formula_newest_first() -> None:
    model, x = dense(), inputs()
    outputs: list[Tensor] = []
    for layer in model.block.layers:
        W, b = layer.parameters()
        read = torch.cat([*reversed(outputs), x], 1)
        outputs.append(torch.tanh(read @ W.T + b))
    everything = torch.cat([*reversed(outputs), x], 1)
    assert torch.equal(model.block(x), everything)
    assert torch.allclose(model(x.reshape(9, 2, 2)), model.head(everything), rtol=0, atol=0)


@pytest.mark.parametrize("layer", range(DEPTH - 1))
def test_a_gradient_passes_a_successor_whose_weights_are_zero(layer: int) -> None:
    model, x = dense(), inputs()
    nn.init.zeros_(model.block.layers[layer + 1][0].weight)
    (grad,) = torch.autograd.grad(model(x).square().sum(), model.block.layers[layer][0].weight)
    assert bool((grad.abs() > 1e-6).all())
    plain = MLP(FEATURES, 2, hidden=(GROWTH,) * DEPTH, activation="tanh").double()
    maps = [module for module in plain.layers if isinstance(module, nn.Linear)]
    nn.init.zeros_(maps[layer + 1].weight)
    (grad,) = torch.autograd.grad(plain(x).square().sum(), maps[layer].weight)
    assert not grad.any()


def test_a_gradient_passes_all_layers_that_are_zero() -> None:
    model, x = dense(), inputs()
    for layer in model.block.layers[1:]:
        nn.init.zeros_(layer[0].weight)
    (grad,) = torch.autograd.grad(model(x).square().sum(), model.block.layers[0][0].weight)
    assert bool((grad.abs() > 1e-6).all())


@pytest.mark.parametrize("name", ["in_features", "growth", "depth"])
def test_bad_sizes_are_refused(name: str) -> None:
    sizes = {"in_features": 4, "growth": 3, "depth": 2, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1: got 0"):
        DenseBlock(sizes.pop("in_features"), **sizes)
