"""How a training goes: the options that every model shares. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from margin.hints import fits, spoken

Amount = int | Literal["all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Options of all trainings; what is not given is the model's own default, then the house's.

    Args:
        seed: Seeds weights, order and noise.
        epochs: Passes over the training examples.
        max_steps: Steps; overrides epochs.
        batch_size: Examples a step, or all.
        optimizer: Name of a class in torch.optim.
        lr: Learning rate.
        optimizer_options: Its other arguments.
        decay_norms: Whether weight decay applies to biases and normalization layers too.
        schedule: Factor of the learning rate over the training.
        warmup: Steps over which the learning rate rises from 0.
        clip: Largest norm of the gradient; inf never clips.
        accumulate: Pieces into which a batch is cut to save memory; their gradients are summed.
        average: Decay of a moving average of the weights, 0 for none.
        until: Stop when a metric of the step is at most this.
        patience: Stop after so many evaluations without a better validation loss, 0 for never.
        evaluate_every: Steps between evaluations; an epoch if not given.
        checkpoint_every: Steps between checkpoints; at each evaluation if not given.
        precision: Type of the weights, or bfloat16 autocast over float32 weights.
        device: cpu, cuda, cuda:1, mps.
        threads: Threads of the CPU; torch's own choice if not given.
        compile: Whether the model is compiled.
        processes: Processes among which every batch is divided; under torchrun, those that it has started.
        strategy: Whether each process keeps all weights, or a share of them.
        workers: Processes that read examples ahead; 0 reads them in the training's own.
        log: Further copies of the history: csv, tensorboard.
    """

    seed: int | None = None
    epochs: int | None = None
    max_steps: int | None = None
    batch_size: Amount | None = None
    optimizer: str | None = None
    lr: float | None = None
    optimizer_options: dict[str, Any] | None = None
    decay_norms: bool | None = None
    schedule: Literal["constant", "cosine", "linear"] | None = None
    warmup: int | None = None
    clip: float | None = None
    accumulate: int | None = None
    average: float | None = None
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
    log: list[Literal["csv", "tensorboard"]] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not fits(value, field.type):
                raise ValueError(f"{field.name} must be {spoken(field.type)}: got {value!r}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, int | float) and not value >= least:
                raise ValueError(f"{name} must be at least {least}: got {value}")
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"lr must be positive: got {self.lr}")
        if self.average is not None and not 0 <= self.average < 1:
            raise ValueError(f"average must be in [0, 1): got {self.average}")

    def over(self, defaults: Mapping[str, Any]) -> "Training":
        """These options, each that is None taken from ``defaults``, then from the house's."""
        base = replace(HOUSE, **defaults)
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(base, **given)

    def as_json(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


_LEAST = {
    "epochs": 0,
    "max_steps": 0,
    "batch_size": 1,
    "warmup": 0,
    "clip": 0,
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
    optimizer="AdamW",
    lr=1e-3,
    optimizer_options={},
    decay_norms=False,
    schedule="constant",
    warmup=0,
    clip=float("inf"),
    accumulate=1,
    average=0.0,
    until={},
    patience=0,
    precision="float32",
    device="cpu",
    compile=False,
    processes=1,
    strategy="ddp",
    workers=0,
    log=[],
)
"""What a training does where neither the user nor the model says otherwise."""
