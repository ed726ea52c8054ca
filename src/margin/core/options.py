"""How a training goes: the options that every model shares. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from margin.core.hints import describe_type, fits

Amount = int | Literal["all"]
Schedule = Literal["constant", "cosine", "linear", "step", "exponential", "power", "inverse_sqrt", "plateau"]
Averaging = float | Literal["mean"]
Weights = list[float] | Literal["balanced"]


COMMON = (
    *("epochs", "batch_size", "optimizer", "lr", "schedule"),
    *("augment", "patience", "init_from", "seed", "device"),
)
"""The options that people change, which every help lists."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "steps and rate": (
        *("epochs", "max_steps", "until", "patience", "optimizer", "optimizer_options", "lr"),
        *("layer_decay", "schedule", "schedule_options", "warmup", "clip"),
    ),
    "batches and order": (
        *("batch_size", "accumulate", "seed", "scale", "scale_targets", "workers"),
        *("curriculum", "pacing", "pacing_start", "pacing_end"),
    ),
    "loss": ("label_smoothing", "class_weight", "confusion", "teacher"),
    "regularization": ("augment", "mix", "mix_alpha", "decay_norms", "average", "average_start"),
    "initial weights": ("init", "init_scale", "init_from", "freeze"),
    "where it runs": ("device", "threads", "processes", "strategy", "precision", "compile"),
    "what is kept": ("evaluate_every", "checkpoint_every", "track", "log"),
}
"""All options of a training, by group, as the whole help lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Options of all trainings; what is not given is the model's own default, then the package's.

    Args:
        seed: Random seed: weights, order and noise follow from it.
        epochs: Epochs: passes over the training examples.
        max_steps: Training steps; overrides epochs.
        batch_size: Batch size: examples a step, or all.
        scale: Input scaling: mean 0 and variance 1 where the source does so (standard), from the domain to
            [0, 1] (unit) or to [-1, 1] (symmetric), or none.
        scale_targets: Target scaling: real-valued targets have mean 0 and variance 1 while a model is trained
            by gradients (standard), or are left as they are (none); losses, metrics and predictions are in
            their own units.
        init: Weight initialization, as he_normal or orthogonal; the model's own if not given.
        init_scale: Scale of the initialization: standard deviation of normal and uniform weights, gain of
            orthogonal ones.
        init_from: Pretrained weights of a run or a file (.safetensors, .pt), or of a folder as transformers
            writes it: tensors are copied wherever name and shape agree. Of a file of word vectors (.txt,
            .vec, .npy beside its words in a .txt), the vectors of the words of the data.
        freeze: Frozen parameters, by the beginning of their names; they are not trained.
        optimizer: Optimizer of torch.optim or of the catalog.
        lr: Learning rate.
        layer_decay: Layer-wise learning-rate decay: factor from each layer to the one before it.
        optimizer_options: Optimizer arguments, as {weight_decay: 0.01}.
        decay_norms: Whether weight decay applies to biases and normalization layers too.
        schedule: Learning-rate schedule: factor of the learning rate over the training.
        schedule_options: Schedule parameters, as {every: 1000, factor: 0.5} of step.
        warmup: Learning-rate warmup: steps of the rise from 0.
        clip: Gradient clipping: largest norm; inf never clips.
        accumulate: Gradient accumulation: the batch is split into N pieces whose gradients are summed, which
            saves memory.
        average: Weight averaging: decay of an exponential moving average, mean for the plain mean of the
            weights, 0 for none.
        average_start: Start of weight averaging: steps before the mean of the weights begins.
        augment: Data augmentation, as shift:2,flip: random changes of the training inputs.
        mix: Mixing of two examples into one: their weighted sum (mixup), or a box of one in the other
            (cutmix).
        mix_alpha: Mixing distribution: both parameters of the Beta distribution of the weight of each
            example.
        label_smoothing: Label smoothing: probability that a label is replaced by one drawn from all classes.
        confusion: Label-noise matrix: probability of training on class j where the label is y, a row for each
            y.
        class_weight: Class weights of the loss; balanced gives each class the same sum.
        curriculum: Curriculum learning: a run whose losses rank the training examples, the easy ones first.
        pacing: Pacing function of the curriculum: how the share of the examples that are drawn from grows.
        pacing_start: Start of the pacing: share of the examples that the training begins with.
        pacing_end: End of the pacing: share of the training after which all examples are drawn from.
        teacher: Knowledge distillation: the run whose model a rule learns from.
        until: Stopping criterion: stop when a metric of the step is at most this, as {loss: 0.3}.
        patience: Patience of early stopping: evaluations without a better validation loss, 0 for never.
        evaluate_every: Evaluation interval in steps; an epoch if not given.
        checkpoint_every: Checkpoint interval in steps; at each evaluation if not given.
        precision: Floating-point type of the weights; bfloat16 is autocast (mixed precision) over float32
            weights.
        device: Device: cpu, cuda, cuda:1, mps.
        threads: CPU threads; torch's own choice if not given.
        compile: Whether the model is compiled (torch.compile).
        processes: Data-parallel processes: every batch is divided among them; under torchrun, those that it
            has started.
        strategy: Parallel strategy: weights are replicated in each process (ddp) or sharded among them
            (fsdp).
        workers: Data-loading worker processes, which read examples ahead; 0 reads them in the training's own.
        track: Measurements at every evaluation, by name: their columns join the history.
        log: Logs besides history.jsonl: a copy for other tools (csv, tensorboard), pictures or texts of
            samples over time.
    """

    seed: int | None = None
    epochs: int | None = None
    max_steps: int | None = None
    batch_size: Amount | None = None
    scale: Literal["standard", "unit", "symmetric", "none"] | None = None
    scale_targets: Literal["standard", "none"] | None = None
    init: str | None = None
    init_scale: float | None = None
    init_from: str | None = None
    freeze: list[str] | None = None
    optimizer: str | None = None
    lr: float | None = None
    layer_decay: float | None = None
    optimizer_options: dict[str, Any] | None = None
    decay_norms: bool | None = None
    schedule: Schedule | None = None
    schedule_options: dict[str, float] | None = None
    warmup: int | None = None
    clip: float | None = None
    accumulate: int | None = None
    average: Averaging | None = None
    average_start: int | None = None
    augment: list[str] | None = None
    mix: Literal["none", "mixup", "cutmix"] | None = None
    mix_alpha: float | None = None
    label_smoothing: float | None = None
    confusion: list[list[float]] | None = None
    class_weight: Weights | None = None
    curriculum: str | None = None
    pacing: Literal["linear", "root", "step", "exponential"] | None = None
    pacing_start: float | None = None
    pacing_end: float | None = None
    teacher: str | None = None
    until: dict[str, float] | None = None
    patience: int | None = None
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    precision: Literal["float32", "float64", "bfloat16"] | None = None
    device: str | None = None
    threads: int | None = None
    compile: bool | None = None
    processes: int | None = None
    strategy: Literal["ddp", "fsdp"] | None = None
    workers: int | None = None
    track: list[str] | None = None
    log: list[Literal["csv", "tensorboard", "samples"]] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not fits(value, field.type):  # each may be left out
                raise ValueError(f"{field.name} must be {describe_type(field.type)}: got {value!r}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, int | float) and not value >= least:
                raise ValueError(f"{name} must be at least {least}: got {value}")
        if self.seed is not None and self.seed >= 2**64:
            raise ValueError(f"seed must be below 2^64: got {self.seed}")
        for name in ("lr", "init_scale", "mix_alpha", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive: got {value}")
        for name in ("average", "label_smoothing"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1): got {value}")
        for name, bound in (self.until or {}).items():
            if bound != bound:
                raise ValueError(f"until must hold numbers: got {bound} of {name}")
        for name in ("layer_decay", "pacing_start", "pacing_end"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name} must be in (0, 1]: got {value}")

    def over(self, defaults: Mapping[str, Any]) -> "Training":
        """These options, each that is None taken from ``defaults``, then from the house's.

        Epochs that are given stand in place of a number of steps that is not.
        """
        base = replace(HOUSE, **defaults)
        if self.epochs is not None and self.max_steps is None:
            base = replace(base, max_steps=None)
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(base, **given)

    def changing(self, recorded: "Training") -> "Training":
        """These options over those of a record, in which None is a value as any other: no default is asked.

        Epochs that are given stand in place of a recorded number of steps.
        """
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        if self.epochs is not None and self.max_steps is None:
            given["max_steps"] = None
        return replace(recorded, **given)

    @classmethod
    def recorded(cls, options: Mapping[str, Any]) -> "Training":
        """The resolved options of a record, as they stand there; no default is asked.

        An option that is newer than the record is as it was before there was a choice (:data:`FORMERLY`).

        Raises:
            ValueError: An option is unknown, missing, of another type, out of range, or null where it has a
                value.
        """
        known = {f.name: f.type for f in fields(cls)}
        if unknown := [name for name in options if name not in known]:
            raise ValueError(f"there is no option {unknown[0]!r}")
        if missing := [name for name in known if name not in options and name not in FORMERLY]:
            raise ValueError(f"the option {missing[0]} is missing")
        for name, value in options.items():
            if not fits(value, known[name]) or (value is None and getattr(HOUSE, name) is not None):
                shown = "null" if value is None else repr(value)
                raise ValueError(f"{name} must be {describe_type(known[name])}: got {shown}")
        return cls(**{**FORMERLY, **options})

    def as_json(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


FORMERLY: Mapping[str, Any] = {"scale_targets": "none"}
"""Options that are newer than some records, as they were before there was a choice."""


def newer_options(recorded: Mapping[str, Any]) -> tuple[str, ...]:
    """What is said of the options that are newer than a record: as what each of them is taken."""
    return tuple(
        f"the record is older than the option {name}: it is taken as {value}, as it was then"
        for name, value in FORMERLY.items()
        if name not in recorded
    )


_LEAST = {
    "seed": 0,
    "epochs": 0,
    "max_steps": 0,
    "batch_size": 1,
    "warmup": 0,
    "average_start": 0,
    "accumulate": 1,
    "patience": 0,
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "threads": 1,
    "processes": 1,
    "workers": 0,
}

HOUSE = Training(
    seed=0,
    epochs=10,
    batch_size=32,
    scale="standard",
    scale_targets="standard",
    init="",
    init_from="",
    freeze=[],
    optimizer="AdamW",
    lr=1e-3,
    layer_decay=1.0,
    optimizer_options={},
    decay_norms=False,
    schedule="constant",
    schedule_options={},
    warmup=0,
    clip=float("inf"),
    accumulate=1,
    average=0.0,
    average_start=0,
    augment=[],
    mix="none",
    mix_alpha=1.0,
    label_smoothing=0.0,
    curriculum="",
    pacing="linear",
    pacing_start=0.2,
    pacing_end=0.5,
    teacher="",
    until={},
    patience=0,
    precision="float32",
    device="cpu",
    compile=False,
    processes=1,
    strategy="ddp",
    workers=0,
    track=[],
    log=[],
)
"""What a training does where neither the user nor the model says otherwise."""
