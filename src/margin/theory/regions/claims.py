"""How many linear pieces a network has where its data are: on planes and segments through examples.

Montufar, Pascanu, Cho and Bengio (2014) show what depth makes possible, Serra, Tjandraatmadja and Ramalingam
(2018) what no network exceeds, Hanin and Rolnick (2019) that networks as they are initialized and trained
have far fewer pieces: along a line about as many as neurons.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject, has_several_sizes
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import learn, risk
from margin.theory.prediction.held_out import kept
from margin.theory.regions.arrangements import folding_network, montufar_bound, most_regions, product_bound
from margin.theory.regions.followed import CannotFollow, NotPiecewiseLinear, follow
from margin.theory.regions.plane import (
    ROOM,
    NoPlane,
    PlaneRegions,
    Square,
    looked_at,
    picture,
    plane_regions,
    square_through,
)
from margin.theory.regions.polygons import TooManyCells
from margin.theory.regions.segments import Breakpoints, OutOfRoom, breakpoints

BUDGET = 10_000
"""Regions beyond which a claim does not count them: about a second."""

SEGMENTS = 32
FEWEST_SEGMENTS = 4
MOST_VALUES = 2**25
"""Values at breakpoints, kinks by breakpoints of them, beyond which no more segments are followed."""

SEED = 2019
PIECEWISE = "the network is continuous and piecewise linear"
WHOLE = 0.5
"""Whole numbers within this are the same: their reals have a rounding."""


def has_real_inputs(subject: Subject) -> bool:
    """Whether the model takes one input, of real numbers and of one size, and there are examples."""
    inputs = subject.test[0].inputs if len(subject.test) else ()
    real = len(inputs) == 1 and inputs[0].is_floating_point() and inputs[0].ndim > 1
    return real and not has_several_sizes(subject)


def has_plane(subject: Subject) -> bool:
    """Whether the model takes one real input and some three held-out examples span a plane of inputs.

    Examples that are no numbers count as such: they are the finding's to tell.
    """
    if not has_real_inputs(subject):
        return False
    try:
        square_through(subject)
    except NoPlane:
        return False
    except ArithmeticError:
        return True
    return True


@torch.no_grad()
def not_followed(subject: Subject) -> str:
    """Which layer has a forward that is not made of functions that are followed, in a line; "" where none.

    Where there is no real input, or none that is a number, others say so; what refutes the question, or is
    not finite, the finding tells.
    """
    if not has_plane(subject):
        return ""
    return _refusal(subject).get(CannotFollow, "")


def can_be_followed(subject: Subject) -> bool:
    """Whether no layer is known that cannot be followed."""
    return not not_followed(subject)


@torch.no_grad()
def not_piecewise_linear(subject: Subject) -> str:
    """Which layer is not piecewise linear, and why, in a line; "" where none is known not to be."""
    if not has_real_inputs(subject):
        return ""
    return _refusal(subject).get(NotPiecewiseLinear, "")


def is_piecewise_linear(subject: Subject) -> bool:
    """Whether no layer is known not to be piecewise linear."""
    return not not_piecewise_linear(subject)


class Uncut:
    """A mesh of one vertex: what is followed on it is named, and computed once."""

    generation = 0
    rows = 1

    def refine(self, values: Float[Tensor, "rows features"], knots: tuple[float, ...]) -> Tensor:
        """The values, of their own memory: there is no cell to cut."""
        return values.clone()

    def extend(self, values: Tensor, generation: int) -> Tensor:
        """The values: there is one generation."""
        return values


def _refusal(subject: Subject) -> Mapping[type[Exception], str]:
    """The kind of error that ends the following of an example, in the model's own type, with what it says.

    Of float64 images would take gigabytes.
    """

    def followed() -> Mapping[type[Exception], str]:
        try:
            with _twin(subject.model) as model:
                follow(model, subject.test[0].inputs[0][:1], Uncut())
        except (CannotFollow, NotPiecewiseLinear, ArithmeticError) as error:
            return {type(error): str(error)}
        return {}

    return kept(subject, "following", followed, lambda _: 0)


@contextmanager
def _twin(model: nn.Module) -> Iterator[nn.Module]:
    """A copy of the model in evaluation mode.

    Raises:
        CannotFollow: It cannot be copied.
    """
    try:
        twin = copy.deepcopy(model).requires_grad_(False)
    except Exception as error:
        raise CannotFollow(f"the model cannot be copied: {type(error).__name__}") from error
    with eval_mode(twin):
        yield twin


@contextmanager
def exact(model: nn.Module) -> Iterator[nn.Module]:
    """A copy of the model in float64 on the CPU, in evaluation mode.

    Raises:
        CannotFollow: It cannot be copied.
    """
    with _twin(model) as twin:
        try:
            twin.cpu().double()
        except Exception as error:
            raise CannotFollow(f"the model cannot be copied to float64: {type(error).__name__}") from error
        yield twin


def in_plane(subject: Subject, *, budget: int = BUDGET) -> Finding:
    """The number of activation and of linear regions in a square in the plane through three examples.

    Exact: every region with an interior is found, as a polygon. No network whose layers have as many kinks
    has more on a plane than the product over its layers of what so many lines cut.

    Args:
        subject: A model of one real input, continuous and piecewise linear.
        budget: Regions beyond which it is not asked.

    Raises:
        NotAsked: There are more regions than the budget, or than fit in memory.
    """
    counted = _counted(subject, budget)
    found, square = counted.regions, counted.square
    value = torch.full((2,), math.nan, dtype=torch.float64)
    high, words = None, ""
    if found is not None and square is not None:
        value = torch.tensor([found.activation_regions, found.linear_regions], dtype=torch.float64)
        kinks = [count for _, count in found.layers]
        # A layer that is passed by keeps no image from being a plane: each cuts in two dimensions.
        high = _real(math.prod(most_regions(kink, 2) for kink in kinks))
        side = 2 * float(square.first.norm())
        words = (
            f"; {sum(kinks):,} kinks in {len(kinks)} layers, a square of side {side:.3g} in the plane "
            f"through the held-out examples {', '.join(map(str, square.examples))}"
        )
    return Finding(
        statement="The activation regions of the network that a square in a plane of inputs meets, and the "
        f"linear regions that are left when neighbors with the same affine map are merged{words}.",
        value=value,
        unit="regions",
        range=(1, math.inf),
        premises=counted.premises,
        failure=counted.failure,
        high=high,
        tolerance=WHOLE,
        labels=("activation regions", "linear regions"),
        curves=counted.curves(subject),
    )


def possible(subject: Subject, *, budget: int = BUDGET) -> Finding:
    """The linear regions in a plane beside what some network of the same depth and width has there.

    Args:
        subject: A model of one real input, continuous and piecewise linear.
        budget: Regions beyond which it is not asked.

    Raises:
        NotAsked: There are more regions than the budget, or than fit in memory.
    """
    counted = _counted(subject, budget)
    value, low, words = torch.tensor(math.nan, dtype=torch.float64), None, ""
    if counted.regions is not None:
        value = torch.tensor(float(counted.regions.linear_regions), dtype=torch.float64)
        kinks = [count for _, count in counted.regions.layers]
        if kinks and min(kinks) >= 2:
            low = _real(montufar_bound(2, min(kinks), len(kinks)))
            words = f" ({len(kinks)} layers, the narrowest with {min(kinks):,} kinks)"
    return Finding(
        statement="The linear regions of the network that a square in a plane of inputs meets, beside the "
        "number that some ReLU network of as many layers, each as wide as the narrowest, has on a plane"
        f"{words}.",
        value=value,
        unit="regions",
        range=(1, math.inf),
        premises=counted.premises,
        failure=counted.failure,
        low=low,
        scope="exists",
        tolerance=WHOLE,
    )


class Counted(NamedTuple):
    """The regions on the square of a subject, or why there are none."""

    square: Square | None
    regions: PlaneRegions | None
    premises: tuple[Premise, ...]
    failure: str

    def curves(self, subject: Subject) -> dict[str, Tensor]:
        """What the picture of the regions is drawn from."""
        if self.square is None or self.regions is None:
            return {}
        scores = None
        if subject.task.classes is not None:
            outputs = self.regions.outputs
            # A single score has no axis of its own.
            scores = subject.task.classes(outputs[:, 0] if outputs.shape[1] == 1 else outputs)
            scores = scores.reshape(len(outputs), -1)  # of a single class
        return picture(self.regions, scores) | {"examples": self.square.points, "labels": self.square.labels}


def _counted(subject: Subject, budget: int) -> Counted:
    try:
        square = square_through(subject)
        with exact(subject.model) as model:
            found = plane_regions(model, square.origin, square.first, square.second, budget=budget)
    except TooManyCells as error:
        raise NotAsked(f"{error}: no more are counted") from error
    except (NotPiecewiseLinear, CannotFollow, ArithmeticError) as error:
        premise, failure = _refused(error)
        return Counted(None, None, (premise,), failure)
    counted = Premise(
        "every region is counted once",
        "proved",
        f"the areas of the polygons sum to 4 within {abs(float(found.plane.areas().sum()) - 4):.1g}, "
        f"V - E + F = {found.plane.euler()}, their patterns differ pairwise",
    )
    flaw = found.flaw()
    premises = (_followed(found.layers), *(() if flaw else (counted,)))
    return Counted(square, found, premises, flaw)


def _refused(error: Exception) -> tuple[Premise, str]:
    """What an error says of the premise, and why there is no number."""
    if isinstance(error, NotPiecewiseLinear):
        return Premise(PIECEWISE, "refuted", str(error)), ""
    return Premise(PIECEWISE, "assumed", "not followed to its end"), str(error)


def _followed(layers: list[tuple[str, int]]) -> Premise:
    names = [name or "the model itself" for name, _ in layers]
    shown = ", ".join(names if len(names) <= 6 else [*names[:3], "...", *names[-2:]])
    return Premise(
        PIECEWISE,
        "proved",
        f"its forward was followed through affine functions and the kinks of {shown or 'no layer'}",
    )


def on_segments(subject: Subject, *, segments: int = SEGMENTS) -> Finding:
    """The breakpoints of the network on segments between pairs of examples, now and at initialization.

    Exact: each is computed, none is looked for. Hanin and Rolnick (2019) prove that at initialization their
    expected number on a segment is at most proportional to the number of neurons, whatever the depth, and
    find it so after training; what no weights exceed is the product over the layers, which grows with depth
    as a power.

    Args:
        subject: A model of one real input, continuous and piecewise linear.
        segments: Pairs of held-out examples, drawn once; fewer where a network has so many kinks that a
            handful takes about a second, at least 4.

    Raises:
        NotAsked: The values on a single segment do not fit in memory.
    """
    if segments < 1:
        raise ValueError(f"segments must be at least 1: got {segments}")
    labels: list[str] = []
    values: list[float] = []
    curves: dict[str, Tensor] = {}
    high, neurons, words, failure, taken = None, 0, "", "", segments
    try:
        for name, found in _followed_segments(subject, segments):
            counts, taken = (found.activation_regions - 1).double(), len(found.activation_regions)
            labels += [f"mean, {name}", f"most, {name}"]
            values += [float(counts.mean()), float(counts.max())]
            curves |= {"share of segments": torch.linspace(0, 1, len(counts)).double()}
            curves |= {f"breakpoints {name}": counts.sort().values}
            neurons = sum(count for _, count in found.layers)
            high = _real(product_bound(1, [count for _, count in found.layers]) - 1)
            words += _per_neuron(name, counts, found, neurons)
            premise = _followed(found.layers)
    except OutOfRoom as error:
        raise NotAsked(str(error)) from error
    except (NotPiecewiseLinear, CannotFollow, ArithmeticError) as error:
        premise, failure = _refused(error)
    return Finding(
        statement=f"Breakpoints of the network on segments between {taken} pairs of held-out examples, of "
        f"{neurons:,} kinks{words}. At initialization their number grows as that of the neurons, not as a "
        "power of the depth.",
        value=torch.tensor(values or [math.nan], dtype=torch.float64),
        unit="breakpoints",
        range=(0, math.inf),
        premises=(premise,),
        failure=failure,
        high=high,
        tolerance=WHOLE,
        sample="" if taken == segments else f"{taken} segments",
        labels=tuple(labels),
        curves=curves,
    )


def _followed_segments(subject: Subject, segments: int) -> Iterator[tuple[str, Breakpoints]]:
    """The breakpoints of the model, and of the one that training began with where it is known."""
    starts, ends = _pairs(subject, segments)
    for name, model in (("now", subject.model), ("at initialization", subject.initial)):
        if model is not None:
            with exact(model) as twin:
                found = breakpoints(twin, starts[:FEWEST_SEGMENTS], ends[:FEWEST_SEGMENTS])
                if name == "now":
                    values = len(found.position) * sum(kinks for _, kinks in found.layers)
                    fit = FEWEST_SEGMENTS * MOST_VALUES // max(values, 1)
                    starts, ends = (points[: max(fit, FEWEST_SEGMENTS)] for points in (starts, ends))
                if len(starts) > FEWEST_SEGMENTS:
                    found = breakpoints(twin, starts, ends)
                yield name, found


def _per_neuron(name: str, counts: Tensor, found: Breakpoints, neurons: int) -> str:
    if not neurons:
        return ""
    bends = (found.linear_regions - 1).double().mean()
    return (
        f"; {name} {float(counts.mean()) / neurons:.3g} a kink in the mean, {float(bends):.4g} of "
        f"{float(counts.mean()):.4g} felt by an output"
    )


def _pairs(subject: Subject, segments: int) -> tuple[Tensor, Tensor]:
    inputs, _, _ = looked_at(subject)
    generator = torch.Generator().manual_seed(SEED)
    one = torch.randint(len(inputs), (segments,), generator=generator)
    step = torch.randint(1, max(len(inputs), 2), (segments,), generator=generator)
    other = (one + step) % len(inputs)
    if not bool((inputs[one] != inputs[other]).flatten(1).any(1).all()):
        keep = (inputs[one] != inputs[other]).flatten(1).any(1)
        one, other = one[keep], other[keep]
    if not len(one):
        raise ArithmeticError("the held-out examples are all the same point: they span no segment")
    return inputs[one], inputs[other]


def _real(number: int) -> Tensor:
    """A whole number of any size as a real one, infinite where it is too large for that."""
    try:
        return torch.tensor(float(number), dtype=torch.float64)
    except OverflowError:
        return torch.tensor(math.inf, dtype=torch.float64)


def _asked(model: nn.Module, inputs: Tensor) -> Subject:
    batch = Batch((inputs,), model(inputs).detach())
    loss: Callable[..., Tensor] = lambda m, b, g: (m(*b.inputs) - b.targets).square().sum(1)
    return Subject(model=model, test=[batch], task=VALUES, objective=loss)


def demo() -> Subject:
    """A folding network of two layers of four units: 44 regions on [0, 1]^2, as many as Montufar's bound.

    The examples are so placed that the square around them is [0, 1]^2.
    """
    low, high = 0.5 - 0.5 / ROOM, 0.5 + 0.5 / ROOM
    corners = torch.tensor([[low, low], [high, low], [low, high]], dtype=torch.float64)
    return _asked(folding_network(2, 4, 2), corners)


def segments_demo() -> Subject:
    """A network with the kinks 1/8, 3/8, 5/8, 7/8 of one input, all of them between 0 and 1."""
    return _asked(folding_network(1, 4, 1), torch.tensor([[0.0], [1.0]], dtype=torch.float64))


def trained_demo() -> Subject:
    """Three hidden layers of 16 units, and what they were before they learned two rings of points."""
    g = torch.Generator().manual_seed(0)
    angle = 2 * math.pi * torch.rand(200, generator=g, dtype=torch.float64)
    outer = torch.arange(200) % 2
    radius = 1.0 + outer + 0.1 * torch.randn(200, generator=g, dtype=torch.float64)
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        sizes = ((2, 16), (16, 16), (16, 16))
        layers = [layer for n, m in sizes for layer in (nn.Linear(n, m), nn.ReLU())]
        model = nn.Sequential(*layers, nn.Linear(16, 2)).double()
    initial = copy.deepcopy(model)
    batch = Batch((x,), outer)
    learn(model, risk(CLASSES), batch, steps=60)
    return Subject(model=model, initial=initial, test=[batch], task=CLASSES, objective=risk(CLASSES))
