r"""The Square attack: random search that reads scores alone (Andriushchenko, Croce, Flammarion & Hein, 2020).

A proposal changes a random square of the image, to a corner of the l-infinity cube, or by moving the mass of
the displacement from one window of the image to another in the l2 ball; it is kept where the loss does not
fall. The squares shrink: their share of the image, p, is halved after 10, 50, 200, 500, 1000, 2000, 4000,
6000 and 8000 of 10,000 queries. Of inputs that are no images, and in the l1 ball, the same share of the
coordinates is drawn one by one.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Objective
from margin.engine.evaluation import eval_mode, rows_of
from margin.robust.attacks.gradient import Attack, Goal, loss_of_input, moved_input, reached, unmoved
from margin.robust.attacks.threat_models import Threat, wide

SHARE = 0.8
"""Share p of the image that the first squares have, as in AutoAttack; the paper's is .05 on ImageNet."""

HALVED = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Queries of 10,000 after which the share is halved."""

TILES = 5
"""Tiles along a side of the image that the l2 attack begins with."""


def share_at(query: int, queries: int, share: float = SHARE) -> float:
    """The share p of the image at a query, by the schedule of 10,000 queries stretched over ``queries``."""
    place = int(query / queries * 10_000)
    return share / 2.0 ** sum(place > end for end in HALVED)


# Eight parameters: those of every attack, and the share.
@torch.no_grad()
def square(
    model: nn.Module,
    batch: Batch,
    objective: Objective,
    threat: Threat,
    generator: Generator,
    *,
    queries: int = 5000,
    share: float = SHARE,
    goal: Goal | None = None,
) -> Attack:
    """The point of largest loss met by random proposals, each kept where the loss does not fall.

    It begins at vertical stripes of +-eps, or at tiles of bumps of Euclidean length eps. An example whose
    goal is reached leaves the batch. With eps = 0 the inputs are x bit for bit.

    Args:
        model: Asked in evaluation mode; no gradient is read.
        batch: One real input, with the targets that the objective reads.
        objective: The loss of each term; the terms of an example are summed.
        threat: The ball and the domain.
        generator: Draws the proposals.
        queries: How often each example is asked for, >= 1.
        share: Share p of the image that the first squares have, in (0, 1].
        goal: When the adversary has won; None never.

    Returns:
        The attacked inputs, their loss, and which of them reach the goal.

    Raises:
        ValueError: An option is out of range, the batch has not one real input, or an input lies outside the
            domain.
        NonFiniteError: A loss is NaN.

    Reference: Andriushchenko, Croce, Flammarion & Hein (2020), "Square attack: a query-efficient black-box
    adversarial attack via random search", Algorithms 1 to 3. A proposal of equal loss is kept too: where
    scores are quantized the walk would stand still.
    """
    if queries < 1 or not 0 < share <= 1:
        raise ValueError(f"queries must be at least 1, share in (0, 1]: got queries={queries}, share={share}")
    x = moved_input(batch)
    threat.check_inputs(x)
    with eval_mode(model):
        best = unmoved(model, batch, objective, threat, generator, goal)
        live = (~best.broken).nonzero().flatten() if threat.eps > 0 else torch.zeros(0, dtype=torch.long)
        part = rows_of(batch, live)
        y, loss, confine = x[live], best.loss[live], threat.around(x[live])
        for query in range(queries if len(live) else 0):
            here = moved_input(part)
            p, done = share_at(query, queries, share), query / queries
            moved = confine(_proposal(y, here, threat, done, p, generator))
            asked = part._replace(inputs=(threat.valid(moved, here),))
            slope = loss_of_input(model, asked, objective, generator)
            broken = reached(model, asked, goal, slope.outputs)
            take = broken | (slope.loss >= loss)
            y, loss = torch.where(wide(take, y), moved, y), torch.where(take, slope.loss, loss)
            if bool(broken.any()) or query == queries - 1:
                best = _told(best, live, threat.valid(y, here), loss, broken)
                left = (~broken).nonzero().flatten()
                live, part, y, loss = live[left], rows_of(part, left), y[left], loss[left]
                confine = confine.at(left)
            if len(live) == 0:
                break
    threat.check(best.inputs, x)
    return best


def _told(best: Attack, live: Tensor, y: Tensor, loss: Tensor, broken: Tensor) -> Attack:
    at = (live,)
    return Attack(
        best.inputs.index_put(at, y),
        best.loss.index_put(at, loss.to(best.loss)),
        best.broken.index_put(at, broken),
    )


# Six parameters: where the walk stands, and how it goes on.
def _proposal(
    y: Tensor, x: Tensor, threat: Threat, done: float, share: float, generator: Generator
) -> Float[Tensor, "batch ..."]:
    """The first point, or one that differs from y in a square; still to be confined to the ball."""
    image = x.ndim >= 4
    if threat.norm == "linf":
        direction = _stripes(x, generator) if done == 0 else _patch(x, share, generator)
        return y + 2 * threat.eps * threat.steepest(direction)
    if threat.norm == "l1" or not image:
        direction = _noise(x, generator) if done == 0 else _patch(x, share, generator)
        return y + threat.eps * (1 - done) * threat.steepest(direction)
    unit = 1.0 if threat.unit is None else threat.unit.to(x).double()
    delta = (y.double() - x.double()) / unit
    flat = delta.reshape(len(x), -1, *x.shape[-2:])
    flat = _tiles(flat, generator) if done == 0 else _moved_mass(flat, threat.eps, share, generator)
    size = flat.flatten(1).norm(dim=1).clamp(min=1e-300)
    return (x.double() + threat.eps * (flat / wide(size, flat)).reshape(x.shape) * unit).to(x)


def _stripes(x: Tensor, generator: Generator) -> Tensor:
    """Signs of vertical stripes, one column wide; of an input that is no image one a coordinate."""
    if x.ndim < 4:
        return _noise(x, generator)
    return _noise(x[..., :1, :], generator).expand(x.shape)


def _noise(x: Tensor, generator: Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)


def _patch(x: Float[Tensor, "batch ..."], share: float, generator: Generator) -> Tensor:
    """A direction of a square of one sign a channel, or of about a share of the coordinates, at least one."""
    if x.ndim >= 4:
        height, width = x.shape[-2:]
        side = min(max(round(math.sqrt(share * height * width)), 1), height, width)
        signs = _noise(x[..., :1, :1], generator).expand(*x.shape[:-2], side, side)
        blank = torch.zeros_like(x).reshape(len(x), -1, height, width)
        return _put(blank, _places(x, side, generator), signs.reshape(len(x), -1, side, side)).reshape(
            x.shape
        )
    flat = torch.rand(len(x), x[0].numel(), generator=generator, dtype=torch.float64)
    chosen = (flat < share) | (flat == flat.amin(1, keepdim=True))
    return _noise(x, generator) * chosen.reshape(x.shape).to(x)


Places = tuple[Tensor, Tensor, Tensor, Tensor]
"""An index of one window for each example: example, channel, row, column."""


def _places(x: Tensor, side: int, generator: Generator) -> Places:
    """A window of each example at a place drawn at random."""
    height, width = x.shape[-2:]
    span, count = torch.arange(side), x[0].numel() // (height * width)
    top = torch.randint(height - side + 1, (len(x), 1), generator=generator) + span
    left = torch.randint(width - side + 1, (len(x), 1), generator=generator) + span
    row, channel = torch.arange(len(x))[:, None, None, None], torch.arange(count)[None, :, None, None]
    index = row, channel, top[:, None, :, None], left[:, None, None, :]
    return tuple(i.to(x.device) for i in index)  # type: ignore[return-value]  # four of them


def _put(image: Tensor, at: Places, value: Tensor) -> Tensor:
    return image.index_put(at, value.to(image))


def bump(side: int) -> Float[Tensor, "side side"]:
    """Two halves of opposite sign, each of nested rectangles of height 1 / k^2, of Euclidean length 1."""
    halves = []
    for rows, sign in ((side // 2, 1.0), (side - side // 2, -1.0)):
        half, center, middle = torch.zeros(rows, side).double(), rows // 2, side // 2
        for k in range(max(center, middle) + 1 if rows else 0):
            half[max(center - k, 0) : center + k + 1, max(middle - k, 0) : middle + k + 1] += 1 / (k + 1) ** 2
        halves.append(sign * half / half.norm().clamp(min=1e-300))
    whole = torch.cat(halves)
    return whole / whole.norm()


def _bumps(count: int, channels: int, side: int, generator: Generator) -> Float[Tensor, "n c side side"]:
    """Bumps, upright or lying, with a random sign for each channel."""
    upright = torch.rand(count, 1, 1, 1, generator=generator) > 0.5
    sign = torch.randn(count, channels, 1, 1, generator=generator, dtype=torch.float64).sign()
    form = bump(side)
    return torch.where(upright, form, form.T) * sign


def _tiles(delta: Float[Tensor, "n c h w"], generator: Generator) -> Tensor:
    """Where the l2 attack begins: bumps in tiles over the whole image."""
    count, channels, height, width = delta.shape
    side, made = max(min(height, width) // TILES, 1), torch.zeros_like(delta)
    for top in range(height % side // 2, height - side + 1, side):
        for left in range(width % side // 2, width - side + 1, side):
            made[..., top : top + side, left : left + side] = _bumps(count, channels, side, generator).to(
                delta
            )
    return made


def _moved_mass(
    delta: Float[Tensor, "n c h w"], eps: float, share: float, generator: Generator
) -> Float[Tensor, "n c h w"]:
    """A displacement that is 0 in one window, whose mass, and what eps leaves over, goes to another."""
    height, width = delta.shape[-2:]
    side = max(round(math.sqrt(share * height * width)), 3)
    side, most = side + 1 - side % 2, min(height, width)
    side = min(side, most - 1 + most % 2)
    into, out_of = _places(delta, side, generator), _places(delta, side, generator)
    both = torch.zeros_like(delta)
    both = _put(_put(both, into, delta.new_ones(())), out_of, delta.new_ones(()))
    held = (delta * both).square().sum((-2, -1), keepdim=True)
    spare = (eps**2 - delta.square().sum((1, 2, 3), keepdim=True)).clamp(min=0) / delta.shape[1]
    window = delta[into]
    window = window / window.square().sum((-2, -1), keepdim=True).sqrt().clamp(min=1e-12)
    new = _bumps(len(delta), delta.shape[1], side, generator).to(delta) + window
    new = new / new.square().sum((-2, -1), keepdim=True).sqrt().clamp(min=1e-12)
    return _put(_put(delta, out_of, delta.new_zeros(())), into, new * (held + spare).sqrt())
