"""One's own module is trained as an entry is: named, built by the data's spec, recorded, found again."""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn

import margin
import own_modules
from margin import Training
from margin.cli import main
from margin.core.tasks import COLUMN
from margin.core.user_losses import check_mean, each_term, loss_of
from margin.core.user_modules import BuilderError, builder_of
from margin.engine.runs import Run
from margin.math.seeds import mix

QUICK = Training(epochs=2)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_the_command_line_trains_a_module_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "own_modules:Classes", "iris", "--model.width", "24", "--epochs", "30", "--lr", ".02"]
    assert main([*words, "--out", "r"]) == 0
    record = Run("r").record
    assert record["recipe"] == {
        "model": "own_modules:Classes",
        "spec": {"in_features": 4, "num_classes": 3},
        "options": {"width": 24, "dropout": 0.1},
    }
    assert record["own"]["task"] == "classes" and record["own"]["file"] == own_modules.__file__
    assert Run("r").metrics["test_accuracy"] >= 0.9
    assert margin.load("r").model.body.weight.shape == (24, 4)
    for command in (
        ["predict", "r", "iris"],
        ["export", "r"],
        ["compare", "r", "r"],
        ["train", "--config", "r", "--out", "again"],
        ["audit", "r", "--claims", "calibration", "--out", "a"],
    ):
        assert main(command) == 0, command
    assert Run("again").metrics == Run("r").metrics
    assert "accuracy" in capsys.readouterr().out


def test_a_class_in_python_is_the_command_lines_run() -> None:
    run = margin.train(own_modules.Classes, "iris", {"width": 8}, QUICK, out="python")
    words = ["train", "own_modules:Classes", "iris", "--model.width", "8", "--epochs", "2", "--out", "words"]
    assert main(words) == 0
    assert run.record["recipe"] == Run("words").record["recipe"]
    assert run.metrics == Run("words").metrics


def test_the_loop_is_that_of_torch() -> None:
    """Two epochs of full batches by hand: the same weights after the same two steps of SGD."""
    x, y = (torch.tensor(part) for part in load_iris(return_X_y=True))
    training = Training(epochs=2, batch_size="all", optimizer="SGD", lr=0.1, scale="none", decay_norms=True)
    data = margin.open_source("iris", {"val": 0.0, "test": 0.2})
    inputs, labels = data.splits["train"].inputs[0].float(), data.splits["train"].targets
    assert len(inputs) < len(x) == len(y)
    run = margin.train(own_modules.build, data, training=training, out="r")
    hand = own_modules.build()
    hand.load_state_dict(margin.load(run, "initial").model.state_dict())
    for _ in range(2):
        loss = nn.functional.cross_entropy(hand(inputs), labels)
        hand.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in hand.parameters():
                parameter -= 0.1 * parameter.grad
    for name, value in margin.load(run, "last").model.state_dict().items():
        torch.testing.assert_close(value, hand.state_dict()[name], atol=1e-6, rtol=1e-5)


