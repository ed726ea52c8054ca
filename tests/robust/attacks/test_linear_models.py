"""Closed forms of linear models against linear and quadratic programs."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.robust.attacks.linear_models import (
    across,
    linear_distance,
    nearest_boundary,
    other_classes,
    rival_slopes,
)

NORMS = ["linf", "l2", "l1"]


def program(w, shift, low, high, norm):
    """min ||d||_p with w.d = shift, low <= d <= high, by scipy."""
    d = len(w)
    if norm == "l2":
        found = minimize(
            lambda v: v @ v,
            np.clip(w * shift / (w @ w), low, high),
            jac=lambda v: 2 * v,
            bounds=list(zip(low, high, strict=True)),
            constraints={"type": "eq", "fun": lambda v: w @ v - shift, "jac": lambda v: w},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        assert found.success
        return np.sqrt(found.fun)
    bound = 1 if norm == "linf" else d  # d, then the largest size or the size of each
    sizes = np.ones((d, 1)) if norm == "linf" else np.eye(d)
    found = linprog(
        np.concatenate([np.zeros(d), np.ones(bound)]),
        A_ub=np.block([[np.eye(d), -sizes], [-np.eye(d), -sizes]]),
        b_ub=np.zeros(2 * d),
        A_eq=np.concatenate([w, np.zeros(bound)])[None],
        b_eq=[shift],
        bounds=[*zip(low, high, strict=True), *[(0, None)] * bound],
    )
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(6))
def test_the_least_displacement_in_a_box_is_the_programs(norm, seed):
    rng = np.random.default_rng(seed)
    w, low, high = rng.normal(size=5), -rng.uniform(0, 1, 5), rng.uniform(0, 1, 5)
    w[1], low[2] = 0.0, 0.0  # a coordinate that does not matter, and one at the box's end
    most = np.where(w > 0, w * high, w * low).sum()
    least = np.where(w > 0, w * low, w * high).sum()
    for shift in (0.3 * most, 0.9 * most, 0.6 * least, 0.999 * least):
        tensors = [torch.from_numpy(a)[None] for a in (w, low, high)]
        d = across(tensors[0], torch.tensor([shift]), tensors[1], tensors[2], norm)[0].numpy()
        assert (d >= low - 1e-12).all() and (d <= high + 1e-12).all()
        assert w @ d == pytest.approx(shift, rel=1e-9)
        size = np.linalg.norm(d, {"linf": np.inf, "l2": 2, "l1": 1}[norm])
        assert size == pytest.approx(program(w, shift, low, high, norm), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_beyond_the_box_it_is_the_corner_that_reaches_farthest(norm):
    w, side = torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([[0.5, 0.25, 1.0]])
    d = across(w, torch.tensor([9.0]), -side, side, norm)
    assert d.tolist() == [[0.5, -0.25, 0.0]]
    nothing = across(torch.zeros(1, 3), torch.tensor([1.0]), -side, side, norm)
    assert nothing.tolist() == [[0.0, 0.0, 0.0]]
    assert not across(w, torch.tensor([0.0]), -side, side, norm).any()


@pytest.mark.parametrize(("norm", "expected"), [("linf", 5 / 7), ("l2", 1.0), ("l1", 1.25)])
def test_the_distance_from_a_hyperplane_by_hand(norm, expected):
    x, w = torch.tensor([[2.0, 0.5]]).double(), torch.tensor([3.0, -4.0]).double()
    assert linear_distance(x, w, torch.tensor(1.0).double(), norm).tolist() == [pytest.approx(expected)]


@pytest.mark.parametrize("norm", NORMS)
def test_nothing_drawn_at_random_turns_a_score_nearer_than_the_distance(norm):
    generator = torch.Generator().manual_seed(0)
    w, x = torch.randn(6, generator=generator).double(), torch.randn(4, 6, generator=generator).double()
    f, distance = x @ w + 0.3, linear_distance(x, w, torch.tensor(0.3).double(), norm)
    order = {"linf": torch.inf, "l2": 2, "l1": 1}[norm]
    for _ in range(300):
        d = torch.randn(4, 6, generator=generator).double()
        d = d / torch.linalg.vector_norm(d, order, dim=1, keepdim=True) * distance[:, None]
        assert ((f + d @ w).sign() == f.sign()).all() or ((f + d @ w).abs() < 1e-12).any()
    d = across(w.expand(4, 6), -f, torch.tensor(-torch.inf), torch.tensor(torch.inf), norm)
    torch.testing.assert_close(f + d @ w, torch.zeros(4).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.vector_norm(d, order, dim=1), distance)


def classifier(classes=4, features=5):
    torch.manual_seed(1)
    model = nn.Linear(features, classes).double()
    x = torch.randn(12, features).double()
    return model, Batch((x,), model(x).argmax(1))


@pytest.mark.parametrize("norm", NORMS)
def test_of_several_classes_the_nearest_plane_counts_and_there_two_are_equal(norm):
    model, batch = classifier()
    x, y = batch.inputs[0], batch.targets
    rivals = other_classes(model(x), y, 9)
    assert rivals.shape == (12, 3) and not (rivals == y[:, None]).any()
    found = nearest_boundary(*rival_slopes(model, batch, CLASSES, rivals), rivals, norm)
    w, b = model.weight.detach(), model.bias.detach()
    wide = np.full(5, 50.0)
    for i in range(12):
        sizes = []
        for j in set(range(4)) - {int(y[i])}:
            v = (w[j] - w[y[i]]).numpy()
            gap = float(v @ x[i].numpy() + b[j] - b[y[i]])
            sizes.append(program(v, -gap, -wide, wide, norm))
        assert found.distance[i].item() == pytest.approx(min(sizes), rel=1e-5)
    scores = model(x + found.delta)
    tie = scores.gather(1, found.rival[:, None]) - scores.gather(1, y[:, None])
    assert tie.abs().max() < 1e-9
    assert (scores.amax(1) - scores.gather(1, y[:, None])[:, 0] < 1e-9).all()  # and no third is above


def test_the_printed_form_without_brackets_is_no_multiplier():
    """(f_y - f_j) / ||w||^2 (w_j - w_y); f_y - f_j / ||w||^2 as one of the notes prints misses the plane."""
    model, batch = classifier()
    x, y = batch.inputs[0], batch.targets
    rivals = other_classes(model(x), y, 1)
    gaps, slopes = rival_slopes(model, batch, CLASSES, rivals)
    found = nearest_boundary(gaps, slopes, rivals, "l2")
    step = slopes[:, 0]
    square = step.square().sum(1, keepdim=True)
    torch.testing.assert_close(found.delta, -gaps / square * step)
    scores = model(x).detach()
    printed = scores.gather(1, y[:, None]) - scores.gather(1, rivals) / square
    assert (found.delta - printed * step).abs().amax(1).min() > 1e-3


def test_a_box_without_a_point_of_any_plane_is_infinitely_far():
    gaps, slopes = torch.tensor([[-5.0, -1.0]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    rivals, side = torch.tensor([[1, 2]]), torch.tensor([0.5, 0.5])
    assert nearest_boundary(gaps, slopes, rivals, "linf", (-side, side)).distance.tolist() == [torch.inf]
    near = nearest_boundary(gaps, slopes, rivals, "linf", (-3 * side, 3 * side))
    assert near.distance.tolist() == [1.0] and near.rival.tolist() == [2]


def test_the_nearest_plane_without_the_box_need_not_be_so_within():
    """In l-infinity d_0 + .1 d_1 = 1 lies at .91, with |d_0| <= .5 at 5; d_1 = 2 lies at 2 in both."""
    slopes = torch.tensor([[[1.0, 0.1], [0.0, 1.0]]])
    gaps, rivals = torch.tensor([[-1.0, -2.0]]), torch.tensor([[7, 8]])
    box = torch.tensor([[-0.5, -9.0]]), torch.tensor([[0.5, 9.0]])
    free, cut = (nearest_boundary(gaps, slopes, rivals, "linf", ends) for ends in (None, box))
    assert free.rival.item() == 7 and free.distance.item() == pytest.approx(1 / 1.1)
    assert cut.rival.item() == 8 and cut.distance.item() == 2 and cut.delta[0].tolist() == [0, 2]
