"""The Polyak-Lojasiewicz ratio: closed forms, a lower estimate on the path, a track that leaves no trace."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import State, risk
from margin.testing import Snapshot
from margin.theory.curvature.trained_weights import Quadratic
from margin.theory.dynamics.rate_claims import along_path, pl_ratio, slope_of, track
from margin.theory.dynamics.rate_claims import pl_demo as demo


def test_the_ratio_of_a_quadratic_lies_between_its_curvatures():
    finding = along_path(demo())
    assert finding.value.item() == pytest.approx(5 / 2)  # |(3, 1)|^2 / (2 * 2)
    assert finding.kind == "lower" and finding.verdict is Verdict.MEASURED
    for w, expected in (((1.0, 0.0), 3.0), ((0.0, 1.0), 1.0)):
        subject = demo()
        with torch.no_grad():
            subject.model.w.copy_(torch.tensor(w))
        subject = dataclasses.replace(subject, history=[])
        assert along_path(subject).value.item() == pytest.approx(expected)


def test_the_least_of_the_weights_the_first_weights_and_the_history_counts():
    flat = Quadratic(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)))
    with torch.no_grad():
        flat.w.copy_(torch.tensor([0.0, 1.0]))
    assert along_path(dataclasses.replace(demo(), initial=flat)).value.item() == pytest.approx(1)
    rows = [{"step": 0, "pl_ratio": 0.25}, {"step": 1, "pl_ratio": math.nan}, {"step": 2}]
    finding = along_path(dataclasses.replace(demo(), history=rows))
    assert finding.value.item() == 0.25 and not finding.curves  # one point is no curve
    assert set(along_path(demo()).curves) == {"step", "pl_ratio"}


def test_a_lower_bound_of_the_least_loss_gives_a_lower_estimate():
    # h = (x^2 + 1) / 2 has h* = 1/2 and the ratio 1 everywhere; with 0 for h* it is x^2 / (x^2 + 1)
    for x in (0.1, 1.0, 10.0):
        assert pl_ratio(x, x**2 / 2) == pytest.approx(1)
        assert pl_ratio(x, (x**2 + 1) / 2) == pytest.approx(x**2 / (x**2 + 1)) and x**2 / (x**2 + 1) < 1
    assert math.isnan(pl_ratio(1.0, 0.0)) and math.isnan(pl_ratio(1.0, -1.0))


def test_a_negative_loss_is_unfounded_and_a_loss_that_is_no_number_failed():
    saddle = dataclasses.replace(
        demo(), model=Quadratic(torch.diag(torch.tensor([1.0, -3.0], dtype=torch.float64))), history=[]
    )
    assert along_path(saddle).verdict is Verdict.UNFOUNDED
    broken = dataclasses.replace(demo(), model=Quadratic(torch.full((2, 2), math.nan).double()), history=[])
    assert along_path(broken).verdict is Verdict.FAILED
    at_rest = dataclasses.replace(demo(), model=Quadratic(torch.zeros(2, 2).double()), history=[])
    with pytest.raises(NotAsked, match="there is no gap"):
        along_path(at_rest)


def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2))
    g = torch.Generator().manual_seed(1)
    batches = [
        Batch((torch.randn(5, 3, generator=g),), torch.randint(2, (5,), generator=g)),
        Batch(
            (torch.randn(3, 3, generator=g),),
            torch.randint(2, (3,), generator=g),
            torch.tensor([1.0, 0.5, 0.0]),
        ),
    ]
    return model, batches


def test_the_slope_is_that_of_the_weighted_mean_over_all_batches():
    model, batches = net()
    found = slope_of(model, batches, risk(CLASSES))
    model.eval()
    x, y = (torch.cat(parts) for parts in zip(*((b.inputs[0], b.targets) for b in batches), strict=False))
    w = torch.tensor([1.0] * 6 + [0.5, 0.0])
    loss = (w * nn.functional.cross_entropy(model(x), y, reduction="none")).sum() / w.sum()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    norm = torch.cat([g.flatten() for g in grads]).norm()
    assert found.risk == pytest.approx(loss.item(), rel=1e-5)
    assert found.gradient_norm == pytest.approx(norm.item(), rel=1e-5)


def test_the_track_leaves_no_trace_and_works_where_no_gradient_is_asked():
    model, batches = net()
    model.train()
    subject = Subject(model=model, test=batches, task=CLASSES, objective=risk(CLASSES))
    before = Snapshot.of(subject)
    state = State({"model": model}, {}, seed=0)
    with torch.no_grad():
        columns = track(state, risk(CLASSES), batches)
    assert not before.difference(subject)
    assert set(columns) == {"risk", "risk_gradient_norm", "pl_ratio"}
    assert columns["pl_ratio"] == pytest.approx(columns["risk_gradient_norm"] ** 2 / (2 * columns["risk"]))
    negative = track(state, lambda m, b, g: -VALUES.loss(m(*b.inputs)[:, 0], b.targets.float()), batches)
    assert math.isnan(negative["pl_ratio"])