def test_a_module_that_is_handed_over_is_trained_in_place() -> None:
    net = own_modules.Classes(4, 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    run = margin.train(net, "iris", training=Training(epochs=60, lr=0.02), out="r")
    assert any(not value.equal(before[name]) for name, value in net.state_dict().items())
    initial, last = margin.load(run, "initial"), margin.load(run, "last")
    for name, value in net.state_dict().items():
        assert before[name].equal(initial.model.state_dict()[name])
        assert value.equal(last.model.state_dict()[name])
    x, y = load_iris(return_X_y=True)  # in the user's own units: no scaling stands before the module
    right = net.eval()(torch.tensor(x, dtype=torch.float32)).argmax(1).numpy() == y
    assert right.mean() >= 0.9
    assert last.model is not net
    with pytest.raises(
        ValueError, match=r"own_modules:Classes was handed over .*margin.load\(run, model=...\)"
    ):
        margin.load("r")
    with pytest.raises(ValueError, match=r"hand over one again, Classes\(...\)"):
        margin.load("r", model=own_modules.Classes)
    again = margin.load("r", "last", model=own_modules.Classes(4, 3))
    assert again.model.head.weight.equal(net.head.weight)
    twin = own_modules.Classes(4, 3)
    margin.resume("r", training=Training(epochs=61), model=twin)
    straight = own_modules.Classes(4, 3)
    straight.load_state_dict(before)
    margin.train(straight, "iris", training=Training(epochs=61, lr=0.02), out="straight")
    assert all(value.equal(twin.state_dict()[name]) for name, value in straight.state_dict().items())


def test_a_handed_module_is_not_moved_by_the_trial_of_a_stopping_rule() -> None:
    net = own_modules.Classes(4, 3)
    one = margin.train(net, "iris", training=Training(epochs=2, until={"loss": 1e-9}), out="until")
    twin = own_modules.Classes(4, 3)
    twin.load_state_dict(margin.load(one, "initial").model.state_dict())
    margin.train(twin, "iris", training=QUICK, out="plain")
    assert net.head.weight.equal(twin.head.weight)


def test_a_module_that_is_handed_over_keeps_its_type() -> None:
    net = own_modules.Classes(4, 3).double()
    run = margin.train(net, "iris", training=QUICK, out="r")
    assert {p.dtype for p in net.parameters()} == {torch.float64}
    assert run.record["arguments"]["training"]["precision"] == "float64"
    assert margin.load(run).model.head.weight.dtype == torch.float64
    twin = own_modules.Classes(4, 3).double()
    margin.resume("r", model=twin, epochs=3)
    assert twin.head.weight.dtype == torch.float64 and not twin.head.weight.equal(net.head.weight)
    margin.train(net, "iris", training=Training(epochs=1, precision="float32"), out="stated")
    assert net.head.weight.dtype == torch.float32
    with pytest.raises(ValueError, match=r"float32 or float64: some of own_modules:Classes are of bfloat16"):
        margin.train(net.bfloat16(), "iris", training=QUICK, out="half")


def test_a_class_that_builds_float64_keeps_its_type() -> None:
    class Double(own_modules.Classes):
        def __init__(self, in_features, num_classes):
            super().__init__(in_features, num_classes)
            self.double()

    run = margin.train(Double, "iris", training=QUICK, out="r")
    assert run.record["arguments"]["training"]["precision"] == "float64"
    assert margin.load(run).model.head.weight.dtype == torch.float64
    stated = margin.train(Double, "iris", training=Training(epochs=1, precision="float32"), out="stated")
    assert margin.load(stated).model.head.weight.dtype == torch.float32
    single = margin.train(own_modules.Classes, "iris", training=QUICK, out="single")
    assert single.record["arguments"]["training"]["precision"] == "float32"
    # what stands in float64 is not rounded to float32 on its way
    first = margin.load(run, "initial").model.head.weight
    torch.manual_seed(mix(0, 3))
    assert first.equal(Double(4, 3).head.weight)


def test_a_partial_is_trained_with_what_it_binds() -> None:
    wide = functools.partial(own_modules.Classes, width=3)
    run = margin.train(wide, "iris", training=QUICK, out="r")
    assert margin.load(run).model.body.out_features == 3
    assert run.record["recipe"]["model"] == "own_modules:Classes"
    assert run.record["recipe"]["options"]["width"] == 3
    with pytest.raises(ValueError, match=r"own_modules:Classes was handed over in Python"):
        margin.load("r")
    assert margin.load("r", model=wide)(torch.zeros(1, 4)).shape == (1, 3)
    other = margin.train(wide, "iris", {"width": 5}, training=QUICK, out="other")
    assert margin.load(other).model.body.out_features == 5


@pytest.mark.parametrize("task", ["values", "binary"])
@pytest.mark.parametrize("scale", ["none", "standard"])
def test_one_output_in_a_column_is_one_number_an_example(task: str, scale: str) -> None:
    """As with squeeze(-1) at its end, to the bit; (N, 1) against (N,) would compare every pair."""

    x = np.random.default_rng(0).normal(size=(60, 3))
    y = x[:, 0] * 3 + 2 if task == "values" else (x[:, 0] > 0).astype(int)
    training = Training(
        epochs=3, batch_size=8, average=0.9, scale_targets=scale if task == "values" else None
    )
    runs = [
        margin.train(net, (x, y), task=task, training=training, out=name)
        for net, name in ((own_modules.InColumn, "column"), (own_modules.Values, "row"))
    ]
    one, other = (margin.load(run)(torch.tensor(x, dtype=torch.float32)) for run in runs)
    assert one.shape == (60,) and one.equal(other)
    assert runs[0].metrics == runs[1].metrics
    np.testing.assert_array_equal(*(margin.predict(run, x) for run in runs))
    more = [margin.resume(run, (x, y), epochs=5) for run in runs]
    assert more[0].metrics == more[1].metrics
    assert margin.load("column")(torch.tensor(x, dtype=torch.float32)).equal(
        margin.load("row")(torch.tensor(x, dtype=torch.float32))
    )


def test_outputs_in_a_column_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "own_modules:InColumn", "diabetes", "--epochs", "1"]) == 0
    assert capsys.readouterr().err.count(COLUMN) == 1
    assert main(["audit", "runs/InColumn-1", "--claims", "risk"]) == 0
    assert main(["train", "own_modules:Values", "diabetes", "--epochs", "1"]) == 0
    assert COLUMN not in capsys.readouterr().err


