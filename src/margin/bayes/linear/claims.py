"""On linear-Gaussian data Laplace's approximation and Hamiltonian chains are the exact posterior.

Bishop (2006), Sections 3.3 and 4.4; MacKay (1992): the log joint density is quadratic, so the Gaussian at
its maximum is the posterior, and its evidence the density of the values.
"""

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.bayes.laplace.learning import laplace
from margin.bayes.linear.regression import BayesianLinearRegression, conjugate
from margin.bayes.mcmc.chains import hamiltonian
from margin.core.findings import Finding, Subject, odd_parameter
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import State, risk
from margin.engine.weighted_rows import training_rows
from margin.nn.preprocessed import core_of

MOST_ROWS = 1000
"""Training examples whose values' joint density is computed as a dense Gaussian."""

CHAINS, WARM, DRAWS = 1000, 20, 30
"""Chains, and the draws of each that are left out and that are kept."""


def is_small(subject: Subject) -> bool:
    """Whether the posterior is fitted, of training examples that are few and count alike."""
    return float(core_of(subject.model).get_buffer("count")) > 0 and _count(subject) <= MOST_ROWS


def _count(subject: Subject) -> int:
    return sum(len(batch.inputs[0]) for batch in subject.train)


def _centered(subject: Subject) -> tuple[Any, Tensor, Tensor]:
    """The model, its training inputs and values, both less their means, each row times its weight's root."""
    core: Any = core_of(subject.model)
    rows = training_rows(subject).double()
    share = rows.weight / rows.weight.sum()
    x, y = rows.x - share @ rows.x, rows.targets - share @ rows.targets
    root = rows.weight.sqrt()
    return core, root[:, None] * x, root * y


def exact(subject: Subject) -> Finding:
    """How far the posterior is from Laplace's at its mean, and this one's evidence from the values' density.

    Args:
        subject: A Bayesian linear regression with its training examples.

    Reference: Bishop 2006, Equations 3.53 and 3.54 and Section 4.4.
    """
    core, x, y = _centered(subject)
    noise, prior, weight = core.noise.double(), core.prior.double(), core.weight.detach().double()
    net = nn.utils.skip_init(nn.Linear, x.shape[1], 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(weight[None])
    model = laplace(
        net, x, y, task="values", structure="full", prior_precision=1 / float(prior), noise=float(noise),
        learn="none",
    )  # fmt: skip
    vectors, values = model.curvature.get_buffer("vectors"), model.curvature.eigenvalues()
    covariance = (vectors / (values / noise + 1 / prior)) @ vectors.T
    joint = noise * torch.eye(len(y), dtype=torch.float64) + prior * (x @ x.T)
    density = -(y @ torch.linalg.solve(joint, y) + torch.logdet(joint) + len(y) * math.log(2 * math.pi)) / 2
    mean = covariance @ (x.T @ y) / noise
    scale = covariance.diagonal().sqrt()
    off = (core.covariance.double() - covariance).abs() / torch.outer(scale, scale)
    return Finding(
        statement=f"How far the posterior of {x.shape[1]} coefficients given {len(y):,} training examples is "
        "from Laplace's approximation: mean and covariance in deviations; and the evidence of that from the "
        "density of the values, in nats.",
        value=torch.stack(
            (
                ((weight - mean) / scale).abs().max(),
                off.max(),
                (model.evidence - density).abs(),
            )
        ),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-4 if core.weight.dtype == torch.float32 else 1e-6,
        labels=("mean", "covariance", "evidence"),
    )


def sampled(subject: Subject) -> Finding:
    """The variances of Hamiltonian draws of the coefficients, as a share of the exact ones.

    Args:
        subject: A Bayesian linear regression with its training examples.

    Reference: Neal 2011, Section 3.
    """
    core, x, y = _centered(subject)
    noise, prior, mean = core.noise.double(), core.prior.double(), core.weight.detach().double()
    root = torch.linalg.cholesky(core.covariance.double())

    def energy(z: Tensor) -> Tensor:
        w = mean + z @ root.T
        return (y - w @ x.T).square().sum(1) / (2 * noise) + w.square().sum(1) / (2 * prior)

    start = torch.zeros(CHAINS, len(mean), dtype=torch.float64)
    generator = Generator().manual_seed(0)
    draws = hamiltonian(energy, start, draws=WARM + DRAWS, step=0.4, steps=4, generator=generator).states
    found = draws[WARM:].square().mean(0)  # of each chain: independent of the others
    return Finding(
        statement="The variance of Hamiltonian draws of the coefficients about the posterior's mean, each in "
        f"units of the exact one, over {CHAINS:,} chains.",
        value=found.mean(0),
        range=(0.0, math.inf),
        kind="estimate",
        stderr=found.std(0) / CHAINS**0.5,
        equals=1.0,
        tolerance=0.05,
        failure=odd_parameter(core),
        labels=tuple(f"direction {k + 1}" for k in range(len(mean))),
    )


def demo() -> Subject:
    """The posterior of three coefficients given 40 noisy values."""
    i = torch.arange(40, dtype=torch.float64)
    x = torch.stack((i.sin(), (2 * i).cos(), i / 20), 1)
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + 3 + 0.3 * (7 * i).sin()
    batch, model = Batch((x,), y), BayesianLinearRegression(3).double()
    conjugate()(State({"model": model}), batch)
    return Subject(model=model.eval(), test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))
