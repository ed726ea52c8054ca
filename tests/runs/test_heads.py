"""A body has heads: the data's task picks among them, and the names of before still resolve."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import margin
from margin.cli import main
from margin.core.catalog import UnknownName, find, heads_of, models, resolve
from margin.engine.check_options import check_task, head_for
from margin.engine.runs import Run

ONCE = margin.Training(max_steps=1, batch_size=4)

FORMERLY = {old: row.name for row in models().values() for old in row.formerly}


def test_an_old_name_is_the_entry_that_had_it() -> None:
    assert FORMERLY["sequence/lstm_regressor"] == "sequence/lstm:values"
    for old, name in FORMERLY.items():
        assert old not in models()
        assert find(models(), old, "model").name == name
        assert find(models(), old.rpartition("/")[2], "model").name == name
    with pytest.raises(UnknownName, match="nearest: sequence/lstm"):
        find(models(), "lstmm", "model")


def test_a_name_with_its_head_stays_with_it() -> None:
    lstm = find(models(), "lstm", "model")
    assert lstm.name == "sequence/lstm"
    assert [head.name for head in heads_of(lstm)] == [
        "sequence/lstm",
        "sequence/lstm:values",
        "sequence/lstm:texts",
        "sequence/lstm:tags",
        "sequence/lstm:tokens",
        "sequence/lstm:series",
    ]
    assert heads_of(find(models(), "lstm:tokens", "model")) == (find(models(), "lstm:tokens", "model"),)


@pytest.mark.parametrize("entry", [row for row in models().values() if ":" in row.name], ids=lambda e: e.name)
def test_the_data_of_a_head_pick_it_by_the_name_of_its_body(entry) -> None:
    body, data = find(models(), entry.name.partition(":")[0], "model"), resolve(entry.tiny)()
    # quantiles and values are forecasts of the same series: the first serves where none is named
    fits = [head for head in heads_of(body) if accepts(head, data)]
    assert entry in fits
    assert head_for(body, data) is fits[0]
    assert [head.name for head in fits if "quantiles" not in head.name] in ([entry.name], [fits[0].name])


def accepts(entry, data) -> bool:
    try:
        check_task(entry, data)
    except ValueError:
        return False
    return True


def test_where_no_head_fits_the_message_is_of_the_name_that_was_given(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sequence/lstm needs sequences: an example of iris has 4 features"):
        margin.train("lstm", "iris", training=ONCE)
    (tmp_path / "a.csv").write_text(
        "u,v,y\n" + "".join(f"{k / 7:.3f},{k % 5},{'ab'[k % 2]}\n" for k in range(60))
    )
    with pytest.raises(
        ValueError, match=r"an example of \S*a\.csv has 2 features; read a file of them as seq"
    ):
        margin.train("lstm", tmp_path / "a.csv", training=ONCE)


def test_a_record_of_before_goes_on(tmp_path: Path) -> None:
    x, y = torch.randn(40, 3), torch.randn(40)
    run = margin.train("mlp:values", (x, y), training=ONCE, out=tmp_path / "run")
    text = (run.path / "run.yaml").read_text()
    record = yaml.safe_load(text)
    assert record["recipe"]["model"] == "feedforward/mlp:values"
    text = re.sub(r"^digest: .*\n", "", text, flags=re.MULTILINE)
    (run.path / "run.yaml").write_text(text.replace("feedforward/mlp:values", "feedforward/mlp_regressor"))
    twice = margin.resume(run.path, (x, y), margin.Training(max_steps=2))
    assert twice.reason == "max_steps"
    assert [row["step"] for row in twice.history][-1] == 2


def test_the_command_line_takes_the_head_of_the_data(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 3},{i * 0.37:.2f}\n" for i in range(60)))
    assert main(["train", "mlp", "x.csv", "--target", "y", "--max-steps", "1", "--model.hidden", "4"]) == 0
    assert "test_mse" in capsys.readouterr().out
    assert main(["train", "mlp", "x.csv", "--target=b", "--task=classes", "--max-steps", "1"]) == 0
    assert "test_accuracy" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["train", "mlp", "x.csv", "--target", "y", "--help"])
    assert re.search(r"perceptron to .*real number", " ".join(capsys.readouterr().out.split()))
    assert main(["train", "mlp", "missing.csv", "--target", "y", "--max-steps", "1"]) == 2
    assert "missing.csv" in capsys.readouterr().err


def test_a_record_that_is_repeated_by_the_name_of_its_body_keeps_its_head(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 3},{i * 0.37:.2f}\n" for i in range(60)))
    words = ["train", "mlp", "x.csv", "--target", "y", "--max-steps", "1", "--model.hidden", "4"]
    assert main([*words, "--out", "one"]) == 0
    for number, given in enumerate(([], ["mlp"], ["feedforward/mlp"], ["mlp_regressor"], ["mlp:values"])):
        assert main(["train", *given, "--config", "one/run.yaml", "--out", f"again{number}"]) == 0
        assert Run(f"again{number}").record["arguments"] == Run("one").record["arguments"]


def test_a_regressor_takes_the_head_of_values() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator).numpy()
    estimator = margin.MarginRegressor("mlp", epochs=1).fit(x, x.sum(1))
    assert estimator.entry_ == "feedforward/mlp:values"
    assert estimator.predict(x).shape == (60,)


def test_the_models_are_listed_by_their_bodies(capsys) -> None:
    assert main(["models", "sequence"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"sequence/lstm +An LSTM.*:values\s+:texts\s+:tags\s+:tokens\s+:series", text)
    assert "sequence/lstm:values" not in text


@pytest.mark.parametrize("shape", [(9,), (9, 3)])
def test_arrays_in_a_list_are_sequences_to_a_model_of_sequences(tmp_path, shape):
    rng = np.random.default_rng(0)
    inputs, labels = [rng.normal(size=shape) for _ in range(40)], np.arange(40) % 2
    run = margin.train("lstm", (inputs, labels), {"hidden": 4}, ONCE, out=tmp_path / "list")
    assert run.record["data"]["encoding"]["shape"] == [9, shape[1] if len(shape) > 1 else 1]
    assert run.record["data"]["encoding"]["kind"] == "sequences"
    assert len(margin.predict(run, inputs[:5])) == 5
    if len(shape) > 1:  # an array of three axes is the same
        whole = (np.stack(inputs), labels)
        assert margin.train("lstm", whole, {"hidden": 4}, ONCE, out=tmp_path / "array").metrics == run.metrics
    # to a model of rows they are rows, and a table is none of sequences
    rows = margin.train("mlp", (np.stack(inputs), labels), {"hidden": (4,)}, ONCE, out=tmp_path / "rows")
    assert rows.record["data"]["encoding"].get("kind", "") != "sequences"
    with pytest.raises(ValueError, match="needs sequences"):
        margin.train("lstm", (rng.normal(size=(40, 9)), labels), {"hidden": 4}, ONCE, out=tmp_path / "table")
