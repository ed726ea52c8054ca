"""Mistake bounds of the multiclass and the kernel perceptron: they hold, are attained, need separability."""

import dataclasses

import pytest
import torch

from margin.classic.perceptron.kernel_perceptron import KernelPerceptron
from margin.classic.perceptron.mistake_bounds import (
    embedded,
    is_kernel,
    is_multiclass,
    kernel,
    kernel_demo,
    multiclass,
    multiclass_demo,
)
from margin.classic.perceptron.multiclass_perceptron import MulticlassPerceptron
from margin.core.findings import Subject, Verdict
from margin.core.tasks import HALFSPACE, SCORES
from margin.core.types import Batch
from margin.engine.loop import risk


def of_classes(x: torch.Tensor, labels: torch.Tensor, classes: int) -> Subject:
    batches = [Batch((x,), labels)]
    model = MulticlassPerceptron(x.shape[1], classes)
    return Subject(model=model, test=batches, train=batches, task=SCORES, objective=risk(SCORES))


def of_kernel(x: torch.Tensor, labels: torch.Tensor, **options: object) -> Subject:
    batches = [Batch((x,), labels)]
    model = KernelPerceptron(x.shape[1], 2, len(x), **options)
    return Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))


@pytest.mark.parametrize("seed", range(6))
def test_the_multiclass_bound_holds_on_random_sets(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 3, generator=generator)
    labels = (x @ torch.randn(3, 4, generator=generator)).argmax(1)
    finding = multiclass(of_classes(x, labels, 4))
    assert finding.verdict is Verdict.HOLDS
    assert int(finding.value) > 2


def test_the_multiclass_bound_is_attained() -> None:
    # one point and one rival: a single point of Kesler's, whose length is the margin
    finding = multiclass(of_classes(torch.tensor([[3.0, 4.0]]), torch.tensor([1]), 2))
    assert (int(finding.value), int(finding.high)) == (1, 1)


def test_the_multiclass_bound_needs_separable_classes() -> None:
    x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    finding = multiclass(of_classes(x, torch.tensor([0, 1, 2]), 3))
    assert finding.verdict is Verdict.UNFOUNDED
    assert "infeasible" in finding.premises[0].evidence


@pytest.mark.parametrize("options", [{"degree": 3}, {"kernel": "gaussian", "width": 0.5}])
@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_bound_holds_on_random_points(seed: int, options: dict) -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(seed))
    product = x.prod(1)
    x = x[product.abs() > 0.2]  # classes of opposite quadrants, apart
    finding = kernel(of_kernel(x, (x.prod(1) > 0).long(), **options))
    assert finding.verdict is Verdict.HOLDS
    assert int(finding.value) > 2


def test_the_kernel_bound_is_attained_by_points_that_do_not_see_each_other() -> None:
    # far apart under a narrow Gaussian the examples are orthonormal: n mistakes, bound n
    x = 100 * torch.eye(9)
    finding = kernel(of_kernel(x, torch.arange(9) % 2, kernel="gaussian"))
    assert (int(finding.value), int(finding.high)) == (9, 9)


def test_the_kernel_bound_needs_separability_in_its_space() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    finding = kernel(of_kernel(x, torch.tensor([1, 1, 0, 0]), degree=1))
    assert finding.verdict is Verdict.UNFOUNDED
    assert kernel(kernel_demo()).verdict is Verdict.HOLDS


def test_a_run_that_is_cut_short_fails() -> None:
    assert kernel(kernel_demo(), passes=1).verdict is Verdict.FAILED


def test_embedded_points_have_the_kernel_as_inner_products() -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = (x @ x.T + 1) ** 2
    points = embedded(K)
    assert torch.allclose(points @ points.T, K, rtol=0, atol=1e-10)


def test_which_subjects_the_bounds_are_for() -> None:
    assert is_kernel(kernel_demo())
    assert is_multiclass(multiclass_demo())
    assert not is_kernel(multiclass_demo())
    assert not is_multiclass(kernel_demo())


def test_sets_too_large_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("margin.classic.perceptron.mistake_bounds.MOST_KERNEL", 3)
    assert not is_kernel(kernel_demo())
    rows = len(multiclass_demo().train[0].inputs[0])
    for numbers, applies in ((rows * 2 * 3 * 3, True), (rows * 2 * 3 * 3 - 1, False)):
        monkeypatch.setattr("margin.classic.perceptron.mistake_bounds.MOST_ENTRIES", numbers)
        assert is_multiclass(multiclass_demo()) == applies


def test_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a KernelPerceptron: got a MulticlassPerceptron"):
        kernel(dataclasses.replace(multiclass_demo(), train=kernel_demo().train))
