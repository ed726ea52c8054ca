"""What a critic proves of its generator: a divergence, a distance; and what each objective lets it teach."""

import math
from typing import Any

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Premise, Subject, without_loss
from margin.core.tasks import CRITIC
from margin.core.types import Batch
from margin.engine.evaluation import in_double, sample_examples
from margin.generative.gan.game import (
    CERTAIN,
    fake_loss,
    generator_loss,
    jensen_shannon_bound,
    real_loss,
    slopes,
)
from margin.generative.gan.model import GAN, ConditionalGAN, gan
from margin.nn.preprocessed import Preprocessed, core_of, features_of

EXAMPLES = 8192
"""Held-out examples by which a divergence is bounded, at most."""

MATCHED = 512
"""Examples that are matched with samples, at most: the time grows with the cube."""

ALONG = 9
"""Points of each segment at which the critic's slope is computed, the ends among them."""

JUDGED = 64
"""Samples at which the slopes of the objectives are compared."""


def is_adversarial(subject: Subject) -> bool:
    """Whether the model is a generator with a critic."""
    return isinstance(core_of(subject.model), GAN | ConditionalGAN)


def has_its_classes(subject: Subject) -> bool:
    """Whether held-out examples have class labels, where the generator has classes."""
    if not core_of(subject.model).generator.num_classes:
        return True
    targets = subject.test[0].targets if len(subject.test) else None
    return targets is not None and not targets.is_floating_point()


def held_out(subject: Subject, most: int) -> tuple[Any, Tensor, Tensor | None, Tensor]:
    """The model in float64, held-out examples in its units, their classes where it has classes, and samples.

    There is a sample for each example, of its class and in its shape; padding is left out.
    """
    model = in_double(subject.model)
    core = core_of(model)
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    for batch in sample_examples(subject.test, most).batches:
        kept = torch.ones(len(batch.inputs[0])).bool() if batch.weight is None else batch.weight.cpu() > 0
        inputs.append(features_of(model, batch.inputs[0].double()).detach()[kept])
        if core.generator.num_classes:
            if batch.targets is None:
                raise ValueError("a conditional generator is judged with class labels: the data have none")
            targets.append(batch.targets[kept])
    x = torch.cat(inputs)
    labels = torch.cat(targets) if targets else None
    with torch.no_grad():
        fake = core.generator(core.generator.draw(len(x), Generator().manual_seed(0)), labels)
    return core, x, labels, fake.reshape(x.shape)


def unusable(*numbers: Tensor) -> str:
    """Why numbers tell nothing: one is not finite, or there are fewer than two; "" where they do."""
    if not all(bool(x.isfinite().all()) for x in numbers):
        return "the critic's number of an example or a sample is not finite"
    return "" if min(len(x) for x in numbers) > 1 else "there are fewer than two held-out examples"


@torch.no_grad()
def divergence(subject: Subject) -> Finding:
    r"""How far the generator's law is from the data's at least, by what the discriminator tells apart.

    .. math:: \mathrm{JS}(p, p_G) \ge \tfrac12 \big(E_p \log D + E_{p_G} \log(1 - D) + \log 4\big)

    for any D, with equality at D* = p / (p + p_G).

    Args:
        subject: A model with a generator and a critic.
    """
    core, x, labels, fake = held_out(subject, EXAMPLES)
    real, false = core.critic(x, labels), core.critic(fake, labels)
    terms = -real_loss(real, "minimax"), -fake_loss(false, "minimax")
    value = jensen_shannon_bound(terms[0].mean() + terms[1].mean())
    spread = [term.var(correction=0) / max(len(term) - 1, 1) for term in terms]
    right = float(((real > 0).double().mean() + (false < 0).double().mean()) / 2)
    won = float(value) > math.log(2) - CERTAIN
    return Finding(
        statement=f"The Jensen-Shannon divergence of the samples' law from the data's"
        f"{'' if labels is None else ', each with its class,'} is at least this, of "
        f"log 2 = {math.log(2):.3f} at most: so much the critic, read as a discriminator, proves on "
        f"{len(x):,} held-out examples and as many samples, of which it tells {right:.1%} rightly."
        + (
            " It has won: it tells nearly every sample from the data, and by the minimax objective the "
            "generator would learn nothing."
            if won
            else ""
        ),
        value=value,
        unit="nats",
        range=(-math.inf, math.log(2)),
        kind="lower",
        stderr=(spread[0] + spread[1]).sqrt() / 2,
        premises=(Premise("the held-out examples are independent draws", "assumed", "not looked at"),),
        failure=unusable(real, false),
        curves={"critic: data": real.sort().values, "critic: samples": false.sort().values},
    )


