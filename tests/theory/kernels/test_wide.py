"""Kernels of infinitely wide networks, beside neural-tangents, quadrature and networks of finite width."""

import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from margin.theory.kernels.duals import dual, quadrature_dual, relu_dual
from margin.theory.kernels.empirical import empirical_ntk
from margin.theory.kernels.networks import WideNetwork
from margin.theory.kernels.wide import conv_nngp, conv_ntk, nngp, ntk

STDS = {"weight_std": 1.3, "bias_std": 0.2}


def grid(*shape: int) -> Tensor:
    k = torch.arange(math.prod(shape), dtype=torch.float64)
    return torch.sin(1 + 1.7 * k + 0.01 * k * k).reshape(shape)


X, Z = grid(3, 5), grid(2, 5).flip(0) * 0.5
IMAGES, OTHERS = grid(2, 2, 4, 3), grid(1, 2, 4, 3).flip(1)

# neural-tangents 0.6.5 (jax 0.5.3, float64): three hidden layers, W_std 1.3, b_std 0.2
DENSE = {
    ("relu", nngp): [
        [0.2530524451, 0.4145424617],
        [0.3861298463, 0.2508283915],
        [0.2411836434, 0.3696554329],
    ],
    ("relu", ntk): [[0.3543133585, 1.2834998799], [1.1790757378, 0.3514131677], [0.336306462, 0.9925133985]],
    ("erf", nngp): [
        [-0.2341686393, 0.6574630415],
        [0.6495456577, -0.2400675753],
        [-0.2825320185, 0.5648438677],
    ],
    ("erf", ntk): [
        [-1.2283836715, 2.8143367577],
        [2.7517513137, -1.2553575593],
        [-1.4552458917, 2.2612607791],
    ],
    ("gelu", nngp): [
        [0.0773865499, 0.1866571357],
        [0.1712610037, 0.0769716812],
        [0.0732169312, 0.1625310556],
    ],
    ("gelu", ntk): [[0.0765096936, 0.5980540721], [0.5335082666, 0.0765774793], [0.0692482856, 0.4769412851]],
}

# the same with two 3x3 convolutions, padding SAME, then Flatten or GlobalAvgPool and Dense
CONVOLVED = {
    ("relu", "flatten"): ([0.2008621126, 0.2296830651], [0.2568872805, 0.3595437944]),
    ("relu", "average"): ([0.1995008585, 0.1998207479], [0.2703374299, 0.2818329913]),
    ("erf", "flatten"): ([-0.0123528415, 0.166378618], [-0.1692506246, 0.3779168413]),
    ("erf", "average"): ([0.1017351867, 0.1251270169], [0.1796028226, 0.251099192]),
    ("gelu", "flatten"): ([0.0858718241, 0.1140260002], [0.1050534335, 0.1960377732]),
    ("gelu", "average"): ([0.0949194207, 0.0973906479], [0.1385813637, 0.1506934713]),
}


