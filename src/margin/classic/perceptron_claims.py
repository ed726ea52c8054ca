"""Novikoff's theorem (1962): on separable data the perceptron makes at most (R / gamma)^2 mistakes."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.perceptron import Perceptron, mistakes_of_pass
from margin.data.examples import InOrder
from margin.data.tiny import sides
from margin.engine.asking import asking
from margin.engine.descent import risk
from margin.engine.state import Preprocessed
from margin.findings import Finding, Premise, Subject
from margin.tasks import HALFSPACE

MOST_EXACT = 5000
"""Examples up to which the largest margin is sought; above, any separator's serves, and loosens the bound."""

REFERENCE = "Novikoff 1962; Freund and Schapire 1999, Theorem 1"


class Course(NamedTuple):
    """A perceptron's course from zero: after each mistake, w* . w and |w|."""

    mistakes: int
    projection: Float[Tensor, " mistakes"]
    length: Float[Tensor, " mistakes"]
    converged: bool


def novikoff(subject: Subject, *, passes: int = 1000) -> Finding:
    """Whether a run of the rule from w = 0 makes no more mistakes than (R / gamma)^2.

    The run is in the model's own units, on its training examples in their order, with each vector
    augmented by a 1 for the bias: R^2 = max |x|^2 + 1, gamma the largest margin of the augmented set.

    Args:
        subject: A perceptron with its training examples.
        passes: Passes after which a run that still errs is given up.
    """
    x, sign = augmented(subject)
    separator = separating(x, sign)
    statement = (
        "The perceptron rule, from w = 0, makes at most (R / gamma)^2 mistakes on its training examples."
    )
    if separator is None:
        premise = Premise(
            "some hyperplane separates the examples", "refuted", "the linear program is infeasible"
        )
        return _finding(statement, torch.tensor(math.nan), (premise,))
    gamma = float((sign * (x @ separator)).min() / separator.norm())
    radius = float(x.norm(dim=1).max())
    course = run_rule(x, sign, separator / separator.norm(), passes)
    failure = "" if course.converged else f"the rule still errs after {passes} passes"
    # the division rounds: a bound of exactly n must not fall to n - 1
    bound = math.floor((radius / gamma) ** 2 * (1 + 1e-9))
    how = "largest margin" if len(x) <= MOST_EXACT else "margin of a separator, a lower bound of the largest"
    premise = Premise(
        "some hyperplane separates the examples", "proved", f"{how}: gamma = {gamma:.4g}, R = {radius:.4g}"
    )
    curves = {"projection": course.projection, "length": course.length}
    value = torch.tensor(course.mistakes)
    return _finding(statement, value, (premise,), high=torch.tensor(bound), failure=failure, curves=curves)


def _finding(
    statement: str,
    value: Tensor,
    premises: tuple[Premise, ...],
    *,
    high: Tensor | None = None,
    failure: str = "",
    curves: dict[str, Tensor] | None = None,
) -> Finding:
    return Finding(
        statement=statement,
        value=value,
        unit="mistakes",
        range=(0.0, math.inf),
        high=high,
        failure=failure,
        premises=premises,
        reference=REFERENCE,
        curves=curves or {},
    )


def augmented(subject: Subject) -> tuple[Float[Tensor, "rows augmented"], Float[Tensor, " rows"]]:
    """The training examples as the perceptron sees them, a 1 appended to each, and their signs; float64."""
    model = subject.model
    rows, signs = [], []
    with torch.no_grad(), asking(model):
        for batch in subject.train:
            if batch.targets is None:
                raise ValueError("the training examples have no targets")
            x = batch.inputs[0]
            x = model.preprocess(x) if isinstance(model, Preprocessed) else x
            rows.append(x.flatten(1).double())
            signs.append(2.0 * batch.targets.double() - 1)
    x = torch.cat(rows).cpu()
    return torch.cat((x, torch.ones(len(x), 1, dtype=x.dtype)), 1), torch.cat(signs).cpu()


def separating(
    x: Float[Tensor, "rows augmented"], sign: Float[Tensor, " rows"]
) -> Float[Tensor, " augmented"] | None:
    """A w with y (w . x) > 0 for every row, of the largest margin where that is sought, or None.

    Whether there is one is decided by a linear program, y (w . x) >= 1; the largest margin is then a
    support-vector machine's, and if rounding leaves that one no separator, the program's serves.
    """
    from scipy.optimize import linprog
    from sklearn.svm import SVC

    signed = (sign[:, None] * x).numpy()
    program = linprog(
        c=[0.0] * x.shape[1], A_ub=-signed, b_ub=[-1.0] * len(x), bounds=(None, None), method="highs"
    )
    if not program.success:
        return None
    feasible = torch.tensor(program.x)
    if len(x) > MOST_EXACT:
        return feasible
    # both signs of every row: the machine's own intercept is 0 by symmetry
    both = torch.cat((x, -x)).numpy()
    labels = torch.cat((sign, -sign)).numpy()
    machine = SVC(kernel="linear", C=1e10, tol=1e-8, random_state=0).fit(both, labels)
    widest = torch.tensor(machine.coef_[0], dtype=torch.float64)
    margins = [float((sign * (x @ w)).min() / w.norm()) for w in (widest, feasible)]
    return widest if margins[0] >= margins[1] else feasible


def run_rule(
    x: Float[Tensor, "rows augmented"],
    sign: Float[Tensor, " rows"],
    unit: Float[Tensor, " augmented"],
    passes: int,
) -> Course:
    """The rule from w = 0 until a pass without a mistake; ``unit`` is the w* that the lemmas speak of."""
    w = torch.zeros_like(x[0])
    history: list[Tensor] = []
    for _ in range(passes):
        made = mistakes_of_pass(w[:-1], w[-1], x[:, :-1], sign)
        steps = sign[made, None] * x[made]
        history.append(steps)
        if len(made) == 0:
            break
    path = torch.cat(history).cumsum(0)
    return Course(len(path), path @ unit, path.norm(dim=1), len(history[-1]) == 0)


def is_perceptron(subject: Subject) -> bool:
    """Whether the model is the catalog's perceptron."""
    model: nn.Module = subject.model
    core = model.model if isinstance(model, Preprocessed) else model
    return isinstance(core, Perceptron)


def demo() -> Subject:
    """An untrained perceptron on forty separable points: the theorem speaks of the rule and the data."""
    data = sides()
    batches = InOrder(data.splits["train"], 512)
    model = Perceptron(2, 2)
    return Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))
