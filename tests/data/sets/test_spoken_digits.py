"""The spoken digits against their files and their description; held-out recordings and speakers."""

import pytest
import torch

from margin.data.formats.audio.wave import read_wave
from margin.data.sets.spoken_digits import fsdd


@pytest.fixture(autouse=True)
def _there(shared):
    if not (shared / "fsdd" / "fsdd.npz").is_file():
        pytest.skip("the spoken digits are not there")


def test_the_official_parts():
    data = fsdd(val=0.0)
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 300, "test": 300}
    assert data.splits["test"].targets.bincount().tolist() == [30] * 10
    assert data.encoding["split"]["official"]


def test_a_clip_is_its_file(shared):
    data = fsdd(held_out=(0,), val=0.0)
    names = sorted((shared / "fsdd" / "wav").glob("*_0.wav"))
    sound = read_wave(names[0]).mono
    test = data.splits["test"].ragged
    same = [i for i in range(len(test)) if int(test.lengths[i]) == len(sound)]
    assert any(torch.equal(test.padded(torch.tensor([i]))[0][0, :, 0], sound) for i in same)


def test_a_speaker_can_be_held_out():
    data = fsdd(speaker="george", val=0.2)
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 400, "val": 100, "test": 100}


def test_wrong_choices_are_refused(refused, monkeypatch):
    with refused("speaker must be one of", "george", "'nobody'"):
        fsdd(speaker="nobody")
    for wrong in ((), (10,), tuple(range(10))):
        with refused("held_out"):
            fsdd(held_out=wrong)
    monkeypatch.setenv("MARGIN_DATA", "/nowhere")
    with refused("/nowhere/fsdd/fsdd.npz", error=FileNotFoundError):
        fsdd()
