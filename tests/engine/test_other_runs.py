"""Other runs that a training names: found from anywhere, known by their weights."""

from dataclasses import replace
from pathlib import Path

import pytest

import margin
from margin import Run, Training
from margin.data.sets.tiny.tables import moons
from margin.engine.runs import check_same_others, digests, linked_runs, run_at

SHORT = Training(max_steps=2)


def test_paths_are_absolute_and_what_is_not_given_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"lr": 0.1, "teacher": "a/../b", "curriculum": "", "init_from": None}
    assert linked_runs(given) == {**given, "teacher": str(tmp_path / "b")}
    assert linked_runs({"lr": 0.1}) == {"lr": 0.1}


def test_an_older_record_with_a_path_from_its_own_place_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    margin.train("mlp", moons(), training=SHORT, out="other")
    run = margin.train("mlp", moons(), training=replace(SHORT, curriculum="other", batch_size=4), out="run")
    record = tmp_path / "run" / "run.yaml"
    assert str(tmp_path / "other") in record.read_text()
    older = record.read_text().partition("digest:")[0]  # an older record has none
    record.write_text(older.replace(str(tmp_path / "other"), "other"))
    margin.resume(run.path, moons(), Training(max_steps=3))
    assert Run(run.path).record["arguments"]["training"]["curriculum"] == str(tmp_path / "other")


def test_a_digest_is_that_of_the_weights_that_are_handed_out(tmp_path: Path) -> None:
    run = margin.train("mlp", moons(), training=SHORT, out=tmp_path / "a")
    same = margin.train("mlp", moons(), training=SHORT, out=tmp_path / "b")
    other = margin.train("mlp", moons(), training=replace(SHORT, seed=1), out=tmp_path / "c")
    longer = margin.train("mlp", moons(), training=replace(SHORT, max_steps=3), out=tmp_path / "d")
    assert digests(Training(teacher=str(longer.path))) != digests(Training(teacher=str(run.path)))
    by = [digests(Training(teacher=str(r.path))) for r in (run, same, other)]
    assert by[0] == by[1] != by[2]
    assert digests(Training()) == {}
    check_same_others({"others": by[0]}, Training(teacher=str(same.path)))
    check_same_others({}, Training(teacher=str(other.path)))  # an older record knows none
    with pytest.raises(ValueError, match=r"the teacher .*c has changed since the run began"):
        check_same_others({"others": by[0]}, Training(teacher=str(other.path)))
    with pytest.raises(ValueError, match="teacher must be the directory of a run: nowhere is no run"):
        run_at("nowhere", "teacher")
