"""Questions to any network of images, a user's own too: what a shift changes, what it sees, what it looks at.

Convolution commutes with shifts, networks of convolutions do not: padding, stride and pooling break it (Zhang
2019; Azulay and Weiss 2019). What the middle of a map sees, what the first filters are, which pixels move the
class score (Simonyan, Vedaldi and Zisserman 2013) is measured, with its error; nothing is promised.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject, has_real_input, odd_parameter
from margin.core.tasks import CLASSES
from margin.core.types import Batch, unseen
from margin.engine.evaluation import capture, drawn_rows, eval_mode
from margin.engine.loop import risk
from margin.figures.digits import exact
from margin.theory.prediction.held_out import independent_draws
from margin.theory.prediction.risk import clopper_pearson
from margin.vision.algebra.fields import Map, extent, followed, measured_support, not_finite

EXAMPLES = 256
"""Images that are moved."""

FEW = 64
"""Images of which feature maps and gradients are asked."""

AT_ONCE = 1 << 18
"""Places of images that are asked at once, channels not counted."""

SHIFTS = 4
"""Pixels at most by which an image is moved."""

SHOWN, SIDE = 6, 48
"""Pictures of a finding, and pixels at most of their longer side."""

FAR = 6e-5
"""Chance that the verdict's interval of a share misses: that of four standard errors."""


def has_images(subject: Subject) -> bool:
    """Whether an example is one image of one to four channels."""
    if subject.lacks or not has_real_input(subject):
        return False
    shape = subject.test[0].inputs[0].shape
    return len(shape) == 4 and shape[1] <= 4 and min(shape[2:]) > 2 * SHIFTS - 1


def is_judged(subject: Subject) -> bool:
    """Whether outputs have a loss: what has none, as a bound over a chain, makes a map many times."""
    return subject.task.loss is not None


def has_classes(subject: Subject) -> bool:
    """Whether the model has a score for each class of an image."""
    return subject.task.classes is not None


