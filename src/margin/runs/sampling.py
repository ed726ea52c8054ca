"""Sampling from a generative model of a run: texts, sounds, points, in the user's units.

A model that can be sampled has a method ``sample(count, *, generator, ...)`` that returns ``count`` samples
in its own units; its other keyword-only parameters are the user's options. A training may keep pictures of
its samples, RUN/samples/, or texts, one at each row of the history.
"""

import inspect
import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from torch import Generator, Tensor, nn

from margin.core.catalog import check_options, resolve, user_options
from margin.data.files.writing import whole_file, write_whole
from margin.data.formats.audio.wave import write_wave
from margin.data.formats.text.sources import decode, encode_prompt
from margin.data.preprocess import Standardize
from margin.data.transforms.mu_law import mu_law_decode
from margin.data.transforms.sample_sheet import has_picture, write_picture
from margin.engine.evaluation import eval_mode
from margin.engine.hooks import at_rows
from margin.engine.loop import Hook, State
from margin.engine.runs import Run, load, run_of
from margin.figures.rows import html_text
from margin.nn.preprocessed import core_of

Verb = Literal["sample", "interpolate"]

ENDS = {"unit": (0.0, 1.0), "symmetric": (-1.0, 1.0)}
"""The model's values of black and white under a scale that knows them."""

OWN = ("generator", "prefix")
"""Parameters of ``sample`` that are not given as options."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Samples:
    """What was drawn from a run.

    Args:
        values: In the user's units; the first axis is the sample. Tokens begin with the prefix.
        texts: The same as text, where the samples are tokens of text.
        rate: Samples a second, where they are sounds; else 0.
        span: The values that are shown as black and white, where they are known.
    """

    values: Tensor
    texts: tuple[str, ...] = ()
    rate: int = 0
    span: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """The texts one below the other; several are headed by a line that counts them."""
        count = len(self.texts)
        if count < 2:
            return "".join(self.texts)
        return "\n".join(f"--- {k} of {count} ---\n{text}" for k, text in enumerate(self.texts, 1))

    def __repr__(self) -> str:
        count, numbers = len(self.values), self.values.double()
        if self.texts:
            begin = self.texts[0][:60]
            return f"{count} texts; the first: {begin!r}{'...' if len(self.texts[0]) > len(begin) else ''}"
        shape = "x".join(map(str, self.values.shape[1:])) or "one number"
        sound = f", {self.rate} a second" if self.rate else ""
        return f"{count} samples of {shape}{sound}, from {numbers.min():.4g} to {numbers.max():.4g}"

    def _repr_html_(self) -> str:
        if self.texts or not has_picture(self.values) or not bool(self.values.isfinite().all()):
            return html_text(self.text or repr(self))
        with TemporaryDirectory() as folder:
            picture = b64encode(self.write(Path(folder) / "samples.png").read_bytes()).decode()
        return f'<img alt="{escape(repr(self))}" src="data:image/png;base64,{picture}">'

    def write(self, path: Path) -> Path:
        """Write them: ``.npy`` any, ``.png`` images or points of the plane, ``.txt`` texts, ``.wav`` sounds.

        Raises:
            ValueError: The ending is none of these, or does not fit the samples.
        """
        written = {
            ".npy": True,
            ".png": has_picture(self.values),
            ".txt": bool(self.texts),
            ".wav": bool(self.rate),
        }
        if not written.get(path.suffix):
            fits = ", ".join(ending for ending, fit in written.items() if fit)
            raise ValueError(f"the file must end in {fits} for these samples: got {path.name}")
        if path.suffix == ".npy":
            with whole_file(path) as file:
                np.save(file, self.values.numpy())
        elif path.suffix == ".png":
            write_picture(path, self.values, self.span)
        elif path.suffix == ".txt":
            write_whole(path, f"{self.text}\n".encode())
        else:
            write_wave(path, self.values.flatten(), self.rate)
        return path


def sampler_of(run: Run, verb: Verb = "sample") -> Callable[..., Tensor]:
    """The method by which a run's model is sampled, or by which a path is drawn between two samples, unbound.

    Raises:
        ValueError: It has none.
    """
    name = run.record["recipe"]["model"]
    build = resolve(run.entry.build)
    made = build if isinstance(build, type) else inspect.signature(build, eval_str=True).return_annotation
    method: Callable[..., Tensor] | None = getattr(made, verb, None)
    if method is None:
        lacking = "cannot be sampled" if verb == "sample" else "has no path between two samples"
        raise ValueError(f"{name} {lacking}")
    return method


def options_of(sampler: Callable[..., Tensor]) -> tuple[str, ...]:
    """The options of a sampler that the user chooses."""
    return tuple(name for name in user_options(sampler) if name not in OWN)


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
        prefix: How a text begins; it is part of each sample.
        options: The options of the model's method ``sample``.

    Raises:
        ValueError: The model cannot be sampled, or an option does not fit.
    """
    given = dict(options or {})
    if prefix:
        run = run_of(run)
        encoding = run.record["data"]["encoding"]
        if "prefix" not in user_options(sampler_of(run)) or encoding.get("format") != "text":
            raise ValueError(f"{run.record['recipe']['model']} continues no text: leave out the prefix")
        given["prefix"] = encode_prompt(prefix, encoding)
    return _drawn(run, "sample", count, seed, given)


