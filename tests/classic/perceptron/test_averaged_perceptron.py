"""The averaged perceptron: the plain mean of all weights, scikit-learn's averaged SGD, batches, weights."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import SGDClassifier

from margin.classic.perceptron.averaged_perceptron import (
    AveragedPerceptron,
    averaged_mistake_rule,
    mean_of_pass,
)
from margin.core.types import Batch
from margin.engine.loop import State


def noisy(seed: int, rows: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + torch.randn(rows, generator=generator) > 0.2).long()


def naive(x: np.ndarray, labels: np.ndarray, passes: int) -> tuple[np.ndarray, float, int]:
    """The mean over all examples met of the weights after each, kept one by one."""
    w, b, ws, bs, mistakes = np.zeros(x.shape[1]), 0.0, [], [], 0
    for _ in range(passes):
        for row, label in zip(x, labels, strict=True):
            y = 2 * label - 1
            if y * (w @ row + b) <= 0:
                w, b, mistakes = w + y * row, b + y, mistakes + 1
            ws.append(w)
            bs.append(b)
    return np.mean(ws, 0), float(np.mean(bs)), mistakes


@pytest.mark.parametrize("sizes", [(120,), (50, 70), (1, 2, 117)])
def test_the_weights_are_the_mean_of_all_that_were_passed_through(sizes: tuple[int, ...]) -> None:
    x, labels = noisy(0, 120, 3)
    model, step = AveragedPerceptron(3, 2).double(), averaged_mistake_rule()
    state, made = State({"model": model}), 0.0
    for _ in range(3):
        for rows, of in zip(x.split(list(sizes)), labels.split(list(sizes)), strict=True):
            made += float(step(state, Batch((rows,), of))["mistakes"])
    w, b, mistakes = naive(x.numpy(), labels.numpy(), 3)
    assert np.allclose(model.weight.detach(), w, rtol=0, atol=1e-11)
    assert abs(model.bias.item() - b) <= 1e-11
    assert made == mistakes
    assert int(model.met) == 360
    assert mistakes > 50


def test_they_are_scikit_learns_averaged_descent_on_the_perceptron_loss() -> None:
    x, labels = noisy(1, 400, 5)
    model, step = AveragedPerceptron(5, 2).double(), averaged_mistake_rule()
    state = State({"model": model})
    for _ in range(4):
        step(state, Batch((x,), labels))
    descent = SGDClassifier(
        "perceptron",
        penalty=None,
        learning_rate="constant",
        eta0=1.0,
        average=True,
        shuffle=False,
        tol=None,
        max_iter=4,
    ).fit(x.numpy(), labels.numpy())
    assert np.allclose(model.weight.detach(), descent.coef_[0], rtol=0, atol=1e-9)
    assert abs(model.bias.item() - descent.intercept_[0]) <= 1e-9


def test_a_step_counts_from_its_own_row_on() -> None:
    # by hand: 4 rows, a step of 8 at row 1: after rows 1, 2, 3 the weight is 9, before it 1
    mean = mean_of_pass(torch.tensor([1.0]), torch.tensor([[8.0]]), torch.tensor([1]), 4)
    assert mean.tolist() == [7.0]


def test_the_mean_errs_less_than_the_last_on_data_that_are_not_separable() -> None:
    # five paired seeds; the weights after 20 passes, judged on fresh points
    better = []
    for seed in range(5):
        x, labels = noisy(10 + seed, 2000, 10)
        model, step = AveragedPerceptron(10, 2).double(), averaged_mistake_rule()
        state = State({"model": model})
        for _ in range(20):
            step(state, Batch((x[:1000],), labels[:1000]))
        mean = ((model(x[1000:]) > 0) == labels[1000:]).double().mean()
        last = ((x[1000:] @ model.current_weight + model.current_bias > 0) == labels[1000:]).double().mean()
        better.append(float(mean - last))
    gain = torch.tensor(better)
    assert gain.mean() - 2.776 * gain.std() / 5**0.5 > 0  # the paired 95 % t interval excludes 0


def test_examples_of_weight_0_are_not_met() -> None:
    x, labels = noisy(2, 60, 2)
    weight = torch.ones(60).double()
    weight[::3] = 0
    step = averaged_mistake_rule()
    one, other = AveragedPerceptron(2, 2).double(), AveragedPerceptron(2, 2).double()
    step(State({"model": one}), Batch((x,), labels, weight))
    step(State({"model": other}), Batch((x[weight > 0],), labels[weight > 0]))
    assert torch.equal(one.weight, other.weight)
    assert int(one.met) == int(other.met) == 40
    step(State({"model": one}), Batch((x,), labels, torch.zeros(60).double()))
    assert torch.equal(one.weight, other.weight)


def test_three_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two classes: got num_classes=3"):
        AveragedPerceptron(2, 3)
