"""``margin train``: what it leaves, repeats and resumes, and the line that each mistake gets."""

import errno
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from scipy import stats

from margin import Run, load
from margin.cli import main
from margin.cli.output import bar
from margin.cli.parsing import new_parser, readable
from margin.cli.train import take
from margin.core.options import Training
from margin.testing import check_same_run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def line(capsys: pytest.CaptureFixture[str], *words: str, status: int = 2) -> str:
    """The last line of stderr after a command that ends with ``status``, without a traceback."""
    capsys.readouterr()
    assert main(words) == status
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    if status == 2:
        assert captured.out == ""
    return captured.err.strip().splitlines()[-1]


def test_a_training_prints_its_metrics_and_leaves_a_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["train", "mlp", "iris", "--epochs", "3", "--model.hidden", "8,4", "--out", "r", "--json"]) == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert set(answer["metrics"]) == {"val_loss", "val_accuracy", "test_loss", "test_accuracy"}
    record = yaml.safe_load((here / "r" / "run.yaml").read_text())
    assert record["arguments"]["options"]["hidden"] == [8, 4]
    assert record["arguments"]["training"]["epochs"] == 3
    assert record["recipe"]["spec"] == {"in_features": 4, "num_classes": 3}
    assert {"torch", "numpy", "margin", "python"} <= set(record["versions"])
    assert {p.name for p in (here / "r").iterdir()} >= {
        "initial.safetensors",
        "history.jsonl",
        "checkpoints.json",
    }
    widths = [m.out_features for m in load("r").modules() if isinstance(m, torch.nn.Linear)]
    assert widths == [8, 4, 3]


def test_a_record_repeats_a_training(here: Path) -> None:
    words = [
        "--epochs",
        "2",
        "--lr",
        "0.01",
        "--model.dropout",
        "0.25",
        "--data.test",
        "0.3",
        "--optimizer-options",
        "{weight_decay: 0.1}",
    ]
    assert main(["train", "mlp", "iris", *words, "--out", "one"]) == 0
    assert main(["train", "--config", "one/run.yaml", "--out", "two"]) == 0
    check_same_run(Run("one"), Run("two"))
    assert main(["train", "--config", "one", "--lr", "0.02", "--out", "three"]) == 0
    assert Run("three").record["arguments"]["training"]["lr"] == 0.02
    assert Run("three").record["arguments"]["options"]["dropout"] == 0.25


def test_resuming_goes_on(here: Path) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "4", "--out", "straight"]) == 0
    assert main(["train", "mlp", "iris", "--epochs", "2", "--out", "part"]) == 0
    assert main(["train", "--resume", "part", "--epochs", "4"]) == 0
    check_same_run(Run("straight"), Run("part"))
    assert Run("part").record == Run("straight").record


def test_a_finished_run_stays_as_it_is(here: Path) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "2", "--out", "r"]) == 0
    before = {p.name: p.read_bytes() for p in (here / "r").iterdir()}
    assert main(["train", "--resume", "r"]) == 0
    assert {p.name: p.read_bytes() for p in (here / "r").iterdir()} == before


def test_seeds_give_a_mean_and_a_t_interval(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "2", "--seeds", "3", "--out", "r", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]["test_loss"]
    values = [Run(here / "r" / f"seed-{k}").metrics["test_loss"] for k in range(3)]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert math.isclose(metrics["mean"], np.mean(values))
    assert math.isclose(metrics["low"], low)
    assert math.isclose(metrics["high"], high)
    assert len(set(values)) == 3


