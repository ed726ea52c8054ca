r"""The step size and the masses of Hamiltonian Monte Carlo, found while chains warm up.

Hoffman and Gelman (2014), "The No-U-Turn sampler", Section 3.2 and Algorithm 4: dual averaging brings the
mean acceptance to a target. The masses are the inverse variances of the positions between a quarter and three
quarters of the warm-up, shrunk as Stan does (Carpenter et al. 2017, Section 6); then the step size is found
again. A dense mass matrix, the inverse covariance, is the change of coordinates in which positions are
uncorrelated: there masses are 1 (Neal 2011, Section 4.1).
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.bayes.mcmc.chains import Energy, Point, transition

GAMMA, DELAY, DECAY = 0.05, 10.0, 0.75
"""Hoffman and Gelman's constants gamma, t_0 and kappa."""

MassMatrix = Literal["diagonal", "dense"]

DOUBLINGS = 60
"""Times that the first step size is doubled or halved at most."""


def first_step(energy: Energy, at: Point, inverse: Float[Tensor, " dim"], generator: Generator) -> float:
    """A step size with which one step is accepted about every other time, by doubling or halving.

    Reference: Hoffman and Gelman 2014, Algorithm 4.
    """
    step, way = 1.0, 0
    for _ in range(DOUBLINGS):
        moved = transition(energy, at, inverse=inverse, step=step, steps=1, generator=generator)
        new = 1 if float(moved.acceptance.mean()) > 0.5 else -1
        if way and new != way:
            break
        way = new
        step *= 2.0**way
    return step


class Adaptation(nn.Module):
    """What the warm-up has found so far: kept with the model, so that a training can be resumed.

    Args:
        dim: Numbers of a position.
        mass_matrix: Whether masses are a number a coordinate, or a matrix.
    """

    log_step: Tensor
    log_mean: Tensor
    error: Tensor
    center: Tensor
    count: Tensor
    inverse: Tensor
    seen: Tensor
    mean: Tensor
    squares: Tensor
    root: Tensor

    def __init__(self, dim: int, mass_matrix: MassMatrix = "diagonal") -> None:
        super().__init__()
        for name in ("log_step", "log_mean", "error", "center", "count", "seen"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self.register_buffer("inverse", torch.ones(dim, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.dense = mass_matrix == "dense"
        self.register_buffer("squares", torch.zeros((dim,) * (1 + self.dense), dtype=torch.float64))
        if self.dense:
            self.register_buffer("root", torch.eye(dim, dtype=torch.float64))

    def within(self, energy: Energy) -> Energy:
        """The energy in the coordinates z, theta = L z, in which M is diagonal; L L^T is the covariance."""
        return (lambda z: energy(self.outside(z))) if self.dense else energy

    def inside(self, theta: Float[Tensor, "chains dim"]) -> Float[Tensor, "chains dim"]:
        """z, of theta."""
        if not self.dense:
            return theta
        return torch.linalg.solve_triangular(self.root.T.to(theta), theta, upper=True, left=False)

    def outside(self, z: Float[Tensor, "chains dim"]) -> Float[Tensor, "chains dim"]:
        """theta, of z."""
        return z @ self.root.T.to(z) if self.dense else z

    def begin(self, step: float) -> None:
        """Dual averaging from a step size on."""
        self.log_step.fill_(math.log(step))
        self.log_mean.fill_(math.log(step))
        self.center.fill_(math.log(10 * step))
        self.error.zero_()
        self.count.zero_()

    def update(self, acceptance: float, target: float) -> None:
        """One step of dual averaging.

        Args:
            acceptance: The mean acceptance of a proposal.
            target: What it is to be.

        Reference: Hoffman and Gelman 2014, Equation 6.
        """
        self.count += 1
        t = float(self.count)
        share = 1 / (t + DELAY)
        self.error.mul_(1 - share).add_(share * (target - acceptance))
        self.log_step.copy_(self.center - math.sqrt(t) / GAMMA * self.error)
        weight = t**-DECAY
        self.log_mean.mul_(1 - weight).add_(weight * self.log_step)

    def observe(self, theta: Float[Tensor, "chains dim"]) -> None:
        """Add positions to the running mean and variance (Welford 1962)."""
        for row in theta.double():
            self.seen += 1
            off = row - self.mean
            self.mean += off / self.seen
            rest = row - self.mean
            self.squares += torch.outer(off, rest) if self.dense else off * rest

    def take_masses(self) -> None:
        """The inverse of M is the (co)variance so far, shrunk to a thousandth where few were seen."""
        n = float(self.seen)
        if n < 2:
            return
        variance = n / (n + 5) * self.squares.double() / (n - 1)
        if self.dense:
            self.root.copy_(torch.linalg.cholesky(variance + 1e-3 * 5 / (n + 5) * torch.eye(len(variance))))
        else:
            self.inverse.copy_(variance + 1e-3 * 5 / (n + 5))

    def step(self, adapting: bool) -> float:
        """The step size: the one that is being tried, or the mean that was found."""
        return math.exp(float(self.log_step if adapting else self.log_mean))
