r"""How much the gradients of single examples differ: a minibatch gradient's variance, and the noise scale.

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

from margin.core.types import Batch, Objective
from margin.engine.evaluation import weighted_sum
from margin.theory.curvature.hessian import MEMORY, differentiating, pieces_of, real_terms

Replacement = Literal["with", "without"]


class GradientSample(NamedTuple):
    """The gradients g_i of n examples, as what the variance and its error need of them.

    ``square[i]`` is |g_i - g|^2, ``along[i]`` is (g_i - g) . g, ``weight[i]`` the example's weight and
    ``norm2`` is |g|^2, g the weighted mean.
    """

    square: Float[Tensor, " n"]
    along: Float[Tensor, " n"]
    weight: Float[Tensor, " n"]
    norm2: float

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
    return torch.where(weight[:, None] > 0, rows, 0), weight


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
    """The gradients of single examples, in chunks, twice: for their mean, then for the distances from it.

    Leaves no trace in the model, which is asked in evaluation mode. The examples must not depend on each
    other.

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
        # Rows in the model's type and in float64, and their distances from the mean.
        size = max(1, min(memory // (24 * dim), chunk or memory))
        gradients = _fastest(asked, next(pieces_of(examples, 1)), objective)
        mean, total = torch.zeros(dim, dtype=torch.float64), 0.0
        for piece in pieces_of(examples, size):
            rows, weight = gradients(piece)
            mean += weight @ rows
            total += float(weight.sum())
        if not total > 0:
            raise ValueError(f"a mean gradient needs weights above 0: their sum is {total:g}")
        mean /= total
        parts = []
        for piece in pieces_of(examples, size):
            rows, weight = gradients(piece)
            rows -= mean
            parts.append((rows.square().sum(1), rows @ mean, weight))
    square, along, weight = (torch.cat(part) for part in zip(*parts, strict=True))
    return GradientSample(square, along, weight, float(mean.square().sum()))


class Estimated(NamedTuple):
    """An estimate with its jackknife standard error."""

    value: float
    stderr: float


def noise_scale(sample: GradientSample) -> Estimated:
    r"""The simple noise scale :math:`\operatorname{tr}\Sigma / |G|^2` of the population, in examples.

    :math:`\operatorname{tr}\Sigma` is estimated by the sum of :math:`|g_i - g|^2` over n - 1, and
    :math:`|G|^2` by :math:`|g|^2 - \operatorname{tr}\Sigma / n`, without the bias of :math:`|g|^2`; the error
    is the jackknife's. Examples of weight 0 are left out; the others count alike.

    Args:
        sample: The gradients of at least three examples.

    Returns:
        The scale; NaN where the estimate of :math:`|G|^2` is not above 0: the gradient does not stand out
        of the noise.

    Raises:
        ValueError: There are fewer than three examples, or their weights differ.

    Reference: McCandlish et al. 2018, Section 2.2 and Appendix A.1; Efron and Stein 1981 (jackknife).
    """
    counted = sample.weight > 0
    c, d, n = sample.square[counted], sample.along[counted], int(counted.sum())
    if n < 3:
        raise ValueError(f"a noise scale with an error needs three examples: got {n}")
    if bool((sample.weight[counted] != sample.weight[counted][0]).any()):
        raise ValueError("a noise scale needs examples of equal weight: got different ones")
    C = float(c.sum())

    def scale(spread: Tensor, norm2: Tensor, m: int) -> Tensor:
        trace = spread / (m - 1)
        signal = norm2 - trace / m
        return torch.where(signal > 0, trace / signal, torch.nan)

    whole = scale(torch.tensor(C, dtype=torch.float64), torch.tensor(sample.norm2, dtype=torch.float64), n)
    # Without example i the mean moves by -(g_i - g) / (n - 1).
    left = scale(C - c * n / (n - 1), sample.norm2 - 2 * d / (n - 1) + c / (n - 1) ** 2, n - 1)
    stderr = ((n - 1) / n * (left - left.mean()).square().sum()).sqrt()
    return Estimated(float(whole), float(stderr))


def spread(sample: GradientSample) -> Estimated:
    """V of the population of which the examples are a sample, with its standard error."""
    n = int((sample.weight > 0).sum())
    share = sample.weight / sample.weight.sum()
    V = sample.variance
    stderr = float((share.square() * (sample.square - V).square()).sum().sqrt())
    return Estimated(V, stderr * math.sqrt(n / max(n - 1, 1)))
