"""The subject of a run: which examples judge it, which it was trained on, and what had to be assumed."""

from pathlib import Path

import pytest
import torch

import margin
from margin import Run, Training
from margin.auditing.runs import subject_of_run
from margin.data.examples import Data
from margin.data.opening import open_data

SHORT = Training(max_steps=1)


def inputs_of(batches) -> torch.Tensor:
    return torch.cat([batch.inputs[0] for batch in batches])


def memory(**shares: float) -> Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 3, generator=generator)
    return open_data((x, (x[:, 0] > 0).long()), shares)


def test_a_run_is_judged_on_its_test_part(tmp_path: Path) -> None:
    run = margin.train("logistic_regression", "iris", training=SHORT, out=tmp_path / "r")
    subject, data = subject_of_run(run), open_data("iris", {})
    assert torch.equal(inputs_of(subject.test), data.splits["test"].inputs[0])
    assert torch.equal(inputs_of(subject.train), data.splits["train"].inputs[0])
    assert subject.class_names == tuple(data.encoding["classes"])
    assert not any("validation part" in text for text in subject.assumed)
    assert torch.equal(inputs_of(subject_of_run(Run(run.path), "iris").test), inputs_of(subject.test))


def test_without_a_test_part_the_validation_part_stands_in_and_is_named(tmp_path: Path) -> None:
    data = memory(test=0.0, val=0.25)
    run = margin.train("logistic_regression", data, training=SHORT, out=tmp_path / "r")
    subject = subject_of_run(run, data)
    assert torch.equal(inputs_of(subject.test), data.splits["val"].inputs[0])
    assert torch.equal(inputs_of(subject.train), data.splits["train"].inputs[0])
    assert any("the validation part, on which weights were chosen" in text for text in subject.assumed)


def test_where_nothing_judges_a_run_it_is_refused(tmp_path: Path) -> None:
    data = memory(test=0.0, val=0.0)
    run = margin.train("logistic_regression", data, training=SHORT, out=tmp_path / "r")
    with pytest.raises(ValueError, match="the run held nothing out"):
        subject_of_run(run, data)
    with pytest.raises(ValueError, match="trained on data in memory: hand them over"):
        subject_of_run(run)
    x, y = torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])
    subject = subject_of_run(run, (x, y))
    assert torch.equal(inputs_of(subject.test), x)
    assert len(subject.train) == 0
