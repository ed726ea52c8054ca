"""Ctrl-C ends a training between two steps, saves it, says how to go on, and exits with 130."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from margin import Run
from margin.cli import main


def test_an_interrupted_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        sys.executable,
        "-m",
        "margin",
        "train",
        "mlp",
        "iris",
        "--epochs",
        "100000",
        "--patience",
        "0",
        "--out",
        "r",
    ]
    with subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        history = tmp_path / "r" / "history.jsonl"
        deadline = time.monotonic() + 600
        while not (history.exists() and history.read_text().count("\n") > 3):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert out == ""
    last = err.strip().splitlines()[-1]
    assert "interrupted; saved after" in last
    assert "go on with margin train --resume r" in last
    assert "Traceback" not in err
    marks = json.loads((tmp_path / "r" / "checkpoints.json").read_text())
    assert marks["reason"] == "interrupted"
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", "r", "--max-steps", str(marks["last"] + 5)]) == 0
    run = Run(tmp_path / "r")
    assert run.checkpoints["last"] == marks["last"] + 5
    assert run.reason == "max_steps"
