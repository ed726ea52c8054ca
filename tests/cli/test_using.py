"""``margin predict``, ``compare``, ``data``, ``models``, ``list``: what they answer and refuse."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import margin
from margin.auditing.asking.comparing import cell
from margin.cli import COMMANDS, main
from margin.core.tasks import TOKENS
from margin.core.types import Batch
from margin.data.open import open_data
from margin.engine.runs import Run
from margin.runs.comparing import paired
from margin.runs.inference import closing, forecast, held_out_terms
from margin.runs.run_data import held_out
from margin.theory.prediction.held_out import Terms


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def table(here: Path) -> Path:
    rows = [f"{i % 7},{['red', 'blue'][i % 2]},{['no', 'yes'][(i % 7) > 3]}" for i in range(90)]
    (here / "d.csv").write_text("\n".join(["size,color,target", *rows]))
    return here / "d.csv"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> object:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_predictions_bear_the_names_of_the_classes(
    table: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mlp", "d.csv", "--epochs", "60", "--lr", "0.01", "--out", "r"]) == 0
    (here / "new.csv").write_text("color,size\nblue,6\nred,0\n")
    capsys.readouterr()
    assert main(["predict", "r", "new.csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["class"] for row in rows] == ["yes", "no"]
    assert all(0.5 < float(row["probability"]) <= 1 for row in rows)
    assert main(["predict", "r", "new.csv", "--out", "p.csv"]) == 0
    assert list(csv.DictReader(io.StringIO((here / "p.csv").read_text()))) == rows
    assert main(["predict", "r", "new.csv", "--out", "p.csv"]) == 2
    assert "p.csv exists" in capsys.readouterr().err


def test_new_data_that_do_not_fit_get_one_line(
    table: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mlp", "d.csv", "--epochs", "1", "--out", "r"]) == 0
    for text, message in (
        ("color,size\ngreen,6\n", "green"),
        ("color\nred\n", "size"),
        ("color,size\nred,\n", "size"),
    ):
        (here / "new.csv").write_text(text)
        capsys.readouterr()
        assert main(["predict", "r", "new.csv"]) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert len(captured.err.strip().splitlines()) == 1


def test_runs_are_compared_in_pairs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, epochs in (("a", 1), ("b", 30)):
        assert main(["train", "mlp", "iris", "--epochs", str(epochs), "--patience", "0", "--out", name]) == 0
    document = answer(capsys, "compare", "a", "b")
    part = open_data("iris", {}).splits["test"]
    losses = [
        torch.nn.functional.cross_entropy(margin.load(name)(part.inputs[0]), part.targets, reduction="none")
        .detach()
        .double()
        for name in ("a", "b")
    ]
    gap = (losses[1] - losses[0]).numpy()
    low, high = stats.t.interval(0.95, len(gap) - 1, gap.mean(), stats.sem(gap))
    found = document[1]["metrics"]["loss"]
    assert math.isclose(found["mean"], losses[1].mean(), rel_tol=1e-5)
    assert math.isclose(found["low"], low, rel_tol=1e-4)
    assert math.isclose(found["high"], high, rel_tol=1e-4)
    assert main(["compare", "a", "b"]) == 0
    assert "differences are paired" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "a"), "at least two"),
        (("compare", "a", "gone"), "runs or audits"),
        (("predict", "gone", "iris"), "gone is no run"),
    ],
)
def test_comparisons_that_make_no_sense(
    words: tuple[str, ...], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "1", "--out", "a"]) == 0
    capsys.readouterr()
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_runs_on_different_data_are_not_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for data in ("iris", "wine"):
        assert main(["train", "mlp", data, "--epochs", "1", "--out", data]) == 0
    capsys.readouterr()
    assert main(["compare", "iris", "wine"]) == 2
    assert "trained on different data" in capsys.readouterr().err


def test_losses_that_differ_are_not_compared_and_counted_nodes_are_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a graph that lies whole in every part the held-out nodes count; two losses are no pair."""
    with (here / "edges.csv").open("w") as edges, (here / "nodes.csv").open("w") as nodes:
        edges.write("source,target\n")
        nodes.write("node,a,y\n")
        for k in range(60):
            nodes.write(f"{k},{k % 2 + k / 100},{'pq'[k % 2]}\n")
            edges.write(f"{k},{(k + 2) % 60}\n")
    nodes_of = ("--data.nodes-file", "nodes.csv", "--data.target", "y")
    for name in ("label_propagation", "gcn"):
        epochs = ("--epochs", "3") if name == "gcn" else ()
        assert main(["train", name, "graph:edges.csv", *nodes_of, *epochs, "--out", name]) == 0
    document = answer(capsys, "compare", "gcn", "label_propagation")
    assert set(document[0]["metrics"]) == {"accuracy"}
    part = held_out(Run("gcn"))
    count = int(part.weight.count_nonzero()) if hasattr(part, "weight") else 15
    assert main(["compare", "gcn", "label_propagation"]) == 0
    text = capsys.readouterr().out
    assert f"{count} examples held out by each" in text
    assert count < 60
    assert "not compared: loss (-log probability of the label | loss of scores)" in " ".join(text.split())


