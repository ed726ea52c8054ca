r"""Trainings for a certificate: interval bounds (Gowal et al., 2018), Gaussian noise (Cohen et al., 2019).

IBP descends on the loss of the worst logits that interval bounds allow in the ball, and on the clean loss,

.. math:: \kappa\, \ell(z, y) + (1 - \kappa)\, \ell(\hat z, y), \qquad
          \hat z_j = \max_{x'} (z_j - z_y)\ \text{bounded from above, the last layer elided}

while eps grows from 0 and kappa falls from 1. A classifier that is to be smoothed by noise is trained on
inputs with that noise.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core.tasks import Task, class_loss
from margin.core.types import Batch, Domain, Metrics, Objective
from margin.engine.evaluation import eval_mode, evaluate, expand_weight, sample_examples, weighted_mean
from margin.engine.loop import GradientUpdate, State, Step, descent, risk
from margin.engine.plan import Measure
from margin.robust.attacks.gradient import labels_of
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.interval_arithmetic import Box
from margin.robust.certificates.intervals import all_beaten, margin_bounds, margins_of, propagate
from margin.robust.training.adversarial import MEASURED, pgd_accuracy, radius_of


# Nine parameters: four are filled by name.
def ibp(
    objective: Objective,
    descend: GradientUpdate,
    domain: Domain,
    task: Task,
    total_steps: int,
    *,
    eps: float | None = None,
    kappa: float = 0.5,
    warmup: float = 1 / 30,
    ramp: float = 1 / 2,
) -> Step:
    """One optimizer step on the clean loss and on the loss of the worst logits within interval bounds.

    At first only the clean loss counts; then eps grows linearly to its value and the share of the clean loss
    falls linearly from 1 to kappa. Bounds are of the model in evaluation mode, in its own type and without
    the rounding that a certificate covers. It pays to train with a larger eps than is to be certified.

    Args:
        objective: The clean loss of each term.
        descend: How the loss moves the optimizer.
        domain: Where one input may lie, in the user's units.
        task: How outputs are read as class logits.
        total_steps: Steps of the training.
        eps: Radius of the l-infinity ball at the end, in the user's units, >= 0; None takes 1/20 of the
            domain's longest side.
        kappa: Share of the clean loss at the end, in [0, 1].
        warmup: Share of the steps with the clean loss alone, >= 0; the authors' is 1/30.
        ramp: Share of the steps in which eps grows, >= 0, with the warm-up at most 1; the authors' 1/6 is of
            100 epochs, and fewer need more of it.

    Raises:
        ValueError: An option is out of range; at the first step, a layer has no interval rule, or outputs are
            not one score a class of each example.

    Reference: Gowal et al. (2018), "On the effectiveness of interval bound propagation for training
    verifiably robust models", Equation 10 and Section 4.
    """
    if not 0 <= kappa <= 1:
        raise ValueError(f"kappa must be in [0, 1]: got {kappa}")
    if not (warmup >= 0 and ramp >= 0 and warmup + ramp <= 1):
        raise ValueError(f"warmup and ramp must be >= 0, together at most 1: got {warmup} and {ramp}")
    bounded = Bounded(objective, task, Threat(domain, radius_of(domain, eps)), kappa)
    advance = descent(bounded, descend)

    def step(state: State, batch: Batch) -> Metrics:
        bounded.share = grown(state.step, total_steps, warmup, ramp)
        return advance(state, batch) | {"eps": bounded.share * bounded.threat.eps}

    return step


def grown(step: int, total_steps: int, warmup: float, ramp: float) -> float:
    """The share of eps at a step: 0 in the warm-up, then rising linearly to 1 at the end of the ramp."""
    since = step - warmup * total_steps
    return 0.0 if since < 0 else min(1.0, since / (ramp * total_steps)) if ramp > 0 else 1.0


class Bounded:
    """The objective of :func:`ibp` at the share of eps that is reached.

    Args:
        objective: The clean loss of each term.
        task: How outputs are read as class logits.
        threat: The ball at the end and the domain.
        kappa: Share of the clean loss at the end.

    Raises:
        ValueError: The task states no class probabilities.
    """

    def __init__(self, objective: Objective, task: Task, threat: Threat, kappa: float) -> None:
        if task.classes is None or task.probabilities is None:
            raise ValueError(f"IBP needs class probabilities: the task {task.name!r} states none")
        self.objective = objective
        self.classes: Callable[[Any], Any] = task.classes
        self.threat = threat
        self.kappa = kappa
        self.share = 1.0

    def __call__(self, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        """The loss of each term."""
        losses = self.objective(model, batch, generator)
        robust = (1 - self.kappa) * self.share
        if robust == 0:
            return losses
        worst = self.worst_logits(model, batch)
        worst_losses = class_loss(worst, labels_of(batch))
        return (1 - robust) * losses + robust * expand_weight(losses, worst_losses)

    def worst_logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Upper bounds on z_j - z_y in the ball, 0 at j = y; differentiable by the parameters."""
        x, *rest = batch.inputs
        labels = batch.targets
        if labels is None or labels.is_floating_point() or labels.ndim != 1:
            raise ValueError("IBP needs one class label an example")
        threat = Threat(self.threat.domain, self.share * self.threat.eps, unit=self.threat.unit)
        threat.check_inputs(x)
        low, high = (end.to(x) for end in threat.hull(x))
        with eval_mode(model):
            scores = propagate(Beside(model, rest) if rest else model, Box(low, high), self.classes)
        return -margins_of(scores, labels)


