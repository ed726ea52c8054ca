"""A training beside the theorem that speaks of it: repeated, refused, bounded."""

import copy
import dataclasses
import math

import pytest
import torch
from torch import Generator, nn

from margin.core.catalog import claims
from margin.core.findings import Subject, Verdict
from margin.core.tasks import BINARY, CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.dynamics.training_rates import demo, fitted, repeat_descent, segment, training


def trained(lr_share=1.0, steps=80, *, separable=False, momentum=0.0, minibatch=False, dtype=torch.float64):
    """Logistic regression after gradient descent at a share of 1/L, batch by batch as a history has it."""
    g = Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g, dtype=torch.float64)
    noise = 0 if separable else 1.5 * torch.randn(60, generator=g, dtype=torch.float64)
    y = (x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + noise > 0).long()
    xb = torch.cat((x, torch.ones(60, 1)), 1)
    L = torch.linalg.eigvalsh(xb.T @ xb)[-1].item() / 240
    x = x.to(dtype)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)).to(dtype)
    initial = copy.deepcopy(model)
    lr = lr_share / L
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    history = []
    for step in range(1, steps + 1):
        rows = slice(0, 30) if minibatch else slice(None)
        loss = BINARY.loss(model(x[rows]), y[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append({"step": step, "train_loss": loss.item(), "lr": lr})
    model.zero_grad(set_to_none=True)
    batches = [Batch((x[:40],), y[:40]), Batch((x[40:],), y[40:])]
    return Subject(
        model=model,
        initial=initial,
        test=batches,
        train=batches,
        task=BINARY,
        objective=risk(BINARY),
        history=history,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("steps", [1, 80])
def test_gradient_descent_keeps_the_bound_with_a_minimizer_and_without(steps, separable, dtype):
    finding = training(trained(steps=steps, separable=separable, dtype=dtype))
    assert finding.verdict is Verdict.HOLDS
    assert finding.high.isfinite() and finding.high > 0


def test_the_bound_is_no_looser_than_that_of_the_minimizer():
    subject = trained(steps=80)
    X = torch.cat([b.inputs[0] for b in subject.train])
    X, y = torch.cat((X, torch.ones(60, 1)), 1), torch.cat([b.targets for b in subject.train]).double()
    theta = lambda model: torch.cat((model[0].weight[0], model[0].bias)).detach()
    w = torch.zeros(4, dtype=torch.float64)
    for _ in range(30):  # Newton
        p = torch.sigmoid(X @ w)
        w = w - torch.linalg.solve(X.T @ (X * (p * (1 - p))[:, None]), X.T @ (p - y))
    least = torch.nn.functional.binary_cross_entropy_with_logits(X @ w, y)
    distance2 = (theta(subject.initial) - w).square().sum()
    eta = subject.history[0]["lr"]
    classic = least + distance2 / (2 * eta * 80)
    assert training(subject).high.item() <= classic.item() + 1e-9
    # and no tighter than the best z allows: the strongly convex problem has this minimum
    z = w.clone().requires_grad_()
    solver = torch.optim.LBFGS([z], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        total = torch.nn.functional.binary_cross_entropy_with_logits(X @ z, y)
        total = total + (z - theta(subject.initial)).square().sum() / (2 * eta * 80)
        total.backward()
        return total

    best = solver.step(closure)
    assert training(subject).high.item() == pytest.approx(closure().item(), rel=1e-6) and best is not None


@pytest.mark.parametrize(
    ("options", "refuted"),
    [
        ({"momentum": 0.9}, "whole loss at a constant rate"),
        ({"minibatch": True}, "whole loss at a constant rate"),
        ({"lr_share": 1.5}, "at most 1/L"),
    ],
)
def test_another_training_or_too_large_a_rate_is_unfounded(options, refuted):
    finding = training(trained(**options))
    assert finding.verdict is Verdict.UNFOUNDED
    assert [p.text for p in finding.premises if p.status == "refuted"][-1].endswith(refuted)


def test_a_rate_that_changes_or_is_not_known_is_unfounded():
    subject = trained()
    for rows in (
        [dict(row, lr=row["lr"] / row["step"]) for row in subject.history],
        [{"step": row["step"]} for row in subject.history],
    ):
        finding = training(dataclasses.replace(subject, history=rows))
        assert finding.verdict is Verdict.UNFOUNDED and finding.high is None
        assert "constant rate" in claims()["theory/rates.training"].refusal(
            dataclasses.replace(subject, history=rows)
        )


def test_inputs_that_are_no_numbers_fail_and_prove_nothing():
    subject = trained()
    subject.train[0].inputs[0][0, 0] = math.nan
    finding = training(subject)
    assert finding.failure and finding.high is None
    assert finding.premises[-1].status == "assumed"


def test_weights_of_an_earlier_step_are_found_as_such():
    subject = trained(steps=30)
    rows = [*subject.history, {"step": 60, "train_loss": 0.1, "lr": subject.history[0]["lr"]}]
    found = repeat_descent(subject, subject.history[0]["lr"], 60)
    assert found.step == 30 and found.off < 1e-12
    assert "after 30 steps" in training(dataclasses.replace(subject, history=rows)).statement


def test_a_training_too_long_to_repeat_is_not_asked():
    claim = claims()["theory/rates.training"]
    subject = trained()
    assert not claim.refusal(subject)
    assert "short enough" in claim.refusal(dataclasses.replace(subject, history=[{"step": 10**7, "lr": 0.1}]))
    assert "weights that" in claim.refusal(dataclasses.replace(subject, initial=None))


def test_the_demonstration_has_the_bound_of_its_closed_form():
    # curvatures 4 and 2 from (0, 0) to (0.8, 1.4), nine steps at 1/4: the best z minimizes
    # 4 (a - 0.8)^2 / 2 + 2 (b - 1.4)^2 / 2 + (a^2 + b^2) / 4.5, coordinate by coordinate
    y = torch.tensor([1.0, -1.0, 2.0, 1.0, 4.0], dtype=torch.float64)
    least = (y.square().mean() - 1.4**2 - 2 * 0.8**2).item()
    gap = sum(c / 2 / 4.5 / (c / 2 + 1 / 4.5) * m**2 for c, m in ((4, 0.8), (2, 1.4)))
    finding = training(demo())
    assert finding.high.item() == pytest.approx(least + gap, rel=1e-6)
    assert finding.value.item() == pytest.approx(least + 2 * 1.4**2 / 2 / 4**9, rel=1e-9)


def rows_of(values, every=1):
    return [{"step": every * (i + 1), "train_loss": v} for i, v in enumerate(values)]


def test_the_rate_of_a_history():
    geometric = dataclasses.replace(demo(), history=rows_of([0.9**i for i in range(20)], every=5))
    finding = fitted(geometric)
    assert finding.value[0].item() == pytest.approx(0.9 ** (1 / 5)) and finding.stderr[0] < 1e-12
    power = dataclasses.replace(demo(), history=rows_of([1 / (i + 1) for i in range(20)]))
    finding = fitted(power)
    assert finding.value[1].item() == pytest.approx(-1) and finding.stderr[1] < 1e-12 < finding.stderr[0]
    assert finding.verdict is Verdict.MEASURED


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, None])
def test_a_history_that_is_too_short_or_not_positive_is_refused_with_words(bad):
    claim = claims()["theory/rates.fitted"]
    short = dataclasses.replace(demo(), history=rows_of([1.0] * 7 + [bad]))
    assert "8 evaluations" in claim.refusal(short)
    assert fitted(short).failure.startswith("a rate needs at least 8 training losses")


def net(kind):
    torch.manual_seed(0)
    if kind == "affine":
        return nn.Linear(3, 3)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize("kind", ["affine", "net"])
def test_the_segment_of_an_affine_model_has_no_negative_curvature_and_a_net_may(kind):
    g = Generator().manual_seed(2)
    batch = Batch((torch.randn(40, 3, generator=g),), torch.randint(3, (40,), generator=g))
    first, last = net(kind), net(kind)
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(-3)  # the segment goes through a net whose layers vanish
    subject = Subject(
        model=last, initial=first, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES)
    )
    before = [p.clone() for p in (*first.parameters(), *last.parameters())]
    finding = segment(subject)
    after = [*first.parameters(), *last.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    if kind == "affine":
        assert finding.verdict is Verdict.HOLDS and finding.value > 0
    else:
        assert finding.verdict is Verdict.MEASURED and finding.value < -0.1
    ends = finding.curves["loss"][[0, -1]]
    for end, model in zip(ends.tolist(), (first, last), strict=True):
        loss = nn.functional.cross_entropy(model(*batch.inputs), batch.targets).item()
        assert end == pytest.approx(loss, rel=1e-6)


def test_the_second_difference_of_a_parabola_is_its_curvature():
    # along the way from (0, 0) to theta the loss is a parabola of curvature theta' diag(4, 2) theta
    finding = segment(demo())
    b, w = demo().model[0].bias.item(), demo().model[0].weight.item()
    assert finding.value.item() == pytest.approx(4 * w**2 + 2 * b**2, rel=1e-9)
