r"""Weight decay and the penalty :math:`\frac\mu2 \|\theta\|^2`: one thing for SGD, two for Adam.

Loshchilov and Hutter (2019): a gradient step on the penalized loss multiplies the weights by 1 - eta mu; Adam
divides the penalty's gradient, as all of it, by the root of its mean square, so that a weight shrinks the
less the larger its gradients are.
"""

import copy
import math
from collections.abc import Iterable
from itertools import islice
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, weighted_mean
from margin.engine.loop import risk

LR, DECAY = 0.1, 0.01
"""Rate and decay at which the claims compare one step."""

EPS = 1e-8
"""Adam's epsilon, outside of the root."""

BATCHES = 16
"""Batches from which the mean square of each gradient is estimated."""


def decayed_step(
    theta: Float[Tensor, "*n"], gradient: Float[Tensor, "*n"], *, lr: float, decay: float
) -> Float[Tensor, "*n"]:
    r"""One step of gradient descent with decay: :math:`(1 - \eta\mu)\,\theta - \eta\, g`.

    Args:
        theta: The weights.
        gradient: g, of the loss without its penalty.
        lr: eta.
        decay: mu.

    Reference: Krogh and Hertz 1992, Equation 4; Goodfellow, Bengio and Courville 2016, Equation 7.5.
    """
    return (1 - lr * decay) * theta - lr * gradient


def first_adam_step(
    theta: Float[Tensor, "*n"],
    gradient: Float[Tensor, "*n"],
    *,
    lr: float,
    decay: float,
    kind: Literal["penalty", "decoupled"],
) -> Float[Tensor, "*n"]:
    r"""The first step of Adam, whose corrected moments are the gradient and its square.

    .. math:: \text{penalty: } \theta - \eta\, \frac{g + \mu\theta}{|g + \mu\theta| + \epsilon}, \quad
        \text{decoupled: } (1 - \eta\mu)\,\theta - \eta\, \frac{g}{|g| + \epsilon}

    Args:
        theta: The weights.
        gradient: g, of the loss without its penalty.
        lr: eta.
        decay: mu.
        kind: Whether mu belongs to the loss, as ``torch.optim.Adam(weight_decay=...)`` has it, or to the
            weights, as ``torch.optim.AdamW``.

    Reference: Loshchilov and Hutter 2019, Algorithm 2.
    """
    if kind == "penalty":
        whole = gradient + decay * theta
        return theta - lr * whole / (whole.abs() + EPS)
    return (1 - lr * decay) * theta - lr * gradient / (gradient.abs() + EPS)


def shrinking(
    theta: Float[Tensor, " n"], gradients: Iterable[Tensor], *, decay: float
) -> Float[Tensor, " n"]:
    r"""How much faster than by decay Adam's penalty shrinks each weight: :math:`1 / (\sqrt{v_i} + \epsilon)`.

    v_i is the mean square of g_i + mu theta_i over batches, to which Adam's second moment comes where the
    weights move slowly. Decoupled decay has 1 for every weight.

    Args:
        theta: The weights.
        gradients: The gradient of each batch; one is held at a time.
        decay: mu.

    Reference: Loshchilov and Hutter 2019, Section 2 and Proposition 2.
    """
    squares, count = torch.zeros_like(theta), 0
    for gradient in gradients:
        squares += (gradient.to(theta) + decay * theta).square()
        count += 1
    return 1 / ((squares / count).sqrt() + EPS)


