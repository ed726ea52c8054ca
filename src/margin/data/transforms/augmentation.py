"""Augmentation: each time an example is taken, it is changed at random in a way that keeps its target.

Training on the draws is, in expectation, training on the union of the data under all changes, the data
themselves included (Chapelle, Weston, Bottou and Vapnik, 2001, Vicinal risk minimization, Section 2).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.catalog import nearest
from margin.core.types import Batch, Examples
from margin.data.transforms.images import Cutout, Elastic, Flip, Moving, Resample, Translate
from margin.data.transforms.noise import Gain, Noise
from margin.data.transforms.points import Move, Thin, Turn
from margin.data.transforms.sequences import TimeMask, TimeShift

Transform = Callable[[Tensor, Generator], Tensor]
"""``(first input of a batch, generator) -> the same, changed``; each example with a draw of its own."""

Kind = Literal["images", "sequences", "points", "vectors"]


class Word(NamedTuple):
    """A word by which a user asks for a transform.

    Args:
        make: From the strength and the spec.
        most: Largest strength, from the spec; inf sets no limit.
        whole: Whether the strength is a whole number.
        bare: Whether the word takes no strength.
        example: How it is written.
    """

    make: Callable[[float, Mapping[str, Any]], Transform]
    most: Callable[[Mapping[str, Any]], float] = lambda spec: math.inf
    whole: bool = False
    bare: bool = False
    example: str = "0.1"


def _noise(strength: float, spec: Mapping[str, Any]) -> Transform:
    return Noise(strength, spec.get("spread", 1.0), spec.get("domain"))


def _moved(border: Any) -> Word:
    return Word(
        lambda pixels, spec: Translate(int(pixels), border, _background(spec)),
        lambda spec: min(spec["image_size"]) - 1,
        whole=True,
        example="2",
    )


def _moved_in_time(border: Any) -> Word:
    return Word(
        lambda steps, spec: TimeShift(int(steps), border),
        lambda spec: spec["time"] - 1,
        whole=True,
        example="2",
    )


def _background(spec: Mapping[str, Any]) -> float:
    return float(spec.get("background", 0.0))


MOST_SHARE = 0.9
NOISE = Word(_noise)
GAIN = Word(lambda strength, spec: Gain(strength), lambda spec: MOST_SHARE)

WORDS: Mapping[Kind, Mapping[str, Word]] = {
    "images": {
        "shift": _moved("edge"),
        "crop": _moved("background"),
        "roll": _moved("cyclic"),
        "flip": Word(lambda _, spec: Flip(), bare=True),
        "rotate": Word(
            lambda degrees, spec: Resample(degrees=degrees, background=_background(spec)),
            lambda spec: 180.0,
            example="15",
        ),
        "scale": Word(
            lambda zoom, spec: Resample(zoom=zoom, background=_background(spec)), lambda spec: MOST_SHARE
        ),
        "elastic": Word(
            lambda pixels, spec: Elastic(pixels, _background(spec)),
            lambda spec: min(spec["image_size"]),
            example="2",
        ),
        "cutout": Word(
            lambda side, spec: Cutout(int(side), _background(spec)),
            lambda spec: min(spec["image_size"]),
            whole=True,
            example="8",
        ),
        "noise": NOISE,
    },
    "sequences": {
        "shift": _moved_in_time("edge"),
        "roll": _moved_in_time("cyclic"),
        "drop": Word(lambda share, spec: TimeMask(share, _background(spec)), lambda spec: MOST_SHARE),
        "scale": GAIN,
        "noise": NOISE,
    },
    "points": {
        "rotate": Word(lambda degrees, spec: Turn(degrees), lambda spec: 180.0, example="15"),
        "shift": Word(lambda reach, spec: Move(reach)),
        "scale": GAIN,
        "jitter": Word(lambda strength, spec: Noise(strength, most=5.0), example=".01"),
        "drop": Word(lambda share, spec: Thin(share), lambda spec: MOST_SHARE),
    },
    "vectors": {"noise": NOISE},
}
"""The words for each kind of inputs.

