"""Data whose answer is known by construction: solids whose points say of which they are, sums of digits.

And thin lines in noise, whose pixels say whether they are of one.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.data.assembly import cut
from margin.data.examples import Data
from margin.data.formats.images.mask_files import ClassTable
from margin.data.formats.images.mask_pairs import Pairs, Reading
from margin.data.formats.images.masks import look_at, mask_data
from margin.data.formats.points.sets import RawSets, Sets, set_data
from margin.data.options import option_groups
from margin.data.splits import Split
from margin.math.seeds import mix

SOLIDS = ("box", "cylinder", "sphere")
"""The solids, in the order of their labels."""

Digits = Literal["digits", "mnist"]
Pose = Literal["any", "aligned"]


@option_groups()
def solids(
    *,
    examples: int = 600,
    points: int = 256,
    noise: float = 0.0,
    pose: Pose = "any",
    seed: int = 0,
    split: Split = Split(),
) -> Data:
    """Point clouds on the union of a box, a cylinder and a sphere; the class of a point is its solid.

    Sizes, places and turns of the three are drawn; they are pushed apart along a drawn axis and may touch. Of
    a cloud each solid has a third of the points, uniform by area on its surface, up to one. Each cloud is
    centered and scaled to the unit ball.

    Args:
        examples: Number of clouds, at least 3.
        points: Points of each, at least 3.
        noise: Standard deviation of Gaussian noise on each coordinate, before scaling.
        pose: Any turns every solid and every cloud, and pushes the three apart in any order; aligned leaves
            them upright, side by side in one order, as the parts of a shape in its own frame.
        seed: Seed of the shapes.
        split: Test and validation part, seed.

    Returns:
        Clouds (N, M, 3) with a class for each point.

    Raises:
        ValueError: A number is too small.
    """
    if examples < 3 or points < 3 or noise < 0:
        raise ValueError(
            "solids need at least 3 examples of 3 points, and noise of at least 0: "
            f"got examples={examples}, points={points}, noise={noise}"
        )
    clouds, labels = [], []
    for k in range(examples):
        generator = Generator().manual_seed(mix(seed, 21, k))
        cloud, solid = union_of_solids(points, generator, pose)
        clouds.append(cloud + noise * torch.randn(cloud.shape, generator=generator))
        labels.append(solid)
    raw = RawSets(
        name="solids",
        sets=Sets(torch.cat(clouds), torch.full((examples,), points)),
        targets=torch.stack(labels),
        task="point_classes",
        classes=SOLIDS,
        scale="sphere",
        encoding={"truth": "the solid on whose surface the point lies"},
    )
    return set_data(raw, split)


@option_groups()
def thin_lines(
    *,
    examples: int = 100,
    size: int = 32,
    lines: int = 4,
    contrast: float = 60.0,
    noise: float = 25.0,
    seed: int = 0,
    split: Split = Split(),
) -> Data:
    """Gray images of thin straight lines in noise; the class of a pixel says whether it is of one.

    A line passes through a uniform point in a uniform direction; its pixels lie within 0.7 of it.

    Args:
        examples: Number of images, at least 3.
        size: Height and width, at least 1.
        lines: Lines of each image.
        contrast: Levels by which a line is lighter than the ground, which has 100 of 255.
        noise: Standard deviation of Gaussian noise on each pixel, in levels.
        seed: Seed of the images.
        split: Test and validation part, seed.

    Returns:
        Images (N, 1, size, size) of whole levels in [0, 255] with a class for each pixel.

    Raises:
        ValueError: A number is too small.
    """
    if examples < 3 or min(size, lines) < 1 or noise < 0:
        raise ValueError(
            "thin lines need at least 3 examples, a size and lines of at least 1, and noise of at least 0: "
            f"got examples={examples}, size={size}, lines={lines}, noise={noise}"
        )
    pairs = []
    for k in range(examples):
        generator = Generator().manual_seed(mix(seed, 23, k))
        angle = math.pi * torch.rand(lines, 1, 1, generator=generator)
        row, column = (size * torch.rand(lines, 1, 1, generator=generator) for _ in range(2))
        places = torch.arange(size) + 0.5
        away = (places[:, None] - row) * angle.cos() + (places - column) * angle.sin()
        labels = (away.abs() < 0.7).any(0)
        levels = 100 + contrast * labels + noise * torch.randn(size, size, generator=generator)
        pairs.append((levels.round().clamp(0, 255).to(torch.uint8)[None], labels.to(torch.uint8)))
    reading = Reading(ClassTable(((0,), (1,)), ("ground", "line")), 1)
    parts, record = cut("thin-lines", pairs, "none", split)
    looked = {
        part: look_at(Pairs((), reading, tuple(pairs[i] for i in index.tolist()), (size, size)))
        for part, index in parts.items()
    }
    return mask_data("thin-lines", looked, record)


def union_of_solids(
    points: int, generator: Generator, pose: Pose = "any"
) -> tuple[Float[Tensor, "points 3"], Int[Tensor, " points"]]:
    """One cloud: points of the surfaces of a box, a cylinder and a sphere, and of which each is."""
    counts = [len(part) for part in torch.arange(points).tensor_split(3)]
    turn = _turn(generator, pose)
    order = torch.randperm(3, generator=generator).tolist() if pose == "any" else [0, 1, 2]
    parts = []
    for k, count in enumerate(counts):
        surface = (_box, _cylinder, _sphere)[k](count, generator)
        spun = surface @ _turn(generator, pose).T
        away = torch.tensor([1.1 * (order[k] - 1), 0.0, 0.0])
        parts.append(spun + away + 0.1 * torch.randn(3, generator=generator))
    cloud = torch.cat(parts) @ turn.T
    labels = torch.repeat_interleave(torch.tensor(counts))
    mixed = torch.randperm(points, generator=generator)
    return cloud[mixed], labels[mixed]


def _turn(generator: Generator, pose: Pose) -> Tensor:
    return torch.linalg.qr(torch.randn(3, 3, generator=generator)).Q if pose == "any" else torch.eye(3)


def _box(count: int, generator: Generator) -> Tensor:
    """Points uniform on the faces of a box with half sides in [0.25, 0.6]."""
    half = 0.25 + 0.35 * torch.rand(3, generator=generator)
    areas = half.prod() / half
    axis = torch.multinomial(areas, count, replacement=True, generator=generator)
    points = (2 * torch.rand(count, 3, generator=generator) - 1) * half
    side = (torch.randint(2, (count,), generator=generator) * 2 - 1).float()
    return points.scatter(1, axis[:, None], (side * half[axis])[:, None])


def _cylinder(count: int, generator: Generator) -> Tensor:
    """Points uniform on a cylinder, mantle and discs, of radius in [0.2, 0.45] and height in [0.6, 1.2]."""
    radius, height = (
        low + wide * torch.rand((), generator=generator) for low, wide in ((0.2, 0.25), (0.6, 0.6))
    )
    areas = torch.stack((2 * math.pi * radius * height, math.pi * radius**2, math.pi * radius**2))
    where = torch.multinomial(areas, count, replacement=True, generator=generator)
    angle, up, out = torch.rand(3, count, generator=generator)
    r = torch.where(where == 0, radius, radius * out.sqrt())
    z = torch.where(where == 0, (up - 0.5) * height, (where.float() - 1.5) * height)
    return torch.stack((r * (2 * math.pi * angle).cos(), r * (2 * math.pi * angle).sin(), z), 1)


def _sphere(count: int, generator: Generator) -> Tensor:
    """Points uniform on a sphere, radius in [0.3, 0.6]."""
    radius = 0.3 + 0.3 * torch.rand((), generator=generator)
    return radius * torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=1)


def digit_sums(
    *,
    digits: Digits = "digits",
    train_sets: int = 4000,
    test_sets: int = 1000,
    most: int = 10,
    test_size: int = 20,
    val: float = 0.1,
    seed: int = 0,
) -> Data:
    """Sets of images of digits; the value is the sum of the digits.

    Sets of the training and validation parts have 1 to ``most`` images, those of the test part ``test_size``
    images that occur in no other part.

    Args:
        digits: Whose images: scikit-learn's of 8 x 8 pixels, or MNIST's of 28 x 28 ($MARGIN_DATA/mnist).
        train_sets: Sets of the training and validation parts together.
        test_sets: Sets of the test part.
        most: Images of a set of training, at most.
        test_size: Images of a set of the test part.
        val: Share of the validation part among the first.
        seed: Seed of what is drawn.

    Returns:
        Sets with a mask, an element an image of levels in [0, 1].

    Raises:
        ValueError: A number is below 1.
        FileNotFoundError: MNIST's files are missing.

    Reference: Zaheer et al. 2017, Deep sets, section 4.1.2 (sum of digits).
    """
    if min(train_sets, test_sets, most, test_size) < 1:
        raise ValueError(
            "numbers and sizes of sets must be at least 1: "
            f"got train_sets={train_sets}, test_sets={test_sets}, most={most}, test_size={test_size}"
        )
    images, labels, held = _images(digits)
    generator = Generator().manual_seed(mix(seed, 22))
    sizes = torch.cat(
        (
            torch.randint(1, most + 1, (train_sets,), generator=generator),
            torch.full((test_sets,), test_size),
        )
    )
    cut = int(sizes[:train_sets].sum())
    pools = ((~held).nonzero()[:, 0], cut), (held.nonzero()[:, 0], int(sizes.sum()) - cut)
    chosen = torch.cat([pool[torch.randint(len(pool), (n,), generator=generator)] for pool, n in pools])
    owner = torch.repeat_interleave(sizes)
    sums = torch.zeros(len(sizes), dtype=torch.int64).index_add_(0, owner, labels[chosen])
    raw = RawSets(
        name="digit-sums",
        sets=Sets(images[chosen], sizes),
        targets=sums.float(),
        task="values",
        official={
            "train": torch.arange(train_sets),
            "test": torch.arange(train_sets, train_sets + test_sets),
        },
        encoding={"truth": "the sum of the digits"},
        notes=(f"test sets have {test_size} images, those of training 1 to {most}; no image is in both",),
    )
    return set_data(raw, Split(test=0.0, val=val, seed=seed))


def _images(digits: Digits) -> tuple[Tensor, Tensor, Tensor]:
    """Images (N, d) of levels in [0, 1], their digits, and which are held out."""
    if digits == "mnist":
        from margin.data.formats.arrays.idx import mnist

        data, levels = mnist(val=0.0), 255.0
    else:
        from margin.data.sets.bundled import digits as small

        data, levels = small(val=0.0), 16.0
    parts = [data.splits[name] for name in ("train", "test")]
    x = torch.cat([part.inputs[0] for part in parts]).flatten(1) / levels
    held = torch.arange(len(x)) >= len(parts[0])
    return x, torch.cat([part.targets for part in parts]), held
