"""Claims of vision transformers: what order and place of the patches change, and where the attention goes."""

import math
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import ExampleSample, drawn_rows, eval_mode, hooked, in_double
from margin.engine.loop import risk
from margin.nn.attention import SelfAttention
from margin.nn.preprocessed import core_of, features_of
from margin.vision.transformers.vit import ViT

EXAMPLES = 64
"""Held-out images that are looked at, at most."""

SHOWN = 6
"""Images of a figure."""

ROUNDING = 1e-9
"""In float64, relative to the largest value."""


def vit_of(subject: Subject) -> ViT:
    """The vision transformer under audit.

    Raises:
        ValueError: The model is none.
    """
    core = core_of(subject.model)
    if not isinstance(core, ViT):
        raise ValueError(f"this is asked of a vision transformer: got {type(core).__name__}")
    return core


def images_of(subject: Subject, limit: int = EXAMPLES) -> tuple[Tensor, Tensor, ExampleSample]:
    """Held-out images as they are given and as the model sees them, its borders padded, and the sample."""
    drawn = drawn_rows(subject.test, limit)
    given = torch.cat([batch.inputs[0] for batch in drawn.batches])[:limit]
    return given, vit_of(subject).padded(features_of(subject.model, given)), drawn


def double_of(core: ViT) -> ViT:
    """A copy in float64 and evaluation mode."""
    return cast(ViT, in_double(core))


def without_positions(core: ViT) -> ViT:
    """A copy in float64 to which all places are alike."""
    copy = double_of(core)
    copy.positions = None
    return copy


