"""Questions about a training set and hyperplanes: can one separate it, and how many of all would.

The conditions of Karush (1939), Kuhn and Tucker (1951), which single out the widest separator.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.classic.perceptron.claims import plane, signed_examples, training_rows
from margin.classic.perceptron.cover import separable_share
from margin.classic.perceptron.max_margin import MaximumMargin, maximum_margin
from margin.classic.perceptron.model import Perceptron
from margin.classic.perceptron.separation import (
    Separation,
    homogeneous,
    separate,
    sphere,
    version_space_counts,
    xor,
)
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import HALFSPACE
from margin.core.types import Batch
from margin.data.examples import InOrder
from margin.data.sets.tiny.tables import sides
from margin.engine.evaluation import ExampleSample, counts
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of

MOST_NUMBERS = 500_000
"""Numbers of the training set that are looked at, all classes together: some seconds' work."""

MOST_EXAMPLES = 5_000

DIRECTIONS = 20_000


def separable(subject: Subject) -> Finding:
    """Whether a hyperplane separates the training examples of each class from all others: 1 or 0 a class.

    Of a large set some are looked at, drawn at random: what no hyperplane separates, none does with more.
    Where the points (x, 1) are linearly independent they can be separated whatever their labels.

    Args:
        subject: Any model with training examples of one real input and a class each.
    """
    x, labels, words = _looked_at(subject)
    classes = labels.unique()
    against = classes[1:] if len(classes) == 2 else classes
    found = [separate(homogeneous(x, torch.where(labels == k, 1.0, -1.0).double())) for k in against]
    rank = int(torch.linalg.matrix_rank(homogeneous(x, torch.ones_like(x[:, 0]))))
    undecided = next((s.evidence() for s in found if not (s.separable or s.inseparable)), "")
    chance = float(separable_share(len(x), rank))
    names = tuple(_name(subject, int(k)) for k in against)
    return Finding(
        statement=f"{_told(found, names)} of {words}; labels by coins would be with probability "
        f"{chance:.3g}, in general position (Cover). {_worst(found)}",
        value=torch.tensor([int(s.separable) for s in found]),
        range=(0.0, 1.0),
        failure=undecided if len(classes) > 1 else "the examples looked at are all of one class",
        labels=names,
    )


