"""Options of a reader outside their choices are refused in words, from Python too."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from margin.data.open import open_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(8):
            Image.new("L", (3, 2), i).save(tmp_path / name / f"{i}.png")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 2}, "channels must be 1 or 3: got 2"),
        ({"memory": "no"}, "memory must be one of auto, always, never: got 'no'"),
    ],
)
def test_a_choice_that_a_folder_does_not_have(folder: Path, options: dict, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        open_data(folder, options)
    assert str(caught.value) == f"{folder}: {message}"


def test_a_choice_that_a_dataset_does_not_have() -> None:
    source = TensorDataset(torch.rand(20, 2), torch.arange(20) % 2)
    with pytest.raises(ValueError) as caught:
        open_data(source, {"memory": "no"})
    assert str(caught.value) == "memory must be one of auto, always, never: got 'no'"
