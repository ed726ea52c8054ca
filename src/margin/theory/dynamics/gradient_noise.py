r"""Gradient noise: the variance of minibatch gradients, and the batch that suffices (McCandlish et al. 2018).

With g_i the gradient of example i and g their mean, :math:`V = \tfrac1N \sum_i |g - g_i|^2`. The mean of
B examples drawn with replacement has variance V / B, without (V / B) (N - B) / (N - 1) (Cochran 1977,
Theorem 2.2). McCandlish et al. (2018): a batch much smaller than :math:`V / |g|^2` is mostly noise, one much
larger is mostly waste.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad, vmap

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.evaluation import pieces_of, weighted_sum
from margin.engine.loop import risk
from margin.theory.curvature.hessian import MEMORY, differentiating, real_terms
from margin.theory.curvature.hutchinson import PRINTED_MISS, VERDICT_MISS
from margin.theory.curvature.trained_weights import differentiated
from margin.theory.prediction.held_out import Terms, held_out_terms, kept, limits_of, student

NUMBERS = 24
"""Bytes a weight that an example's gradient takes: in the model's type, in float64, less the mean."""

Replacement = Literal["with", "without"]


class GradientSample(NamedTuple):
    """The gradients g_i of n examples, as what the variance and its error need of them.

    ``square[i]`` is |g_i - g|^2, ``along[i]`` is (g_i - g) . g, ``weight[i]`` the example's weight and
    ``norm2`` is |g|^2, g the weighted mean; ``pairs`` is the mean of ((g_i - g) . (g_j - g))^2 over different
    examples that were looked at together, NaN where none were.
    """

    square: Float[Tensor, " n"]
    along: Float[Tensor, " n"]
    weight: Float[Tensor, " n"]
    norm2: float
    pairs: float = math.nan

    @property
    def variance(self) -> float:
        """V, the weighted mean of |g_i - g|^2."""
        return float((self.weight * self.square).sum() / self.weight.sum())


def minibatch_variance(
    V: float, examples: int, batch_size: int, replacement: Replacement = "without"
) -> float:
    """The variance E|g_B - g|^2 of the mean gradient of a batch of equally likely examples.

    Args:
        V: The mean of |g_i - g|^2 over the examples.
        examples: N, at least 1.
        batch_size: B, at least 1; at most N without replacement.
        replacement: Whether an example may be drawn twice.

    Raises:
        ValueError: An argument is out of range.

    Reference: Cochran 1977, Theorem 2.2.
    """
    if examples < 1 or batch_size < 1 or (replacement == "without" and batch_size > examples):
        raise ValueError(
            "batch_size must lie in 1 .. examples, without replacement: "
            f"got batch_size={batch_size}, examples={examples}, {replacement} replacement"
        )
    if replacement == "with":
        return V / batch_size
    return V / batch_size * ((examples - batch_size) / (examples - 1) if examples > 1 else 0.0)


class _Loss(nn.Module):
    """The objective as a module's forward pass, so that its parameters can be handed in."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.asked = model
        self.objective = objective

    def forward(
        self, inputs: tuple[Tensor, ...], targets: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The mean loss of one example, each part without its batch axis, and its summed weight."""
        alone = [None if x is None else x[None] for x in (targets, weight)]
        batch = Batch(tuple(x[None] for x in inputs), *alone)
        values = real_terms(self.objective(self.asked, batch, Generator().manual_seed(0)))
        total, count = weighted_sum(values, batch.weight)
        return total / torch.where(count > 0, count, torch.ones_like(count)), count


Gradients = Callable[[Batch], tuple[Float[Tensor, "n dim"], Float[Tensor, " n"]]]
"""The gradients of a batch's examples, a row each, and their weights, in float64 on the CPU."""


def _counted(rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    rows, weight = rows.detach().double().cpu(), weight.detach().double().cpu()
    # An example of weight 0 counts for nothing, be it NaN.
    return rows.masked_fill_(~(weight[:, None] > 0), 0), weight


def together(model: nn.Module, objective: Objective) -> Gradients:
    """Gradients of single examples by ``vmap(grad)``, all at once."""
    loss = _Loss(model, objective)
    wanted = {name: p.detach() for name, p in loss.named_parameters() if p.requires_grad}
    fixed = {name: p.detach() for name, p in loss.named_parameters() if not p.requires_grad}
    fixed |= dict(loss.named_buffers())

    def value(
        parameters: Mapping[str, Tensor], x: tuple[Tensor, ...], y: Tensor | None, w: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return functional_call(loss, {**fixed, **parameters}, (x, y, w))

    def gradients(batch: Batch) -> tuple[Tensor, Tensor]:
        axes = (None, 0, None if batch.targets is None else 0, None if batch.weight is None else 0)
        by_example = vmap(grad(value, has_aux=True), in_dims=axes, randomness="same")
        rows, weight = by_example(wanted, *batch)
        return _counted(torch.cat([rows[name].reshape(len(weight), -1) for name in wanted], 1), weight)

    return gradients


def one_by_one(model: nn.Module, objective: Objective) -> Gradients:
    """The same, an example after the other: for models that vmap does not know (a fused recurrence)."""
    loss = _Loss(model, objective)
    parameters = [p for p in loss.parameters() if p.requires_grad]

    def gradients(batch: Batch) -> tuple[Tensor, Tensor]:
        rows, weights = [], []
        for i in range(len(batch.inputs[0])):
            parts = [None if x is None else x[i] for x in (batch.targets, batch.weight)]
            value, weight = loss(tuple(x[i] for x in batch.inputs), *parts)
            found: Sequence[Tensor] = [torch.zeros_like(p) for p in parameters]
            if value.requires_grad:
                found = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
            rows.append(torch.cat([g.reshape(-1) for g in found]))
            weights.append(weight)
        return _counted(torch.stack(rows), torch.stack(weights))

    return gradients


def _fastest(model: nn.Module, one: Batch, objective: Objective) -> Gradients:
    gradients = together(model, objective)
    try:
        gradients(one)
    except (RuntimeError, NotImplementedError):
        return one_by_one(model, objective)  # the same numbers, slower
    return gradients


def gradient_sample(
    model: nn.Module, batches: Sequence[Batch], objective: Objective, *, memory: int = MEMORY
) -> GradientSample:
    """The gradients of single examples, in chunks, for their mean and for the distances from it.

    They are asked twice where all of them take more than half of the memory. Leaves no trace in the model,
    which is asked in evaluation mode. The examples must not depend on each other.

    Args:
        model: The module; its parameters that require a gradient are differentiated.
        batches: The examples.
        objective: The loss of each term; what it draws is drawn alike for every example.
        memory: Bytes that the gradients of a chunk may hold, about; above 0.

    Raises:
        ValueError: No parameter requires a gradient, there are no examples, or all weights are 0.
    """
    dim = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if dim == 0:
        raise ValueError("gradients need parameters that require one: the model has none")
    with differentiating(model, batches, objective, memory=memory) as (asked, examples, chunk, _):
        size = max(1, min(memory // (NUMBERS * dim), chunk or memory))
        gradients = _fastest(asked, next(pieces_of(examples, 1)), objective)
        mean, total = torch.zeros(dim, dtype=torch.float64), 0.0
        few = 2 * dim * mean.element_size() * sum(len(batch.inputs[0]) for batch in examples) <= memory
        held = [gradients(piece) for piece in pieces_of(examples, size)] if few else None
        for rows, weight in held or map(gradients, pieces_of(examples, size)):
            mean += weight @ rows
            total += float(weight.sum())
        if not total > 0:
            raise ValueError(f"a mean gradient needs weights above 0: their sum is {total:g}")
        mean /= total
        parts, pairs, count = [], 0.0, 0
        for rows, weight in held or map(gradients, pieces_of(examples, size)):
            rows -= mean
            parts.append((rows.square().sum(1), rows @ mean, weight))
            products = (rows[weight > 0] @ rows[weight > 0].T).square()
            pairs += float(products.sum() - products.diagonal().sum())
            count += len(products) * (len(products) - 1)
    square, along, weight = (torch.cat(part) for part in zip(*parts, strict=True))
    pair = pairs / count if count else math.nan
    return GradientSample(square, along, weight, float(mean.square().sum()), pair)


class Estimated(NamedTuple):
    """An estimate with its jackknife standard error."""

    value: float
    stderr: float


class Signal(NamedTuple):
    """|G|^2 / tr Sigma, the inverse of the noise scale, of all examples and without each of them."""

    whole: float
    without: Float[Tensor, " n"]


def signal_of(sample: GradientSample) -> Signal:
    r"""The squared mean gradient over the variance, :math:`|G|^2 / \operatorname{tr}\Sigma`.

    :math:`\operatorname{tr}\Sigma` is estimated by the sum of :math:`|g_i - g|^2` over n - 1, and
    :math:`|G|^2` by :math:`|g|^2 - \operatorname{tr}\Sigma / n`, without the bias of :math:`|g|^2`. Examples
    of weight 0 are left out; the others count alike.

    Args:
        sample: The gradients of at least three examples.

    Raises:
        ValueError: There are fewer than three examples, or their weights differ.
    """
    counted = sample.weight > 0
    c, d, n = sample.square[counted], sample.along[counted], int(counted.sum())
    if n < 3:
        raise ValueError(f"a noise scale with an error needs three examples: got {n}")
    if bool((sample.weight[counted] != sample.weight[counted][0]).any()):
        raise ValueError("a noise scale needs examples of equal weight: got different ones")
    C = float(c.sum())
    # Without example i the mean moves by -(g_i - g) / (n - 1).
    left, norm2 = C - c * n / (n - 1), sample.norm2 - 2 * d / (n - 1) + c / (n - 1) ** 2
    return Signal(sample.norm2 * (n - 1) / C - 1 / n, norm2 * (n - 2) / left - 1 / (n - 1))


def noise_scale(sample: GradientSample) -> Estimated:
    r"""The simple noise scale :math:`\operatorname{tr}\Sigma / |G|^2` of the population, in examples.

    Args:
        sample: The gradients of at least three examples: see :func:`signal_of`.

    Returns:
        The scale with its jackknife error; NaN where the estimate of :math:`|G|^2` is not above 0: the
        gradient does not stand out of the noise.

    Reference: McCandlish et al. 2018, Section 2.2 and Appendix A.1; Efron and Stein 1981 (jackknife).
    """
    found = signal_of(sample)
    n = len(found.without)
    left = torch.where(found.without > 0, 1 / found.without, torch.nan)
    stderr = ((n - 1) / n * (left - left.mean()).square().sum()).sqrt()
    return Estimated(1 / found.whole if found.whole > 0 else math.nan, float(stderr))


def scale_limits(sample: GradientSample, miss: float) -> tuple[Tensor, Tensor]:
    r"""Limits of the noise scale: the inverses of those of :math:`|G|^2 / \operatorname{tr}\Sigma`.

    Where that is small it is a sum of squares of noise: to the jackknife's error, which is of first order,
    comes :math:`2 \operatorname{tr}\Sigma^2 / (n \operatorname{tr}\Sigma)^2`. Of simulated samples of 30 and
    more the limits at 95 % hold the truth in 93 % or more. The upper one is infinite where the gradient may
    be 0.

    Args:
        sample: The gradients of at least three examples: see :func:`signal_of`.
        miss: How often the limits may miss.
    """
    found = signal_of(sample)
    n, off = len(found.without), found.without - found.without.mean()
    trace2 = sample.variance**2
    share = 1.0 if math.isnan(sample.pairs) else min(sample.pairs / trace2, 1.0)
    stderr = math.sqrt((n - 1) / n * float(off.square().sum()) + 2 * share / n**2)
    reach = stderr * (student(off, miss) if bool(off.any()) else 0.0)
    ends = (found.whole + reach, found.whole - reach)
    low, high = torch.tensor([1 / end if end > 0 else math.inf for end in ends], dtype=torch.float64)
    return low, high


def spread(sample: GradientSample) -> Estimated:
    """V of the population of which the examples are a sample, with its standard error."""
    n = int((sample.weight > 0).sum())
    share = sample.weight / sample.weight.sum()
    V = sample.variance
    stderr = float((share.square() * (sample.square - V).square()).sum().sqrt())
    return Estimated(V, stderr * math.sqrt(n / max(n - 1, 1)))


def variance_limits(sample: GradientSample) -> tuple[Tensor, Tensor]:
    """The 95 % limits of the population's V: those of a mean of skewed terms, over n - 1."""
    counted = sample.weight > 0
    n = int(counted.sum())
    terms = Terms(sample.square[counted] * n / max(n - 1, 1), sample.weight[counted], torch.arange(n))
    low, high = limits_of(terms)
    return low.clamp(max=sample.variance), high


NO_GRADIENT = "the loss, or the gradient, of an example is not finite"

DRAWN = Premise(
    "the examples are a random sample of the population", "assumed", "nothing is known of how they were drawn"
)
MARKOV = (
    "McCandlish et al. 2018, Section 2.2 (the simple noise scale); Boucheron, Lugosi and Massart 2013, "
    "Section 2.1 (Markov's inequality)"
)


def _asked(subject: Subject, examples: int | None, memory: int) -> tuple[GradientSample, str, bool]:
    """The gradients, how a statement calls the examples, and whether they are all of them; computed once.

    Raises:
        NotAsked: Those of one example do not fit in memory, with what is computed of them.
    """
    dim = sum(p.numel() for p in subject.model.parameters() if p.requires_grad)
    if NUMBERS * dim > MEMORY:
        raise NotAsked(f"an example's gradient by {dim:,} weights and its distance do not fit in memory")
    name = f"gradients {subject.at_most(examples)} {memory}"
    return kept(subject, name, lambda: _sampled(subject, examples, memory), lambda _: 0)


def _sampled(subject: Subject, examples: int | None, memory: int) -> tuple[GradientSample, str, bool]:
    sample = differentiated(subject, examples)
    gradients = gradient_sample(subject.model, sample.batches, subject.objective, memory=memory)
    losses = held_out_terms(subject.model, sample.batches, subject.objective).values
    if not bool(losses.isfinite().all()):  # a loss that is NaN may have the gradient 0
        gradients = gradients._replace(square=torch.full_like(gradients.square, math.nan))
    return gradients, sample.words, sample.whole and bool(subject.train)


def _premises(whole: bool) -> tuple[Premise, ...]:
    if whole:
        return (DRAWN,)
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
    found = spread(sample)
    share = sample.norm2 / (sample.norm2 + found.value) if found.value > 0 else 1.0
    return Finding(
        statement=f"The variance of the gradient of one example, over {words}: a batch of B has 1/B of it, "
        "with replacement; the interval is that of the examples' population. (Of an example's mean squared "
        f"gradient, {share:.2g} is the mean's.)",
        value=torch.tensor(found.value, dtype=torch.float64),
        unit="(loss / weight)^2",
        range=(0.0, math.inf),
        premises=_premises(whole),
        kind="estimate",
        stderr=torch.tensor(found.stderr, dtype=torch.float64),
        printed=variance_limits(sample),
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
    interval = printed = (torch.tensor(0.0, dtype=torch.float64),) * 2
    if not math.isfinite(sample.variance):
        failure = NO_GRADIENT
    elif len(counted) < 3 or bool((counted != counted[0]).any()):
        raise NotAsked("a noise scale needs three examples or more, of equal weight")
    elif sample.variance == 0:  # the same gradient of every example, perhaps none: one is as good as all
        found = Estimated(0.0, 0.0)
    else:
        found = noise_scale(sample)
        if not math.isfinite(found.value):
            return _at_least(sample, words)
        interval, printed = scale_limits(sample, VERDICT_MISS), scale_limits(sample, PRINTED_MISS)
    value = torch.tensor(found.value, dtype=torch.float64)
    return Finding(
        statement=f"The gradient noise scale from {words}: averaged over so many examples, a gradient is as "
        "much signal as noise.",
        value=value,
        unit="examples",
        range=(0.0, math.inf),
        premises=(DRAWN,),
        kind="estimate",
        interval=interval,
        printed=printed,
        failure=failure,
    )


def _at_least(sample: GradientSample, words: str) -> Finding:
    """A lower bound of the scale, where the mean gradient does not stand out of the noise."""
    n = int((sample.weight > 0).sum())
    trace = sample.variance * n / (n - 1)
    length = math.sqrt(sample.norm2) + math.sqrt(trace / n / PRINTED_MISS)
    return Finding(
        statement=f"The gradient noise scale is at least this, with probability 95 %: from {words} the mean "
        "gradient does not stand out of the noise: it is at most 4.5 of its standard errors longer "
        "than it looks.",
        value=torch.tensor(trace / length**2, dtype=torch.float64),
        unit="examples",
        range=(0.0, math.inf),
        premises=(DRAWN,),
        reference=MARKOV,
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
