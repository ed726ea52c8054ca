"""Folders of sound as sequences: labels from folders and names, rates, lengths, new files by the record."""

import json

import pytest
import torch

from margin.data.formats.audio.sources import encode_audio, read_audio
from margin.data.formats.audio.wave import write_wave
from margin.data.source import Source


def tone(count, hertz=300.0, rate=8000):
    return 0.5 * torch.sin(2 * torch.pi * hertz * torch.arange(count) / rate)


def folder(tmp_path, *, by="folder", rate=8000):
    for label, hertz in (("no", 300.0), ("yes", 900.0)):
        for k in range(8):
            place = tmp_path / label / f"{k}.wav" if by == "folder" else tmp_path / f"{label}_anna_{k}.wav"
            place.parent.mkdir(parents=True, exist_ok=True)
            write_wave(place, tone(100 + 10 * k, hertz, rate), rate)
    return tmp_path


@pytest.mark.parametrize("by", ["folder", "name"])
def test_each_clip_is_a_sequence_of_its_own_length(tmp_path, by):
    data = read_audio(folder(tmp_path, by=by))
    assert data.encoding["classes"] == ["no", "yes"]
    assert data.spec["input_size"] == 1
    assert data.spec["longest"] == 170
    assert sum(len(part) for part in data.splits.values()) == 16
    lengths = torch.cat([part.ragged.lengths for part in data.splits.values()])
    assert sorted(lengths.tolist()) == sorted([100 + 10 * k for k in range(8)] * 2)
    assert (data.domain.low.item(), data.domain.high.item()) == (-1.0, 1.0)
    json.dumps(data.encoding)
    batch = data.splits["train"].take(torch.arange(2), torch.Generator())
    x, count = batch.inputs
    assert (x[0, int(count[0]) :] == 0).all()


def test_frames_and_bands_make_shorter_sequences_of_wider_steps(tmp_path):
    folder(tmp_path)
    pieces = read_audio(tmp_path, features="frames", frame=20, hop=10)
    assert pieces.spec["input_size"] == 20
    assert pieces.spec["longest"] == 16  # 170 samples: 1 + (170 - 20) / 10
    bands = read_audio(tmp_path, features="logmel", frame=64, hop=32, bands=4)
    assert bands.spec["input_size"] == 4
    assert bands.domain is None


def test_a_louder_clip_has_the_same_bands_relative_to_its_mean(tmp_path, refused):
    for label in ("no", "yes"):
        for k in range(4):
            (tmp_path / label).mkdir(exist_ok=True)
            write_wave(tmp_path / label / f"{k}.wav", tone(800) * 2.0 ** (label == "yes"), 8000, bits=24)
    options = {"features": "logmel", "frame": 64, "hop": 32, "bands": 4, "val": 0}
    kept = read_audio(tmp_path, **options).splits["train"]
    loud = [kept.ragged.padded((kept.targets == k).nonzero()[:1, 0])[0] for k in (0, 1)]
    assert (loud[1] - loud[0]).mean() > 1  # ln 4 where there is sound
    clip = read_audio(tmp_path, level="clip", **options).splits["train"]
    same = [clip.ragged.padded((clip.targets == k).nonzero()[:1, 0])[0] for k in (0, 1)]
    assert same[0].mean(1).abs().max() < 1e-5
    assert (same[1] - same[0])[..., 0].abs().max() < 1e-3
    with refused("level=clip", "features=samples"):
        read_audio(tmp_path, level="clip")


def test_the_record_reads_new_sound(tmp_path):
    data = read_audio(folder(tmp_path / "train"))
    write_wave(tmp_path / "one.wav", tone(55), 8000)
    one = encode_audio(tmp_path / "one.wav", json.loads(json.dumps(data.encoding)))
    assert one.targets is None
    assert one.ragged.lengths.tolist() == [55]
    again = encode_audio(tmp_path / "train", data.encoding)
    assert again.targets.tolist() == [0] * 8 + [1] * 8
    write_wave(tmp_path / "yes_new.wav", tone(55), 8000)
    assert encode_audio(tmp_path / "yes_new.wav", data.encoding).targets.tolist() == [1]


