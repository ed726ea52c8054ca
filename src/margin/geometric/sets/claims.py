"""What a width can tell apart (Zaheer et al. 2017; Wagstaff et al. 2019), and what it cannot: collisions.

What a model of sets is asked with: its held-out sets one by one, without padding, in float64.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.evaluation import in_double
from margin.engine.loop import risk
from margin.geometric.graphs.layers import is_set_input
from margin.geometric.sets.deep_sets import DeepSets, Pool, SetPool, regressor
from margin.math.groups.power_sums import from_power_sums, power_sums, recovered
from margin.nn.preprocessed import core_of, features_of

EXAMPLES = 16
"""Held-out sets that a question is put to."""


def is_sets(batch: Batch) -> bool:
    """Whether a batch's inputs are sets (batch, elements, k) of real numbers, with or without a mask."""
    return is_set_input(batch.inputs)


def sets_of(subject: Subject, most: int = EXAMPLES) -> list[Tensor]:
    """The first held-out sets that have elements, each (elements, k), in float64 and the user's units."""
    found: list[Tensor] = []
    for batch in subject.test:
        x, *rest = (one.detach() for one in batch.inputs)
        for k, elements in enumerate(x):
            own = elements[rest[0][k]] if rest else elements
            if len(own):
                found.append(own.double())
            if len(found) == most:
                return found
    return found


def pools(model: nn.Module) -> dict[str, SetPool]:
    """The poolings of a model by name."""
    named = model.named_modules()
    return {name.removeprefix("model."): one for name, one in named if isinstance(one, SetPool)}


def has_sets(subject: Subject) -> bool:
    """Whether the held-out inputs are sets of vectors of real numbers, at least one of them not empty."""
    return bool(subject.test) and is_sets(subject.test[0]) and bool(sets_of(subject, 1))


def has_pooling(subject: Subject) -> bool:
    """Whether the model pools sets."""
    return has_sets(subject) and bool(pools(subject.model))


def has_maxima(subject: Subject) -> bool:
    """Whether the model pools sets, by the maximum alone."""
    return has_pooling(subject) and all(one.how == "max" for one in pools(subject.model).values())


def is_deep_sets(subject: Subject) -> bool:
    """Whether the model is a :class:`~margin.geometric.sets.deep_sets.DeepSets`."""
    core = subject.model.model if hasattr(subject.model, "model") else subject.model
    return has_sets(subject) and isinstance(core, DeepSets)


ROUNDING = 1e-9
"""In parts of the largest output or of a usual change, in float64."""

FAR = 1.0
"""Standard deviations that an element is moved on the way to a collision, in the root mean square."""

NEAR = 0.01
"""Standard deviations of the distance of two sets below which they are not told to be two."""

MOST = 8
"""Numbers of a set that are read back from power sums at most."""

CONTINUOUS = (
    *(nn.Linear, nn.Sequential, nn.Identity, nn.Flatten, nn.Dropout, nn.LayerNorm, nn.BatchNorm1d),
    *(nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Softplus, nn.ELU),
)
JUMPS = (nn.Hardshrink, nn.Threshold)

Code = Callable[[Tensor], Tensor]


class Collision(NamedTuple):
    """Two sets whose pooled codes are equal.

    Args:
        first: X (M, k), in the user's units.
        second: Y (M, k).
        distance: The mean distance of their elements, matched at best, in standard deviations of the data.
        gap: The distance of their codes, in parts of that of sets moved as far at random.
    """

    first: Tensor
    second: Tensor
    distance: float
    gap: float