@pytest.mark.parametrize(("activation", "kernel"), DENSE)
def test_dense_kernels_are_those_of_neural_tangents(activation, kernel) -> None:
    found = kernel(X, Z, depth=3, activation=activation, **STDS)
    expected = torch.tensor(DENSE[activation, kernel], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    swapped = kernel(Z, X, depth=3, activation=activation, **STDS)
    torch.testing.assert_close(swapped.T, found, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("activation", "readout"), CONVOLVED)
def test_convolutional_kernels_are_those_of_neural_tangents(activation, readout) -> None:
    for kernel, expected in zip((conv_nngp, conv_ntk), CONVOLVED[activation, readout], strict=True):
        found = kernel(IMAGES, OTHERS, depth=2, readout=readout, activation=activation, **STDS)
        expected = torch.tensor(expected, dtype=torch.float64)[:, None]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_arc_cosine_values_of_unit_vectors() -> None:
    """Cho and Saul 2009, weights of variance 2, unit vectors: kappa_1 is .60900 at 60, 1/pi at 90 degrees."""
    theta = torch.tensor([0.0, 60.0, 90.0]).deg2rad().double()
    one = torch.ones_like(theta)
    value, slope = relu_dual(one, one, theta.cos())
    torch.testing.assert_close(
        2 * value, torch.tensor([1.0, 0.60900, 1 / math.pi], dtype=torch.float64), atol=5e-6, rtol=0
    )
    torch.testing.assert_close(2 * slope, 1 - theta / math.pi, atol=1e-8, rtol=0)
    # f = sqrt(2/m) sum a_j relu(w_j x): Theta = 2 (kappa_1 + cos kappa_0), here by sigma_w^2 = 2 in one layer
    x = torch.stack((theta.cos(), theta.sin()), 1)
    found = ntk(x[:1] * math.sqrt(2), x * math.sqrt(2), depth=1, weight_std=1.0)
    expected = torch.tensor([[2.0, 0.94233, 0.31831]], dtype=torch.float64)
    torch.testing.assert_close(2 * found, expected, atol=5e-6, rtol=0)


def hermite(g, a: float, b: float, c: float, nodes: int = 400) -> float:
    z, w = (torch.from_numpy(x) for x in np.polynomial.hermite_e.hermegauss(160))
    w = w / w.sum()
    u = math.sqrt(a) * z[:, None]
    v = c / math.sqrt(a) * z[:, None] + math.sqrt(b - c * c / a) * z
    return float((w[:, None] * w * g(u) * g(v)).sum())


@pytest.mark.parametrize("c", [-0.9, 0.0, 0.3, 1.1])
@pytest.mark.parametrize(
    ("name", "phi", "slope", "error"),
    [
        ("relu", torch.relu, lambda u: (u > 0).double(), 0.02),
        (
            "gelu",
            F.gelu,
            lambda u: torch.special.ndtr(u) + u * (-u * u / 2).exp() / math.sqrt(2 * math.pi),
            1e-7,
        ),
        ("erf", torch.erf, lambda u: 2 / math.sqrt(math.pi) * (-u * u).exp(), 1e-5),
        ("linear", lambda u: u, torch.ones_like, 1e-12),
    ],
)
def test_duals_are_gaussian_means(name, phi, slope, error, c) -> None:
    """Closed form beside 2-D Gauss-Hermite; a = .7 and b = 2, so that neither stands for the other."""
    a, b = 0.7, 2.0
    found = dual(name, *(torch.tensor(x, dtype=torch.float64) for x in (a, b, c)))
    assert float(found.value) == pytest.approx(
        hermite(phi, a, b, c), abs=error / 10 if name == "relu" else error
    )
    assert float(found.slope) == pytest.approx(hermite(slope, a, b, c), abs=error)


def test_an_activation_without_a_name_is_integrated() -> None:
    for name, phi in (("erf", torch.erf), ("gelu", F.gelu)):
        for kernel in (nngp, ntk):
            torch.testing.assert_close(
                kernel(X, Z, depth=2, activation=phi, **STDS),
                kernel(X, Z, depth=2, activation=name, **STDS),
                rtol=0,
                atol=1e-11,
            )
    bent = quadrature_dual(torch.relu, *(torch.tensor(x, dtype=torch.float64) for x in (1.0, 2.0, 0.5)))
    assert float(bent.value) == pytest.approx(
        float(relu_dual(*(torch.tensor(x, dtype=torch.float64) for x in (1.0, 2.0, 0.5))).value), rel=0.01
    )


def test_outputs_of_wide_networks_have_the_covariance() -> None:
    """2,000 outputs of one network of that width are independent but for O(1 / width); the printed recursion,
    without sigma_w and sigma_b (errata 202), is another matrix."""
    x = X.float()
    net = WideNetwork(5, 2000, width=2000, depth=2, generator=Generator().manual_seed(0), **STDS)
    with torch.no_grad():
        f = net(x).double()
    covariance = f @ f.T / 2000
    expected = nngp(X, depth=2, **STDS)
    # 4 standard errors of a variance of 2,000 draws are 13 % of it
    torch.testing.assert_close(covariance, expected, rtol=0, atol=0.13 * float(expected.max()))
    printed = nngp(X, depth=2, weight_std=1.0)
    assert float((covariance - printed).abs().max()) > 0.5 * float(expected.max())
    kurtosis = float((f[0] ** 4).mean() / (f[0] ** 2).mean() ** 2)
    assert kurtosis == pytest.approx(3, abs=4 * math.sqrt(24 / 2000))  # normal draws miss it with chance 6e-5


@pytest.mark.parametrize(("activation", "depth", "networks"), [("erf", 2, 1), ("gelu", 1, 8), ("relu", 1, 8)])
def test_the_empirical_kernel_of_width_4096_is_within_5_percent(activation, depth, networks) -> None:
    """Of one erf network; of ReLU and GELU, whose mean squares alone spread by 3.5 %, the mean of eight."""
    x, options = X.float(), {"depth": depth, "activation": activation, **STDS}
    found = torch.zeros(3, 3).double()
    for seed in range(networks):
        net = WideNetwork(5, 4, width=4096, generator=Generator().manual_seed(seed), **options)
        found += empirical_ntk(net, x, outputs="mean").double() / networks
    expected = ntk(X, **options)
    assert float((found - expected).norm() / expected.norm()) < 0.05
    assert float((found - nngp(X, **options)).norm() / expected.norm()) > 0.3


def test_the_empirical_kernel_spreads_as_one_over_the_root_of_the_width() -> None:
    spread = []
    for width in (64, 1024):
        values = [
            float(
                empirical_ntk(
                    WideNetwork(5, 1, width=width, depth=1, generator=Generator().manual_seed(s)),
                    X[:1].float(),
                    outputs="mean",
                )
            )
            for s in range(100)
        ]
        spread.append(float(torch.tensor(values).std()))
    # a ratio of two standard deviations of 100 draws each has a relative error of 10 %: 4 of them
    assert spread[0] / spread[1] == pytest.approx(4, rel=0.4)


def test_a_symmetric_kernel_is_symmetric_positive_and_the_same_by_blocks(monkeypatch) -> None:
    x = torch.cat([grid(17, 5), grid(17, 5)[:4]])  # with duplicate rows
    whole = ntk(x, depth=3)
    assert torch.equal(whole, whole.T)
    assert float(torch.linalg.eigvalsh(whole).min()) > -1e-10
    torch.testing.assert_close(whole[:4], whole[17:], rtol=1e-12, atol=0)
    torch.testing.assert_close(ntk(x, x, depth=3), whole, rtol=1e-13, atol=0)
    monkeypatch.setattr("margin.theory.kernels.wide.SIDE", 4)
    torch.testing.assert_close(ntk(x, depth=3), whole, rtol=1e-13, atol=0)
    images = grid(5, 2, 4, 3)
    whole = conv_ntk(images, depth=2, readout="average")
    monkeypatch.setattr("margin.theory.kernels.wide.PLACES", 4 * 144)
    torch.testing.assert_close(conv_ntk(images, depth=2, readout="average"), whole, rtol=1e-13, atol=0)


def by_pairs(x: Tensor, z: Tensor, depth: int, weight_std: float, bias_std: float) -> list[list[float]]:
    """The tangent kernel of a ReLU network pair by pair: Cho and Saul's integrals in plain numbers."""

    def step(a: float, b: float, c: float) -> tuple[float, float]:
        root = math.sqrt(a * b)
        angle = math.acos(max(-1.0, min(1.0, c / root))) if root else math.pi / 2
        kappa = root * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / (2 * math.pi)
        return bias_std**2 + weight_std**2 * kappa, weight_std**2 * (math.pi - angle) / (2 * math.pi)

    def pair(one: list[float], other: list[float]) -> float:
        dots = [
            math.fsum(p * q for p, q in zip(*sides, strict=True))
            for sides in ((one, one), (other, other), (one, other))
        ]
        a, b, c = (bias_std**2 + weight_std**2 * dot / len(one) for dot in dots)
        theta = c
        for _ in range(depth):
            after, slope = step(a, b, c)
            a, b, c = step(a, a, a)[0], step(b, b, b)[0], after
            theta = c + slope * theta
        return theta

    return [[pair(one, other) for other in z.tolist()] for one in x.tolist()]


@pytest.mark.parametrize("bias_std", [0.0, 0.3])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_relu_kernel_is_that_of_each_pair(monkeypatch, depth: int, bias_std: float) -> None:
    """Rows of several lengths, of zeros, opposite, parallel; features of 0 in all or in one of the two."""
    x = grid(9, 6) * torch.logspace(-1, 1, 9, dtype=torch.float64)[:, None]
    x[:, 2], x[3], x[4], x[5] = 0, 0, -2 * x[1], 3 * x[1]
    z = grid(7, 6).flip(0)
    z[:, 4] = 0
    options = {"weight_std": 1.3, "bias_std": bias_std}
    both = torch.cat((x, z))
    expected = torch.tensor(by_pairs(both, both, depth, **options)).double()
    root = expected.diagonal().sqrt() + 1e-6
    for side in (4, 256):
        monkeypatch.setattr("margin.theory.kernels.wide.SIDE", side)
        for rows, columns, found in (
            (both, both, ntk(both, depth=depth, **options)),
            (x, z, ntk(x, z, depth=depth, **options)),
        ):
            i, j = slice(0, len(rows)), slice(len(both) - len(columns), None)
            off = (found - expected[i, j]) / torch.outer(root[i], root[j])
            assert float(off.abs().max()) < 1e-7  # an angle of 0 or pi is known to the root of a rounding


def test_depth_0_is_the_linear_kernel() -> None:
    expected = 0.04 + 1.69 * X @ Z.T / 5
    torch.testing.assert_close(ntk(X, Z, depth=0, **STDS), expected)
    torch.testing.assert_close(nngp(X, Z, depth=0, **STDS), expected)


def test_an_input_of_zeros_has_a_kernel() -> None:
    x = torch.stack((torch.zeros(5), torch.ones(5)))
    assert ntk(x, depth=2)[0].tolist() == [0.0, 0.0]
    assert bool(ntk(x, depth=2, bias_std=0.1).isfinite().all())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ntk(X, Z[:, :3]), r"one shape: got \(5,\) and \(3,\)"),
        (lambda: ntk(X * math.nan), "must be finite"),
        (lambda: ntk(X, weight_std=-1.0), "weight_std must be finite and at least 0: got -1"),
        (lambda: conv_ntk(IMAGES, kernel_size=2), "kernel_size odd: got depth=1, kernel_size=2"),
    ],
)
def test_bad_arguments_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
