"""What the logistic loss promises: it bounds the error, is flat at its minimum, else widens the margin."""

import math

import torch

from margin.classic.linear.least_squares_claims import solved
from margin.classic.linear.logistic import LogisticRegression, SoftmaxRegression, penalized_likelihood
from margin.classic.linear.rows import training_rows
from margin.classic.perceptron.separation import homogeneous, separate
from margin.core.findings import Finding, Premise, Status, Subject
from margin.core.tasks import CLASSES, class_accuracy, class_loss
from margin.core.types import Batch, Metrics
from margin.data.sets.tiny.tables import classes, sides
from margin.engine.loop import State, risk
from margin.nn.preprocessed import core_of, dtype_of
from margin.theory.prediction.held_out import held_out_answers, stated, unanswered, weighted_mean


def is_binary_logistic(subject: Subject) -> bool:
    """Whether the model is the catalog's logistic regression of two classes."""
    core = core_of(subject.model)
    return isinstance(core, LogisticRegression) and core.linear.out_features == 1


def surrogate(subject: Subject) -> Finding:
    """Whether the held-out error is at most the held-out cross-entropy in bits.

    A wrong or tied prediction gives the true class a probability of at most 1/2, and so a loss of at least
    log 2. The promise is about this very sample; no draw is involved.

    Args:
        subject: A model that states class probabilities.
    """
    answered = held_out_answers(subject)
    task = subject.task
    if task.probabilities is None or task.classes is None:
        raise ValueError(f"the question needs a task with probabilities: got task {task.name!r}")
    wrong = 1 - class_accuracy(task.classes(answered.outputs), answered.targets)
    stated_probability = task.probabilities(answered.outputs.double())
    chosen = stated_probability.gather(1, answered.targets.long()[:, None])[:, 0]
    error, bits = (weighted_mean(answered.terms(x)).mean for x in (wrong, -chosen.log2()))
    return Finding(
        statement="The error on the held-out examples is at most their mean cross-entropy in bits.",
        value=error,
        range=(0.0, 1.0),
        high=bits,
        tolerance=1e-9,
        failure=unanswered(stated_probability, "a probability"),
        reference="Bartlett, Jordan and McAuliffe 2006, Section 1 (convex surrogates), Table 1",
    )


def stationarity(subject: Subject) -> Finding:
    """Whether the gradient of the penalized cross-entropy is 0, to the solver's tolerance.

    Args:
        subject: A softmax regression with its training examples.
    """
    rows, core = training_rows(subject), core_of(subject.model)
    W, b = (p.detach().double().cpu().requires_grad_() for p in (core.weight, core.bias))
    losses = class_loss(rows.x @ W.T + b, rows.y.long())
    loss = rows.weight @ losses / rows.weight.sum() + core.penalty / 2 * W.square().sum()
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(loss, (W, b))]).abs().max()
    eps = torch.finfo(dtype_of(subject.model)).eps
    # a logit moves by eps |W| |x|, a probability by at most half of it, a derivative by |x| times that
    size = rows.x.square().sum(1).mean().sqrt() + 1
    moved = eps * float(size**2 * torch.cat((W, b[:, None]), 1).norm(dim=1).max().detach())
    return Finding(
        statement=f"The gradient of the cross-entropy with penalty {core.penalty:g} is 0 at the model's "
        "weights: its largest coordinate.",
        value=slope,
        unit="nats",
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=2 * core.tolerance + moved,
        premises=(Premise("the loss is convex", "proved", "log-sum-exp of affine maps, and a square"),),
    )


def max_margin(subject: Subject) -> Finding:
    """How near the hyperplane's margin is to the largest, to which descent tends on separable data.

    Without a penalty the loss of separable examples has no minimum: the weights grow without bound and
    their direction tends to the widest separator's, as 1 / log(steps). Points have a 1 appended.

    Args:
        subject: A logistic regression of two classes with its training examples.
    """
    rows, core = training_rows(subject), core_of(subject.model)
    z = homogeneous(rows.x, 2 * rows.y - 1)
    found = separate(z)
    w = torch.cat((core.linear.weight[0], core.linear.bias)).detach().double().cpu()
    length = float(w.norm())
    text = "some hyperplane separates the training examples"
    status: Status = "proved" if found.separable else "refuted" if found.inseparable else "assumed"
    return Finding(
        statement=f"The least margin of the training examples (weights of length {length:.3g}) tends to "
        "the largest possible as descent goes on.",
        value=(z @ w).min() / max(length, 1e-300),
        unit="model units",
        range=(-math.inf, math.inf),
        low=torch.tensor(found.margin, dtype=torch.float64),
        high=torch.tensor(found.bound, dtype=torch.float64),
        scope="limit",
        tolerance=1e-3 * found.margin if found.separable else 0.0,
        failure="" if length > 0 else "the weights are 0",
        premises=(
            Premise(text, status, found.evidence()),
            Premise("the loss is not penalized", "assumed", "the optimizer was not looked at"),
        ),
    )


def surrogate_demo() -> Subject:
    """Two of four wrong by as little as can be: an error of 1/2, a loss of just above 1 bit for these."""
    logits = torch.tensor([[0.0, 1e-9], [0.0, 1e-9], [0.0, 60.0], [60.0, 0.0]], dtype=torch.float64)
    return stated(logits, torch.tensor([0, 0, 1, 0]))


def softmax_demo() -> Subject:
    """Softmax regression on three overlapping blobs."""
    data = classes()
    core = SoftmaxRegression(data.spec["in_features"], 3)
    return solved(data, core, CLASSES, risk(CLASSES), penalized_likelihood())


def separable_demo() -> Subject:
    """Logistic regression after a thousand steps of descent on separable points."""
    data = sides()
    return solved(data, LogisticRegression(2, 2), CLASSES, risk(CLASSES), long_descent)


def long_descent(state: State, batch: Batch) -> Metrics:
    """A thousand steps of plain gradient descent at rate 1 on the whole batch."""
    parameters = list(state.core.parameters())
    for _ in range(1000):
        loss = risk(CLASSES)(state.model, batch, state.generator).mean()
        grads = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.sub_(grad)
    return {"loss": loss.detach()}