def _few(subject: Subject, count: int) -> list[Tensor]:
    """Images, at most so many, drawn at random; at once so many that what is made of them is not large."""
    drawn = drawn_rows(subject.test, subject.at_most(count) or count)
    images = [batch.inputs[0] for batch in drawn.batches]
    size = max(1, AT_ONCE // math.prod(images[0].shape[2:]))
    return [part for x in images for part in x.split(size)]


def moved(x: Float[Tensor, "batch channels height width"], down: int, right: int) -> Tensor:
    """Images moved by whole pixels; what comes in is the edge repeated.

    Args:
        x: Images.
        down: Pixels downwards, at most the height.
        right: Pixels to the right.
    """
    around = (max(right, 0), max(-right, 0), max(down, 0), max(-down, 0))
    padded = F.pad(x, around, mode="replicate")
    top, left = around[3], around[1]
    return padded[:, :, top : top + x.shape[2], left : left + x.shape[3]]


@torch.no_grad()
def shifted_classes(subject: Subject) -> Finding:
    """The share of held-out images that get another class when they are moved by one pixel."""
    classes = subject.task.classes
    if classes is None:
        raise NotAsked("the model has no class scores")
    changed: list[list[Tensor]] = [[] for _ in range(SHIFTS)]
    with eval_mode(subject.model):
        for x in _few(subject, EXAMPLES):
            before = classes(subject.model(x)).argmax(-1)
            if before.ndim != 1:
                raise NotAsked("an image has several classes at once")
            for size, seen in enumerate(changed, 1):
                ways = ((size, 0), (-size, 0), (0, size), (0, -size))
                off = [classes(subject.model(moved(x, *way))).argmax(-1) != before for way in ways]
                seen.append(torch.stack(off).any(0).cpu())
    counts = [int(torch.cat(seen).sum()) for seen in changed]
    count = sum(len(part) for part in changed[0])
    ends = [clopper_pearson(counts[0], count, level=level) for level in (1 - FAR, 0.95)]
    wide, narrow = (tuple(torch.tensor(end, dtype=torch.float64) for end in pair) for pair in ends)
    return Finding(
        statement=f"The share of {count:,} held-out images that are classified otherwise when they are moved "
        "by one pixel up, down, left or right, in one of these directions at least; by "
        f"{SHIFTS} pixels {counts[-1] / count:.1%}.",
        value=torch.tensor(counts[0] / count, dtype=torch.float64),
        range=(0.0, 1.0),
        kind="estimate",
        interval=(wide[0], wide[1]),
        printed=(narrow[0], narrow[1]),
        premises=(independent_draws(subject),),
        failure=odd_parameter(subject.model),
        curves={
            "pixels": torch.arange(1, SHIFTS + 1).double(),
            "share that changes": torch.tensor(counts, dtype=torch.float64) / count,
            "shorter side": torch.tensor([float(min(subject.test[0].inputs[0].shape[2:]))]),
        },
    )


def map_gap(before: Tensor, after: Tensor, steps: float, axis: int) -> Float[Tensor, " batch"]:
    r"""How far a map of the moved image is from the moved map, for each image; the least over whole steps.

    .. math:: \min_k \frac{\|f(S_d x)[k:] - f(x)[:-k]\|}{\|f(x) - \bar f(x)\|}

    where both have places, k the whole numbers about d over the map's step; the mean is each channel's.

    Args:
        before: f(x).
        after: f(S_d x).
        steps: d over the map's step.
        axis: 2 down, 3 right.
    """
    size = before.shape[axis]
    gaps = []
    for k in {math.floor(steps), math.ceil(steps)}:
        if k < size:
            one, other = after.narrow(axis, k, size - k), before.narrow(axis, 0, size - k)
            centered = other - other.mean((2, 3), keepdim=True)
            scale = centered.flatten(1).norm(dim=1)
            gap = (one - other).flatten(1).norm(dim=1)
            gaps.append(torch.where(scale == 0, gap.sign(), gap / torch.where(scale == 0, 1.0, scale)))
    if not gaps:
        return before.new_full((len(before),), math.nan)
    return torch.stack(gaps).amin(0)


class ShiftErrors(NamedTuple):
    """Shift-equivariance errors of a model's feature maps, by layer, by 1, 2, .. pixels and by image.

    Args:
        layers: The layers whose maps they are, by name.
        steps: Pixels from a place of each map to the next, down and right.
        errors: Means over both axes, of shape (layers, shifts, images).
    """

    layers: list[str]
    steps: list[tuple[float, float]]
    errors: Float[Tensor, "layers shifts images"]


@torch.no_grad()
def shift_errors(model: nn.Module, x: Float[Tensor, "batch channels height width"]) -> ShiftErrors:
    """How far the maps of images moved around a circle are from the moved maps, see :func:`map_gap`.

    Args:
        model: In evaluation mode.
        x: Images.

    Raises:
        NotAsked: No map is known to move with the image.
    """
    with followed(model, x) as maps:
        model(x)
    kept = [one for one in maps if known_step(one)]
    if not kept:
        raise NotAsked("no feature map is made of the image by windows, sums and functions of one place")
    steps = [(float(one.fields[0].step or 1), float(one.fields[1].step or 1)) for one in kept]
    errors = torch.zeros(len(kept), SHIFTS, len(x), dtype=torch.float64)
    for d in range(1, SHIFTS + 1):
        for axis in (2, 3):
            rolled = x.roll(d, axis)
            with followed(model, rolled) as others:
                model(rolled)
            later = {one.layer: one.output for one in others}
            for i, one in enumerate(kept):
                gap = map_gap(one.output, later[one.layer], d / steps[i][axis - 2], axis)
                errors[i, d - 1] += gap.double().cpu() / 2
    return ShiftErrors([one.layer for one in kept], steps, errors)


def shifted_maps(subject: Subject) -> Finding:
    """Shift-equivariance error of each convolution's and pooling's map, by the pixels that an image is moved.

    The image is moved around a circle. At a shift that is a whole number of the map's steps only padding can
    break equivariance, in between the stride as well.
    """
    with eval_mode(subject.model):
        parts = [shift_errors(subject.model, x) for x in _few(subject, FEW)]
    names, steps = parts[0].layers, parts[0].steps
    table = torch.cat([part.errors for part in parts], 2)
    seen = table[:, :, table.isfinite().all(0).all(0)]
    count = seen.shape[2]
    spread = seen[:, 0].std(1) / math.sqrt(count) if count > 1 else seen[:, 0].sum(1) * math.nan
    sums = seen.mean(2)
    return Finding(
        statement="Shift-equivariance error of each feature map: how far the map of an image moved by one "
        "pixel is from the moved map, in parts of the map's own spread over its places; the mean over "
        f"{count:,} held-out images and both axes.",
        value=sums[:, 0],
        range=(0.0, math.inf),
        kind="estimate",
        stderr=spread,
        premises=(independent_draws(subject),),
        failure="" if count > 1 else "fewer than two images whose maps are numbers",
        labels=tuple(f"{name}, step {step[0]:g}" for name, step in zip(names, steps, strict=True)),
        curves={
            "pixels": torch.arange(1, SHIFTS + 1).double(),
            **{f"after {name}": row for name, row in zip(names, sums, strict=True)},
        },
    )


def known_step(one: Map) -> bool:
    """Whether it is known how far a map moves with the image, and it has more than one place."""
    return all(field.step is not None for field in one.fields) and min(one.output.shape[2:]) > 1


def receptive_field(subject: Subject) -> Finding:
    """How many pixels the middle of each map depends on, by derivatives on held-out images."""
    x = _few(subject, 4)[0][:4]
    with eval_mode(subject.model):
        support = measured_support(subject.model, x, generator=Generator().manual_seed(0))
        with torch.no_grad(), followed(subject.model, x) as maps:
            subject.model(x)
    if not support:
        raise NotAsked("no convolution or pooling of the image is called as a layer of its own")
    sizes = [extent(found) for found in support.values()]
    bounds = {one.layer: max(field.size for field in one.fields) for one in maps}
    last = list(support)[-1]
    allowed = bounds[last]
    windows = (
        "its layers may see all of it" if math.isinf(allowed) else f"its windows allow {math.ceil(allowed)}"
    )
    return Finding(
        statement="Receptive field: height or width, the larger, of the pixels that the middle of each map "
        f"depends on, of images of {x.shape[2]} x {x.shape[3]}; of the last map {windows}.",
        value=torch.tensor([max(size) for size in sizes]),
        unit="pixels",
        range=(0.0, math.inf),
        labels=tuple(support),
        failure=not_finite(support.values()),
        curves={f"dependence of the middle of {last}": shown(support[last][None])[0]},
    )


def shown(image: Float[Tensor, "channels height width"]) -> Float[Tensor, "channels rows columns"]:
    """A picture of at most :data:`SIDE` pixels on its longer side, averaged down; in float64 on the CPU."""
    image = image.detach().cpu().double()
    scale = SIDE / max(image.shape[1:])
    if scale >= 1:
        return image
    size = [max(1, round(side * scale)) for side in image.shape[1:]]
    return F.interpolate(image[None], size=size, mode="area")[0]


def roughness(filters: Float[Tensor, "filters channels height width"]) -> Float[Tensor, " filters"]:
    """The share of each filter's power beyond a quarter of a cycle a pixel; of white noise .804.

    Args:
        filters: Weights; padded with zeros to a fine grid of frequencies.
    """
    side = 32
    power = torch.fft.fft2(filters.double(), (side, side)).abs().square().sum(1)
    f = torch.fft.fftfreq(side, dtype=torch.float64, device=filters.device)
    high = (f[:, None].square() + f.square()).sqrt() > 0.25
    whole = power.sum((1, 2))
    return (power * high).sum((1, 2)) / torch.where(whole > 0, whole, 1.0)


def rough_power(filters: Float[Tensor, "filters channels height width"]) -> Float[Tensor, ""]:
    """The share of the power of all filters beyond a quarter of a cycle a pixel."""
    energy = filters.double().flatten(1).square().sum(1)
    return (roughness(filters) * energy).sum() / energy.sum()


def first_convolution(model: nn.Module, x: Tensor) -> tuple[str, nn.Conv2d, Tensor]:
    """The convolution of more than one place that runs first, by name, and its output.

    Raises:
        NotAsked: There is none.
    """
    names = {
        m: name for name, m in model.named_modules() if isinstance(m, nn.Conv2d) and max(m.kernel_size) > 1
    }
    with torch.no_grad(), capture(names) as calls:
        model(x)
    for call in calls:
        if isinstance(call.module, nn.Conv2d) and isinstance(call.output, Tensor) and not unseen(call.output):
            return names[call.module], call.module, call.output
    raise NotAsked("no convolution of more than one place is called as a layer of its own")


def first_filters(subject: Subject) -> Finding:
    """How much of the power of the first convolution's filters is of high frequency: of noise most of it is.

    A filter responds most to an image that is the filter itself. Those of a network that has learned are
    smooth edges and blobs; noise that is left says that it was not trained long enough, or regularized.
    """
    x = _few(subject, 1)[0][:1]
    with eval_mode(subject.model):
        name, layer, response = first_convolution(subject.model, x)
    filters = layer.weight.detach().cpu()
    began = ""
    if subject.initial is not None:
        first = dict(subject.initial.named_modules()).get(name)
        if isinstance(first, nn.Conv2d) and first.weight.shape == layer.weight.shape:
            start = float(rough_power(first.weight.detach().cpu()))
            began = f" (when training began: {exact(round(start, 3))})"
    energy = filters.double().flatten(1).square().sum(1)
    loudest = energy.argsort(descending=True)[:SHOWN].tolist()
    channels = filters.shape[1]
    curves = {f"filter {i}": shown(filters[i]) for i in loudest}
    curves |= {f"response of filter {i}": shown(response[0, i : i + 1]) for i in loudest}
    return Finding(
        statement=f"The share of the power of the {len(filters):,} first filters, of {name!r}, that is "
        f"beyond a quarter of a cycle a pixel{began}; of white noise .804.",
        value=rough_power(filters),
        range=(0.0, 1.0),
        failure="" if 0 < float(energy.sum()) < math.inf else "the filters are all 0, or not all are finite",
        curves={"image": shown(x[0]), **curves} if channels <= 4 else {},
    )


def saliency(subject: Subject) -> Finding:
    """How few pixels hold half of the saliency: the derivative of the predicted class's score by pixels."""
    classes = subject.task.classes
    if classes is None:
        raise NotAsked("the model has no class scores")
    shares, pictures, curves, finite = [], 0, {}, True
    with eval_mode(subject.model), torch.enable_grad():
        for x in _few(subject, FEW):
            x = x.detach().clone().requires_grad_()
            scores = classes(subject.model(x))
            if scores.ndim != 2:
                raise NotAsked("an image has several classes at once")
            if not scores.requires_grad:
                raise NotAsked("its scores have no derivative by its inputs")
            (gradient,) = torch.autograd.grad(scores.amax(1).sum(), x)
            maps = gradient.abs().amax(1)  # over channels, as its authors do
            finite &= bool(maps.isfinite().all())
            shares.append(concentration(maps.square().flatten(1)).cpu())
            for i in range(min(SHOWN // 2 - pictures, len(x))):
                curves[f"image {pictures + i + 1}"] = shown(x[i])
                curves[f"saliency {pictures + i + 1}"] = shown(maps[i : i + 1])
            pictures = min(SHOWN // 2, pictures + len(x))
    found = torch.cat(shares)
    kept = found[found.isfinite()]
    if not len(kept) and finite:
        raise NotAsked("no pixel moves the score of the predicted class of an image")
    few = len(kept) < 2
    nothing = torch.tensor(math.nan, dtype=torch.float64)
    return Finding(
        statement="The share of an image's pixels that hold half of its saliency, which is the squared "
        f"derivative of the predicted class's score: the mean over {len(found):,} held-out images. Of even "
        "saliency it is .5, of one pixel alone next to 0.",
        value=nothing if few else kept.mean(),
        range=(0.0, 1.0),
        kind="estimate",
        stderr=nothing if few else kept.std() / math.sqrt(len(kept)),
        premises=(independent_draws(subject),),
        failure="" if finite and not few else "fewer than two images have a finite derivative that is not 0",
        curves=curves,
    )


def concentration(mass: Float[Tensor, "batch places"]) -> Float[Tensor, " batch"]:
    """The least share of places that holds half of a mass, a part of the last one; NaN where all is 0."""
    shares = mass.double().sort(1, descending=True).values
    total = shares.sum(1, keepdim=True)
    below = (shares.cumsum(1) < total / 2).sum(1, keepdim=True)
    before = torch.where(below > 0, shares.cumsum(1).gather(1, (below - 1).clamp_min(0)), 0.0)
    last = shares.gather(1, below.clamp_max(shares.shape[1] - 1))
    return ((below + (total / 2 - before) / last) / shares.shape[1])[:, 0]


def demo() -> Subject:
    """A small network with padding, pooling and a stride, and twelve images of 12 x 12 pixels."""
    return classifying(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 3, padding=1), images=12
    )


def classifying(*layers: nn.Module, images: int = 12, side: int = 12, seed: int = 0) -> Subject:
    """Layers, the mean of each channel as a score, and smooth images, drawn by a seed.

    Args:
        layers: The last gives two channels.
        images: How many.
        side: Height and width.
        seed: Of weights and images.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                layer.reset_parameters()
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    noise = torch.randn(images, 1, side, side, generator=Generator().manual_seed(seed))
    x = F.avg_pool2d(noise, 3, 1, 1)
    return Subject(
        model=model, test=[Batch((x,), torch.arange(images) % 2)], task=CLASSES, objective=risk(CLASSES)
    )
