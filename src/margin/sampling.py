"""Drawing from a run whose model can be sampled: texts, sounds, points, in the user's units.

A model that can be sampled has a method ``sample(count, *, generator, ...)`` that returns ``count`` samples
in its own units; its other keyword-only parameters are the user's options.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from margin.catalog import chosen, find, models, resolve
from margin.data.mu_law import mu_law_decode
from margin.data.text import decode, encode_prompt
from margin.data.wave import write_wave
from margin.engine.asking import asking
from margin.engine.loading import load
from margin.engine.runs import Run
from margin.engine.state import core_of

OWN = ("generator", "prefix")
"""Parameters of ``sample`` that are not given as options."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """What was drawn from a run.

    Args:
        values: In the user's units; the first axis is the sample.
        texts: The same as text, where the samples are tokens of text.
        rate: Samples a second, where they are sounds; else 0.
    """

    values: Tensor
    texts: tuple[str, ...] = ()
    rate: int = 0

    def write(self, path: Path) -> Path:
        """Write the samples: ``.npy`` any, ``.txt`` texts, ``.wav`` sounds, one after the other.

        Raises:
            ValueError: The ending is none of these, or does not fit the samples.
        """
        written = {".npy": True, ".txt": bool(self.texts), ".wav": bool(self.rate)}
        if not written.get(path.suffix):
            fits = ", ".join(ending for ending, fit in written.items() if fit)
            raise ValueError(f"--out must end in {fits} for these samples: got {path.name}")
        if path.suffix == ".npy":
            np.save(path, self.values.numpy())
        elif path.suffix == ".txt":
            path.write_text("".join(f"{text}\n" for text in self.texts), encoding="utf-8")
        else:
            write_wave(path, self.values.flatten(), self.rate)
        return path


def sampler_of(run: Run) -> Callable[..., Tensor]:
    """The method by which a run's model is sampled, unbound.

    Raises:
        ValueError: It has none.
    """
    name = run.record["recipe"]["model"]
    build = resolve(find(models(), name, "model").build)
    made = build if isinstance(build, type) else inspect.signature(build, eval_str=True).return_annotation
    method: Callable[..., Tensor] | None = getattr(made, "sample", None)
    if method is None:
        raise ValueError(f"{name} cannot be sampled")
    return method


def options_of(sampler: Callable[..., Tensor]) -> tuple[str, ...]:
    """The options of a sampler that the user chooses."""
    return tuple(name for name in chosen(sampler) if name not in OWN)


def sample(
    run: str | Path | Run,
    count: int,
    *,
    seed: int = 0,
    prefix: str = "",
    options: Mapping[str, Any] | None = None,
) -> Samples:
    """Draw samples from a run's model.

    Args:
        run: The run or its directory.
        count: How many, at least 1.
        seed: Seed of what is drawn; the same seed gives the same samples.
        prefix: How a text begins.
        options: The options of the model's method ``sample``.

    Raises:
        ValueError: The model cannot be sampled, or an option does not fit.
    """
    run = Run(run.path if isinstance(run, Run) else run)
    sampler, encoding = sampler_of(run), run.record["data"]["encoding"]
    if count < 1:
        raise ValueError(f"the number of samples must be at least 1: got {count}")
    given = dict(options or {})
    if prefix:
        if "prefix" not in chosen(sampler) or encoding["format"] != "text":
            raise ValueError(f"{run.record['recipe']['model']} continues no text: leave out the prefix")
        given["prefix"] = encode_prompt(prefix, encoding)
    model = load(run)
    with torch.no_grad(), asking(model):
        core = core_of(model)
        values = core.sample(count, generator=Generator().manual_seed(seed), **given)
        undo = getattr(model.preprocess, "inverse", None)
    return _read(values if undo is None else undo(values), encoding)


def _read(values: Tensor, encoding: Mapping[str, Any]) -> Samples:
    """Samples of a kind of data: tokens become texts or sounds."""
    if encoding["task"] == "tokens" and encoding["format"] == "text":
        return Samples(values, tuple(decode(one, encoding) for one in values))
    if encoding["task"] == "tokens" and encoding["format"] == "audio":
        return Samples(mu_law_decode(values), rate=int(encoding["rate"]))
    return Samples(values)
