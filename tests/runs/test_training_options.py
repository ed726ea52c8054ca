"""Every option of a training does what it says: against loops and sums written by hand."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import margin
from margin import Run, Training, load
from margin.data.open import open_data
from margin.engine.loop import State
from margin.runs.inference import predictions
from margin.runs.run_data import held_out
from margin.runs.training import Job, finish, free_path, open_source, prepare, reopen
from margin.runs.verbs import train
from margin.testing import check_same_run, stop_after

PLAIN: Mapping[str, Any] = {"options": {}, "step": {}, "rule": ""}
SGD = Training(optimizer="SGD", lr=0.1, batch_size=20, schedule="constant", optimizer_options={}, patience=0)


def job_of(path: Path, model: str = "logistic_regression", **options: Any) -> Job:
    return prepare(model, open_source("iris", {}), PLAIN, replace(SGD, **options), path)


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def losses_at_zero(job: Job, steps: int) -> list[torch.Tensor]:
    """The gradient at the first weights of the loss of each batch."""
    model = job.state.model
    parameters = list(model.parameters())
    batches = [job.plan.batches(step) for step in range(steps)]
    return [
        torch.cat(
            [
                g.flatten()
                for g in torch.autograd.grad(F.cross_entropy(model(*b.inputs), b.targets), parameters)
            ]
        )
        for b in batches
    ]


def test_a_step_follows_the_gradient_of_the_batch(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", max_steps=1)
    (gradient,) = losses_at_zero(job, 1)
    before = flat(job.state.model)
    finish(job)
    assert torch.allclose(flat(job.state.model), before - 0.1 * gradient, rtol=0, atol=1e-7)


def test_clip_bounds_the_step(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", max_steps=1, clip=0.01)
    (gradient,) = losses_at_zero(job, 1)
    before = flat(job.state.model)
    finish(job)
    expected = before - 0.1 * 0.01 * gradient / gradient.norm()
    assert gradient.norm() > 0.01
    assert torch.allclose(flat(job.state.model), expected, rtol=0, atol=1e-7)


def test_accumulate_shows_the_model_a_piece_at_a_time(tmp_path: Path) -> None:
    whole, pieces = job_of(tmp_path / "whole", max_steps=3), job_of(tmp_path / "p", max_steps=3, accumulate=4)
    seen: list[int] = []
    for job in (whole, pieces):
        handle = job.state.core.register_forward_hook(
            lambda module, inputs, outputs: seen.append(len(outputs)) if module.training else None
        )
        finish(job)
        handle.remove()
    assert seen == [20] * 3 + [5] * 12
    assert torch.allclose(flat(whole.state.model), flat(pieces.state.model), rtol=0, atol=1e-6)


def test_warmup_counts_without_a_schedule_too(tmp_path: Path) -> None:
    run = finish(job_of(tmp_path / "r", max_steps=6, warmup=4, evaluate_every=1))
    rates = [row["lr"] for row in run.history]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rel=1e-12)


@pytest.mark.parametrize(("schedule", "last"), [("linear", 1 / 5), ("cosine", (1 + np.cos(0.8 * np.pi)) / 2)])
def test_a_schedule_ends_with_the_training(tmp_path: Path, schedule: Any, last: float) -> None:
    run = finish(job_of(tmp_path / "r", epochs=1, batch_size=25, schedule=schedule, evaluate_every=1))
    steps = len(run.history)
    job = job_of(tmp_path / "s", epochs=1, batch_size=25)
    assert job.plan.total == steps
    done = (steps - 1) / steps
    expected = 1 - done if schedule == "linear" else (1 + np.cos(np.pi * done)) / 2
    assert run.history[0]["lr"] == pytest.approx(0.1, rel=1e-12)
    assert run.history[-1]["lr"] == pytest.approx(0.1 * expected, rel=1e-9)


def test_epochs_are_passes_and_max_steps_overrides_them(tmp_path: Path) -> None:
    job = job_of(tmp_path / "a", epochs=3)
    examples = len(open_data("iris", {}).splits["train"])
    assert job.plan.total == 3 * -(-examples // 20)
    assert job_of(tmp_path / "b", epochs=3, max_steps=5).plan.total == 5
    run = finish(job_of(tmp_path / "c", epochs=3, max_steps=0))
    assert run.checkpoints["last"] == 0
    assert torch.equal(flat(load(run)), flat(load(run, "initial")))


def test_decay_spares_vectors_unless_told_otherwise(tmp_path: Path) -> None:
    for name, decay_norms, expected in (("a", False, [0.5, 0.0]), ("b", True, [0.5])):
        job = job_of(tmp_path / name, optimizer_options={"weight_decay": 0.5}, decay_norms=decay_norms)
        assert [g["weight_decay"] for g in job.state.optimizers[""].param_groups] == expected


def test_weights_are_a_function_of_the_seed(tmp_path: Path) -> None:
    first = [
        flat(job_of(tmp_path / f"{i}", "mlp", seed=seed).state.model) for i, seed in enumerate((0, 1, 0))
    ]
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])


def test_a_training_begins_behind_the_fitted_preprocessing(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r")
    x = open_data("iris", {}).splits["train"].inputs[0]
    z = load(job.run, "initial").preprocess(x)
    assert torch.allclose(z.mean(0), torch.zeros(4), atol=1e-5)
    assert torch.allclose(z.std(0, correction=0), torch.ones(4), atol=1e-4)


def test_the_average_is_what_is_judged_and_handed_out(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", "mlp", max_steps=8, average=0.9, evaluate_every=4)
    average, decay = flat(job.state.model), 0.9
    weights: list[torch.Tensor] = []
    run = finish(job, hooks=[lambda state, metrics: weights.append(flat(state.model))])
    for current in weights:
        average = decay * average + (1 - decay) * current
    assert torch.allclose(flat(load(run, "last")), average, rtol=0, atol=1e-6)
    assert not torch.allclose(weights[-1], average, rtol=0, atol=1e-3)
    part = open_data("iris", {}).splits["val"]
    with torch.no_grad():
        loss = F.cross_entropy(load(run, "last")(part.inputs[0]), part.targets).item()
    assert abs(run.history[-1]["val_loss"] - loss) <= 1e-6


def test_rows_and_checkpoints_come_when_asked_for(tmp_path: Path) -> None:
    marks: list[int | None] = []
    job = job_of(tmp_path / "r", max_steps=9, evaluate_every=4, checkpoint_every=3)
    run = finish(job, hooks=[lambda state, metrics: marks.append(job.run.checkpoints.get("last"))])
    assert [row["step"] for row in run.history] == [4, 8, 9]  # the last one always
    assert marks == [None, None, 3, 4, 4, 6, 6, 8, 9]
    by_epoch = finish(job_of(tmp_path / "e", epochs=2))
    per_epoch = job_of(tmp_path / "f").plan.per_epoch
    assert [row["step"] for row in by_epoch.history] == [per_epoch, 2 * per_epoch]
    assert [row["epoch"] for row in by_epoch.history] == [1.0, 2.0]


@pytest.mark.parametrize("stop", [1, 3, 5, 6])
def test_a_stop_between_two_rows_leaves_no_trace(tmp_path: Path, stop: int) -> None:
    options = {
        "max_steps": 9,
        "evaluate_every": 4,
        "average": 0.5,
        "schedule": "cosine",
        "checkpoint_every": 2,
    }
    whole = finish(job_of(tmp_path / "whole", "mlp", **options))
    job = job_of(tmp_path / "part", "mlp", **options)
    with pytest.raises(KeyboardInterrupt, match=f"saved after {stop} of 9 steps"):
        finish(job, hooks=[stop_after(stop)])
    assert (job.run.reason, job.run.checkpoints["last"]) == ("interrupted", stop)
    assert job.run.checkpoints.get("best") == (4 if stop > 4 else None)
    check_same_run(whole, finish(reopen(job.run.path, None, Training())))


def test_a_stop_after_the_last_step_is_judged_on_resuming(tmp_path: Path) -> None:
    whole = finish(job_of(tmp_path / "whole", max_steps=4, evaluate_every=4))
    job = job_of(tmp_path / "part", max_steps=4, evaluate_every=4)
    with contextlib.suppress(KeyboardInterrupt):
        finish(job, hooks=[stop_after(4)])
    assert job.run.metrics == {}
    check_same_run(whole, finish(reopen(job.run.path, None, Training())))


def test_until_ends_a_training_for_good(tmp_path: Path) -> None:
    run = finish(job_of(tmp_path / "r", max_steps=50, until={"loss": 1.0}))
    assert run.reason == "loss <= 1"
    steps = run.checkpoints["last"]
    assert 1 < steps < 50
    again = margin.resume(run, training=Training(max_steps=60))
    assert (again.reason, again.checkpoints["last"]) == ("loss <= 1", steps)


def test_the_number_of_threads_is_put_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    finish(
        job_of(tmp_path / "r", max_steps=1, threads=before + 1),
        hooks=[lambda state, metrics: seen.append(torch.get_num_threads())],
    )
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


def test_the_loaded_module_answers_in_evaluation_mode(tmp_path: Path) -> None:
    arguments = {**PLAIN, "options": {"dropout": 0.5}}
    run = finish(prepare("mlp", open_data("iris", {}), arguments, replace(SGD, max_steps=1), tmp_path / "r"))
    assert not any(module.training for module in load(run).modules())


def test_least_squares_is_solved_in_the_users_units(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = 5 + torch.tensor([1.0, 100.0, 0.01]) * torch.randn(90, 3, generator=generator)
    y = x @ torch.tensor([2.0, 0.03, 50.0]) - 7 + torch.randn(90, generator=generator)
    data = open_data((x, y), {})
    run = margin.train("linear_regression", data, training=Training(precision="float64"), out=tmp_path / "r")
    part = data.splits["train"]
    design = np.c_[part.inputs[0].double().numpy(), np.ones(len(part))]
    solution = np.linalg.lstsq(design, part.targets.double().numpy(), rcond=None)[0]
    found = load(run)(part.inputs[0].double()).detach().numpy()
    assert np.allclose(found, design @ solution, rtol=0, atol=1e-4)


def test_a_perceptron_learns_behind_its_preprocessing(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = 100 + 3 * torch.randn(150, 2, generator=generator)
    score = (x - 100) @ torch.tensor([1.0, -1.0])
    x, y = x[score.abs() > 0.5], (score[score.abs() > 0.5] > 0).long()
    data = open_data((x, y), {})
    run = margin.train("perceptron", data, out=tmp_path / "r")
    assert run.reason == "mistakes <= 0"
    part = data.splits["train"]
    assert torch.equal(load(run, "last")(part.inputs[0]) > 0, part.targets == 1)


def test_a_run_in_no_named_directory_takes_the_first_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert free_path("feedforward/mlp") == Path("runs/mlp-1")
    (tmp_path / "runs" / "mlp-1").mkdir(parents=True)
    (tmp_path / "runs" / "mlp-3").mkdir()
    assert free_path("feedforward/mlp") == Path("runs/mlp-2")


def test_the_test_part_is_held_out_before_the_validation_part(tmp_path: Path) -> None:
    data = open_data("iris", {})
    run = margin.train("mlp", "iris", training=Training(max_steps=1), out=tmp_path / "r")
    assert torch.equal(held_out(run).inputs[0], data.splits["test"].inputs[0])
    shown = predictions(Run(run.path), "iris")
    logits = load(run)(data.splits["test"].inputs[0])
    assert shown["class"] == [data.encoding["classes"][i] for i in logits.argmax(-1).tolist()]


def test_the_global_generator_is_not_touched(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    finish(job_of(tmp_path / "r", "mlp", max_steps=2))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_hook_sees_the_row_of_its_step(tmp_path: Path) -> None:
    job = job_of(tmp_path / "r", max_steps=4, evaluate_every=2)
    seen = []

    def look(state: State, metrics: Mapping[str, Any]) -> None:
        seen.append(job.run.history[-1]["step"] if job.run.history else 0)

    fit_reason = finish(job, hooks=[look]).reason
    assert (seen, fit_reason) == ([0, 2, 2, 4], "max_steps")


def test_patience_that_is_asked_for_needs_a_part_to_choose_by_and_a_default_waits_for_nothing(
    tmp_path: Path,
) -> None:
    data = open_source("two-moons", {"val": 0.0, "examples": 60})
    training = Training(epochs=30, patience=2, batch_size="all")
    with pytest.raises(ValueError, match="nothing is held out; leave out patience"):
        train("mlp", data, {}, training, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = train("mlp", data, {}, replace(training, patience=None), out=tmp_path / "run")
    assert run.reason == "max_steps"
    assert run.checkpoints["last"] == 30
