r"""Adversarial training: descent on the worst loss in a ball (Madry et al., 2018), in one step or in several.

.. math:: \min_\theta \mathbb E\,[\max_{x' \in B(x, \epsilon) \cap D} \ell(\theta, x', y)]

FGSM from a random start takes one step (Wong et al., 2020); TRADES parts the robust loss into the clean one
and the divergence of the answers in the ball (Zhang et al., 2019). The attacks ask in evaluation mode, so
neither batch statistics nor dropout leak from them; the loss that is descended on is computed in the model's
own mode. Attacked inputs are constants of the gradient (Danskin's theorem; Madry et al., 2018, Appendix A).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from margin.core.tasks import Task
from margin.core.types import Batch, Domain, Objective
from margin.engine.evaluation import capture, eval_mode, evaluate, expand_weight, sample_examples
from margin.engine.loop import GradientUpdate, NonFiniteError, Step, descent, risk
from margin.engine.plan import Measure
from margin.robust.attacks.gradient import Search, labels_of
from margin.robust.attacks.pullbacks import few_channels, pullback
from margin.robust.attacks.threat_models import Norm, Threat

DEFAULT_SHARE = 0.05
"""The radius where none is given, as a share of the domain's longest side."""

FAST_STEP = 1.25
"""The one step of fast training, in units of eps (Wong et al., 2020, Section 4.2)."""

MEASURED = 256
"""Held-out examples at most that are attacked at each evaluation."""

MEASURED_STEPS = 10
"""Steps of that attack."""


def radius_of(domain: Domain, eps: float | None) -> float:
    """The radius of the ball in the user's units: what is given, else a share of the longest side."""
    return DEFAULT_SHARE * domain.width if eps is None else eps


def ascended(
    model: nn.Module,
    batch: Batch,
    objective: Objective,
    threat: Threat,
    generator: Generator,
    search: Search,
) -> Batch:
    """The batch at the last iterate of projected ascent on its loss, from a random point of the ball.

    The first step begins where the point was drawn, before the domain cuts it off: from the cut point of an
    input at the domain's end, as most pixels are, one long step would end at a corner of the ball every time,
    and a model that has seen only those is right there and nowhere else.

    As an attack it is weaker than :func:`margin.robust.attacks.gradient.pgd`, which keeps the best iterate
    and asks for two more losses: a training step then costs its gradients and no more.

    Args:
        model: Asked in evaluation mode.
        batch: The first input is moved; others must be no real numbers, as lengths and masks are.
        objective: The loss of each term.
        threat: The ball and the domain.
        generator: Draws the starting points.
        search: Steps and their length; one ascent is made.

    Raises:
        ValueError: The first input is not real or another one is, or an input lies outside the domain.
        NonFiniteError: A gradient is no number.
    """
    x, *rest = batch.inputs
    if not x.is_floating_point() or any(other.is_floating_point() for other in rest):
        kinds = ", ".join(str(other.dtype) for other in batch.inputs)
        raise ValueError(f"robust training moves one input of real numbers: got {kinds}")
    threat.check_inputs(x)
    if threat.eps == 0:
        return batch

    def slope(y: Tensor) -> Tensor:
        """The gradient of the summed losses by the input; 0 where they do not depend on it."""
        y = y.detach().requires_grad_()
        with torch.enable_grad(), few_channels(model):
            return pullback(objective(model, batch._replace(inputs=(y, *rest)), generator).sum(), y)

    length, confine = search.length(threat.eps), threat.around(x)
    with eval_mode(model):
        start = threat.drawn(x, generator)
        y = confine(start)
        for number in range(search.steps):
            y = confine(threat.advanced(y if number else start, slope(y), length))
        y = threat.valid(y, x)
    if bool(y.isnan().any()):
        raise NonFiniteError("the gradient of the loss by the input is not finite")
    return batch._replace(inputs=(y, *rest))