def test_one_logit_and_one_a_class_state_one_loss(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"{k % 9},{'pq'[k % 3 == 0]}" for k in range(90))
    (here / "t.csv").write_text(f"a,y\n{rows}\n")
    for name in ("logistic_regression", "mlp"):
        assert main(["train", name, "t.csv", "--target", "y", "--epochs", "2", "--out", name]) == 0
    document = answer(capsys, "compare", "mlp", "logistic_regression")
    assert set(document[0]["metrics"]) == {"loss", "accuracy"}


def test_audits_are_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        assert main(["train", "mlp", "iris", "--epochs", "1", "--out", name]) == 0
        assert main(["audit", name, "--claims", "theory/risk.accuracy"]) == 0
    document = answer(capsys, "compare", "a/audit", "b/audit")
    assert document["theory/risk.accuracy"][0]["value"] == document["theory/risk.accuracy"][1]["value"]


def test_what_is_understood_of_a_file_is_shown_first(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "d.csv"]) == 0
    text = capsys.readouterr().out
    for word in ("size", "color", "red", "blue", "yes", "no"):
        assert word in text


def test_every_row_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    names = {row["name"] for row in answer(capsys, "list")}
    for rows in (margin.models(), margin.rules(), margin.parts(), margin.claims()):
        assert set(rows) <= names
    assert {row["name"] for row in answer(capsys, "models", "classic")} == {
        n for n in margin.models() if n.startswith("classic/")
    }
    assert {row["kind"] for row in answer(capsys, "list", "--kind", "claim")} == {"claim"}
    sets = answer(capsys, "data")
    assert {"digits", "iris", "mnist"} <= {row["name"] for row in sets}


@pytest.mark.parametrize("name", [n for n in COMMANDS if n != "train"])
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"margin {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("models", "visoin"),
        ("list", "--kind", "modle"),
        ("data", "show"),
        ("data", "show", "digitz"),
        ("hlep",),
    ],
)
def test_a_wrong_word_gets_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


def terms(values: np.ndarray, example: list[int]) -> Terms:
    return Terms(torch.tensor(values), torch.ones(len(values), dtype=torch.float64), torch.tensor(example))


def test_differences_are_paired_example_by_example() -> None:
    own, base = np.array([1.0, 2.0, 3.0, 6.0]), np.array([0.0, 2.0, 1.0, 5.0])
    found = paired(terms(own, [0, 1, 2, 3]), terms(base, [0, 1, 2, 3]))
    test = stats.ttest_rel(own, base).confidence_interval(0.95)
    assert found["mean"] == 3.0
    assert math.isclose(found["stderr"], math.sqrt(14 / 3 / 4))  # squares 4 + 1 + 0 + 9 about the mean
    assert found["difference"] == 1.0
    assert math.isclose(found["low"], test.low)
    assert math.isclose(found["high"], test.high)


def test_the_terms_of_one_example_count_as_one_draw() -> None:
    """Each value ten times over is no more evidence than once."""
    own, base = np.array([1.0, 2.0, 3.0, 6.0]), np.array([0.0, 2.0, 1.0, 5.0])
    once = paired(terms(own, [0, 1, 2, 3]), terms(base, [0, 1, 2, 3]))
    index = np.repeat([0, 1, 2, 3], 10).tolist()
    often = paired(terms(np.repeat(own, 10), index), terms(np.repeat(base, 10), index))
    assert often == pytest.approx(once)


