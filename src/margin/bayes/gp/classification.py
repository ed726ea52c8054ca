"""Gaussian process classification: a latent function through a logistic curve, by Laplace's approximation.

Rasmussen and Williams (2006), Sections 3.4 and 5.5.1, Algorithms 3.1, 3.2 and 5.1. Of more than two classes
each has its own process against the rest, and their probabilities are divided by their sum.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
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
from margin.bayes.gp.regression import Kept, Learn, Scales
from margin.math.linear_algebra.positive_definite import Factor, factored

Vector = Float[Tensor, " rows"]
STEPS, PRECISE = 100, 1e-10
"""Newton steps at most, and the relative gain of one at which they end."""

NODES = 64
"""Of the quadrature over the latent value."""


class Mode(NamedTuple):
    """The mode of the latent values given labels, and Laplace's approximation there.

    Args:
        latent: f, the mode.
        slope: The derivative of the log-likelihood in f, which is K^-1 f there.
        root: The square root of W, less its second derivative.
        factor: Of B = I + W^(1/2) K W^(1/2).
        evidence: The approximate log marginal likelihood, in nats.
    """

    latent: Vector
    slope: Vector
    root: Vector
    factor: Factor
    evidence: Float[Tensor, ""]


def mode_of(K: Float[Tensor, "rows rows"], sign: Vector, weight: Vector) -> Mode:
    """The mode by Newton's method, whose steps are halved where they would lose.

    Args:
        K: Covariance of the latent values.
        sign: -1 or 1, the label of each.
        weight: How much each label counts.

    Raises:
        ValueError: So many steps do not reach the mode.

    Reference: Rasmussen and Williams 2006, Algorithm 3.1.
    """
    a = torch.zeros_like(sign)
    f, best = K @ a, float((weight * F.logsigmoid(torch.zeros_like(sign))).sum())
    for _ in range(STEPS):
        p = torch.sigmoid(f)
        slope = weight * ((sign + 1) / 2 - p)
        root = (weight * p * (1 - p)).sqrt()
        factor = factored(torch.eye(len(K), dtype=K.dtype) + root[:, None] * K * root)
        b = root.square() * f + slope
        target = b - root * factor.solve(root * (K @ b))
        size, before = 1.0, best
        while size > 1e-8:
            tried = a + size * (target - a)
            g = K @ tried
            best = float((weight * F.logsigmoid(sign * g)).sum() - tried @ g / 2)
            if best >= before - 1e-12 * abs(before):
                break
            size /= 2
        a, f = tried, g
        if abs(best - before) <= PRECISE * abs(best):
            return _at(K, sign, weight, f, best)
    raise ValueError(f"the mode of the latent values was not reached in {STEPS} Newton steps")


def _at(K: Tensor, sign: Vector, weight: Vector, f: Vector, height: float) -> Mode:
    p = torch.sigmoid(f)
    root = (weight * p * (1 - p)).sqrt()
    factor = factored(torch.eye(len(K), dtype=K.dtype) + root[:, None] * K * root)
    slope = weight * ((sign + 1) / 2 - p)
    return Mode(f, slope, root, factor, height - factor.log_det() / 2)


def log_evidence(
    x: Rows, sign: Vector, weight: Vector, found: Hyperparameters, kernel: Kernel
) -> tuple[float, Float[Tensor, " numbers"], Mode]:
    """Laplace's log marginal likelihood, its gradient in the logarithms (that of the noise is 0), the mode.

    Args:
        x: Inputs.
        sign: -1 or 1, the label of each.
        weight: How much each label counts.
        found: Length scales and signal variance.
        kernel: Which.

    Reference: Rasmussen and Williams 2006, Equations 3.32 and 5.20 to 5.24, Algorithm 5.1.
    """
    z = x / found.scales
    square = squared_distances(z, z)
    square.fill_diagonal_(0)
    K = correlation(square, kernel).mul_(found.signal)
    mode = mode_of(K, sign, weight)
    rK = mode.root[:, None] * K
    R = mode.root[:, None] * torch.cholesky_inverse(mode.factor.lower) * mode.root
    variance = K.diagonal() - mode.factor.half_solve(rK).square().sum(0)
    p = torch.sigmoid(mode.latent)
    moved = variance * weight * p * (1 - p) * (1 - 2 * p) / -2  # by the mode, on which the determinant rests
    u = moved - R @ (K @ moved)
    g = mode.slope
    W = torch.outer(g, g) - R + torch.outer(u, g) + torch.outer(g, u)
    slopes = torch.cat((gradient(W, x, found, kernel, square, K), torch.zeros(1, dtype=K.dtype)))
    return float(mode.evidence), slopes, mode


def logistic_gaussian(mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Tensor:
    """The logarithm of E sigmoid(f) for f ~ N(mean, variance), by Gauss-Hermite quadrature of 64 nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    at = torch.from_numpy(nodes).to(mean)
    share = (torch.from_numpy(weights) / math.sqrt(2 * math.pi)).log().to(mean)
    return (F.logsigmoid(mean[..., None] + variance.sqrt()[..., None] * at) + share).logsumexp(-1)


