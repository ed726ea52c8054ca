r"""The mean loss as a function of the weights, and its constants where the outputs are affine in them.

Where the outputs are affine in the weights (linear, logistic and softmax regression, a net whose last map
alone is trained) and the loss is convex in the outputs, the mean loss is convex, and L-smooth with an L that
the data give: of the logistic loss lambda_max(X'X) / (4 N) (Bohning 1992).
"""

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.func import functional_call

from margin.core.findings import Premise, Subject
from margin.core.tasks import Task, binary_loss, class_loss, squared_error
from margin.core.types import Batch, Objective
from margin.engine.evaluation import eval_mode, weighted_sum
from margin.engine.loop import Risk
from margin.theory.curvature.diagonal import FEW, as_symmetric
from margin.theory.curvature.hessian import risk_hessian
from margin.theory.curvature.lanczos import extreme_eigenvalues

LARGEST = 100_000
"""Weights of the largest model whose outputs are tested for being affine in them."""

PROBED = 64
"""Examples on which they are."""

CURVATURE = {squared_error: 2.0, binary_loss: 1 / 4, class_loss: 1 / 2}
"""The largest second derivative of a loss by its outputs; of the cross-entropy, across logits of mean 0."""


class WeightFunction:
    """The mean loss sum(w l) / sum(w) as a function of the trainable weights, in float64, on a copy.

    Args:
        model: The module; it is copied.
        batches: The examples.
        objective: The loss of each term.
    """

    def __init__(self, model: nn.Module, batches: Sequence[Batch], objective: Objective) -> None:
        self.model = copy.deepcopy(model).double().eval()
        device = next(self.model.parameters()).device
        self.batches = [batch.to(dtype=torch.float64, device=device) for batch in batches]
        self.objective = objective
        self.names = [name for name, p in self.model.named_parameters() if p.requires_grad]

    @property
    def weights(self) -> Float[Tensor, " dim"]:
        """The model's own weights."""
        return self.of(self.model)

    def of(self, model: nn.Module) -> Float[Tensor, " dim"]:
        """The weights of another model of the same kind, as a vector."""
        parameters = dict(model.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1).double() for name in self.names])

    def __call__(self, theta: Float[Tensor, " dim"]) -> Float[Tensor, ""]:
        """The mean loss at these weights."""
        sums = torch.zeros(2, dtype=torch.float64, device=theta.device)
        bound = _Bound(self.model, _unflattened(self.model, self.names, theta))
        for batch in self.batches:
            terms = self.objective(bound, batch, Generator().manual_seed(0))
            sums = sums + torch.stack(weighted_sum(terms, batch.weight))
        return sums[0] / sums[1]