def test_a_module_that_is_handed_over_is_of_one_process() -> None:
    with pytest.raises(
        ValueError, match=r"leave out processes, or hand over .* a function there that builds"
    ):
        margin.train(own_modules.Classes(4, 3), "iris", training=Training(processes=2), out="r")
    assert not Path("r").exists()


def test_a_local_class_and_a_lambda_are_rebuilt_while_they_are_there() -> None:
    class Local(own_modules.Classes):
        pass

    for number, model in enumerate(
        (Local, lambda in_features, num_classes: nn.Linear(in_features, num_classes))
    ):
        run = margin.train(model, "iris", training=QUICK, out=f"r{number}")
        assert margin.load(run)(torch.zeros(1, 4)).shape == (1, 3)
        with pytest.raises(ValueError, match="hand it over"):
            margin.load(f"r{number}")
        assert margin.load(f"r{number}", model=model)(torch.zeros(1, 4)).shape == (1, 3)
        with pytest.raises(ValueError, match="leave out processes"):
            margin.train(model, "iris", training=Training(processes=2), out="several")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere:Net", "no module 'nowhere' here"),
        ("own_modules:Clases", "own_modules has no 'Clases'; nearest: Classes"),
        ("own_modules:foreign", "needs n_in, n_out, which the data do not dictate"),
        ("own_modules:no_module", "must build a torch module: it returned the type int"),
        ("own_modules:Raising", "own_modules:Raising raised RuntimeError: no luck today"),
        ("own_modules:Images", "needs images: an example of iris has"),
        ("own_modules:Tokens", "needs tokens: an example of iris has"),
        ("own_modules:Values", r"must return a score for each of 3 classes, \(N, 3\): got \(N\)"),
        ("own_modules:Autoencoder", r"got \(N, 4\); outputs like the inputs are the task reconstruction"),
        ("own_modules.py:Classes", "by no path of a file: .*write own_modules:Classes"),
        (nn.Linear(5, 3), "raised RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        (3, "the name of a model of the catalog.*got int"),
    ],
)
def test_what_cannot_be_trained_is_told_in_one_line(model: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        margin.train(model, "iris", training=QUICK, out="r")
    assert "\n" not in str(caught.value)
    assert not Path("r").exists()


def test_errors_of_the_command_line_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "own_modules:Clases", "iris"]) == 2
    assert (
        capsys.readouterr().err == "margin: own_modules has no 'Clases'; nearest: Classes, Values, Images\n"
    )
    assert main(["train", "own_modules:Raising", "iris"]) == 2
    line, place = capsys.readouterr().err.split("\n", 1)
    assert line == "margin: own_modules:Raising raised RuntimeError: no luck today"
    assert 'raise RuntimeError("no luck today")' in place
    assert main(["train", "own_modules:Classes", "iris", "--model.widht", "3"]) == 2
    assert "nearest: --model.width" in capsys.readouterr().err
    assert main(["train", "own_modules:Classes", "iris", "--task", "clases"]) == 2
    assert "task must be one of classes, binary" in capsys.readouterr().err
    assert main(["train", "mlp", "iris", "--objective", "torch.nn:L1Loss"]) == 2
    assert "mlp is a model of the catalog with its own loss" in capsys.readouterr().err


