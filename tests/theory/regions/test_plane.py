"""Regions on a square: the specification's own exactness checks, linear programs, hand cases, refusals."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn

from margin.theory.regions import plane as regions_plane
from margin.theory.regions.arrangements import product_bound
from margin.theory.regions.followed import CannotFollow, NotPiecewiseLinear
from margin.theory.regions.plane import PlaneMesh, decided, picture, plane_regions
from margin.theory.regions.polygons import PlanarMap, TooManyCells

ORIGIN = torch.zeros(2).double()
FIRST, SECOND = torch.eye(2).double()


def mlp(*widths, seed=0, bias=0.1):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for a, b in itertools.pairwise(widths):
        layer = nn.Linear(a, b).double().requires_grad_(False)
        layer.weight.copy_(math.sqrt(2 / a) * torch.randn(b, a, generator=generator, dtype=torch.float64))
        layer.bias.copy_(bias * torch.randn(b, generator=generator, dtype=torch.float64))
        made += [layer, nn.ReLU()]
    return nn.Sequential(*made[:-1])


def own_patterns(net, x):
    patterns = []
    for layer in net:
        if isinstance(layer, nn.ReLU):
            patterns.append(x > 0)
        x = layer(x)
    return torch.cat(patterns, 1)


def square(net, **options):
    return plane_regions(net, ORIGIN, FIRST, SECOND, **options)


def feasible(net, pattern):
    """Whether a joint pattern of a net with two hidden layers has an interior in the square, by a program."""
    one, two = net[0], net[2]
    W, b = one.weight.numpy(), one.bias.numpy()
    on = np.array(pattern[: len(b)], dtype=float)
    A = two.weight.numpy() * on
    rows = np.concatenate((W, A @ W))
    offsets = np.concatenate((b, A @ b + two.bias.numpy()))
    norms = np.linalg.norm(rows, axis=1)
    side = 2.0 * np.array(pattern) - 1
    if any((norms == 0) & (side * offsets < 0)):
        return False
    limits = np.concatenate((-(side * rows.T).T, norms[:, None]), 1)
    walls = [(-1, 1), (-1, 1), (None, None)]
    solved = linprog([0, 0, -1], A_ub=limits, b_ub=side * offsets, bounds=walls, method="highs")
    return solved.status == 0 and solved.x[2] > 1e-9


@pytest.mark.parametrize("seed", range(2))
def test_the_regions_are_exactly_the_patterns_that_linear_programs_find(seed):
    net = mlp(2, 4, 3, 1, seed=seed, bias=0.5)
    found = square(net)
    expected = {p for p in itertools.product((False, True), repeat=7) if feasible(net, p)}
    assert {tuple(p) for p in found.patterns.tolist()} == expected
    assert found.activation_regions == len(expected) > 8


@pytest.mark.parametrize(("seed", "bias"), [(0, 0.1), (1, 0.1), (2, 1.0), (3, 0.0)])
def test_a_deep_network_meets_the_exactness_checks(seed, bias):
    net = mlp(2, 20, 20, 20, 2, seed=seed, bias=bias)
    found = square(net)
    assert found.flaw() == ""
    assert abs(float(found.plane.areas().sum()) - 4) < 1e-9
    assert found.plane.euler() == 1
    assert len(found.patterns.unique(dim=0)) == found.activation_regions
    middles = found.plane.centroids()
    assert torch.equal(own_patterns(net, middles), found.patterns)
    torch.testing.assert_close(net(found.plane.points), found.outputs, rtol=0, atol=1e-10)
    assert found.linear_regions <= found.activation_regions <= product_bound(2, [20, 20, 20])
    assert found.cells[-1] == found.activation_regions and found.cells == sorted(found.cells)
    assert found.layers == [("1", 20), ("3", 20), ("5", 20)]
    # Sampling can only find too few.
    x = 2 * torch.rand(20000, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1
    sampled = {tuple(p) for p in own_patterns(net, x).unique(dim=0).tolist()}
    assert sampled <= {tuple(p) for p in found.patterns.tolist()}


def test_one_layer_in_general_position_has_the_number_of_zaslavsky():
    # All points where two of the lines meet lie in the square of side 2000.
    for width, count in ((8, 37), (16, 137)):
        net = mlp(2, width, 1, seed=4, bias=0.3)
        found = plane_regions(net, ORIGIN, 1000 * FIRST, 1000 * SECOND)
        assert found.activation_regions == count == product_bound(2, [width])


def test_jacobians_are_those_of_automatic_differentiation_and_constant_in_a_cell():
    net = mlp(2, 12, 8, 3, seed=1)
    found = plane_regions(net, ORIGIN, 2 * FIRST + SECOND, SECOND - FIRST)
    axes = torch.stack((2 * FIRST + SECOND, SECOND - FIRST))
    for points in (
        found.plane.centroids(),
        0.9 * found.plane.centroids() + 0.1 * found.plane.points[found.plane.loops[:, 0]],
    ):
        x = (points @ axes).requires_grad_()
        rows = torch.stack([torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in net(x).T], 1)
        torch.testing.assert_close(rows @ axes.T, found.jacobians, rtol=0, atol=1e-12)


def test_neighbors_with_the_same_map_are_one_linear_region():
    # relu(x) - relu(-x) = x, and relu(y) is not felt by an output of weight 0; |x - 1/2| is.
    net = mlp(2, 4, 1)
    net[0].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    net[0].bias.copy_(torch.tensor([0.0, 0.0, 0.0, -0.5]))
    net[2].weight.copy_(torch.tensor([[1.0, -1.0, 0.0, 2.0]]))
    found = square(net)
    assert found.activation_regions == 6 and found.linear_regions == 2
    by_region = [
        set((p[:, 0] > 0.5).tolist()) for p in (found.plane.centroids()[found.linear == k] for k in (0, 1))
    ]
    assert by_region == [{False}, {True}] or by_region == [{True}, {False}]


def test_the_same_map_in_two_places_is_two_linear_regions():
    # A hat in x: the map is 0 on both of its sides, which do not touch.
    net = mlp(2, 3, 1)
    net[0].weight.copy_(torch.tensor([[1.0, 0.0]]).expand(3, 2))
    net[0].bias.copy_(torch.tensor([0.5, 0.0, -0.5]))
    net[2].weight.copy_(torch.tensor([[1.0, -2.0, 1.0]]))
    found = square(net)
    assert found.activation_regions == found.linear_regions == 4


def test_lines_through_a_point_and_the_same_neuron_twice():
    net = mlp(2, 6, 1)
    net[0].weight.copy_(
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [2.0, 2.0], [-1.0, 0.0]])
    )
    net[0].bias.zero_()
    found = square(net)
    assert found.activation_regions == 8 and found.flaw() == ""


def test_a_dead_layer_leaves_one_region_behind_it():
    net = mlp(2, 3, 3, 1)
    net[0].weight.zero_()
    net[0].bias.fill_(-1.0)
    net[2].bias.zero_()  # its pre-activations are 0 everywhere: off, and no line
    found = square(net)
    assert found.activation_regions == found.linear_regions == 1
    assert not bool(found.patterns.any())


def test_a_neuron_that_is_only_noise_cuts_nothing():
    # 0.1 h + 0.2 h - 0.3 h is 0 up to rounding: of its neuron, on one side of 0 or on both.
    for bias in (5.0, 7.3, 11.9):
        net = mlp(2, 3, 2, 1, seed=2)
        net[0].weight.fill_(1 / 3)
        net[0].bias.fill_(bias)
        net[2].weight.copy_(torch.tensor([[0.1, 0.2, -0.3], [0.1, 0.2, 0.3]], dtype=torch.float64))
        net[2].bias.copy_(torch.tensor([0.0, 1.0]))
        corners = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]).double()
        assert 0 < float(net[:3](corners)[:, 0].abs().max()) < 1e-13
        found = square(net)
        assert found.patterns.tolist() == [[True, True, True, False, True]]


def test_a_neuron_that_only_touches_the_square_is_off():
    net = mlp(2, 2, 1)
    net[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    net[0].bias.copy_(torch.tensor([-2.0 + 1e-13, 0.0]))  # above 0 by no more than rounding, in a corner
    found = square(net)
    assert sorted(found.patterns.tolist()) == [[False, False], [False, True]]


def test_a_small_bend_is_a_bend():
    net = mlp(2, 2, 1)
    net[0].weight.copy_(torch.eye(2))
    net[0].bias.zero_()
    net[2].weight.copy_(torch.tensor([[1.0, 1e-6]]))
    assert square(net).linear_regions == 4


def test_outputs_that_depend_on_the_other_points_are_found_out():
    class Mixes(nn.Module):
        def forward(self, x):
            return x.relu() + x.roll(1, 0)

    with pytest.raises(CannotFollow, match="own outputs differ"):
        square(nn.Sequential(nn.Linear(2, 3), Mixes()).double())


def test_a_plane_of_images_is_followed_through_convolutions_and_sums():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3, padding=1)
            self.top = nn.Linear(18, 2)

        def forward(self, x):
            h = self.first(x).relu()
            return self.top((h + self.second(h).relu()).flatten(1))

    torch.manual_seed(0)
    net = Net().double().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    origin, first, second = torch.randn(3, 1, 5, 5, generator=generator, dtype=torch.float64)
    found = plane_regions(net, origin, first, second)
    assert found.flaw() == "" and found.activation_regions > 50
    u, v = found.plane.points.T[:, :, None, None, None]
    torch.testing.assert_close(net(origin + u * first + v * second), found.outputs, rtol=0, atol=1e-12)


def test_two_kinks_a_unit_are_two_bits_of_the_pattern():
    net = nn.Sequential(nn.Linear(2, 5), nn.Hardtanh(), nn.Linear(5, 1)).double().requires_grad_(False)
    torch.manual_seed(0)
    nn.init.normal_(net[0].weight, std=2)
    found = square(net)
    assert found.layers == [("1", 10)] and found.flaw() == ""
    h = net[0](found.plane.centroids())
    assert torch.equal(found.patterns, torch.cat((h > -1, h > 1), 1))


def test_the_flaw_of_a_wrong_count_is_named():
    found = square(mlp(2, 6, 1))
    assert "V - E + F" in found._replace(plane=_without_a_vertex(found.plane)).flaw()
    assert "same pattern" in found._replace(patterns=found.patterns & False).flaw()
    fewer = PlanarMap(found.plane.points[:4] / 2)
    assert "sum to 1.0, not to 4" in found._replace(plane=fewer).flaw()


def _without_a_vertex(plane):
    other = PlanarMap(plane.points[:4])
    other.points = torch.cat((plane.points, torch.zeros(1, 2).double()))
    other.loops, other.sizes = plane.loops, plane.sizes
    return other


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(TooManyCells, match="more than 30 regions"):
        square(mlp(2, 20, 20, 1), budget=30)
    with pytest.raises(NotPiecewiseLinear, match=r"layer '1' \(Tanh\) is not piecewise linear: tanh"):
        square(nn.Sequential(nn.Linear(2, 3), nn.Tanh()).double())
    with pytest.raises(CannotFollow, match="no row for each example"):
        square(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Flatten(0)).double())
    net = mlp(2, 5, 1)
    net[0].weight[0, 0] = math.inf
    with pytest.raises(ArithmeticError, match="not finite"):
        square(net)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(regions_plane, "MEMORY", 8 * 20 * 50)
    with pytest.raises(ArithmeticError, match="more regions than fit in memory: 20 values"):
        square(mlp(2, 20, 20, 1))


def test_the_decision_boundary_divides_the_polygons_of_the_picture():
    net = mlp(2, 10, 8, 3, seed=6)
    found = square(net)
    finer, classes, cell = decided(found.plane, found.outputs)
    assert abs(float(finer.areas().sum()) - 4) < 1e-9 and finer.euler() == 1
    assert len(finer.loops) > found.activation_regions  # left as it was
    assert torch.equal(net(finer.centroids()).argmax(1), classes)
    assert torch.equal(own_patterns(net, finer.centroids()), found.patterns[cell])
    for k in range(3):  # a little inside of every corner the class is the same
        inside = 0.999 * finer.points[finer.loops[:, k]] + 0.001 * finer.centroids()
        assert torch.equal(net(inside).argmax(1), classes)


def test_a_picture_of_too_many_polygons_shows_the_middle():
    found = square(mlp(2, 20, 20, 1))
    whole, part = picture(found, None), picture(found, None, most=40)
    assert float(whole["region window"]) == 1 and len(whole["region sizes"]) == found.activation_regions
    assert len(part["region sizes"]) == 40 and 0 < float(part["region window"]) < 1
    assert int(part["region sizes"].sum()) == len(part["region corners"])
    assert int(part["region corners"].max()) == len(part["region vertices"]) - 1


def test_values_of_an_earlier_generation_are_carried_to_the_new_vertices():
    mesh = PlaneMesh(PlanarMap(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()))
    x = mesh.plane.points
    early = x @ torch.tensor([[2.0], [3.0]]).double() + 1
    mesh.refine(torch.stack((x[:, 0] - 0.3, x[:, 1] - 0.3), 1), (0.0,))
    mesh.refine((mesh.plane.points.sum(1) - 0.5)[:, None], (0.0,))
    expected = mesh.plane.points @ torch.tensor([[2.0], [3.0]]).double() + 1
    torch.testing.assert_close(mesh.extend(early, 0), expected, rtol=0, atol=1e-14)
    assert mesh.cells == [4, 7]
