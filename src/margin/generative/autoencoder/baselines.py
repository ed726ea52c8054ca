"""What restored inputs are worth: beside principal components of the same width, and beside a constant.

An error of reconstruction tells little alone: the best affine map through as many numbers is known in closed
form (Eckart and Young 1936), and the mean needs no number at all.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import CODES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, sample_examples
from margin.generative.autoencoder.claims import inputs_of
from margin.generative.autoencoder.model import Autoencoder, restoration_error
from margin.nn.preprocessed import core_of, features_of
from margin.theory.prediction.differences import at_both_levels
from margin.theory.prediction.held_out import independent_draws
from margin.theory.prediction.residuals import Interval, left_out_interval

MOST, FEW = 5000, 1000
"""Training examples that principal components are taken of, at most; of more than 1,000 features, fewer."""

NOTHING = 1e-10
"""Share of the inputs' variance that is rounding."""

CONSTANT = "a constant"
IS_PCA = "It is principal component analysis itself: what is simpler are fewer components."
ROUNDING = 1e-5
"""Share of the largest error about the mean by which two projections of 32 bits may differ."""

NO_BOTTLENECK = "PCA of as many numbers restores all of it: the code is no bottleneck, and a copy would do."


class Principal:
    """Projection on the leading principal components of training rows, about their mean.

    Args:
        rows: Training rows.
        weight: What each counts.
        components: How many directions are kept.

    Reference: Eckart and Young 1936, Section 3.
    """

    def __init__(self, rows: Float[Tensor, "n dim"], weight: Float[Tensor, " n"], components: int) -> None:
        share = (weight / weight.sum())[:, None]
        self.mean = (share * rows).sum(0)
        A = (rows - self.mean) * share.sqrt()
        if A.shape[1] <= len(A):
            axes = torch.linalg.eigh(A.T @ A).eigenvectors.T.flip(0)
        else:
            axes = torch.linalg.svd(A, full_matrices=False).Vh
        self.axes = axes[:components]

    def errors(self, rows: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """The squared error of each row's projection, and that of the mean."""
        centered = rows - self.mean
        return (centered - centered @ self.axes.T @ self.axes).square().sum(1), centered.square().sum(1)


def _training(subject: Subject) -> tuple[Tensor, Tensor, str]:
    """Training inputs in the model's units, their weights, and which they are where not all."""
    width = math.prod(subject.train[0].inputs[0].shape[1:])
    found = sample_examples(subject.train, MOST if width <= FEW else FEW)
    rows = torch.cat([features_of(subject.model, b.inputs[0]).flatten(1) for b in found.batches])
    weights = [torch.ones(len(b.inputs[0])) if b.weight is None else b.weight for b in found.batches]
    sample = "" if found.whole else f"the components are of {found.taken:,} training examples drawn"
    return rows.double().cpu(), torch.cat(weights).double().cpu(), sample


def _ratio(errors: Float[Tensor, " n"], rival: Float[Tensor, " n"], level: float) -> Interval:
    """The ratio of two sums over the same examples, with limits from each left out in turn."""
    value = float(errors.sum() / rival.sum())
    return left_out_interval(
        value, (errors.sum() - errors) / (rival.sum() - rival).clamp(min=1e-300), level=level
    )


def _rivals(
    errors: Tensor, rows: Tensor, weight: Tensor, training: tuple[Tensor, Tensor], m: int
) -> tuple[dict[str, Tensor], str]:
    """The errors of simpler reconstructions of the rows, by name, and what is to be said of them."""
    projected, about_mean = Principal(*training, m).errors(rows)
    total = (weight * about_mean).sum()
    if not total > 0:
        raise NotAsked("the held-out inputs are all the training mean, which leaves nothing to restore")
    if not (weight * projected).sum() > NOTHING * total:
        return {CONSTANT: about_mean}, NO_BOTTLENECK
    itself = bool((errors - projected).abs().max() <= ROUNDING * about_mean.max())
    k = m // 2 if itself else m
    if not k:
        return {CONSTANT: about_mean}, IS_PCA
    named = f"PCA of {k} component{'s' if k > 1 else ''}"
    known = Principal(*training, k).errors(rows)[0] if itself else projected
    return {named: known, CONSTANT: about_mean}, IS_PCA if itself else ""


@torch.no_grad()
def baselines(subject: Subject) -> Finding:
    """How much of the squared error of PCA of the code's width, and of a constant, a reconstruction saves.

    Both are fitted on the training inputs and judged on the same held-out ones, in the model's units, so the
    intervals are of the ratio of two errors of the same examples. Below 0 the model restores inputs worse
    than an affine map of as many numbers, which has a closed form, or than the training mean. PCA itself
    stands beside one of half as many components.

    Args:
        subject: A model that restores inputs from codes, whose training inputs are known.

    Raises:
        NotAsked: The held-out inputs do not vary.

    Reference: Eckart and Young 1936, Section 3; Cochran 1977, Section 2.11 (a ratio of means).
    """
    core, (x, weight, _) = core_of(subject.model), inputs_of(subject)
    with eval_mode(subject.model):
        codes = core.encode(x)
        restored = core.reconstruct(x) if callable(getattr(core, "reconstruct", None)) else core.decode(codes)
    rows, back = (t.flatten(1).double().cpu() for t in (x, restored))
    m, (train, counted, sample) = codes.flatten(1).shape[1], _training(subject)
    errors = (rows - back).square().sum(1)
    rivals, remark = _rivals(errors, rows, weight, (train, counted), m)
    total = (weight * rivals[CONSTANT]).sum()
    finite = bool(errors.isfinite().all())

    def measure(level: float) -> list[Interval]:
        if not finite:
            return [Interval(*(math.nan,) * 3)] * len(rivals)
        found = [_ratio(weight * errors, weight * rival, level) for rival in rivals.values()]
        return [Interval(1 - ratio.value, 1 - ratio.high, 1 - ratio.low) for ratio in found]

    lost = ", ".join(f"{name} {float((weight * e).sum() / total):.4g}" for name, e in rivals.items())
    return Finding(
        statement=f"The share of the squared error of simpler reconstructions that the model takes away on "
        f"{len(rows):,} held-out inputs. Through {m} numbers the model loses "
        f"{float((weight * errors).sum() / total):.4g} of what a constant does; fitted on the training "
        f"inputs, {lost}.",
        range=(-math.inf, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        labels=tuple(rivals),
        sample=sample,
        remarks=(remark,) if remark else (),
        failure="" if finite else "a reconstruction is not finite",
        **at_both_levels(measure)._asdict(),
    )


class Parabola(nn.Module):
    """Codes z to rows (z, 2 z^2)."""

    def forward(self, z: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 2"]:
        """The row of each code."""
        return torch.cat((z, 2 * z.square()), 1)


def demo() -> Subject:
    """Rows near a parabola, whose place along it is the code: one principal component cannot bend."""
    generator = Generator().manual_seed(0)
    t = 2 * torch.rand(400, 1, generator=generator, dtype=torch.float64) - 1
    rows = Parabola()(t) + 0.05 * torch.randn(400, 2, generator=generator, dtype=torch.float64)
    parts = [[Batch((part,))] for part in rows.split(200)]
    encoder = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        encoder.weight.copy_(torch.tensor([[1.0, 0.0]]))
    model = Autoencoder(encoder, Parabola())
    return Subject(model=model, test=parts[0], train=parts[1], task=CODES, objective=restoration_error)
