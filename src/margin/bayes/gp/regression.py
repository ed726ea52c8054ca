"""Gaussian process regression: a Gaussian prior over functions, conditioned on noisy values, exactly.

Rasmussen and Williams (2006), Chapter 2 and Section 5.4.1. Everything is computed in float64 by one Cholesky
factor; what had to be added to the diagonal for it is a metric of the run.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.bayes.gp.kernels import (
    Hyperparameters,
    Kernel,
    Rows,
    correlation,
    gradient,
    gram,
    initial,
    squared_distances,
)
from margin.math.linear_algebra.positive_definite import Factor, factored
from margin.math.probability.mixtures import Mixture

Vector = Float[Tensor, " rows"]
Scales = Literal["each", "shared"]
"""A length scale of each feature (automatic relevance determination), or one of all."""

Learn = Literal["evidence", "none"]
"""What decides the hyper-parameters: the largest evidence, or nothing: they stay as they are given."""


class Evidence(NamedTuple):
    """The evidence of hyper-parameters, and what a posterior needs of the same factor.

    Args:
        value: log p(y | X), in nats.
        gradient: Its derivatives in the logarithms of scales, signal and noise.
        coefficients: (K + noise)^-1 y.
        factor: Of K + noise.
    """

    value: float
    gradient: Float[Tensor, " numbers"]
    coefficients: Vector
    factor: Factor


def log_evidence(
    x: Rows, y: Vector, weight: Vector, found: Hyperparameters, kernel: Kernel, *, slopes: bool = True
) -> Evidence:
    r"""The log marginal likelihood of values under a process of mean 0, with its gradient.

    .. math:: \log p(y) = -\tfrac12 y^\top K_y^{-1} y - \tfrac12 \log\det K_y - \tfrac n2 \log 2\pi, \quad
        K_y = K + s^2 A^{-1}

    Args:
        x: Inputs.
        y: The value at each.
        weight: A: the noise variance of a value of weight a is s^2 / a.
        found: Length scales, signal and noise variance s^2.
        kernel: Which.
        slopes: Whether the gradient is asked for, which takes most of the time; else it is empty.

    Reference: Rasmussen and Williams 2006, Equations 2.30 and 5.9.
    """
    z = x / found.scales
    square = squared_distances(z, z)
    square.fill_diagonal_(0)
    K = correlation(square, kernel).mul_(found.signal)
    noise = found.noise / weight
    noisy = K.clone() if slopes else K
    noisy.diagonal().add_(noise)
    factor = factored(noisy)
    a = factor.solve(y)
    value = -(y @ a + factor.log_det() + len(y) * math.log(2 * math.pi)) / 2
    if not slopes:
        return Evidence(float(value), y.new_zeros(0), a, factor)
    W = torch.cholesky_inverse(factor.lower).neg_().addr_(a, a)
    slope = torch.cat((gradient(W, x, found, kernel, square, K), (W.diagonal() @ noise)[None] / 2))
    return Evidence(float(value), slope, a, factor)


class Kept:
    """A factor that is computed again where a tensor on which it rests has changed or is another."""

    def __init__(self) -> None:
        self.of: tuple[tuple[Tensor, int], ...] = ()
        self.factor: Factor | None = None

    def get(self, *tensors: Tensor) -> Factor | None:
        """The factor of these tensors; None where they are others."""
        same = len(self.of) == len(tensors) and all(
            a is b and b._version == version for (a, version), b in zip(self.of, tensors, strict=True)
        )
        return self.factor if same else None

    def keep(self, factor: Factor, *tensors: Tensor) -> Factor:
        """The factor, kept for the next time; inside a trace of torch.export nothing is kept."""
        if not torch.compiler.is_compiling():
            self.of, self.factor = tuple((t, t._version) for t in tensors), factor
        return factor


class GaussianProcess(nn.Module):
    r"""The posterior of a Gaussian process of constant mean, given noisy values at the training inputs.

    .. math:: m(x) = c + k_x^\top (K + s^2 I)^{-1} (y - c), \quad
        v(x) = k(x, x) - k_x^\top (K + s^2 I)^{-1} k_x

    The output is m(x), kernel ridge regression of penalty s^2; :meth:`predictive` has the
    variance too. c is the mean of the training values, and variances are in units of theirs.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_examples: Number of training examples, which the model keeps; learning takes time n^3, memory n^2.
        kernel: rbf, exp(-r^2/2), or a Matern kernel of smoothness 1/2, 3/2 or 5/2.
        scales: A length scale of each feature, or one of all.
        lengthscale: Length scale to begin with; sqrt(features) if not given.
        noise: Noise variance to begin with, a share of the variance of the values.
        learn: Whether length scales, signal and noise maximize the evidence, or stay as given.
        restarts: Further beginnings of the search, drawn at random; the largest evidence is kept.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Rasmussen and Williams 2006, Equations 2.25 and 2.26.
    """

    examples: Tensor
    weight: Tensor
    count: Tensor
    scales: Tensor
    signal: Tensor
    noise: Tensor
    shift: Tensor
    unit: Tensor
    jitter: Tensor

    def __init__(
        self,
        in_features: int,
        num_examples: int,
        *,
        kernel: Kernel = "rbf",
        scales: Scales = "each",
        lengthscale: float | None = None,
        noise: float = 0.1,
        learn: Learn = "evidence",
        restarts: int = 0,
    ) -> None:
        super().__init__()
        correlation(torch.zeros(1), kernel)
        begin = initial(in_features, scales == "shared", lengthscale, noise)
        if learn == "evidence" and noise == 0:
            raise ValueError("noise must be positive where it is learned: got 0; --model.learn none keeps it")
        if restarts < 0:
            raise ValueError(f"restarts must be at least 0: got {restarts}")
        self.kernel, self.learn, self.restarts = kernel, learn, restarts
        for name, value in {
            "examples": torch.zeros(num_examples, in_features),
            "weight": torch.ones(num_examples),
            "count": torch.zeros((), dtype=torch.int64),
            "scales": begin.scales,
            "signal": begin.signal,
            "noise": begin.noise,
            "shift": torch.zeros(()),
            "unit": torch.ones(()),
            "jitter": torch.zeros(()),
        }.items():
            self.register_buffer(name, value)
        self.coefficients = nn.Parameter(torch.zeros(num_examples), requires_grad=False)
        self._kept = Kept()

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Length scales, signal and noise variance, in units of the variance of the training values."""
        return Hyperparameters(self.scales.double(), self.signal.double(), self.noise.double())

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The posterior mean at each row, in the unit of the values."""
        found = Hyperparameters(self.scales.to(x), self.signal.to(x), self.noise.to(x))
        k = gram(x.flatten(1), self.examples, found, self.kernel)
        return self.shift + self.unit * (k @ self.coefficients)

    def _tensors(self) -> tuple[Tensor, ...]:
        return self.examples, self.weight, self.scales, self.signal, self.noise

    def keep(self, factor: Factor) -> None:
        """Take the factor of the state that was written last, where nothing of it was rounded."""
        if self.examples.dtype == torch.float64:
            self._kept.keep(factor, *self._tensors())

    def factor(self) -> Factor:
        """The Cholesky factor of the training values' covariance, computed where it is first needed."""
        tensors = self._tensors()
        if (known := self._kept.get(*tensors)) is not None:
            return known
        x, found = self.examples[: int(self.count)].double(), self.hyperparameters
        K = gram(x, x, found, self.kernel)
        K.diagonal().copy_(found.signal + found.noise / self.weight[: len(x)].double())
        return self._kept.keep(factored(K), *tensors)

    @torch.no_grad()
    def predictive(self, x: Float[Tensor, " batch *features"], *, noise: bool = True) -> Mixture:
        """The law of a new value at each row, in the unit of the values, in float64.

        Args:
            x: Inputs.
            noise: Whether the noise of a value is part of it; else the law is that of the function.

        Raises:
            ValueError: The model has not been trained.
        """
        if not int(self.count):
            raise ValueError("a Gaussian process predicts once it is trained: it has no examples yet")
        rows, found = x.flatten(1).double(), self.hyperparameters
        k = gram(self.examples[: int(self.count)].double(), rows, found, self.kernel)
        # rounding alone can make it negative: of an exact factor k is in the range of the matrix
        variance = (found.signal - self.factor().half_solve(k).square().sum(0)).clamp_min(0)
        if noise:
            variance = variance + found.noise
        mean = k.T @ self.coefficients[: len(k)].double()
        return Mixture(mean[None], variance[None]).moved(self.shift.double(), self.unit.double())
