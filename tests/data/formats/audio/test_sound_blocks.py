"""Blocks of codes: none reads two clips, parts come in order, the ends are counted."""

import pytest
import torch

from margin.data.formats.audio.sound_blocks import block_data
from margin.data.splits import Split

RECORD = {"format": "audio", "rate": 10, "levels": 256}


def test_no_block_reads_two_clips_and_the_parts_are_in_order():
    clips = [torch.arange(0, 101), torch.arange(120, 131), torch.arange(140, 145)]
    data = block_data("x", clips, 10, Split(test=0.2, val=0.2), RECORD)
    parts = {
        name: [int(part.take(torch.tensor([k]), torch.Generator()).inputs[0][0, 0]) for k in range(len(part))]
        for name, part in data.splits.items()
    }
    assert parts["train"] == [0, 10, 20, 30, 40, 50, 60]
    assert parts["val"] == [70, 80]
    assert parts["test"] == [90, 120]
    for part in data.splits.values():
        inputs, targets = part.take(torch.arange(len(part)), torch.Generator())[:2]
        assert torch.equal(inputs[0] + 1, targets)
        assert torch.equal(targets, part.targets)
    assert "7 of 117" in data.notes[-1]


def test_a_clip_of_one_code_more_than_a_block_is_a_block_and_one_fewer_is_none():
    for count, blocks in ((11, 1), (10, 0)):
        clips = [torch.zeros(40, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)]
        data = block_data("x", clips, 10, Split(test=0, val=0), RECORD)
        assert len(data.splits["train"]) == 3 + blocks


def test_too_little_sound_is_refused():
    with pytest.raises(ValueError, match="needs a block of 10 codes"):
        block_data("x", [torch.zeros(15, dtype=torch.int64)], 10, Split(), RECORD)
    with pytest.raises(ValueError, match="at least 1"):
        block_data("x", [torch.zeros(15, dtype=torch.int64)], 0, Split(), RECORD)


def test_an_evaluation_holds_fewer_of_long_blocks():
    codes = torch.zeros(2**15 + 1, dtype=torch.int64)
    for time, size in ((2**10, 2**7), (2**14, 2**3)):
        data = block_data("x", [codes], time, Split(test=0, val=0), RECORD)
        assert data.splits["train"].evaluation_batch == size