def batch_gradient(subject: Subject, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """The gradient of a batch's mean loss by all parameters that require one, as one vector.

    Args:
        subject: Whose objective is differentiated.
        model: Its model, or a copy.
        batch: The examples.
        generator: What the objective draws from.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    loss = weighted_mean(subject.objective(model, batch, generator), batch.weight)
    grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([g.detach().flatten() for g in grads])


def sgd_is_penalty(subject: Subject) -> Finding:
    """Whether one step of SGD with decay is, on this model, a step on the loss with the penalty added.

    Args:
        subject: A model with an objective and parameters.
    """
    batch = _some(subject)[0]
    stepped = []
    for decayed in (True, False):
        model = copy.deepcopy(subject.model)
        with eval_mode(model) as generator:
            torch.default_generator.manual_seed(0)  # a loss that draws must draw the same twice
            parameters = [p for p in model.parameters() if p.requires_grad]
            loss = weighted_mean(subject.objective(model, batch, generator), batch.weight)
            if not decayed:
                loss = loss + DECAY / 2 * sum(p.square().sum() for p in parameters)
            grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.grad = grad
            torch.optim.SGD(parameters, lr=LR, weight_decay=DECAY if decayed else 0.0).step()
            stepped.append(torch.cat([p.detach().double().flatten() for p in parameters]))
            size = max(float(g.abs().max()) for g in grads) * LR + float(stepped[-1].abs().max())
    gap = (stepped[0] - stepped[1]).abs().max().cpu()
    eps = torch.finfo(parameters[0].dtype).eps
    return Finding(
        statement=f"SGD with weight decay {DECAY:g} and SGD on the loss plus {DECAY:g}/2 |theta|^2: the "
        f"largest difference of a weight after one step at rate {LR:g}.",
        value=gap,
        unit="weight",
        range=(0.0, math.inf),
        low=torch.zeros(()),
        high=torch.zeros(()),
        tolerance=8 * eps * size if math.isfinite(size) else 0.0,
        failure="" if bool(gap.isfinite()) else "a gradient is not finite",
        premises=(),
        reference="Loshchilov and Hutter 2019, Proposition 1; Goodfellow, Bengio and Courville 2016, Eq. 7.5",
    )


def adam_shrinks_unevenly(subject: Subject) -> Finding:
    """How unevenly a penalty under Adam shrinks this model's weights, where AdamW shrinks all alike.

    The rate of shrinking of each weight, from its gradients over several batches at the weights as they are:
    the 90 % quantile over the 10 % quantile. Decoupled decay has 1.

    Args:
        subject: A model with an objective and parameters.
    """
    batches = list(_some(subject))
    with eval_mode(subject.model) as generator:
        torch.default_generator.manual_seed(0)
        theta = torch.cat([p.detach().flatten() for p in subject.model.parameters() if p.requires_grad])
        theta = theta.double().cpu()
        gradients = (batch_gradient(subject, subject.model, batch, generator) for batch in batches)
        rates = shrinking(theta, gradients, decay=DECAY)
    rates = rates[theta != 0].sort().values  # a weight of 0 does not shrink
    finite = len(rates) > 0 and bool(rates.isfinite().all())
    low, middle, high = (
        rates[round(q * (len(rates) - 1))] if finite else torch.tensor(math.nan) for q in (0.1, 0.5, 0.9)
    )
    return Finding(
        statement="A penalty in Adam's gradient shrinks a weight at a rate that is one over the root of its "
        f"mean squared gradient ({len(batches)} batches): the 90 % quantile of this rate over weights, "
        "relative to the 10 % quantile. AdamW shrinks all alike (1): the median is "
        f"{float(middle):.3g} times its rate.",
        value=(high / low).double(),
        unit="1",
        range=(0.0, math.inf),
        failure="" if finite else "a gradient is not finite, or every weight is 0",
        premises=(),
        reference="Loshchilov and Hutter 2019, Proposition 2 and Algorithm 2",
    )


def _some(subject: Subject) -> list[Batch]:
    """A few batches of the training examples where they are known, else of the held-out ones.

    Those of weight 0 alone, whose mean loss is no number, are passed over unless there are no others.
    """
    batches = subject.train or subject.test
    counted = (b for b in batches if b.weight is None or bool((b.weight > 0).any()))
    return list(islice(counted, BATCHES)) or [batches[0]]


def demo() -> Subject:
    """An affine map of features of unequal size, in float64."""
    g = Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=g, dtype=torch.float64) * torch.logspace(1, -1, 8, dtype=torch.float64)
    y = x.sum(1) + torch.randn(64, generator=g, dtype=torch.float64)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)).double()
    batches = [Batch((x[i : i + 8],), y[i : i + 8]) for i in range(0, 64, 8)]
    return Subject(model=model, test=batches, train=batches, task=VALUES, objective=risk(VALUES))
