"""The maximum-margin separator (Vapnik and Lerner 1963): the hyperplane farthest from both classes."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.perceptron.model import rows_of
from margin.classic.perceptron.separation import RESOLUTION, homogeneous, nearest_point, separate
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step

OFFSET = 30.0
"""The coordinate appended for the bias, in radii: the larger, the less the bias is penalized."""

GAP = 1e-6
"""The relative gap between a margin and its upper bound below which it counts as the largest."""


class MaximumMargin(nn.Module):
    r"""The halfspace of largest margin: min \|w\|^2 / 2 such that y_i (w . x_i + b) >= 1 for every example.

    Its margin is 1 / \|w\|, and w = sum_i a_i y_i x_i with a_i >= 0, positive at support vectors only.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Must be 2: class 1 is the positive side.
        num_examples: Number of training examples, each of which has a multiplier a_i.

    Raises:
        ValueError: There are not two classes.

    Reference:
        Vapnik and Lerner 1963; Cortes and Vapnik 1995, Section 2.
    """

    def __init__(self, in_features: int, num_classes: int, num_examples: int) -> None:
        super().__init__()
        if num_classes != 2:
            raise ValueError(f"a hyperplane separates two classes: got num_classes={num_classes}")
        self.weight = nn.Parameter(torch.zeros(in_features))
        self.bias = nn.Parameter(torch.zeros(()))
        self.multipliers: Tensor
        self.register_buffer("multipliers", torch.zeros(num_examples))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The signed score of each row; its sign is the side."""
        return x.flatten(1) @ self.weight + self.bias


class Widest(NamedTuple):
    """The canonical (w, b), the multipliers, and where the largest margin lies: [margin, bound]."""

    weight: Float[Tensor, " features"]
    bias: Float[Tensor, ""]
    multipliers: Float[Tensor, " rows"]
    margin: float
    bound: float


def maximum_margin(x: Float[Tensor, "rows features"], sign: Float[Tensor, " rows"]) -> Widest:
    r"""The separator of largest margin, by its dual: the two closest points of the classes' convex hulls.

    Nonnegative least squares find the support vectors, with the bias all but unpenalized; the conditions of
    optimality on these, a linear system, then give (w, b) and a to rounding. Half the distance of any two
    points of the hulls bounds every margin: [margin, bound] holds whatever the solver did.
    ``sklearn.svm.SVC(kernel="linear", C=1e10)`` solves the same problem less exactly.

    Args:
        x: Rows of features; computed in float64.
        sign: The side y of each row, -1 or +1.

    Raises:
        ValueError: One side is empty, or no hyperplane separates the two.
        ArithmeticError: The bound stays more than GAP above the margin.

    Reference:
        Lawson and Hanson 1974, Chapter 23; Cortes and Vapnik 1995, Section 2; Bennett and Bredensteiner 2000.
    """
    x, sign = x.double().cpu(), sign.double().cpu()
    if not (bool((sign > 0).any()) and bool((sign < 0).any())):
        raise ValueError(f"a margin lies between two classes: got {len(sign)} examples of one")
    center = (x[sign > 0].mean(0) + x[sign < 0].mean(0)) / 2
    scale = (x - center).norm(dim=1).max()
    scaled = (x - center) / scale.where(scale > 0, 1)
    first = nearest_point(homogeneous(scaled / OFFSET, sign)).combination
    found = max(
        (_evaluated(scaled, sign, a) for a in (first, _on_support(scaled, sign, first))), key=_closeness
    )
    if not found.margin > RESOLUTION and not (proof := separate(homogeneous(scaled, sign))).separable:
        raise ValueError(
            f"the largest margin needs two classes that a hyperplane separates: {proof.evidence()}"
        )
    if not found.margin * (1 + GAP) >= found.bound:
        gap = f"got {found.margin:.3g} and the bound {found.bound:.3g}, in radii; standardize the features"
        raise ArithmeticError(f"the largest margin must be proved to {GAP:g}: {gap}")
    weight = found.weight / scale
    bias = found.bias - weight @ center
    return Widest(
        weight, bias, found.multipliers / scale**2, found.margin * float(scale), found.bound * float(scale)
    )


def _closeness(found: Widest) -> float:
    return found.margin / found.bound if found.bound > 0 else -1.0


def _on_support(
    x: Float[Tensor, "rows features"], sign: Float[Tensor, " rows"], a: Float[Tensor, " rows"]
) -> Float[Tensor, " rows"]:
    """The multipliers that put every support vector of ``a`` on the margin; a negative one is made 0."""
    support = a.nonzero()[:, 0]
    signed, y = sign[support, None] * x[support], sign[support, None]
    system = torch.cat((torch.cat((signed @ signed.T, y), 1), torch.cat((y.T, y.new_zeros(1, 1)), 1)))
    wanted = torch.cat((torch.ones_like(y), y.new_zeros(1, 1)))
    solved = torch.linalg.lstsq(system, wanted, driver="gelsd").solution[:-1, 0]
    return torch.zeros_like(a).index_copy(0, support, solved.clamp(min=0))


def _evaluated(
    x: Float[Tensor, "rows features"], sign: Float[Tensor, " rows"], a: Float[Tensor, " rows"]
) -> Widest:
    """The two bounds and the canonical separator that multipliers give, those of a class scaled to sum 1."""
    positive, negative = a.where(sign > 0, 0), a.where(sign < 0, 0)
    if not (bool(positive.any()) and bool(negative.any())):
        return Widest(torch.zeros_like(x[0]), x.new_zeros(()), a, -torch.inf, torch.inf)
    normal = (positive / positive.sum() - negative / negative.sum()) @ x
    length = float(normal.norm())
    score = x @ normal
    above, below = score[sign > 0].min(), score[sign < 0].max()
    half = (above - below) / 2
    weight, bias = normal / half, -(above + below) / 2 / half
    # w = sum a y x: the normal is that sum for multipliers of sum 1 on either side
    multipliers = (positive / positive.sum() + negative / negative.sum()) / half
    return Widest(weight, bias, multipliers, float(half) / length if length > 0 else -torch.inf, length / 2)


def widest_margin() -> Step:
    """One exact solve on the batch: the hyperplane of largest margin.

    An example of weight 0 is left out; any other weight changes nothing, as every example must be right.
    """

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        model: Any = state.core
        if len(batch.inputs[0]) != len(model.multipliers):
            raise ValueError(
                "the largest margin is that of all training examples: "
                f"got {len(batch.inputs[0])} of {len(model.multipliers)}; leave batch_size at all"
            )
        rows = rows_of(state, batch)
        found = maximum_margin(rows.x, rows.sign.sign())
        model.weight.copy_(found.weight)
        model.bias.copy_(found.bias)
        model.multipliers.zero_()
        model.multipliers[rows.places] = found.multipliers.to(model.multipliers)
        supports = float((found.multipliers > 0).sum())
        return {"geometric_margin": found.margin, "support_vectors": supports}

    return step
