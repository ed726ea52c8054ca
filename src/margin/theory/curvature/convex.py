"""Where a mean loss is convex in the weights: of outputs affine in them, by a loss convex in the outputs.

So are linear, logistic and softmax regression, and a net whose last map alone is trained. No curvature of
such a loss is below 0 (Boyd and Vandenberghe 2004, Sections 3.1.4 and 3.2.2).
"""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from margin.core.findings import Subject
from margin.core.tasks import Task, binary_loss, class_loss, squared_error
from margin.engine.evaluation import eval_mode
from margin.engine.loop import Risk

LARGEST = 100_000
"""Weights of the largest model whose outputs are tested for being affine in them."""

PROBED = 64
"""Examples on which they are."""

CURVATURE = {squared_error: 2.0, binary_loss: 1 / 4, class_loss: 1 / 2}
"""The largest second derivative of a loss by its outputs; of the cross-entropy, across logits of mean 0."""


def unflattened(model: nn.Module, names: Sequence[str], theta: Tensor) -> dict[str, Tensor]:
    """The parameters of these names, as parts of one vector."""
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
    if any(isinstance(module, torch.jit.ScriptModule) for module in subject.model.modules()):
        return False  # a script is not asked at other weights
    inputs = tuple(x[:PROBED] if subject.independent else x for x in batches[0].inputs)
    names = [name for name, p in subject.model.named_parameters() if p.requires_grad]
    theta = torch.cat([p.detach().reshape(-1) for p in trained])
    draws = torch.randn(2, count, generator=Generator().manual_seed(1847), dtype=torch.float64).to(theta)
    a, b = draws * (1 + theta.abs())
    with eval_mode(subject.model), torch.no_grad():
        moved = (theta, theta + a, theta + b, theta + a + b, theta + 2 * a)
        values = [
            functional_call(subject.model, unflattened(subject.model, names, at), inputs) for at in moved
        ]
    if not all(isinstance(v, Tensor) and v.is_floating_point() and bool(v.isfinite().all()) for v in values):
        return False
    f, f_a, f_b, f_ab, f_aa = (v.double() for v in values)
    scale = torch.stack((f, f_a, f_b, f_ab, f_aa)).abs().max()
    off = torch.stack((f_ab - f_a - f_b + f, f_aa - 2 * f_a + f)).abs().max()
    # Sums over a layer's inputs may cancel: the rounding is of the terms, not of the sum.
    return bool(off <= 1e3 * torch.finfo(theta.dtype).eps * scale)


def eigenvalue_range(subject: Subject) -> tuple[float, float]:
    """Where the eigenvalues of a mean loss's Hessian lie, and so its trace: from 0 on where it is convex."""
    return (0.0 if is_affine(subject) else -math.inf, math.inf)
