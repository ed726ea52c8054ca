r"""Batch normalization of a linear map: weight normalization times how far the inputs are from white.

Of inputs with mean 0 and covariance S, :math:`\gamma\, w^\top x / \|w\|_S =
\gamma\, (w / \|w\|)^\top x \cdot \|w\|_I / \|w\|_S` with :math:`\|w\|_S = \sqrt{w^\top S w}` (Salimans and
Kingma 2016, Section 2.2): the two are the same where S = I.
"""

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import Call, capture, eval_mode, sample_examples
from margin.engine.loop import risk

ROWS = 4096
"""Examples whose inputs to a layer are taken at most, whole batches of them."""


COARSE = 1e-2
"""Rounding that would hide a difference of this size, relative to the gain, fails the claim."""

SHARES = torch.linspace(0, 1, 101, dtype=torch.float64)
"""Shares of the units at which their discrepancies are drawn."""


class Pair(NamedTuple):
    """A linear map that batch normalization follows, with the inputs it was given.

    Args:
        name: The name of the linear map.
        linear: The map.
        norm: The normalization.
        x: Its inputs, in float64.
    """

    name: str
    linear: nn.Linear
    norm: _BatchNorm
    x: Float[Tensor, "rows features"]


def discrepancy(
    weight: Float[Tensor, "units features"], covariance: Float[Tensor, "features features"], eps: float = 0.0
) -> Float[Tensor, " units"]:
    r"""The ratio :math:`\|w\|_I / \|w\|_S` of each row w, by which the two normalizations differ.

    Args:
        weight: One row a unit.
        covariance: S, of the inputs.
        eps: What batch normalization adds to the variance w^T S w.

    Reference: Salimans and Kingma 2016, Section 2.2 (white inputs).
    """
    variance = ((weight @ covariance) * weight).sum(1)
    return weight.norm(dim=1) / (variance + eps).sqrt()


def pairs_of(subject: Subject, batches: Sequence[Batch] | None = None) -> list[Pair]:
    """The linear maps whose outputs go straight into a batch normalization, with their inputs.

    The model is asked in evaluation mode over the training examples where they are known, else the held-out
    ones; an example of weight 0 counts for nothing.

    Args:
        subject: Any model.
        batches: Other examples to ask it of.
    """
    model = copy.deepcopy(subject.model)
    names = {module: name for name, module in model.named_modules()}
    rows: dict[str, tuple[nn.Linear, _BatchNorm, list[Tensor]]] = {}
    counted = torch.ones(0, dtype=torch.bool)

    def normalized(call: Call) -> None:
        if not isinstance(call.module, _BatchNorm):
            return
        before = next((other for other in calls if other.output is call.args[0]), None)
        if before is None or not isinstance(before.module, nn.Linear):
            return
        x = before.args[0]
        if x.ndim == 2 and len(x) == len(counted):
            row = rows.setdefault(names[before.module], (before.module, call.module, []))
            row[2].append(x[counted].double().cpu())  # now: a later layer may overwrite it

    layers = [module for module in model.modules() if isinstance(module, nn.Linear | _BatchNorm)]
    taken = 0
    with torch.no_grad(), eval_mode(model), capture(layers, normalized) as calls:
        for batch in batches or subject.train or subject.test:
            counted = _counted(batch)
            calls.clear()
            model(*batch.inputs)
            taken += len(batch.inputs[0])
            if taken >= ROWS:
                break
    return [Pair(name, linear, norm, torch.cat(x)) for name, (linear, norm, x) in rows.items()]


def _counted(batch: Batch) -> Tensor:
    if batch.weight is None or batch.weight.ndim > 1:
        return torch.ones(len(batch.inputs[0]), dtype=torch.bool, device=batch.inputs[0].device)
    return batch.weight > 0


def has_pairs(subject: Subject) -> bool:
    """Whether a linear map's outputs go straight into a batch normalization."""
    kinds = [type(module) for module in subject.model.modules()]
    some = any(issubclass(kind, _BatchNorm) for kind in kinds) and nn.Linear in kinds
    if not (some and subject.test):
        return False
    # a forward may be long
    few = sample_examples(subject.train or subject.test, 2, whole_batches=not subject.independent)
    return bool(pairs_of(subject, few.batches))


