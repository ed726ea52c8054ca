"""The verbs in Python: options by name, results as frames, errors that name arguments, a notebook's bar."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.datasets import load_iris

import margin
import own_modules
from margin import Training
from margin.cli import main
from margin.core.arguments import by_argument, renamed
from margin.core.options import COMMON


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    x, y = load_iris(return_X_y=True)
    made = pd.DataFrame(x, columns=["a", "b", "c", "d"], index=[f"row {i}" for i in range(len(x))])
    return made.assign(species=np.array(["setosa", "versicolor", "virginica"])[y])


def test_options_by_name_are_those_of_training() -> None:
    named = margin.train("mlp", "iris", epochs=2, lr=0.02, batch_size=16, seed=3, out="named")
    given = Training(epochs=2, lr=0.02, batch_size=16, seed=3)
    whole = margin.train("mlp", "iris", training=given, out="given")
    assert named.record["arguments"] == whole.record["arguments"]
    assert named.metrics == whole.metrics
    mixed = margin.train("mlp", "iris", training=Training(lr=0.02, seed=3), epochs=2, batch_size=16, out="x")
    assert mixed.metrics == whole.metrics
    assert margin.resume(named, epochs=3).history[-1]["epoch"] == 3
    with pytest.raises(ValueError, match="epochs must be given once"):
        margin.train("mlp", "iris", training=given, epochs=2)


def test_every_option_of_the_short_help_has_a_name() -> None:
    import inspect

    names = set(inspect.signature(margin.train).parameters)
    assert {*COMMON} <= names
    training = inspect.signature(Training).parameters
    for name, parameter in inspect.signature(margin.train).parameters.items():
        if name in training:
            assert parameter.annotation == training[name].annotation, name


def test_predictions_are_of_the_datas_own_kind(frame: pd.DataFrame) -> None:
    run = margin.train("mlp", margin.open_source(frame, {"target": "species"}), epochs=20, lr=0.02, out="r")
    some = frame.iloc[[0, 60, 120]]
    found = margin.predict(run, some)
    assert isinstance(found, pd.DataFrame) and list(found.index) == list(some.index)
    assert list(found["class"]) == list(some["species"])
    polar = margin.predict(run, pl.DataFrame({name: some[name].to_list() for name in "abcd"}))
    assert isinstance(polar, pl.DataFrame) and polar["class"].to_list() == list(some["species"])
    assert np.allclose(polar["probability"].to_numpy(), found["probability"].to_numpy())
    x, y = load_iris(return_X_y=True)
    arrays = margin.train("mlp", (x, y), epochs=20, lr=0.02, out="arrays")
    for data in (x[[0, 60, 120]], torch.tensor(x[[0, 60, 120]]), (x[[0, 60, 120]], y[[0, 60, 120]])):
        rows = margin.predict(arrays, data)
        assert isinstance(rows, np.ndarray) and rows.dtype.names == ("class", "probability")
        assert rows["class"].astype(int).tolist() == [0, 1, 2]


def test_a_handed_module_predicts_samples_and_exports() -> None:
    x, y = load_iris(return_X_y=True)
    net = own_modules.build()
    run = margin.train(net, (x, y), epochs=1, out="r")
    again = margin.predict("r", x[:5], model=own_modules.build())
    assert (again == margin.predict(run, x[:5])).all()
    assert margin.export(run).path.exists()
    with pytest.raises(ValueError, match="cannot be sampled"):
        margin.sample(run, 3)
    other = margin.train("mlp", (x, y), epochs=1, out="other")
    with pytest.raises(ValueError, match="data in memory"):
        margin.compare(run, other)


def test_a_history_is_a_list_and_a_frame() -> None:
    run = margin.train("mlp", "iris", epochs=3, out="r")
    found = run.history()
    assert isinstance(found, pl.DataFrame) and found["step"].to_list() == [row["step"] for row in run.history]
    assert found["val_loss"].to_list() == [row["val_loss"] for row in margin.Run("r").history]
    assert len(repr(run)) < 200 and "test_accuracy" in run._repr_html_()
    assert found["epoch"].to_list() == [1, 2, 3] and found["epoch"].dtype == pl.Int64
    halves = margin.train(
        "mlp", "iris", training=Training(epochs=1, evaluate_every=2), out="halves"
    ).history()
    assert halves["epoch"].dtype == pl.Float64 and halves["epoch"][0] < 1


def test_samples_and_exports_show_themselves() -> None:
    images = margin.train("realnvp", "digits", max_steps=1, out="images")
    drawn = margin.sample(images, 4)
    assert repr(drawn).startswith("4 samples of 1x8x8, from ") and len(repr(drawn)) < 80
    assert drawn._repr_html_().startswith('<img alt="4 samples of 1x8x8')
    exported = margin.export(images)
    assert repr(exported).startswith("images/model.safetensors: state") and "<pre>" in exported._repr_html_()
    Path("t.txt").write_text("the quick brown fox <jumps>\n" * 60)
    texts = margin.sample(margin.train("lstm", "text:t.txt", max_steps=1, out="texts"), 2)
    assert repr(texts).startswith("2 texts; the first: '") and len(repr(texts)) < 120
    assert texts._repr_html_().startswith("<pre>--- 1 of 2") and "<jumps>" not in texts._repr_html_()


def test_a_comparison_shows_itself_and_gives_a_frame() -> None:
    runs = [margin.train("mlp", "iris", epochs=2, seed=seed, out=f"r{seed}") for seed in (0, 1)]
    found = margin.compare(*runs)
    table = found.frame()
    assert table.shape == (4, 8) and table["difference"].to_list()[:2] == [0.0, 0.0]
    losses = [margin.compare(run, run).frame()["mean"][0] for run in runs]
    assert table.filter(pl.col("metric") == "loss")["difference"][1] == pytest.approx(losses[1] - losses[0])
    assert repr(found).splitlines()[0].startswith("run") and "<table>" in found._repr_html_()
    with pytest.raises(ValueError, match="at least two runs"):
        margin.compare(runs[0])


def test_audits_are_compared_as_objects_and_as_files() -> None:
    """The difference is that of the two runs on the same examples, whichever form an audit has."""
    runs = [margin.train("mlp", "iris", epochs=2, seed=seed, out=f"r{seed}") for seed in (0, 1)]
    one, two = (margin.audit(run, claims=["theory/risk.accuracy"], require=["accuracy>=.1"]) for run in runs)
    two.save("a")
    found = margin.compare(one, "a/findings.json")
    wanted = margin.compare(*runs).document[1]["metrics"]["accuracy"]
    assert found.document["paired differences"][1]["accuracy"] == pytest.approx(wanted)
    table = found.frame()
    assert table["audit"].to_list() == ["r0", "a/findings.json"]
    assert table["value"].to_list() == [run.metrics["test_accuracy"] for run in runs]
    assert "required accuracy>=.1" in repr(found) and found._repr_html_().count("<table>") == 2
    assert margin.compare(one, one).frame()["audit"].to_list() == ["r0 (1)", "r0 (2)"]
    with pytest.raises(ValueError, match="takes runs or audits: these are some of each"):
        margin.compare(runs[0], two)


def test_data_are_described_by_a_call() -> None:
    found = margin.data("iris")
    assert found["parts"] == {"train": 90, "val": 23, "test": 37}
    assert "3 classes" in repr(found) and "<pre>" in found._repr_html_()
    assert margin.data("iris", {"test": 0.5})["parts"]["test"] > 37
    from margin.data.open import open_data  # the package is still one

    assert open_data("iris", {}).name == "iris"


def test_the_public_names_alone_are_shown() -> None:
    assert dir(margin) == sorted(margin.__all__)
    for name in margin.__all__:
        assert getattr(margin, name) is not None
    verbs = {"train", "load", "predict", "sample", "compare", "export", "audit", "data", "resume"}
    assert verbs <= set(dir(margin))


def test_errors_name_arguments() -> None:
    with pytest.raises(ValueError, match=r"an option of init, which is not given: leave out init_scale$"):
        margin.train("mlp", "iris", training=Training(init_scale=2.0), out="r")
    margin.train("mlp", "iris", epochs=1, out="r")
    with pytest.raises(FileExistsError, match=r"^r holds a finished run: choose another out$"):
        margin.train("mlp", "iris", out="r")
    with pytest.raises(FileNotFoundError) as missing:
        margin.train("mlp", "nowhere.csv", out="s")
    assert "--" not in str(missing.value)
    with pytest.raises(ValueError, match="lr must be positive"):
        margin.train("mlp", "iris", lr=0.0, out="s")  # 0 is a value, not one that is left out
    with pytest.raises(ValueError, match=r"^$"), by_argument():
        raise ValueError  # of the user's own code, without a word


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("leave out --scale-targets", "leave out scale_targets"),
        ("go on with --resume r/a, or another --out", "go on with margin.resume('r/a'), or another out"),
        ("go on with margin train --resume runs/a", "go on with margin.resume('runs/a')"),
        ("set --model.width 3 or lower", "set width 3 or lower (width: options={...})"),
        ("set --data.val 0, or more", "set val 0, or more (val: margin.open_source(data, {...}))"),
        (
            "set --step.penalty 0, --target NAME or --data.nodes-file",
            "set penalty 0, target NAME or nodes_file "
            "(penalty: step={...}) (target, nodes_file: margin.open_source(data, {...}))",
        ),
        ("another (--out), or replace it (force, --force)", "another (out), or replace it (force)"),
        ("a reader's (--target, --target)", "a reader's (target) (target: margin.open_source(data, {...}))"),
        ("none; see margin list --kind claim", "none; see margin list --kind claim"),
        ("without --lr, or (margin train --rule pgd) --out", "without lr, or (margin train --rule pgd) out"),
        ("a -- b, x--y, -1", "a -- b, x--y, -1"),
    ],
)  # fmt: skip
def test_options_become_arguments(message: str, plain: str) -> None:
    assert renamed(message) == plain


TABLES = {"t.csv": "a,b,c\n1,2,x\n2,3,y\n" * 20, "gap.csv": "a,b,c\n1,2,x\n,3,y\n" * 20, "text.txt": "ab"}
TARGET = {"target": "c"}


@pytest.mark.parametrize(
    ("model", "data", "options", "typed", "named"),
    [
        ("mlp", "iris", {"init_scale": 2.0}, "leave out --init-scale", "leave out init_scale"),
        ("mlp", "iris", {"patience": 2, "data": {"val": 0.0}}, "leave out --patience", "leave out patience"),
        ("mlp", "t.csv", {"data": {**TARGET, "task": "values"}}, "; set --task classes", "(task: margin.o"),
        ("mlp", "iris", {"rule": "distillation"}, "give --teacher RUN", "give teacher RUN"),
        ("mlp", "iris", {"out": "taken"}, "no run: choose another --out", "no run: choose another out"),
        ("mlp", "iris", {"scale": "unit"}, "or --scale none where", "or scale none where"),
        ("mlp", "iris", {"processes": 2, "model": {"norm": "batch"}}, "set --processes 1", "set processes 1"),
        ("mlp", "t.csv", {}, "column: --target NAME", "(target: margin.open_source("),
        ("mlp", "gap.csv", {"data": TARGET}, "or set --ignore 'a'", "(missing, ignore: margin.open_source("),
        ("mlp", "digits", {"rule": "newton"}, "set --rule.solver conj", "gradients (solver: step={...})"),
        ("kernel_perceptron", "xor", {"augment": "noise:0.1"}, "leave out --augment", "leave out augment"),
        ("lstm", "text:text.txt", {"data": {"time": 64}}, "or set --data.time lower", "set time lower"),
    ],
)  # fmt: skip
def test_an_option_is_an_argument_in_python(
    model: str,
    data: str,
    options: dict[str, Any],
    typed: str,
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in TABLES.items():
        Path(name).write_text(text)
    Path("taken").mkdir()
    groups = {name: options.pop(name, {}) for name in ("data", "model")}
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", f"{value}")]
    for group, given in groups.items():
        words += [word for name, value in given.items() for word in (f"--{group}.{name}", f"{value}")]
    assert main(["train", model, data, *words]) == 2
    assert typed in (told := capsys.readouterr().err) and named not in told
    own = {name: options.pop(name) for name in ("rule", "out") if name in options}
    options = {name: [value] if name == "augment" else value for name, value in options.items()}

    def trained() -> None:
        margin.train(
            model, margin.open_source(data, groups["data"]), groups["model"], Training(**options), **own
        )

    with pytest.raises((ValueError, OSError)) as caught:
        trained()
    assert named in str(caught.value) and "--" not in str(caught.value)


def test_an_option_that_no_argument_has_is_followed_by_its_place() -> None:
    with pytest.raises(
        TypeError, match=r"keyword argument 'hidden'; .* options=\{'hidden': \.\.\.\}, .*training="
    ):
        margin.train("mlp", "iris", hidden=3)


def test_every_verb_names_arguments() -> None:
    run = margin.train("mlp", "iris", epochs=1, out="r")
    margin.export(run, "m.safetensors")
    with pytest.raises(FileExistsError, match="exists: choose another path, or remove it"):
        margin.export(run, "m.safetensors")


def test_squared_and_pinball_losses_are_not_compared() -> None:
    """Both are the forecast's scaled error; what both runs state in one unit is the mean absolute error."""
    steps = range(60)
    Path("waves.csv").write_text("\n".join(["step,x", *(f"{k},{np.sin(k)}" for k in steps)]))
    source = margin.open_source("series:waves.csv", {"time_column": "step", "context": 4, "horizon": 1})
    line = margin.train("linear_forecaster", source, out="line")
    band = margin.train("gru:quantiles", source, {"hidden": 2}, epochs=1, out="band")
    found = margin.compare(line, band)
    assert "mae" in found.document[0]["metrics"] and "loss" not in found.document[0]["metrics"]
    assert "loss (scaled error of series | scaled error of quantiles)" in found.note
    assert "loss" in margin.compare(line, line).document[0]["metrics"]


def test_a_notebook_shows_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class ZMQInteractiveShell:
        pass

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    def display(html: str, display_id: bool) -> Handle:
        assert display_id
        shown.append(html)
        return Handle()

    notebook = ModuleType("IPython")
    notebook.get_ipython = ZMQInteractiveShell
    notebook.display = SimpleNamespace(display=display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    run = margin.train("mlp", "iris", epochs=2, out="r")
    assert 'value="0" max="6"' in shown[0]
    assert 'value="6" max="6"' in shown[-1] and f"val_loss {run.history[-1]['val_loss']:.4g}" in shown[-1]
    monkeypatch.delitem(sys.modules, "IPython")
    shown.clear()
    margin.train("mlp", "iris", epochs=1, out="silent")
    assert not shown