class _Bound(nn.Module):
    """A model with other weights than its own."""

    def __init__(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self._asked = (model, weights)  # a tuple: neither is a submodule or a parameter of this one

    def forward(self, *inputs: Tensor) -> Tensor:
        model, weights = self._asked
        return functional_call(model, weights, inputs)


def _unflattened(model: nn.Module, names: Sequence[str], theta: Tensor) -> dict[str, Tensor]:
    own = dict(model.named_parameters())
    parts = theta.split([own[name].numel() for name in names])
    return {name: part.view_as(own[name]) for name, part in zip(names, parts, strict=True)}


def loss_of(subject: Subject) -> Task | None:
    """The task whose own loss the objective is, and convex in the outputs; None where there is none."""
    objective = subject.objective
    own = isinstance(objective, Risk) and objective.task.loss in CURVATURE
    return objective.task if own and isinstance(objective, Risk) else None


def is_affine(subject: Subject) -> bool:
    """Whether the outputs are affine in the weights, and the loss is squared or a cross-entropy of them.

    Affine is what agrees, on a few examples, with its differences along random directions of the size of the
    weights: of other models it fails with probability 1 but for rounding.
    """
    trained = [p for p in subject.model.parameters() if p.requires_grad]
    count, batches = sum(p.numel() for p in trained), subject.train or subject.test
    if loss_of(subject) is None or not 0 < count <= LARGEST or not len(batches):
        return False
    inputs = tuple(x[:PROBED] if subject.independent else x for x in batches[0].inputs)
    names = [name for name, p in subject.model.named_parameters() if p.requires_grad]
    theta = torch.cat([p.detach().reshape(-1) for p in trained])
    draws = torch.randn(2, count, generator=Generator().manual_seed(1847), dtype=torch.float64).to(theta)
    a, b = draws * (1 + theta.abs())
    with eval_mode(subject.model), torch.no_grad():
        moved = (theta, theta + a, theta + b, theta + a + b, theta + 2 * a)
        values = [
            functional_call(subject.model, _unflattened(subject.model, names, at), inputs) for at in moved
        ]
    if not all(isinstance(v, Tensor) and v.is_floating_point() and bool(v.isfinite().all()) for v in values):
        return False
    f, f_a, f_b, f_ab, f_aa = (v.double() for v in values)
    scale = torch.stack((f, f_a, f_b, f_ab, f_aa)).abs().max()
    off = torch.stack((f_ab - f_a - f_b + f, f_aa - 2 * f_a + f)).abs().max()
    # Sums over a layer's inputs may cancel: the rounding is of the terms, not of the sum.
    return bool(off <= 1e3 * torch.finfo(theta.dtype).eps * scale)


def is_affine_squared(subject: Subject) -> bool:
    """Whether the mean loss is a quadratic of few weights, whose curvatures can be written down."""
    task = loss_of(subject)
    count = sum(p.numel() for p in subject.model.parameters() if p.requires_grad)
    return task is not None and task.loss is squared_error and count <= FEW and is_affine(subject)


class Curved(NamedTuple):
    """What is known of the mean loss of an affine model.

    Args:
        L: A constant of smoothness that holds everywhere.
        matrix: The matrix that bounds every Hessian, where it was written down; of the squared error it is
            the Hessian. Of order 0 else.
        premises: That the loss is convex, and L-smooth.
        failure: Why there is no L; "" where there is one.
    """

    L: float
    matrix: Float[Tensor, "dim dim"]
    premises: tuple[Premise, ...]
    failure: str


def curved(h: WeightFunction, task: Task) -> Curved:
    r"""The smoothness of the mean loss of a model whose outputs f are affine in the weights.

    .. math:: \nabla^2 h \preceq \frac cN J^\top P J, \qquad
        c = 2 \text{ (squared)}, \tfrac14 \text{ (binary)}, \tfrac12 \text{ (classes)}

    with J the Jacobian of the outputs, and P the centering of the logits for several classes.

    Args:
        h: The mean loss.
        task: Whose loss it is.

    Reference: Bohning 1992, Section 2; Nesterov 2018, Lemma 1.2.2.
    """
    if task.loss is None:
        raise ValueError(f"the task {task.name!r} has no loss")
    c = CURVATURE[task.loss]

    def bounding(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        f = model(*batch.inputs)
        if task.loss is class_loss:
            return c / 2 * (f - f.mean(-1, keepdim=True)).square().sum(-1)
        return c / 2 * f.square()

    affine = Premise(
        "the outputs are affine in the weights, and the loss is convex in the outputs",
        "sampled",
        f"differences along random directions of weight space, on {PROBED} examples at most",
    )
    words = "the largest eigenvalue of a matrix that is nowhere below the Hessian"
    A = torch.zeros(0, 0, dtype=torch.float64)
    with risk_hessian(h.model, h.batches, bounding) as product:
        if product.dim <= FEW:
            A = as_symmetric(product, product.dim, device=product.device)
            L, failure = float(torch.linalg.eigvalsh(A)[-1]) if bool(A.isfinite().all()) else math.nan, ""
            smooth = Premise("the gradient is L-Lipschitz", "proved", f"{words}, written down")
        else:
            ends = extreme_eigenvalues(product, product.start(), ends=("largest",), tol=1e-4, share=0.5)
            L = float(ends.values[0] + ends.residuals[0])
            failure = "" if ends.converged else "the Lanczos process did not converge"
            smooth = Premise("the gradient is L-Lipschitz", "sampled", f"{words}, by Lanczos' process")
    if not failure and not 0 < L < math.inf:
        failure = "the outputs do not depend on the weights" if L <= 0 else "the outputs are not finite"
    # a promise that rounding cannot break
    return Curved(L * (1 + 1e-9), A, (affine, smooth), failure)
