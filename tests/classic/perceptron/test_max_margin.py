"""The widest separator: known margins, the machine, optimality to rounding, scale and shift, refusals."""

import pytest
import torch
from scipy.optimize import minimize
from sklearn.datasets import load_iris
from sklearn.svm import SVC

from margin.classic.perceptron.max_margin import MaximumMargin, maximum_margin, widest_margin
from margin.classic.perceptron.model import geometric_margin, mistakes_of_pass
from margin.classic.perceptron.separation import xor
from margin.core.types import Batch
from margin.data.sets.synthetic import separable
from margin.engine.loop import State


def labeled(seed: int, rows: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    w = torch.randn(features, generator=generator, dtype=torch.float64)
    return x, torch.where(x @ w > 0.3, 1.0, -1.0).double()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", [(20, 1), (60, 3), (30, 80)])
def test_the_conditions_of_optimality_hold_to_rounding(seed: int, shape: tuple[int, int]) -> None:
    x, sign = labeled(seed, *shape)
    found = maximum_margin(x, sign)
    slack = sign * (x @ found.weight + found.bias) - 1
    total = found.multipliers.sum()
    assert slack.min() >= -1e-9
    assert found.multipliers.min() >= 0
    assert ((found.multipliers * sign) @ x - found.weight).norm() <= 1e-9 * found.weight.norm()
    assert (found.multipliers @ sign).abs() <= 1e-9 * total
    assert (
        found.multipliers * slack
    ).abs().sum() <= 1e-8 * total  # support vectors sit at exactly the margin
    assert found.margin == pytest.approx(float(1 / found.weight.norm()), rel=1e-9)
    assert found.margin * (1 - 1e-12) <= found.bound <= found.margin * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_machine_finds_the_same_plane(seed: int) -> None:
    x, sign = labeled(seed, 40, 2)
    found = maximum_margin(x, sign)
    machine = SVC(kernel="linear", C=1e9, tol=1e-8).fit(x.numpy(), sign.numpy())
    w = torch.tensor(machine.coef_[0])
    width = geometric_margin(w, torch.tensor(machine.intercept_[0]), x, sign).min()
    assert float(width) == pytest.approx(found.margin, rel=1e-4)
    assert width <= found.bound
    assert torch.allclose(w / w.norm(), found.weight / found.weight.norm(), rtol=0, atol=1e-3)


def test_a_general_solver_finds_the_same_plane() -> None:
    x, sign = labeled(9, 25, 2)
    found = maximum_margin(x, sign)
    rows, y = x.numpy(), sign.numpy()
    constraint = {"type": "ineq", "fun": lambda v: y * (rows @ v[:2] + v[2]) - 1}
    start = torch.cat((found.weight, found.bias[None])).numpy() * 2
    solved = minimize(lambda v: v[:2] @ v[:2] / 2, start, constraints=[constraint], method="SLSQP", tol=1e-12)
    assert solved.success
    assert solved.x == pytest.approx([*found.weight.tolist(), float(found.bias)], rel=1e-5)


@pytest.mark.parametrize("shape", [(60, 3), (30, 40), (100, 8)])
def test_classes_of_unequal_size_are_solved_too(shape: tuple[int, int]) -> None:
    # one class is rare: the bias is far from 0, and a solver that penalizes it picks other support vectors
    for seed in range(15):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        w = torch.randn(shape[1], generator=generator, dtype=torch.float64)
        sign = torch.where(x @ w > 0.8 * w.norm(), 1.0, -1.0).double()
        found = maximum_margin(x, sign)
        assert found.bound <= found.margin * (1 + 1e-9)


@pytest.mark.parametrize("margin", [0.01, 0.5])
@pytest.mark.parametrize("features", [1, 2, 10])
def test_a_known_separator_is_found(margin: float, features: int) -> None:
    data = separable(examples=80, features=features, margin=margin, bias=0.7)
    truth, part = data.encoding["truth"], data.splits["train"]
    x, sign = part.inputs[0].double(), 2.0 * part.targets.double() - 1
    found = maximum_margin(x, sign)
    assert found.margin == pytest.approx(truth["margin"], rel=1e-9)
    assert (found.weight * found.margin).tolist() == pytest.approx(truth["weight"], abs=1e-7)
    assert float(found.bias) * found.margin == pytest.approx(truth["bias"], abs=1e-7)


def test_two_points_by_hand() -> None:
    found = maximum_margin(torch.tensor([[1.0, 0.0], [4.0, 4.0]]), torch.tensor([-1.0, 1.0]))
    # 5 apart: margin 5/2, w = 2 (3, 4) / 25, a = 1 / (2 (5/2)^2) each
    assert found.margin == pytest.approx(2.5, abs=1e-12)
    assert found.weight.tolist() == pytest.approx([0.24, 0.32], abs=1e-12)
    assert float(found.bias) == pytest.approx(-1.24, abs=1e-12)
    assert found.multipliers.tolist() == pytest.approx([0.08, 0.08], abs=1e-12)


def test_no_perceptron_has_a_larger_margin() -> None:
    for seed in range(5):
        x, sign = labeled(seed, 60, 4)
        widest = maximum_margin(x, sign)
        w, b = torch.zeros(4).double(), torch.zeros(()).double()
        while len(mistakes_of_pass(w, b, x, sign)):
            pass
        assert 0 < geometric_margin(w, b, x, sign).min() <= widest.margin * (1 + 1e-9)


def test_the_margin_is_that_of_moved_and_stretched_points() -> None:
    x, sign = labeled(1, 50, 3)
    found = maximum_margin(x, sign)
    moved = maximum_margin(1e3 * x + torch.tensor([2e5, -1e4, 7.0]), sign)
    assert moved.margin == pytest.approx(1e3 * found.margin, rel=1e-6)
    assert moved.bound == pytest.approx(1e3 * found.bound, rel=1e-6)


def test_duplicates_and_constant_columns_change_nothing() -> None:
    x, sign = labeled(2, 40, 2)
    twice = torch.cat((torch.cat((x, torch.full((40, 1), 3.0).double()), 1),) * 2)
    found, doubled = maximum_margin(x, sign), maximum_margin(twice, torch.cat((sign, sign)))
    assert doubled.margin == pytest.approx(found.margin, rel=1e-9)
    assert float(doubled.weight[2].abs()) <= 1e-9 * float(found.weight.norm())


def test_what_cannot_be_separated_is_refused_with_the_proof() -> None:
    with pytest.raises(
        ValueError, match="two classes that a hyperplane separates: the linear program is infeasible"
    ):
        maximum_margin(*xor())
    same = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="the linear program is infeasible"):
        maximum_margin(same, torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"a margin lies between two classes: got 2 examples of one"):
        maximum_margin(same, torch.ones(2))


