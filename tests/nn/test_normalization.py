"""Normalization: torch's layers against the formulas, their invariances, the gradients of a weight norm."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.utils.parametrizations import weight_norm

from margin.nn.normalization import normalized_layer, normalized_unit, weight_norm_gradients

TINY = 1e-30


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch_norm(features: int, eps: float = TINY) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(features, eps=eps).double()
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(3))
    nn.init.normal_(layer.bias, generator=torch.Generator().manual_seed(4))
    return layer


@pytest.mark.parametrize("dim", [0, 1, (0, 1)])
def test_a_unit_has_the_mean_and_deviation_asked_for(dim: int | tuple[int, ...]) -> None:
    f = 5 + 3 * normal(50, 4)
    found = normalized_unit(f, 2.5, -1.5, dim=dim).numpy()
    axis = dim if isinstance(dim, tuple) else (dim,)
    assert np.allclose(found.mean(axis), -1.5, atol=1e-12) and np.allclose(found.std(axis), 2.5, atol=1e-12)


def test_constant_values_have_no_standard_form() -> None:
    assert normalized_unit(torch.ones(5)).isnan().all()
    assert torch.equal(normalized_unit(torch.ones(5), 2.0, 1.0, eps=1e-5), torch.ones(5))
    for eps in (-1.0, math.nan):
        with pytest.raises(ValueError, match="eps must be at least 0: got"):
            normalized_unit(torch.ones(5), eps=eps)


def test_batch_normalization_is_the_unit_along_the_batch() -> None:
    x, layer = 2 + 3 * normal(9, 4), batch_norm(4, eps=1e-2)
    expected = normalized_unit(x, layer.weight, layer.bias, dim=0, eps=1e-2)
    assert torch.allclose(layer(x), expected, rtol=0, atol=1e-12)
    # inside the biased variance, in the running one the unbiased
    running = 0.9 + 0.1 * x.numpy().var(0, ddof=1)
    assert np.allclose(layer.running_var.numpy(), running, rtol=0, atol=1e-12)
    assert np.allclose(layer.running_mean.numpy(), 0.1 * x.numpy().mean(0), rtol=0, atol=1e-12)
    z = normal(3, 4, seed=1)
    still = (z - layer.running_mean) / (layer.running_var + 1e-2).sqrt() * layer.weight + layer.bias
    assert torch.allclose(layer.eval()(z), still, rtol=0, atol=1e-12)


def test_batch_normalization_ignores_scale_and_shift_of_the_layer_before() -> None:
    x, layer = normal(9, 4), batch_norm(3)
    W, b = normal(3, 4, seed=1), normal(3, seed=2)
    gains, shifts = torch.tensor([0.1, 2.0, 30.0]).double(), torch.tensor([-7.0, 0.0, 5.0]).double()
    moved = layer(x @ (gains[:, None] * W).T + b + shifts)
    assert torch.allclose(layer(x @ W.T + b), moved, rtol=0, atol=1e-10)


def test_the_gradient_through_batch_normalization_is_orthogonal_to_ones_and_to_what_it_gives() -> None:
    x = (2 + 3 * normal(9, 4)).requires_grad_()
    layer = batch_norm(4)
    (back,) = torch.autograd.grad((layer(x) * normal(9, 4, seed=5)).sum().exp(), x)
    scale = back.norm(dim=0)
    x_hat = normalized_unit(x.detach())
    assert (back.sum(0).abs() <= 1e-12 * scale).all()
    assert ((back * x_hat).sum(0).abs() <= 1e-11 * scale).all()
    assert (scale > 0).all()


def test_layer_normalization_is_the_unit_along_the_row() -> None:
    x, layer = 2 + 3 * normal(9, 4), nn.LayerNorm(4, eps=1e-2).double()
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(1))
    expected = normalized_unit(x, layer.weight, layer.bias, dim=1, eps=1e-2)
    assert torch.allclose(layer(x), expected, rtol=0, atol=1e-12)
    alone = torch.cat([layer(row[None]) for row in x])
    assert torch.allclose(layer(x), alone, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("scale", "shift"), [(0.01, 0.0), (1.0, 40.0), (300.0, -9.0)])
def test_layer_normalization_ignores_scale_and_shift_of_a_row(scale: float, shift: float) -> None:
    x, layer = normal(9, 4), nn.LayerNorm(4, eps=TINY).double()
    assert torch.allclose(layer(scale * x + shift), layer(x), rtol=0, atol=1e-9)
    assert torch.allclose(layer(-scale * x + shift), -layer(x), rtol=0, atol=1e-9)  # positive scales only


def test_the_gradients_of_a_weight_norm_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    layer = weight_norm(nn.Linear(4, 3)).double()
    parameters = layer.parametrizations.weight
    with torch.no_grad():
        parameters.original0.mul_(2.0)
    x = normal(9, 4)
    loss = (layer(x).tanh() * normal(9, 3, seed=1)).sum()
    gain_grad, v_grad = torch.autograd.grad(loss, (parameters.original0, parameters.original1))
    w = layer.weight.detach().requires_grad_()
    (by_w,) = torch.autograd.grad(((x @ w.T + layer.bias.detach()).tanh() * normal(9, 3, seed=1)).sum(), w)
    v, gain = parameters.original1.detach(), parameters.original0.detach()[:, 0]
    assert torch.allclose(layer.weight, gain[:, None] * v / v.norm(dim=1, keepdim=True), atol=1e-14)
    by_gain, by_v = weight_norm_gradients(v, gain, by_w)
    assert torch.allclose(by_gain, gain_grad[:, 0], rtol=0, atol=1e-13)
    assert torch.allclose(by_v, v_grad, rtol=0, atol=1e-13)
    # the form of the notes, with w for v: (I - w w^T / |w|^2) is the same projection
    P = torch.eye(4).double() - torch.einsum("oi,oj->oij", w, w) / w.square().sum(1)[:, None, None]
    notes = (gain / v.norm(dim=1))[:, None] * torch.einsum("oij,oj->oi", P, by_w)
    assert torch.allclose(notes, v_grad, rtol=0, atol=1e-13)
    assert ((v * by_v).sum(1).abs() <= 1e-13).all()


@pytest.mark.parametrize(
    ("momentum", "decay", "shrinks"), [(0.0, 0.0, False), (0.9, 0.0, False), (0.0, 0.5, True)]
)
def test_descent_never_makes_a_direction_shorter_unless_it_decays(
    momentum: float, decay: float, shrinks: bool
) -> None:
    torch.manual_seed(0)
    layer = weight_norm(nn.Linear(4, 3)).double()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=momentum, weight_decay=decay)
    lengths = []
    for i in range(40):
        lengths.append(layer.parametrizations.weight.original1.detach().norm(dim=1))
        optimizer.zero_grad()
        (layer(normal(9, 4, seed=i)) - normal(9, 3, seed=i + 99)).square().mean().backward()
        optimizer.step()
    steps = torch.stack(lengths).diff(dim=0)
    assert bool((steps < -1e-12).any()) == shrinks
    assert steps.abs().max() > 1e-6


@pytest.mark.parametrize("norm", ["none", "batch", "layer", "weight"])
def test_a_normalized_layer_has_the_widths_asked_for(norm: str) -> None:
    layer = nn.Sequential(*normalized_layer(4, 3, norm)).double()
    assert layer(normal(9, 4)).shape == (9, 3)
    kinds = {"none": (), "batch": (nn.BatchNorm1d,), "layer": (nn.LayerNorm,), "weight": ()}
    assert tuple(type(module) for module in layer[1:]) == kinds[norm]
    assert hasattr(layer[0], "parametrizations") == (norm == "weight")


def test_second_derivatives_go_through_batch_normalization_in_evaluation() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*normalized_layer(4, 3, "batch"), nn.Tanh()).double()
    model(normal(9, 4))
    model.eval()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    parameters, x = dict(model.named_parameters()), normal(5, 4, seed=1)

    def gradient(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return grad(lambda p: functional_call(model, p, (x,)).square().sum())(values)

    direction = {name: torch.ones_like(p) for name, p in parameters.items()}
    product = grad(lambda p: sum((g * direction[n]).sum() for n, g in gradient(p).items()))(parameters)
    step = 1e-5
    ends = [
        gradient({n: p.detach() + sign * step * direction[n] for n, p in parameters.items()})
        for sign in (1, -1)
    ]
    for name in parameters:
        difference = (ends[0][name] - ends[1][name]) / (2 * step)
        assert torch.allclose(product[name], difference, atol=1e-6), name
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