@torch.no_grad()
def permutation(subject: Subject, *, seed: int = 2021) -> Finding:
    """How far the logits move, in a copy without positions, when the patches come in another order.

    Args:
        subject: A vision transformer; it reads held-out images.
        seed: Of the order, one for all images.
    """
    core = without_positions(vit_of(subject))
    _, x, drawn = images_of(subject)
    with eval_mode(core):
        tokens = core.embed(x.double())
        extra = tokens.shape[1] - math.prod(core.grid_of((x.shape[2], x.shape[3])))
        order = torch.randperm(tokens.shape[1] - extra, generator=Generator().manual_seed(seed))
        moved = torch.cat((tokens[:, :extra], tokens[:, extra:][:, order]), 1)
        one, other = core.read(tokens), core.read(moved)
    gap = (one - other).abs().amax(1) / one.abs().amax().clamp(min=torch.finfo(one.dtype).tiny)
    return Finding(
        statement="Without positions the order of the patches plays no part: logits after a permutation, "
        f"relative to the largest, on {drawn.words()}, in a copy whose positions are left out.",
        value=gap.cpu(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
    )


def shift_errors(core: ViT, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "depth batch"]:
    """How far tokens are from being shifted along with the image, at each depth, in parts of their size.

    The image is shifted cyclically to the right by one patch, and what follows from it is compared with what
    follows from the image, shifted by one place: after the map of patches, which is a convolution, with
    positions, and after each block.

    Args:
        core: In evaluation mode.
        x: Images of whole patches, in the model's units.
    """
    rows, columns = core.grid_of((x.shape[2], x.shape[3]))
    pair = torch.cat((x, x.roll(core.patch[1], 3)))
    stages = [core.patches(pair).flatten(2).transpose(1, 2), core.embed(pair)]
    for block in core.blocks:
        stages.append(block(stages[-1]))
    errors = []
    for stage in stages:
        grid = stage[:, stage.shape[1] - rows * columns :].unflatten(1, (rows, columns))
        first, shifted = grid.chunk(2)
        apart = (shifted - first.roll(1, 2)).flatten(1).norm(dim=1)
        errors.append(apart / first.flatten(1).norm(dim=1).clamp(min=torch.finfo(x.dtype).tiny))
    return torch.stack(errors)


@torch.no_grad()
def shift(subject: Subject) -> Finding:
    """How far the tokens of a shifted image are from the shifted tokens of the image, depth by depth.

    Args:
        subject: A vision transformer; it reads held-out images.
    """
    core = double_of(vit_of(subject))
    _, x, drawn = images_of(subject)
    with eval_mode(core):
        errors = shift_errors(core, x.double()).cpu()
    spread = errors.std(1) / math.sqrt(errors.shape[1]) if errors.shape[1] > 1 else torch.zeros(len(errors))
    return Finding(
        statement="Tokens of an image that is shifted cyclically by one patch, against the shifted tokens of "
        f"the image, in parts of their size, on {drawn.words()}. The map of patches is a convolution, and "
        "shifts along; positions and what reads them do not.",
        value=errors.mean(1),
        stderr=spread.double(),
        kind="estimate",
        range=(0.0, math.inf),
        labels=("patches", "with positions", *(f"block {k + 1}" for k in range(len(core.blocks)))),
    )


def rollout(
    core: ViT, x: Float[Tensor, "batch channels height width"]
) -> Float[Tensor, "batch rows columns"]:
    r"""Attention rollout: how much of what the logits read comes from each patch, if values were only mixed.

    .. math:: R_l = \tfrac12 (I + \bar A_l)\, R_{l-1}, \qquad R_0 = I

    with the mean over heads of the weights of block l; the row of the class token, or the mean of all rows,
    over the patches, whose sum is brought to 1.

    Args:
        core: In evaluation mode.
        x: Images of whole patches, in the model's units.

    Reference: Abnar and Zuidema 2020, Section 3, Equation 1.
    """
    layers = [module for module in core.modules() if isinstance(module, SelfAttention)]
    mixed: list[Tensor] = []

    def collect(layer: nn.Module, args: tuple[Any, ...]) -> None:
        if isinstance(layer, SelfAttention):
            weights = layer.weights(*args[:2]).mean(1)
            half = (weights + torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)) / 2
            mixed.append(half if not mixed else half @ mixed.pop())

    with hooked(layers, lambda call: None, collect):
        core(x)
    rows, columns = core.grid_of((x.shape[2], x.shape[3]))
    reached = mixed[0][:, 0] if core.pool == "class" else mixed[0].mean(1)
    patches = reached[:, reached.shape[1] - rows * columns :]
    return (patches / patches.sum(1, keepdim=True)).unflatten(1, (rows, columns))


@torch.no_grad()
def attention(subject: Subject) -> Finding:
    """Over what share of an image's patches the attention is spread, by attention rollout.

    Args:
        subject: A vision transformer; it reads held-out images.
    """
    core = vit_of(subject)
    given, x, drawn = images_of(subject)
    with eval_mode(core):
        maps = rollout(core, x).double()
    share = torch.special.entr(maps).sum((1, 2)).exp() / maps[0].numel()
    spread = share.std() / math.sqrt(len(share)) if len(share) > 1 else share.new_zeros(())
    return Finding(
        statement="Share of the patches over which attention rollout is spread (the exponential of its "
        f"entropy over their number, mean of {drawn.words()}): 1 where all patches count alike. Rollout "
        "follows attention weights and residual paths alone: it says what may be read, not what decides.",
        value=share.mean().cpu(),
        stderr=spread.cpu(),
        kind="estimate",
        range=(0.0, 1.0),
        curves={"images": given[:SHOWN].cpu(), "attention": maps[:SHOWN].cpu()},
    )


def demo() -> Subject:
    """A small vision transformer as it begins, and eight images of two channels."""
    generator = Generator().manual_seed(0)
    x, y = torch.rand(8, 2, 8, 8, generator=generator), torch.arange(8) % 3
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = ViT(2, (8, 8), 3, patch=2, width=12, depth=2, heads=3)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
    return Subject(model=model.eval(), test=(Batch((x,), y),), task=CLASSES, objective=risk(CLASSES))
