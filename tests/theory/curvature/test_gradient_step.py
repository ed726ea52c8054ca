"""The step ratio: exact on quadratics, the reading of a real loss, the track of a training."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, nn

from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import State, risk
from margin.theory.curvature.hessian import risk_hessian
from margin.theory.curvature.smoothness import (
    along_gradient,
    along_gradient_claim,
    has_learning_rate,
    last_rate,
    step_demo,
    step_ratio,
    track,
)
from margin.theory.curvature.trained_weights import Quadratic


def quadratic(A, w):
    model = Quadratic(torch.as_tensor(A, dtype=torch.float64))
    with torch.no_grad():
        model.w.copy_(torch.as_tensor(w, dtype=torch.float64))
    return dataclasses.replace(step_demo(), model=model)


def found_of(subject):
    with risk_hessian(subject.model, subject.train, subject.objective) as hessian:
        return along_gradient(hessian)


@pytest.mark.parametrize("seed", range(8))
def test_on_a_quadratic_the_loss_rises_if_and_only_if_the_ratio_exceeds_one(seed):
    generator = Generator().manual_seed(seed)
    A = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    A = A + A.T if seed % 2 else A @ A.T
    w = torch.randn(4, generator=generator, dtype=torch.float64)
    found = found_of(quadratic(A, w))

    def loss(w):
        return (w @ A @ w / 2).item()

    g = A @ w
    assert found.norm == pytest.approx(g.norm().item(), rel=1e-12)
    # the decision boundary, from both sides; and the printed form, divided by |g|^2, decides otherwise
    etas = [0.1, 1.0]
    if found.largest_eta < math.inf:
        etas += [found.largest_eta * (1 - 1e-6), found.largest_eta * (1 + 1e-6)]
    for eta in etas:
        assert (loss(w - eta * g) > loss(w)) == (found.ratio(eta) > 1)
        change = loss(w - eta * g) - loss(w)
        assert change == pytest.approx(-eta * (g @ g).item() * (1 - found.ratio(eta)), rel=1e-6, abs=1e-9)


def test_the_printed_forms_fail():
    # The notes divide the second-order term by |g|^2: at |g| = 10 their criterion calls a good step bad or
    # a bad one good.
    A, w = torch.diag(torch.tensor([1.0, 1.0]).double()), torch.tensor([6.0, 8.0]).double()
    g, eta = A @ w, 3.0
    rises = ((w - eta * g) @ A @ (w - eta * g) > w @ A @ w).item()
    printed = (eta / 2 * (g @ A @ g) / (g @ g) >= g @ g).item()
    assert rises and not printed
    assert found_of(quadratic(A, w)).ratio(eta) == pytest.approx(1.5)


def test_by_hand():
    found = along_gradient_claim(step_demo())
    assert found.value.item() == pytest.approx(7 / 5)
    assert "below 1.429" in found.statement
    assert step_ratio(step_demo()).value.item() == pytest.approx(0.7)
    assert "would lower it" in step_ratio(step_demo()).statement
    fast = dataclasses.replace(step_demo(), history=[{"lr": 0.1}, {"lr": 2.0}, {"val_loss": 1.0}])
    assert step_ratio(fast).value.item() == pytest.approx(1.4)
    assert "would raise it" in step_ratio(fast).statement


def test_no_curvature_stops_a_step_downhill():
    found = along_gradient_claim(quadratic(torch.diag(torch.tensor([-1.0, -2.0])), [1.0, 1.0]))
    assert found.value.item() < 0 and "at every learning rate" in found.statement


def test_at_a_critical_point_there_is_no_direction():
    for claim in (along_gradient_claim, step_ratio):
        with pytest.raises(NotAsked, match="the gradient of the loss is 0"):
            claim(quadratic(torch.eye(2), [0.0, 0.0]))


def test_the_need_of_a_learning_rate():
    assert has_learning_rate(step_demo()) and last_rate(step_demo()) == 1.0
    bare = dataclasses.replace(step_demo(), history=[{"step": 1}])
    assert not has_learning_rate(bare)
    with pytest.raises(ValueError, match="the history holds none"):
        step_ratio(bare)


def classifier():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    generator = Generator().manual_seed(1)
    x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    batches = [Batch((x,), torch.randint(3, (50,), generator=generator))]
    return Subject(model=model, test=batches, train=batches, task=CLASSES, objective=risk(CLASSES))


def test_on_a_network_it_is_the_second_difference_of_the_loss_along_the_gradient():
    subject = classifier()
    (batch,) = subject.train
    found = found_of(subject)
    parameters = list(subject.model.parameters())

    def loss():
        return CLASSES.loss(subject.model(*batch.inputs), batch.targets).mean()

    grads = torch.autograd.grad(loss(), parameters)
    norm = math.sqrt(sum(g.square().sum().item() for g in grads))
    assert found.norm == pytest.approx(norm, rel=1e-12)
    values = []
    h = 1e-3
    with torch.no_grad():
        for shift in (-h, 2 * h, -h):
            for p, g in zip(parameters, grads, strict=True):
                p += shift / norm * g
            values.append(loss().item())
    second = (values[0] + values[1] - 2 * values[2]) / h**2
    assert found.curvature == pytest.approx(second, rel=1e-4)


def test_the_track_follows_a_training_and_leaves_no_trace():
    subject = classifier()
    optimizer = torch.optim.SGD(subject.model.parameters(), lr=0.3)
    state = State({"model": subject.model}, {"": optimizer})
    before = {name: x.clone() for name, x in subject.model.state_dict().items()}
    subject.model.train()
    rng = torch.get_rng_state()
    row = track(state, subject.objective, subject.train)
    assert subject.model.training and torch.equal(torch.get_rng_state(), rng)
    assert all(torch.equal(x, before[name]) for name, x in subject.model.state_dict().items())
    found = found_of(subject)
    assert row["gradient_norm"] == found.norm
    assert row["curvature_ratio"] == pytest.approx(0.15 * found.curvature)
    from margin.theory.curvature.hutchinson import as_symmetric

    with risk_hessian(subject.model, subject.train, subject.objective) as H:
        values = torch.linalg.eigvalsh(as_symmetric(H, H.dim))
    assert row["smoothness"] == pytest.approx(values.abs().max().item(), rel=1e-3)
    assert "curvature_ratio" not in track(State({"model": subject.model}), subject.objective, subject.train)


def test_gradient_descent_on_a_quadratic_ends_at_the_edge_of_its_ratio():
    # With eta = 2 / L the iterate swings along the top eigenvector: the ratio is 1.
    A = torch.diag(torch.tensor([4.0, 1.0]).double())
    w, eta = torch.tensor([1.0, 1.0]).double(), 0.5
    for _ in range(60):
        w = w - eta * A @ w
    assert found_of(quadratic(A, w)).ratio(eta) == pytest.approx(1, abs=1e-9)


def test_nan_fails():
    for claim in (along_gradient_claim, step_ratio):
        found = claim(quadratic(torch.eye(2), [math.nan, 1.0]))
        assert found.verdict == Verdict.FAILED and "not finite" in found.failure


def test_the_track_takes_whole_batches_at_equal_distances():
    subject = classifier()
    sizes = []

    def objective(model, batch, generator):
        sizes.append((len(batch.inputs[0]), float(batch.inputs[0][0, 0])))
        out = model(*batch.inputs)
        return (out - out.mean(0)).square().sum(1)  # its examples read each other

    generator = Generator().manual_seed(3)
    batches = [Batch((torch.randn(512, 4, generator=generator, dtype=torch.float64),)) for _ in range(6)]
    track(State({"model": subject.model}), objective, batches)
    taken = {float(batches[i].inputs[0][0, 0]) for i in (0, 3)}
    assert set(sizes) == {(512, x) for x in taken}
