r"""The adversarial game (Goodfellow et al. 2014): its value, its losses, and steps of its two players.

The critic gives each example a number, its *logit* l; as a discriminator D = sigmoid(l). V(D, G) =
E_p log D(x) + E_{p_G} log(1 - D(x)), largest at D* = p / (p + p_G), where it is -log 4 + 2 JS(p, p_G). So any
D gives a lower bound of the Jensen-Shannon divergence, (V + log 4) / 2.

A critic is kept 1-Lipschitz by a penalty on its slope, or by a box for its weights:

.. math:: \lambda\, E (\|\nabla D(\hat x)\|_2 - 1)^2, \qquad \hat x = a x + (1 - a) G(z),\ a \sim U[0, 1]

one a for each sample, and the norm over all axes of the sample (Gulrajani et al. 2017). The penalty is soft:
on two points at distance W the optimal slope is 1 + W / (2 lambda), so the gap of the means is
W (1 + W / (2 lambda)); divided by the slope it is W. With feature matching (Salimans et al. 2016) the
generator brings the critic's mean features to the data's.

Steps of two-player games: simultaneous, alternating, extragradient (Korpelevich 1976), optimistic. Each
player descends on its own loss; F(w) holds the gradient of each by its own variables. For min_theta max_phi
l(theta, phi) it is F = (grad_theta l, -grad_phi l). On l = theta phi simultaneous steps leave the solution at
the rate sqrt(1 + eta^2) a step, alternating ones circle around it, and

.. math:: w_{t+1/2} = w_t - \eta F(w_t), \qquad w_{t+1} = w_t - \eta F(w_{t+1/2})

approaches it. The half-points of *both* players enter both last updates: with a player's own half-point and
the other's old place the rule is on this game the simultaneous one, and diverges.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.evaluation import weighted_sum
from margin.engine.loop import State, mean_loss
from margin.engine.parallel.processes import summed
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


Critic = Callable[[Tensor], Tensor]
"""The score of each row of a batch, on its own."""


def slopes(
    critic: Critic, points: Float[Tensor, " batch *features"], *, differentiable: bool = False
) -> Float[Tensor, " batch"]:
    """The Euclidean norm of the critic's gradient at each point, over all axes of the point.

    Where the gradient is 0 so is the derivative of its norm (torch's choice), not NaN.

    Args:
        critic: Scores each row by itself; not one that normalizes over the batch.
        points: Where.
        differentiable: Whether the slopes are to be differentiated themselves.
    """
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        score = critic(points).sum()
        if not score.requires_grad:  # no graph leads from the points: a constant critic
            return points.new_zeros(len(points))
        (grad,) = torch.autograd.grad(score, points, create_graph=differentiable, allow_unused=True)
    if grad is None:
        return points.new_zeros(len(points))
    return torch.linalg.vector_norm(grad.flatten(1), dim=1)


def between(
    real: Float[Tensor, " batch *features"],
    fake: Float[Tensor, " batch *features"],
    generator: Generator,
) -> Float[Tensor, " batch *features"]:
    """A point drawn uniformly on the segment of each pair: a x + (1 - a) G(z), one a for each sample.

    Reference: Gulrajani et al. 2017, Algorithm 1, line 5-6.
    """
    a = torch.rand(len(real), generator=generator).to(real)
    return torch.lerp(fake, real, a.reshape(-1, *[1] * (real.ndim - 1)))


def gradient_penalty(
    critic: Critic, points: Float[Tensor, " batch *features"], *, target: float = 1.0
) -> Float[Tensor, " batch"]:
    """(slope - target)^2 of each point, to be differentiated by the critic's parameters.

    Args:
        critic: Scores each row by itself.
        points: Where its slope is computed: see :func:`between`.
        target: The slope that costs nothing: 1, or 0 for a penalty on slope itself.

    Reference: Gulrajani et al. 2017, Equation 3; Mescheder, Geiger and Nowozin 2018, Equation 9 (target 0).
    """
    return (slopes(critic, points, differentiable=True) - target).square()


def penalized_slope(distance: float, penalty: float) -> float:
    """The slope 1 + W / (2 lambda) of the critic that is optimal for two points at distance W.

    W s - lambda (s - 1)^2 is largest there.

    Args:
        distance: W, at least 0.
        penalty: lambda, above 0.
    """
    if not penalty > 0 or not distance >= 0:
        raise ValueError(f"penalty must be above 0 and distance at least 0: got {penalty}, {distance}")
    return 1 + distance / (2 * penalty)


@torch.no_grad()
def clip_weights(module: nn.Module, bound: float) -> None:
    """Bring every parameter into [-bound, bound], in place.

    Reference: Arjovsky, Chintala and Bottou 2017, Algorithm 1, line 7.

    Raises:
        ValueError: The bound is not positive.
    """
    if not bound > 0:
        raise ValueError(f"the bound of the weights must be positive: got {bound}")
    for parameter in module.parameters():
        parameter.clamp_(-bound, bound)


def feature_matching(
    real: Float[Tensor, "real features"],
    fake: Float[Tensor, "fake features"],
    weight: Float[Tensor, " real"] | None = None,
) -> Float[Tensor, ""]:
    """The squared distance of the mean features of real and of generated examples.

    Args:
        real: Features of real examples.
        fake: Features of generated ones.
        weight: How much each real example counts; None for 1.

    Reference: Salimans et al. 2016, Section 3.1.
    """
    mean = real.mean(0) if weight is None else weight.to(real) @ real / weight.sum().to(real)
    return (mean - fake.mean(0)).square().sum()


Where = Literal["between", "data"]
"""Where a critic's slope is penalized: between data and samples (target 1), or at the data (target 0)."""

CERTAIN = -math.log(0.99)
"""The mean loss, in nats an example, at which a discriminator has won: it gives the truth .99."""


class Terms(NamedTuple):
    """A batch as the players see it: in the model's units; labels where there are classes."""

    x: Tensor
    labels: Tensor | None
    weight: Tensor | None


@dataclass(frozen=True, slots=True)
class Game:
    """An adversarial game.

    Args:
        objective: What the players minimize.
        matching: Whether the generator matches the critic's mean features instead.
        penalty: Weight lambda of the penalty on the critic's slope; 0 for none.
        where: Where that slope is computed.
    """

    objective: Objective
    matching: bool = False
    penalty: float = 0.0
    where: Where = "between"

    def terms(self, state: State, batch: Batch) -> Terms:
        """The batch in the model's units.

        Raises:
            ValueError: There are no labels where there are classes, or examples lie where no sample can.
        """
        generator: Any = state.core.get_submodule("generator")
        x = state.features(batch)
        check_bounds(x, generator.bounds)
        labels = batch.targets if generator.num_classes else None
        if generator.num_classes and (labels is None or labels.is_floating_point()):
            raise ValueError("a conditional generator needs class labels: the data have none")
        return Terms(x, labels, batch.weight)

    def fakes(self, core: Any, terms: Terms, random: Generator) -> Tensor:
        """One generated example for each real one, of its class, in its shape."""
        samples: Tensor = core.generator(core.generator.draw(len(terms.x), random), terms.labels)
        return samples.reshape(terms.x.shape)

    def critic_loss(self, core: Any, terms: Terms, fake: Tensor, random: Generator) -> tuple[Tensor, Metrics]:
        """What the critic loses in the mean, to be differentiated; and the metrics of the game."""
        real_features, fake_features = core.critic.features(terms.x), core.critic.features(fake)
        real = core.critic.judge(real_features, terms.labels)
        false = core.critic.judge(fake_features, terms.labels)
        losses = real_loss(real, self.objective) + fake_loss(false, self.objective)
        loss, metrics = mean_loss(losses, terms.weight), self.said(real, false, terms.weight)
        metrics["generator_loss"] = (
            feature_matching(real_features.detach(), fake_features.detach(), terms.weight)
            if self.matching
            else mean(generator_loss(false, self.objective), terms.weight)
        )
        if self.penalty:
            extra, slope = self.penalized(core, terms, fake, random)
            loss, metrics["slope"] = loss + self.penalty * mean_loss(extra, terms.weight), slope
        return loss, metrics

    def penalized(self, core: Any, terms: Terms, fake: Tensor, random: Generator) -> tuple[Tensor, Tensor]:
        """The penalty of each point, and the mean slope there."""

        def critic(points: Tensor) -> Tensor:
            score: Tensor = core.critic(points, terms.labels)
            return score

        points = between(terms.x, fake.detach(), random) if self.where == "between" else terms.x
        norms = slopes(critic, points, differentiable=True)
        target = 1.0 if self.where == "between" else 0.0
        return (norms - target).square(), mean(norms, terms.weight)

    def generator_loss(self, core: Any, terms: Terms, fake: Tensor) -> Tensor:
        """What the generator loses in the mean, to be differentiated."""
        features = core.critic.features(fake)
        if self.matching:
            with torch.no_grad():
                real = core.critic.features(terms.x)
            return feature_matching(real, features, terms.weight)
        logits = core.critic.judge(features, terms.labels)
        return mean_loss(generator_loss(logits, self.objective), terms.weight)

    def said(self, real: Tensor, fake: Tensor, weight: Tensor | None = None) -> Metrics:
        """The gap of the means (Wasserstein); else the discriminator's accuracy, and whether it has won.

        It has won where its mean loss is below :data:`CERTAIN`: then the generator learns from it no more
        than it must, and under the minimax objective nothing.
        """
        if self.objective == "wasserstein":
            return {"gap": mean(real - fake, weight)}
        right = ((real > 0).double() + (fake < 0).double()) / 2
        loss = mean(real_loss(real, self.objective) + fake_loss(fake, self.objective), weight)
        return {"accuracy": mean(right, weight), "won": (loss < 2 * CERTAIN).double()}


def mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """The mean over the batch, of all processes together, not to be differentiated."""
    total, count = weighted_sum(values.detach(), weight)
    return summed(total) / summed(count)


def check_bounds(x: Tensor, bounds: tuple[float, float] | None) -> None:
    """Refuse examples where no sample of the generator can lie.

    Raises:
        ValueError: There is one.
    """
    if bounds is None:
        return
    least, largest = float(x.min()), float(x.max())
    if not (bounds[0] - 1e-6 <= least and largest <= bounds[1] + 1e-6):
        raise ValueError(
            f"a tanh generator needs inputs in [{bounds[0]:g}, {bounds[1]:g}]: got from {least:.3g} to "
            f"{largest:.3g}; train with --scale symmetric"
        )


Point = Sequence[Tensor]
"""The variables of all players."""

Field = Callable[[Point], Point]
"""The gradient of each player's loss by its own variables."""


def saddle_field(loss: Callable[[Tensor, Tensor], Tensor]) -> Field:
    """F = (grad_theta l, -grad_phi l) of min_theta max_phi l(theta, phi), l a scalar.

    Args:
        loss: l, differentiable by torch.
    """

    def field(w: Point) -> Point:
        theta, phi = torch.func.grad(loss, argnums=(0, 1))(*w)
        return theta, -phi

    return field


def moved(w: Point, along: Point, eta: float) -> list[Tensor]:
    """W - eta F, variable by variable."""
    return [x - eta * g for x, g in zip(w, along, strict=True)]


def simultaneous(field: Field, w: Point, eta: float) -> list[Tensor]:
    """W - eta F(w): both players at once."""
    return moved(w, field(w), eta)


def alternating(field: Field, w: Point, eta: float) -> list[Tensor]:
    """The last player first, each after it sees where those before it have gone."""
    w = list(w)
    for player in reversed(range(len(w))):
        w[player] = w[player] - eta * field(w)[player]
    return w


def extragradient(field: Field, w: Point, eta: float) -> list[Tensor]:
    """W - eta F(w - eta F(w)).

    Args:
        field: The gradient of each player's loss.
        w: Where the players are.
        eta: The rate, above 0.

    Reference: Korpelevich 1976, Section 2; Gidel et al. 2019, Section 3.
    """
    return moved(w, field(simultaneous(field, w, eta)), eta)


def optimistic(field: Field, w: Point, before: Point, eta: float) -> tuple[list[Tensor], Point]:
    """W - eta (2 F(w) - F_before), which asks for one gradient a step.

    Args:
        field: The gradient of each player's loss.
        w: Where the players are.
        before: F at the step before; at the first step F(w) itself.
        eta: The rate, above 0.

    Returns:
        Where the players go, and F(w) for the next step.

    Reference: Daskalakis, Ilyas, Syrgkanis and Zeng 2018, Section 2.
    """
    now = field(w)
    return moved(w, [2 * g - h for g, h in zip(now, before, strict=True)], eta), now
