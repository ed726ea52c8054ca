"""Randomization tests: training labels without a pattern, pixels without a place (Zhang et al., 2017).

Every classification source has them as options. Labels are drawn anew for the training part alone, so that
what is held out tells that nothing was learned. One permutation of the pixels is that of all images, in every
part: to a model without a plane it is no change. A permutation for each image, and noise, are of the training
part alone.
"""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.examples import Data, TargetedExamples
from margin.data.options import option_groups
from margin.math.seeds import mix

PURPOSE = 71
"""What is drawn for, among the seeds of data."""


@dataclass(frozen=True, slots=True)
class Randomization:
    """What of the examples is put at random, for a randomization test.

    Args:
        labels: The training labels: as given, or each drawn at random among the classes.
        pixels: The pixels of images: as given, "shuffled" by one permutation of their places for all images,
            "random" by one for each training image, or in the training images replaced by "noise" of their
            channel's mean and deviation.
        seed: Of what is put at random.
    """

    labels: Literal["given", "random"] = "given"
    pixels: Literal["given", "shuffled", "random", "noise"] = "given"
    seed: int = field(default=0, metadata={"option": "random_seed"})


@cache
def randomizable(reader: Callable[..., Data]) -> Callable[..., Data]:
    """A reader of examples that are cut into parts, with the options of :class:`Randomization`."""
    signature = inspect.signature(reader)
    if "val" not in signature.parameters or {"labels", "pixels"} & {*signature.parameters}:
        return reader

    @wraps(reader)
    def _reading(*given: Any, randomization: Randomization = Randomization(), **options: Any) -> Data:
        return randomized(reader(*given, **options), randomization)

    own = inspect.Parameter(
        "randomization", inspect.Parameter.KEYWORD_ONLY, default=Randomization(), annotation=Randomization
    )
    made: Any = _reading
    made.__signature__ = signature.replace(parameters=[*signature.parameters.values(), own])
    text = inspect.getdoc(reader) or ""
    head, args, rest = text.partition("\nArgs:\n")
    entry = "    randomization: What is put at random.\n"
    made.__doc__ = f"{head}{args}{entry}{rest}" if args else f"{text}\n\nArgs:\n{entry}"
    return option_groups()(_reading)


def randomized(data: Data, randomization: Randomization) -> Data:
    """The data with labels or pixels at random; what they dictate to a model is as it was.

    Args:
        data: As they are read.
        randomization: What is put at random.

    Raises:
        ValueError: The targets are not one class an example, or inputs are no images.

    Reference: Zhang, Bengio, Hardt, Recht and Vinyals 2017, Section 2.1.
    """
    labels, pixels = randomization.labels, randomization.pixels
    if labels == "given" and pixels == "given":
        return data
    splits, notes = dict(data.splits), []
    if labels == "random":
        splits["train"] = Relabeled(splits["train"], _drawn(data, randomization.seed))
        notes.append("the labels of the training part are drawn at random: nothing can be learned of them")
    if pixels != "given":
        names = splits if pixels == "shuffled" else ("train",)
        for name in names:
            splits[name] = Repainted(splits[name], pixels, randomization.seed, _channels(data, splits[name]))
        notes.append(PIXELS[pixels])
    digest = hashlib.sha256(f"{data.fingerprint} {randomization}".encode()).hexdigest()
    return replace(data, splits=splits, fingerprint=digest, notes=(*data.notes, *notes))


PIXELS = {
    "shuffled": "the pixels of all images are shuffled by one permutation",
    "random": "the pixels of each training image are shuffled by a permutation of its own",
    "noise": "the training images are Gaussian noise of their channels' mean and deviation",
}
"""What is said of data whose pixels are put at random."""


def _drawn(data: Data, seed: int) -> Int[Tensor, " examples"]:
    targets = getattr(data.splits["train"], "targets", None)
    classes = data.spec.get("num_classes")
    if targets is None or targets.is_floating_point() or targets.ndim != 1 or not isinstance(classes, int):
        raise ValueError(f"random labels need one class an example: {data.name} has none")
    generator = Generator().manual_seed(mix(seed, PURPOSE))
    return torch.randint(classes, targets.shape, generator=generator, dtype=targets.dtype)


def _channels(data: Data, examples: Any) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel of some of the images; refuses what are none."""
    x = examples.take(torch.arange(min(len(examples), 512)), Generator()).inputs[0]
    if x.ndim != 4 or not x.is_floating_point():
        raise ValueError(f"pixels are those of images: {data.name} has inputs of shape {tuple(x.shape[1:])}")
    return x.mean((0, 2, 3)), x.std((0, 2, 3))


class Changed:
    """Examples of which something is changed; all else that is asked of them, they answer themselves.

    Args:
        examples: As they are read.
    """

    def __init__(self, examples: TargetedExamples) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getattr__(self, name: str) -> Any:
        if name == "examples":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.examples, name)


class Relabeled(Changed):
    """Examples with other labels.

    Args:
        examples: As they are read.
        targets: The label of each.
    """

    def __init__(self, examples: TargetedExamples, targets: Int[Tensor, " examples"]) -> None:
        super().__init__(examples)
        self.targets = targets

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``, with their labels here."""
        return self.examples.take(index, generator)._replace(targets=self.targets[index])


class Repainted(Changed):
    """Images whose pixels have lost their places.

    Args:
        examples: As they are read.
        pixels: "shuffled", "random" or "noise".
        seed: Of the permutations and of the noise, of which each image has its own.
        channels: Mean and deviation of each channel.
    """

    def __init__(
        self, examples: TargetedExamples, pixels: str, seed: int, channels: tuple[Tensor, Tensor]
    ) -> None:
        super().__init__(examples)
        self.pixels = pixels
        self.seed = seed
        self.channels = channels

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``, each with the same pixels whenever it is asked for."""
        batch = self.examples.take(index, generator)
        rows = [0] * len(index) if self.pixels == "shuffled" else (index + 1).tolist()
        images = zip(batch.inputs[0], rows, strict=True)
        drawn = [
            self._drawn(image, Generator().manual_seed(mix(self.seed, PURPOSE, row))) for image, row in images
        ]
        return batch._replace(inputs=(torch.stack(drawn), *batch.inputs[1:]))

    def _drawn(self, image: Tensor, generator: Generator) -> Tensor:
        if self.pixels == "noise":
            mean, std = (moment.reshape(-1, 1, 1).to(image) for moment in self.channels)
            return mean + std * torch.randn(image.shape, generator=generator, dtype=image.dtype)
        flat = image.flatten(1)
        return flat[:, torch.randperm(flat.shape[1], generator=generator)].view_as(image)