def attacked(objective: Objective, threat: Threat, search: Search, clean: float = 0.0) -> Objective:
    """The objective at inputs that projected ascent has moved to raise it, or its mixture with the clean one.

    Args:
        objective: The loss of each term.
        threat: The ball and the domain.
        search: How the ball is searched.
        clean: Share c of the loss at the inputs as they are: c l(x) + (1 - c) l(x').

    Raises:
        ValueError: The share lies outside [0, 1].
    """
    if not 0 <= clean <= 1:
        raise ValueError(f"clean must be in [0, 1]: got {clean}")

    def worst(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        if clean == 1:
            return objective(model, batch, generator)
        moved = ascended(model, batch, objective, threat, generator, search)
        robust = objective(model, moved, generator)
        return robust if clean == 0 else clean * objective(model, batch, generator) + (1 - clean) * robust

    return worst


# More than seven parameters: three are filled by name.
def adversarial_training(
    objective: Objective,
    descend: GradientUpdate,
    domain: Domain,
    *,
    eps: float | None = None,
    norm: Norm = "linf",
    steps: int = 5,
    step_size: float | None = None,
    clean: float = 0.0,
) -> Step:
    """One optimizer step on the mean loss at inputs that projected ascent has moved.

    Args:
        objective: The loss of each term.
        descend: How the loss moves the optimizer.
        domain: Where one input may lie, in the user's units.
        eps: Radius of the ball in the user's units, >= 0; None takes 1/20 of the domain's longest side.
        norm: Of the ball, over all axes of one input.
        steps: Steps of one ascent, >= 1.
        step_size: Length of a step in the units of eps; None takes 2.5 eps / steps.
        clean: Share of the loss at the inputs as they are, in [0, 1] (Goodfellow et al., 2015, Section 6).

    Raises:
        ValueError: An option is out of range; later, an input lies outside the domain.

    Reference: Madry et al. (2018), "Towards deep learning models resistant to adversarial attacks",
    Equation 2.1.
    """
    threat, search = Threat(domain, radius_of(domain, eps), norm), Search(steps=steps, step_size=step_size)
    return descent(attacked(objective, threat, search, clean), descend)


def fast(
    objective: Objective,
    descend: GradientUpdate,
    domain: Domain,
    *,
    eps: float | None = None,
    clean: float = 0.0,
) -> Step:
    """One optimizer step on the mean loss after one signed step of 1.25 eps from a random point of the ball.

    A step costs two gradients. From one step to the next a model may learn to mask its gradients and lose
    all robustness (catastrophic overfitting): ``val_pgd_accuracy``, its accuracy under an attack of many
    steps, then falls to 0 while the training loss does not rise. The gradient is asked inside the domain; the
    authors ask it at the drawn point, which may lie outside.

    Args:
        objective: The loss of each term.
        descend: How the loss moves the optimizer.
        domain: Where one input may lie, in the user's units.
        eps: Radius of the l-infinity ball in the user's units, >= 0; None takes 1/20 of the domain's longest
            side.
        clean: Share of the loss at the inputs as they are, in [0, 1].

    Raises:
        ValueError: An option is out of range; later, an input lies outside the domain.

    Reference: Wong, Rice and Kolter (2020), "Fast is better than free: revisiting adversarial training",
    Algorithm 3.
    """
    radius = radius_of(domain, eps)
    search = Search(steps=1, step_size=FAST_STEP * radius if radius > 0 else None)
    return descent(attacked(objective, Threat(domain, radius, "linf"), search, clean), descend)


# More than seven parameters: four are filled by name.
def trades(
    objective: Objective,
    descend: GradientUpdate,
    domain: Domain,
    task: Task,
    *,
    eps: float | None = None,
    norm: Norm = "linf",
    steps: int = 5,
    step_size: float | None = None,
    beta: float = 6.0,
) -> Step:
    r"""One optimizer step on the clean loss and beta times the divergence of the answers in the ball.

    .. math:: \ell(x, y) + \beta \max_{x' \in B(x, \epsilon) \cap D} \mathrm{KL}(p(x) \,\|\, p(x'))

    The ascent begins at a random point of the ball, where the authors begin next to x. The gradient of the
    descent goes through both sides of the divergence, as theirs.

    Args:
        objective: The loss of each term, of one call of the model.
        descend: How the loss moves the optimizer.
        domain: Where one input may lie, in the user's units.
        task: How outputs are read as class probabilities.
        eps: Radius of the ball in the user's units, >= 0; None takes 1/20 of the domain's longest side.
        norm: Of the ball, over all axes of one input.
        steps: Steps of one ascent, >= 1.
        step_size: Length of a step in the units of eps; None takes 2.5 eps / steps.
        beta: Weight of the divergence, >= 0; 0 is plain descent.

    Raises:
        ValueError: An option is out of range, or the task states no class probabilities; later, an input lies
            outside the domain.

    Reference: Zhang et al. (2019), "Theoretically principled trade-off between robustness and accuracy",
    Equation 5 and Algorithm 1.
    """
    if not 0 <= beta < float("inf"):
        raise ValueError(f"beta must be at least 0 and finite: got {beta}")
    threat, search = Threat(domain, radius_of(domain, eps), norm), Search(steps=steps, step_size=step_size)
    return descent(divergent(objective, task, threat, search, beta), descend)


def divergent(objective: Objective, task: Task, threat: Threat, search: Search, beta: float) -> Objective:
    """The objective of :func:`trades`.

    Raises:
        ValueError: The task states no class probabilities.
    """
    classes = task.classes
    if classes is None or task.probabilities is None:
        raise ValueError(f"TRADES needs class probabilities: the task {task.name!r} states none")

    def log_p(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        return F.log_softmax(classes(model(*inputs)), -1)

    def divergence(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        """KL(p(x) || p(x')) of each term, log p(x) in place of the targets."""
        return F.kl_div(log_p(model, batch.inputs), labels_of(batch), reduction="none", log_target=True).sum(
            -1
        )

    def both(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        with capture([model]) as calls:
            losses = objective(model, batch, generator)
        if len(calls) != 1:
            raise ValueError(
                f"TRADES needs an objective that asks the model once: it asked {len(calls)} times"
            )
        if beta == 0:
            return losses
        inputs = calls[0].args
        with eval_mode(model), torch.no_grad():
            still = log_p(model, inputs)
        moved = ascended(model, Batch(inputs, still), divergence, threat, generator, search)
        own = F.log_softmax(classes(calls[0].output), -1)
        parted = F.kl_div(log_p(model, moved.inputs), own, reduction="none", log_target=True).sum(-1)
        return losses + beta * expand_weight(losses, parted)

    return both


def pgd_accuracy(domain: Domain, task: Task, *, eps: float | None = None, norm: Norm = "linf") -> Measure:
    """What an evaluation adds: ``pgd_accuracy``, the accuracy after ten steps of projected ascent.

    Of at most 256 of the held-out examples, drawn at random by a fixed seed.

    Args:
        domain: Where one input may lie.
        task: How outputs are read.
        eps: Radius of the ball, as the rule's.
        norm: Of the ball.
    """
    threat, search = Threat(domain, radius_of(domain, eps), norm), Search(steps=MEASURED_STEPS)

    def measure(model: nn.Module, batches: Sequence[Batch]) -> dict[str, float]:
        objective, generator = risk(task), Generator().manual_seed(0)
        drawn = sample_examples(batches, MEASURED).batches
        moved = (ascended(model, batch, objective, threat, generator, search) for batch in drawn)
        found = evaluate(model, moved, task, objective)
        return {"pgd_accuracy": found["accuracy"]} if "accuracy" in found else {}

    return measure
