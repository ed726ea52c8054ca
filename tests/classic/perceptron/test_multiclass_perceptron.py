"""The multiclass perceptron: the plain loop, Kesler's points, two classes as Rosenblatt's, ties, weights."""

import numpy as np
import pytest
import torch

from margin.classic.perceptron.model import mistakes_of_pass
from margin.classic.perceptron.multiclass_perceptron import (
    MulticlassPerceptron,
    kesler_points,
    multiclass_mistake_rule,
    multiclass_mistakes_of_pass,
)
from margin.classic.perceptron.separation import separate
from margin.core.types import Batch
from margin.engine.loop import State


def integers(seed: int, rows: int, features: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points whose scores are exact in floating point, so that ties are ties on any machine."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, (rows, features), generator=generator).double()
    return x, torch.randint(0, classes, (rows,), generator=generator)


def naive_pass(W: np.ndarray, b: np.ndarray, x: np.ndarray, labels: np.ndarray, update: str) -> list[int]:
    """The rule row by row, as it is defined."""
    made = []
    for i, y in enumerate(labels):
        scores = W @ x[i] + b
        rivals = [r for r in range(len(W)) if r != y]
        if max(scores[r] for r in rivals) < scores[y]:
            continue
        made.append(i)
        best = max(rivals, key=lambda r: scores[r])
        giving = [best] if update == "highest" else [r for r in rivals if scores[r] >= scores[y]]
        W[y] += x[i]
        b[y] += 1
        for r in giving:
            W[r] -= x[i] / len(giving)
            b[r] -= 1 / len(giving)
    return made


@pytest.mark.parametrize("update", ["highest", "uniform"])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("rows", [1, 33, 300])
def test_a_pass_is_the_plain_loop(rows: int, classes: int, update: str) -> None:
    x, labels = integers(rows + classes, rows, 4, classes)
    weight, bias = torch.zeros(classes, 4).double(), torch.zeros(classes).double()
    W, b = np.zeros((classes, 4)), np.zeros(classes)
    for _ in range(3):
        made = multiclass_mistakes_of_pass(weight, bias, x, labels, torch.ones(rows).double(), update)
        assert made.tolist() == naive_pass(W, b, x.numpy(), labels.numpy(), update)
        assert np.allclose(weight, W, rtol=0, atol=1e-12)
        assert np.allclose(bias, b, rtol=0, atol=1e-12)


def test_with_two_classes_it_is_rosenblatts_rule() -> None:
    x, labels = integers(0, 200, 3, 2)
    weight, bias = torch.zeros(2, 3).double(), torch.zeros(2).double()
    w, c = torch.zeros(3).double(), torch.zeros(()).double()
    for _ in range(5):
        made = multiclass_mistakes_of_pass(weight, bias, x, labels, torch.ones(200).double())
        assert made.tolist() == mistakes_of_pass(w, c, x, 2.0 * labels.double() - 1).tolist()
    assert torch.equal(weight[1] - weight[0], 2 * w)
    assert torch.equal(weight[1], -weight[0])
    assert float(bias[1] - bias[0]) == 2 * float(c)


def test_what_the_rivals_give_is_what_the_label_gets() -> None:
    x, labels = integers(3, 100, 4, 4)
    for update in ("highest", "uniform"):
        weight, bias = torch.zeros(4, 4).double(), torch.zeros(4).double()
        multiclass_mistakes_of_pass(weight, bias, x, labels, torch.ones(100).double(), update)
        assert weight.sum(0).abs().max() <= 1e-12
        assert weight.any()


def test_the_first_point_moves_its_label_and_by_update_one_rival_or_all() -> None:
    x, label, one = torch.tensor([[2.0, 4.0]]), torch.tensor([1]), torch.ones(1)
    highest, uniform = torch.zeros(3, 2), torch.zeros(3, 2)
    multiclass_mistakes_of_pass(highest, torch.zeros(3), x, label, one)
    multiclass_mistakes_of_pass(uniform, torch.zeros(3), x, label, one, "uniform")
    assert highest.tolist() == [[-2, -4], [2, 4], [0, 0]]
    assert uniform.tolist() == [[-1, -2], [2, 4], [-1, -2]]


def test_keslers_points_are_the_comparisons_of_scores() -> None:
    x, labels = integers(1, 20, 3, 4)
    z = kesler_points(x, labels, 4)
    assert z.shape == (60, 16)
    model = MulticlassPerceptron(3, 4).double()
    generator = torch.Generator().manual_seed(0)
    model.weight.data = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    model.bias.data = torch.randn(4, generator=generator, dtype=torch.float64)
    flat = torch.cat((model.weight, model.bias[:, None]), 1).detach().flatten()
    scores = model(x).detach()
    expected = [
        float(scores[i, labels[i]] - scores[i, r]) for i in range(20) for r in range(4) if r != int(labels[i])
    ]
    assert (z @ flat).tolist() == pytest.approx(expected, abs=1e-12)
    lengths = 2 * (x.square().sum(1) + 1)
    assert torch.equal(z.square().sum(1), lengths.repeat_interleave(3))


def test_on_separable_classes_it_ends_with_every_label_first() -> None:
    centers = torch.tensor([[0.0, 6.0], [5.0, -3.0], [-5.0, -3.0]]).double()
    labels = torch.arange(90) % 3
    x = centers[labels] + torch.randn(90, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert separate(kesler_points(x, labels, 3)).separable
    model, step = MulticlassPerceptron(2, 3).double(), multiclass_mistake_rule(update="uniform")
    state = State({"model": model})
    while float(step(state, Batch((x,), labels))["mistakes"]):
        pass
    scores = model(x)
    own = scores.gather(1, labels[:, None])
    assert ((scores < own).sum(1) == 2).all()


def test_a_weight_of_two_is_a_step_of_twice_the_size() -> None:
    x, labels = integers(5, 40, 2, 3)
    model = MulticlassPerceptron(2, 3).double()
    multiclass_mistake_rule()(State({"model": model}), Batch((x[:1],), labels[:1], torch.tensor([2.0])))
    assert torch.equal(model.weight[labels[0]].detach(), 2 * x[0])


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_classes must be at least 2: got 1"):
        MulticlassPerceptron(2, 1)