def test_a_changed_file_is_said_and_changed_parameters_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, source = tmp_path / "edited_net.py", Path(own_modules.__file__).read_text()
    file.write_text(source)
    assert main(["train", "edited_net:Classes", "iris", "--epochs", "1", "--out", "r"]) == 0

    def again(text: str, *more: str) -> tuple[int, str]:
        file.write_text(text)
        sys.modules.pop("edited_net", None)
        capsys.readouterr()
        return main(["train", "--resume", "r", "--epochs", "2", *more]), capsys.readouterr().err

    status, told = again(source.replace("width=16", "breadth=16").replace("width", "breadth"))
    assert status == 2 and "no longer has 'width': its parameters have changed since the run began" in told
    status, told = again(source.replace("dropout=0.1", "dropout=0.1, depth=2"))
    assert status == 2 and "has the new option 'depth'" in told
    status, told = again(source.replace("class Classes", "class Renamed"))
    assert status == 2 and "edited_net has no 'Classes'" in told
    status, told = again("raise ValueError('broken')\n")
    assert status == 2 and "edited_net raised ValueError: broken" in told
    status, told = again(f"{source}\n# a comment\n")
    assert status == 0 and f"{file} has changed since the run began" in told
    file.unlink()
    sys.modules.pop("edited_net")
    assert main(["predict", "r", "iris"]) == 2
    assert "no module 'edited_net' here" in capsys.readouterr().err
    assert Run("r").metrics and Run("r").history  # what it holds is read without its code


def test_a_default_that_changes_later_is_not_looked_up_again() -> None:
    build = builder_of(own_modules.Classes, "own_modules:Classes", ("in_features", "num_classes"))
    run = margin.train(own_modules.Classes, "iris", {"width": 5}, QUICK, out="r")
    assert run.record["recipe"]["options"] == {"width": 5, "dropout": 0.1}
    assert build(in_features=4, num_classes=3).body.out_features == 16


@pytest.mark.parametrize("name", ["HandedOn", "BehindAStar", "ByPlace"])
def test_the_data_dictate_to_every_kind_of_parameter(name: str) -> None:
    run = margin.train(f"own_modules:{name}", "iris", {"width": 7}, QUICK, out="r")
    assert run.record["recipe"]["spec"] == {"in_features": 4, "num_classes": 3}
    assert margin.load("r").model.body.weight.shape == (7, 4)
    if name == "HandedOn":
        assert run.record["recipe"]["options"] == {"extra": 1, "width": 7}


def test_a_file_may_be_called_as_a_model_of_the_catalog_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """mlp:values is a head, mlp:Net the class in mlp.py."""
    (tmp_path / "mlp.py").write_text("from own_modules import Classes as Net\n")
    assert main(["train", "mlp:Net", "iris", "--epochs", "1", "--out", "r"]) == 0
    assert Run("r").record["own"]["file"] == own_modules.__file__
    assert main(["predict", "r", "iris"]) == 0
    assert main(["train", "mlp:values", "noisy-linear", "--epochs", "1", "--out", "head"]) == 0
    capsys.readouterr()
    assert main(["train", "lstm:Net", "iris"]) == 2
    assert "no module 'lstm' here" in (told := capsys.readouterr().err)
    heads = ("", ":values", ":texts", ":tags", ":tokens", ":series")
    assert f"of the catalog there are {', '.join(f'lstm{head}' for head in heads)}" in told