def batch_as_weight_norm(subject: Subject) -> Finding:
    """Whether each batch normalization is weight normalization times the discrepancy of its inputs.

    Both sides are computed over the same examples: torch's batch normalization with their mean and variance,
    and the formula with their covariance. The bias of the map cancels.

    Args:
        subject: A model in which batch normalization follows a dense layer.

    Raises:
        ValueError: The model has no such pair.
    """
    pairs = pairs_of(subject)
    if not pairs:
        raise ValueError(
            "the model must have a linear map whose outputs go straight into a batch normalization"
        )
    compared = [_compared(pair) for pair in pairs]
    names = [pair.name.removeprefix("model.") for pair in pairs]
    words = [
        f"{n} {float(f.min()):.3g} to {float(f.max()):.3g}"
        for n, (_, f, _) in zip(names, compared, strict=True)
    ]
    value = torch.stack([gap for gap, _, _ in compared])
    rounding = max(each for _, _, each in compared)
    failure = _failure(pairs, value, rounding)
    return Finding(
        statement="Batch normalization less weight normalization times |w| / |w|_S, largest difference over "
        f"examples and units, relative to the gain. The discrepancy |w| / |w|_S is 1 for white inputs; here: "
        f"{'; '.join(words)}.",
        value=value,
        unit="of the gain",
        range=(0.0, math.inf),
        equals=torch.zeros_like(value),
        tolerance=0.0 if failure else rounding,
        labels=tuple(names),
        failure=failure,
        premises=(
            Premise(
                "the inputs have mean 0", "proved", "the mean of the examples is taken off, as the norm does"
            ),
        ),
        curves={"share of the units": SHARES} | _spread(names, [factor for _, factor, _ in compared]),
    )


def _failure(pairs: list[Pair], value: Tensor, rounding: float) -> str:
    if few := [pair.name for pair in pairs if len(pair.x) < 2]:
        return f"fewer than two examples of weight above 0 have a variance: layer {few[0]!r} was given such"
    if not bool(value.isfinite().all()):
        return "an input or a weight is not finite"
    if rounding > COARSE:
        return f"a unit's variance is lost in rounding, which may reach {rounding:.2g} of the gain"
    return ""


def _spread(names: list[str], factors: list[Tensor]) -> dict[str, Tensor]:
    """The discrepancies of each layer's units, from the least to the largest."""
    if not all(bool(factor.isfinite().all()) for factor in factors):
        return {}
    return {name: factor.quantile(SHARES) for name, factor in zip(names, factors, strict=True)}


def _compared(pair: Pair) -> tuple[Tensor, Tensor, float]:
    """The largest difference of the two sides, the discrepancy of each unit, and what rounding may do."""
    if len(pair.x) < 2:
        nothing = torch.tensor(math.nan, dtype=torch.float64)
        return nothing, nothing.expand(len(pair.linear.weight)), 0.0
    x = pair.x - pair.x.mean(0)
    x = x - x.mean(0)  # what rounding left of a large mean
    W = pair.linear.weight.detach().double().cpu()
    gain = torch.ones(len(W)) if pair.norm.weight is None else pair.norm.weight.detach().cpu()
    gain = gain.double()
    factor = discrepancy(W, x.T @ x / len(x), pair.norm.eps)
    unit = W / W.norm(dim=1, keepdim=True).clamp(min=1e-300)  # a unit without weights gives 0
    ours = gain * (x @ unit.T) * factor
    eps = max(pair.norm.eps, 1e-300)  # torch wants one above 0
    theirs = F.batch_norm(x @ W.T, None, None, gain, training=True, eps=eps)
    size = gain.abs().max().clamp(min=1e-300)
    reach = float(x.norm(dim=1).max() * factor.max())
    rounding = 64 * torch.finfo(torch.float64).eps * x.shape[1] * (1 + reach) ** 2
    return (ours - theirs).abs().max() / size, factor, rounding


def demo() -> Subject:
    """Two linear maps with batch normalization behind them, on inputs that are far from white."""
    g = Generator().manual_seed(0)
    x = (
        torch.randn(64, 5, generator=g, dtype=torch.float64)
        @ torch.randn(5, 5, generator=g, dtype=torch.float64)
        + 3
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        maps = (nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4), nn.BatchNorm1d(4))
        model = nn.Sequential(*maps, nn.Linear(4, 2)).double()
    batches = [Batch((x,), torch.randint(0, 2, (64,), generator=g))]
    return Subject(model=model, test=batches, train=batches, task=CLASSES, objective=risk(CLASSES))
