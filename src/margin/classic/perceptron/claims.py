"""Novikoff's theorem (1962) and what else is true of the mistake rule: its lemmas, its span, its margin."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.classic.perceptron.averaged_perceptron import AveragedPerceptron
from margin.classic.perceptron.max_margin import MaximumMargin, maximum_margin
from margin.classic.perceptron.model import Perceptron, geometric_margin, mistakes_of_pass
from margin.classic.perceptron.separation import MOST_ENTRIES, MOST_ROWS, homogeneous, separate
from margin.core.findings import Finding, Premise, Subject, has_several_sizes
from margin.core.tasks import HALFSPACE
from margin.core.types import Batch
from margin.data.examples import InOrder
from margin.data.sets.tiny.tables import sides
from margin.engine import weighted_rows
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of

SCALES = (2.0**-20, 0.5, 2.0, 2.0**20)
"""Powers of 2, so that scaling itself rounds nothing."""


def training_rows(
    subject: Subject, most: int | None = None
) -> tuple[Float[Tensor, "rows features"], Int[Tensor, " rows"]]:
    """Features, as the catalog's model sees them, and labels of the training examples that count.

    Args:
        subject: One with training examples of one real input.
        most: Rows at most, drawn at random; all if not given.

    Returns:
        The rows in float64 and the labels, in the order of the examples, on the CPU; examples of weight 0 are
        left out.

    Raises:
        ValueError: The examples have no targets, or a weight is negative or not finite.
        NonFiniteError: A feature is not finite.
    """
    rows = weighted_rows.training_rows(subject, most=most)
    return rows.x.double(), rows.targets.long()


def has_rows(subject: Subject) -> bool:
    """Whether the examples are one real input each, all of one size, with a class."""
    first = subject.train[0] if len(subject.train) else None
    if first is None or first.targets is None or len(first.inputs) != 1:
        return False
    real = first.inputs[0].is_floating_point() and first.targets.ndim == 1
    return real and not has_several_sizes(subject)


class Course(NamedTuple):
    """A perceptron's course from zero: after each mistake, w* . w and |w|."""

    mistakes: int
    projection: Float[Tensor, " mistakes"]
    length: Float[Tensor, " mistakes"]
    converged: bool


def novikoff(subject: Subject, *, passes: int = 1000) -> Finding:
    """Whether a run of the rule from w = 0 makes no more mistakes than (R / gamma)^2.

    The run is in the model's own units, on its training examples in their order, with each vector
    augmented by a 1 for the bias: R^2 = max |x|^2 + 1, gamma the largest margin of the augmented set, or of
    more than MOST_ROWS examples the margin of a separator: the bound stays valid, and is looser.

    Args:
        subject: A perceptron with its training examples.
        passes: Passes after which a run that still errs is given up.
    """
    statement = (
        "The perceptron rule, from w = 0, makes at most (R / gamma)^2 mistakes on its training examples."
    )
    x, sign = augmented(subject)
    found = separate(sign[:, None] * x)
    if not found.separable:
        return Finding(
            statement=statement,
            value=torch.tensor(math.nan),
            unit="mistakes",
            range=(0.0, math.inf),
            premises=(found.premise,),
            failure="" if found.inseparable else found.evidence(),
        )
    course = run_rule(x, sign, found.weight, passes)
    # the division rounds: a bound of exactly n must not fall to n - 1
    bound = math.floor((found.radius / found.margin) ** 2 * (1 + 1e-9))
    return Finding(
        statement=statement,
        value=torch.tensor(course.mistakes),
        unit="mistakes",
        range=(0.0, math.inf),
        high=torch.tensor(bound),
        premises=(found.premise,),
        failure="" if course.converged else f"the rule still errs after {passes} passes",
        curves={
            "mistake": torch.arange(1, course.mistakes + 1),
            "projection": course.projection,
            "length": course.length,
        },
    )


def lemmas(subject: Subject, *, passes: int = 1000) -> Finding:
    """Whether Novikoff's two lemmas hold at every mistake t: w* . w_t >= t gamma, and |w_t| <= R sqrt(t).

    Args:
        subject: A perceptron with its training examples.
        passes: Passes of the run, if it errs so long.
    """
    x, sign = augmented(subject)
    found = separate(sign[:, None] * x)
    low, high = torch.tensor([1.0, 0.0]), torch.tensor([math.inf, 1.0])
    value, failure, curves = torch.full((2,), math.nan, dtype=torch.float64), "", {}
    if found.separable:
        course = run_rule(x, sign, found.weight, passes)
        t = torch.arange(1, course.mistakes + 1, dtype=torch.float64)
        least, most = t * found.margin, found.radius * t.sqrt()
        value = torch.stack(((course.projection / least).min(), (course.length / most).max()))
        curves = {
            "mistake": t,
            "w* . w": course.projection,
            "t gamma": least,
            "|w|": course.length,
            "R sqrt(t)": most,
        }
    elif not found.inseparable:
        failure = found.evidence()
    return Finding(
        statement="At every mistake t of the rule, w* . w is at least t gamma and |w| at most R sqrt(t).",
        value=value,
        range=(-math.inf, math.inf),
        low=low,
        high=high,
        tolerance=1e-9,
        premises=(found.premise,),
        reference="Novikoff 1962; Freund and Schapire 1999, Theorem 1 (its proof)",
        failure=failure,
        labels=("least w* . w / (t gamma)", "greatest |w| / (R sqrt(t))"),
        curves=curves,
    )


