"""Exercises: the answer holds, each form that is often written does not and is called by name."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import margin
from margin.auditing.book.chapters import chapters, exercises, run
from margin.auditing.exercises.judging import Answer, equal, shown
from margin.core.findings import Verdict

TASKS = {name: task for name, (task, _) in exercises().items()}
WRONG = [(name, title) for name, task in TASKS.items() for title in task.wrong]


def made(name: str, code: str) -> Callable[..., Any]:
    function: Callable[..., Any] = run(code)[name]
    return function


@pytest.mark.parametrize("name", TASKS)
def test_the_answer_holds(name: str) -> None:
    finding = margin.exercise(name, made(name, TASKS[name].answer))
    assert finding.verdict is Verdict.HOLDS
    assert set(finding.verdicts) == {Verdict.HOLDS}
    assert finding.remarks == ()
    assert finding.premises


@pytest.mark.parametrize(("name", "title"), WRONG)
def test_a_form_that_is_often_written_is_violated_and_named(name: str, title: str) -> None:
    finding = margin.exercise(name, made(name, TASKS[name].wrong[title]))
    expected = Verdict.FAILED if title.endswith("not a number") else Verdict.VIOLATED
    assert finding.verdict is expected
    first, *named = finding.remarks
    label = next(label for label in finding.labels if first.startswith(f"{label}: "))
    assert len(first.removeprefix(label)) > 20
    assert named == [f"Often written, and wrong: {title}."]


def test_every_chapter_has_an_exercise_of_one_of_its_claims_with_wrong_forms() -> None:
    for chapter in chapters():
        assert chapter.exercises, chapter.name
        for name, task in chapter.exercises.items():
            assert task.claim in chapter.sections
            assert len(task.wrong) >= 2, name
            assert len({*task.wrong.values(), task.answer}) == len(task.wrong) + 1
            assert max(map(len, task.stub.splitlines())) <= 80
            assert "Premises: " in task.stub
            assert 5 <= task.minutes <= 30
            assert {inspect.signature(made(name, code)) for code in (task.stub, *task.wrong.values())} == {
                inspect.signature(made(name, task.answer))
            }


def test_a_stub_says_that_it_is_not_written() -> None:
    for name, task in TASKS.items():
        with pytest.raises(ValueError, match=f"^{name} raised NotImplementedError"):
            margin.exercise(name, made(name, task.stub))


def test_another_right_way_holds_too() -> None:
    """The judge asks what the theorem says, not how it is written."""

    def slower(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return w + y * x / 2 if y * (w @ x) <= 0 else w  # from 0, the rate changes no sign

    def shifted(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return b @ x - x @ w.triu() @ x + 7  # up to a constant

    assert margin.exercise("perceptron_step", slower).verdict is Verdict.HOLDS
    assert margin.exercise("hopfield_energy", shifted).verdict is Verdict.HOLDS


def gcn(a: Tensor) -> Tensor:
    b = a + torch.eye(len(a), dtype=a.dtype)
    return b / (b.sum(1)[:, None] * b.sum(1)).sqrt()


def in_place(a: Tensor) -> Tensor:
    a.fill_diagonal_(1.0)
    return gcn(a)


def fails(a: Tensor) -> Tensor:
    raise KeyError("no such node")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            lambda a: gcn(a)[0],
            r"gcn_norm must return a tensor of shape \(4, 4\) for A of shape \(4, 4\): got \(4,\)",
        ),
        (
            lambda a: gcn(a).float(),
            "must return the dtype that it is given, torch.float64: got torch.float32",
        ),
        (lambda a: gcn(a).numpy(), r"must return a tensor of shape \(4, 4\): got ndarray"),
        (lambda a: None, "must return a tensor of shape .*: got NoneType"),
        (in_place, "gcn_norm must leave its arguments as they are: it changed A"),
        (fails, "gcn_norm raised KeyError: 'no such node'"),
        (lambda a, b: gcn(a), r"must take 1 arguments, \(A\): got \(a, b\)"),
    ],
)
def test_a_function_that_is_none_of_the_kind_is_told_in_one_line(function: Any, said: str) -> None:
    assert margin.exercise("gcn_norm", gcn).verdict is Verdict.HOLDS
    with pytest.raises(ValueError, match=said) as raised:
        margin.exercise("gcn_norm", function)
    assert "\n" not in str(raised.value)


def test_one_tensor_in_place_of_two_is_told() -> None:
    with pytest.raises(ValueError, match=r"must return 2 tensors, of shapes \(3,\), \(\): got Tensor"):
        margin.exercise("diffusion_posterior", lambda x_0, x_t, a, b: x_0)


def test_a_name_that_is_none_is_told_with_all_that_are() -> None:
    with pytest.raises(
        ValueError, match=r"must be one of perceptron_step, hopfield_energy, .*: got 'ridges'"
    ):
        margin.exercise("ridges", gcn)


def test_a_gradient_and_a_number_are_accepted() -> None:
    def learned(a: Tensor) -> Tensor:
        return gcn(a) * torch.ones((), dtype=a.dtype, requires_grad=True)

    assert margin.exercise("gcn_norm", learned).verdict is Verdict.HOLDS
    assert Answer("f", lambda: 1, ()).one(()) == 1.0
    with pytest.raises(ValueError, match="got bool"):
        Answer("f", lambda: True, ()).one(())


def test_an_error_is_relative_and_tells_where_it_is_largest() -> None:
    right = torch.tensor([[1.0, 200.0], [3.0, 4.0]]).double()
    got = right + torch.tensor([[0.0, 1.0], [4.0, 0.0]]).double()
    trial = equal("case", got, right, "x = 1")
    assert (trial.value, trial.low, trial.high) == (4 / 200, 0.0, 0.0)
    assert trial.told == "got 7 at [1, 0], right is 3, for x = 1"
    none = equal("case", torch.tensor([0.0, math.nan]).double(), torch.zeros(2).double())
    assert math.isnan(none.value)
    assert none.told == "got nan at [1], right is 0"


def test_a_large_input_is_told_by_its_shape() -> None:
    assert shown("x, y, norm, n", torch.ones(2), torch.ones(4, 5), math.inf, 3) == (
        "x = [1, 1], y = a tensor (4, 5), norm = inf, n = 3"
    )
