r"""Objectives and what wraps them: label smoothing, class weights, importance ratios, mixup, scaled targets.

Mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019) train on two examples mixed into one:

.. math:: \ell = \lambda\, l(\tilde x, y) + (1 - \lambda)\, l(\tilde x, y'), \qquad \lambda \sim
    \mathrm{Beta}(\alpha, \alpha)

Mixup takes x~ = lambda x + (1 - lambda) x'; CutMix pastes a box of x' into x, and lambda is the share of x
that is left. A loss is smoothed, then taken of mixed examples, then computed in bfloat16. Where targets are
scaled, the model's own output z stands for y = m + s z: a step minimizes ((y - target) / s)^2, while what
it reports and what an evaluation averages is (y - target)^2.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.catalog import Entry, resolve
from margin.core.options import Training
from margin.core.tasks import CLASSES, VALUES, Task, squared_error
from margin.core.types import Batch, Metrics, Objective
from margin.data.examples import Data
from margin.data.preprocess import Standardize, fit_standardize
from margin.engine.evaluation import expand_weight
from margin.engine.loop import Risk, State, Step, autocast
from margin.nn.losses import check_smoothing, smoothed_cross_entropy
from margin.nn.preprocessed import core_of, features_of


def smoothed(
    task: Task,
    *,
    smoothing: float = 0.0,
    confusion: Tensor | None = None,
    class_weight: Float[Tensor, " classes"] | None = None,
) -> Objective:
    """The cross-entropy of class logits to smoothed labels, classes weighted.

    A batch's mean stays sum(w l) / sum(w) over the weights w of its examples: the weights of the classes
    multiply the losses, so give them mean 1 over the training examples (as "balanced" ones have) to keep the
    unit of the loss. Torch's mean divides by the batch's own sum of class weights, which is not the same.

    Args:
        task: Must read outputs as one logit a class.
        smoothing: eps in [0, 1): the label y becomes (1 - eps) e_y + eps / K.
        confusion: Instead of smoothing, row y is the distribution that label y becomes.
        class_weight: Finite weights >= 0, one a class, not all 0.

    Raises:
        ValueError: The task is another, or an option is out of range.

    Reference: Szegedy et al. 2016, Section 7.
    """
    if task.name != CLASSES.name:
        raise ValueError(f"smoothed labels need one logit a class (the task 'classes'): got {task.name!r}")
    check_smoothing(smoothing, confusion)
    if class_weight is not None:
        fine = class_weight.isfinite().all() and (class_weight >= 0).all() and (class_weight > 0).any()
        if class_weight.ndim != 1 or not bool(fine):
            raise ValueError(
                "class_weight must be finite numbers >= 0, one a class, not all 0: "
                f"got {class_weight.tolist()}"
            )

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return smoothed_cross_entropy(
            logits, labels, confusion, smoothing=smoothing, class_weight=class_weight
        )

    return Risk(replace(task, loss=loss))


def unweighed(task: Task) -> Task:
    """A task whose loss is l / c, of batches that have the weights c of its terms (:func:`weighed`).

    Args:
        task: One whose loss holds the factors c = ``task.weigh(targets)``; any other is returned as it is.
    """
    weigh, loss = task.weigh, task.loss
    if weigh is None or loss is None:
        return task

    def divided(outputs: Any, targets: Tensor) -> Tensor:
        terms, weight = loss(outputs, targets), weigh(targets)
        return terms / weight.where(weight != 0, 1).to(terms)

    return replace(task, loss=divided, weigh=None)


def weighed(batch: Batch, task: Task) -> Batch:
    """A batch in which each term also counts what the task's loss lets it count in a mean."""
    if task.weigh is None or batch.targets is None:
        return batch
    weight = task.weigh(batch.targets)
    return batch._replace(weight=weight * expand_weight(weight, batch.weight))