def span(subject: Subject, *, passes: int = 20) -> Finding:
    """Whether the rule's weights stay in the span of the examples, with whole mistake counts as coefficients.

    A run from w = 0 is compared with sum_i a_i y_i (x_i, 1), a_i the mistakes made at x_i so far, after every
    pass. The trained weights themselves are projected on the span, where that is not the whole space.

    Args:
        subject: A perceptron with its training examples.
        passes: Passes of the run.
    """
    x, sign = augmented(subject)
    w, counts, gap = torch.zeros_like(x[0]), torch.zeros_like(sign), 0.0
    for _ in range(passes):
        made = mistakes_of_pass(w[:-1], w[-1], x[:, :-1], sign)
        counts[made] += 1
        gap = max(gap, float((w - (counts * sign) @ x).norm() / w.norm().clamp(min=1e-300)))
        if len(made) == 0:
            break
    values, labels = [gap], ["the run's w less the sum of counts"]
    rank = int(torch.linalg.matrix_rank(x))
    trained = torch.cat((_weight(subject), _bias(subject)[None]))
    whole = f"their rank is {rank} of {x.shape[1]}"
    if rank < x.shape[1] and bool(trained.any()):
        coefficients = torch.linalg.lstsq(x.T, trained[:, None], driver="gelsd").solution[:, 0]
        values.append(float((trained - coefficients @ x).norm() / trained.norm()))
        labels.append("the trained weights less their projection on the span")
    return Finding(
        statement=f"The weights of the mistake rule lie in the span of {len(x)} examples (x, 1); {whole}.",
        value=torch.tensor(values, dtype=torch.float64),
        unit="|w|",
        range=(0.0, math.inf),
        equals=torch.zeros(len(values)),
        # the trained weights are sums rounded in their own type
        tolerance=100 * torch.finfo(next(core_of(subject.model).parameters()).dtype).eps,
        premises=(
            Premise("the rule begins at w = 0", "proved", "the run does, and so does every training of it"),
        ),
        reference="Novikoff 1962; Freund and Schapire 1999, Section 3 (the dual form)",
        labels=tuple(labels),
        curves={"mistakes of each example": counts},
    )


def margin(subject: Subject) -> Finding:
    """The geometric margin min_i y_i (w . x_i + b) / |w| of the training examples, and the largest there is.

    Negative where an example is on the wrong side. The upper bound is half the distance of two points of
    the classes' convex hulls, 0 where the hulls meet: it holds for every hyperplane.

    Args:
        subject: A halfspace with its training examples.
    """
    x, sign = signed_examples(subject)
    w, b = _weight(subject), _bias(subject)
    if not bool(w.any()):
        margins, failure = torch.full_like(sign, math.nan), "w = 0: there is no hyperplane"
    else:
        margins, failure = geometric_margin(w, b, x, sign), ""
    largest = _largest(x, sign)
    return Finding(
        statement=f"The least signed distance of {len(x)} training examples from the hyperplane, in the "
        "model's units, and that of the widest separator.",
        value=torch.stack([x.double() for x in (margins.min(), largest) if x is not None]),
        unit="distance",
        range=(-math.inf, math.inf),
        failure=failure,
        labels=("of this hyperplane", "the largest there is")[: 1 + (largest is not None)],
        curves={"margins": margins.sort().values, **plane(x, sign, w, b)},
    )


def scale(subject: Subject) -> Finding:
    """Whether (c w, c b), c > 0, is the same unit as (w, b): no side and no geometric margin changes.

    A changed side would be a relative change of 2.

    Args:
        subject: A halfspace with its training examples.
    """
    x, sign = signed_examples(subject)
    w, b = _weight(subject), _bias(subject)
    distance = geometric_margin(w, b, x, sign)
    moved = [(geometric_margin(c * w, c * b, x, sign) - distance).abs().max() for c in SCALES]
    return Finding(
        statement="Multiplying w and b by a positive number changes no geometric margin, so no side.",
        value=torch.stack(moved).max() / distance.abs().max().clamp(min=1e-300),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-12,
        reference="Cortes and Vapnik 1995, Section 2 (the canonical hyperplane)",
        failure="" if bool(w.any()) else "w = 0: there is no hyperplane",
    )


def _weight(subject: Subject) -> Float[Tensor, " features"]:
    return core_of(subject.model).get_parameter("weight").detach().double().cpu()


def _bias(subject: Subject) -> Float[Tensor, ""]:
    return core_of(subject.model).get_parameter("bias").detach().double().cpu()


