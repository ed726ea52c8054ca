"""Sound in WAV files."""

from typing import Literal

from margin.core.catalog import Format

SOUND = {
    "shape": "extents",
    "dtype": "dtype",
    "classes": list[str],
    "features": Literal["samples", "frames", "logmel"],
    "frame": "positive",
    "hop": "positive",
    "bands": "positive",
    "rate": "positive",
    "level": Literal["kept", "clip"],
}
CODES = {"rate": "positive", "levels": "positive", "shape": ["positive"]}
"""Clips that are classes, and codes that are tokens."""

FORMATS = (
    Format(
        name="audio",
        reader="margin.data.formats.audio.sources:read_audio",
        encoder="margin.data.formats.audio.sources:encode_audio",
        prefix=True,
        endings=(".wav",),
        holds=("*.[wW][aA][vV]", "*/*.[wW][aA][vV]"),
        files="margin.data.formats.audio.sources:every_sound_file",
        real=True,
        record={"resample": int | None},
        also={"tokens": CODES, "": SOUND},
    ),
)
