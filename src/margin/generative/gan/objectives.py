r"""The adversarial game's value and the losses that play it (Goodfellow et al. 2014; Arjovsky et al. 2017).

The critic gives each example a number, its *logit* l; as a discriminator D = sigmoid(l). V(D, G) =
E_p log D(x) + E_{p_G} log(1 - D(x)), largest at D* = p / (p + p_G), where it is -log 4 + 2 JS(p, p_G). So any
D gives a lower bound of the Jensen-Shannon divergence, (V + log 4) / 2.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from margin.math.probability.information import jensen_shannon
from margin.math.probability.moments import check_law

Objective = Literal["nonsaturating", "minimax", "wasserstein"]
"""What the players minimize."""

Logits = Float[Tensor, "*batch"]
Laws = Float[Tensor, "*batch outcomes"]


def real_loss(logits: Logits, objective: Objective) -> Logits:
    """What the critic loses on each real example: -log D = softplus(-l), or -l for the Wasserstein game."""
    return -logits if objective == "wasserstein" else F.softplus(-logits)


def fake_loss(logits: Logits, objective: Objective) -> Logits:
    """What the critic loses on each generated example: -log(1 - D) = softplus(l), or l (Wasserstein)."""
    return logits if objective == "wasserstein" else F.softplus(logits)


def generator_loss(logits: Logits, objective: Objective) -> Logits:
    r"""What the generator loses on each of its examples, of logit l.

    ============== ============= =====================================================
    minimax        log(1 - D)    slope -D by the logit: it vanishes where D(G(z)) is 0
    nonsaturating  -log D        slope -(1 - D): 1 in size where D(G(z)) is 0
    wasserstein    -l            slope -1
    ============== ============= =====================================================

    Args:
        logits: The critic's numbers of generated examples.
        objective: Which game.

    Reference: Goodfellow et al. 2014, Section 3; Arjovsky, Chintala and Bottou 2017, Equation 3.
    """
    if objective == "minimax":
        return -F.softplus(logits)
    return -logits if objective == "wasserstein" else F.softplus(-logits)


def game_value(
    real: Float[Tensor, " real"], fake: Float[Tensor, " fake"], objective: Objective = "minimax"
) -> Float[Tensor, ""]:
    """V(D, G) on samples: mean log D(x) + mean log(1 - D(G(z))), or the gap of means (Wasserstein).

    Args:
        real: Logits of real examples.
        fake: Logits of generated ones.
        objective: Which game; minimax and nonsaturating have the same critic.
    """
    return -real_loss(real, objective).mean() - fake_loss(fake, objective).mean()


def optimal_discriminator(
    p: Float[Tensor, "*points"], q: Float[Tensor, "*points"]
) -> Float[Tensor, "*points"]:
    """D* = p / (p + q) of densities or probabilities p (data) and q (generator); its logit is log p - log q.

    Where both are 0 nothing is drawn and any value is optimal: NaN.

    Reference: Goodfellow et al. 2014, Proposition 1.
    """
    return p / (p + q)


def expected_value(p: Laws, q: Laws, discriminator: Laws) -> Float[Tensor, "*batch"]:
    """V(D, G) = sum_i p_i log D_i + q_i log(1 - D_i) of finite laws; outcomes that neither has count nothing.

    Args:
        p: Probabilities of the data.
        q: Probabilities of the generator.
        discriminator: D of each outcome, in [0, 1].

    Raises:
        ValueError: ``p`` or ``q`` is no law.

    Reference: Goodfellow et al. 2014, Equation 1.
    """
    check_law(p, name="p")
    check_law(q, name="q")
    some = (p > 0) | (q > 0)
    terms = torch.xlogy(p, discriminator) + torch.xlogy(q, 1 - discriminator)
    return torch.where(some, terms, 0).sum(-1)


def optimal_value(p: Laws, q: Laws) -> Float[Tensor, "*batch"]:
    """max_D V(D, G) = -log 4 + 2 JS(p, q): from -log 4, where p = q, to 0, where they share no outcome.

    With the balanced mixture, E over both halves with weight 1/2, it is JS - log 2.

    Reference: Goodfellow et al. 2014, Theorem 1.
    """
    return 2 * jensen_shannon(p, q) - math.log(4)


def jensen_shannon_bound(value: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The lower bound (V + log 4) / 2 of the Jensen-Shannon divergence that any discriminator's V gives."""
    return (value + math.log(4)) / 2
