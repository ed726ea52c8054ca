"""Sound as data: folders of WAV files by class, or with the label in the name; samples, frames or bands.

``FOLDER/<class>/<file>.wav``, or ``FOLDER/<label>_<rest>.wav`` as the spoken digits of Jackson et al. (2018).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from margin.data.arrays import listed
from margin.data.assembly import Raw, cut
from margin.data.examples import Data
from margin.data.files.reading import check_unpacked, classes_in, plain, reading, regular, renamed
from margin.data.formats.audio.sound_blocks import block_data
from margin.data.formats.audio.wave import read_wave, resampled
from margin.data.formats.sequences.rows import Ragged, Sequences
from margin.data.formats.sequences.sources import assemble_sequences
from margin.data.options import option_groups
from margin.data.splits import Split
from margin.data.transforms.mu_law import LEVELS, mu_law_encode
from margin.data.transforms.spectra import check_frames, frames, log_mel

Features = Literal["samples", "frames", "logmel"]
Labels = Literal["folder", "name"]
Level = Literal["kept", "clip"]

LOUDEST = 1.0
"""Amplitudes lie in [-1, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFeatures:
    """How sound becomes numbers: amplitudes one by one, pieces of amplitudes, or log power by band.

    Args:
        features: samples, frames or logmel (see :func:`margin.data.formats.audio.sources.read_audio`).
        frame: Samples a piece.
        hop: Samples from a piece to the next.
        bands: Bands of logmel.
        level: Whether bands keep their level, or are taken relative to their mean over the clip.
    """

    features: Features = "samples"
    frame: int = 256
    hop: int = 128
    bands: int = 32
    level: Level = "kept"

    def __post_init__(self) -> None:
        if self.features != "samples":
            check_frames(self.frame, self.hop)
        if self.level == "clip" and self.features != "logmel":
            raise ValueError(f"level=clip is for the bands of features=logmel: got features={self.features}")

    def steps_of(self, x: Float[Tensor, " time"], rate: int) -> Float[Tensor, "steps width"]:
        """The steps of a clip of ``rate`` samples a second."""
        if self.features == "samples":
            return x[:, None]
        if self.features == "frames":
            return frames(x, self.frame, self.hop)
        power = log_mel(x, rate, frame=self.frame, hop=self.hop, bands=self.bands)
        return power - power.mean(0) if self.level == "clip" and len(power) else power

    def as_json(self, rate: int) -> dict[str, Any]:
        """The record by which new sound is read."""
        return {
            "features": self.features,
            "frame": self.frame,
            "hop": self.hop,
            "bands": self.bands,
            "rate": rate,
            "level": self.level,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clips:
    """Clips of sound at one rate, with their labels.

    Args:
        sounds: Amplitudes in [-1, 1] of each clip.
        labels: The class of each, 0 .. K-1, or None.
        classes: Their names.
        rate: Samples a second.
        notes: What was assumed in reading them.
    """

    sounds: Sequence[Float[Tensor, " _time"]]
    labels: Tensor | None
    classes: tuple[str, ...]
    rate: int
    notes: tuple[str, ...] = ()


@option_groups()
def read_audio(
    path: str | os.PathLike[str],
    *,
    task: Literal["classes", "tokens"] = "classes",
    labels: Labels | None = None,
    resample: int | None = None,
    sound: AudioFeatures = AudioFeatures(),
    time: int = 512,
    split: Split = Split(),
) -> Data:
    """Sound from WAV files: a class for each clip, or for generation a code for each sample.

    Channels are averaged. Clips may differ in length; nothing is cut off.

    Args:
        path: A folder with a folder of WAV files for each class, or with files ``LABEL_rest.wav``; for
            tokens any folder of WAV files, or one file.
        task: classes: what is said in a clip; tokens: the next sample's mu-law code of 256.
        labels: Whether the class is the folder's name or what stands before the first ``_`` of the file's;
            by default whichever the folder has.
        resample: Samples a second to which every file is brought; without it all must have one rate.
        sound: How sound becomes numbers.
        features: samples: a step is an amplitude; frames: a step is a piece of amplitudes; logmel: a step is
            the logarithm of a piece's power in bands of hearing. Frames make sequences ``hop`` times shorter.
        level: kept, or clip: of logmel, less each band's mean over the clip, so that neither loudness nor the
            microphone is heard (Atal 1974).
        time: Codes a block, of tokens.
        split: Test and validation part, seed.
        split_seed: Seed of the random split; tokens are cut in order, so blocks of one clip stay apart.

    Returns:
        Sequences of several lengths, ``input_size`` numbers a step; of samples in the domain [-1, 1].

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: There are no WAV files, a file is no PCM sound, the rates differ, or a class is missing.
    """
    folder = Path(path)
    files, names = sound_files(folder, labels if task == "classes" else "none")
    sounds, rate, notes = load_sounds(files, resample)
    if task == "tokens":
        codes = [mu_law_encode(sound) for sound in sounds]
        record = {"format": "audio", "rate": rate, "resample": resample, "levels": LEVELS}
        return block_data(folder.name, codes, time, split, record, notes)
    notes += renamed(str(file.relative_to(folder)) for file in files)
    classes = tuple(sorted(set(names)))
    index = torch.tensor([classes.index(name) for name in names])
    clips = Clips(sounds=sounds, labels=index, classes=classes, rate=rate, notes=notes)
    parts, _ = cut(str(folder), index, "classes", split, classes)
    return clip_data(folder.name, clips, sound, split, parts, {"resample": resample})


def clip_data(
    name: str,
    clips: Clips,
    sound: AudioFeatures,
    split: Split,
    parts: Mapping[str, Tensor],
    record: Mapping[str, Any],
) -> Data:
    """The Data of labeled clips that are cut into parts.

    Args:
        name: What messages call them.
        clips: The clips, with labels.
        sound: How they become numbers.
        split: The shares of the parts.
        parts: The clips of each part.
        record: What the encoding keeps besides.
    """
    if clips.labels is None:
        raise ValueError(f"{name}: training needs a class for each clip: got none")
    rows = Ragged.of([sound.steps_of(clip, clips.rate) for clip in clips.sounds])
    raw = Raw(
        name=name,
        inputs=rows,
        targets=clips.labels,
        task="classes",
        classes=clips.classes,
        domain=(-LOUDEST, LOUDEST) if sound.features != "logmel" else None,
        encoding={
            "format": "audio",
            **sound.as_json(clips.rate),
            **record,
            "about": _about(clips, sound, rows),
        },
        notes=clips.notes,
    )
    return assemble_sequences(raw, split, parts)


def encode_audio(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Sequences:
    """New sound by the record of a finished run: a WAV file, a folder of them, or class folders.

    Targets are read where folders, or what names begin with, are classes of the run; where none is, the
    sound has no targets.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: The run was not trained on sound, or the rate is another than the run's, or
            some files are of a class of the run and others are not.
    """
    path = Path(source)
    if encoding["format"] != "audio":
        raise ValueError(f"{path}: the run must have been trained on sound: it was on {encoding['format']}")
    if "features" not in encoding:
        raise ValueError(f"{path}: a model of codes predicts no class: use margin sample")
    files, names = sound_files(path, "any")
    sounds, rate, notes = load_sounds(files, encoding["resample"])
    if rate != encoding["rate"]:
        raise ValueError(
            f"{files[0]}: sound must have the run's rate, {encoding['rate']} Hz: got {rate} Hz; the run was "
            "trained without --data.resample, so bring the files to its rate"
        )
    how = AudioFeatures(**{field.name: encoding[field.name] for field in fields(AudioFeatures)})
    rows = Ragged.of([how.steps_of(sound, rate) for sound in sounds])
    known = list(encoding["classes"])
    if not set(names) & set(known):
        return Sequences(rows, notes=notes)
    if strange := [(file, name) for file, name in zip(files, names, strict=True) if name not in known]:
        file, name = strange[0]
        raise ValueError(f"{file}: every class must be one of {listed(known)}, as others are: got {name!r}")
    return Sequences(rows, torch.tensor([known.index(name) for name in names]), notes=notes)


def sound_files(path: Path, labels: Labels | Literal["none", "any"] | None) -> tuple[list[Path], list[str]]:
    """The WAV files of a file or folder, sorted, and the class of each.

    Args:
        path: The file or folder.
        labels: Where the class stands; None: found out; any: found out, none if there is none; none: of no
            interest.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: There are none, or no class can be told.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() == ".wav" and not _hidden(p, path))
    else:
        files = [regular(path, "file or folder")]
    if not files:
        raise ValueError(f"{path}: a folder of sound must hold .wav files: got none")
    if labels == "none":
        return files, []
    loose = [file for file in files if file.parent == path or file == path]
    if labels in (None, "any"):
        if loose and len(loose) < len(files):
            raise ValueError(f"{loose[0]}: a WAV file must lie in a class folder, as others do")
        named = all("_" in file.stem for file in files)
        if loose and not named and labels == "any":
            return files, []
        labels = "name" if loose else "folder"
    if labels == "folder" and loose:
        raise ValueError(f"{loose[0]}: a WAV file must lie in a class folder: FOLDER/<class>/<file>.wav")
    if labels == "folder":
        names = classes_in(sorted({path / file.relative_to(path).parts[0] for file in files}))
        return files, [names[path / file.relative_to(path).parts[0]] for file in files]
    for file in files:
        if "_" not in file.stem:
            raise ValueError(f"{file}: a file's name must begin with its class, LABEL_rest.wav")
    return files, [plain(file.stem.partition("_")[0]) for file in files]


def every_sound_file(source: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The WAV files that :func:`encode_audio` reads of a file or folder, in its order."""
    return tuple(sound_files(Path(source), "none")[0])


def load_sounds(files: Sequence[Path], resample: int | None) -> tuple[list[Tensor], int, tuple[str, ...]]:
    """The clips of files at one rate, the rate, and what is to be noted.

    Raises:
        ValueError: The rates differ and none is asked for.
    """
    if resample is not None and resample < 1:
        raise ValueError(f"resample must be at least 1 sample a second: got {resample}")
    sounds, changed, stereo, streamed, first = [], 0, 0, 0, 0
    for file in files:
        sound = read_wave(file)
        first = first or sound.rate
        if resample is None and sound.rate != first:
            raise ValueError(
                f"{file}: every file must have one rate: got {sound.rate} Hz, {files[0].name} has {first}; "
                f"bring it to {first} Hz, or train with --data.resample {first}"
            )
        wanted = resample or first
        changed += sound.rate != wanted
        stereo += sound.samples.shape[1] > 1
        streamed += sound.streamed
        if sound.rate != wanted:
            made = 4 * len(sound.samples) * wanted // sound.rate
            check_unpacked(file, file.stat().st_size, made, f"correct its rate, {sound.rate:,} Hz")
        with reading(file, "to be resampled", "set --data.resample to another rate"):
            sounds.append(resampled(sound.mono, sound.rate, wanted))
    notes = []
    if changed:
        notes.append(f"{changed} of {len(files)} files are resampled to {resample} Hz")
    if streamed:
        notes.append(f"{streamed} of {len(files)} files state no length, as streams do: read to their end")
    if stereo:
        notes.append(f"the channels of {stereo} of {len(files)} files are averaged")
    if empty := sum(len(sound) == 0 for sound in sounds):
        notes.append(f"{empty} of {len(files)} files hold no sample: a sequence of length 0")
    return sounds, resample or first, tuple(notes)


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _about(clips: Clips, how: AudioFeatures, rows: Ragged) -> list[list[str]]:
    """Lines of what was understood, for a reader."""
    seconds = torch.tensor([len(sound) for sound in clips.sounds]) / clips.rate
    step = {
        "samples": "one amplitude in [-1, 1]",
        "frames": f"{how.frame} amplitudes, a piece every {how.hop}",
        "logmel": f"log power in {how.bands} bands of {how.frame} samples, every {how.hop}",
    }[how.features]
    lengths = rows.lengths
    return [
        [
            "sound",
            f"{len(clips.sounds):,} clips of {clips.rate:,} Hz, {seconds.min():.3g} to {seconds.max():.3g} s",
        ],
        ["steps", f"{int(lengths.min()):,} to {int(lengths.max()):,}, each {step}"],
    ]
