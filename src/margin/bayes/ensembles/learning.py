"""How ensembles learn: members side by side on their own losses, Gaussian laws by their likelihood.

Two outputs of a network state a Gaussian law (Nix and Weigend 1994); each component of a mixture is trained
by its own likelihood, members of an ensemble or dropout masks.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.bayes.ensembles.deep_ensemble import each
from margin.core.types import Batch, Metrics, Objective
from margin.engine.evaluation import weighted_mean
from margin.engine.loop import GradientUpdate, State, Step, descent
from margin.math.probability.mixtures import Mixture, law_of
from margin.nn.preprocessed import core_of, features_of


def negative_log_likelihood(
    law: Mixture, targets: Float[Tensor, " batch"]
) -> Float[Tensor, "components batch"]:
    """-log N(y; m, v) of each component by itself, in nats: not that of the mixture."""
    return ((targets - law.means).square() / law.variances + law.variances.log() + math.log(2 * math.pi)) / 2


def likelihood(descend: GradientUpdate) -> Step:
    """One optimizer step on the mean over components of the negative log-likelihood.

    It reports as its loss the squared error of the mixture's mean, as an evaluation does, and the
    log-likelihood, both of the batch before the step.
    """

    def step(state: State, batch: Batch) -> Metrics:
        if batch.targets is None:
            raise ValueError("a model of values needs targets: the data have none")
        core: Any = state.core
        outcome: Any = getattr(state.model, "outcome", None)
        targets = batch.targets if outcome is None else outcome.inverse(batch.targets)
        x, members = state.features(batch), getattr(core, "members", None)
        law = law_of(core.components(x) if members is None else each(members, x))
        losses = negative_log_likelihood(law, targets).mean(0)
        errors = weighted_mean((law.mean - targets).square().detach(), batch.weight)
        found = weighted_mean(losses, batch.weight)
        return descend(state, found) | {"loss": errors, "log_likelihood": -found.detach()}

    return step


class Apart(nn.Module):
    """The members as one module whose batch is that of every member, one after another.

    Args:
        model: The ensemble, behind its preprocessing.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Each member's outputs for its own part of the batch."""
        members = core_of(self.model).members
        features = features_of(self.model, x).unflatten(0, (len(members), -1))
        return each(members, features, own=True).flatten(0, 1)


def side_by_side(objective: Objective, descend: GradientUpdate) -> Step:
    """One optimizer step of every member on the batch: descent on the mean of their losses.

    The objective sees the batch once for each member: what it draws (a mix, an attack) is each one's own.
    """
    apart = lru_cache(1)(Apart)  # of the model that is trained, not of each step

    def own(model: nn.Module, batch: Batch, generator: torch.Generator) -> Tensor:
        return objective(apart(model), batch, generator)

    inner = descent(own, descend)

    def step(state: State, batch: Batch) -> Metrics:
        times = len(core_of(state.model).members)

        def again(tensor: Tensor) -> Tensor:
            return tensor.repeat(times, *[1] * (tensor.ndim - 1))

        targets = None if batch.targets is None else again(batch.targets)
        weight = None if batch.weight is None else again(batch.weight)
        return inner(state, Batch((again(batch.inputs[0]),), targets, weight))

    return step