# seven seconds: a command in a process of its own
def test_what_a_module_prints_is_no_part_of_the_json(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["train", "own_modules:Printing", "iris", "--epochs", "1"]
    assert main([*words, "--out", "r", "--json"]) == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["run"] == "r" and "forward" in told.err
    assert main([*words, "--processes", "2", "--out", "two", "--json"]) == 0
    both = capfd.readouterr()  # of this process and of the two
    assert json.loads(both.out)["metrics"] == pytest.approx(json.loads(told.out)["metrics"], abs=1e-5)
    assert "forward" in both.err


# six seconds: two processes are started
def test_what_fails_in_another_process_is_one_line_too(capfd: pytest.CaptureFixture[str]) -> None:
    """By two processes what is shown is all that any of them wrote."""
    for count in ("1", "2"):
        words = ["train", "own_modules:RaisingInTraining", "iris", "--processes", count, "--out", "r" + count]
        assert main(words) == 2
        told = capfd.readouterr().err
        assert "margin: own_modules:RaisingInTraining raised RuntimeError: only in training" in told
        assert "Traceback" not in told


def test_a_squeezed_batch_of_one_is_found_before_the_first_step() -> None:
    with pytest.raises(ValueError, match=r"one number a target, .*; squeeze\(\) drops a batch of one"):
        margin.train(own_modules.Squeezed, "noisy-linear", training=QUICK, out="r")


def test_lists_of_a_record_are_the_tuples_that_they_stand_for() -> None:
    run = margin.train(own_modules.Linear, "iris", {"sizes": (7, 8)}, QUICK, out="r")
    assert run.record["recipe"]["options"]["sizes"] in ([7, 8], (7, 8))
    assert margin.load("r").model.layer.weight.shape == (3, 4)
    assert main(["train", "own_modules:Linear", "iris", "--model.sizes", "[5,6]", "--epochs", "1"]) == 0
    assert margin.resume("r", epochs=3).history[-1]["step"] > run.history[-1]["step"] // 2


def test_a_run_that_was_resumed_is_read_anew() -> None:
    x, y = load_iris(return_X_y=True)
    run = margin.train(own_modules.build, (x, y), training=QUICK, out="r")
    before = len(run.history)
    again = margin.resume(run, (x, y), epochs=6)
    assert len(run.history) == len(again.history) > before
    assert len(margin.predict(run, x[:3])) == 3
    assert run.metrics == again.metrics


def test_one_logit_is_trained_by_torchs_loss_of_it() -> None:
    """Labels are numbers to it, and there are two of them."""
    one = margin.train(own_modules.OneLogit, "breast-cancer", task="binary", epochs=2, out="task")
    own = margin.train(
        own_modules.OneLogit,
        "breast-cancer",
        task="binary",
        objective=nn.BCEWithLogitsLoss(),
        epochs=2,
        out="own",
    )
    assert own.metrics == pytest.approx(one.metrics, rel=1e-5)
    with pytest.raises(ValueError, match="the task binary must have two classes: iris has 3"):
        margin.train(own_modules.OneLogit, "iris", task="binary", out="three")


def test_an_array_without_labels_trains_an_autoencoder_of_ones_own() -> None:
    x = load_iris(return_X_y=True)[0]
    run = margin.train(own_modules.Autoencoder, x, training=QUICK, out="r")
    assert run.record["own"]["task"] == "reconstruction"
    for model, message in (
        (own_modules.WithCode, "must return one tensor: got tuple"),
        (own_modules.Lazy, "needs classes as targets: .* has none"),
    ):
        with pytest.raises(ValueError, match=message):
            margin.train(model, x, training=QUICK, out="s")
    for model in (own_modules.Lazy, own_modules.Lazy(3)):
        with pytest.raises(ValueError, match=r"layer\.weight is of a lazy layer"):
            margin.train(model, "iris", training=QUICK, out="s")


class Ending(own_modules.Classes):
    """Ends in an operation by name."""

    def __init__(self, in_features, num_classes, end="softmax"):
        super().__init__(in_features, num_classes)
        self.end = end

    def forward(self, x):
        z = super().forward(x)
        z = z[:, 0] - z[:, 1] if self.end == "sigmoid" else z
        return z.sigmoid()[:, None].squeeze(-1) if self.end == "sigmoid" else getattr(z, self.end)(1)


def test_probabilities_are_not_taken_for_logits() -> None:
    """Softmax of softmax is all near alike; a sigmoid is above 0, which is the boundary of logits."""
    what = "must return logits, of which the task {} takes the {} itself"
    with pytest.raises(ValueError, match=what.format("classes", "softmax") + ".*set task scores"):
        margin.train(Ending, "iris", training=QUICK, out="r")
    for objective in (None, nn.BCELoss()):
        with pytest.raises(ValueError, match=what.format("binary", "sigmoid") + ".*of its forward$"):
            margin.train(
                Ending,
                "breast-cancer",
                {"end": "sigmoid"},
                QUICK,
                task="binary",
                objective=objective,
                out="r",
            )
    own = {"task": "scores", "objective": nn.MultiMarginLoss()}
    assert margin.train(Ending, "iris", training=QUICK, out="r", **own).metrics["test_accuracy"] >= 0
    shifted = margin.train(Ending, "iris", {"end": "log_softmax"}, QUICK, out="s")  # logits like any
    assert shifted.metrics["test_loss"] > 0


# losses


def test_an_instance_of_a_loss_is_the_one_that_is_minimized() -> None:
    run = margin.train(own_modules.Classes, "iris", training=QUICK, objective=own_modules.Focal(5.0), out="r")
    assert run.record["own"]["loss_options"] == {"gamma": 5.0}
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])
    own = loss_of("own_modules:Focal", {"gamma": 5.0})(x, y).mean()
    torch.testing.assert_close(own, own_modules.Focal(5.0)(x, y))
    for loss, message in (
        (own_modules.Focal(2.0, "x"), "own_modules:Focal keeps no 'hidden'; write self.hidden = hidden"),
        (nn.CrossEntropyLoss(reduction="sum"), "CrossEntropyLoss of reduction='sum'"),
    ):
        with pytest.raises(ValueError, match=message):
            margin.train(own_modules.Classes, "iris", training=QUICK, objective=loss, out="s")


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("own_modules:over_the_batch", r"the loss of each example, \(N, ...\): of 1 examples got \(2,\)"),
        ("torch.nn:MSELoss", "Using a target size"),
        ("torch.nn:L1Loss", "Using a target size"),
    ],
)
def test_a_loss_of_two_classes_is_not_taken_for_one_of_two_examples(objective: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        margin.train(
            own_modules.Classes, "breast-cancer", training=QUICK, objective=objective, batch_size=2, out="r"
        )


@pytest.mark.parametrize(
    "objective",
    ["own_modules:absolute", own_modules.absolute, "torch.nn:L1Loss", nn.L1Loss(), nn.functional.l1_loss],
)
def test_a_loss_of_ones_own_is_minimized_and_averaged(objective: object) -> None:
    training = Training(epochs=3)
    run = margin.train(own_modules.Values, "noisy-linear", None, training, objective=objective, out="r")
    part = margin.open_source("noisy-linear", {}).splits["test"]
    with torch.no_grad():
        outputs = margin.load("r")(part.inputs[0].float())
    error = (outputs - part.targets.float()).abs().mean().item()
    assert run.metrics["test_loss"] == pytest.approx(error, rel=1e-5)
    assert run.metrics["test_mae"] == pytest.approx(error, rel=1e-5)
    assert run.metrics["test_mse"] != pytest.approx(error, rel=1e-2)


def test_a_loss_keeps_its_options() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.2)
    run = margin.train(own_modules.Classes, "iris", training=QUICK, objective=loss, out="r")
    own = run.record["own"]
    assert own["loss_options"]["label_smoothing"] == 0.2
    outputs, labels = torch.randn(7, 3), torch.tensor([0, 1, 2, 0, 1, 2, 2])
    again = loss_of(own["loss"], own["loss_options"])(outputs, labels)
    logp = outputs.log_softmax(1)
    weights = torch.tensor([1.0, 2.0, 3.0])
    wanted = 0.8 * -logp[range(7), labels] * weights[labels] + 0.2 * -(logp * weights).sum(1) / 3
    torch.testing.assert_close(again, wanted)