class GaussianProcessClassifier(nn.Module):
    """Class probabilities of Gaussian processes through logistic curves, averaged over Laplace's posterior.

    The outputs are the logarithms of the probabilities: their softmax is themselves.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of classes; of two there is one process, of more one each.
        num_examples: Number of training examples, which the model keeps; learning takes time n^3, memory n^2.
        kernel: rbf, exp(-r^2/2), or a Matern kernel of smoothness 1/2, 3/2 or 5/2.
        scales: A length scale of each feature, or one of all.
        lengthscale: Length scale to begin with; sqrt(features) if not given.
        learn: Whether length scales and signal variance maximize the evidence, or stay as given.
        restarts: Further beginnings of the search, drawn at random; the largest evidence is kept.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Rasmussen and Williams 2006, Sections 3.4 and 5.5.1.
    """

    examples: Tensor
    count: Tensor
    scales: Tensor
    signal: Tensor
    root: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        num_examples: int,
        *,
        kernel: Kernel = "rbf",
        scales: Scales = "each",
        lengthscale: float | None = None,
        learn: Learn = "evidence",
        restarts: int = 0,
    ) -> None:
        super().__init__()
        correlation(torch.zeros(1), kernel)
        begin = initial(in_features, scales == "shared", lengthscale, 1.0)
        if restarts < 0:
            raise ValueError(f"restarts must be at least 0: got {restarts}")
        self.kernel, self.learn, self.restarts = kernel, learn, restarts
        count = 1 if num_classes == 2 else num_classes
        for name, value in {
            "examples": torch.zeros(num_examples, in_features),
            "count": torch.zeros((), dtype=torch.int64),
            "scales": begin.scales.repeat(count, 1),
            "signal": begin.signal.repeat(count),
            "root": torch.zeros(count, num_examples),
        }.items():
            self.register_buffer(name, value)
        self.coefficients = nn.Parameter(torch.zeros(count, num_examples), requires_grad=False)
        self._kept = [Kept() for _ in range(count)]

    def hyperparameters(self, process: int) -> Hyperparameters:
        """Length scales and signal variance of a process; the noise is 1 and means nothing."""
        one = torch.ones((), dtype=torch.float64)
        return Hyperparameters(self.scales[process].double(), self.signal[process].double(), one)

    def factor(self, process: int) -> Factor:
        """The Cholesky factor of B, computed where it is first needed."""
        tensors = (self.examples, self.scales, self.signal, self.root)
        if (known := self._kept[process].get(*tensors)) is not None:
            return known
        x, found = self.examples[: int(self.count)].double(), self.hyperparameters(process)
        root = self.root[process, : len(x)].double()
        K = gram(x, x, found, self.kernel)
        K.diagonal().copy_(found.signal)
        B = torch.eye(len(x), dtype=x.dtype, device=x.device) + root[:, None] * K * root
        return self._kept[process].keep(factored(B), *tensors)

    def latent(self, x: Rows, process: int) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]]:
        """The mean and the variance of a latent function at each row, in float64."""
        found, n = self.hyperparameters(process), int(self.count)
        k = gram(self.examples[:n].double(), x.double(), found, self.kernel)
        spread = self.factor(process).half_solve(self.root[process, :n].double()[:, None] * k)
        # rounding alone can make it negative
        variance = (found.signal - spread.square().sum(0)).clamp_min(0)
        return self.coefficients[process, :n].double() @ k, variance

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch classes"]:
        """The log-probability of each class at each row."""
        rows = x.flatten(1)
        found = [self.latent(rows, process) for process in range(len(self.signal))]
        mean, variance = (torch.stack(column, 1) for column in zip(*found, strict=True))
        if len(self.signal) == 1:
            both = torch.cat((-mean, mean), 1)
            return logistic_gaussian(both, variance.expand_as(both)).to(x.dtype)
        return logistic_gaussian(mean, variance).log_softmax(1).to(x.dtype)
