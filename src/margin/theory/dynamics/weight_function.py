"""The mean loss as a function of the weights, and its constants where the outputs are affine in them.

Where the outputs are affine in the weights (linear, logistic and softmax regression, a net whose last map
alone is trained) and the loss is convex in the outputs, the mean loss is convex, and L-smooth with an L that
the data give: of the logistic loss lambda_max(X'X) / (4 N) (Bohning 1992).

Of two weights the paths of optimizers are drawn, and how the minimum reached depends on the start.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.func import functional_call

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES, Task, class_loss, squared_error
from margin.core.types import Batch, Objective
from margin.engine.evaluation import copied, weighted_sum
from margin.engine.loop import risk
from margin.math.convexity.functions import Function, curvatures
from margin.math.convexity.landscapes import landscape
from margin.optim.momentum import HeavyBall, Nesterov
from margin.theory.curvature.convex import CURVATURE, PROBED, is_affine, loss_of, unflattened
from margin.theory.curvature.hessian import risk_hessian
from margin.theory.curvature.hutchinson import FEW, as_symmetric
from margin.theory.curvature.lanczos import extreme_eigenvalues
from margin.theory.curvature.trained_weights import differentiated
from margin.theory.dynamics.rates import Make, Path, follow


class WeightFunction:
    """The mean loss sum(w l) / sum(w) as a function of the trainable weights, in float64, on a copy.

    Args:
        model: The module; it is copied.
        batches: The examples.
        objective: The loss of each term.
    """

    def __init__(self, model: nn.Module, batches: Sequence[Batch], objective: Objective) -> None:
        self.model = copied(model).double().eval()
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
        bound = _Bound(self.model, unflattened(self.model, self.names, theta))
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


STEPS = 60
SIDE = 45
"""Points of the surface along each axis."""


def customary(f: Function, start: Float[Tensor, " dim"]) -> dict[str, Make]:
    """Gradient descent, heavy ball, Nesterov's method and Adam with rates from the curvature at the start.

    Args:
        f: The function, twice differentiable.
        start: Where they will begin.
    """
    found = curvatures(f, start[None])[0].abs().max()
    lr = 1 / float(found) if bool(found > 0) and bool(found.isfinite()) else 0.1
    slope = torch.linalg.vector_norm(torch.func.grad(f)(start))
    far = float(slope) * lr or 0.1
    return {
        "gradient descent": lambda ps: torch.optim.SGD(ps, lr=lr),
        "heavy ball": lambda ps: HeavyBall(ps, lr=lr, momentum=0.9),
        "Nesterov": lambda ps: Nesterov(ps, lr=lr, momentum="convex"),
        "Adam": lambda ps: torch.optim.Adam(ps, lr=far),
    }


def window_of(paths: Mapping[str, Path], room: float = 0.15) -> Float[Tensor, "2 2"]:
    """A box that holds the paths and some room, low and high of each axis.

    Iterates more than twice as high above the lowest as the start is are not counted.

    Args:
        paths: Of two coordinates each.
        room: What is added on each side, as a share of the larger side.
    """
    points = torch.cat([path.points for path in paths.values()]).double()
    values = torch.cat([path.values for path in paths.values()]).double()
    # a path that leaves would shrink the others to a dot
    height = 2 * (values[0] - values[values.isfinite()].min())
    points = points[points.isfinite().all(1) & (values <= values[values.isfinite()].min() + height)]
    low, high = points.amin(0), points.amax(0)
    side = float((high - low).max()) or 1.0
    # a narrow box would hide what lies beside the path
    half = torch.maximum((high - low) / 2, torch.tensor(side / 4, dtype=torch.float64)) + room * side
    middle = (low + high) / 2
    return torch.stack((middle - half, middle + half), 1)


def surface(f: Function, window: Float[Tensor, "2 2"], side: int = SIDE) -> Float[Tensor, "side side"]:
    """The function on a grid over a window; rows go along the second coordinate.

    Args:
        f: Of two coordinates.
        window: Low and high of each axis.
        side: Points along each.
    """
    x, y = (torch.linspace(float(low), float(high), side, dtype=torch.float64) for low, high in window)
    return torch.stack([torch.stack([f(torch.stack((a, b))).detach() for a in x]) for b in y])


def has_two_weights(subject: Subject) -> bool:
    """Whether the model has exactly two weights that are trained."""
    return sum(p.numel() for p in subject.model.parameters() if p.requires_grad) == 2


def paths(subject: Subject, *, examples: int | None = 4096) -> Finding:
    """The loss left by four optimizers after 60 steps, over a model's two weights, with their paths.

    They begin at the weights that training began with where they are known, else at the model's.

    Args:
        subject: A model of two weights.
        examples: About how many examples the loss is taken over; None: all.
    """
    sample = differentiated(subject, examples)
    h = WeightFunction(subject.model, sample.batches, subject.objective)
    start = h.weights if subject.initial is None else h.of(subject.initial)
    made = {name: follow(h, start, make, STEPS) for name, make in customary(h, start).items()}
    value = torch.stack([path.values[-1] for path in made.values()]).double()
    window = window_of(made)
    return Finding(
        statement=f"The mean loss over {sample.words} that each optimizer leaves after {STEPS} steps from "
        "the same start, at rates that the curvature there suggests.",
        value=value,
        unit="loss",
        range=(-math.inf, math.inf),
        labels=tuple(made),
        curves={
            "surface": surface(h, window),
            "window": window,
            **{f"path: {name}": path.points for name, path in made.items()},
        },
    )


def reached(
    f: Function, starts: Sequence[float] | Float[Tensor, " starts"], *, lr: float, steps: int
) -> Float[Tensor, " starts"]:
    """Where gradient descent on a function of one variable ends, for each start: it depends on the start.

    Args:
        f: The function of a vector of one coordinate.
        starts: Where descent begins.
        lr: The rate, > 0.
        steps: How many, >= 0.

    Reference: Goodfellow, Bengio and Courville 2016, Section 8.2.
    """
    begun = torch.as_tensor(starts, dtype=torch.float64)
    ends = [follow(f, x[None], lambda ps: torch.optim.SGD(ps, lr=lr), steps).points[-1] for x in begun]
    return torch.cat(ends)


def basin(start: float) -> float:
    """The minimum of the double well (x^2 - 1)^2 that gradient descent at the rate 0.05 reaches: sign(start).

    At 0 it stays, on the maximum between the wells.

    Args:
        start: x_0 with |x_0| < 2, so that no step leaps across.
    """
    return float(reached(landscape("double_well").value, [start], lr=0.05, steps=400)[0])


def demo() -> Subject:
    """A line fitted to points whose inputs are far from 0: a valley of condition number 29."""
    x = torch.tensor([0.5, 1.0, 1.5, 2.0, 2.5], dtype=torch.float64)
    batch = Batch((x[:, None],), 3 - 2 * x)
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Flatten(0)).double()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))
