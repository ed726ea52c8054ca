"""Pictures of samples over a training: one a row of the history, no trace, some models refused."""

from pathlib import Path

import pytest
import torch

from margin.core.options import Training
from margin.data.sets.tiny.tables import classes, images, moons, values
from margin.runs.training import load
from margin.runs.verbs import resume, train

THREE = Training(max_steps=6, evaluate_every=2, log=["samples"])


@pytest.mark.parametrize(("model", "data"), [("generative/vae", images), ("generative/realnvp", moons)])
def test_every_row_has_its_picture(model: str, data, tmp_path: Path) -> None:
    run = train(model, data(), training=THREE, out=tmp_path / "r")
    names = sorted(path.name for path in (run.path / "samples").iterdir())
    assert names == [f"step-{row['step']:08d}.png" for row in run.history]
    first, *_, last = [(run.path / "samples" / name).read_bytes() for name in names]
    assert first[:4] == b"\x89PNG"
    assert first != last


def test_pictures_leave_no_trace_in_the_training(tmp_path: Path) -> None:
    plain = Training(max_steps=6, evaluate_every=2)
    one = train("generative/realnvp", moons(), training=THREE, out=tmp_path / "a")
    other = train("generative/realnvp", moons(), training=plain, out=tmp_path / "b")
    for a, b in zip(load(one).parameters(), load(other).parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_resumed_training_goes_on_with_its_pictures(tmp_path: Path) -> None:
    run = train("generative/realnvp", moons(), training=THREE, out=tmp_path / "r")
    resume(run, moons(), Training(max_steps=8))
    assert len(list((run.path / "samples").iterdir())) == 4


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("feedforward/mlp", classes, "^log samples needs a model that can be sampled: got MLP"),
        ("generative/realnvp", values, r"needs images of 1 or 3 channels, .* got the shape \[3\]"),
    ],
)
def test_what_has_no_pictures_is_refused_before_a_run_is_made(
    model: str, data, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train(model, data(), training=THREE, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