@torch.no_grad()
def collision(model: nn.Module, elements: Tensor, width: int, times: int = 1) -> Collision:
    r"""Two different sets of M elements that a pooled code of d < k M numbers does not tell apart.

    From a set X the search moves along the level set of the code, which has dimension k M - d at least where
    the code is smooth: a step in the null space of the Jacobian, then Newton steps back to the level.

    Args:
        model: A Deep Sets model in float64, its preprocessing in front where it has one.
        elements: Elements as the data have them (N, k): where X begins, and the unit of distances.
        width: d, numbers of the code.
        times: How often the least M is taken: more elements leave more ways to go.
    """
    scale = elements.std(0) if len(elements) > 1 else torch.zeros_like(elements[0])
    moving = (scale > 0).nonzero()[:, 0]
    if len(moving) == 0:  # all elements are equal: any unit will do
        scale, moving = torch.ones_like(scale), torch.arange(len(scale), device=scale.device)
    size = times * (width // len(moving) + 1)
    generator = Generator().manual_seed(0)
    base = elements[torch.randint(len(elements), (size,), generator=generator).to(elements.device)]

    def placed(u: Tensor) -> Tensor:
        return base.index_add(1, moving, u.view(size, -1) * scale[moving])

    def code(u: Tensor) -> Tensor:
        pooled: Tensor = core_of(model).code(features_of(model, placed(u)[None]))[0]
        return pooled

    start = 0.1 * torch.randn(size * len(moving), generator=generator, dtype=torch.float64).to(base)

    def apart(u: Tensor) -> float:
        return matched(*(placed(one)[:, moving] / scale[moving] for one in (start, u)))

    end = moved_along(code, start, apart, generator)
    usual = torch.stack([random_change(code, start, end, generator) for _ in range(16)]).mean()
    first, second = placed(start), placed(end)
    return Collision(first, second, apart(end), float((code(end) - code(start)).norm() / usual))


def random_change(code: Code, start: Tensor, end: Tensor, generator: Generator) -> Tensor:
    """How far the code moves where the elements move as far as from start to end, in a random direction."""
    way = torch.randn(len(start), generator=generator, dtype=torch.float64).to(start)
    moved = start + way * ((end - start).norm() / way.norm())
    change: Tensor = (code(moved) - code(start)).norm()
    return change


def moved_along(code: Code, start: Tensor, apart: Callable[[Tensor], float], generator: Generator) -> Tensor:
    """The farthest point of a way on which the code stays the same; the start where no step could be made.

    Args:
        code: From (n,) to (d,) numbers, d < n.
        start: Where the way begins.
        apart: How far a point is from the start; a way may lead to the same set in another order.
        generator: Where the direction is drawn from.
    """
    u, best, target, h = start, start, code(start), 0.1 * math.sqrt(len(start))
    way = torch.randn(len(start), generator=generator, dtype=torch.float64).to(start)
    for _ in range(60):
        if float((u - start).norm()) >= FAR * math.sqrt(len(start)) or h < 1e-6:
            break
        J = torch.func.jacrev(code)(u)
        if not bool(J.isfinite().all()):
            break
        null = torch.linalg.svd(J, full_matrices=True).Vh[len(J) :]
        way = null.T @ (null @ way)  # on, as far as the level allows
        way = way / way.norm()
        found = corrected(code, u + h * way, target)
        if found is None:
            h = h / 2
        else:
            u = found
            best = max(best, u, key=apart)
    return best


def corrected(code: Code, u: Tensor, target: Tensor) -> Tensor | None:
    """A point near u where the code is the target, by Newton's method; None where it is not reached."""
    for _ in range(12):
        gap = code(u) - target
        if float(gap.norm()) <= 1e-13 * max(1.0, float(target.norm())):
            return u
        J = torch.func.jacrev(code)(u)
        u = u - torch.linalg.pinv(J, rtol=1e-12) @ gap
        if not bool(u.isfinite().all()):
            return None
    return None


def matched(first: Tensor, second: Tensor) -> float:
    """The mean distance of elements over the one-to-one match of two sets that makes it least."""
    from scipy.optimize import linear_sum_assignment

    distances = torch.cdist(first, second).cpu().numpy()
    rows, columns = linear_sum_assignment(distances)
    return float(distances[rows, columns].mean())


def continuity(phi: nn.Module) -> Premise:
    """Whether phi is continuous: refuted where a layer jumps, assumed where one is unknown."""
    leaves = {name or "phi": one for name, one in phi.named_modules() if not list(one.children())}
    jumping = [
        f"phi.{name} ({one})"
        for name, one in leaves.items()
        if isinstance(one, JUMPS) and (not isinstance(one, nn.Threshold) or one.value != one.threshold)
    ]
    unknown = [
        f"phi.{name} ({type(one).__name__})" for name, one in leaves.items() if type(one) not in CONTINUOUS
    ]
    text = "phi is continuous"
    if jumping:
        return Premise(text, "refuted", f"{', '.join(jumping)} jumps")
    if unknown:
        return Premise(text, "assumed", f"not known of {', '.join(unknown)}")
    return Premise(text, "proved", "every layer of it is")


@torch.no_grad()
def collides(subject: Subject) -> Finding:
    """Two sets of d / k + 1 elements, rounded down, that a model of code width d does not tell apart.

    The code is continuous on sets of M elements of R^k, an open part of which looks like R^(k M); by
    invariance of domain no continuous map from there to R^d, d < k M, is injective. Every rho errs by half of
    |f(X) - f(Y)| on one of the two, whatever f is.

    Args:
        subject: A Deep Sets model.
    """
    model = in_double(subject.model)
    core: DeepSets = core_of(model)
    found = sets_of(subject, 256)
    width = core.code(features_of(model, found[0][None])).shape[1]
    for times in (1, 2, 4):
        pair = collision(model, torch.cat(found), width, times)
        if not (stuck := not pair.distance >= NEAR):
            break
    outputs = [model(one[None]).flatten() for one in (pair.first, pair.second)]
    size, k = pair.first.shape
    return Finding(
        statement=f"Two sets of {size} elements have one code, of {width} numbers: how far apart their codes "
        "are, in parts of what moving elements as far at random does. The sets are "
        f"{pair.distance:.2g} standard deviations an element apart, and the model's outputs "
        f"{float((outputs[0] - outputs[1]).abs().max()):.1g}: any rho errs by half of |f(X) - f(Y)| on one. "
        f"The largest of {len(found)} held-out sets has {max(map(len, found))} elements of {k} numbers.",
        value=torch.tensor(math.nan if stuck else pair.gap, dtype=torch.float64),
        range=(0.0, math.inf),
        equals=0.0,
        scope="exists",
        tolerance=ROUNDING,
        premises=(continuity(core.phi),),
        failure="the search for a collision found no two different sets" if stuck else "",
    )


def whole_numbers(x: Tensor) -> tuple[list[int], Fraction]:
    """Floating-point numbers as whole numbers of one unit, exactly, and the unit."""
    exact = [Fraction(one) for one in x.double().tolist()]
    unit = Fraction(1, max(one.denominator for one in exact))
    return [int(one / unit) for one in exact], unit


def inversion(subject: Subject) -> Finding:
    """Whether the numbers of each set are read back from as many of their power sums.

    The first number of an element stands for it, and the first eight elements at most for their set. Sums and
    their inversion are exact, in whole numbers; beside it stands what float64 reads back.

    Args:
        subject: A model of sets; its held-out sets are asked, not the model.
    """
    wrong, count, worst = 0, 0, 0.0
    for one in sets_of(subject):
        x = one[:MOST, 0].sort().values
        numbers, _ = whole_numbers(x)
        p = [sum(number**j for number in numbers) for j in range(1, len(numbers) + 1)]
        wrong += sum(a != b for a, b in zip(recovered(p), numbers, strict=True))
        count += len(numbers)
        half = float(x[-1] - x[0]) / 2 or 1.0
        unit = (x - x.mean()) / half
        back = from_power_sums(power_sums(unit, len(unit)))
        worst = max(worst, float((back - unit).abs().max()))
    return Finding(
        statement=f"M power sums determine M numbers: of {count} numbers in sets of at most {MOST}, how many "
        f"are read back wrongly. In float64 they are read back to {worst:.1g} of half their range.",
        value=torch.tensor(float(wrong), dtype=torch.float64),
        unit="numbers",
        range=(0.0, math.inf),
        equals=0.0,
        failure="" if count else "no held-out set has elements",
    )


@torch.no_grad()
def twice(subject: Subject) -> Finding:
    """How much the outputs change where every element is listed twice: by mean or maximum, not at all.

    Args:
        subject: A model that pools sets.
    """
    model, found = in_double(subject.model), sets_of(subject)
    before = [model(one[None]) for one in found]
    after = [model(torch.cat((one, one))[None]) for one in found]
    changes = [
        (b[:, : a.shape[1]] - a).abs().max() if a.ndim == 3 else (b - a).abs().max()
        for a, b in zip(before, after, strict=True)
    ]
    scale = max(1.0, *(float(a.abs().max()) for a in before))
    sums = [name for name, one in pools(subject.model).items() if one.how == "sum"]
    zero = torch.zeros((), dtype=torch.float64)
    says = f"the sum ({', '.join(sums)}) counts it" if sums else "no mean or maximum can count it"
    return Finding(
        statement=f"The largest change of an output where every element of a set is listed twice: {says}. "
        f"The largest output is {scale:.3g}.",
        value=torch.stack(changes).max().cpu(),
        unit="output units",
        range=(0.0, math.inf),
        equals=None if sums else zero,
        tolerance=ROUNDING * scale,
    )


def collides_demo() -> Subject:
    """A small Deep Sets model of code width 3, and sets of pairs."""
    return demonstration(features=3)


def demo() -> Subject:
    """A small Deep Sets model by the mean, and sets of 1 to 5 pairs."""
    return demonstration(pool="mean")


def demonstration(pool: Pool = "sum", features: int = 3) -> Subject:
    """A small Deep Sets model with random weights, and sets of 1 to 5 pairs."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = regressor(2, hidden=8, activation="tanh", pool=pool, features=features)
    x = torch.randn(5, 5, 2, generator=Generator().manual_seed(0))
    mask = torch.arange(5) <= torch.arange(5)[:, None]
    batch = Batch((x, mask), torch.zeros(5))
    return Subject(model=model, test=[batch], task=VALUES, objective=risk(VALUES))
