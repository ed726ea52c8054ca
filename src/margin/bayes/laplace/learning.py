"""Fitting a Laplace posterior: a network at a mode, the curvature there, prior and noise of most evidence.

MacKay (1992), Section 2; Immer et al. (2021), Algorithm 1: a network that is trained here alternates between
descent under the current prior and the evidence of the curvature where it has come.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.bayes.gp.learning import standardized
from margin.bayes.laplace.curvature import Structure
from margin.bayes.laplace.evidence import Fit, determined, log_evidence, most_evident
from margin.bayes.laplace.factors import class_root, outputs_of, rooted
from margin.bayes.laplace.posterior import CHUNK, LaplaceClassifier, LaplacePosterior, LaplaceRegressor
from margin.core.types import Batch, Metrics
from margin.engine.build import names_run
from margin.engine.evaluation import eval_mode
from margin.engine.loop import NonFiniteError, State, Step
from margin.engine.runs import load, run_at
from margin.engine.weighted_rows import weighted
from margin.nn.preprocessed import Preprocessed, features_of

Weight = Float[Tensor, " rows"]

LEAST = 1e-12
"""The least mean squared error, in the variance of the values: of values that are met exactly the evidence
has no maximum."""


def losses_of(net: nn.Module, x: Tensor, y: Tensor, values: bool) -> Float[Tensor, " rows"]:
    """The squared error of each row, or its cross-entropy."""
    outputs = outputs_of(net, x)
    return (outputs[:, 0] - y).square() if values else F.cross_entropy(outputs, y, reduction="none")


def descended(  # more than 7 parameters: examples, the prior, and how long
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    weight: Weight,
    *,
    values: bool,
    ratio: float,
    epochs: int,
    lr: float,
    batch_size: int,
    generator: Generator,
) -> None:
    """Move a network toward the maximum of its posterior density by Adam, the rate falling as a cosine.

    Args:
        net: Changed in place.
        x: Inputs.
        y: Values or labels.
        weight: Of each row.
        values: Whether the loss is half the squared error, or the cross-entropy.
        ratio: The prior's precision times the noise's variance.
        epochs: Passes over the rows.
        lr: The rate to begin with.
        batch_size: Rows a step.
        generator: Orders the rows.

    Raises:
        NonFiniteError: The loss stopped being finite.
    """
    count = len(x)
    steps = epochs * -(-count // batch_size)
    parameters = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    total = float(weight.sum())
    net.train()
    with torch.enable_grad():
        for _ in range(epochs):
            for part in torch.randperm(count, generator=generator).split(batch_size):
                w = weight[part]
                loss = (w * losses_of(net, x[part], y[part], values)).sum() / w.sum() / (2 if values else 1)
                if not bool(loss.isfinite()):
                    raise NonFiniteError("the loss of the base is not finite: choose a smaller --step.lr")
                penalty = torch.stack([p.square().sum() for p in parameters]).sum()
                optimizer.zero_grad()
                (loss + ratio / (2 * total) * penalty).backward()
                optimizer.step()
                schedule.step()
    net.eval()
    for p in parameters:
        p.grad = None


@torch.no_grad()
def fitted(model: LaplacePosterior, x: Tensor, y: Tensor, weight: Weight, *, learn: bool) -> Fit:
    """Put the curvature at a network's weights, the prior and the noise into the model.

    Args:
        model: Its network is at a mode.
        x: Inputs.
        y: Values in units of their standard deviation, or labels.
        weight: Of each row: how often it counts.
        learn: Whether prior and noise are those of most evidence.
    """
    values = isinstance(model, LaplaceRegressor)
    model.curvature.begin()
    loss, places = torch.zeros((), dtype=torch.float64), [1]
    with eval_mode(model.net):
        for rows, targets, w in zip(x.split(CHUNK), y.split(CHUNK), weight.split(CHUNK), strict=True):
            out, parts = model.factors(rows)
            each = losses_of(model.net, rows, targets, values)
            loss = loss + (w * each).double().sum()
            model.curvature.add(parts if values else rooted(parts, class_root(out)), w)
            places = [part.given.shape[1] for part in parts]
    total = weight.double().sum()
    model.curvature.finish(total, places)
    values_of = model.curvature.eigenvalues()
    least = LEAST * total if values else torch.zeros_like(total)
    fit = Fit(values_of, model.weights().double().square().sum(), loss.clamp_min(least), total, values)
    if learn:
        noise, prior = most_evident(fit)
        model.noise.copy_(noise)
        model.prior.copy_(prior)
    model.evidence.copy_(log_evidence(fit, model.noise.double(), model.prior.double()))
    model.count.copy_(total)
    return fit


def laplace(  # more than 7 parameters: the options of a posterior
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    weight: Tensor | None = None,
    task: Literal["classes", "values"] = "classes",
    structure: Structure = "auto",
    prior_precision: float = 1.0,
    noise: float | None = None,
    learn: Literal["evidence", "none"] = "evidence",
    predictive: Literal["probit", "linearized", "sampled"] | None = None,
    samples: int = 100,
) -> LaplaceClassifier | LaplaceRegressor:
    """The Laplace posterior around a trained network of one's own, whose weights stay as they are.

    The network is part of what is returned, in evaluation mode.

    Args:
        net: From inputs to class logits, or to one value, (N,) or (N, 1), in units of the targets.
        x: Training inputs, as the network takes them.
        y: Labels, or values.
        weight: How often each example counts; 1 if not given.
        task: Whether the network predicts classes or values.
        structure: As of :class:`LaplaceClassifier`.
        prior_precision: As there.
        noise: Of values, the variance of the noise, to begin with.
        learn: As there.
        predictive: As there; of values linearized, or sampled.
        samples: As there.

    Raises:
        ValueError: An option is out of range, or the network has outputs of another shape.
    """
    model: LaplaceClassifier | LaplaceRegressor
    with torch.no_grad(), eval_mode(net):
        outputs = outputs_of(net, x[:1]).shape[1]
    if task == "values":
        if outputs != 1:
            raise ValueError(f"a posterior of values needs a network of one output: got {outputs}")
        if predictive == "probit":
            raise ValueError("predictive of values must be linearized or sampled: got probit")
        model = LaplaceRegressor(
            lambda: net, structure=structure, prior_precision=prior_precision, samples=samples, learn=learn,
            noise=0.1 if noise is None else noise, predictive=predictive or "linearized",
        )  # fmt: skip
    else:
        if noise is not None:
            raise ValueError(f"classes have no noise: got {noise}")
        model = LaplaceClassifier(
            lambda: net, outputs, structure=structure, prior_precision=prior_precision, learn=learn,
            predictive=predictive or "probit", samples=samples,
        )  # fmt: skip
    rows = weighted(x.flatten(1), y, weight, "a Laplace posterior")
    inputs = rows.x.reshape(-1, *x.shape[1:])
    fitted(model, inputs, rows.targets, rows.weight, learn=model.learn == "evidence")
    return model.eval()


def adopt(state: State, path: str) -> None:
    """Take the weights and the preprocessing of a run's model.

    Raises:
        ValueError: Its inputs are preprocessed in another way.
    """
    core: Any = state.core
    other: Any = load(run_at(path, "base"))
    ours: Any = state.model
    if isinstance(ours, Preprocessed):
        if type(ours.preprocess) is not type(other.preprocess):
            raise ValueError(
                f"the base {path} must read inputs as this training does: set --scale as its run has it"
            )
        ours.preprocess.load_state_dict(other.preprocess.state_dict())
    core.net.load_state_dict(other.model.state_dict())
    if other.outcome is not None:  # (z - mean) / std of the network's z is in the user's unit
        core.unit.copy_(1 / other.outcome.std.double())
        core.shift.copy_(-other.outcome.mean.double() / other.outcome.std.double())


def examples_of(state: State, batch: Batch, learner: str) -> tuple[Tensor, Tensor, Weight]:
    """Inputs as the network sees them, targets in units of the values, weights; those of weight 0 left out.

    A network of values that is not of a run has its unit set here.

    Raises:
        ValueError: There are no targets, or a weight is negative or not finite.
        NonFiniteError: A feature or a target is not finite.
    """
    core: Any = state.core
    if batch.targets is None:
        raise ValueError(f"{learner} needs targets: the data have none")
    x = features_of(state.model, batch.inputs[0])
    rows = weighted(x.flatten(1), batch.targets, batch.weight, learner, of=" of the batch")
    inputs, y = rows.x.reshape(-1, *x.shape[1:]), rows.targets
    if hasattr(core, "unit"):
        if names_run(core.base):
            y = (y.double() - core.shift) / core.unit
        else:
            y, shift, unit = standardized(y.double(), rows.weight.double())
            core.shift.copy_(shift)
            core.unit.copy_(unit)
        y = y.to(x)
    return inputs, y, rows.weight.to(x)


def approximation(*, epochs: int = 200, lr: float = 1e-2, batch_size: int = 32, rounds: int = 3) -> Step:
    """One fit of the posterior on all training examples, which the model then holds.

    A base that is no run is trained first, in rounds, each under the prior of most evidence so far. It
    reports the loss at the weights, the log evidence, the prior's precision, how many weights the
    examples decide and, of values, the standard deviation of the noise.

    Args:
        epochs: Passes over the examples of the training of the base, all rounds together.
        lr: Its learning rate to begin with (Adam).
        batch_size: Examples a step of it.
        rounds: Rounds of training and evidence.

    Raises:
        ValueError: An option is out of range.
    """
    for name, value in {"epochs": epochs, "batch_size": batch_size, "rounds": rounds}.items():
        if value < 1:
            raise ValueError(f"{name} of the step must be at least 1: got {value}")
    if not lr > 0:
        raise ValueError(f"lr of the step must be positive: got {lr}")

    def step(state: State, batch: Batch) -> Metrics:
        model: Any = state.core
        of_run = names_run(model.base)
        if of_run:
            adopt(state, model.base)
        x, y, weight = examples_of(state, batch, "a Laplace posterior")
        values, learn = isinstance(model, LaplaceRegressor), model.learn == "evidence"
        for _ in range(1 if of_run else rounds):
            if not of_run:
                ratio = float(model.noise * model.prior) if values else float(model.prior)
                descended(
                    model.net, x, y, weight, values=values, ratio=ratio, epochs=-(-epochs // rounds), lr=lr,
                    batch_size=batch_size, generator=state.generator,
                )  # fmt: skip
            fit = fitted(model, x, y, weight, learn=learn)
        ratio = model.noise.double() * model.prior.double()
        unit = model.unit if values else torch.ones((), dtype=torch.float64)
        found = {
            "loss": unit.square() * fit.loss / fit.total,
            "evidence": float(model.evidence - (fit.total * unit.log() if values else 0)),
            "prior_precision": float(model.prior),
            "determined": float(determined(fit, ratio)),
        }
        return found | ({"noise": float(unit * model.noise.sqrt())} if values else {})

    return step
