r"""Mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019): training on two examples mixed into one.

.. math:: \ell = \lambda\, l(\tilde x, y) + (1 - \lambda)\, l(\tilde x, y'), \qquad \lambda \sim
    \mathrm{Beta}(\alpha, \alpha)

Mixup takes x~ = lambda x + (1 - lambda) x'; CutMix pastes a box of x' into x, and lambda is the share of
x that is left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Objective
from margin.engine.evaluation import expand_weight
from margin.engine.loop import Risk

Kind = Literal["mixup", "cutmix"]


def mixed(objective: Objective, kind: Kind, alpha: float = 1.0) -> Objective:
    """The objective at examples of a batch mixed with others of the same batch.

    One lambda is drawn a batch, partners by a permutation of the examples of weight > 0; a filler of weight 0
    is nobody's partner. The loss of a pair counts by the weights of its two examples, lambda w and
    (1 - lambda) w', whose sum over the batch is that of the weights. In evaluation mode nothing is mixed.

    The model is asked once where the objective is a task's loss of its outputs, else once for y and once
    for y'.

    Args:
        objective: The loss of each term.
        kind: mixup or cutmix.
        alpha: Both parameters of the Beta distribution, > 0; 1 is uniform, near 0 nearly nothing is mixed.

    Raises:
        ValueError: An option is out of range; later, inputs are not real or no images, or a weight is not
            that of a whole example.

    Reference: Zhang, Cisse, Dauphin and Lopez-Paz 2018, "mixup", Eq. 1; Yun et al. 2019, "CutMix", Eq. 1-2.
    """
    if kind not in ("mixup", "cutmix"):
        raise ValueError(f"kind must be mixup or cutmix: got {kind!r}")
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive and finite: got {alpha}")
    return Mixed(objective, kind, alpha)


@dataclass(frozen=True, slots=True)
class Mixed:
    """What :func:`mixed` makes: an objective whose examples are mixed while the model trains."""

    objective: Objective
    kind: Kind
    alpha: float

    def __call__(self, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        """The loss of each pair."""
        if not model.training:
            return self.objective(model, batch, generator)
        check_mixable(batch, self.kind)
        lam = beta(self.alpha, generator)
        partner = partners(batch, generator)
        if self.kind == "mixup":
            inputs = tuple(interpolated(x, x[partner], lam) for x in batch.inputs)
        else:
            box = box_of(batch.inputs[0].shape[2:], lam, generator)
            inputs, lam = (pasted(batch.inputs[0], batch.inputs[0][partner], box),), box.rest
        own, other = self._losses(model, batch._replace(inputs=inputs), partner, generator)
        ratio = torch.ones(len(partner)) if batch.weight is None else _ratio(batch.weight, partner)
        return lam * own + (1 - lam) * expand_weight(other, ratio.to(other)) * other

    def _losses(
        self, model: nn.Module, batch: Batch, partner: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """The losses at the mixed inputs, to the examples' own targets and to their partners'."""
        if batch.targets is None:
            raise ValueError("mixing needs targets, and the data have none")
        others = batch.targets[partner]
        if isinstance(self.objective, Risk) and (loss := self.objective.task.loss) is not None:
            outputs = model(*batch.inputs)
            return loss(outputs, batch.targets), loss(outputs, others)
        own = self.objective(model, batch, generator)
        return own, self.objective(model, batch._replace(targets=others), generator)


def check_mixable(batch: Batch, kind: Kind) -> None:
    """Refuse inputs that cannot be mixed, and weights of less than an example.

    Raises:
        ValueError: Inputs are not real, CutMix is handed no image, or a weight has more axes than one.
    """
    odd = [str(x.dtype) for x in batch.inputs if not x.is_floating_point()]
    if odd:
        raise ValueError(f"{kind} needs real inputs: got {odd[0]}")
    if kind == "cutmix" and (len(batch.inputs) != 1 or batch.inputs[0].ndim != 4):
        shapes = ", ".join(str(tuple(x.shape)) for x in batch.inputs)
        raise ValueError(f"cutmix needs one image an example, (batch, channels, height, width): got {shapes}")
    if batch.weight is not None and batch.weight.ndim != 1:
        raise ValueError(f"{kind} needs one weight an example: got shape {tuple(batch.weight.shape)}")


def beta(alpha: float, generator: Generator) -> float:
    """A draw from Beta(alpha, alpha); torch's own takes no generator."""
    seed = torch.randint(2**62, (), generator=generator, device=generator.device).item()
    return float(np.random.default_rng(int(seed)).beta(alpha, alpha))


def partners(batch: Batch, generator: Generator) -> Tensor:
    """The index of each example's partner: a permutation that leaves examples of weight 0 alone."""
    x = batch.inputs[0]
    index = torch.arange(len(x), device=x.device)
    real = index if batch.weight is None else (batch.weight != 0).nonzero()[:, 0]
    order = torch.randperm(len(real), generator=generator, device=generator.device).to(x.device)
    return index.scatter(0, real, real[order])


def interpolated(x: Tensor, other: Tensor, lam: float) -> Tensor:
    """The mixture lam x + (1 - lam) x' (Zhang et al. 2018, Eq. 1)."""
    return lam * x + (1 - lam) * other


@dataclass(frozen=True, slots=True)
class Box:
    """A box of pixels of an image of ``size``, rows [top, bottom) and columns [left, right)."""

    top: int
    bottom: int
    left: int
    right: int
    size: tuple[int, int]

    @property
    def rest(self) -> float:
        """The share of the image's pixels outside of the box."""
        area = (self.bottom - self.top) * (self.right - self.left)
        return 1 - area / (self.size[0] * self.size[1])


def box_of(size: Sequence[int], lam: float, generator: Generator) -> Box:
    """A box of sqrt(1 - lam) of each side around a uniform pixel, cut off at the border.

    Reference: Yun et al. 2019, Eq. 2.
    """
    height, width = size
    ends = []
    for side in size:
        cut = round(side * math.sqrt(1 - lam))
        start = int(torch.randint(side, (), generator=generator, device=generator.device)) - cut // 2
        ends.append((max(start, 0), min(start + cut, side)))
    return Box(*ends[0], *ends[1], size=(height, width))


def pasted(
    x: Float[Tensor, "batch channels height width"],
    other: Float[Tensor, "batch channels height width"],
    box: Box,
) -> Float[Tensor, "batch channels height width"]:
    """Images with the box of x' pasted in, at the same place (Yun et al. 2019, Eq. 1)."""
    made, rows, columns = x.clone(), slice(box.top, box.bottom), slice(box.left, box.right)
    made[:, :, rows, columns] = other[:, :, rows, columns]
    return made


def _ratio(weight: Tensor, partner: Tensor) -> Tensor:
    """The ratio w' / w of each example and its partner, 1 where w is 0."""
    return torch.where(weight == 0, 1, weight[partner] / weight)