Images (batch, channels, height, width): ``shift:2`` moves by up to 2 pixels, edge pixels repeated; ``crop:2``
pads by 2 pixels of background and crops; ``roll:2`` moves around the border; ``flip`` exchanges left and
right; ``rotate:15`` turns by up to 15 degrees; ``scale:.1`` magnifies by 0.9 to 1.1; ``elastic:2`` bends
it smoothly by displacements of 2 pixels (standard deviation); ``cutout:8`` covers a square of side 8 in every
second image; ``noise:.1`` adds Gaussian noise.
Sequences (batch, time, ...): ``shift:2`` and ``roll:2`` in time, ``drop:.1`` covers up to a tenth of the
time, ``scale:.1`` multiplies by 0.9 to 1.1, ``noise:.1``.
Point clouds (batch, points, axes): ``rotate:180`` in the plane of the first two axes, ``shift:.1``,
``scale:.1``; ``jitter:.01`` moves each point by a Gaussian of that standard deviation, cut off at 5 of them;
``drop:.5`` leaves out points.
Vectors (batch, features): ``noise:.1``.
"""


def kind_of_inputs(spec: Mapping[str, Any]) -> Kind:
    """What the inputs are, by the keys of the spec: channels, time, points, or features alone.

    Raises:
        ValueError: They are none of these, as tokens.
    """
    if "vocab_size" in spec:
        raise ValueError("augmentation changes real inputs: these are tokens")
    if "channels" in spec and "image_size" in spec:
        return "images"
    kinds: tuple[tuple[str, Kind], ...] = (
        ("time", "sequences"),
        ("points", "points"),
        ("in_features", "vectors"),
    )
    for key, kind in kinds:
        if key in spec:
            return kind
    raise ValueError(
        "augmentation needs images (channels and image_size), sequences (time), point clouds (points) or "
        f"vectors (in_features): the data give {', '.join(spec) or 'nothing'}"
    )


def transforms_of(words: Sequence[str], spec: Mapping[str, Any]) -> tuple[Transform, ...]:
    """The transforms that words ask for, in their order.

    Args:
        words: ``NAME`` or ``NAME:STRENGTH``; :data:`WORDS` says which there are.
        spec: What the data dictate: ``channels`` and ``image_size`` (a pair), or ``time`` (steps), or
            ``points``, or ``in_features``. Further keys: ``background``, the value of what comes in from
            outside (0); ``spread``, the unit of noise, a number or one for each coordinate (1: noise is in
            the user's units); ``domain``, the Domain that noise may not leave.

    Raises:
        ValueError: There is no such word, not for these inputs, or the strength is missing or out of range.
    """
    kind = kind_of_inputs(spec)
    return tuple(_transform(text, kind, spec) for text in words)


def _transform(text: str, kind: Kind, spec: Mapping[str, Any]) -> Transform:
    name, colon, given = text.partition(":")
    word = WORDS[kind].get(name)
    if word is None:
        raise ValueError(_unknown(name, kind))
    if word.bare:
        if colon:
            raise ValueError(f"{name} takes no strength: got {text!r}")
        return word.make(0.0, spec)
    try:
        strength = float(given)
    except ValueError:
        raise ValueError(f"{name} needs a strength, as in {name}:{word.example}: got {text!r}") from None
    most = word.most(spec)
    fits = 0 < strength <= most and math.isfinite(strength)
    if not fits or (word.whole and strength != int(strength)):
        rule = f"a whole number from 1 to {most:g}" if word.whole else "positive and finite"
        if not word.whole and math.isfinite(most):
            rule = f"positive and at most {most:g}"
        raise ValueError(f"the strength of {name} must be {rule}: got {text!r}")
    return word.make(strength, spec)


def _unknown(name: str, kind: Kind) -> str:
    others = [other for other, words in WORDS.items() if name in words]
    if others:
        return f"{name} changes {' or '.join(others)}: these are {kind}, which take {', '.join(WORDS[kind])}"
    near = nearest(name, WORDS[kind]) or list(WORDS[kind])
    return f"unknown augmentation {name!r}; nearest for {kind}: {', '.join(near)}"


@dataclass(frozen=True, slots=True, eq=False)
class Augmented:
    """Examples whose first input is changed at random each time it is taken; see :func:`augmented`.

    Args:
        examples: Those that are changed.
        transforms: The changes, one after the other.
    """

    examples: Examples
    transforms: tuple[Transform, ...]

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def targets(self) -> Tensor | None:
        """The targets of the examples, where they are at hand."""
        return getattr(self.examples, "targets", None)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``, changed; what is drawn is drawn from ``generator``."""
        batch = self.examples.take(index, generator)
        first, *rest = batch.inputs
        maps = maps_of(batch)
        for transform in self.transforms:
            same = generator.get_state()
            first = transform(first, generator)
            if maps is not None and isinstance(transform, Moving):
                maps = transform.of_maps()(maps, Generator(generator.device).set_state(same))
        batch = batch._replace(inputs=(first, *rest))
        return batch if maps is None else with_maps(batch, maps)


def maps_of(batch: Batch) -> Tensor | None:
    """The classes of the pixels of images and what each weighs, as maps; None where a target is no map."""
    x, y, weight = batch.inputs[0], batch.targets, batch.weight
    if y is None or x.ndim != 4 or y.shape[1:] != x.shape[2:] or y.is_floating_point():
        return None
    weight = (
        x.new_ones(len(x), 1, 1) if weight is None else weight.reshape(len(x), *(weight.shape[1:] or (1, 1)))
    )
    return torch.stack(torch.broadcast_tensors(y.to(x), weight.to(x)), 1)


def with_maps(batch: Batch, maps: Tensor) -> Batch:
    """The batch with the targets and weights of maps; where all weigh 1, it has none, as before."""
    weight = maps[:, 1]
    plain = batch.weight is None and bool((weight == 1).all())
    targets = maps[:, 0].round().to(torch.int64)
    return batch._replace(targets=targets, weight=None if plain else weight)


def augmented(examples: Examples, transforms: Sequence[Transform]) -> Examples:
    """The same examples, as many, the first input of each changed by every transform when it is taken.

    Further inputs stay as they are, and so do targets, but for a class at each pixel: where a transform moves
    an image, its mask moves with it, and what comes in from outside counts for nothing. What a transform
    draws is a function of the generator alone.

    Args:
        examples: In the user's units.
        transforms: One after the other; none changes nothing.
    """
    return Augmented(examples, tuple(transforms))
