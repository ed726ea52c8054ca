"""A square cut by lines: the classical count, areas, Euler's formula, and the degenerate cases by hand."""

import itertools

import pytest
import torch

from margin.theory.regions.polygons import PlanarMap, TooManyCells

SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]).double()


def cut_by(plane, normal, offset, touch=1e-12):
    values = plane.points @ torch.tensor(normal, dtype=torch.float64) + offset
    return plane.cut(values.masked_fill(values.abs() <= touch, 0.0))


def checked(plane, area=4.0):
    assert abs(float(plane.areas().sum()) - area) < 1e-9
    assert bool((plane.areas() > 0).all())
    assert plane.euler() == 1
    return len(plane.loops)


def regions_of(lines):
    """1 + lines that cross the square + points inside where two of them meet: general position."""
    corners = SQUARE.tolist()
    crossing = [
        line
        for line in lines
        if min(line[0] * x + line[1] * y + line[2] for x, y in corners)
        < 0
        < max(line[0] * x + line[1] * y + line[2] for x, y in corners)
    ]
    count = 1 + len(crossing)
    for (a, b, c), (d, e, f) in itertools.combinations(crossing, 2):
        det = a * e - b * d
        x, y = (b * f - c * e) / det, (c * d - a * f) / det
        count += abs(x) < 1 and abs(y) < 1
    return count


@pytest.mark.parametrize("seed", range(5))
def test_random_lines_cut_a_square_into_the_classical_number(seed):
    generator = torch.Generator().manual_seed(seed)
    lines = torch.randn(25, 3, generator=generator, dtype=torch.float64).tolist()
    plane = PlanarMap(SQUARE)
    for a, b, c in lines:
        cut_by(plane, (a, b), c)
    assert checked(plane) == regions_of(lines) > 40


@pytest.mark.parametrize(
    ("lines", "cells"),
    [
        ([(1, 0, 0), (0, 1, 0), (1, 1, 0)], 6),  # through a point
        ([(1, -1, 0)], 2),  # through two corners
        ([(1, -1, 0), (1, 1, 0), (1, 0, 0), (0, 1, 0)], 8),
        ([(1, 0, -1)], 1),  # along a side
        ([(1, 1, -2)], 1),  # touches a corner
        ([(1, 0, 0), (1, 0, 0), (2, 0, 0), (-1, 0, 0)], 2),  # the same line again
        ([(1, 0, -3)], 1),  # beside the square
        ([(1, 0, 0.5), (1, 0, -0.5), (1, 2, 0.5)], 6),  # through a vertex on an inner edge's end
        ([(0, 0, 0)], 1),
    ],
)
def test_degenerate_cuts_follow_the_rule(lines, cells):
    plane = PlanarMap(SQUARE)
    for a, b, c in lines:
        cut_by(plane, (a, b), c)
    assert checked(plane) == cells


def test_a_hundred_lines_through_a_point_are_two_hundred_cells():
    plane = PlanarMap(SQUARE)
    for k in range(100):
        angle = torch.tensor(torch.pi * (k + 0.37) / 100)
        cut_by(plane, (float(angle.cos()), float(angle.sin())), 0.0)
    assert checked(plane) == 200


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 0.0, 0.0, -1.0],
        [-1.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, -1.0, 1.0],
        [1.0, 0.0, 0.0, 0.0, -1.0],
        [0.0, 1.0, 0.0, -1.0],
        [0.0, 1.0, 1.0, 1.0, -1.0],
        [1.0, 0.0, 1.0, -1.0, -1.0],  # a vertex touched from one side is no cut
        [1.0, 1.0, -1.0, 0.0, -1.0],
    ],
)
def test_vertices_on_the_line_in_any_order_make_two_cells(values):
    count = len(values)
    angle = 2 * torch.pi * torch.arange(count).double() / count
    for shift in range(count):
        plane = PlanarMap(torch.stack((angle.cos(), angle.sin()), 1))
        area = float(plane.areas().sum())
        plane.cut(torch.tensor(values, dtype=torch.float64).roll(shift))
        assert checked(plane, area) == 2


def test_what_changes_sides_more_than_twice_is_refused():
    with pytest.raises(ArithmeticError, match="not affine on a cell"):
        PlanarMap(SQUARE).cut(torch.tensor([1.0, -1.0, 1.0, -1.0]).double())


def test_a_kink_inside_is_cut_on_both_sides_of_an_edge_at_one_vertex():
    plane = PlanarMap(SQUARE)
    cut_by(plane, (1.0, 0.0), 0.0)
    # |x| - 1/2 is affine on each half: two cuts at once, no vertex twice.
    cut = plane.cut(plane.points[:, 0].abs() - 0.5)
    assert len(cut.left) == 4
    assert checked(plane) == 4
    assert len(plane.points.unique(dim=0)) == len(plane.points) == 10


def test_edges_have_their_cells_on_both_sides():
    plane = PlanarMap(SQUARE)
    cut_by(plane, (1.0, 0.0), 0.0)
    edges = plane.edges()
    inner = edges.cells[edges.cells[:, 1] >= 0]
    assert inner.tolist() == [[0, 1]] and len(edges.ends) == 7


def test_the_budget_is_kept():
    plane = PlanarMap(SQUARE, budget=3)
    cut_by(plane, (1.0, 0.0), 0.0)
    with pytest.raises(TooManyCells, match="more than 3 regions"):
        cut_by(plane, (0.0, 1.0), 0.0)
    assert checked(plane) == 2
    with pytest.raises(ValueError, match="at least 1: got 2 corners, budget 3"):
        PlanarMap(SQUARE[:2], budget=3)
