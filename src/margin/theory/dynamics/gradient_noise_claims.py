"""What the gradients of single examples say: how noisy a minibatch gradient is, and which batch suffices."""

import math

import torch
from torch import nn

from margin.core.findings import PRINTED, STANDARD_ERRORS, Finding, NotAsked, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.hessian import MEMORY
from margin.theory.curvature.trained_weights import differentiated
from margin.theory.dynamics.gradient_noise import (
    Estimated,
    GradientSample,
    gradient_sample,
    noise_scale,
    spread,
)
from margin.theory.prediction.held_out import held_out_terms

NO_GRADIENT = "the loss, or the gradient, of an example is not finite"

DRAWN = Premise(
    "the examples are a random sample of the population", "assumed", "nothing is known of how they were drawn"
)
SCALE = "McCandlish et al. 2018, Section 2.2 (the simple noise scale)"


def _asked(subject: Subject, examples: int | None, memory: int) -> tuple[GradientSample, str, bool]:
    """The gradients, how a statement calls the examples, and whether they are all of them."""
    sample = differentiated(subject, examples)
    gradients = gradient_sample(subject.model, sample.batches, subject.objective, memory=memory)
    losses = held_out_terms(subject.model, sample.batches, subject.objective).values
    if not bool(losses.isfinite().all()):  # a loss that is NaN may have the gradient 0
        gradients = gradients._replace(square=torch.full_like(gradients.square, math.nan))
    return gradients, sample.words, sample.whole and bool(subject.train)


def _premises(whole: bool) -> tuple[Premise, ...]:
    if whole:
        return ()
    return (
        Premise(
            "the examples are a random sample of those that are trained on",
            "assumed",
            "they were drawn at random from a fixed seed",
        ),
    )


def variance(subject: Subject, *, examples: int | None = 512, memory: int = MEMORY) -> Finding:
    """The mean squared distance V of an example's gradient from the mean gradient.

    A minibatch of B examples has a gradient of variance V / B with replacement, and
    (V / B) (N - B) / (N - 1) without. V is 0 where every example is at a minimum of its own loss.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        examples: About how many examples are taken; None: all.
        memory: Bytes that the gradients of a chunk may hold, about.
    """
    sample, words, whole = _asked(subject, examples, memory)
    found = Estimated(sample.variance, 0.0) if whole else spread(sample)
    share = sample.norm2 / (sample.norm2 + found.value) if found.value > 0 else 1.0
    return Finding(
        statement=f"The variance of the gradient of one example, over {words}: a batch of B has 1/B of it, "
        f"with replacement. (Of an example's mean squared gradient, {share:.2g} is the mean's.)",
        value=torch.tensor(found.value, dtype=torch.float64),
        unit="(loss / weight)^2",
        range=(0.0, math.inf),
        premises=_premises(whole),
        reference="Cochran 1977, Theorem 2.2; Bottou, Curtis and Nocedal 2018, Section 4.1",
        kind="estimate",
        stderr=torch.tensor(found.stderr, dtype=torch.float64),
        failure="" if math.isfinite(found.value) else NO_GRADIENT,
        curves=_sorted(sample),
    )


def _sorted(sample: GradientSample) -> dict[str, torch.Tensor]:
    distances = sample.square.sqrt().sort().values
    share = (torch.arange(len(distances), dtype=torch.float64) + 1) / len(distances)
    return {"share of examples": share, "distance from the mean gradient": distances}


def scale(subject: Subject, *, examples: int | None = 512, memory: int = MEMORY) -> Finding:
    """The gradient noise scale, in examples: the batch whose gradient is as much signal as noise.

    Args:
        subject: A model with parameters that require a gradient, and an objective; examples of equal weight.
        examples: About how many examples are taken; None: all.
        memory: Bytes that the gradients of a chunk may hold, about.

    Raises:
        NotAsked: There are fewer than three examples, or their weights differ.
    """
    sample, words, _ = _asked(subject, examples, memory)
    counted = sample.weight[sample.weight > 0]
    failure, found = "", Estimated(math.nan, math.nan)
    if not math.isfinite(sample.variance):
        failure = NO_GRADIENT
    elif len(counted) < 3 or bool((counted != counted[0]).any()):
        raise NotAsked("a noise scale needs three examples or more, of equal weight")
    elif sample.variance == 0:  # the same gradient of every example, perhaps none: one is as good as all
        found = Estimated(0.0, 0.0)
    else:
        found = noise_scale(sample)
        if not (math.isfinite(found.value) and math.isfinite(found.stderr)):
            return _at_least(sample, words)
    value, stderr = (torch.tensor(x, dtype=torch.float64) for x in found)
    # A ratio of positive numbers: its logarithm is nearer to a normal error.
    relative = stderr / value if found.value else torch.zeros_like(value)
    wide, printed = ((errors * relative).exp() for errors in (STANDARD_ERRORS, PRINTED))
    return Finding(
        statement=f"The gradient noise scale from {words}: averaged over so many examples, a gradient is as "
        "much signal as noise.",
        value=value,
        unit="examples",
        range=(0.0, math.inf),
        premises=(DRAWN,),
        reference=SCALE,
        kind="estimate",
        interval=(value / wide, value * wide),
        printed=(value / printed, value * printed),
        failure=failure,
    )


def _at_least(sample: GradientSample, words: str) -> Finding:
    """A lower bound of the scale, where the mean gradient does not stand out of the noise."""
    n = int((sample.weight > 0).sum())
    trace = sample.variance * n / (n - 1)
    length = math.sqrt(sample.norm2) + 4 * math.sqrt(trace / n)
    return Finding(
        statement=f"The gradient noise scale is at least this, with probability 15/16: from {words} the mean "
        "gradient does not stand out of the noise, so it is at most 4 of its standard errors longer than it "
        "looks.",
        value=torch.tensor(trace / length**2, dtype=torch.float64),
        unit="examples",
        range=(0.0, math.inf),
        premises=(DRAWN,),
        reference=f"{SCALE}; Boucheron, Lugosi and Massart 2013, Section 2.1 (Markov's inequality)",
        kind="lower",
    )


def demo() -> Subject:
    """The loss (w - y)^2 at w = 0 with y of 1, 2, ..., 8: gradients -2 y, of mean -9 and variance 21."""
    y = torch.arange(1.0, 9.0, dtype=torch.float64)[:, None]
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.zero_()
    batch = Batch((torch.ones_like(y),), y)
    return Subject(
        model=model,
        test=[batch],
        train=[batch],
        task=VALUES,
        objective=risk(VALUES),
    )
