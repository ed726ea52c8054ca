"""Synthetic sets whose answer is known: what is true of them stands in ``encoding["truth"]``.

Every set is a function of its options; ``seed`` draws the examples, ``split_seed`` the random split.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from margin.data.assembly import Raw, assemble, cut
from margin.data.examples import Data
from margin.data.options import option_groups
from margin.data.splits import Split, TaskName
from margin.math.seeds import mix


@option_groups()
def two_moons(
    *,
    examples: int = 400,
    noise: float = 0.1,
    seed: int = 0,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Two interleaved half circles of radius 1 in the plane, blurred by Gaussian noise.

    Class 0 lies on (cos t, sin t), class 1 on (1 - cos t, 1/2 - sin t), t evenly spaced on [0, pi]. The
    arcs are 1/2 apart, so with less noise than that in every example the classes do not touch.

    Args:
        examples: Number of examples, half of them (rounded up) of class 0.
        noise: Standard deviation of the noise on each coordinate, at least 0.
        seed: Seed of the noise.
        domain: Least and largest value that a coordinate may take.
        split: Test and validation part, seed.

    Reference: the set of scikit-learn's ``make_moons``.
    """
    generator = _begin("two-moons", examples, noise, seed)
    first = examples - examples // 2
    t0, t1 = _evenly(first) * math.pi, _evenly(examples - first) * math.pi
    arcs = [
        torch.stack((t0.cos(), t0.sin()), 1),
        torch.stack((1 - t1.cos(), 0.5 - t1.sin()), 1),
    ]
    labels = torch.arange(2).repeat_interleave(torch.tensor([first, examples - first]))
    truth = {
        "curves": ["(cos t, sin t)", "(1 - cos t, 1/2 - sin t)"],
        "t": [0.0, math.pi],
        "noise": noise,
        "distance": 0.5,
    }
    raw = raw_of("two-moons", _blur(torch.cat(arcs), noise, generator), labels, truth, domain)
    return assemble(raw, split)


@option_groups()
def spirals(
    *,
    examples: int = 600,
    arms: int = 2,
    turns: float = 1.5,
    noise: float = 0.02,
    seed: int = 0,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Arms of an Archimedean spiral around the origin, one class each, blurred by Gaussian noise.

    Arm k is r (cos a, sin a), a = 2 pi (turns r + k / arms), r evenly spaced on [1/10, 1]. Neighboring
    arms are 1 / (turns arms) apart along a ray.

    Args:
        examples: Number of examples, shared evenly by the arms.
        arms: Number of arms, that is classes, at least 2.
        turns: Turns of an arm between the origin and r = 1, positive.
        noise: Standard deviation of the noise on each coordinate, at least 0.
        seed: Seed of the noise.
        domain: Least and largest value that a coordinate may take.
        split: Test and validation part, seed.

    Reference: Lang & Witbrock 1988, Learning to tell two spirals apart.
    """
    generator = _begin("spirals", examples, noise, seed)
    _at_least("spirals", "arms", arms, 2)
    _at_least("spirals", "examples", examples, arms)
    if not turns > 0:
        raise ValueError(f"spirals: turns must be positive: got {turns}")
    labels = torch.arange(examples) % arms
    radius = torch.empty(examples, dtype=torch.float64)
    for k in range(arms):
        radius[labels == k] = 0.1 + 0.9 * _evenly(int((labels == k).sum()))
    angle = 2 * math.pi * (turns * radius + labels / arms)
    points = radius[:, None] * torch.stack((angle.cos(), angle.sin()), 1)
    truth = {
        "curve": "r (cos a, sin a), a = 2 pi (turns r + class / arms)",
        "r": [0.1, 1.0],
        "turns": turns,
        "arms": arms,
        "noise": noise,
    }
    raw = raw_of("spirals", _blur(points, noise, generator), labels, truth, domain)
    return assemble(raw, split)


@option_groups()
def xor(
    *,
    examples: int = 400,
    noise: float = 0.0,
    seed: int = 0,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Uniform points of the square [-1, 1]^2; class 1 where the coordinates' signs differ.

    The quadrants take turns, so each holds a quarter of the examples. Noise is added after labeling.
    Without noise the best half-plane is right on 2/3 of the square: it cuts a corner off at
    |x1| + |x2| = 2/3.

    Args:
        examples: Number of examples.
        noise: Standard deviation of the noise on each coordinate, at least 0.
        seed: Seed of points and noise.
        domain: Least and largest value that a coordinate may take.
        split: Test and validation part, seed.

    Reference: Minsky & Papert 1969, Perceptrons, on the parity predicate.
    """
    generator = _begin("xor", examples, noise, seed)
    quadrant = torch.arange(examples) % 4
    signs = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]], dtype=torch.float64)
    points = torch.rand(examples, 2, generator=generator, dtype=torch.float64) * signs[quadrant]
    truth = {
        "rule": "class 1 where x1 x2 < 0, before the noise",
        "noise": noise,
        "best_halfplane_accuracy": 2 / 3,
    }
    raw = raw_of("xor", _blur(points, noise, generator), quadrant % 2, truth, domain)
    return assemble(raw, split)