def test_another_rate_is_an_error_that_names_file_and_rates(tmp_path, refused):
    folder(tmp_path)
    write_wave(tmp_path / "yes" / "9.wav", tone(100), 16000)
    with refused("9.wav", "16000", "8000", "bring it to 8000 Hz, or train with --data.resample 8000"):
        read_audio(tmp_path)
    data = read_audio(tmp_path, resample=4000)
    assert any("resampled to 4000" in note for note in data.notes)
    assert data.spec["longest"] == 85
    with refused("at least 1"):
        read_audio(tmp_path, resample=0)


def test_new_sound_of_another_rate_is_refused_unless_the_run_resamples(tmp_path, refused):
    plain = read_audio(folder(tmp_path / "train"))
    write_wave(tmp_path / "one.wav", tone(160, rate=16000), 16000)
    with refused("one.wav", "8000 Hz", "16000 Hz"):
        encode_audio(tmp_path / "one.wav", plain.encoding)
    brought = read_audio(tmp_path / "train", resample=8000)
    assert encode_audio(tmp_path / "one.wav", brought.encoding).ragged.lengths.tolist() == [80]


def test_wrong_folders_are_refused(tmp_path, refused):
    with refused("no such", error=FileNotFoundError):
        read_audio(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with refused(".wav", "none"):
        read_audio(tmp_path / "empty")
    loose = folder(tmp_path / "mixed")
    write_wave(loose / "loose.wav", tone(50), 8000)
    with refused("loose.wav", "class folder"):
        read_audio(loose)
    named = folder(tmp_path / "named", by="name")
    write_wave(named / "plain.wav", tone(50), 8000)
    with refused("plain.wav", "LABEL_rest.wav"):
        read_audio(named)
    strange = folder(tmp_path / "strange", by="name")
    write_wave(strange / "maybe_1.wav", tone(50), 8000)
    with refused("maybe", "'no'"):
        encode_audio(strange, read_audio(folder(tmp_path / "fine")).encoding)


def test_new_sound_whose_names_are_no_class_has_no_targets(tmp_path):
    data = read_audio(folder(tmp_path / "train"))
    write_wave(tmp_path / "take_1.wav", tone(50), 8000)
    (tmp_path / "inbox" / "monday").mkdir(parents=True)
    write_wave(tmp_path / "inbox" / "monday" / "a.wav", tone(50), 8000)
    for source in ("take_1.wav", "inbox"):
        new = encode_audio(tmp_path / source, data.encoding)
        assert new.targets is None
        assert new.ragged.lengths.tolist() == [50]


def test_an_empty_clip_is_a_sequence_of_length_zero(tmp_path):
    folder(tmp_path)
    write_wave(tmp_path / "no" / "silence.wav", torch.zeros(0), 8000)
    data = read_audio(tmp_path)
    assert min(int(part.ragged.lengths.min()) for part in data.splits.values()) == 0
    assert any("length 0" in note for note in data.notes)


def test_codes_of_sound_are_blocks_with_the_next_code(tmp_path):
    write_wave(tmp_path / "a.wav", tone(1000), 8000)
    data = read_audio(tmp_path, task="tokens", time=50)
    assert data.spec["vocab_size"] == 256
    batch = data.splits["train"].take(torch.tensor([0, 1]), torch.Generator())
    assert batch.inputs[0].shape == (2, 50)
    assert torch.equal(batch.inputs[0][:, 1:], batch.targets[:, :-1])
    assert torch.equal(batch.inputs[0][1, :1], batch.targets[0, -1:])


def test_a_folder_of_sound_is_known_whatever_the_case_of_its_endings(tmp_path):
    (tmp_path / "no").mkdir()
    write_wave(tmp_path / "no" / "A.WAV", tone(50), 8000)
    assert Source(tmp_path).form == "audio"
