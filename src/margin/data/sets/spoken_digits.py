"""The Free Spoken Digit Dataset (Jackson et al. 2018): ten digits, six speakers, at 8 kHz, in one file."""

from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from margin.data.data_home import placed
from margin.data.examples import Data
from margin.data.files.archives import arrays_in
from margin.data.formats.audio.sources import AudioFeatures, Clips, clip_data
from margin.data.options import option_groups
from margin.data.splits import Split, parts_of

ARRAYS = ("audio", "offsets", "digit", "speaker", "rec", "speakers", "rate")
"""What the file holds."""

OFFICIAL = (0, 1, 2, 3, 4)
"""Recordings that are the set's own test part."""


@option_groups("test")
def fsdd(
    *,
    held_out: tuple[int, ...] = OFFICIAL,
    speaker: str | None = None,
    sound: AudioFeatures = AudioFeatures(),
    split: Split = Split(test=0.0),
) -> Data:
    """600 clips of ten spoken digits, six speakers, ten recordings of each, 8,000 samples a second.

    The file ``$MARGIN_DATA/fsdd/fsdd.npz`` holds audio, offsets, digit, speaker, rec, speakers and rate.

    Args:
        held_out: Recordings of every digit and speaker that are the test part; 0 .. 4 officially.
        speaker: Instead, all clips of this speaker are the test part.
        sound: How sound becomes numbers.
        frame: Samples a piece, of frames and logmel.
        split: Test and validation part, seed.
        val: Share of the validation part among the clips that are not held out.

    Returns:
        Sequences of 1,148 to 18,262 samples at most, labels 0 .. 9.

    Raises:
        FileNotFoundError: The file is missing; the message says where it must lie.
        ValueError: A recording or a speaker is unknown.

    Reference: Jackson et al. 2018, Free Spoken Digit Dataset, Section "Usage" of its description.
    """
    (path,) = placed("fsdd")
    found = arrays_in(path)
    if absent := [key for key in ARRAYS if key not in found]:
        raise ValueError(f"{path} must hold {', '.join(ARRAYS)}: missing {', '.join(absent)}")
    audio, offsets, rate = found["audio"], found["offsets"], int(found["rate"])
    digit, who, rec = (torch.from_numpy(found[key].astype(np.int64)) for key in ("digit", "speaker", "rec"))
    speakers = [str(name) for name in found["speakers"]]
    test = _test_part(rec, who, speakers, held_out, speaker)
    sounds = [torch.from_numpy(audio[a:b].astype(np.float32) / 2**15) for a, b in pairwise(offsets.tolist())]
    rest = (~test).nonzero()[:, 0]
    classes = tuple("0123456789")
    parts = {part: rest[index] for part, index in parts_of(len(rest), digit[rest], split, classes).items()}
    clips = Clips(sounds=sounds, labels=digit, classes=classes, rate=rate)
    record = {"split": split.as_json(official=True), "resample": None}
    return clip_data("fsdd", clips, sound, split, parts | {"test": test.nonzero()[:, 0]}, record)


def _test_part(
    rec: Tensor, who: Tensor, speakers: list[str], held_out: tuple[int, ...], speaker: str | None
) -> Bool[Tensor, " clips"]:
    if speaker is not None:
        if speaker not in speakers:
            raise ValueError(f"speaker must be one of {', '.join(speakers)}: got {speaker!r}")
        return who == speakers.index(speaker)
    known = sorted(set(rec.tolist()))
    if not held_out or any(number not in known for number in held_out):
        raise ValueError(f"held_out must name recordings of {known[0]} .. {known[-1]}: got {list(held_out)}")
    test = torch.isin(rec, torch.tensor(held_out))
    if bool(test.all()):
        raise ValueError("held_out must leave recordings to train on: got all")
    return test
