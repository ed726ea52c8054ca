"""The tricks as a training's options: each is there, in its order, resumable, and says what it cannot do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import margin
from margin import Run, Training
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.data.examples import Arrays, Data
from margin.data.sets.tiny.tables import moons, values
from margin.engine.objectives import Mixed, class_weights, moving_objective
from margin.engine.plan import make_sampler, setting
from margin.runs.training import finish, prepare
from margin.testing import check_same_run, stop_after

BASE = Training(epochs=4, batch_size=16, lr=0.01)


def images(count: int = 60, side: int = 6) -> Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 1, side, side, generator=generator)
    return margin.open_source((x, torch.arange(count) % 3), {"domain": (0.0, 1.0)})


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("runs") / "other"
    return margin.train("mlp", moons(), training=replace(BASE, seed=5), out=path)


TRICKS: dict[str, dict[str, Any]] = {
    "init": {"init": "orthogonal", "init_scale": 0.5},
    "freeze": {"freeze": ["layers.1"]},
    "layer_decay": {"layer_decay": 0.5},
    "step": {"schedule": "step", "schedule_options": {"every": 3.0}},
    "mean": {"average": "mean", "average_start": 3},
    "augment": {"augment": ["noise:0.3"]},
    "mixup": {"mix": "mixup"},
    "smoothing": {"label_smoothing": 0.2},
    "confusion": {"confusion": [[0.9, 0.1], [0.2, 0.8]]},
    "class_weight": {"class_weight": "balanced"},
    "lion": {"optimizer": "Lion"},
}


@pytest.mark.parametrize("options", TRICKS.values(), ids=TRICKS)
def test_a_training_with_it_is_another_and_resumes_bit_for_bit(
    options: dict[str, Any], tmp_path: Path
) -> None:
    training = replace(BASE, **options)
    plain = margin.train("mlp", moons(), training=BASE, out=tmp_path / "plain")
    whole = margin.train("mlp", moons(), training=training, out=tmp_path / "whole")
    half = margin.train("mlp", moons(), training=replace(training, epochs=2), out=tmp_path / "half")
    margin.resume(half, moons(), Training(epochs=4))
    check_same_run(whole, Run(half.path))
    x = moons().splits["train"].inputs[0]
    if options.get("class_weight") != "balanced":  # the moons are balanced: their weights are 1
        assert not torch.equal(margin.load(plain)(x), margin.load(whole)(x))


def test_a_curriculum_needs_the_losses_of_another_run(other: Run, tmp_path: Path) -> None:
    training = replace(
        BASE, curriculum=str(other.path), pacing="step", pacing_start=0.25, pacing_end=0.75, batch_size=4
    )
    whole = margin.train("mlp", moons(), training=training, out=tmp_path / "a")
    half = margin.train("mlp", moons(), training=replace(training, max_steps=5), out=tmp_path / "b")
    margin.resume(half, moons(), Training(max_steps=whole.history[-1]["step"]))
    assert [row["step"] for row in whole.history][-1] == Run(half.path).history[-1]["step"]
    data = moons()
    part = data.splits["train"]
    batches = make_sampler(part, 4, data, training)
    model = margin.load(other)
    losses = torch.nn.functional.cross_entropy(model(part.inputs[0]), part.targets, reduction="none").detach()
    easy = torch.cat([losses[part.targets == k].sort().values[: len(part) // 8 + 1] for k in (0, 1)])
    places = {tuple(x.tolist()): loss for x, loss in zip(part.inputs[0], losses.tolist(), strict=True)}
    for step in range(3):
        drawn_now = [places[tuple(x.tolist())] for x in batches(step).inputs[0]]
        assert max(drawn_now) <= float(easy.max())
    assert max(places[tuple(x.tolist())] for t in range(21, 28) for x in batches(t).inputs[0]) > float(
        easy.max()
    )


def test_distillation_learns_from_the_teacher(other: Run, tmp_path: Path) -> None:
    training = replace(BASE, teacher=str(other.path))
    run = margin.train(
        "mlp", moons(), training=training, rule="distillation", step={"share": 1.0}, out=tmp_path / "s"
    )
    losses = [row["train_loss"] for row in run.history]
    assert losses[-1] < losses[0]
    with pytest.raises(ValueError, match="learns from a trained model: give teacher RUN"):
        margin.train("mlp", moons(), training=BASE, rule="distillation", out=tmp_path / "t")
    with pytest.raises(ValueError, match="has no teacher: leave out teacher"):
        margin.train("mlp", moons(), training=training, out=tmp_path / "t")
    with pytest.raises(ValueError, match="teacher must be the directory of a run: nowhere is no run"):
        margin.train(
            "mlp", moons(), training=replace(BASE, teacher="nowhere"), rule="distillation", out=tmp_path / "t"
        )


def test_a_model_begins_with_another_runs_weights(other: Run, tmp_path: Path) -> None:
    training = replace(BASE, init_from=str(other.path), freeze=["layers.1"])
    run = margin.train("mlp", moons(), training=training, out=tmp_path / "r")
    taken, begun, ended = (
        margin.load(r, mark).state_dict() for r, mark in ((other, "best"), (run, "initial"), (run, "last"))
    )
    assert all(torch.equal(taken[name], begun[name]) for name in taken)
    moved = {name for name in begun if not torch.equal(begun[name], ended[name])}
    assert moved and not any("layers.1." in name for name in moved)
    with pytest.raises(ValueError, match="init_from must be the directory of a run"):
        margin.train("mlp", moons(), training=replace(BASE, init_from="nowhere"), out=tmp_path / "n")


def test_a_run_that_took_weights_resumes_without_their_source(other: Run, tmp_path: Path) -> None:
    copy = tmp_path / "source"
    margin.train("mlp", moons(), training=replace(BASE, seed=5), out=copy)
    training = replace(BASE, init_from=str(copy), average="mean")
    whole = margin.train("mlp", moons(), training=training, out=tmp_path / "a")
    half = margin.train("mlp", moons(), training=replace(training, epochs=1), out=tmp_path / "b")
    copy.rename(tmp_path / "gone")
    margin.resume(half, moons(), Training(epochs=4))
    check_same_run(whole, Run(half.path))


def test_the_judged_loss_stays_the_tasks_own() -> None:
    data = images()
    training = Training(mix="cutmix", mix_alpha=0.5, label_smoothing=0.1)
    moving = moving_objective(None, CLASSES, data, training)
    assert isinstance(moving, Mixed) and moving.kind == "cutmix"
    assert moving_objective(None, CLASSES, data, Training()) is None
    with pytest.raises(ValueError, match="smoothed labels need one logit a class"):
        moving_objective(None, VALUES, values(), Training(label_smoothing=0.1))


def test_balanced_classes_count_the_same() -> None:
    x, y = torch.randn(12, 2), torch.tensor([0] * 6 + [1] * 4 + [2] * 2)
    data = margin.open_source((x, y), {"val": 0.0, "test": 0.0})
    found = class_weights(data, Training(class_weight="balanced"))
    assert found is not None
    assert found.tolist() == pytest.approx([12 / 18, 12 / 12, 12 / 6])
    given = class_weights(data, Training(class_weight=[0.1, 2.0, 3.0]))
    assert given is not None
    assert given.tolist() == [0.1, 2.0, 3.0]  # no digit is lost before the loss's own type
    with pytest.raises(ValueError, match="class_weight needs labels"):
        class_weights(values(), Training(class_weight="balanced"))


def test_class_weights_count_the_weights_of_examples_and_need_every_class() -> None:
    part = Arrays((torch.randn(4, 2),), torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 2.0, 0.5, 0.5]))
    data = Data(name="weighted", splits={"train": part}, spec={"in_features": 2, "num_classes": 2})
    found = class_weights(data, Training(class_weight="balanced"))
    assert found is not None
    assert found.tolist() == pytest.approx([4 / (2 * 3), 4 / (2 * 1)])
    lacking = replace(data, spec={**data.spec, "num_classes": 3})
    with pytest.raises(ValueError, match="balanced classes need an example of each: class 2 has none"):
        class_weights(lacking, Training(class_weight="balanced"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weight": [1.0, 2.0, 3.0]}, "class_weight must have one weight a class: got 3 for 2"),
        (
            {"confusion": [[0.9, 0.1], [1.0]]},
            "confusion must have a row and a column a class: got rows of 2, 1",
        ),
        ({"confusion": [[1.0]]}, r"confusion must have shape \(2, 2\)"),
        ({"confusion": [[0.9, 0.2], [0.0, 1.0]]}, r"every row .* distribution: got row 0 with sum 1\.1"),
        ({"mix": "cutmix"}, r"cutmix needs one image an example, .* got \(1, 2\)"),
        (
            {"curriculum": "{other}", "batch_size": "all"},
            "a curriculum needs batches of less than all 40 exam",
        ),
        ({"curriculum": "{other}", "batch_size": 40}, "a curriculum needs batches of less than all 40 exam"),
    ],
)
def test_what_does_not_fit_is_said_before_there_is_a_run(
    options: dict[str, Any], message: str, other: Run, tmp_path: Path
) -> None:
    given = {name: str(other.path) if value == "{other}" else value for name, value in options.items()}
    data = moons()
    whole = replace(data, splits={**data.splits, "train": joined(*data.splits.values())})
    with pytest.raises(ValueError, match=message):
        margin.train("mlp", whole, training=replace(BASE, **given), out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def joined(*parts: Any) -> Arrays:
    x, y = (torch.cat(tensors) for tensors in zip(*((p.inputs[0], p.targets) for p in parts), strict=True))
    return Arrays((x,), y)


def test_a_curriculum_of_another_kind_of_run_is_refused(other: Run, tmp_path: Path) -> None:
    iris = margin.train(
        "logistic_regression", "iris", training=replace(BASE, epochs=1), out=tmp_path / "iris"
    )
    with pytest.raises(ValueError, match=r"curriculum must be a run on inputs of shape \(2,\): .*size"):
        margin.train("mlp", moons(), training=replace(BASE, curriculum=str(iris.path)), out=tmp_path / "r")
    broken = margin.train("mlp", moons(), training=replace(BASE, epochs=1), out=tmp_path / "broken")
    spoiled = broken.checkpoint("best")
    state = load_file(spoiled)
    with safe_open(spoiled, "pt") as file:
        text = {key: value for key, value in file.metadata().items() if key != "digest"}
    name = next(n for n in state if n.startswith("modules/model/") and n.endswith("weight"))
    save_file({**state, name: state[name] * float("nan")}, spoiled, text)
    with pytest.raises(ValueError, match=r"a curriculum needs a loss of each example: .* no numbers"):
        margin.train("mlp", moons(), training=replace(BASE, curriculum=str(broken.path)), out=tmp_path / "r")


def test_a_loss_of_the_models_own_is_not_silently_replaced() -> None:
    def own(model: torch.nn.Module, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        return model(*batch.inputs).square().sum(1)

    for options in ({"label_smoothing": 0.1}, {"class_weight": [1.0, 2.0]}):
        with pytest.raises(ValueError, match="change a task's loss: the model has its own"):
            moving_objective(own, CLASSES, moons(), Training(**options))


@pytest.mark.parametrize("option", ["teacher", "curriculum"])
def test_a_run_goes_on_from_anywhere_beside_the_same_other_run(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    margin.train("mlp", moons(), training=replace(BASE, epochs=1, seed=5), out="other")
    rule = "distillation" if option == "teacher" else ""
    training = replace(BASE, batch_size=8, **{option: "other"})
    whole = margin.train("mlp", moons(), training=training, rule=rule, out="whole")
    arguments = {"options": {}, "step": {}, "rule": rule}
    with pytest.raises(KeyboardInterrupt):
        finish(prepare("mlp", moons(), arguments, training, "half"), hooks=[stop_after(7)])
    monkeypatch.chdir(tmp_path / "there")
    half = margin.resume(tmp_path / "here" / "half", moons())
    check_same_run(Run(tmp_path / "here" / whole.path), half)
    monkeypatch.chdir(tmp_path / "here")
    margin.resume("half", moons(), replace(Training(epochs=4), **{option: "other"}))
    margin.resume("other", moons(), Training(epochs=2))
    with pytest.raises(ValueError, match=f"the {option} .*other has changed since the run began"):
        margin.resume("half", moons(), Training(epochs=5))


def test_a_transform_is_told_the_unit_and_the_background() -> None:
    told = setting(images())
    assert told["background"] == 0.0 and told["channels"] == 1 and told["domain"] is not None
    table = margin.open_source((torch.randn(30, 2) * torch.tensor([1.0, 50.0]), torch.arange(30) % 2), {})
    spread = setting(table)["spread"]
    assert isinstance(spread, torch.Tensor) and float(spread[1] / spread[0]) > 20
    with pytest.raises(ValueError, match="flip changes images: these are vectors"):
        make_sampler(table.splits["train"], 8, table, Training(augment=["flip"]))


def test_augmented_images_are_drawn_anew_each_pass() -> None:
    data = images()
    plain, changed = (
        make_sampler(data.splits["train"], 8, data, Training(seed=0, augment=a)) for a in ([], ["shift:1"])
    )
    for step in (0, plain.per_epoch):
        assert torch.equal(plain(step).targets, changed(step).targets)
        assert not torch.equal(plain(step).inputs[0], changed(step).inputs[0])
        assert torch.equal(changed(step).inputs[0], changed(step).inputs[0])
