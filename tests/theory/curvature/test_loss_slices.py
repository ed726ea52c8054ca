"""Slices of the loss: quadratics in closed form, filter norms, what a plane shows, what is refused."""

import gc
import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, nn

from margin.core.catalog import claims
from margin.core.findings import Subject, Verdict, finding_of
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.loss_slices import (
    PLACES,
    box_ascent,
    filter_normalized,
    has_filters,
    losses_at,
    plane,
    random_directions,
)
from margin.theory.curvature.loss_slices import demo as parabola
from margin.theory.curvature.trained_weights import Quadratic

ZEROS = torch.zeros(4, dtype=torch.float64)


def quadratic(*eigenvalues):
    dim = len(eigenvalues)
    q, _ = torch.linalg.qr(torch.randn(dim, dim, generator=Generator().manual_seed(2), dtype=torch.float64))
    A = q @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ q.T
    return quadratic_of((A + A.T) / 2), q


def quadratic_of(A):
    batch = Batch((ZEROS,), ZEROS)
    return Subject(
        model=Quadratic(A), test=[batch], train=[batch], task=VALUES, objective=lambda m, b, g: m(*b.inputs)
    )


def net(dtype=torch.float64):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 3)).to(
        dtype
    )
    x = torch.randn(24, 3, generator=Generator().manual_seed(1), dtype=dtype)
    batch = Batch((x,), torch.arange(24) % 3)
    return Subject(model=model, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))


def test_losses_where_the_weights_are_moved():
    subject, q = quadratic(4.0, 1.0, 0.5)
    directions = torch.stack((q[:, 0], q[:, 2]))
    moves = torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, -3.0]], dtype=torch.float64)
    found = losses_at(subject.model, subject.train, subject.objective, moves, directions)
    A, w = subject.model.A, torch.ones(3, dtype=torch.float64)
    at = [w + m @ directions for m in moves]
    assert torch.allclose(found, torch.stack([v @ A @ v / 2 for v in at]))
    assert torch.equal(subject.model.w.detach(), w)


def test_losses_are_weighted_and_asked_in_evaluation_mode():
    subject = net()
    (batch,) = subject.train
    weight = torch.rand(24, generator=Generator().manual_seed(0), dtype=torch.float64)
    dim = sum(p.numel() for p in subject.model.parameters())
    still = torch.zeros(1, 1), torch.ones(1, dim, dtype=torch.float64)
    found = losses_at(subject.model, [batch._replace(weight=weight)], subject.objective, *still)
    model = subject.model.eval()
    losses = nn.functional.cross_entropy(model(*batch.inputs), batch.targets, reduction="none").detach()
    assert float(found) == pytest.approx(float((weight * losses).sum() / weight.sum()), rel=1e-12)


def test_every_filter_has_the_norm_of_the_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3)).double()
    with torch.no_grad():
        model[0].weight[1] = 0
    direction = filter_normalized(model, Generator().manual_seed(1))
    parts = direction.split([p.numel() for p in model.parameters()])
    for part, p in zip(parts, model.parameters(), strict=True):
        if p.ndim < 2:
            assert not part.any()
            continue
        rows, weights = part.view(len(p), -1), p.detach().flatten(1)
        assert torch.allclose(rows.norm(dim=1), weights.norm(dim=1))
        assert not torch.allclose(rows, weights)
    # a network of another scale gets a direction of that scale
    with torch.no_grad():
        model[3].weight *= 10
    larger = filter_normalized(model, Generator().manual_seed(1)).split(
        [p.numel() for p in model.parameters()]
    )
    assert torch.allclose(larger[4], 10 * parts[4]) and torch.equal(larger[0], parts[0])


def test_the_plane_is_that_of_the_two_sharpest_directions():
    subject, q = quadratic(4.0, 1.0, 0.25, -9.0)
    found = plane(subject, rise=0.5, side=5)
    losses = found.curves["loss on the plane"]
    # the quadratic rises by 1/2 at distance 2 rise / lambda, squared
    first, second = found.curves["first direction"], found.curves["second direction"]
    assert first.tolist() == pytest.approx([-0.5, -0.25, 0, 0.25, 0.5])
    assert second.tolist() == pytest.approx([-1, -0.5, 0, 0.5, 1])
    A, w = subject.model.A, torch.ones(4, dtype=torch.float64)
    signs = [
        math.copysign(1, float(losses[-1, 2] - losses[0, 2])),
        math.copysign(1, float(losses[2, -1] - losses[2, 0])),
    ]
    u, v = (q[:, i] * signs[i] * torch.sign(q[:, i] @ A @ w) for i in (0, 1))
    for i, x in enumerate(first):
        for j, y in enumerate(second):
            at = w + x * u + y * v
            assert float(losses[i, j]) == pytest.approx(float(at @ A @ at / 2), abs=1e-6)
    assert float(found.value) == pytest.approx(float(losses[2, 2] - losses.min()))
    assert "of curvature 4 and 1" in found.statement