def test_a_step_puts_the_separator_of_iris_into_the_model() -> None:
    x, species = (torch.tensor(array) for array in load_iris(return_X_y=True))
    labels = (species == 0).long()
    weight = torch.ones(150).double()
    weight[3] = 0
    model = MaximumMargin(4, 2, 150).double()
    metrics = widest_margin()(State({"model": model}), Batch((x,), labels, weight))
    scores = (2 * labels - 1) * model(x).detach()
    assert scores.min() >= 1 - 1e-9
    assert float(model.multipliers[3]) == 0
    assert metrics["support_vectors"] == float((model.multipliers > 0).sum())
    assert float(metrics["geometric_margin"]) == pytest.approx(
        float(1 / model.weight.detach().norm()), rel=1e-9
    )


def test_a_weight_other_than_0_changes_nothing() -> None:
    x, sign = labeled(4, 30, 2)
    labels = (sign > 0).long()
    one, other = MaximumMargin(2, 2, 30).double(), MaximumMargin(2, 2, 30).double()
    widest_margin()(State({"model": one}), Batch((x,), labels))
    widest_margin()(State({"model": other}), Batch((x,), labels, torch.linspace(0.5, 4, 30).double()))
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.multipliers, other.multipliers)


def test_a_part_of_the_examples_and_three_classes_are_refused() -> None:
    step, state = widest_margin(), State({"model": MaximumMargin(2, 2, 5)})
    with pytest.raises(ValueError, match=r"of all training examples: got 2 of 5; leave batch_size at all"):
        step(state, Batch((torch.ones(2, 2),), torch.tensor([0, 1])))
    with pytest.raises(ValueError, match=r"two classes: got num_classes=3"):
        MaximumMargin(2, 3, 5)
