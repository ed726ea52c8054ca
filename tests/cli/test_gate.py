"""An audit as a gate: ``--fail-on``, ``--junit``, and two audits of the same examples in pairs."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from margin.auditing.asking.outcomes import FILE, read_outcomes
from margin.cli import main

AUDIT = ("audit", "gated:build", "held.npz", "--claims", "risk,calibration.nll,inequality.chebyshev")
X = np.random.default_rng(0).random((60, 4), dtype=np.float32)
Y = np.arange(60) % 3


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger, its examples, and two files of its weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gated.py").write_text("from torch import nn\ndef build(): return nn.Linear(4, 3)\n")
    np.savez(tmp_path / "held.npz", x=X, y=Y)
    generator = torch.Generator().manual_seed(0)
    for name in ("one", "two"):
        save_file(
            {"weight": torch.randn(3, 4, generator=generator), "bias": torch.zeros(3)}, f"{name}.safetensors"
        )
    return tmp_path


def losses(name: str) -> torch.Tensor:
    """The cross-entropies of a linear model, written out."""
    from safetensors.torch import load_file

    state = load_file(f"{name}.safetensors")
    scores = torch.tensor(X).double() @ state["weight"].double().T
    return scores.logsumexp(1) - scores[torch.arange(60), torch.tensor(Y)]


def test_audits_of_the_same_examples_are_compared_in_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        main([*AUDIT, "--weights", f"{name}.safetensors", "--out", name])
    capsys.readouterr()
    assert main(["compare", "one", "two", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["paired differences"]
    apart = losses("two") - losses("one")
    half = 2.0009954 * float(apart.std()) / 60**0.5  # Student's quantile of 59 degrees of freedom
    assert second["loss"]["difference"] == pytest.approx(float(apart.mean()), abs=1e-5)
    assert second["loss"]["low"] == pytest.approx(float(apart.mean()) - half, abs=1e-5)
    assert first["loss"]["difference"] == 0
    assert set(second) == {"loss", "accuracy", "Brier score"}
    assert main(["compare", "one", "two"]) == 0
    assert f"{float(apart.mean()):+.4g}" in capsys.readouterr().out


def test_audits_of_other_examples_are_not_paired(capsys: pytest.CaptureFixture[str]) -> None:
    main([*AUDIT, "--out", "one"])
    np.savez("held.npz", x=X, y=Y[::-1])
    main([*AUDIT, "--out", "two"])
    capsys.readouterr()
    assert main(["compare", "one", "two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["paired differences"][1] == {}


def test_outcomes_that_are_damaged_are_refused_in_a_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        main([*AUDIT, "--out", name])
    whole = (here / "two" / FILE).read_bytes()
    (here / "two" / FILE).write_bytes(whole[:-9])
    capsys.readouterr()
    assert main(["compare", "one", "two"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    save_file({"loss": torch.zeros(3)}, here / "two" / FILE)
    assert main(["compare", "one", "two"]) == 2
    assert "is damaged: it must hold" in capsys.readouterr().err


def test_the_exit_status_follows_what_one_fails_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*AUDIT]) == 0
    assert main([*AUDIT, "--fail-on", "holds"]) == 1
    assert main([*AUDIT, "--fail-on", "none", "--require", "accuracy>=.99"]) == 1
    capsys.readouterr()
    assert main([*AUDIT, "--fail-on", "wrong"]) == 2
    assert "one of unfounded, failed, violated, inconclusive" in capsys.readouterr().err


def test_junit_counts_what_fails(here: Path) -> None:
    status = main(
        [
            *AUDIT,
            "--fail-on",
            "holds",
            "--require",
            "accuracy>=.99",
            "--require",
            "loss<=9",
            "--junit",
            "j.xml",
        ]
    )
    root = ElementTree.parse(here / "j.xml").getroot()
    findings, required = root.findall("testsuite")
    cases = {case.get("name"): case for case in findings.findall("testcase")}
    assert status == 1
    assert set(cases) == {"risk.accuracy", "risk.loss", "calibration.nll", "inequality.chebyshev"}
    failing = cases["inequality.chebyshev"].find("failure")
    assert failing is not None
    assert failing.get("message") == "holds"
    assert cases["risk.accuracy"].find("failure") is None
    assert (findings.get("tests"), findings.get("failures"), findings.get("errors")) == ("4", "1", "0")
    assert (required.get("tests"), required.get("failures")) == ("2", "1")
    missed = required.findall("testcase")[0].find("failure")
    assert missed is not None
    assert "is missed" in str(missed.get("message"))


def test_outcomes_are_those_of_the_examples(here: Path) -> None:
    main([*AUDIT, "--weights", "one.safetensors", "--out", "one"])
    found = read_outcomes(here / "one" / FILE)
    assert torch.allclose(found["loss"].values, losses("one"), atol=1e-5)
    assert found["accuracy"].values.sum() in range(61)
    assert found["loss"].example.tolist() == list(range(60))