def _largest(x: Float[Tensor, "rows features"], sign: Float[Tensor, " rows"]) -> Tensor | None:
    """An upper bound of every hyperplane's margin; None where it is not sought."""
    if len(x) > MOST_ROWS or x.numel() > MOST_ENTRIES or len(sign.unique()) < 2:
        return None
    if separate(homogeneous(x, sign)).inseparable:
        return torch.zeros(())
    try:
        return torch.tensor(maximum_margin(x, sign).bound)
    except (ValueError, ArithmeticError):
        return None


def plane(
    x: Float[Tensor, "rows features"],
    sign: Float[Tensor, " rows"],
    weight: Float[Tensor, " features"],
    bias: Float[Tensor, ""],
) -> dict[str, Tensor]:
    """What a report draws of a hyperplane in the plane, in the model's units; nothing in other dimensions.

    ``points`` (N, 2), ``labels`` (N,) in {0, 1}, ``boundary`` (2, 2): the ends of the line w . x + b = 0
    across the points, ``margin`` (2, 2, 2): the ends of its two parallels at the least margin.
    """
    if x.shape[1] != 2 or not bool(weight.any()):
        return {}
    unit = weight / weight.norm()
    along = torch.stack((-unit[1], unit[0]))
    center = x.mean(0)
    foot = center - (unit @ center + bias / weight.norm()) * unit
    half = 1.1 * (x - foot).norm(dim=1).max().clamp(min=1e-12)
    boundary = torch.stack((foot - half * along, foot + half * along))
    width = geometric_margin(weight, bias, x, sign).min()
    parallels = torch.stack((boundary - width * unit, boundary + width * unit))
    return {"points": x, "labels": (sign > 0).long(), "boundary": boundary, "margin": parallels}


def signed_examples(
    subject: Subject, most: int | None = None
) -> tuple[Float[Tensor, "rows features"], Float[Tensor, " rows"]]:
    """The training examples as the catalog's model sees them, and the side of each, -1 or +1; float64.

    Args:
        subject: A halfspace with its training examples.
        most: Examples at most, drawn at random; all if not given.

    Raises:
        ValueError: A label is neither 0 nor 1.
    """
    x, labels = training_rows(subject, most)
    if odd := labels[(labels != 0) & (labels != 1)].tolist():
        raise ValueError(f"the labels of a halfspace must be 0 or 1: got {odd[0]}")
    return x, 2.0 * labels.double() - 1


def augmented(subject: Subject) -> tuple[Float[Tensor, "rows augmented"], Float[Tensor, " rows"]]:
    """The training examples as the perceptron sees them, a 1 appended to each, and their signs; float64."""
    x, sign = signed_examples(subject)
    return torch.cat((x, torch.ones(len(x), 1, dtype=x.dtype)), 1), sign


def run_rule(
    x: Float[Tensor, "rows augmented"],
    sign: Float[Tensor, " rows"],
    unit: Float[Tensor, " augmented"],
    passes: int,
) -> Course:
    """The rule from w = 0 until a pass without a mistake; ``unit`` is the w* that the lemmas speak of."""
    w, made = torch.zeros_like(x[0]), torch.zeros(0, dtype=torch.long)
    projection, length = [], []
    for _ in range(passes):
        before = w.clone()
        made = mistakes_of_pass(w[:-1], w[-1], x[:, :-1], sign)
        path = before + (sign[made, None] * x[made]).cumsum(0)
        projection.append(path @ unit)
        length.append(path.norm(dim=1))
        if len(made) == 0:
            break
    whole = torch.cat(projection)
    return Course(len(whole), whole, torch.cat(length), len(made) == 0)


def is_halfspace(subject: Subject) -> bool:
    """Whether the model is one of the catalog's halfspaces: the perceptron, the averaged, the widest."""
    return isinstance(core_of(subject.model), Perceptron | AveragedPerceptron | MaximumMargin)


def demo() -> Subject:
    """An untrained perceptron on forty separable points: the theorem speaks of the rule and the data."""
    data = sides()
    batches = InOrder(data.splits["train"], 512)
    model = Perceptron(2, 2)
    return Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))


def trained_demo() -> Subject:
    """The same, trained until a pass makes no mistake."""
    return _trained(demo())


def long_demo() -> Subject:
    """Sixty Gaussian points of four dimensions that a hyperplane labels: some thirty mistakes."""
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    batches = [Batch((x,), (x[:, 0] > 0.3 * x[:, 1] + 0.2).long())]
    model = Perceptron(4, 2)
    return Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))


def wide_demo() -> Subject:
    """Six points in ten dimensions, labeled in turn, and the perceptron trained on them."""
    generator = torch.Generator().manual_seed(0)
    batches = [Batch((torch.randn(6, 10, generator=generator),), torch.arange(6) % 2)]
    model = Perceptron(10, 2)
    subject = Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))
    return _trained(subject)


@torch.no_grad()
def _trained(subject: Subject) -> Subject:
    model, (x, sign) = core_of(subject.model), signed_examples(subject)
    w, b = model.get_parameter("weight"), model.get_parameter("bias")
    for _ in range(1000):
        if len(mistakes_of_pass(w, b, x.to(w), sign.to(w))) == 0:
            break
    return subject
