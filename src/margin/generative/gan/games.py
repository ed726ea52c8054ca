"""What the two players of an adversarial game lose on a batch, and what is said of the game meanwhile."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor

from margin.core.types import Batch, Metrics
from margin.engine.evaluation import weighted_sum
from margin.engine.loop import State, mean_loss
from margin.engine.parallel.processes import summed
from margin.generative.gan.feature_matching import feature_matching
from margin.generative.gan.gradient_penalty import between, slopes
from margin.generative.gan.objectives import Objective, fake_loss, generator_loss, real_loss

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
        where: Where that slope is asked.
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
        """What the critic loses in the mean, to be differentiated; and what is said of the game."""
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
