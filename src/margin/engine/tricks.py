"""What a training's options make of its examples and its objective, before a step sees them.

Each trick is a function of its own elsewhere; here is their order. Examples are ordered from easy to hard,
then changed at random; a loss is smoothed, then taken of mixed examples, then computed in bfloat16.
"""

import torch
from torch import Generator, Tensor, nn

from margin.core.options import Training
from margin.core.tasks import Task, class_loss
from margin.core.types import Examples, Objective
from margin.data.examples import Batches, Data, InOrder, evaluation_batch
from margin.data.formats.objects.streams import Stream, ordered
from margin.data.preprocess import Standardize
from margin.data.sampling.curriculum import paced, within_classes
from margin.data.transforms.augmentation import augmented, transforms_of
from margin.engine.evaluation import eval_mode
from margin.engine.loop import Risk, autocast
from margin.engine.objectives import check_mixable, mixed, smoothed
from margin.engine.parallel.processes import world
from margin.engine.runs import load, run_at
from margin.nn.losses import check_smoothing
from margin.nn.preprocessed import dtype_of


def drawn(examples: Examples | Stream, batch_size: int, data: Data, training: Training) -> Batches:
    """The batches of a training: shuffled, or the easy examples first; changed at random where asked for.

    Raises:
        ValueError: A transform does not fit the data, or a stream would be ordered.
    """
    seed = int(training.seed or 0)
    changed = examples
    if not isinstance(examples, Stream) and (training.mix == "mixup" or training.mix == "cutmix"):
        check_mixable(examples.take(torch.arange(1), Generator()), training.mix)
    if training.augment:
        if isinstance(examples, Stream):
            raise ValueError(f"{data.name} is a stream, which brings its own changes: leave out --augment")
        changed = augmented(examples, transforms_of(training.augment, setting(data)))
    if not training.curriculum:
        return ordered(changed, batch_size, seed=seed, share=world())
    if isinstance(examples, Stream) or isinstance(changed, Stream):
        raise ValueError(f"{data.name} is a stream, in its own order: leave out --curriculum")
    if batch_size >= len(examples):
        raise ValueError(
            f"a curriculum needs batches of less than all {len(examples)} examples: got {batch_size}"
        )
    return paced(
        changed,
        difficulty(training.curriculum, examples),
        batch_size,
        pacing=training.pacing or "linear",
        start=float(training.pacing_start or 1),
        end=float(training.pacing_end or 1),
        total=int(training.max_steps or 0),
        epochs=int(training.epochs or 0),
        seed=seed,
        share=world(),
    )


def setting(data: Data) -> dict[str, object]:
    """The spec with what a transform must know besides: the unit of noise, its bounds, the value of nothing.

    Noise is in standard deviations where inputs are standardized. What comes into an image from outside has
    the least value of its domain.
    """
    more: dict[str, object] = {"domain": data.domain} if data.domain is not None else {}
    if data.domain is not None and float(data.domain.low.max()) == float(data.domain.low.min()):
        more["background"] = float(data.domain.low.min())
    if isinstance(data.preprocess, Standardize):
        more["spread"] = data.preprocess.std
    return {**data.spec, **more}


def difficulty(path: str, examples: Examples) -> Tensor:
    """The rank of each training example in its class by its loss under the model of another run.

    Raises:
        FileNotFoundError: There is no such run.
        ValueError: Its model predicts no classes, takes other inputs, or its loss is no number.
    """
    model = load(run_at(path, "curriculum"))
    found, labels = [], []
    with torch.no_grad(), eval_mode(model):
        for batch in InOrder(examples, evaluation_batch(examples), dtype=dtype_of(model)):
            if batch.targets is None or batch.targets.is_floating_point():
                raise ValueError("a curriculum orders labeled examples: these have no classes")
            found.append(_losses(model, batch.inputs, batch.targets, path))
            labels.append(batch.targets)
    losses = torch.cat(found)
    if bool(losses.isnan().any()):
        raise ValueError(f"a curriculum needs a loss of each example: {path} gives some that are no numbers")
    return within_classes(losses, torch.cat(labels))


def _losses(model: nn.Module, inputs: tuple[Tensor, ...], labels: Tensor, path: str) -> Tensor:
    """The losses of labels under the model of a run."""
    try:
        outputs = model(*inputs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # what torch raises where shapes do not fit
        shapes = ", ".join(str(tuple(x.shape[1:])) for x in inputs)
        reason = str(error).splitlines()[0]
        raise ValueError(f"curriculum must be a run on inputs of shape {shapes}: {path}: {reason}") from error
    if outputs.ndim != 2 or int(labels.max()) >= outputs.shape[1]:
        raise ValueError(f"curriculum must be a run on these classes: the model of {path} has others")
    return class_loss(outputs, labels)


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


def teacher_of(training: Training) -> nn.Module | None:
    """The model of the run that a rule learns from, on the training's device; None where none is named."""
    if not training.teacher:
        return None
    return load(run_at(training.teacher, "teacher")).to(str(training.device)).requires_grad_(False)
