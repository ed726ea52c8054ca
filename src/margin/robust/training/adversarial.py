r"""Adversarial training: descent on the worst loss in the ball (Madry et al., 2018).

.. math:: \min_\theta \mathbb E\,[\max_{y \in B(x, \epsilon) \cap D} \ell(\theta, y)]
"""

from torch import Generator, Tensor, nn

from margin.core.types import Batch, Domain, Objective
from margin.engine.loop import GradientUpdate, Step, descent
from margin.robust.attacks.gradient import Search, pgd
from margin.robust.attacks.threat_models import Norm, Threat

DEFAULT_SHARE = 0.05
"""The radius where none is given, as a share of the domain's longest side."""


def attacked(objective: Objective, threat: Threat, search: Search) -> Objective:
    """The objective at inputs that projected ascent has moved to raise it.

    The attack asks in evaluation mode, so neither batch statistics nor dropout leak from it; the loss
    that is descended on is computed in the model's own mode. The attacked inputs are constants of the
    gradient (Danskin's theorem; Madry et al., 2018, Section 2.1 and Appendix A).

    Args:
        objective: The loss of each term, of one real input.
        threat: The ball and the domain.
        search: How the ball is searched.
    """

    def worst(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        moved = pgd(model, batch, objective, threat, generator, search=search).inputs
        return objective(model, batch._replace(inputs=(moved,)), generator)

    return worst


def adversarial_training(
    objective: Objective,
    descend: GradientUpdate,
    domain: Domain,
    *,
    eps: float | None = None,
    norm: Norm = "linf",
    steps: int = 5,
    step_size: float | None = None,
) -> Step:
    """One optimizer step on the mean loss at attacked inputs.

    Args:
        objective: The loss of each term.
        descend: How the loss moves the optimizer.
        domain: Where one input may lie, in the user's units.
        eps: Radius of the ball in the user's units, >= 0; None takes 1/20 of the domain's longest side.
        norm: linf or l2, over all axes of one input.
        steps: Steps of one ascent, >= 1.
        step_size: Length of a step in the units of eps; None takes 2.5 eps / steps.

    Raises:
        ValueError: An option is out of range; later, an input lies outside the domain.

    Reference: Madry et al. (2018), "Towards deep learning models resistant to adversarial attacks",
    Equation 2.1.
    """
    radius = DEFAULT_SHARE * domain.width if eps is None else eps
    search = Search(steps=steps, step_size=step_size)
    return descent(attacked(objective, Threat(domain, radius, norm), search), descend)
