"""Learning probabilistic PCA (Tipping and Bishop 1999): in closed form, or by EM."""

from typing import Any

import torch
from torch import Tensor

from margin.classic.factors.pca import principal_axes
from margin.classic.factors.ppca import closed_form, em_iteration, mean_log_likelihood, most_likely
from margin.classic.linear.rows import covariance, rows_of
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step


def maximum_likelihood() -> Step:
    """One exact solve on the batch: the model of largest likelihood, in closed form."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, _, weight = rows_of(state, batch, learner="probabilistic PCA", targets=False)
        model: Any = state.core
        mean, axes, spectrum = principal_axes(x, model.loadings.shape[1], weight)
        W, noise = closed_form(axes, spectrum)
        _write(model, mean, W, noise)
        return {"loss": -most_likely(spectrum, len(axes)), "noise_variance": noise}

    return step


def expectation_maximization(*, iterations: int = 100) -> Step:
    """Iterations of EM on the batch's covariance, from the model as it stands.

    Args:
        iterations: Iterations a step, at least 1; ``gain`` is what they add to the mean log-likelihood.

    Raises:
        ValueError: There is no iteration.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1: got {iterations}")

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, _, weight = rows_of(state, batch, learner="probabilistic PCA", targets=False)
        model: Any = state.core
        mean, S = covariance(x, weight)
        W, noise = model.loadings.double(), model.noise_variance.double()
        before = mean_log_likelihood(S, W, noise)
        for _ in range(iterations):
            W, noise = em_iteration(S, W, noise)
        after = mean_log_likelihood(S, W, noise)
        if not bool(noise > 8 * torch.finfo(S.dtype).eps * S.diagonal().max()):
            raise ValueError(
                "probabilistic PCA needs variance outside of its components, else its likelihood has no "
                f"bound: got none beyond {W.shape[1]}; take fewer"
            )
        _write(model, mean, W, noise)
        return {"loss": -after, "gain": after - before}

    return step


def _write(model: Any, mean: Tensor, W: Tensor, noise: Tensor) -> None:
    for place, value in ((model.mean, mean), (model.loadings, W), (model.noise_variance, noise)):
        place.copy_(value)