UNEVEN = torch.tensor([1.0, 5.0, 0.2])


@pytest.mark.parametrize(
    "options",
    [
        {"weight": UNEVEN},
        {"weight": UNEVEN, "label_smoothing": 0.2, "ignore_index": 1},
        {"weight": torch.tensor([1.0, 5.0, 0.0])},
        {"ignore_index": 2},
    ],
)
@pytest.mark.parametrize("more", [{}, {"accumulate": 3}, {"precision": "float64"}])
def test_the_mean_of_weighted_classes_is_torchs(options: dict[str, object], more: dict[str, object]) -> None:
    """Divided by the sum of the chosen weights of the whole batch, in the steps and in what is reported."""
    loss = nn.CrossEntropyLoss(**options)
    training = Training(epochs=2, batch_size="all", optimizer="SGD", lr=0.1, scale="none", **more)
    data = margin.open_source("iris", {"val": 0.0, "test": 0.2})
    run = margin.train(own_modules.build, data, training=training, objective=loss, out="r")
    hand = own_modules.build()
    hand.load_state_dict(margin.load(run, "initial").model.state_dict())
    (train, y), (test, z) = ((s.inputs[0], s.targets) for s in (data.splits["train"], data.splits["test"]))
    hand, loss, train, test = hand.double(), loss.double(), train.double(), test.double()
    steps = torch.optim.SGD(hand.parameters(), lr=0.1)
    for _ in range(2):
        steps.zero_grad()
        loss(hand(train), y).backward()
        steps.step()
    for name, value in margin.load(run, "last").model.state_dict().items():
        torch.testing.assert_close(value.double(), hand.state_dict()[name], atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        wanted = loss(hand(test), z).item()
    assert run.metrics["test_loss"] == pytest.approx(wanted, rel=1e-5)
    if not more:
        shown = margin.compare(run, run).document[0]["metrics"]["loss"]["mean"]
        assert shown == pytest.approx(wanted, rel=1e-5)


def test_cross_entropy_of_tokens_is_the_tasks_own() -> None:
    training = Training(max_steps=3, epochs=None)
    own = margin.train(own_modules.Tokens, "copy-memory", training=training, out="own")
    handed = margin.train(
        own_modules.Tokens, "copy-memory", training=training, objective=nn.CrossEntropyLoss(), out="handed"
    )
    assert handed.metrics == pytest.approx(own.metrics, rel=1e-5)


def test_a_class_of_no_weight_and_smoothed_labels_are_refused_together() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 0.0, 1.0]), label_smoothing=0.1)
    with pytest.raises(ValueError, match="must be above 0 where its labels are smoothed"):
        margin.train(own_modules.build, "iris", training=QUICK, objective=loss, out="r")


