"""Monte-Carlo dropout (Gal and Ghahramani 2016): dropout masks as draws of networks from a posterior.

A mask is drawn once for all examples, as a network is: an example's law is the same whichever others are
asked about. Dropout is found wherever a pass in training mode has it, in layers or as a function; that of
attention draws for each example by itself.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from margin.math.probability.mixtures import LEAST, Mixture, law_of

Builder = Callable[[], nn.Module]
BASE = "feedforward/mlp"
SEED = 0
"""Of the masks of an evaluation: asked twice, a model answers the same."""


def feature_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> None:
    """How torch calls dropout of whole channels."""


DROPOUTS: dict[Any, Any] = {
    F.dropout: F.dropout,
    F.dropout1d: feature_dropout,
    F.dropout2d: feature_dropout,
    F.dropout3d: feature_dropout,
}
"""The functions of torch that drop units, or whole channels, and their signatures."""


@contextmanager
def dropping(net: nn.Module) -> Iterator[None]:
    """All in training mode but batch normalization, whose means stay as they are; then as before."""
    before = {module: module.training for module in net.modules()}
    try:
        for module in before:
            module.training = not isinstance(module, nn.modules.batchnorm._BatchNorm)
        yield
    finally:
        for module, training in before.items():
            module.training = training


class SharedMasks(TorchFunctionMode):
    """A context in which dropout draws one mask for all examples, of the shape of one."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """A dropout with a mask that is shared; every other function as it is."""
        given = kwargs or {}
        if func not in DROPOUTS:
            return func(*args, **given)
        bound = signature(DROPOUTS[func]).bind(*args, **given)
        bound.apply_defaults()
        x, p, training = bound.arguments["input"], bound.arguments["p"], bound.arguments["training"]
        if not training:
            return x
        shape = x.shape[1:2] + (1,) * (x.ndim - 2) if "feature" in DROPOUTS[func].__name__ else x.shape[1:]
        kept = torch.rand(1, *shape, dtype=x.dtype, device=x.device) >= p
        return x * kept / (1 - p)


def masked(net: nn.Module, x: Tensor, samples: int) -> Tensor:
    """The outputs under so many masks, (samples, batch, outputs), each mask the same for every example.

    Raises:
        ValueError: All passes agree: there is no dropout to be found.
    """
    with dropping(net), torch.random.fork_rng([x.device] if x.is_cuda else []):
        torch.manual_seed(SEED)
        with SharedMasks():
            found = torch.stack([net(x) for _ in range(samples)])
    if len(x) and bool((found == found[0]).all()):
        raise ValueError(
            f"Monte-Carlo dropout found no dropout: {samples} passes in training mode agree; give the base a "
            "share to drop, as --model.base-options '{dropout: 0.1}'"
        )
    return found


def check_samples(samples: int) -> None:
    """Refuse a mean over less than two masks.

    Raises:
        ValueError: There are fewer than two.
    """
    if samples < 2:
        raise ValueError(f"samples must be at least 2: got {samples}; one mask has no spread")


class DropoutClassifier(nn.Module):
    """The mean of a network's class probabilities over dropout masks, as its logarithm.

    Args:
        builder: Makes a network from inputs to class logits: the recipe of ``base``.
        num_classes: Number of classes.
        base: Name of the model of the catalog, which predicts classes.
        base_options: Its options; one of them is the share dropped.
        samples: Masks of an evaluation; while training each step draws one for each example.

    Raises:
        ValueError: There are fewer than two masks.

    Reference:
        Gal and Ghahramani 2016, Section 4.
    """

    def __init__(
        self,
        builder: Builder,
        num_classes: int,
        *,
        base: str = BASE,
        base_options: dict[str, Any] = {"dropout": 0.1},  # noqa: B006 - an option's default, never changed
        samples: int = 50,
    ) -> None:
        super().__init__()
        check_samples(samples)
        self.num_classes, self.samples = num_classes, samples
        self.net = builder()

    def forward(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, "batch classes"]:
        """In training mode the logits under one mask, else the logarithm of the mean probabilities."""
        if self.training:
            logits: Tensor = self.net(x)
            return logits
        found = masked(self.net, x, self.samples).log_softmax(-1).logsumexp(0)
        return found.log_softmax(-1)


class DropoutRegressor(nn.Module):
    """The mean over dropout masks of a network's Gaussian laws; the output is the mixture's mean.

    Args:
        builder: Makes a network from inputs to two numbers, mean and variance before its softplus.
        base: Name of the model of the catalog, which predicts classes, here two outputs.
        base_options: Its options; one of them is the share dropped.
        samples: Masks of an evaluation; while training each step draws one for each example.
        noise: Variance of the noise of every value, a share of the variance of the values, where it is known
            (Gal and Ghahramani's 1 / tau); if not given the second output states one for each input.

    Raises:
        ValueError: There are fewer than two masks, or the noise is not positive.

    Reference:
        Gal and Ghahramani 2016, Section 4; Kendall and Gal 2017, Equation 8.
    """

    OUTPUTS = 2

    def __init__(
        self,
        builder: Builder,
        *,
        base: str = BASE,
        base_options: dict[str, Any] = {"dropout": 0.1},  # noqa: B006 - an option's default, never changed
        samples: int = 50,
        noise: float | None = None,
    ) -> None:
        super().__init__()
        check_samples(samples)
        if noise is not None and not LEAST < noise < math.inf:
            raise ValueError(f"noise must be above {LEAST:g} and finite: got {noise}")
        self.samples, self.noise = samples, noise
        self.net = builder()

    def components(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, "samples batch 2"]:
        """Mean and variance before its softplus, under each mask; in training mode under one."""
        found = self.net(x)[None] if self.training else masked(self.net, x, self.samples)
        if self.noise is None:
            return found
        known = math.log(math.expm1(self.noise - LEAST))  # law_of's softplus gives the noise back
        return torch.stack((found[..., 0], torch.full_like(found[..., 0], known)), -1)

    def forward(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, " batch"]:
        """The mean of the laws' means."""
        return law_of(self.components(x)).mean

    @torch.no_grad()
    def predictive(self, x: Float[Tensor, " batch *input"]) -> Mixture:
        """The mixture of the laws under each mask, in float64."""
        law = law_of(self.components(x))
        return Mixture(law.means.double(), law.variances.double())
