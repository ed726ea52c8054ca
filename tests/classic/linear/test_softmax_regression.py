"""Softmax regression: stationary at its stated loss for two classes and more, scikit-learn's, or refused."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression as Reference

from margin.classic.linear.softmax_regression import SoftmaxRegression, penalized_likelihood, solve_softmax
from margin.core.types import Batch
from margin.engine.loop import State


def problem(classes: int = 3, rows: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(classes)
    labels = torch.arange(rows) % classes
    x = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    return x + F.one_hot(labels, max(3, classes))[:, :3], labels


def solved(
    x: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor | None = None, **options: float
) -> State:
    classes = int(labels.max()) + 1
    state = State({"model": SoftmaxRegression(3, classes, tolerance=1e-9, **options).double()})
    penalized_likelihood()(state, Batch((x,), labels, weight))
    return state


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("penalty", [0.0, 0.01, 1.0])
def test_the_gradient_of_the_stated_loss_is_zero(classes: int, penalty: float) -> None:
    x, labels = problem(classes)
    weight = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.2
    model = solved(x, labels, weight, penalty=penalty).model
    losses = F.cross_entropy(model(x), labels, reduction="none")
    loss = (weight * losses).sum() / weight.sum() + penalty / 2 * model.weight.square().sum()
    for slope in torch.autograd.grad(loss, tuple(model.parameters())):
        assert slope.abs().max() < 1e-6


def test_the_probabilities_are_scikit_learns_of_no_penalty() -> None:
    x, y = load_iris(return_X_y=True)
    x, y = x[50:, :3], y[50:] - 1  # two species that overlap
    model = solved(torch.from_numpy(x), torch.from_numpy(y), penalty=0.0).model
    peer = Reference(C=np.inf, tol=1e-10, max_iter=10_000).fit(x, y)
    ours = model(torch.from_numpy(x)).softmax(-1).detach().numpy()
    np.testing.assert_allclose(ours, peer.predict_proba(x), atol=1e-5)


def test_of_weights_two_is_two_examples_and_zero_none() -> None:
    x, labels = problem()
    weight = torch.tensor([0.0, 2, 1, 1, 3] * 12).double()
    many = weight.long()
    one = solved(x, labels, weight, penalty=0.1).model
    two = solved(x.repeat_interleave(many, 0), labels.repeat_interleave(many), penalty=0.1).model
    assert torch.allclose(one.weight, two.weight, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_separable_classes_without_a_penalty_are_refused(classes: int) -> None:
    x, labels = torch.eye(3).double()[torch.arange(30) % classes], torch.arange(30) % classes
    with pytest.raises(
        ValueError, match=r"the likelihood of separable classes has no maximum.*penalty above 0"
    ):
        solved(x, labels, penalty=0.0)
    assert solved(x, labels, penalty=1e-3).model.weight.isfinite().all()


def test_a_class_without_an_example_is_refused() -> None:
    x, labels = problem()
    with pytest.raises(
        ValueError, match="every class must have an example of weight above 0: class 1 has none"
    ):
        solved(x, labels, (labels != 1).double())


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (2.0, "from 0 to 1: got 2"),
        (-1.0, "from 0 to 1: got -1"),
        (0.5, r"from 0 to 1: got 0\.5"),
    ],
)
def test_labels_that_are_not_two_classes_are_refused(label: float, message: str) -> None:
    x, labels = problem(2)
    labels = labels.double()
    labels[7] = label
    with pytest.raises(ValueError, match=f"labels must be whole numbers {message}"):
        solve_softmax(x, labels, torch.ones(60).double(), 2, 0.1, 1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_duplicate_column_shares_its_weight_and_a_constant_one_has_none(classes: int) -> None:
    x, labels = problem(classes)
    wide = torch.cat((x, x[:, :1], torch.full((60, 1), 3.0).double()), 1)
    W, _ = solve_softmax(wide, labels.double(), torch.ones(60).double(), classes, 0.1, 1e-9)
    assert torch.allclose(W[:, 0], W[:, 3], atol=1e-6)
    assert W[:, 4].abs().max() < 1e-6  # the bias, which is free, takes its place
    assert W[:, 0].abs().max() > 0.1


def test_fewer_rows_than_features_are_separable() -> None:
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels, weight = (torch.arange(5) % 2).double(), torch.ones(5).double()
    with pytest.raises(ValueError, match="separable classes has no maximum"):
        solve_softmax(x, labels, weight, 2, 0.0, 1e-5)
    W, b = (p.requires_grad_() for p in solve_softmax(x, labels, weight, 2, 0.1, 1e-9))
    loss = F.cross_entropy(x @ W.T + b, labels.long()) + 0.05 * W.square().sum()
    for slope in torch.autograd.grad(loss, (W, b)):
        assert slope.abs().max() < 1e-6


def test_a_solver_that_is_cut_short_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("margin.classic.linear.softmax_regression.MOST_ITERATIONS", 1)
    x, labels = problem()
    with pytest.raises(ValueError, match="must converge in 1 iterations: it did not with penalty=0"):
        solve_softmax(x, labels.double(), torch.ones(60).double(), 3, 0.0, 1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": -1.0}, "penalty must be at least 0 and finite: got -1.0"),
        ({"tolerance": 0.0}, "tolerance must be positive: got 0.0"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SoftmaxRegression(3, 2, **options)
    with pytest.raises(ValueError, match="num_classes must be at least 2: got 1"):
        SoftmaxRegression(3, 1)
