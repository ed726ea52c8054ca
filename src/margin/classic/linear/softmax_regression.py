"""Softmax regression (Cox 1966): logits affine in the features, of largest penalized likelihood.

The solver is scikit-learn's L-BFGS; what is added is one scaling of the penalty for two classes and for more,
and a refusal where there is no maximum.
"""

import warnings
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.linear.rows import Matrix, Vector, rows_of
from margin.core.tasks import class_loss, class_margins
from margin.core.types import Batch, ClassScores, Metrics
from margin.engine.loop import State, Step

MOST_ITERATIONS = 10_000
"""Iterations of L-BFGS that the solver is given."""


class SoftmaxRegression(nn.Module):
    r"""Class probabilities softmax(W x + b) that minimize (1/n) sum_i -log p(y_i) + (lambda/2) \|W\|^2.

    b is not penalized. With a penalty the minimum exists and is unique, up to a constant in b; without, it
    exists unless an affine map separates the classes, with ties or without; only a map without ties is
    noticed, and refused.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of classes, at least 2.
        penalty: lambda, at least 0.
        tolerance: Largest coordinate of the gradient at which the solver stops, above 0.

    Raises:
        ValueError: There are fewer than two classes, the penalty is negative, or the tolerance not positive.

    Reference:
        Cox 1966, Section 4; Hastie, Tibshirani and Friedman 2009, Equations 4.17 and 18.11 (the penalty).
    """

    def __init__(
        self, in_features: int, num_classes: int, *, penalty: float = 1e-3, tolerance: float = 1e-5
    ) -> None:
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"num_classes must be at least 2: got {num_classes}")
        if not 0 <= penalty < float("inf"):
            raise ValueError(f"penalty must be at least 0 and finite: got {penalty}")
        if not tolerance > 0:
            raise ValueError(f"tolerance must be positive: got {tolerance}")
        self.penalty, self.tolerance = penalty, tolerance
        self.weight = nn.Parameter(torch.zeros(num_classes, in_features))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The logits of each row."""
        return x.flatten(1) @ self.weight.T + self.bias


def solve_softmax(  # 6 parameters: the examples, how many classes, and the two of the solver
    X: Matrix, labels: Vector, weight: Vector, classes: int, penalty: float, tolerance: float
) -> tuple[Float[Tensor, "classes features"], Float[Tensor, " classes"]]:
    """W and b of least penalized cross-entropy, in float64.

    Args:
        X: Features, one example a row.
        labels: 0 .. classes - 1, each at least once.
        weight: How much each row counts, positive.
        classes: Number of classes.
        penalty: lambda, at least 0.
        tolerance: Largest coordinate of the gradient at which the solver stops.

    Raises:
        ValueError: A label is no class, a class has no example, the solver did not converge, or without a
            penalty the classes are separable, so that the loss has no minimum.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression as Wrapped

    wrong = labels[(labels < 0) | (labels >= classes) | (labels != labels.round())]
    if len(wrong):
        raise ValueError(f"labels must be whole numbers from 0 to {classes - 1}: got {float(wrong[0]):g}")
    absent = sorted(set(range(classes)) - set(labels.long().tolist()))
    if absent:
        raise ValueError(f"every class must have an example of weight above 0: class {absent[0]} has none")
    # two classes share one w for scikit-learn; as rows -w/2 and w/2 their squares sum to half of |w|^2
    share = penalty * float(weight.sum()) / (2 if classes == 2 else 1)
    solver = Wrapped(C=1 / share if share else float("inf"), tol=tolerance, max_iter=MOST_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            found = solver.fit(X.cpu().numpy(), labels.long().cpu().numpy(), weight.cpu().numpy())
        except ConvergenceWarning:
            raise ValueError(
                f"softmax regression must converge in {MOST_ITERATIONS} iterations: it did not with "
                f"penalty={penalty:g}; raise the penalty or the tolerance"
            ) from None
    W, b = (torch.from_numpy(array).to(X) for array in (found.coef_, found.intercept_))
    if classes == 2:
        W, b = torch.cat((-W, W)) / 2, torch.cat((-b, b)) / 2
    if not penalty and bool((class_margins(X @ W.T + b, labels.long()) > 0).all()):
        raise ValueError(
            "without a penalty the likelihood of separable classes has no maximum: got classes that an "
            "affine map separates; give a penalty above 0"
        )
    return W, b


def penalized_likelihood() -> Step:
    """One solve on the batch: the weights of least penalized cross-entropy."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, labels, weight = rows_of(state, batch, learner="softmax regression")
        model: Any = state.core
        W, b = solve_softmax(x, labels, weight, len(model.bias), model.penalty, model.tolerance)
        model.weight.copy_(W)
        model.bias.copy_(b)
        losses = class_loss(x @ W.T + b, labels.long())
        return {"loss": (weight * losses).sum() / weight.sum()}

    return step
