"""What the rules of chains promise before any data: volume kept, variances of a step that is not small.

Neal (2011), Section 2.3, of the leapfrog; of Langevin's rules the stationary law of a quadratic energy is a
Gaussian whose variance is known exactly, at any step size: the fixed point of a linear recursion.
"""

import math
from typing import Any

import torch
from torch import Generator, Tensor

from margin.bayes.mcmc.chains import overdamped_langevin, point_at, trajectory, underdamped_langevin
from margin.bayes.mcmc.claims import posterior_energy
from margin.core.findings import Finding, Subject
from margin.nn.preprocessed import core_of

MOST_WEIGHTS = 64
"""Weights of a posterior whose trajectories are differentiated one coordinate at a time."""

STEPS = 10
"""Leapfrog steps of a trajectory."""

CHAINS = 100_000
"""Chains whose last states are the draws of a stationary law: 4 standard errors are 1.8 % of a variance."""

TOLERANCE = 0.03
"""Half of what the shortest of the steps below changes the variance by."""

OVERDAMPED = (1.0, 0.5, 0.25)
"""Step sizes times curvature."""

UNDERDAMPED, FRICTION = (0.9, 0.6, 0.4), 1.0
"""Step sizes times the root of the curvature, and the friction in that unit."""

LONG_ENOUGH = 40
"""Steps, after which the slowest of these has forgotten all but 1e-4 of the variance that it began with."""


def is_small(subject: Subject) -> bool:
    """Whether the chains have so few coordinates that trajectories are soon differentiated."""
    return int(core_of(subject.model).get_buffer("positions").shape[1]) <= MOST_WEIGHTS


def volume(subject: Subject) -> Finding:
    r"""The logarithm of the volume that a leapfrog trajectory makes of a unit of phase space: 0.

    .. math:: \log \Bigl| \det \frac{\partial (\theta', v')}{\partial (\theta, v)} \Bigr| = 0

    Args:
        subject: A network whose weights were sampled by Hamiltonian trajectories.

    Reference: Neal 2011, Section 2.3.
    """
    core: Any = core_of(subject.model)
    energy, inverse = core.adaptation.within(posterior_energy(subject)), core.adaptation.inverse
    step = core.adaptation.step(False)
    theta = core.adaptation.inside(core.positions[:1])
    unit = torch.randn(theta.shape, generator=Generator().manual_seed(0), dtype=torch.float64)
    z = torch.cat((theta * inverse.rsqrt(), unit), 1)  # both of the size of 1

    def moved(rows: Tensor, euler: bool = False) -> Tensor:
        at, v = (part.contiguous() for part in rows.chunk(2, 1))
        at, v = at * inverse.sqrt(), v * inverse.rsqrt()
        if euler:
            at, v = at + step * inverse * v, v - step * point_at(energy, at).slope
        else:
            end, v = trajectory(energy, point_at(energy, at), v, inverse, step, STEPS)
            at = end.theta
        return torch.cat((at * inverse.rsqrt(), v * inverse.sqrt()), 1)

    def log_volume(euler: bool) -> Tensor:
        h = 1e-4
        off = h * torch.eye(z.shape[1], dtype=torch.float64)
        ends = [moved(z + k * off, euler) for k in (1, -1, 2, -2)]
        return torch.linalg.slogdet((8 * (ends[0] - ends[1]) - ends[2] + ends[3]) / (12 * h)).logabsdet

    return Finding(
        statement=f"The logarithm of the volume that a trajectory of {STEPS} leapfrog steps makes of a unit "
        f"of phase space; of one explicit step of Euler it is {float(log_volume(True)):.2g}.",
        value=log_volume(False),
        range=(-math.inf, math.inf),
        equals=0.0,
        tolerance=1e-6,
    )