def test_a_reduction_that_is_no_mean_over_the_terms_is_refused() -> None:
    """``batchmean`` sums over the last axis, which the mean over all terms does not."""
    outputs, targets = torch.randn(2, 3).log_softmax(1), torch.full((2, 3), 1 / 3)
    check_mean(each_term(nn.MSELoss(), "mean"), "mean", outputs, targets)
    with pytest.raises(ValueError, match="must be the mean of the losses"):
        check_mean(each_term(nn.KLDivLoss(reduction="batchmean"), "sum"), "sum", outputs, targets)
    check_mean(each_term(nn.CrossEntropyLoss(UNEVEN), "uneven"), "uneven", outputs, torch.tensor([0, 1]))


def test_a_mean_is_asked_of_each_example_and_a_sum_is_refused() -> None:
    outputs, targets = torch.randn(6, 2), torch.randn(6, 2)
    each = each_term(own_modules.absolute, "own_modules:absolute")(outputs, targets)
    torch.testing.assert_close(each, (outputs - targets).abs().mean(1))
    with pytest.raises(ValueError, match="must be the mean of the losses of its examples"):
        margin.train(own_modules.Values, "noisy-linear", None, QUICK, objective=own_modules.summed, out="r")
    with pytest.raises(ValueError, match="is a lambda or local to a function"):
        margin.train(own_modules.Values, "noisy-linear", objective=lambda o, t: (o - t).square(), out="r")
    with pytest.raises(ValueError, match="mlp is a model of the catalog"):
        margin.train("mlp", "iris", objective=nn.CrossEntropyLoss())