def interpolate(
    run: str | Path | Run, count: int, *, seed: int = 0, options: Mapping[str, Any] | None = None
) -> Samples:
    """Draw two samples of a run's model and the samples on the path between them, where it begins and ends.

    Args:
        run: The run or its directory.
        count: How many in all, both ends included, at least 2.
        seed: Seed of what is drawn.
        options: The options of the model's method ``interpolate``.

    Raises:
        ValueError: The model knows no such path, or an option does not fit.
    """
    if count < 2:
        raise ValueError(f"a path needs at least 2 samples, its ends: got {count}")
    return _drawn(run, "interpolate", count, seed, dict(options or {}))


def _drawn(run: str | Path | Run, verb: Verb, count: int, seed: int, options: Mapping[str, Any]) -> Samples:
    run = run_of(run)
    sampler = sampler_of(run, verb)
    if count < 1:
        raise ValueError(f"the number of samples must be at least 1: got {count}")
    check_options(sampler, options, f"{verb} of {run.record['recipe']['model']}")
    return draw_from(load(run), run.record, count, verb=verb, seed=seed, options=options)


def draw_from(
    model: Any,
    record: Mapping[str, Any],
    count: int,
    *,
    verb: Verb = "sample",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Samples:
    """Samples of a run's module, in the user's units; leaves no trace.

    Args:
        model: The module behind its preprocessing.
        record: The run's.
        count: How many.
        verb: Samples, or the path between two.
        seed: Seed of what is drawn.
        options: Of the model's method; a prefix is put before what is drawn.
    """
    given = options or {}
    with torch.no_grad(), eval_mode(model):
        draw = getattr(core_of(model), verb)
        values = draw(count, generator=Generator().manual_seed(seed), **given)
        if (prefix := given.get("prefix")) is not None:
            values = torch.cat((prefix.to(values).expand(len(values), -1), values), 1)
        return _read(values, model.preprocess, record)


def _read(values: Tensor, preprocess: Any, record: Mapping[str, Any]) -> Samples:
    """Samples in the user's units: tokens as texts or sounds, rows in the shape of an example."""
    encoding = record["data"]["encoding"]
    if is_text(encoding):
        return Samples(values, tuple(decode(one, encoding) for one in values))
    if encoding.get("task") == "tokens" and encoding.get("format") == "audio":
        return Samples(mu_law_decode(values), rate=int(encoding["rate"]))
    shape = tuple(encoding.get("shape") or ())
    if values.ndim == 2 and math.prod(shape) == values.shape[1]:
        values = values.reshape(len(values), *shape)
    if not isinstance(preprocess, Standardize):
        return Samples(values)
    ends = ENDS.get(record["arguments"]["training"].get("scale"))
    box = None if ends is None else preprocess.inverse(torch.tensor(ends)[:, None, None, None])
    span = None if box is None else (float(box.min()), float(box.max()))
    return Samples(preprocess.inverse(values), span=span)


WRITTEN = 3
"""Texts that are kept at each row of the history."""

COUNT = {4: 64, 2: 1000}
"""Samples of a picture: images, or points of the plane, by the axes of their tensor."""


def is_text(encoding: Mapping[str, Any]) -> bool:
    """Whether samples are tokens of a text."""
    return encoding.get("task") == "tokens" and encoding.get("format") == "text"


def check_pictures(core: nn.Module, encoding: Mapping[str, Any]) -> None:
    """Refuse pictures of a model that cannot be sampled, or whose samples are no texts and have none.

    Raises:
        ValueError: It is such a model.
    """
    if not callable(getattr(core, "sample", None)):
        raise ValueError(f"--log samples needs a model that can be sampled: got {type(core).__name__}")
    shape = encoding.get("shape") or []
    if is_text(encoding):
        return
    if encoding.get("task") == "tokens" or not has_picture(torch.empty(1, *shape)):
        raise ValueError(
            "--log samples needs texts, images of 1 or 3 channels, or points of the plane: got the shape "
            f"{shape}"
        )


def sample_snapshots(run: Run) -> Hook:
    """A hook that draws a picture, or texts, whenever the history has a new row; the same noise each time.

    What is drawn leaves no trace, so a training with pictures is the training without.

    Args:
        run: Whose samples; its directory holds the pictures.
    """
    place, encoding = run.path / "samples", run.record["data"]["encoding"]

    def draw(state: State) -> None:
        place.mkdir(exist_ok=True)
        if is_text(encoding):
            texts = draw_from(state.usable, run.record, WRITTEN).texts
            write_whole(place / f"step-{state.step:08d}.json", json.dumps(texts).encode())
            return
        axes = 1 + len(encoding["shape"])
        found = draw_from(state.usable, run.record, COUNT[axes])
        if bool(found.values.isfinite().all()):
            write_picture(place / f"step-{state.step:08d}.png", found.values, found.span)

    return at_rows(run, draw)
