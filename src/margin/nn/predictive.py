"""The law of a new value that a model states: its core's ``predictive``, in the user's units.

A posterior, an ensemble or a Gaussian process answers with a mean as any model of real values does, and
states besides the law of each value, as a mixture of Gaussians.
"""

from typing import Any

from torch import Tensor, nn

from margin.math.probability.mixtures import Mixture
from margin.nn.preprocessed import Preprocessed, core_of, features_of


def states_law(model: nn.Module) -> bool:
    """Whether a model of real values states the law of each, and not its mean alone."""
    return callable(getattr(core_of(model), "predictive", None))


def predictive_of(model: nn.Module, x: Tensor) -> Mixture:
    """The law of a new value at each input, both in the user's units.

    Args:
        model: One that :func:`states_law`.
        x: Inputs.
    """
    law: Mixture = core_of(model).predictive(features_of(model, x))
    outcome: Any = model.outcome if isinstance(model, Preprocessed) else None
    if outcome is None:
        return law
    scale = 1 / outcome.std.double()  # the outcome is (z - mean) / std of the model's z
    return law.moved(-outcome.mean.double() * scale, scale)