def overdamped(subject: Subject) -> Finding:
    r"""The stationary variance of SGLD on a quadratic energy, as a share of the exact one.

    .. math:: \lambda \operatorname{Var} \theta = \frac{1}{1 - \epsilon \lambda / 4}

    Args:
        subject: A network whose weights were sampled by chains; the curvature is that of its stiffest weight.

    Reference: Welling and Teh 2011, Equation 4; its fixed point is Var = (1 - eps lam / 2)^2 Var + eps.
    """
    curvature = _curvature(subject)
    found = torch.stack(
        [
            overdamped_langevin(
                lambda theta: curvature * theta, _begin(curvature), draws=LONG_ENOUGH,
                step=size / curvature, generator=Generator().manual_seed(k),
            )[-1, :, 0].var() for k, size in enumerate(OVERDAMPED)
        ]
    )  # fmt: skip
    promised = torch.tensor([1 / (1 - size / 4) for size in OVERDAMPED], dtype=torch.float64)
    return _judged("SGLD", curvature * found, promised, [f"step x curvature {size:g}" for size in OVERDAMPED])


def underdamped(subject: Subject) -> Finding:
    r"""The stationary variance of underdamped Langevin steps on a quadratic energy, as :func:`overdamped`.

    .. math:: \Sigma = A \Sigma A^\top + Q,
        \quad A = \begin{pmatrix} 1 - \eta^2 \lambda & \eta (1 - \eta g) \\
        -\eta \lambda & 1 - \eta g \end{pmatrix},
        \quad Q = 2 g \eta \begin{pmatrix} \eta^2 & \eta \\ \eta & 1 \end{pmatrix}

    Args:
        subject: A network whose weights were sampled by chains; the curvature is that of its stiffest weight.

    Reference: Chen, Fox and Guestrin 2014, Equation 15.
    """
    curvature = _curvature(subject)
    unit = curvature**0.5
    found = torch.stack(
        [
            underdamped_langevin(
                lambda theta: curvature * theta, _begin(curvature), draws=LONG_ENOUGH, step=size / unit,
                friction=FRICTION * unit, generator=Generator().manual_seed(k),
            )[-1, :, 0].var() for k, size in enumerate(UNDERDAMPED)
        ]
    )  # fmt: skip
    promised = torch.tensor([_lyapunov(size) for size in UNDERDAMPED], dtype=torch.float64)
    labels = [f"step x root of the curvature {size:g}" for size in UNDERDAMPED]
    return _judged("underdamped Langevin steps (SGHMC)", curvature * found, promised, labels)


def _lyapunov(eta: float) -> float:
    """The stationary variance of the position at curvature 1, by the linear equation of both moments."""
    keep = 1 - eta * FRICTION
    A = torch.tensor([[1 - eta**2, eta * keep], [-eta, keep]], dtype=torch.float64)
    Q = 2 * FRICTION * eta * torch.tensor([[eta**2, eta], [eta, 1.0]], dtype=torch.float64)
    whole = torch.eye(4, dtype=torch.float64) - torch.kron(A, A)
    return float(torch.linalg.solve(whole, Q.flatten())[0])


def _curvature(subject: Subject) -> float:
    """The inverse of the least variance of a coordinate over the kept draws."""
    core = core_of(subject.model)
    draws = core.get_buffer("draws")[: int(core.get_buffer("taken"))].flatten(0, 1)
    return float(1 / draws.var(0).clamp_min(1e-12).min())


def _begin(curvature: float) -> Tensor:
    draw = Generator().manual_seed(17)
    return torch.randn(CHAINS, 1, generator=draw, dtype=torch.float64) / curvature**0.5


def _judged(rule: str, value: Tensor, promised: Tensor, labels: list[str]) -> Finding:
    times = ", ".join(f"{number:.4g}" for number in promised.tolist())
    return Finding(
        statement=f"The variance to which chains of {rule} come on a quadratic energy of the "
        f"posterior's largest curvature, over {CHAINS:,} chains, as a share of what the recursion of its "
        f"moments gives; that itself is {times} times the posterior's.",
        value=value / promised,
        range=(0.0, math.inf),
        kind="estimate",
        stderr=value / promised * (2 / CHAINS) ** 0.5,
        equals=1.0,
        tolerance=TOLERANCE,
        labels=tuple(labels),
    )
