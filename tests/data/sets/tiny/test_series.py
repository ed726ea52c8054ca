"""The smallest series has a window in every part, and waves far from mean 0."""

import torch

from margin.data.sets.tiny.series import waves


def test_every_part_has_windows_and_the_scale_is_known():
    data = waves()
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 28, "val": 12, "test": 12}
    batch = data.splits["test"].take(torch.arange(12), torch.Generator())
    assert batch.inputs[0].shape == (12, 12, 2)
    assert batch.targets.shape == (12, 3, 2)
    (first, mean, std), second = data.spec["target_scale"]
    assert (first, second[0]) == (0, 1)
    assert 95 < mean < 105
    assert 5 < std < 10
