"""The loss as a function of the weights, and what is known of it for models that are affine in them."""

import dataclasses

import pytest
import torch
from torch import Generator, nn

from margin.core.findings import Subject
from margin.core.tasks import BINARY, CLASSES, HALFSPACE, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.dynamics.weight_function import (
    WeightFunction,
    curved,
    is_affine,
    is_affine_squared,
    loss_of,
)


def subject_of(model, task, seed=0, dtype=torch.float64, classes=3, rows=30):
    g = Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=g, dtype=torch.float64).to(dtype)
    y = torch.randint(2 if task is BINARY else classes, (rows,), generator=g)
    y = torch.randn(rows, generator=g, dtype=torch.float64).to(dtype) if task is VALUES else y
    weight = torch.rand(rows, generator=g, dtype=torch.float64).to(dtype)
    batches = [Batch((x[:20],), y[:20], weight[:20]), Batch((x[20:],), y[20:], weight[20:])]
    return Subject(model=model.to(dtype), test=batches, train=batches, task=task, objective=risk(task))


def scalar(*layers):
    return nn.Sequential(*layers, nn.Flatten(0))


class Rows(nn.Module):
    """One row for two classes, as logistic regression has it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x):
        z = self.linear(x)
        return torch.cat((torch.zeros_like(z), z), -1)


class Frozen(nn.Module):
    """A net of which the last map alone is trained."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6).requires_grad_(False), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.first(x).tanh())


class Product(nn.Module):
    """Linear in each of two factors, not in both."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3, bias=False), nn.Linear(3, 3, bias=False)

    def forward(self, x):
        return self.b(self.a(x))


AFFINE = [
    (lambda: nn.Linear(4, 3), CLASSES),
    (lambda: scalar(nn.Linear(4, 1)), BINARY),
    (lambda: scalar(nn.Linear(4, 1)), VALUES),
    (Frozen, CLASSES),
]
CURVED = [
    (Product, CLASSES),
    (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), CLASSES),
    (lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh()), CLASSES),
    (lambda: nn.Sequential(nn.Linear(4, 3), nn.Hardtanh(-0.5, 0.5)), CLASSES),
    (lambda: scalar(nn.Linear(4, 1)), HALFSPACE),  # a loss that has kinks
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("build", "task"), AFFINE)
def test_models_that_are_affine_in_their_weights_are_found(build, task, dtype):
    torch.manual_seed(0)
    subject = subject_of(build(), task, dtype=dtype)
    assert is_affine(subject)
    assert is_affine_squared(subject) is (task is VALUES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("build", "task"), CURVED)
def test_others_are_not(build, task, dtype):
    torch.manual_seed(0)
    assert not is_affine(subject_of(build(), task, dtype=dtype))


def test_other_objectives_and_models_without_weights_are_not():
    subject = subject_of(nn.Linear(4, 3), CLASSES)
    other = dataclasses.replace(subject, objective=lambda m, b, g: CLASSES.loss(m(*b.inputs), b.targets) ** 2)
    assert loss_of(subject) is CLASSES and loss_of(other) is None and not is_affine(other)
    assert not is_affine(subject_of(nn.Linear(4, 3).requires_grad_(False), CLASSES))


def test_the_function_is_the_weighted_mean_loss_by_hand():
    subject = subject_of(scalar(nn.Linear(4, 1)), VALUES)
    h = WeightFunction(subject.model, subject.train, subject.objective)
    x, y, weight = (
        torch.cat(parts) for parts in zip(*((b.inputs[0], b[1], b[2]) for b in subject.train), strict=False)
    )
    theta = torch.randn(5, generator=Generator().manual_seed(1), dtype=torch.float64)
    expected = (weight * (x @ theta[:4] + theta[4] - y) ** 2).sum() / weight.sum()
    assert h(theta).item() == pytest.approx(expected.item(), rel=1e-12)
    before = subject.model[0].weight.clone()
    h(theta + 1)
    assert torch.equal(subject.model[0].weight, before)
    assert h(h.weights).item() == pytest.approx(
        (weight * (subject.model(x) - y) ** 2).sum().item() / weight.sum().item(), rel=1e-12
    )


def exact_hessian(h, theta):
    return torch.func.jacrev(torch.func.jacrev(h))(theta)


@pytest.mark.parametrize(("build", "task"), [*AFFINE, (Rows, CLASSES)])
def test_the_bound_is_above_every_hessian_and_reached(build, task):
    torch.manual_seed(1)
    subject = subject_of(build(), task, classes=2 if build is Rows else 3)
    h = WeightFunction(subject.model, subject.train, subject.objective)
    known = curved(h, task)
    assert not known.failure and known.matrix.shape == (len(h.weights),) * 2
    assert pytest.approx(torch.linalg.eigvalsh(known.matrix)[-1].item(), rel=1e-8) == known.L
    g = Generator().manual_seed(2)
    for scale in (0.0, 1.0, 5.0):
        theta = scale * torch.randn(len(h.weights), generator=g, dtype=torch.float64)
        below = torch.linalg.eigvalsh(known.matrix - exact_hessian(h, theta))
        assert float(below[0]) >= -1e-10  # never above, in any direction
    at_zero = exact_hessian(h, torch.zeros_like(h.weights))
    if task is not CLASSES or build is Rows:
        assert torch.allclose(known.matrix, at_zero, atol=1e-10)  # two classes and squares: attained at 0
    assert all(premise.status in ("proved", "sampled") for premise in known.premises)


def test_of_logistic_regression_it_is_a_quarter_of_the_covariance():
    subject = subject_of(scalar(nn.Linear(4, 1, bias=False)), BINARY)
    batches = [batch._replace(weight=None) for batch in subject.train]
    X = torch.cat([batch.inputs[0] for batch in batches])
    known = curved(WeightFunction(subject.model, batches, subject.objective), BINARY)
    assert pytest.approx(torch.linalg.eigvalsh(X.T @ X)[-1].item() / (4 * len(X)), rel=1e-8) == known.L


def test_many_weights_are_measured_by_lanczos_to_the_same_number():
    g = Generator().manual_seed(0)
    x = torch.randn(50, 100, generator=g, dtype=torch.float64)
    batch = [Batch((x,), torch.randint(3, (50,), generator=g))]
    model = nn.Linear(100, 3).double()
    known = curved(WeightFunction(model, batch, risk(CLASSES)), CLASSES)
    xb = torch.cat((x, torch.ones(50, 1)), 1)
    exact = torch.linalg.eigvalsh(xb.T @ xb)[-1].item() / 50 / 2
    assert known.matrix.numel() == 0 and exact * (1 - 1e-9) <= known.L <= exact * (1 + 2e-4)


def test_a_model_that_does_not_depend_on_its_weights_has_no_constant():
    model = nn.Linear(4, 3).double()
    zero = [Batch((torch.full((5, 4), float("nan")).double(),), torch.zeros(5, dtype=torch.long))]
    assert "not finite" in curved(WeightFunction(model, zero, risk(CLASSES)), CLASSES).failure
    blank = nn.Linear(4, 3, bias=False).double()
    rows = [Batch((torch.zeros(5, 4).double(),), torch.zeros(5, dtype=torch.long))]
    assert "do not depend" in curved(WeightFunction(blank, rows, risk(CLASSES)), CLASSES).failure
