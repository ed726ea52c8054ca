"""``margin audit``, ``claims``: runs and strangers, exit statuses, and the line each mistake gets."""

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import margin
from margin.cli import main
from margin.core.catalog import resolve
from margin.data.formats.text.tokenizers import Tokenizer

QUICK = "theory/risk.accuracy,theory/calibration.brier"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stranger.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def build():\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))\n"
        "class Broken(nn.Module):\n"
        "    def forward(self, x): return torch.full((len(x), 3), float('nan')) + 0 * x.sum()\n"
    )
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "held.npz", x=generator.random((60, 4), dtype=np.float32), y=np.arange(60) % 3)
    return tmp_path


def line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err.strip().splitlines()[-1]


def test_a_run_is_audited_on_what_it_held_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "5", "--out", "r"]) == 0
    expected = margin.Run("r").metrics["test_accuracy"]
    capsys.readouterr()
    assert main(["audit", "r", "--claims", QUICK, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    findings = {answer["claim"]: answer["finding"] for answer in document["answers"]}
    assert math.isclose(findings["theory/risk.accuracy"]["value"], expected, rel_tol=1e-6)
    assert (here / "r" / "audit" / "report.html").stat().st_size > 5000
    assert json.loads((here / "r" / "audit" / "findings.json").read_text())["answers"] == document["answers"]


def test_another_source_is_told_from_the_held_out_examples(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inputs 50 times as large, of which one of three logits is far above the others: the model is surer."""
    generator = np.random.default_rng(1)
    np.savez("other.npz", x=50 * generator.random((40, 4), dtype=np.float32))
    words = ["audit", "stranger:build", "held.npz", "--claims", "out_of_distribution"]
    assert main([*words, "--ood", "other.npz", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["finding"]["labels"] == ["predictive entropy", "1 - largest probability"]
    assert max(answer["finding"]["value"]) < 0.1 and "of 40 and 60 examples" in answer["finding"]["statement"]
    assert main([*words, "--ood", "other.npz", "--out", "told"]) == 0
    assert "Surer of the other source than of its own: in" in capsys.readouterr().out
    assert "<svg" in (here / "told" / "report.html").read_text()
    assert main([*words, "--out", "without", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert "needs examples of another source (--ood FILE" in answer["refusal"]
    np.savez("odd.npz", x=np.zeros((5, 3), np.float32))
    assert "(N, 4): got (N, 3)" in line(capsys, *words, "--ood", "odd.npz", "--out", "o")
    assert "nowhere.npz" in line(capsys, *words, "--ood", "nowhere.npz", "--out", "o")


def test_a_run_is_audited_on_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i % 7},{i % 5},{'ab'[(i % 7) > 3]}" for i in range(80)]
    (here / "d.csv").write_text("\n".join(["u,v,target", *rows]))
    (here / "new.csv").write_text("\n".join(["v,u,target", "1,6,b", "2,0,a", "3,1,b"]))
    assert main(["train", "mlp", "d.csv", "--epochs", "60", "--data.task", "classes", "--out", "r"]) == 0
    capsys.readouterr()
    assert main(["audit", "r", "new.csv", "--claims", "theory/risk.accuracy", "--json"]) == 0
    finding = json.loads(capsys.readouterr().out)["answers"][0]["finding"]
    assert abs(finding["value"] - 2 / 3) <= 1e-6


def test_a_stranger_is_audited_with_its_weights(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    save_file(model.state_dict(), "w.safetensors")
    torch.save(model.state_dict(), "w.pt")
    with np.load("held.npz") as held:
        x, y = torch.from_numpy(held["x"]), torch.from_numpy(held["y"])
    data = margin.audit(model, (x, y), claims="theory/risk.accuracy").answers[0].finding
    for weights in ("w.safetensors", "w.pt"):
        words = [
            "audit",
            "stranger:build",
            "held.npz",
            "--weights",
            weights,
            "--claims",
            QUICK,
            "--out",
            weights + ".audit",
        ]
        assert main([*words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["answers"][0]["finding"]
        assert 0 <= found["value"] <= 1
    assert 0 <= float(data.value) <= 1


def test_without_a_domain_the_attacks_do_not_apply(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "stranger:build", "held.npz", "--claims", "robust/l*", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert answers
    assert all(answer["finding"] is None and "needs a domain" in answer["refusal"] for answer in answers)


def test_a_model_that_returns_nan_fails(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "stranger:Broken", "held.npz", "--domain", "[0,1]", "--json"]) == 1
    answers = json.loads(capsys.readouterr().out)["answers"]
    verdicts = {answer["claim"]: answer["finding"]["verdict"] for answer in answers if answer["finding"]}
    of_the_data = {name: verdicts.pop(name) for name in list(verdicts) if "/evidence." in name}
    assert set(of_the_data.values()) == {"measured"}
    assert len(verdicts) >= 6
    assert verdicts.pop("theory/behavior.finite") == "violated"
    behavior = {n for n in verdicts if n.startswith("theory/behavior.") and not n.endswith("label_order")}
    behavior |= {n for n in verdicts if n.startswith("theory/evidence.")}  # no answer of the model's
    assert {verdicts[n] for n in behavior} <= {"holds", "measured"}
    assert {verdicts[n] for n in verdicts.keys() - behavior} <= {"failed", "unfounded"}
    assert verdicts["theory/calibration.brier"] == "failed"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("audit", "nowhere"), "nowhere is no run"),
        (("audit", "stranger:build"), "needs held-out data"),
        (("audit", "stranger:bulid", "held.npz"), "bulid"),
        (("audit", "strangr:build", "held.npz"), "strangr"),
        (("audit", "stranger:build", "gone.npz"), "no such file: gone.npz"),
        (("audit", "stranger:build", "held.npz", "--weights", "gone.pt"), "gone.pt"),
        (
            ("audit", "stranger:build", "held.npz", "--claims", "calibratoin"),
            "no claim matches 'calibratoin'",
        ),
        (("audit", "stranger:build", "held.npz", "--domain", "[0]"), "--domain takes two numbers"),
        (
            ("audit", "stranger:build", "held.npz", "--clams", "x"),
            "unknown option --clams; nearest: --claims",
        ),
        (("audit",), "margin audit needs MODEL"),
    ],
)
def test_a_mistake_gets_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in line(capsys, *words)


BAD = {
    "another shape": (
        {"x": np.zeros((9, 5), np.float32), "y": np.arange(9) % 3}, (),
        "given (9, 5) float32, layer '0' (Linear) raised RuntimeError",
    ),
    "whole numbers": (
        {"x": np.zeros((9, 4), np.uint8), "y": np.arange(9) % 3}, (),
        "if it takes real numbers, give x.float(): got uint8",
    ),
    "another range": (
        {"x": np.full((9, 4), 255, np.float32), "y": np.arange(9) % 3}, ("--domain", "[0,1]"),
        "inputs must lie in the domain: held-out example 0 has 255, outside [0, 1]; all span [255, 255]",
    ),
    "more classes": (
        {"x": np.zeros((9, 4), np.float32), "y": np.arange(9) % 4}, (),
        "labels must lie in 0 .. 2: got label 3 with 3 outputs (held-out example 3)",
    ),
    "labels from 1": (
        {"x": np.zeros((9, 4), np.float32), "y": 1 + np.arange(9) % 3}, (),
        "of labels that begin at 1 give y - 1",
    ),
    "missing values": (
        {"x": np.full((9, 4), np.nan, np.float32), "y": np.arange(9) % 3}, (),
        "inputs must be finite: held-out example 0 has nan",
    ),
    "no examples": (
        {"x": np.zeros((0, 4), np.float32), "y": np.zeros(0, int)}, (), "must have at least one example",
    ),
    "lengths": (
        {"x": np.zeros((9, 4), np.float32), "y": np.zeros(8, int)}, (), "must have one length",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_data_that_do_not_fit_get_one_line(here: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    arrays, words, message = BAD[case]
    np.savez(here / "bad.npz", **arrays)
    assert message in line(capsys, "audit", "stranger:build", "bad.npz", *words)


def test_models_that_cannot_be_asked_get_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "odd.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def sized(width, depth): return nn.Linear(width, depth)\n"
        "def nowhere():\n"
        "    with torch.device('meta'): return nn.Linear(4, 3)\n"
    )
    message = line(capsys, "audit", "odd:sized", "held.npz")
    assert "it needs width, depth; write a function that calls it" in message
    assert "must be materialized: weight is on the device meta" in line(
        capsys, "audit", "odd:nowhere", "held.npz"
    )


def test_labels_in_another_order_are_found_and_the_order_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "first.py").write_text(
        "from torch import nn\nclass First(nn.Module):\n    def forward(self, x): return 4 * x[:, :3]\n"
    )
    x = np.random.default_rng(0).random((90, 4), dtype=np.float32)
    np.savez(here / "turned.npz", x=x, y=(x[:, :3].argmax(1) + 1) % 3)
    words = ("--claims", "behavior.label_order", "--class-names", "a,b,c", "--json")
    assert main(["audit", "first:First", "turned.npz", *words]) == 1
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["finding"]["verdict"] == "violated" and answer["finding"]["value"] == 1
    assert "the model's a for b, b for c, c for a" in answer["finding"]["statement"]


def test_one_example_and_no_training_part_say_what_they_lack(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(here / "one.npz", x=np.ones((1, 4), np.float32), y=np.zeros(1, int))
    words = ("--claims", "risk.*,behavior.mates,range_test", "--json")
    assert main(["audit", "stranger:build", "one.npz", *words]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    said = {answer["claim"].rpartition("/")[2]: answer["refusal"] for answer in answers}
    assert said["risk.loss"] == "needs two held-out examples"
    assert said["risk.gap"] == "needs the training examples and two held-out examples"
    assert said["behavior.mates"] == "needs a batch of two examples or more, a row each"
    assert said["range_test"] == "needs the training examples"
    assert said["risk.accuracy"] == ""


def test_a_test_set_that_chose_among_models_is_asked_for_and_stated(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "stranger:build", "held.npz", "--claims", "bounds.ladder", "--json"]
    found = {}
    for models in ("", "1", "30"):
        assert main([*words, *(["--selected-on-test", models] if models else [])]) == 0
        found[models] = json.loads(capsys.readouterr().out)["answers"][0]["finding"]
    told = {models: " ".join(p["evidence"] for p in one["premises"]) for models, one in found.items()}
    assert "--selected-on-test N" in told[""] and "--selected-on-test N" not in told["1"] + told["30"]
    assert found[""]["value"] == found["1"]["value"] != found["30"]["value"]
    assert "at once of the 30 models that the examples compared" in found["30"]["statement"]
    assert "selected_on_test must count this model" in line(capsys, *words[:-1], "--selected-on-test", "0")


def test_an_option_that_lists_names_takes_those_of_every_time_it_is_given(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "stranger:build", "held.npz", "--claims", "theory/risk.accuracy", "--json"]
    assert main([*words, "--claims=calibration.brier,calibration.nll"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    asked = {answer["claim"].rpartition("/")[2] for answer in answers}
    assert asked == {"risk.accuracy", "calibration.brier", "calibration.nll"}
    both = ["--fail-on", "violated", "--fail-on", "measured"]
    assert main([*words, *both]) == main([*words, *both[2:], *both[:2]]) == 1
    assert "--claims needs a value" in line(capsys, *words[:3], "--claims")


def test_another_type_is_the_models_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "wide.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def build():\n    torch.manual_seed(0)\n    return nn.Linear(4, 3).double()\n"
        "def half(): return build().bfloat16()\n"
    )
    values = []
    for name in ("build", "half"):
        words = ("--claims", "risk.accuracy", "--json")
        assert main(["audit", f"wide:{name}", "held.npz", *words]) == 0
        values.append(json.loads(capsys.readouterr().out)["answers"][0]["finding"]["value"])
    assert abs(values[0] - values[1]) < 0.1


def test_wrong_weights_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file(
        {
            "0.weight": torch.zeros(8, 4),
            "0.bias": torch.zeros(9),
            "2.weight": torch.zeros(3, 8),
            "x": torch.zeros(1),
        },
        "w.safetensors",
    )
    message = line(capsys, "audit", "stranger:build", "held.npz", "--weights", "w.safetensors")
    for word in ("0.bias", "2.bias", "x"):
        assert word in message


def test_an_audit_is_not_overwritten_where_it_was_asked_to_go(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("audit", "stranger:build", "held.npz", "--claims", QUICK, "--out", "a")
    assert main(words) == 0
    with np.load("held.npz") as held:
        np.savez(here / "held.npz", x=held["x"], y=held["y"][::-1])
    before = (here / "a" / "findings.json").read_bytes()
    assert "a holds an audit of other held-out data: choose another directory" in line(capsys, *words)
    assert (here / "a" / "findings.json").read_bytes() == before
    assert main([*words, "--force", "true"]) == 0
    assert "of a taken over" not in capsys.readouterr().err


def test_a_second_audit_of_the_same_asks_only_what_is_new(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "stranger:build", "held.npz", "--json"]
    assert main([*words, "--claims", QUICK, "--out", "a"]) == 0
    first = json.loads(capsys.readouterr().out)["answers"]
    more = [*words, "--claims", "risk.loss", "--require", "accuracy>=.99"]
    assert main([*more, "--out", "a"]) == 1  # without --force
    told = capsys.readouterr()
    assert "margin: 2 findings of a taken over, 1 asked" in told.err.splitlines()
    answers = {row["claim"]: row for row in json.loads(told.out)["answers"]}
    assert len(answers) == 3
    assert [answers[row["claim"]] for row in first] == first  # to the bit, their seconds too
    kept = json.loads((here / "a" / "findings.json").read_text())
    assert {row["claim"]: row for row in kept["answers"]} == answers
    assert kept["requirements"][0]["status"] == "missed"
    assert main([*more, "--out", "a", "--force"]) == 1
    assert "taken over" not in capsys.readouterr().err
    assert main([*words[:3], "--claims", QUICK]) == main([*words[:3], "--claims", QUICK]) == 0
    assert "margin: 2 findings of audit taken over, 0 asked" in capsys.readouterr().err
    weights = {"0.weight": torch.ones(8, 4), "0.bias": torch.ones(8)}
    save_file(weights | {"2.weight": torch.ones(3, 8), "2.bias": torch.ones(3)}, "w.safetensors")
    assert main([*words[:3], "--claims", QUICK, "--weights", "w.safetensors"]) == 0
    assert "margin: nothing of audit is taken over: it is of other weights" in capsys.readouterr().err
    (here / "audit" / "findings.json").write_text("{")
    assert "findings.json: is damaged" in line(capsys, *words[:3], "--claims", QUICK)
    assert main([*words[:3], "--claims", QUICK, "--force"]) == 0


def test_claims_are_put_to_their_demonstrations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "novikoff", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["claim"] for row in document] == ["classic/perceptron.novikoff"]
    assert document[0]["finding"]["verdict"] == "holds"
    assert main(["claims", "theory/risk*"]) == 0
    assert "theory/risk.accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "status", "verdict"), [(0.5, 0, "holds"), (2.0, 1, "violated"), (math.nan, 1, "failed")]
)
def test_a_demonstration_that_goes_wrong_sets_the_status(
    value: float,
    status: int,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    finding = margin.Finding(
        statement="The value is at most 1.",
        value=torch.tensor(value),
        unit="1",
        range=(0.0, 10.0),
        high=torch.tensor(1.0),
        premises=(),
        reference="Nobody 1900, Section 1",
    )
    monkeypatch.setattr("margin.core.findings.demonstrated", lambda claim: (finding, 0.25))
    assert main(["claims", "novikoff", "--json"]) == status
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["finding"]["verdict"], row["seconds"]) == (verdict, 0.25)


def test_every_example_of_a_file_is_judged_and_need_not_show_every_class(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load("held.npz") as held:
        x, y = held["x"], held["y"]
    for keep in (y != 1, np.arange(60) < 1):
        np.savez(here / "few.npz", x=x[keep], y=y[keep])
        words = (
            "audit",
            "stranger:build",
            "few.npz",
            "--claims",
            "theory/risk.accuracy",
            "--out",
            f"a{keep.sum()}",
            "--task",
            "logits",  # of few examples they may all lie in [0, 1]
        )
        assert main([*words, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["facts"]["held-out examples"] == keep.sum()
    np.savez(here / "bare.npz", x=x)
    assert "holds no targets" in line(capsys, "audit", "stranger:build", "bare.npz")


STRANGER = ("audit", "stranger:build", "held.npz", "--claims", "calibration.brier")


def test_requirements_are_repeated_decided_and_set_the_status(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*STRANGER, "--require", "accuracy>=0.01", "--require=recall<=1", "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    found = [(r["requirement"], r["status"]) for r in document["requirements"]]
    assert found == [("accuracy>=0.01", "met"), ("recall<=1", "met")]
    assert [a["claim"] for a in document["answers"]] == [
        "theory/risk.accuracy",
        "theory/confusion.recall",
        "theory/calibration.brier",
    ]
    for bound, status in (("0.999", "missed"), ("0.34", "undecided")):
        assert main([*STRANGER, "--all", "--require", f"accuracy>={bound}"]) == 1
        out = capsys.readouterr().out
        assert f">= {bound.lstrip('0')} {status}" in out
        assert f"required: 1 {status}" in out
    kept = json.loads((here / "audit" / "findings.json").read_text())["requirements"]
    assert [r["status"] for r in kept] == ["undecided"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--require", "accuracy=1"), "as 'accuracy>=.9': got 'accuracy=1'"),
        (("--require", "acuracy>=1"), "unknown claim 'acuracy'; nearest: theory/risk.accuracy"),
        (("--require", "r2>=.5"), "theory/residuals.r2, which needs predictions of real values"),
        (("--require", "recall@dog>=.5"), "it has class 0; class 1; class 2"),
        (("--require",), "--require needs a value, as 'accuracy>=.9'"),
        (("--minutes", "0"), "minutes must be above 0: got 0"),
        (("--minutes", "soon"), "--minutes"),
        (("--task", "binary"), "task binary needs one number an example (N,) or (N, 1)"),
    ],
)
def test_a_mistaken_requirement_gets_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in line(capsys, *STRANGER, *words)


def test_what_does_not_fit_into_the_minutes_is_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STRANGER[:3], "--minutes", "0.001", "--require", "accuracy>=0", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    skipped = [a["skipped"] for a in document["answers"] if not a["refusal"]]
    short = [text for text in skipped if not text.endswith("name it with --claims")]
    assert short
    assert all(text.startswith("needs about") for text in short)
    assert document["requirements"][0]["why"].startswith("not asked: needs about")


# ten seconds: a process of its own, which must be amid its audit when the signal comes
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_what_is_stopped_keeps_the_findings_and_says_so(here: Path, sent: signal.Signals) -> None:
    (here / "slow.py").write_text(
        "import time\nfrom torch import nn\n"
        "class Slow(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = nn.Linear(4, 3)\n"
        "        nn.init.constant_(self.linear.bias, 9.0)\n"  # outputs that are no probabilities
        "    def forward(self, x):\n"
        "        time.sleep(0.3)\n"
        "        return self.linear(x)\n"
    )
    words = [sys.executable, "-m", "margin", "audit", "slow:Slow", "held.npz", "--domain", "[0,1]"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().startswith("[1/")  # a claim is announced before it is asked
        time.sleep(2)  # and the next announcement comes ten seconds later
        assert process.poll() is None
        process.send_signal(sent)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in err
    document = json.loads((here / "audit" / "findings.json").read_text())
    answered = [a["claim"] for a in document["answers"] if a["finding"]]
    assert answered
    assert document["interrupted"] is True
    count = len(document["answers"])
    assert f"interrupted; {len(answered)} of {count} claims were answered; kept in audit" in err
    assert "not asked, interrupted" in " ".join(out.split())
    # a claim that does not apply, does not fit or must be named may have been come to before
    skipped = [a["skipped"] for a in document["answers"] if not a["finding"] and not a["refusal"]]
    assert all(skipped)
    assert skipped.count("interrupted") > len(answered)
    assert (here / "audit" / "report.html").stat().st_size > 5000


SENT = (signal.SIGINT, signal.SIGTERM)
"""What Ctrl-C sends, and what a scheduler does."""


@pytest.mark.parametrize("sent", SENT, ids=["ctrl-c", "terminated"])
@pytest.mark.parametrize("phase", ["building", "reading", "trying", "timing"])
def test_what_is_stopped_before_it_asks_has_status_130_and_writes_nothing(
    here: Path,
    sent: signal.Signals,
    phase: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the model is built, data are read, the model is tried out, and its pass is timed."""
    places = {
        "building": "margin.cli.audit.stranger",
        "reading": "margin.auditing.subject.subjects.read",
        "trying": "margin.auditing.subject.subjects.probe",
        "timing": "margin.auditing.asking.budget.cost_of_passes",
    }
    monkeypatch.setattr(places[phase], lambda *words: os.kill(os.getpid(), sent))
    assert main(["audit", "stranger:build", "held.npz"]) == 130
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.strip().splitlines()[-1] == "margin: interrupted"
    assert not (here / "audit").exists()


@pytest.mark.parametrize("sent", SENT, ids=["ctrl-c", "terminated"])
@pytest.mark.parametrize("phase", ["worst_examples", "outcomes"])
def test_what_is_stopped_while_the_worst_are_sought_keeps_the_findings(
    here: Path,
    sent: signal.Signals,
    phase: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"margin.auditing.asking.answers.{phase}", lambda *_: os.kill(os.getpid(), sent))
    assert main([*STRANGER[:3], "--claims", QUICK]) == 130
    assert "2 of 2 claims were answered; kept in audit" in capsys.readouterr().err
    document = json.loads((here / "audit" / "findings.json").read_text())
    assert document["interrupted"] and all(a["finding"] for a in document["answers"])


@pytest.mark.parametrize("sent", SENT, ids=["ctrl-c", "terminated"])
@pytest.mark.parametrize("place", ["asking.answers:write_outcomes", "report.report:write_report"])
def test_what_is_stopped_while_it_is_written_is_written_whole(
    here: Path,
    sent: signal.Signals,
    place: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutant: the signal ends the writing, and with it what was found in two minutes."""
    path = f"margin.auditing.{place}"
    own = resolve(path)

    def stopped(*words: object) -> object:
        os.kill(os.getpid(), sent)
        return own(*words)

    monkeypatch.setattr(path.replace(":", "."), stopped)
    assert main([*STRANGER[:3], "--claims", QUICK]) == 130
    assert "interrupted; 2 of 2 claims were answered; kept in audit" in capsys.readouterr().err
    assert all(a["finding"] for a in json.loads((here / "audit" / "findings.json").read_text())["answers"])
    assert (here / "audit" / "report.html").stat().st_size > 5000
    for number in SENT:  # and later ones do what they did before
        assert signal.getsignal(number) is HANDLERS[number]


def test_a_second_signal_ends_the_writing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*words: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("margin.auditing.report.report.write_report", stopped)
    assert main([*STRANGER[:3], "--claims", QUICK]) == 130
    assert (here / "audit" / "findings.json").exists()


HANDLERS = {number: signal.getsignal(number) for number in SENT}


def test_a_binary_logit_in_a_column_is_audited(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "single.py").write_text(  # outputs that are no probabilities
        "from torch import nn\ndef build():\n    model = nn.Linear(4, 1)\n"
        "    nn.init.constant_(model.bias, 9.0)\n    return model\n"
    )
    with np.load("held.npz") as held:
        np.savez(here / "two.npz", x=held["x"], y=held["y"] % 2)
    words = ("audit", "single:build", "two.npz", "--claims", "ranking,calibration")
    assert "may mean logits or probabilities (of class 1), halfspace" in line(capsys, *words)
    assert main([*words, "--task", "binary", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {a["claim"] for a in document["answers"] if a["finding"]}
    assert {"theory/ranking.auroc", "theory/calibration.nll", "theory/calibration.binary_ece"} <= found
    assert any("read as one number" in text for text in document["assumed"])


def test_predictions_of_a_file_are_audited_without_their_model(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.8, 0.2]])
    np.savez(here / "p.npz", predictions=np.tile(p, (10, 1)), targets=np.tile([0, 1, 0, 0], 10))
    assert main(["audit", "p.npz", "--claims", QUICK, "--json"]) == 0
    values = [answer["finding"]["value"] for answer in json.loads(capsys.readouterr().out)["answers"]]
    assert math.isclose(values[0], 0.75)
    assert math.isclose(values[1], 2 * (0.01 + 0.16 + 0.49 + 0.04) / 4)
    assert "it has x, y, no predictions" in line(capsys, "audit", "held.npz")
    assert "leave out DATA" in line(capsys, "audit", "p.npz", "held.npz")


def test_the_part_of_the_output_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "parts.py").write_text(
        "from torch import nn\n"
        "class Two(nn.Module):\n"
        "    def forward(self, x): return {'teacher': 2 * x[:, :3], 'student': -x[:, :3]}\n"
    )
    assert "student" in line(capsys, "audit", "parts:Two", "held.npz")
    words = ("audit", "parts:Two", "held.npz", "--claims", "risk.accuracy", "--json", "--output")
    data = np.load(here / "held.npz")
    for name, sign in (("teacher", 1), ("student", -1)):
        assert main([*words, name]) == 0
        (answer,) = json.loads(capsys.readouterr().out)["answers"]
        share = float(((sign * data["x"][:, :3]).argmax(1) == data["y"]).mean())
        assert math.isclose(answer["finding"]["value"], share, rel_tol=1e-6)
    assert "got 'nobody' of a dict of teacher, student" in line(capsys, *words, "nobody")


def test_audits_are_compared_with_their_requirements(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a row a line
    for out, bound in (("a", "0.01"), ("b", "0.999")):
        main([*STRANGER, "--require", f"accuracy>={bound}", "--out", out])
    capsys.readouterr()
    assert main(["compare", "a", "b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {row.split("  ")[0]: row.split() for row in lines}
    assert rows["required accuracy>=0.01"][2:] == ["met", "-"]
    assert rows["required accuracy>=0.999"][2:] == ["-", "missed"]


GATE = ("audit", "gate:build", "held.npz", "--claims", QUICK, "--require", "accuracy>=.9")
OWN = "class Own(BaseException): pass\n"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import sys\nsys.exit(0)", "gate ended the program by sys.exit(0)"),
        ("import sys\ndef build(): sys.exit(0)", "gate:build ended the program by sys.exit(0)"),
        (
            "import sys\nfrom torch import nn\nclass build(nn.Module):\n def forward(self, x): sys.exit(0)",
            "code that was called ended the program by sys.exit(0)",
        ),
        (f"{OWN}def build(): raise Own('gone')", "gate:build raised Own: gone"),
        ("def build(): raise GeneratorExit", "gate:build raised GeneratorExit"),
        (
            f"{OWN}from torch import nn\nclass build(nn.Module):\n def forward(self, x): raise Own('a\\nb')",
            "code that was called raised Own: a: nothing is done",
        ),
    ],
    ids=["import", "build", "forward", "own class", "generator's end", "own class in forward"],
)
def test_a_gate_is_not_passed_by_leaving(
    here: Path, text: str, rule: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "gate", raising=False)
    (here / "gate.py").write_text(text)
    assert main(GATE) == 2
    told = capsys.readouterr().err
    assert told.splitlines()[0].startswith(f"margin: {rule}")
    assert "Traceback" not in told


def test_a_process_that_is_left_does_not_pass_its_gate(here: Path) -> None:
    (here / "gate.py").write_text(
        "import sys\nfrom torch import nn\nclass build(nn.Module):\n def forward(self, x): sys.exit(0)"
    )
    command = [sys.executable, "-m", "margin", *GATE]
    assert subprocess.run(command, cwd=here, capture_output=True, check=False).returncode == 2


def test_text_classes_and_training_data_of_a_stranger_are_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "named.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Sides(nn.Module):\n"
        "    def forward(self, x): return torch.stack((x[:, 0], -x[:, 0], x[:, 1] - 99), 1)\n"
        "def build(): return Sides()\n"
    )
    rows = [f"{(-1) ** i * (1 + i)},{i},{'no' if i % 2 else 'yes'}" for i in range(20)]
    for name in ("d.csv", "train.csv"):
        (here / name).write_text("\n".join(["u,v,answer", *rows]))
    main(["audit", "named:build", "d.csv", "--claims", "risk"])
    assert "every column of d.csv is an input, none a target: --target NAME" in capsys.readouterr().err
    words = ("audit", "named:build", "d.csv", "--target", "answer", "--claims", "risk", "--json")
    assert "class_names must name each of the 3 classes: got 2" in line(capsys, *words)
    more = ("--class-names", "yes,no,perhaps", "--train", "train.csv")
    assert main([*words, *more]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {a["claim"]: a["finding"] for a in found["answers"]}
    assert by_name["theory/risk.accuracy"]["value"] == 1  # the table numbers no, yes
    assert by_name["theory/risk.gap"]["value"] == 0
    assert "'no' is not among yes, perhaps, maybe" in line(
        capsys, *words, "--class-names", "yes,perhaps,maybe"
    )


@pytest.mark.parametrize("width", [80, 120])
def test_an_audit_is_as_wide_as_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    words = ["audit", "stranger:build", "held.npz", "--claims", "risk,hopfield,linf"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert max(map(len, lines)) > 80 or width == 80
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(words) == 0
    assert "\x1b[" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_of_a_terminal_and_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("margin.cli.audit.SECONDS_BETWEEN_FRAMES", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(["audit", "stranger:build", "held.npz", "--claims", "risk,confusion"]) == 0
    shown = terminal.getvalue()
    assert "\n" not in shown
    frames = shown.split("\r\x1b[2K")
    assert frames[-1] == ""  # each frame takes the place of the one before, at last nothing does
    assert frames[:2] == ["reading stranger:build", ""]
    assert re.fullmatch(
        r"\[1/7\] theory/risk\.accuracy, \d+ s", frames[2]
    )  # how many says the machine's load
    assert len(frames) == 10 and max(map(len, frames)) < 40


def test_elsewhere_progress_is_a_line_in_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "stranger:build", "held.npz", "--claims", "risk,confusion"]) == 0
    (told,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\[1/7\] theory/risk\.accuracy, \d+ s", told)


def test_the_first_screen_says_where_the_rest_is_and_all_prints_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["audit", "stranger:build", "held.npz", "--claims", "risk,confusion,linf"]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert len(first.splitlines()) <= 24
    assert first.splitlines()[-1] == f"report in {Path('audit', 'report.html')}; --all prints every finding"
    assert "confusion.macro_f1" not in first
    for more in (["--all"], ["--all", "true", "--force"]):
        assert main([*words, *more]) == 0
        whole = capsys.readouterr().out
        assert "confusion.macro_f1" in whole and "needs a domain" in whole
        assert "--all" not in whole


LANGUAGE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(281, 6), nn.Linear(6, 281, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))

def build():
    return Model()
"""


def test_a_language_model_of_the_users_is_asked_on_a_text_by_its_tokenizer(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Perplexity per token and per byte by hand; a matrix of two names is written once."""
    text = "the quick br\u00f6wn fox sees the lazy dog\n" * 40
    tokenizer = Tokenizer.trained([text], level="bpe", vocab_size=280)
    table = torch.randn(281, 6, generator=torch.Generator().manual_seed(0))
    for name in ("tokens", "weights"):
        (here / name).mkdir()
    (here / "tokens" / "tokenizer.json").write_text(tokenizer.tokenizer)
    save_file({"embedding.weight": table}, here / "weights" / "model.safetensors")
    (here / "lm.py").write_text(LANGUAGE)
    (here / "book.txt").write_text(text)
    asked = ("audit", "lm:build", "book.txt", "--weights", "weights", "--tokenizer", "tokens")
    assert main([*asked, "--claims", "text/language.perplexity", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["answers"][0]["finding"]
    ids = torch.tensor(tokenizer.encode([text])[0])
    log_p = (table[ids[:-1]] @ table.T).log_softmax(1).gather(1, ids[1:, None])
    mean, sizes = -float(log_p.mean()), len(tokenizer.decode(ids[1:]).encode())
    assert sizes > len(tokenizer.decode(ids[1:]))  # a letter of two bytes
    assert found["value"] == pytest.approx(
        [math.exp(mean), mean / math.log(2), mean * (len(ids) - 1) / sizes / math.log(2)], rel=1e-4
    )
    assert "leave out --task" in line(capsys, *asked, "--task", "classes")
    (here / "lm.py").write_text(
        LANGUAGE.replace("        self.head.w", "        self.config = Size\n        self.head.w")
    )
    with (here / "lm.py").open("a") as file:
        file.write("\nclass Size:\n    vocab_size = 270\n")
    sys.modules.pop("lm", None)
    assert "has 280 tokens, the module 270" in line(capsys, *asked)
