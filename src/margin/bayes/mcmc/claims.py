"""What is asked of chains of weights: do they agree, how many draws are they worth, are their rules right?"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.bayes.mcmc.chains import imbalance, metropolis_hastings, point_at, trajectory
from margin.bayes.mcmc.diagnostics import FEWEST, effective_sample_size, r_hat
from margin.bayes.mcmc.learning import energy_of, hamiltonian_sampling
from margin.bayes.mcmc.posterior import ChainRegressor
from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import State, fit, risk
from margin.engine.weighted_rows import training_rows
from margin.nn.preprocessed import core_of, features_of

MOST = 32
"""Held-out examples at whose outputs chains are compared."""

STATES = 12
"""Draws that are the states of a finite chain."""


def traces(subject: Subject) -> Float[Tensor, "draws chains numbers"]:
    """The outputs of every draw at some held-out examples: weights themselves can be exchanged."""
    core: Any = core_of(subject.model)
    x = torch.cat([features_of(subject.model, batch.inputs[0]) for batch in subject.test])[:MOST]
    draws = core.draws[: int(core.taken)]
    with torch.no_grad():
        found = core.outputs(draws.flatten(0, 1), x)
        if not hasattr(core, "unit"):
            found = found.log_softmax(-1)
    return found.flatten(1).unflatten(0, draws.shape[:2]).double()


def has_draws(subject: Subject) -> bool:
    """Whether each chain has kept draws enough to be compared."""
    return int(core_of(subject.model).taken) >= FEWEST


def agreement(subject: Subject) -> Finding:
    """Rank-normalized split R-hat of the outputs at held-out examples: 1 where chains agree.

    Args:
        subject: A network whose weights were sampled by chains.
    """
    core: Any = core_of(subject.model)
    drawn = traces(subject)
    found = r_hat(drawn)
    diverged = int((~core.mixing()).sum())
    told = f" {diverged} chains diverged and are left out of predictions." if diverged else ""
    return Finding(
        statement=f"R-hat of the outputs at held-out examples, {MOST} at most, between "
        f"{core.draws.shape[1]} chains of {int(core.taken)} draws: the largest; below 1.01 they agree."
        + told,
        value=found.nan_to_num(nan=1.0).max(),
        range=(0.0, math.inf),
        failure=_unheard(drawn),
        curves={"draws": drawn[:, :, int(found.nan_to_num(nan=0.0).argmax())]},
    )


def worth(subject: Subject) -> Finding:
    """The effective sample size of the outputs at held-out examples.

    Args:
        subject: A network whose weights were sampled by chains.
    """
    draws = traces(subject)
    found = effective_sample_size(draws)
    total = draws.shape[0] * draws.shape[1]
    return Finding(
        statement=f"How many independent draws the {total:,} of all chains are worth, for the mean of an "
        "output at a held-out example: the least.",
        value=found.nan_to_num(nan=0.0).min(),
        unit="draws",
        range=(0.0, math.inf),
        failure=_unheard(draws),
    )


def _unheard(drawn: Tensor) -> str:
    return "" if bool(drawn.isfinite().all()) else "an output of a draw is not finite"


def divergences(subject: Subject) -> Finding:
    """The share of trajectories since the warm-up whose energy was not kept, of each chain.

    Args:
        subject: A network whose weights were sampled by Hamiltonian trajectories.
    """
    core: Any = core_of(subject.model)
    count = max(int(core.proposals), 1)
    return Finding(
        statement=f"The share of the {count} trajectories of each chain since the warm-up whose energy rose "
        "by more than 1000 nats: there the posterior bends more sharply than the step size follows.",
        value=core.divergent.double() / count,
        range=(0.0, 1.0),
        labels=tuple(f"chain {i + 1}" for i in range(len(core.divergent))),
    )


def posterior_energy(subject: Subject) -> Any:
    """The energy of the weights given all training examples."""
    core: Any = core_of(subject.model)
    rows = training_rows(subject)
    y = rows.targets
    if hasattr(core, "unit"):
        y = (y.double() - core.shift) / core.unit
    return energy_of(core, rows.x.double(), y, rows.weight.double())


def reversed_trajectory(subject: Subject) -> Finding:
    """Whether a leapfrog trajectory that is run backward comes back to where it began.

    Args:
        subject: A network whose weights were sampled by Hamiltonian trajectories.

    Reference: Neal 2011, Section 2.3.
    """
    core: Any = core_of(subject.model)
    energy = core.adaptation.within(posterior_energy(subject))
    start = point_at(energy, core.adaptation.inside(core.positions))
    inverse, step = core.adaptation.inverse, core.adaptation.step(False)
    draw = Generator().manual_seed(0)
    v = torch.randn(start.theta.shape, generator=draw, dtype=torch.float64) / inverse.sqrt()
    end, w = trajectory(energy, start, v, inverse, step, 10)
    back, u = trajectory(energy, end, -w, inverse, step, 10)
    off = torch.stack(
        (
            (back.theta - start.theta).abs().max() / start.theta.abs().max(),
            (u + v).abs().max() / v.abs().max(),
        )
    )
    return Finding(
        statement="How far a trajectory of 10 leapfrog steps, run backward, ends from where it began, in the "
        "largest of its coordinates: positions and momenta.",
        value=off.max(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-8,
    )


def balance(subject: Subject) -> Finding:
    """Whether the rule of Metropolis and Hastings is in detailed balance with the posterior on some draws.

    Args:
        subject: A network whose weights were sampled by chains.

    Reference: Hastings 1970, Section 2; Levin and Peres 2017, Proposition 1.20.
    """
    core: Any = core_of(subject.model)
    draws = core.draws[: int(core.taken)].flatten(0, 1)
    states = draws[torch.linspace(0, len(draws) - 1, STATES).long()]
    with torch.no_grad():
        energy = posterior_energy(subject)(states)
    law = (-energy).softmax(0).clamp_min(1e-12)
    law = law / law.sum()
    Q = torch.rand(STATES, STATES, generator=Generator().manual_seed(0), dtype=torch.float64)
    Q = Q / Q.sum(1, keepdim=True)
    flow = law[:, None] * Q
    inverted = Q * (flow / flow.T).clamp(max=1)
    inverted = inverted - torch.diag(inverted.diagonal())
    inverted = inverted + torch.diag(1 - inverted.sum(1))
    found = imbalance(law, metropolis_hastings(law, Q))
    return Finding(
        statement=f"The largest |q(a) P(b|a) - q(b) P(a|b)| between {STATES} draws, q their posterior and P "
        "the rule of Metropolis and Hastings; of the inverted ratio it is "
        f"{float(imbalance(law, inverted)):.2g}.",
        value=found,
        range=(0.0, 1.0),
        equals=0.0,
        tolerance=1e-14,
    )


def demo() -> Subject:
    """Chains of a straight line, of known noise."""
    x = torch.linspace(-1, 1, 24, dtype=torch.float64)[:, None]
    y = x[:, 0] + 0.3 * (9 * x[:, 0]).sin()
    batch = Batch((x,), y)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = ChainRegressor(lambda: nn.Linear(1, 1).double(), draws=40, learn="none")
    fit(State({"model": model}), lambda _: batch, hamiltonian_sampling(120, leapfrog_steps=5), max_steps=120)
    return Subject(model=model.eval(), test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))
