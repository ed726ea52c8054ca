"""What Laplace's approximation promises: the posterior of a linearized network, and what it is worth."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from margin.bayes.laplace.factors import affine_layers, class_root
from margin.bayes.laplace.learning import laplace
from margin.bayes.laplace.posterior import LaplaceClassifier
from margin.core.findings import Finding, Subject, has_real_input
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.evaluation import capture, eval_mode, sample_examples
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of, dtype_of, features_of
from margin.theory.kernels.structured import jacobian

MOST = 64
"""Held-out examples at which the posterior is computed again."""

MOST_WEIGHTS = 2000
"""Weights of a posterior that is computed again as a dense matrix."""

MOST_ROWS = 1024
"""Training examples of a last layer's posterior."""


def is_small(subject: Subject) -> bool:
    """Whether the posterior has so few weights that a dense matrix is soon computed."""
    core: Any = core_of(subject.model)
    return bool(float(core.count)) and core.weights().numel() <= MOST_WEIGHTS


def _examples(subject: Subject, train: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Features, targets and weights of all training examples, or of some held-out ones."""
    batches = subject.train if train else subject.test
    x = torch.cat([features_of(subject.model, batch.inputs[0]) for batch in batches])
    y = torch.cat([batch.targets for batch in batches if batch.targets is not None])
    w = [x.new_ones(len(b.inputs[0])) if b.weight is None else b.weight.to(x) for b in batches]
    return (x, y, torch.cat(w)) if train else (x[:MOST], y[:MOST], torch.cat(w)[:MOST])


def _rows(core: Any, x: Tensor) -> Tensor:
    """The Jacobian by the weights of the posterior, by reverse passes through each weight itself."""
    wanted = {n: p for n, p in core.net.named_parameters() if n.rpartition(".")[0] in core.names}
    return jacobian(core.net, wanted, (x,)).double()


def posterior(subject: Subject) -> Finding:
    r"""Whether deviations are those of the linearized network's posterior, computed again as dense matrices.

    .. math:: S = J \Bigl(\tfrac{1}{s^2} \sum_i J_i^\top \Lambda_i J_i + d I\Bigr)^{-1} J^\top

    Args:
        subject: A Laplace posterior with its training examples.

    Reference: Immer, Korzepa and Bauer 2021, Equation 10.
    """
    core: Any = core_of(subject.model)
    x, _, weight = _examples(subject, train=True)
    q, _, _ = _examples(subject, train=False)
    H: Tensor | float = 0.0
    with torch.no_grad():
        for part, w in zip(x.split(MOST), weight.split(MOST), strict=True):
            J = _rows(core, part)
            if isinstance(core, LaplaceClassifier):
                J = class_root(core.net(part).double()).mT @ J
            J = (w.double().sqrt()[:, None, None] * J).flatten(0, 1)
            H = H + J.T @ J
        J = _rows(core, q)
        precision = H / core.noise.double() + core.prior.double() * torch.eye(J.shape[2], dtype=torch.float64)
        dense = J @ torch.linalg.solve(precision, J.flatten(0, 1).T).T.unflatten(0, J.shape[:2]).mT
        spread = core.linearized(q)[1]
    ratio = (spread.diagonal(dim1=1, dim2=2) / dense.diagonal(dim1=1, dim2=2)).sqrt().flatten()
    exact = core.structure in ("full", "last")
    said = f"of structure {core.structure} at {len(q)} held-out examples"
    eps = torch.finfo(dtype_of(core)).eps
    if exact:
        return Finding(
            statement=f"How far the deviations of the outputs {said} are from those of the posterior of the "
            "linearized network, computed again: the largest relative difference.",
            value=(ratio - 1).abs().max(),
            range=(0.0, math.inf),
            equals=0.0,
            tolerance=1e4 * eps,
        )
    return Finding(
        statement=f"The deviations of the outputs {said}, as a share of those of the full Gauss-Newton "
        "matrix: the least, the middle and the largest.",
        value=ratio.quantile(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)),
        range=(0.0, math.inf),
        labels=("least", "middle", "largest"),
    )


@torch.no_grad()
def predicts_classes(subject: Subject) -> bool:
    """Whether the model is a network of classes whose last affine layer, asked once, gives the logits."""
    core = core_of(subject.model)
    if subject.task.name != CLASSES.name or not has_real_input(subject):
        return False
    try:
        layers = list(affine_layers(core).values())
    except ValueError:
        return False
    if not layers:
        return False
    with eval_mode(core), capture(layers[-1:]) as calls:
        found = core(features_of(subject.model, subject.test[0].inputs[0][:2]))
    return len(calls) == 1 and calls[0].output is found


def last_layer(subject: Subject) -> Finding:
    """What a Laplace posterior of the last layer gains in log-likelihood on the point prediction.

    Args:
        subject: A network of classes with training examples.

    Reference: Kristiadi, Hein and Hennig 2020, Section 3; Daxberger et al. 2021, Section 4.
    """
    core = core_of(subject.model)
    batches = sample_examples(subject.train, MOST_ROWS).batches
    x = torch.cat([features_of(subject.model, batch.inputs[0]) for batch in batches])
    y = torch.cat([batch.targets for batch in batches if batch.targets is not None])
    gains = []
    with torch.no_grad(), eval_mode(core):
        model = laplace(core, x, y, structure="last")
        for batch in subject.test:
            q, labels = features_of(subject.model, batch.inputs[0]), batch.targets
            if labels is None:
                raise ValueError("the held-out examples have no labels")
            before = nn.functional.cross_entropy(core(q), labels, reduction="none")
            gains.append(before + model(q).gather(1, labels[:, None])[:, 0])
    gain = torch.cat(gains).double()
    error = gain.std() / len(gain) ** 0.5
    return Finding(
        statement="By how much the log-probability of the held-out label rises where the last layer's "
        f"weights have a Laplace posterior (prior precision {float(model.prior):.3g}, by evidence) in place "
        f"of one value, in the mean of {len(gain):,} examples.",
        value=gain.mean(),
        unit="nat",
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=error,
    )


def demo() -> Subject:
    """A network of three units with its full posterior, on a few values."""
    i = torch.arange(24, dtype=torch.float64)
    x = torch.stack(((0.3 * i).sin(), i / 24), 1)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_((torch.arange(p.numel(), dtype=torch.float64) * 1.3 + k).sin().reshape(p.shape))
    y = (2 * x[:, 0]).sin()
    model = laplace(net, x, y, task="values", structure="full")
    batch = Batch((x,), y)
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))


def classes_demo() -> Subject:
    """A linear network of three classes."""
    i = torch.arange(60, dtype=torch.float64)
    x = torch.stack((i.sin(), (2 * i).cos()), 1)
    y = (x.sum(1) > 0).long() + (x[:, 0] > 0.5).long()
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_((torch.arange(p.numel(), dtype=torch.float64) * 1.3 + k).sin().reshape(p.shape))
    batch = Batch((x,), y)
    return Subject(model=net, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))