def test_at_a_minimum_nothing_is_lower_and_the_rise_is_the_quadratics():
    subject, _ = quadratic(4.0, 1.0, 0.25)
    with torch.no_grad():
        subject.model.w.zero_()
    found = plane(subject, rise=2.0, side=3)
    assert float(found.value) == 0
    assert "it has risen by 2, 2, 2, 2" in found.statement
    corner = found.curves["loss on the plane"][0, 0]
    assert float(corner) == pytest.approx(4)


def test_a_plane_needs_two_directions_that_curve_upwards():
    found = plane(quadratic(1.0, -1.0)[0])
    assert found.verdict == Verdict.FAILED and "fewer than two directions" in found.failure
    with pytest.raises(ValueError, match="two parameters"):
        plane(quadratic_of(torch.ones(1, 1, dtype=torch.float64)))
    for options in ({"side": 4}, {"side": 1}, {"rise": 0.0}):
        with pytest.raises(ValueError, match="rise must be above 0, side odd and at least 3"):
            plane(quadratic(2.0, 1.0)[0], **options)
    broken = plane(quadratic_of(torch.full((2, 2), math.nan, dtype=torch.float64)))
    assert broken.verdict == Verdict.FAILED


def test_along_random_directions_a_parabola_rises_by_its_square():
    found = random_directions(parabola())
    # the weight is 2, the loss (w - 2)^2: moved by s |w| it is 4 s^2, on both sides
    assert found.value.tolist() == pytest.approx([0.16, 1.0, 4.0])
    assert float(found.stderr.max()) < 1e-12
    line = found.curves["direction 1"]
    assert torch.allclose(line, 4 * PLACES**2)


def test_random_slices_of_a_network_carry_an_error_and_repeat():
    subject = net(torch.float32)
    one, two = random_directions(subject), random_directions(subject)
    assert torch.equal(one.value, two.value) and bool((one.stderr > 0).all())
    assert one.verdict == Verdict.MEASURED and len(one.curves) == 9


def test_random_slices_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="needs two directions: got 1"):
        random_directions(net(), directions=1)
    broken = net()
    with torch.no_grad():
        broken.model[0].weight[0, 0] = math.nan
    assert random_directions(broken).verdict == Verdict.FAILED


def test_a_model_of_vectors_has_no_filters():
    row = claims()["theory/loss_slices.random"]
    subject, _ = quadratic(1.0, 2.0)  # its weights are a vector
    assert row.refusal(subject) == "needs a weight matrix or kernel that requires a gradient"
    vector = replace(parabola(), model=Quadratic(torch.eye(2)))
    assert not has_filters(vector)
    batch = Batch((torch.ones(2, 3),), torch.zeros(2, 1))
    linear = Subject(model=nn.Linear(3, 1), test=[batch], task=VALUES, objective=risk(VALUES))
    assert has_filters(linear)
    linear.model.weight.requires_grad_(False)
    assert not has_filters(linear)


def test_questions_that_move_a_copy_leave_none_of_it():
    """Of 25 million weights each copy that stayed was 95 MiB, for the rest of an audit."""
    subject = net()
    gc.collect()
    before = {id(x) for x in gc.get_objects() if isinstance(x, nn.Parameter)}
    for claim in ("sharpness.box", "sharpness.adaptive", "loss_slices.random", "finished.gradient"):
        finding_of(claims()[f"theory/{claim}"], subject)
    gc.collect()
    assert not [x for x in gc.get_objects() if isinstance(x, nn.Parameter) and id(x) not in before]


def test_the_ascent_moves_a_copy_in_the_box_about_the_weights_own():
    """With a linear loss every step goes to the corner, or a quarter of the way: the rise is known."""
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0, -1.0, 0.5]]))
    x = torch.tensor([[1.0, -2.0, 4.0]], dtype=torch.float64).expand(4, 3)
    batch = Batch((x,), torch.zeros(4, 1, dtype=torch.float64))
    rise = {"absolute": 0.1 * (3 * 1 + 2 * 2 + 1.5 * 4), "relative": 0.1 * (2 * 1 + 1 * 2 + 0.5 * 4)}
    for box, expected in rise.items():
        found = box_ascent(model, [batch], lambda m, b, g: m(*b.inputs)[:, 0], epsilon=0.1, box=box, steps=4)
        assert found.loss == pytest.approx(2 + 2 + 2)
        assert found.highest - found.loss == pytest.approx(expected)
    assert model.weight.tolist() == [[2.0, -1.0, 0.5]]
