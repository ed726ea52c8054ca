"""A plain module of each kind: trained, killed, resumed to the byte, used to predict, audited, exported."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

import margin
import own_modules
from margin import Training
from margin.cli import main
from margin.data.examples import Arrays, Data
from margin.engine.runs import Run
from margin.runs.inference import predictions
from margin.runs.training import finish, open_source, prepare, reopen
from margin.runs.user_models import choose
from margin.testing import check_same_run


class Killed(BaseException):
    """As abrupt as anything in one process can be."""


class Case(NamedTuple):
    """A module, its options, what it is trained on, and what is expected of it."""

    model: Any
    data: Any
    task: str
    columns: list[str]
    options: Mapping[str, Any] = MappingProxyType({})
    format: str = "torch"


def by_hand(targets: bool) -> Data:
    """40 vectors of 4 numbers; with targets two linear functions of each."""
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    y = torch.stack((x @ torch.tensor([1.0, -1, 0, 2]), x.sum(1)), 1)
    parts = {"train": slice(0, 24), "val": slice(24, 32), "test": slice(32, 40)}
    splits = {name: Arrays((x[part],), y[part] if targets else None) for name, part in parts.items()}
    spec = {"in_features": 4, "num_examples": 24}
    return Data(name="by hand", splits=splits, spec=spec, fingerprint=f"targets: {targets}")


FOUR = [f"feature {i}" for i in range(1, 5)]
CASES = {
    "classes": Case(own_modules.Classes, "iris", "classes", ["class", "probability"], {"width": 8}),
    "a function": Case(own_modules.build, "iris", "classes", ["class", "probability"]),
    "values": Case(own_modules.Values, "noisy-linear", "values", ["value"]),
    "several values": Case(own_modules.SeveralValues, by_hand(True), "values", ["value"]),
    "tokens": Case(
        own_modules.Tokens, "text:words.txt", "tokens", ["class", "probability"], {"dim": 4}, "state"
    ),
    "images": Case(own_modules.Images, "digits", "classes", ["class", "probability"]),
    "an autoencoder": Case(own_modules.Autoencoder, by_hand(False), "reconstruction", FOUR),
    "buffers": Case(own_modules.Counting, "iris", "classes", ["class", "probability"]),
}
TRAINING = Training(max_steps=7, batch_size=8, evaluate_every=2, seed=3)


@pytest.mark.parametrize("name", list(CASES))
def test_train_kill_resume_predict_audit_export(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    case, arguments = CASES[name], {"options": dict(CASES[name].options), "step": {}, "rule": ""}
    data = case.data if isinstance(case.data, Data) else open_source(case.data, {})
    memory = data if isinstance(case.data, Data) else None

    def begun(place: str) -> Any:
        return prepare(choose(case.model, data), data, arguments, TRAINING, place)

    def kill(state: Any, metrics: Any) -> None:
        if state.step == 5:
            raise Killed

    straight = finish(begun("straight"))
    with pytest.raises(Killed):
        finish(begun("killed"), hooks=[kill])
    assert Run("killed").checkpoints["last"] == 4
    check_same_run(straight, finish(reopen("killed", memory, Training())))
    assert straight.record["own"]["task"] == case.task

    found = predictions(straight, data)
    assert list(found)[-len(case.columns) :] == case.columns
    model = margin.load("straight")
    kept = margin.load("straight", "last").model.state_dict()
    again = load_file(margin.export(straight, "last.safetensors", weights="last").path)
    assert all(again[key].equal(value) for key, value in kept.items())
    if case.format == "torch":
        exported = torch.export.load(margin.export(straight, format="torch", data=memory).path).module()
        part = data.splits["test"].inputs[0][:3].to(torch.float32)
        torch.testing.assert_close(exported(part), model(part), atol=1e-5, rtol=1e-5)
    answered = margin.audit(straight, memory, claims=["theory/*"], minutes=0.05)
    assert answered.findings or answered.answers


def test_kill_9_of_the_command_and_a_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "net.py").write_text(Path(own_modules.__file__).read_text())
    command = [sys.executable, "-m", "margin", "train"]
    plain = ["net:Counting", "iris", "--checkpoint-every", "1", "--evaluate-every", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = {"env": environment, "stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(
        [*command, *plain, "--max-steps", "100000", "--out", "killed"], **options
    ) as process:
        marks, until = tmp_path / "killed" / "checkpoints.json", time.monotonic() + 600
        while not marks.exists() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    steps = Run(tmp_path / "killed").checkpoints["last"] + 20
    assert main(["train", "--resume", "killed", "--max-steps", str(steps)]) == 0
    assert main(["train", *plain, "--max-steps", str(steps), "--out", "straight"]) == 0
    check_same_run(Run(tmp_path / "straight"), Run(tmp_path / "killed"))
    seen = load_file(Run(tmp_path / "killed").checkpoint("last"))
    counted = next(value for key, value in seen.items() if key.endswith("seen"))
    assert int(counted) >= steps  # the buffer went on from where the kill left it