def matched(x: Tensor, fake: Tensor, labels: Tensor | None) -> tuple[Tensor, float]:
    """The sample that each example is matched with, so that the mean distance is least; that distance.

    With labels, only within the class: samples have the examples' classes.
    """
    from scipy.optimize import linear_sum_assignment

    cost = torch.cdist(x.flatten(1), fake.flatten(1))
    if labels is not None:  # farther than any way around
        cost = cost + torch.where(labels[:, None] == labels[None], 0.0, 1 + len(x) * float(cost.max()))
    rows, columns = (torch.from_numpy(index) for index in linear_sum_assignment(cost.cpu().numpy()))
    return columns.to(x.device), float(cost[rows, columns].mean())


def distance(subject: Subject) -> Finding:
    """Whether the critic's gap over its slope is below the Wasserstein distance of examples and samples.

    D(x) - D(y) is at most the slope on the segment times its length; over the best matching of examples with
    samples the mean length is W1 of the two sets, exactly.

    Args:
        subject: A model with a generator and a critic.
    """
    core, x, labels, fake = held_out(subject, MATCHED)
    with torch.no_grad():
        real, false = core.critic(x, labels), core.critic(fake, labels)
    failure, gap = unusable(real, false), float(real.mean() - false.mean())
    slope, exact = math.nan, math.nan
    if not failure:
        order, exact = matched(x, fake, labels)
        partner = fake[order]
        shares = torch.linspace(0, 1, ALONG, dtype=x.dtype).tolist()
        asked = [slopes(lambda p: core.critic(p, labels), torch.lerp(x, partner, t)) for t in shares]
        slope = float(torch.stack(asked).max())
        failure = "" if slope > 0 else "the critic is flat between the examples and the samples"
    return Finding(
        statement=f"The critic's gap, {gap:.4g}, over its largest slope, {slope:.4g}: a lower bound of the "
        f"Wasserstein distance of {len(x)} held-out examples and as many samples, which by matching is "
        f"{exact:.4g} (in the model's units). The raw gap is no distance unless the slope is 1.",
        value=torch.tensor(gap / slope if slope > 0 else math.nan, dtype=torch.float64),
        unit="model units",
        range=(-math.inf, math.inf),
        low=torch.tensor(-exact, dtype=torch.float64),
        high=torch.tensor(exact, dtype=torch.float64),
        tolerance=1e-9 * max(1.0, exact if math.isfinite(exact) else 1.0),
        premises=(
            Premise(
                "the critic is nowhere steeper between a match than where it was asked",
                "sampled",
                f"{ALONG} points of each of {len(x)} segments",
            ),
        ),
        failure=failure,
    )


def saturation(subject: Subject) -> Finding:
    r"""How much more a sample would move by -log D than by log(1 - D): by e^{-l}, l its logit.

    .. math:: \frac{\|\nabla_x \log(1 - D(x))\|}{\|\nabla_x \log D(x)\|} = \frac{D}{1 - D} = e^l

    Args:
        subject: A model with a generator and a critic.
    """
    core, _, labels, fake = held_out(subject, JUDGED)

    def pull(name: Any) -> Tensor:
        return slopes(lambda x: generator_loss(core.critic(x, labels), name), fake)

    with torch.no_grad():
        logits = core.critic(fake, labels)
    minimax, other = pull("minimax"), pull("nonsaturating")
    moved = (minimax > 0) & (other > 0)
    failure = "" if bool(moved.any()) else "the critic is flat at every sample"
    share = float(logits.sigmoid().mean())
    return Finding(
        statement="At each sample, log of the gradient of log(1 - D) over that of -log D: it is the critic's "
        f"number. D is {share:.3g} in the mean, so under the minimax objective that much of the critic's "
        f"slope reaches the generator, and {1 - share:.3g} of it under the non-saturating one.",
        value=(minimax[moved].log() - other[moved].log())
        if bool(moved.any())
        else torch.full((1,), math.nan),
        range=(-math.inf, math.inf),
        equals=logits[moved] if bool(moved.any()) else None,
        tolerance=1e-8,
        failure=failure,
    )


def demo() -> Subject:
    """Points of N(0, I), and a generator and critic as they begin."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = gan(2, hidden=(16,))
    x = torch.randn(128, 2, generator=Generator().manual_seed(0))
    return Subject(
        model=Preprocessed(torch.nn.Identity(), model),
        test=[Batch((x,))],
        task=CRITIC,
        objective=without_loss,
    )
