"""The subject of a run: which examples judge it, which it was trained on, and what had to be assumed."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import margin
from margin import Run, Training
from margin.auditing.subject.trained import own_data, subject_of_run
from margin.core.findings import Verdict
from margin.data.examples import Data
from margin.data.open import open_data

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
    assert subject.feature_names == tuple(column["name"] for column in data.encoding["columns"])
    assert not any("validation part" in text for text in subject.assumed)
    assert torch.equal(inputs_of(subject_of_run(Run(run.path), "iris").test), inputs_of(subject.test))


def test_without_a_test_part_the_validation_part_stands_in_and_is_named(tmp_path: Path) -> None:
    data = memory(test=0.0, val=0.25)
    run = margin.train("logistic_regression", data, training=SHORT, out=tmp_path / "r")
    subject = subject_of_run(run, data)
    assert torch.equal(inputs_of(subject.test), data.splits["val"].inputs[0])
    assert torch.equal(inputs_of(subject.train), data.splits["train"].inputs[0])
    assert any("the validation part, on which weights were chosen" in text for text in subject.assumed)


def test_what_the_held_out_part_chose_is_known_of_a_run(tmp_path: Path) -> None:
    """A test part only measures; a validation part that stands in has chosen weights: no bound holds."""
    whole, short = memory(test=0.25, val=0.25), memory(test=0.0, val=0.25)
    found = {}
    for name, data in {"test": whole, "val": short}.items():
        run = margin.train("logistic_regression", data, training=SHORT, out=tmp_path / name)
        found[name] = margin.audit(run, data, claims="bounds.ladder")["bounds.ladder"]
        assert subject_of_run(run, (torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))).selection is None
    told = {name: next(p for p in one.premises if "in the training" in p.text) for name, one in found.items()}
    assert told["test"].status == "proved" and "validation part has chosen" in told["test"].evidence
    assert told["val"].status == "refuted" and "least loss on these examples" in told["val"].evidence
    assert found["test"].verdict is Verdict.MEASURED and found["val"].verdict is Verdict.UNFOUNDED
    none = memory(test=0.25, val=0.0)
    run = margin.train("logistic_regression", none, training=SHORT, out=tmp_path / "none")
    assert "no examples have chosen weights" in subject_of_run(run, none).selection.evidence
    step = {
        "prior_share": 0.5,
        "draws": 5,
    }  # its result is the last step's, whatever the validation part says
    run = margin.train(
        "mlp",
        short,
        {"hidden": (3,)},
        rule="pac_bayes",
        step=step,
        training=Training(epochs=1),
        out=tmp_path / "law",
    )
    assert subject_of_run(run, short).selection.status == "proved"


def test_how_many_models_were_compared_is_the_users_word(tmp_path: Path) -> None:
    """Of a run and of arrays alike; other findings of the same audit are not taken over."""
    data = memory(test=0.25)
    run = margin.train("logistic_regression", data, training=SHORT, out=tmp_path / "r")
    x, y = data.splits["test"].inputs[0], data.splits["test"].targets
    for model, held in ((run, data), (margin.load(run), (x, y))):
        alone, best = (
            margin.audit(model, held, claims="bounds.ladder", selected_on_test=models) for models in (1, 20)
        )
        assert best.facts["models compared by the held-out examples"] == 20
        assert (best["bounds.ladder"].value > alone["bounds.ladder"].value).any()
        assert "of the 20 models" in best["bounds.ladder"].statement
        assert alone.identity["settings"] != best.identity["settings"]
    counted = margin.audit(
        predictions=torch.eye(2)[y], targets=y, claims="bounds.ladder", selected_on_test=20
    )
    assert "of the 20 models" in counted["bounds.ladder"].statement
    with pytest.raises(ValueError, match="at least 1: got 0"):
        margin.audit(run, data, selected_on_test=0)


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


def test_arrays_that_a_run_was_trained_on_are_not_taken_for_held_out_ones(tmp_path: Path) -> None:
    data = memory(test=0.25)
    x = torch.cat([part.inputs[0] for part in data.splits.values()])
    y = torch.cat([part.targets for part in data.splits.values()])
    run = margin.train("logistic_regression", (x, y), training=SHORT, out=tmp_path / "r")
    audit = margin.audit(run, (x.clone(), y.clone()), claims="theory/risk*")
    told = margin.audit(run, margin.open_source((x, y)), claims="theory/risk*")
    assert audit.facts["held-out fingerprint"] == told.facts["held-out fingerprint"]
    assert "audited on" not in audit.facts
    assert any("the part that it held out is audited" in text for text in audit.assumed)
    other = margin.audit(run, (x[1:], y[1:]), claims="theory/risk*")
    assert other.facts["audited on"] == "data that were handed over"
    alone = (x[:5], torch.zeros(5).long())  # of one class: no training reads it, an audit does
    assert own_data(run, alone) is alone


def test_a_subject_knows_how_its_training_went(tmp_path: Path) -> None:
    run = margin.train("mlp", memory(test=0.25), training=Training(epochs=2), out=tmp_path / "r")
    subject = subject_of_run(run, memory(test=0.25))
    assert [row["step"] for row in subject.history] == [row["step"] for row in run.history] != []
    first, initial = margin.load(run, "initial"), subject.initial
    assert initial is not None and subject.reference_model is None
    x = inputs_of(subject.test)
    assert torch.equal(initial(x), first(x)) and not torch.equal(initial(x), subject.model(x))


def test_the_reference_of_a_run_is_one_of_the_same_recipe(tmp_path: Path) -> None:
    data = memory(test=0.25)
    a, b = (
        margin.train("mlp", data, training=Training(epochs=1, seed=seed), out=tmp_path / str(seed))
        for seed in (0, 1)
    )
    subject = subject_of_run(a, data, b)
    x = inputs_of(subject.test)
    assert subject.reference_model is not None
    assert torch.equal(subject.reference_model(x), margin.load(b)(x)) and not torch.equal(
        subject.model(x), margin.load(b)(x)
    )
    wide = margin.train("mlp", data, {"hidden": (3,)}, SHORT, out=tmp_path / "w")
    with pytest.raises(ValueError, match=r"reference must be a run of the same model.*hidden \[3\]"):
        subject_of_run(a, data, wide)
    assert margin.audit(a, data, reference=b, claims="theory/risk*").as_json()["facts"]["reference"] == str(
        b.path
    )
    with pytest.raises(ValueError, match="reference must be a run"):
        margin.audit(a, data, reference=margin.load(b))


def test_the_reference_of_a_module_is_one_with_the_same_parameters() -> None:
    x, y = torch.randn(8, 2), torch.arange(8) % 2
    one, other = (torch.nn.Linear(2, 2) for _ in range(2))
    margin.audit(one, (x, y), reference=other, claims="theory/risk*")
    with pytest.raises(ValueError, match="they differ in weight"):
        margin.audit(one, (x, y), reference=torch.nn.Linear(2, 3))
    with pytest.raises(ValueError, match="reference must be a module"):
        margin.audit(one, (x, y), reference="run")


def test_an_audit_of_other_data_says_so_and_keeps_the_training_datas_notes_out(tmp_path: Path) -> None:
    for name, count in (("own", 90), ("other", 12)):
        rows = [f"{i % 7},{i % 5},{(i % 7) > 3}" for i in range(count)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,target", *rows]))
    own, other = tmp_path / "own.csv", tmp_path / "other.csv"
    run = margin.train("logistic_regression", own, training=SHORT, out=tmp_path / "r")
    (note,) = run.record["data"]["notes"]
    found = [margin.audit(run, data, claims="theory/risk.accuracy") for data in (None, own, other)]
    assert [audit.title.rpartition(" on ")[2] for audit in found] == ["own.csv", "own.csv", "other.csv"]
    assert ["audited on" in audit.facts for audit in found] == [False, False, True]
    assert found[2].facts["audited on"] == "other.csv"
    notes = [note in subject_of_run(run, data).assumed for data in (own, other)]
    assert notes == [True, False]


def test_a_frame_that_was_read_with_options_is_not_taken_for_held_out_rows(tmp_path: Path) -> None:
    """Without its options it names no target: its training rows would be audited as new ones."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.normal(size=120), "b": ["u", "v", "w"] * 40, "out": ["p", "q"] * 60})
    frame.loc[3, "a"] = np.nan
    options = {"target": "out", "missing": "mean", "test": 0.3, "split_seed": 4}
    data = margin.open_source(frame, options)
    run = margin.train("logistic_regression", data, training=SHORT, out=tmp_path / "r")
    own = own_data(run, frame.copy())
    assert own.fingerprint == data.fingerprint
    audit = margin.audit(run, frame, claims="theory/risk*")
    assert audit.facts["held-out examples"] == len(data.splits["test"]) == 36
    assert "audited on" not in audit.facts
    resumed = margin.resume(run, frame, epochs=4)
    assert resumed.checkpoints["best"]
    other = frame.assign(a=frame["a"] + 1)
    assert own_data(run, other) is other
    polars_frame = pl.DataFrame(frame.to_dict("list"))
    assert own_data(run, polars_frame).fingerprint == data.fingerprint