def test_a_stated_loss_is_not_replaced_in_silence() -> None:
    for option in ({"label_smoothing": 0.1}, {"class_weight": [1.0, 2.0, 3.0]}):
        with pytest.raises(ValueError, match="changes the loss of the task, and the objective is"):
            margin.train(own_modules.Classes, "iris", objective=nn.CrossEntropyLoss(), out="r", **option)


# what an entry can


def test_processes_rules_and_seeds_are_an_entrys() -> None:
    """Two processes take the steps of one, of a weighted loss whose pieces count differently too.

    SAM with radius 0 would be descent, with its own it is not.
    """
    words = ["train", "own_modules:build", "iris", "--epochs", "3"]
    assert main([*words, "--processes", "2", "--objective", "own_modules:Uneven", "--out", "two"]) == 0
    assert main([*words, "--seeds", "2", "--out", "seeds"]) == 0
    one = margin.train(own_modules.build, "iris", epochs=3, out="one")
    uneven = margin.train(own_modules.build, "iris", epochs=3, objective=own_modules.Uneven, out="uneven")
    assert Run("two").metrics == pytest.approx(uneven.metrics, abs=1e-5)
    assert uneven.metrics["test_loss"] != pytest.approx(one.metrics["test_loss"], rel=0.05)
    assert Run("seeds/seed-0").metrics == one.metrics != Run("seeds/seed-1").metrics
    sam = margin.train(own_modules.build, "iris", epochs=3, rule="sam", out="sam")
    assert sam.record["arguments"]["rule"] == "sam" and sam.metrics != one.metrics


# the record


@pytest.mark.parametrize(
    "path", ["os:getcwd", "subprocess:Popen", "pickle:loads", "torch.hub:load", "pandas:read_pickle"]
)
def test_a_record_calls_nothing_that_says_not_that_it_builds_a_module(tmp_path: Path, path: str) -> None:
    margin.train(own_modules.build, "iris", training=QUICK, out="r")
    file = tmp_path / "r" / "run.yaml"
    text = file.read_text().replace("own_modules:build", path)
    file.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("digest")))
    with pytest.raises(
        ValueError, match=f"{path} (is a function of Python or of an installed|must be a module)"
    ):
        margin.load("r")
    with pytest.raises(
        ValueError, match=f"{path} (is a function of Python or of an installed|must be a module)"
    ):
        margin.train(path, "iris", training=QUICK, out="s")


def test_a_record_makes_no_loss_of_another_class() -> None:
    with pytest.raises(
        ValueError, match=r"subprocess:Popen must be a loss of torch.nn's kind, or a function"
    ):
        loss_of("subprocess:Popen", {"args": "true"})


def test_a_record_is_checked_when_it_is_read(tmp_path: Path) -> None:
    margin.train(own_modules.build, "iris", training=QUICK, out="r")
    file = tmp_path / "r" / "run.yaml"
    text = file.read_text()
    plain = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("digest"))
    file.write_text(plain.replace("handed: ''", "handed: 3"))
    with pytest.raises(ValueError, match=r"own.handed must be one of"):
        margin.load("r")
    file.write_text(plain.replace("own:", "other:"))
    with pytest.raises(ValueError, match=r"own must be there for a module of one's own alone"):
        margin.load("r")


def test_help_shows_every_option_of_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "own_modules:Classes", "iris", "--help"])
    told = capsys.readouterr().out
    for word in ("--model.width", "Hidden units (16)", "--model.dropout", "(0.1)", "--objective", "--task"):
        assert word in told
    assert "--model.activation" not in told  # no value of a command line


def test_arrays_of_numpy_train_a_module_that_needs_no_argument() -> None:
    x, y = load_iris(return_X_y=True)
    run = margin.train(own_modules.build, (x, y), training=QUICK, out="r")
    assert run.record["recipe"]["spec"] == {} and np.isfinite(run.metrics["test_loss"])


def test_code_that_fails_says_where() -> None:
    with pytest.raises(BuilderError) as caught:
        margin.train(own_modules.Raising, "iris", out="r")
    assert caught.value.place.splitlines()[0].endswith("in __init__")