def importance_weighted(objective: Objective) -> Objective:
    """The objective of batches whose last input is the ratio 1 / (n p_i) of each example's probability.

    The ratio multiplies the loss and is not a weight, because a mean divides by the sum of the weights: with
    weights it would be a quotient of two random sums, which is biased.

    Args:
        objective: The loss of each term.

    Reference: Robert and Casella 2004, Monte Carlo Statistical Methods, Section 3.3.
    """

    def corrected(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        *inputs, ratio = batch.inputs
        losses = objective(model, batch._replace(inputs=tuple(inputs)), generator)
        return losses * expand_weight(losses, ratio)

    return corrected


def same_noise(objective: Objective) -> Objective:
    """The objective whose draws are the same whenever it is asked: one function of weights and batch.

    Args:
        objective: The loss of each term.
    """

    def asked(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        return objective(model, batch, Generator(generator.device).manual_seed(0))

    return asked


def reconstruction_error(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    r"""\|x - decode(encode(x))\|^2 of each example, summed over its features."""
    core, x = core_of(model), features_of(model, batch.inputs[0]).flatten(1)
    return (x - core.decode(core.encode(x))).square().sum(1)


def reconstruction(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    r"""\|x - f(x)\|^2 / d of each example, of a model that returns its input again, in the model's units."""
    return reconstructing(squared_error)(model, batch, generator)


def reconstructing(loss: Callable[[Any, Tensor], Tensor]) -> Objective:
    """The mean loss of each example of a model that returns its input again, in the model's units.

    Args:
        loss: ``(outputs, inputs) -> the loss of each term``.
    """

    def objective(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        terms = loss(model(*batch.inputs), features_of(model, batch.inputs[0]))
        return terms.flatten(1).mean(1) if terms.ndim > 1 else terms

    return objective


def negative_log_density(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """-log p(x) of each example, in nats."""
    core, x = core_of(model), features_of(model, batch.inputs[0]).flatten(1)
    log_density: Tensor = -core.log_prob(x)
    return log_density


Kind = Literal["mixup", "cutmix"]


def mixed(objective: Objective, kind: Kind, alpha: float = 1.0) -> Objective:
    """The objective at examples of a batch mixed with others of the same batch.

    One lambda is drawn a batch, partners by a permutation of the examples of weight > 0; a filler of weight 0
    is nobody's partner. The loss of a pair counts by the weights of its two examples, lambda w and
    (1 - lambda) w', whose sum over the batch is that of the weights. In evaluation mode nothing is mixed.

    The model is asked once where the objective is a task's loss of its outputs, else once for y and once
    for y'.

    Args:
        objective: The loss of each term.
        kind: mixup or cutmix.
        alpha: Both parameters of the Beta distribution, > 0; 1 is uniform, near 0 nearly nothing is mixed.

    Raises:
        ValueError: An option is out of range; later, inputs are not real or no images, or a weight is not
            that of a whole example.

    Reference: Zhang, Cisse, Dauphin and Lopez-Paz 2018, "mixup", Eq. 1; Yun et al. 2019, "CutMix", Eq. 1-2.
    """
    if kind not in ("mixup", "cutmix"):
        raise ValueError(f"kind must be mixup or cutmix: got {kind!r}")
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive and finite: got {alpha}")
    return Mixed(objective, kind, alpha)


@dataclass(frozen=True, slots=True)
class Mixed:
    """What :func:`mixed` makes: an objective whose examples are mixed while the model trains."""

    objective: Objective
    kind: Kind
    alpha: float

    def __call__(self, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        """The loss of each pair."""
        if not model.training:
            return self.objective(model, batch, generator)
        check_mixable(batch, self.kind)
        lam = beta(self.alpha, generator)
        partner = partners(batch, generator)
        if self.kind == "mixup":
            inputs = tuple(interpolated(x, x[partner], lam) for x in batch.inputs)
        else:
            box = box_of(batch.inputs[0].shape[2:], lam, generator)
            inputs, lam = (pasted(batch.inputs[0], batch.inputs[0][partner], box),), box.rest
        own, other = self._losses(model, batch._replace(inputs=inputs), partner, generator)
        ratio = torch.ones(len(partner)) if batch.weight is None else _ratio(batch.weight, partner)
        return lam * own + (1 - lam) * expand_weight(other, ratio.to(other)) * other

    def _losses(
        self, model: nn.Module, batch: Batch, partner: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """The losses at the mixed inputs, to the examples' own targets and to their partners'."""
        if batch.targets is None:
            raise ValueError("mixing needs targets, and the data have none")
        others = batch.targets[partner]
        if isinstance(self.objective, Risk) and (loss := self.objective.task.loss) is not None:
            outputs = model(*batch.inputs)
            return loss(outputs, batch.targets), loss(outputs, others)
        own = self.objective(model, batch, generator)
        return own, self.objective(model, batch._replace(targets=others), generator)


def check_mixable(batch: Batch, kind: Kind) -> None:
    """Refuse inputs that cannot be mixed, and weights of less than an example.

    Raises:
        ValueError: Inputs are not real, CutMix is handed no image, or a weight has more axes than one.
    """
    odd = [str(x.dtype) for x in batch.inputs if not x.is_floating_point()]
    if odd:
        raise ValueError(f"{kind} needs real inputs: got {odd[0]}")
    if kind == "cutmix" and (len(batch.inputs) != 1 or batch.inputs[0].ndim != 4):
        shapes = ", ".join(str(tuple(x.shape)) for x in batch.inputs)
        raise ValueError(f"cutmix needs one image an example, (batch, channels, height, width): got {shapes}")
    if batch.weight is not None and batch.weight.ndim != 1:
        raise ValueError(f"{kind} needs one weight an example: got shape {tuple(batch.weight.shape)}")


def beta(alpha: float, generator: Generator) -> float:
    """A draw from Beta(alpha, alpha); torch's own takes no generator."""
    seed = torch.randint(2**62, (), generator=generator, device=generator.device).item()
    return float(np.random.default_rng(int(seed)).beta(alpha, alpha))


def partners(batch: Batch, generator: Generator) -> Tensor:
    """The index of each example's partner: a permutation that leaves examples of weight 0 alone."""
    x = batch.inputs[0]
    index = torch.arange(len(x), device=x.device)
    real = index if batch.weight is None else (batch.weight != 0).nonzero()[:, 0]
    order = torch.randperm(len(real), generator=generator, device=generator.device).to(x.device)
    return index.scatter(0, real, real[order])


def interpolated(x: Tensor, other: Tensor, lam: float) -> Tensor:
    """The mixture lam x + (1 - lam) x' (Zhang et al. 2018, Eq. 1)."""
    return lam * x + (1 - lam) * other


@dataclass(frozen=True, slots=True)
class Box:
    """A box of pixels of an image of ``size``, rows [top, bottom) and columns [left, right)."""

    top: int
    bottom: int
    left: int
    right: int
    size: tuple[int, int]

    @property
    def rest(self) -> float:
        """The share of the image's pixels outside of the box."""
        area = (self.bottom - self.top) * (self.right - self.left)
        return 1 - area / (self.size[0] * self.size[1])


def box_of(size: Sequence[int], lam: float, generator: Generator) -> Box:
    """A box of sqrt(1 - lam) of each side around a uniform pixel, cut off at the border.

    Reference: Yun et al. 2019, Eq. 2.
    """
    height, width = size
    ends = []
    for side in size:
        cut = round(side * math.sqrt(1 - lam))
        start = int(torch.randint(side, (), generator=generator, device=generator.device)) - cut // 2
        ends.append((max(start, 0), min(start + cut, side)))
    return Box(*ends[0], *ends[1], size=(height, width))


def pasted(
    x: Float[Tensor, "batch channels height width"],
    other: Float[Tensor, "batch channels height width"],
    box: Box,
) -> Float[Tensor, "batch channels height width"]:
    """Images with the box of x' pasted in, at the same place (Yun et al. 2019, Eq. 1)."""
    made, rows, columns = x.clone(), slice(box.top, box.bottom), slice(box.left, box.right)
    made[:, :, rows, columns] = other[:, :, rows, columns]
    return made


def _ratio(weight: Tensor, partner: Tensor) -> Tensor:
    """The ratio w' / w of each example and its partner, 1 where w is 0."""
    return torch.where(weight == 0, 1, weight[partner] / weight)


def can_scale(entry: Entry) -> bool:
    """Whether an entry's targets can be scaled: values, learned by gradients of their squared error."""
    return bool(entry.optimizers) and not entry.objective and resolve(entry.task) is VALUES


def with_outcome(data: Data, entry: Entry, training: Training) -> tuple[Data, tuple[str, ...]]:
    """The data with the map from a model's own output to the user's units, and what is said of it.

    Args:
        data: From a source; only where its encoding says that targets are values are they scaled.
        entry: What is trained.
        training: The resolved options.
    """
    values = getattr(data.splits["train"], "targets", None)
    asked = can_scale(entry) and training.scale_targets == "standard"
    if not asked or data.encoding.get("task") != "values" or values is None or not len(values):
        return data, ()
    target = fit_standardize(values.double().reshape(-1, 1), per="feature")
    mean, std = target.mean[0], target.std[0]
    # y = m + s z is a standardization too: y = (z - (-m / s)) / (1 / s)
    outcome = Standardize(-mean / std, 1 / std)
    note = (
        f"the targets are scaled for the training, by their mean {float(mean):.6g} and deviation "
        f"{float(std):.6g}; losses and predictions are in their own units; --scale-targets none leaves them"
    )
    return replace(data, outcome=outcome), (note,)


def with_precision(data: Data, training: Training) -> tuple[Training, tuple[str, ...]]:
    """The options, with float64 where numbers vary less than float32 resolves, and what is said of it.

    Raises:
        ValueError: bfloat16 was asked for.
    """
    if not data.encoding.get("wide") or training.precision == "float64":
        return training, ()
    if training.precision == "bfloat16":
        raise ValueError(
            f"{data.name} holds numbers that vary less than float32 resolves: set --precision float64"
        )
    note = f"{data.name} holds numbers that vary less than float32 resolves: the precision is float64"
    return replace(training, precision="float64"), (note,)


def scale_of(model: nn.Module) -> float:
    """s, what a unit of the model's own output stands for; 1 where targets are as they are."""
    outcome = getattr(model, "outcome", None)
    return 1.0 if outcome is None else 1 / float(outcome.std)


def standardized_loss(objective: Objective | None, scale: float) -> Objective | None:
    """A squared error in units of the targets' variance."""
    if objective is None or scale == 1.0:
        return objective
    inner = objective

    def scaled(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        return inner(model, batch, generator) / scale**2

    return scaled


def in_own_units(step: Step, scale: float) -> Step:
    """A step whose reported loss is in the square of the user's units."""
    if scale == 1.0:
        return step

    def reporting(state: State, batch: Batch) -> Metrics:
        metrics = step(state, batch)
        return {name: value * scale**2 if name == "loss" else value for name, value in metrics.items()}

    return reporting


def moving_objective(
    objective: Objective | None, task: Task, data: Data, training: Training
) -> Objective | None:
    """The objective that a step minimizes; what an evaluation averages stays as it was.

    Raises:
        ValueError: A trick does not fit the task.
    """
    smoothing = float(training.label_smoothing or 0)
    if smoothing or training.confusion or training.class_weight:
        if objective is not None and not isinstance(objective, Risk):
            raise ValueError(
                "smoothed labels and weighted classes change a task's loss: the model has its own"
            )
        objective = smoothed(
            task,
            smoothing=smoothing,
            confusion=confusion_of(data, training),
            class_weight=class_weights(data, training),
        )
    if objective is None:
        return None
    if training.mix == "mixup" or training.mix == "cutmix":
        objective = mixed(objective, training.mix, float(training.mix_alpha or 1))
    if training.precision == "bfloat16":
        objective = autocast(objective, torch.device(str(training.device)).type)
    return objective


def confusion_of(data: Data, training: Training) -> Tensor | None:
    """The confusion as a matrix.

    Raises:
        ValueError: It has not a row and a column a class, or a row is no distribution.
    """
    rows = training.confusion
    if not rows:
        return None
    classes = data.spec.get("num_classes")
    if any(len(row) != len(rows) for row in rows):
        lengths = ", ".join(str(len(row)) for row in rows)
        raise ValueError(f"confusion must have a row and a column a class: got rows of {lengths} numbers")
    confusion = torch.tensor(rows, dtype=torch.float64)
    check_smoothing(0.0, confusion, None if classes is None else int(classes))
    return confusion


def class_weights(data: Data, training: Training) -> Tensor | None:
    """The weight of each class: as given, or n / (K n_k), by which every class counts the same.

    Where examples have weights, n and n_k are sums of those.

    Raises:
        ValueError: There is not one weight a class, or a class to be balanced has no example.
    """
    if training.class_weight is None:
        return None
    part, classes = data.splits["train"], data.spec.get("num_classes")
    if training.class_weight != "balanced":
        given = torch.tensor(training.class_weight, dtype=torch.float64)
        if classes is not None and len(given) != classes:
            raise ValueError(f"class_weight must have one weight a class: got {len(given)} for {classes}")
        return given
    labels, weight = getattr(part, "targets", None), getattr(part, "weight", None)
    if labels is None or labels.is_floating_point() or classes is None:
        raise ValueError(f"class_weight needs labels: those of {data.name} are no classes, or unknown")
    counts = torch.bincount(labels.flatten(), weight, minlength=int(classes)).double()
    if not bool((counts > 0).all()):
        names = data.encoding.get("classes") or range(len(counts))
        absent = next(name for name, count in zip(names, counts.tolist(), strict=True) if not count > 0)
        raise ValueError(f"balanced classes need an example of each: class {absent} has none in training")
    return counts.sum() / (len(counts) * counts)