def version_space(subject: Subject) -> Finding:
    """Whether the version space {(w, b): y_i (w . x_i + b) > 0 for all i} only shrinks as examples are added.

    A fixed sample of directions of the sphere estimates its share of all; it grows at no example.

    Args:
        subject: A halfspace with its training examples.
    """
    z = homogeneous(*signed_examples(subject, max(1, MOST_NUMBERS // _width(subject))))
    directions = sphere(z.shape[1], DIRECTIONS, torch.Generator().manual_seed(0))
    counts = version_space_counts(z, directions)
    before = torch.cat((counts.new_tensor([DIRECTIONS]), counts[:-1]))
    return Finding(
        statement=f"Of {DIRECTIONS:,} directions (w, b) drawn from the sphere {int(counts[-1]):,} separate "
        f"{_words(subject, len(z))}; the number grows at no example.",
        value=(counts - before).max(),
        unit="directions",
        range=(-float(DIRECTIONS), float(DIRECTIONS)),
        high=torch.zeros(()),
        reference="Mitchell 1982, Section 3 (version spaces); Herbrich 2002, Section 2.1",
        curves={"examples": torch.arange(1, len(z) + 1), "share": counts / DIRECTIONS},
    )


def _looked_at(subject: Subject) -> tuple[Float[Tensor, "rows features"], Int[Tensor, " rows"], str]:
    """As many training examples as are looked at, and which these are, in words."""
    width = _width(subject)
    most = max(1, min(MOST_EXAMPLES, MOST_NUMBERS // width))
    x, labels = training_rows(subject, most)
    classes = len(labels.unique())
    fewer = max(1, min(most, MOST_NUMBERS // (width * classes))) if classes > 2 else most
    if fewer < len(x):
        x, labels = training_rows(subject, fewer)
    return x, labels, _words(subject, len(x))


def _words(subject: Subject, taken: int) -> str:
    """Which of the training examples so many are."""
    among = sum(int(counts(batch).sum()) for batch in subject.train)
    return (
        f"the {taken:,} training examples"
        if taken == among
        else ExampleSample((), taken, among).words("training")
    )


def _width(subject: Subject) -> int:
    """The numbers of an example and its 1."""
    return subject.train[0].inputs[0][0].numel() + 1


def _told(found: list[Separation], names: Sequence[str]) -> str:
    """How many of the classes a hyperplane separates from the rest, and which it does not."""
    apart = sum(s.separable for s in found)
    short = [name for s, name in zip(found, names, strict=True) if not s.separable]
    but = f"; {', '.join(short[:5])}{' and others' if len(short) > 5 else ''} not" if short else ""
    number = f"{apart} of {len(found)} classes" if len(found) > 1 else names[0]
    if len(found) == 1:
        return f"{number} is {'' if apart else 'not '}separated by a hyperplane from the rest"
    return f"{number} are separated, each by a hyperplane, from the rest{but}"


def _worst(found: list[Separation]) -> str:
    """Why the first class that cannot be separated cannot, or what proves that all can."""
    return f"{next((s for s in found if not s.separable), found[0]).evidence()}."


def _name(subject: Subject, label: int) -> str:
    return subject.class_names[label] if label < len(subject.class_names) else f"class {label}"


def xor_demo() -> Subject:
    """The four points of XOR: no hyperplane separates them."""
    x, sign = xor()
    return _asked([Batch((x.float(),), (sign > 0).long())])


def version_space_demo() -> Subject:
    """Twenty-four points separable with margin 0.2."""
    return _asked(InOrder(sides().splits["train"], 512))


def _asked(batches: Sequence[Batch]) -> Subject:
    model = Perceptron(2, 2)
    return Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))


def optimality(subject: Subject) -> Finding:
    r"""Whether (w, b) and the multipliers a satisfy the conditions that single out the widest separator.

    Relative to \|w\| and to sum a: w = sum_i a_i y_i x_i; sum_i a_i y_i = 0; y_i (w . x_i + b) >= 1 for all,
    and equal to 1 where a_i > 0. The problem is convex, so they suffice.

    Args:
        subject: A maximum-margin separator with its training examples.
    """
    x, sign = signed_examples(subject)
    core = core_of(subject.model)
    w, b, a = (core.state_dict()[name].double().cpu() for name in ("weight", "bias", "multipliers"))
    solved, matches = bool((a > 0).any()), len(a) == len(x)
    if solved and matches:
        slack = sign * (x @ w + b) - 1
        value = torch.stack(
            (
                ((a * sign) @ x - w).norm() / w.norm(),
                (a @ sign).abs() / a.sum(),
                (-slack).clamp(min=0).max(),
                (a * slack).abs().sum() / a.sum(),
            )
        )
    else:
        value = torch.full((4,), torch.nan, dtype=torch.float64)
    failure = "" if matches else f"it has {len(a)} multipliers for {len(x)} training examples"
    # the weights are kept in the model's type: a score carries the rounding of |w| |x|
    eps = torch.finfo(next(core.parameters()).dtype).eps
    reach = float(w.norm() * x.norm(dim=1).max() + b.abs() + 1)
    return Finding(
        statement="w = sum a y x, sum a y = 0, every example at 1 or beyond, those of a > 0 exactly at 1.",
        value=value,
        range=(0.0, torch.inf),
        equals=torch.zeros(4),
        tolerance=16 * eps * reach,
        premises=(
            Premise(
                "every multiplier is at least 0",
                "proved" if bool((a >= 0).all()) else "refuted",
                f"the least is {float(a.min()):.3g}",
            ),
        ),
        reference="Karush 1939; Kuhn and Tucker 1951, Theorem 3; Cortes and Vapnik 1995, Appendix A.1",
        failure=failure or ("" if solved else "every multiplier is 0: it is not trained"),
        labels=("w less its sum", "sum of a y", "shortest example", "slack at support vectors"),
        curves={**plane(x, sign, w, b), "support vectors": x[a > 0]} if matches else {},
    )


@torch.no_grad()
def demo() -> Subject:
    """The widest separator of forty points whose largest margin is 0.2."""
    data = sides()
    batches = InOrder(data.splits["train"], 512)
    model = MaximumMargin(2, 2, len(data.splits["train"]))
    subject = Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))
    found = maximum_margin(*signed_examples(subject))
    model.weight.copy_(found.weight)
    model.bias.copy_(found.bias)
    model.multipliers.copy_(found.multipliers)
    return subject
