"""What a user hands over that is of another type is refused by rule; the types of tests would come before."""

from pathlib import Path

import pytest
import torch

import margin


def test_what_is_no_model_to_train_is_refused_in_words() -> None:
    for given in (3, None, (1, 2)):
        with pytest.raises(ValueError, match=r"takes the name of a model .*: got (int|NoneType|tuple)$"):
            margin.train(given, "iris")


def test_what_is_no_model_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"an audit takes a torch module.*: got Foreign; wrap its scores"):
        margin.audit(type("Foreign", (), {})(), (torch.zeros(2, 1), torch.zeros(2)))
    with pytest.raises(ValueError, match=r"got Linear: give an instance, Linear\(\.\.\.\)"):
        margin.audit(torch.nn.Linear, (torch.zeros(2, 1), torch.zeros(2)))


def test_options_of_a_training_that_are_a_dictionary(tmp_path: Path) -> None:
    data = (torch.rand(20, 3), torch.arange(20) % 2)
    with pytest.raises(ValueError, match=r"training must be a margin\.Training, .*: got dict"):
        margin.train("mlp", data, training={"max_steps": 1}, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
