"""Activations: against closed forms, the notes' misprints failing, names and slopes that are refused."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from margin.nn.activations import ACTIVATIONS, Centered, activation_of, centered

Z = torch.arange(-1200, 1201, dtype=torch.float64) / 100


def value(name: str, z: Tensor = Z) -> Tensor:
    return activation_of(name)(z)


def derivative(name: str, z: Tensor = Z) -> Tensor:
    z = z.clone().requires_grad_()
    return torch.autograd.grad(activation_of(name)(z).sum(), z)[0]


CLOSED = {
    "relu": lambda z: np.maximum(0, z),
    "leaky_relu": lambda z: np.maximum(z, 0.01 * z),
    "tanh": lambda z: (np.exp(z) - np.exp(-z)) / (np.exp(z) + np.exp(-z)),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "gelu": lambda z: z * stats.norm.cdf(z),
    "gelu_tanh": lambda z: z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + np.exp(-z)),
    "identity": lambda z: z,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_is_its_closed_form(name: str) -> None:
    assert np.allclose(value(name).numpy(), CLOSED[name](Z.numpy()), rtol=0, atol=1e-13)


def test_the_identities_between_them() -> None:
    z, relu = Z, value("relu")
    assert torch.equal(relu, (z.abs() + z) / 2)
    assert torch.equal(z.abs(), relu + value("relu", -z))
    assert torch.allclose(value("tanh"), 2 * value("sigmoid", 2 * z) - 1, rtol=0, atol=1e-15)
    assert torch.allclose(value("sigmoid") + value("sigmoid", -z), torch.ones_like(z), rtol=0, atol=1e-15)


def test_the_slopes_are_at_most_a_quarter_and_one_both_at_zero() -> None:
    for name, most in (("sigmoid", 0.25), ("tanh", 1.0)):
        slopes = derivative(name)
        assert slopes.max() == most and Z[slopes.argmax()] == 0
    # the printed tanh'(z) = 1 - z^2 is that of the output, not of z
    right, printed = 1 - value("tanh").square(), 1 - Z.square()
    assert torch.allclose(derivative("tanh"), right, atol=1e-12)
    assert not torch.allclose(derivative("tanh"), printed, atol=0.1)


def test_the_slope_of_relu_at_zero_is_zero() -> None:
    assert derivative("relu", torch.zeros(1)) == 0


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.2, 1.0])
def test_leaky_relu_is_the_larger_of_z_and_a_z(slope: float) -> None:
    assert torch.equal(activation_of("leaky_relu", slope=slope)(Z), torch.maximum(Z, slope * Z))


def test_gelu_weighs_by_the_lower_tail() -> None:
    one, ten = torch.ones(1, dtype=torch.float64), torch.full((1,), 10.0, dtype=torch.float64)
    assert abs(float(value("gelu", one)) - 0.841345) <= 5e-7
    assert abs(float(value("gelu", ten)) - 10) <= 1e-12 and abs(float(value("gelu", -ten))) <= 1e-12
    assert torch.allclose(value("gelu") - value("gelu", -Z), Z, rtol=0, atol=1e-13)
    cdf = torch.tensor([(1 + math.erf(z / math.sqrt(2))) / 2 for z in Z.tolist()], dtype=torch.float64)
    assert torch.allclose(value("gelu") + value("gelu", -Z), Z * (2 * cdf - 1), rtol=0, atol=1e-13)
    # the printed z Pr(z <= Z) takes the other tail: about 0 at 10 and -10 at -10
    printed = ten * stats.norm.sf(10.0)
    assert abs(float(printed)) <= 1e-12 and abs(float(printed) - 10) > 9


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rleu", "unknown activation 'rleu'; nearest: relu"),
        ("sigmoyd", "unknown activation 'sigmoyd'; nearest: sigmoid"),
        ("qqq", "unknown activation 'qqq'; nearest: relu, leaky_relu, tanh, sigmoid, gelu, gelu_tanh, silu"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        activation_of(name)


@pytest.mark.parametrize(
    ("name", "slope", "message"),
    [
        ("relu", 0.2, "only leaky_relu has a slope: got activation='relu', slope=0.2"),
        ("leaky_relu", 1.5, r"slope must be in \[0, 1\]: got 1.5"),
        ("leaky_relu", -0.1, r"slope must be in \[0, 1\]: got -0.1"),
        ("leaky_relu", math.nan, r"slope must be in \[0, 1\]: got nan"),
    ],
)
def test_a_slope_that_does_not_fit_is_refused(name: str, slope: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        activation_of(name, slope=slope)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_centering_takes_away_the_value_at_zero(name: str) -> None:
    shifted = centered(name)
    assert torch.equal(shifted(Z), value(name) - (0.5 if name == "sigmoid" else 0.0))
    assert isinstance(shifted, Centered) == (name == "sigmoid")
