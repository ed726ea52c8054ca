"""The perceptron: Rosenblatt's rule against a plain loop and scikit-learn, the margin, ties, XOR."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Perceptron as Reference

from margin.classic.perceptron.averaged_perceptron import AveragedPerceptron, averaged_mistake_rule
from margin.classic.perceptron.kernel_perceptron import KernelPerceptron, dual_mistake_rule
from margin.classic.perceptron.max_margin import MaximumMargin, widest_margin
from margin.classic.perceptron.model import Perceptron, geometric_margin, mistake_rule, mistakes_of_pass
from margin.classic.perceptron.separation import homogeneous
from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, State


def naive_pass(w: np.ndarray, b: float, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, list[int]]:
    """The rule as the paper states it, one row at a time."""
    made = []
    w = w.copy()
    for i in range(len(x)):
        if y[i] * (w @ x[i] + b) <= 0:
            w += y[i] * x[i]
            b += y[i]
            made.append(i)
    return w, b, made


def integers(seed: int, rows: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points whose scores are exact in floating point, so that ties at 0 are ties on any machine."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, (rows, features), generator=generator).double()
    return x, (2 * torch.randint(0, 2, (rows,), generator=generator) - 1).double()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 500])
def test_a_pass_is_the_plain_loop(seed: int, rows: int) -> None:
    x, y = integers(seed, rows, 4)
    w, b = torch.zeros(4, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    expected = (np.zeros(4), 0.0)
    for _ in range(4):
        made = mistakes_of_pass(w, b, x, y)
        *expected, rows_made = naive_pass(*expected, x.numpy(), y.numpy())
        assert made.tolist() == rows_made
        assert w.tolist() == expected[0].tolist()
        assert float(b) == expected[1]


def test_five_passes_are_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 10, generator=generator, dtype=torch.float64)
    y = (x @ torch.randn(10, generator=generator, dtype=torch.float64) > 0.3).double() * 2 - 1
    reference = Reference(shuffle=False, tol=None, max_iter=5).fit(x.numpy(), y.numpy())
    w, b = torch.zeros(10, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for _ in range(5):
        mistakes_of_pass(w, b, x, y)
    assert np.allclose(w.numpy(), reference.coef_[0], rtol=0, atol=1e-9)
    assert abs(float(b) - reference.intercept_[0]) <= 1e-9


def test_a_point_on_the_boundary_is_a_mistake() -> None:
    w, b = torch.zeros(1), torch.zeros(())
    assert mistakes_of_pass(w, b, torch.ones(1, 1), torch.ones(1)).tolist() == [0]
    assert float(w) == 1.0


def test_on_xor_the_iterates_cycle() -> None:
    x = torch.tensor([[0.0, 0], [1, 1], [0, 1], [1, 0]])
    y = torch.tensor([1.0, 1, -1, -1])
    w, b, seen = torch.zeros(2), torch.zeros(()), []
    for _ in range(50):
        assert len(mistakes_of_pass(w, b, x, y)) > 0
        seen.append((*w.tolist(), float(b)))
    assert len(set(seen)) < len(seen)


@pytest.mark.parametrize("seed", range(3))
def test_the_margin_is_the_distance_to_the_hyperplane(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    w, b = torch.randn(3, generator=generator, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    y = (torch.randint(0, 2, (20,), generator=generator) * 2 - 1).double()
    # the nearest point of the hyperplane, by the normal equations of the constrained problem
    system = torch.cat(
        [torch.cat([torch.eye(3), w[:, None]], 1), torch.cat([w, torch.zeros(1)])[None]]
    ).double()
    feet = torch.linalg.solve(system, torch.cat([x, -b.expand(20, 1)], 1).T).T[:, :3]
    distance = (x - feet).norm(dim=1)
    margin = geometric_margin(w, b, x, y)
    assert torch.allclose(margin.abs(), distance, atol=1e-12)
    assert torch.allclose(geometric_margin(5 * w, 5 * b, x, y), margin, atol=1e-12)
    assert ((margin > 0) == (y * (x @ w + b) > 0)).all()


def test_the_boundary_is_minus_b_over_the_norm_from_the_origin() -> None:
    model = Perceptron(3, 2).double()
    model.weight.data = torch.tensor([1.0, -2.0, 2.0], dtype=torch.float64)
    model.bias.data = torch.tensor(4.5, dtype=torch.float64)
    point = -model.bias * model.weight / model.weight.square().sum()
    assert abs(model(point[None]).item()) <= 1e-12
    assert (point @ model.weight / model.weight.norm()).item() == pytest.approx(-4.5 / 3, abs=1e-12)


def test_scaling_the_weights_changes_no_side() -> None:
    model = Perceptron(2, 2)
    model.weight.data, model.bias.data = torch.tensor([1.0, -1.0]), torch.tensor(0.25)
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    before = model(x) > 0
    model.weight.data *= 7
    model.bias.data *= 7
    assert torch.equal(model(x) > 0, before)


def test_the_printed_rule_stops_outside_the_version_space() -> None:
    """Many notes test f(x) != y with sgn(0) = +1: from w = 0 the one point (1, +1) then counts as right."""

    def printed(w: float, x: float, y: float) -> bool:
        return (1.0 if w * x >= 0 else -1.0) != y

    assert not printed(0.0, 1.0, 1.0)  # no mistake: the loop ends at w = 0, whose margin is 0
    w = torch.zeros(1)
    assert mistakes_of_pass(w, None, torch.ones(1, 1), torch.ones(1)).tolist() == [0]
    assert mistakes_of_pass(w, None, torch.ones(1, 1), torch.ones(1)).tolist() == []
    assert w.tolist() == [1.0]


@pytest.mark.parametrize("seed", range(5))
def test_a_separable_set_ends_with_a_positive_margin(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    y = torch.where(x @ torch.tensor([1.0, 2.0, -1.0]).double() > 0.1, 1.0, -1.0).double()
    w, b = torch.zeros(3, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    while len(mistakes_of_pass(w, b, x, y)):
        pass
    assert geometric_margin(w, b, x, y).min() > 0
    # without a bias on augmented points: the same run
    both = torch.zeros(4, dtype=torch.float64)
    while len(mistakes_of_pass(both, None, homogeneous(x, y), torch.ones_like(y))):
        pass
    assert torch.allclose(both, torch.cat((w, b[None])), rtol=0, atol=1e-9)


def stepped(batch: Batch) -> tuple[Perceptron, float]:
    model = Perceptron(batch.inputs[0].shape[1], 2).double()
    return model, mistake_rule()(State({"model": model}), batch)["mistakes"]


def test_weights_scale_the_steps_as_scikit_learns_do() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=generator, dtype=torch.float64)
    labels = (x[:, 0] + 0.5 * torch.randn(300, generator=generator) > 0).long()
    weight = torch.randint(0, 4, (300,), generator=generator).double()
    model, _ = stepped(Batch((x,), labels, weight))
    reference = Reference(shuffle=False, tol=None, max_iter=1)
    reference.fit(x.numpy(), labels.numpy(), sample_weight=weight.numpy())
    assert np.allclose(model.weight.detach(), reference.coef_[0], rtol=0, atol=1e-9)
    assert abs(model.bias.item() - reference.intercept_[0]) <= 1e-9


def test_an_example_of_weight_0_counts_for_nothing_be_it_infinite() -> None:
    x = torch.tensor([[1.0, 2.0], [torch.inf, torch.nan], [-1.0, 0.5]]).double()
    labels = torch.tensor([1, 1, 0])
    model, made = stepped(Batch((x,), labels, torch.tensor([1.0, 0.0, 1.0])))
    without, made_without = stepped(Batch((x[[0, 2]],), labels[[0, 2]]))
    assert torch.equal(model.weight, without.weight)
    assert torch.equal(model.bias, without.bias)
    assert made == made_without


def test_what_is_not_finite_is_refused_before_a_weight_moves() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, -torch.inf]])
    model = Perceptron(2, 2)
    step, state = mistake_rule(), State({"model": model}, step=4)
    with pytest.raises(NonFiniteError, match=r"got -inf in feature 1 of row 1 at step 4"):
        step(state, Batch((x,), torch.tensor([1, 0])))
    with pytest.raises(NonFiniteError, match=r"got -inf in feature 1 of row 2 at step 4"):
        step(state, Batch((x[[0, 0, 1]],), torch.tensor([1, 1, 0]), torch.tensor([0.0, 1.0, 1.0])))
    assert not model.weight.any()


def test_a_batch_without_targets_and_a_negative_weight_are_refused() -> None:
    step, state = mistake_rule(), State({"model": Perceptron(2, 2)})
    with pytest.raises(ValueError, match="needs targets"):
        step(state, Batch((torch.ones(2, 2),)))
    for wrong in (-2.0, torch.nan, torch.inf):
        message = f"must be finite and at least 0: got {wrong:g} in row 1"
        with pytest.raises(ValueError, match=message):
            step(state, Batch((torch.ones(2, 2),), torch.tensor([0, 1]), torch.tensor([1.0, wrong])))


def test_three_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two classes: got num_classes=3"):
        Perceptron(2, 3)


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_label_of_no_side_is_refused_before_a_weight_moves(wrong: int) -> None:
    """2 label - 1 would make a label -1 a step of -3, and a label 2 one of 3."""
    x, labels = torch.tensor([[1.0, 2.0], [3.0, 0.5], [-1.0, 1.0]]), torch.tensor([wrong, 1, wrong])
    weight = torch.tensor([0.0, 1.0, 1.0])
    halfspaces = (
        (Perceptron(2, 2), mistake_rule()),
        (AveragedPerceptron(2, 2), averaged_mistake_rule()),
        (KernelPerceptron(2, 2, 3), dual_mistake_rule()),
        (MaximumMargin(2, 2, 3), widest_margin()),
    )
    for model, step in halfspaces:
        with pytest.raises(ValueError, match=rf"must be 0 or 1: got {wrong} in row 2$"):
            step(State({"model": model}), Batch((x,), labels, weight))
        assert not any(parameter.any() for parameter in model.parameters())