def test_a_rule_takes_the_place_of_the_step(here: Path) -> None:
    words = ["--rule", "pgd", "--rule.eps", "0.5", "--epochs", "1", "--out", "r"]
    assert main(["train", "mlp", "digits", *words]) == 0
    assert Run("r").record["arguments"]["step"]["eps"] == 0.5
    assert 0 < Run("r").history[-1]["val_pgd_accuracy"] <= Run("r").history[-1]["val_accuracy"] + 0.02
    assert 0 < Run("r").metrics["test_pgd_accuracy"] <= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "lenet6", "digits"), "unknown model 'lenet6'; nearest: vision/lenet5"),
        (
            ("train", "forecaster", "digits"),
            "nearest: sequence/linear_forecaster, vision/resnet (by their letters alone); margin models",
        ),
        (("train", "lenet5", "digitz"), "unknown data set 'digitz'; nearest: digits"),
        (
            ("train", "lenet5", "digits", "--rule", "pdg"),
            "unknown rule 'pdg'; nearest: robust/pgd",
        ),
        (("train", "lenet5"), "needs MODEL and DATA"),
        (
            ("train", "mlp", "iris", "--model.hiden", "3"),
            "unknown option --model.hiden; nearest: --model.hidden",
        ),
        (
            ("train", "mlp", "iris", "--model.drop", ".5"),
            "unknown option --model.drop; nearest: --model.dropout",
        ),
        (("train", "mlp", "iris", "--epohcs", "3"), "unknown option --epohcs; nearest: --epochs"),
        (("train", "mlp", "iris", "--epochs", "many"), "epochs"),
        (("train", "mlp", "iris", "--epochs", "-1"), "epochs must be at least 0: got -1"),
        (("train", "mlp", "iris", "--lr", "0"), "lr must be positive: got 0"),
        (
            ("train", "mlp", "iris", "--optimizer", "Adamw"),
            "unknown optimizer 'Adamw'; nearest in torch.optim and the catalog: AdamW",
        ),
        (("train", "mlp", "iris", "--device", "cuda:7"), "no device 'cuda:7' here; there"),
        (("train", "mlp", "iris", "--device", "gpu"), "no device 'gpu' here; there is: cpu"),
        (("train", "mlp", "iris", "--out", "/proc/none/run"), "/proc/none/run cannot be made: No such file"),
        (("train", "mlp", "iris", "--model.activation", "rule"), "activation"),
        (("train", "mlp", "iris", "--model.dropout", "1.5"), "dropout must be in [0, 1): got 1.5"),
        (
            ("train", "mlp", "iris", "--until", "{mistakes: 0}"),
            "until names a metric of the step: got 'mistakes'",
        ),
        (("train", "mlp", "iris", "extra"), "unexpected argument 'extra'"),
        (("train", "mlp", "missing.csv"), "no such file: missing.csv"),
        (("train", "lenet5", "iris"), "vision/lenet5 needs images: an example of iris has 4 features"),
        (
            ("train", "linear_regression", "iris"),
            "classic/linear_regression needs values as targets: those of iris are classes",
        ),
        (
            ("train", "residual_mlp", "diabetes"),
            "those of diabetes are values; models that fit: feedforward/mlp:values, ",
        ),
        (("train", "perceptron", "digits"), "a perceptron separates two classes: got num_classes=10"),
        (
            ("train", "perceptron", "breast-cancer", "--rule", "pgd"),
            "needs a model trained by gradients",
        ),
        (
            ("train", "mlp", "two-moons", "--rule", "pgd", "--rule.eps", "0.1"),
            "needs the domain in which an input may lie, and these data state none",
        ),
        (("train", "--resume", "nowhere"), "nowhere is no run"),
        (("train", "--rule"), "--rule needs a value"),
        (("compare",), "margin compare needs FIRST; see margin compare --help"),
    ],
)
def test_a_mistake_gets_one_line_and_leaves_nothing(
    words: tuple[str, ...], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in line(capsys, *words)
    assert not [p for p in here.rglob("*") if p.is_file()]


def test_a_file_that_may_not_be_read_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs the tests may be root, who reads everything."""

    def refuses(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(here / "a.csv.new"))

    monkeypatch.setattr("margin.runs.training.open_source", refuses)
    found = line(capsys, "train", "mlp", "iris")
    assert f"a file must be one that you may read, or write: got {here / 'a.csv'}: Permission denied" in found


def test_a_directory_that_exists_is_never_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "notes").mkdir()
    assert "notes exists and is no run: choose another --out" in line(
        capsys, "train", "mlp", "iris", "--out", "notes"
    )
    assert main(["train", "mlp", "iris", "--epochs", "1", "--out", "r"]) == 0
    assert "r holds a finished run" in line(capsys, "train", "mlp", "iris", "--out", "r")
    marks = json.loads((here / "r" / "checkpoints.json").read_text())
    (here / "r" / "checkpoints.json").write_text(
        json.dumps({k: v for k, v in marks.items() if k in ("last", "best")})
    )
    assert "go on with --resume r" in line(capsys, "train", "mlp", "iris", "--out", "r")


def test_a_damaged_checkpoint_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "1", "--out", "r"]) == 0
    file = Run("r").checkpoint()
    file.write_bytes(file.read_bytes()[:100])
    assert f"{file} is damaged or no checkpoint of margin" in line(
        capsys, "train", "--resume", "r", "--epochs", "3"
    )


def test_a_record_that_is_no_yaml_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "1", "--out", "r"]) == 0
    (here / "r" / "run.yaml").write_text("a: [1")
    assert "run.yaml is damaged" in line(capsys, "train", "--resume", "r")


def test_a_resumed_run_keeps_its_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "1", "--out", "r"]) == 0
    assert "keeps its --model.dropout" in line(capsys, "train", "--resume", "r", "--model.dropout", "0.5")
    assert "takes the run's own model" in line(capsys, "train", "mlp", "--resume", "r")
    for words, message in {
        ("--config", "r"): "takes the run's own arguments: leave out --config",
        ("--rule", "sam"): "keeps its rule: leave out --rule sam",
        ("--seeds", "2"): "leave out --out and --seeds",
        ("--out", "elsewhere"): "leave out --out and --seeds",
    }.items():
        assert message in line(capsys, "train", "--resume", "r", "--epochs", "2", *words)


def test_data_that_changed_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"{i % 7},{i % 5},{'ab'[i % 2]}" for i in range(60))
    (here / "d.csv").write_text(f"u,v,target\n{rows}\n")
    assert main(["train", "mlp", "d.csv", "--task", "classes", "--epochs", "1", "--out", "r"]) == 0
    (here / "d.csv").write_text(f"u,v,target\n{rows}\n3,3,a\n")
    assert "have changed since the run began" in line(capsys, "train", "--resume", "r", "--epochs", "2")


def test_numbers_that_are_not_finite_end_the_training(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "train",
        "mlp_regressor",
        "diabetes",
        "--optimizer",
        "SGD",
        "--lr",
        "1e30",
        "--epochs",
        "50",
        "--out",
        "r",
    )
    message = line(capsys, *words, status=1)
    assert "at step" in message
    assert "lr 1e+30" in message
    run = Run("r")
    assert run.reason.startswith("not finite")
    assert all(p.isfinite().all() for p in load(run, "initial").parameters())


def test_help_names_the_models_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "lenet5", "digits", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for option in ("--model.activation", "--model.pooling", "--epochs", "--data.test", "--seeds", "--out"):
        assert option in text
    assert "How 2 x 2 windows are summarized" in text


def test_seeds_are_counted_from_the_one_given(here: Path) -> None:
    words = ["--epochs", "1", "--seed", "5", "--seeds", "2", "--out", "r"]
    assert main(["train", "logistic_regression", "iris", *words]) == 0
    assert sorted(path.name for path in (here / "r").iterdir()) == ["seed-5", "seed-6"]
    assert [Run(here / "r" / f"seed-{k}").record["arguments"]["training"]["seed"] for k in (5, 6)] == [5, 6]


def test_words_are_taken_apart() -> None:
    taken = take(["mlp", "iris", "--rule=pgd", "--lr", "0.1", "--config", "c", "--resume=r"])
    assert taken == ("mlp", "iris", "pgd", "c", "r", ("--lr", "0.1"), "", "")
    assert take(["--resume", "r", "--epochs", "3"]) == ("", "", "", "", "r", ("--epochs", "3"), "", "")
    with pytest.raises(ValueError, match="--config needs a value"):
        take(["mlp", "iris", "--config"])


def test_a_record_read_for_other_data_leaves_its_reading_behind(here: Path) -> None:
    words = ["train", "logistic_regression", "iris", "--data.test", "0.5", "--lr", "0.5"]
    assert main([*words, "--epochs", "1", "--out", "one"]) == 0
    assert main(["train", "--config", "one", "--out", "same"]) == 0
    assert main(["train", "logistic_regression", "wine", "--config", "one", "--out", "other"]) == 0
    arguments = {name: Run(name).record["arguments"] for name in ("one", "same", "other")}
    assert arguments["same"] == arguments["one"]
    assert arguments["other"]["data"]["source"] == "wine"
    assert arguments["other"]["data"]["options"].get("test") != 0.5
    assert arguments["other"]["training"] == arguments["one"]["training"]


def test_a_bar_fills_from_left_to_right() -> None:
    assert bar(0, 10, 4) == "[....] step 0/10"
    assert bar(5, 10, 4) == "[##..] step 5/10"
    assert bar(10, 10, 4) == "[####] step 10/10"
    assert bar(0, 0, 4) == "[....] step 0/0"


def test_the_last_row_is_always_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "logistic_regression", "iris", "--max-steps", "6", "--evaluate-every", "2"]) == 0
    captured = capsys.readouterr()
    assert "step 6/6" in captured.err
    assert "runs/logistic_regression-1" in captured.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lr", "foo"), "--lr takes a number: got foo"),
        (("--epochs", "1.5"), "--epochs takes a whole number: got 1.5"),
        (("--until", "loss=0.3"), "--until takes names and numbers, as '{loss: 0.3}': got loss=0.3"),
        (("--model.activation", "foo"), "--model.activation takes one of relu, leaky_relu"),
    ],
)
def test_a_value_of_another_kind_is_told_in_words(
    words: tuple[str, ...], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in line(capsys, "train", "mlp", "iris", *words)


def test_metrics_that_are_not_finite_are_null_in_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "mlp_regressor", "diabetes", "--optimizer", "SGD", "--lr", "1e30", "--max-steps", "1"]
    assert main([*words, "--out", "r", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics["test_loss"] is None
    assert math.isnan(Run("r").metrics["test_loss"])


def test_an_option_may_be_written_with_hyphens(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "iris", "--max-steps=2", "--batch-size", "8", "--out", "r-1"]) == 0
    training = Run("r-1").record["arguments"]["training"]
    assert (training["max_steps"], training["batch_size"]) == (2, 8)
    assert "unknown option --batchsize; nearest: --batch-size" in line(
        capsys, "train", "mlp", "iris", "--batchsize", "8"
    )


def test_a_word_in_place_of_a_list_is_no_list() -> None:
    parser = new_parser("train")
    parser.add_class_arguments(Training)
    words = ["--class-weight", "balanced", "--class-weight=1,2", "--track", "a,b"]
    assert readable(
        [*words, "--confusion", "[[1,0],[0,1]]", "--clip", "inf", "--until.loss", "3"], parser
    ) == [
        "--class_weight",
        "balanced",
        "--class_weight=[1,2]",
        "--track",
        "[a,b]",
        "--confusion",
        "[[1,0],[0,1]]",
        "--clip",
        ".inf",
        "--until.loss",
        "3",
    ]


def test_data_alone_beside_a_record_are_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "logistic_regression", "iris", "--epochs", "1", "--out", "one"]) == 0
    for out, words in {
        "after": ("wine", "--config", "one"),
        "before": ("--config", "one", "wine"),
        "both": ("--config=one", "logistic_regression", "wine"),
        "model": ("logistic_regression", "--config", "one"),
    }.items():
        assert main(["train", *words, "--out", out]) == 0
        source = Run(out).record["arguments"]["data"]["source"]
        assert source == ("iris" if out == "model" else "wine")
    assert "no such file: no.csv" in line(capsys, "train", "no.csv", "--config", "one")
    assert "unknown model 'logistic'; nearest:" in line(capsys, "train", "logistic", "--config", "one")
    message = line(capsys, "train", "--config", "one", "--epochs", "1", "wine")
    assert "unexpected argument 'wine': words that are no options come before them" in message


@pytest.mark.parametrize("words", [("iris", "mlp"), ("iris",), ("d.csv", "mlp"), ("series:d", "mlp")])
def test_data_before_the_model_are_told_the_order(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    message = line(capsys, "train", *words)
    assert message.startswith("margin: MODEL comes before DATA, margin train MODEL DATA")
    assert message.endswith(f"got {words[0]}, which is data")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--until", "{los: 1}"), "a metric of the step: got 'los'; nearest: loss; it has loss, grad_norm"),
        (("--until", "{val_loss: 1}"), "a metric of the step: got 'val_loss'; nearest: loss"),
        (("--until", "{los: 1}", "--max-steps", "0"), "got 'los'; nearest: loss"),
        (("--until", "{los: 1}", "--processes", "2"), "got 'los'; nearest: loss"),
        (("--until", "{loss: .nan}"), "until must hold numbers: got nan of loss"),
        (
            ("--patience", "3", "--data.val", "0"),
            "patience watches the validation loss: nothing is held out; leave out --patience",
        ),
    ],
)
def test_a_metric_that_is_never_measured_is_refused_before_anything_is_written(
    options: tuple[str, ...], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mlp", "iris", *options]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert says in told
    assert [*here.iterdir()] == []


def test_a_resumption_that_stops_at_no_metric_changes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mlp", "iris", "--until", "{loss: 0.9}", "--out", "r"]) == 0
    assert Run("r").reason == "loss <= 0.9"
    before = {path.name: path.read_bytes() for path in (here / "r").iterdir()}
    capsys.readouterr()
    assert main(["train", "--resume", "r", "--until", "{los: 0.5}"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert "got 'los'; nearest: loss" in told
    assert {path.name: path.read_bytes() for path in (here / "r").iterdir()} == before


def test_a_record_older_than_an_option_says_what_it_is_taken_for(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Targets were in their own units before there was a choice, which today's default is not."""
    assert (
        main(["train", "mlp:values", "diabetes", "--epochs", "1", "--scale-targets", "none", "--out", "r"])
        == 0
    )
    record = yaml.safe_load((here / "r" / "run.yaml").read_text())
    del record["arguments"]["training"]["scale_targets"], record["digest"]
    (here / "r" / "run.yaml").write_text(yaml.safe_dump(record))
    said = "the record is older than the option scale_targets: it is taken as none, as it was then"
    for words in (("--config", "r", "--out", "again"), ("--resume", "r", "--epochs", "2")):
        capsys.readouterr()
        assert main(["train", *words]) == 0
        assert capsys.readouterr().err.splitlines()[0] == said
    assert Run("again").record["arguments"]["training"]["scale_targets"] == "none"


def test_a_table_of_texts_that_is_wrong_gets_no_hint_of_other_files(tmp_path: Path, capsys) -> None:
    path = tmp_path / "one.csv"
    path.write_text("text,label\n" + "".join(f"a dog of {k} red houses in the sun,x\n" for k in range(60)))
    assert main(["train", "text_cnn", str(path), "--target", "label"]) == 2
    assert capsys.readouterr().err.strip().endswith("all 60 examples are of one class")