def test_forecasts_of_overlapping_windows_are_compared_over_blocks(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{k},{math.sin(k / 6):.4f},{math.cos(k / 5):.4f}" for k in range(300)]
    (here / "w.csv").write_text("\n".join(["step,a,b", *rows]))
    shape = ("--data.time-column", "step", "--data.context", "8", "--data.horizon", "4")
    for name in ("last_value", "linear_forecaster"):
        assert main(["train", name, "series:w.csv", *shape, "--out", name]) == 0
    capsys.readouterr()
    assert main(["compare", "last_value", "linear_forecaster"]) == 0
    text = capsys.readouterr().out
    run = Run("last_value")
    held = held_out_terms(run)
    windows = len(held_out(run))
    assert held.examples == windows
    assert held.blocks == min(20, windows // 4)
    assert f"{windows} examples held out by each, which overlap: errors are over {held.blocks} blocks" in text
    loss = held.terms["loss"]
    assert len(loss.values) == windows * 4 * 2
    assert float(loss.values.mean()) == pytest.approx(run.metrics["test_loss"], rel=1e-5)
    assert loss.example.unique().tolist() == list(range(held.blocks))
    sizes = loss.example.bincount() // 8
    assert int(sizes.min()) >= 4  # no block is shorter than a horizon
    assert bool((loss.example.diff() >= 0).all())


def test_of_few_overlapping_windows_means_are_compared_without_an_error(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "w.csv").write_text("\n".join(["step,a", *(f"{k},{math.sin(k)}" for k in range(60))]))
    shape = ("--data.time-column", "step", "--data.context", "4", "--data.horizon", "3")
    for name in ("last_value", "linear_forecaster"):
        assert main(["train", name, "series:w.csv", *shape, "--out", name]) == 0
    metrics = answer(capsys, "compare", "last_value", "linear_forecaster")[1]["metrics"]["loss"]
    assert metrics["mean"] > 0
    assert metrics["difference"] < 0
    assert metrics["stderr"] is metrics["low"] is metrics["high"] is None
    assert main(["compare", "last_value", "linear_forecaster"]) == 0
    assert "which overlap: too few for an error" in capsys.readouterr().out


def test_a_finding_in_a_cell_shows_where_the_truth_may_lie() -> None:
    exact = {"value": 0.5, "reach": [0.5, 0.5], "verdict": "holds"}
    estimate = {"value": [0.5, 2.0], "reach": [[0.25, 1.5], [0.75, 2.5]], "verdict": "measured"}
    many = {"value": [1.0] * 4, "reach": [[1.0] * 4, [1.0] * 4], "verdict": "vacuous"}
    assert cell(exact) == "0.5 holds"
    assert cell(estimate) == "0.5 [0.25, 0.75], 2 [1.5, 2.5] measured"
    assert cell(many) == "1, 1, 1, ... vacuous"
    assert cell(None) == "-"


def test_a_translation_is_shown_as_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["a b", "b a", "a a", "b b", "a", "b"]
    (here / "p.tsv").write_text("".join(f"{w}\t{w}\n" for w in words * 30))
    sizes = ["--model.hidden", "24", "--model.embedding", "12", "--data.min-count", "1"]
    options = ["--epochs", "30", "--lr", "0.01", *sizes, "--out", "r"]
    assert main(["train", "sequence/attention_seq2seq", "pairs:p.tsv", *options]) == 0
    (here / "new.txt").write_text("b a\na\n")
    rows = answer(capsys, "predict", "r", "new.txt")
    assert [row["translation"] for row in rows] == ["b a", "a"]
    assert all(row["ended"] and row["log probability"] < 0 for row in rows)
    wider = answer(capsys, "predict", "r", "new.txt", "--width", "4")
    assert all(w["log probability"] >= r["log probability"] - 1e-5 for w, r in zip(wider, rows, strict=True))
    assert main(["predict", "r", "new.txt", "--width", "0"]) == 2


def test_a_beam_is_refused_where_nothing_is_translated(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mlp", "iris", "--epochs", "1", "--out", "r"]) == 0
    capsys.readouterr()
    for option in ("--width", "--longest"):
        assert main(["predict", "r", "iris", option, "7"]) == 2
        assert "are of models that translate: feedforward/mlp does not" in capsys.readouterr().err


def test_what_follows_a_text_is_read_at_its_own_end(here: Path) -> None:
    """Texts of 2 and of 5 tokens in one batch: padding is not what is gone on from."""
    logits = torch.arange(24.0).reshape(2, 4, 3)
    batch = Batch((torch.zeros(2, 4, dtype=torch.long), torch.tensor([2, 4])))
    assert torch.equal(closing(logits, batch, TOKENS), logits[[0, 1], [1, 3]][:, None])
    assert closing(logits, Batch(batch.inputs[:1]), TOKENS) is logits
    empty = Batch((batch.inputs[0], torch.tensor([0, 1])))  # a sequence of length 0 keeps its first place
    assert torch.equal(closing(logits, empty, TOKENS)[:, 0], logits[:, 0])


def test_nodes_are_predicted_once_by_their_names(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "g").mkdir()
    ids = [f"n{k}" for k in range(40)]
    rows = [f"{name},{k % 2},{['odd', 'even'][k % 2]}" for k, name in enumerate(ids)]
    (here / "g" / "nodes.csv").write_text("\n".join(["id,x,target", *rows]))
    edges = [f"n{k},n{(k + 2) % 40}" for k in range(40)]
    (here / "g" / "edges.csv").write_text("\n".join(["source,target", *edges]))
    assert main(["train", "geometric/gcn", "g", "--epochs", "60", "--lr", "0.05", "--out", "r"]) == 0
    found = answer(capsys, "predict", "r", "g")
    assert sorted(row["node"] for row in found) == sorted(ids)  # of a file, every row
    assert all(row["class"] == ["odd", "even"][int(row["node"][1:]) % 2] for row in found)


def test_the_filling_of_a_texts_last_block_is_not_continued() -> None:
    outputs = torch.arange(24.0).reshape(2, 4, 3)
    batch = Batch((torch.zeros(2, 4, dtype=torch.long),), None, torch.tensor([[1.0] * 4, [1, 1, 0, 0]]))
    assert torch.equal(closing(outputs, batch, TOKENS)[:, 0], torch.stack((outputs[0, 3], outputs[1, 1])))


def test_a_forecast_names_the_time_and_the_column_of_each_number(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A season of two days of an alternating series: what is forecast is known, and so are its times."""
    days = pd.date_range("2024-01-29", periods=60, freq="D")
    frame = pd.DataFrame({"date": days, "load": [0.0, 1.0] * 30, "wind": range(60)})
    frame.to_csv(here / "w.csv", index=False)
    shape = ("--data.time-column", "date", "--data.context", "7", "--data.horizon", "3")
    for name, period in (("given", ("--model.period", "2")), ("own", ())):
        assert main(["train", "seasonal_naive", "series:w.csv", *shape, *period, "--out", name]) == 0
    told = capsys.readouterr().err
    assert "the forecast repeats the last 2 rows, as given" in told
    assert "the forecast repeats the last 7 rows, a season by the data's own times" in told
    found = answer(capsys, "predict", "given", "w.csv")
    assert len(found) == (60 - 7 - 3 + 1 + 1) * 3 * 2  # windows whose end is known, and one
    after = [row for row in found if row["after"] == "2024-03-28"]
    ahead = ["2024-03-29", "2024-03-29", "2024-03-30", "2024-03-30", "2024-03-31", "2024-03-31"]
    assert [row["time"] for row in after] == ahead
    assert [row["column"] for row in after] == ["load", "wind"] * 3
    assert [row["value"] for row in after] == pytest.approx([0, 58, 1, 59, 0, 58])
    merged = pd.DataFrame(found).query("column == 'load' and time <= '2024-03-28'")
    truth = merged["time"].map(frame.assign(date=days.strftime("%Y-%m-%d")).set_index("date")["load"])
    assert (merged["value"] - truth).abs().max() < 1e-5


def test_quantiles_of_a_forecast_stand_side_by_side() -> None:
    outputs = torch.arange(12.0).reshape(1, 2, 2, 3)
    assert forecast(outputs) == {"q0.1": [0, 3, 6, 9], "q0.5": [1, 4, 7, 10], "q0.9": [2, 5, 8, 11]}