class Beside(nn.Module):
    """A model as a function of its first input, the others held.

    Args:
        model: Of several inputs.
        rest: All but the first.
    """

    def __init__(self, model: nn.Module, rest: Sequence[Tensor]) -> None:
        super().__init__()
        self.model = model
        self.rest = tuple(rest)

    def forward(self, x: Tensor) -> Any:
        """The model's outputs."""
        return self.model(x, *self.rest)


def certified_accuracy(domain: Domain, task: Task, *, eps: float | None = None) -> Measure:
    """What an evaluation adds: ``pgd_accuracy``, and ``certified_accuracy`` by interval bounds.

    Of at most 256 of the held-out examples, drawn at random by a fixed seed.

    Args:
        domain: Where one input may lie.
        task: How outputs are read.
        eps: Radius of the l-infinity ball, as the rule's.
    """
    threat, attacked = Threat(domain, radius_of(domain, eps)), pgd_accuracy(domain, task, eps=eps)
    classes = task.classes or (lambda outputs: outputs)

    def certified(model: nn.Module, batch: Batch) -> Tensor:
        x, *rest = batch.inputs
        low, high = threat.hull(x)
        labels = labels_of(batch)
        below = margin_bounds(Beside(model, rest) if rest else model, low, high, labels, classes)
        return all_beaten(below, labels)

    def measure(model: nn.Module, batches: Sequence[Batch]) -> dict[str, float]:
        drawn = sample_examples(batches, MEASURED).batches
        shares = [(certified(model, batch), batch.weight) for batch in drawn]
        right = torch.cat([share for share, _ in shares]).double()
        weight = torch.cat([torch.ones(len(s)) if w is None else w for s, w in shares])
        return attacked(model, batches) | {"certified_accuracy": float(weighted_mean(right, weight))}

    return measure


def noisy(objective: Objective, sigma: float) -> Objective:
    """The objective at inputs with fresh Gaussian noise of deviation sigma in every coordinate.

    The domain does not cut the noise: a smoothed classifier asks outside of it too.

    Raises:
        ValueError: sigma is negative or not finite.
    """
    if not 0 <= sigma < math.inf:
        raise ValueError(f"sigma must be at least 0 and finite: got {sigma}")

    def at_noise(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        return objective(model, _moved(batch, sigma, generator), generator)

    return at_noise


def _moved(batch: Batch, sigma: float, generator: Generator) -> Batch:
    """The batch with noise of deviation sigma in its first input."""
    x, *rest = batch.inputs
    if not x.is_floating_point():
        raise ValueError(f"noise needs an input of real numbers: got {x.dtype}")
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=generator.device)
    return batch._replace(inputs=(x + sigma * noise.to(x.device), *rest))


def smoothing(objective: Objective, descend: GradientUpdate, *, sigma: float = 0.25) -> Step:
    """One optimizer step on the mean loss at inputs with Gaussian noise, drawn anew for every batch.

    The model is then to be smoothed with the same sigma (claim ``robust/l2.smoothing``).

    Args:
        objective: The loss of each term.
        descend: How the loss moves the optimizer.
        sigma: Standard deviation of the noise, in the user's units, >= 0.

    Raises:
        ValueError: sigma is negative or not finite; later, the input is not real.

    Reference: Cohen, Rosenfeld and Kolter (2019), "Certified adversarial robustness via randomized
    smoothing", Section 3.3.
    """
    return descent(noisy(objective, sigma), descend)


def noisy_accuracy(task: Task, *, sigma: float = 0.25) -> Measure:
    """What an evaluation adds: ``noisy_accuracy``, at one draw of the rule's noise for each of 256 examples.

    Args:
        task: How outputs are read.
        sigma: Standard deviation of the noise.
    """

    def measure(model: nn.Module, batches: Sequence[Batch]) -> dict[str, float]:
        drawn, generator = sample_examples(batches, MEASURED).batches, Generator().manual_seed(0)
        moved = (_moved(batch, sigma, generator) for batch in drawn)
        found = evaluate(model, moved, task, risk(task))
        return {"noisy_accuracy": found["accuracy"]} if "accuracy" in found else {}

    return measure