@option_groups()
def blobs(  # more than 7 parameters: they are the options of the set
    *,
    examples: int = 400,
    classes: int = 3,
    features: int = 2,
    radius: float = 2.0,
    noise: float = 1.0,
    seed: int = 0,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Equally likely Gaussian balls N(c_k, noise^2 I) around the corners of a regular polygon.

    c_k = radius (cos 2 pi k / K, sin 2 pi k / K, 0, ...). The Bayes rule takes the nearest center; for
    two classes its accuracy is Phi(radius / noise).

    Args:
        examples: Number of examples, shared evenly by the classes.
        classes: Number of classes K, at least 2.
        features: Number of coordinates, at least 2.
        radius: Distance of the centers from the origin, positive.
        noise: Standard deviation of each coordinate, at least 0.
        seed: Seed of the examples.
        domain: Least and largest value that a coordinate may take.
        split: Test and validation part, seed.

    Reference: Hastie, Tibshirani & Friedman 2009, The elements of statistical learning, section 4.3.
    """
    generator = _begin("blobs", examples, noise, seed)
    _at_least("blobs", "classes", classes, 2)
    _at_least("blobs", "examples", examples, classes)
    _at_least("blobs", "features", features, 2)
    if not radius > 0:
        raise ValueError(f"blobs: radius must be positive: got {radius}")
    angle = 2 * math.pi * torch.arange(classes, dtype=torch.float64) / classes
    centers = torch.zeros(classes, features, dtype=torch.float64)
    centers[:, 0], centers[:, 1] = radius * angle.cos(), radius * angle.sin()
    labels = torch.arange(examples) % classes
    truth: dict[str, Any] = {"centers": centers.tolist(), "noise": noise, "rule": "the nearest center"}
    if classes == 2:
        z = radius / noise if noise > 0 else math.inf
        truth["bayes_accuracy"] = (1 + math.erf(z / math.sqrt(2))) / 2
    raw = raw_of("blobs", _blur(centers[labels], noise, generator), labels, truth, domain)
    return assemble(raw, split)


@option_groups()
def separable(
    *,
    examples: int = 200,
    features: int = 2,
    margin: float = 0.1,
    bias: float = 0.0,
    seed: int = 0,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Two classes that a known hyperplane separates with exactly the stated margin.

    With unit w and y = 2 label - 1, each example is Gaussian across w and has
    y (w x + b) = margin + |g|, g Gaussian. One pair of the training part, of either class, lies at
    p + margin w and p - margin w: two points 2 margin apart, so no hyperplane separates the training
    part, or the whole, by more. Thus (w, b) is the separator of largest margin, the only one.
    float64, so the margin holds to rounding of 1e-15.

    Args:
        examples: Number of examples, half of them of either class.
        features: Number of coordinates, at least 1.
        margin: Distance of the nearest examples from the hyperplane, positive.
        bias: The separator's b; the hyperplane is |b| away from the origin.
        seed: Seed of separator and examples.
        domain: Least and largest value that a coordinate may take.
        split: Test and validation part, seed.

    Reference: Novikoff 1962, On convergence proofs for perceptrons (the margin); Vapnik 1998, section 10.1.
    """
    generator = _begin("separable", examples, 0.0, seed)
    _at_least("separable", "features", features, 1)
    if not margin > 0:
        raise ValueError(f"separable: margin must be positive: got {margin}")
    labels = torch.arange(examples) % 2
    w = torch.randn(features, generator=generator, dtype=torch.float64)
    w = w / w.norm()
    x = torch.randn(examples, features, generator=generator, dtype=torch.float64)
    across = x - (x @ w)[:, None] * w
    parts, _ = cut("separable", labels, "classes", split)
    train = parts["train"]
    score = (labels * 2 - 1) * (margin + (x @ w).abs())
    pair = [int(train[labels[train] == k][0]) for k in (0, 1)]
    across[pair[0]] = across[pair[1]]
    score[pair] = margin * torch.tensor([-1.0, 1.0], dtype=torch.float64)
    truth = {"weight": w.tolist(), "bias": bias, "margin": margin}
    points = across + (score - bias)[:, None] * w
    return assemble(raw_of("separable", points, labels, truth, domain, dtype=torch.float64), split, parts)


@option_groups()
def noisy_linear(  # more than 7 parameters: they are the options of the set
    *,
    examples: int = 200,
    features: int = 5,
    rank: int | None = None,
    noise: float = 0.1,
    bias: float = 1.0,
    seed: int = 0,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Values y = w x + b + noise e of Gaussian inputs, with known w, b and noise; e is standard normal.

    With a ``rank`` below the number of features the inputs fill a random subspace of that dimension,
    X = G Q^T with orthonormal Q. The recorded w lies in it: of all weights with the same predictions it
    is the shortest. float64.

    Args:
        examples: Number of examples.
        features: Number of coordinates, at least 1.
        rank: Dimension of the subspace that the inputs fill, 1 .. features; all if not given.
        noise: Standard deviation of the noise on y, at least 0: the square root of the least risk.
        bias: b.
        seed: Seed of weights, inputs and noise.
        domain: Least and largest value that a coordinate may take.
        split: Test and validation part, seed.

    Reference: Hastie, Tibshirani & Friedman 2009, The elements of statistical learning, equation 3.9.
    """
    generator = _begin("noisy-linear", examples, noise, seed)
    _at_least("noisy-linear", "features", features, 1)
    rank = features if rank is None else rank
    if not 1 <= rank <= features:
        raise ValueError(f"noisy-linear: rank must be in 1 .. features: got rank={rank}, features={features}")
    basis = torch.randn(features, rank, generator=generator, dtype=torch.float64)
    Q = torch.linalg.qr(basis).Q if rank < features else torch.eye(features, dtype=torch.float64)
    w = Q @ torch.randn(rank, generator=generator, dtype=torch.float64)
    x = torch.randn(examples, rank, generator=generator, dtype=torch.float64) @ Q.T
    y = x @ w + bias + noise * torch.randn(examples, generator=generator, dtype=torch.float64)
    truth = {"weight": w.tolist(), "bias": bias, "noise": noise, "rank": rank}
    raw = raw_of("noisy-linear", x, y, truth, domain, task="values", dtype=torch.float64)
    return assemble(raw, split)


def _begin(name: str, examples: int, noise: float, seed: int) -> Generator:
    _at_least(name, "examples", examples, 1)
    if not 0 <= noise < math.inf:
        raise ValueError(f"{name}: noise must be at least 0 and finite: got {noise}")
    return Generator().manual_seed(mix(seed, 11))


def _at_least(name: str, option: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name}: {option} must be at least {least}: got {value}")


def _evenly(count: int) -> Tensor:
    """``count`` evenly spaced points of [0, 1], both ends included."""
    return torch.linspace(0, 1, count, dtype=torch.float64)


def _blur(points: Tensor, noise: float, generator: Generator) -> Tensor:
    return points + noise * torch.randn(points.shape, generator=generator, dtype=torch.float64)


def raw_of(  # 7 parameters: the constructor's own, with the defaults of these sets
    name: str,
    inputs: Tensor,
    targets: Tensor,
    truth: Mapping[str, Any],
    domain: tuple[float, float] | None,
    task: TaskName = "classes",
    dtype: torch.dtype = torch.float32,
) -> Raw[Tensor]:
    """A set as it was constructed, its truth in its encoding; classes are named by their numbers."""
    classes = tuple(str(k) for k in range(int(targets.max()) + 1)) if task == "classes" else ()
    return Raw(
        name=name,
        inputs=inputs,
        targets=targets,
        task=task,
        classes=classes,
        dtype=dtype,
        domain=domain,
        encoding={"truth": dict(truth)},
    )
