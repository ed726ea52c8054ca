"""CROWN: sound on samples and grids, inside interval bounds, exact by hand and against linear programmes."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import linprog
from torch import nn

from margin.robust.certificates.interval_arithmetic import Box, NoIntervalRule, matmul
from margin.robust.certificates.intervals import bounds, margin_bounds
from margin.robust.certificates.linear_bounds import Ball, alpha_crown_margins, crown_margins, relaxed
from margin.robust.certificates.tape import Tape
from margin.vision.convnets.lenet5 import LeNet5

NORMS = ("linf", "l2", "l1")


def ball(x, eps, norm="linf", low=-math.inf, high=math.inf):
    x = x.double()
    ends = (x - eps).clamp(low, high), (x + eps).clamp(low, high)
    return Ball(x, *ends, eps, norm, torch.ones((), dtype=torch.float64))


def moved(x, eps, norm, count, seed=0):
    """Points on the sphere of the norm around each example: (count, batch, ...)."""
    g = torch.Generator().manual_seed(seed)
    flat = torch.randn(count, len(x), x[0].numel(), generator=g)
    if norm == "linf":
        flat = flat.sign()
    elif norm == "l2":
        flat = flat / flat.norm(dim=2, keepdim=True)
    else:
        at = flat.abs().argmax(2, keepdim=True)
        flat = torch.zeros_like(flat).scatter(2, at, flat.gather(2, at).sign())
    return x + eps * (1 - 1e-6) * flat.reshape(count, *x.shape)


class Graph(nn.Module):
    """Residual sum, normalization, pooling, a product, a concatenation, a mean, in-place activation."""

    def __init__(self, pool=F.max_pool2d):
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.last, self.pool = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Linear(20, 3), pool
        self.norm.running_mean.uniform_(-0.2, 0.2)
        self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)), inplace=True)
        y = self.pool(F.relu(y + self.second(y)), 2)
        y = F.gelu(y) * y
        y = torch.cat((y.flatten(1), y.mean((2, 3))), 1)
        return F.log_softmax(self.last(y), 1)


ACTIVATIONS = {
    **{name: getattr(nn, name)() for name in ("ReLU", "Tanh", "Sigmoid", "SiLU", "Softplus", "ELU", "SELU")},
    **{
        name: getattr(nn, name)() for name in ("Mish", "Hardswish", "LogSigmoid", "ReLU6", "Hardtanh", "CELU")
    },
    **{name: getattr(nn, name)() for name in ("LeakyReLU", "PReLU", "GELU", "Hardsigmoid")},
    "gelu_tanh": nn.GELU("tanh"),
}


def network(name):
    torch.manual_seed(0)
    if name in ACTIVATIONS:
        act = ACTIVATIONS[name]
        layers = (nn.Linear(6, 16), act, nn.Linear(16, 16), act, nn.Linear(16, 3))
        net, shape = nn.Sequential(*layers), (6,)
        for layer in (net[0], net[2]):
            layer.weight.data *= 2.5
    elif name.startswith("graph"):
        net, shape = Graph(F.max_pool2d if name == "graph" else F.avg_pool2d), (2, 4, 4)
    else:
        net, shape = LeNet5(1, 3, activation="relu", pooling=name), (1, 8, 8)
    return net.eval(), torch.rand(4, *shape, generator=torch.Generator().manual_seed(1)) - 0.3


NETWORKS = (*ACTIVATIONS, "graph", "graph_mean", "max", "average")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_sample_is_below_and_no_interval_bound_above(name, norm):
    net, x = network(name)
    eps = {"linf": 0.05, "l2": 0.2, "l1": 0.4}[norm]
    with torch.no_grad():
        y = net(x).argmax(1)
        points = moved(x, eps, norm, 300)
        out = net(points.reshape(-1, *x.shape[1:])).reshape(300, len(x), -1).double()
    least = (out.gather(2, y.expand(300, -1)[..., None]) - out).amin(0)
    at = ball(x, eps, norm)
    interval = margin_bounds(net, at.low, at.high, y)
    plain, tight = crown_margins(net, at, y), crown_margins(net, at, y, units=256)
    forms = crown_margins(net, at, y, columns=64)
    for found in (plain, tight, forms):
        assert (found >= interval).all() and (found <= least).all()
    off = F.one_hot(y, 3) == 0
    assert (plain > interval + 1e-3)[off].any()
    assert (tight > plain + 1e-6)[off].any() or name == "Hardsigmoid"  # which is linear here


def test_a_hundred_thousand_samples_are_not_below():
    net, x = network("Tanh")
    at, labels = ball(x[:1], 0.3), torch.tensor([1])
    found = crown_margins(net, at, labels, units=64)
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for _ in range(20):
            shift = 2 * torch.rand(5000, 6, generator=g) - 1
            shift[:2500] = shift[:2500].sign()
            out = net(x[:1] + 0.3 * (1 - 1e-6) * shift).double()
            assert (out[:, 1:2] - out >= found).all()


class Attention(nn.Module):
    """Two heads over five places of the input, a residual sum, a head on the mean."""

    def __init__(self):
        super().__init__()
        self.mix, self.last = nn.Linear(4, 12), nn.Linear(4, 3)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (2, 2)).transpose(1, 2) for part in self.mix(3 * x).chunk(3, 2))
        return self.last((x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)).mean(1))


@pytest.mark.parametrize("norm", NORMS)
def test_attention_is_bounded_and_by_lines_more_tightly(norm):
    """Kills a product of two boxes without the term of both radii, and one that forgets an operand's."""
    torch.manual_seed(0)
    net = Attention().eval()
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y = net(x).argmax(1)
    off = F.one_hot(y, 3) == 0
    for eps in (0.0, 0.02, 0.3):
        points = moved(x, eps, norm, 400)
        with torch.no_grad():
            out = net(points.reshape(-1, 5, 4)).reshape(400, 3, 3).double()
        least = (out.gather(2, y.expand(400, -1)[..., None]) - out).amin(0)
        at = ball(x, eps, norm)
        interval, lines = margin_bounds(net, at.low, at.high, y), crown_margins(net, at, y, columns=20)
        assert (interval <= least).all() and (lines <= least).all() and (lines >= interval).all()
        if eps == 0:
            torch.testing.assert_close(interval, least, rtol=0, atol=1e-3)
        else:
            assert (lines > interval + 1e-4)[off].all()


@torch.no_grad()
def test_a_product_of_two_boxes_holds_its_corners_and_is_at_most_half_as_wide_again():
    """All 2^8 corners of two matrices of 2 x 2: the hull is exact, the rule at most 1.5 times as wide."""
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(2, 2, generator=g, dtype=torch.float64) for _ in range(2))
    ra, rb = (torch.rand(2, 2, generator=g, dtype=torch.float64) for _ in range(2))
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 8).reshape(-1, 2, 2, 2)
    corners = (a + signs[:, 0] * ra) @ (b + signs[:, 1] * rb)
    found = matmul(Box(a - ra, a + ra), Box(b - rb, b + rb))
    assert (found.low <= corners.amin(0) + 1e-12).all() and (found.high >= corners.amax(0) - 1e-12).all()
    wide = (found.high - found.low) / (corners.amax(0) - corners.amin(0))
    assert (wide <= 1.5 + 1e-9).all()


def test_attention_with_a_mask_is_refused_and_its_layer_named():
    class Causal(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, is_causal=True).sum(1)

    at = ball(torch.rand(2, 3, 4), 0.1)
    with pytest.raises(NoIntervalRule, match=r"no interval rule for .*attention with a mask"):
        bounds(Causal(), at.low, at.high)


@torch.no_grad()
def test_one_hidden_unit_by_hand():
    """relu(x) on [-1, 2]: above the chord (2/3)(x + 1), below x, for 2 > 1; on [-2, 1] below 0."""
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2, bias=False)).double()
    with torch.no_grad():
        net[0].weight.fill_(1.0), net[0].bias.zero_()
        net[2].weight.copy_(torch.tensor([[0.0], [1.0]]))
    for x, low_slope, chord in ((0.5, 1.0, 2 / 3), (-0.5, 0.0, 1 / 3)):
        at = ball(torch.tensor([[x]]), 1.5)
        tape = Tape()
        bounds(net, at.low, at.high, tape=tape)
        made = relaxed(tape, at)
        found = made.least(2, torch.tensor([[[1.0]], [[-1.0]]]).double())[:, 0]
        low, high = x - 1.5, x + 1.5
        assert float(found[0]) == pytest.approx(low_slope * low, abs=1e-9)
        assert float(-found[1]) == pytest.approx(high, abs=1e-9)
        slopes = made.at(2).slopes
        assert [float(s[0, 0]) for s in slopes] == pytest.approx([low_slope, chord])
        assert float(made.at(2).high) == pytest.approx(-chord * low, abs=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_exact_for_a_linear_model_in_every_norm(norm):
    """The closed form (w_y - w_j) x + b - eps ||w_y - w_j||_q. Mutant: the norm instead of its dual."""
    torch.manual_seed(3)
    net = nn.Linear(5, 4).double()
    x, labels = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    found = crown_margins(net, ball(x, 0.3, norm), labels)
    q = {"linf": 1, "l2": 2, "l1": math.inf}[norm]
    for i, y in enumerate(labels.tolist()):
        for j in range(4):
            w = (net.weight[y] - net.weight[j]).detach()
            expected = w @ x[i] + (net.bias[y] - net.bias[j]).detach() - 0.3 * w.norm(p=q)
            assert float(found[i, j]) == pytest.approx(float(expected), abs=1e-11)
            assert found[i, j] <= expected or y == j


def test_the_domain_cuts_the_box():
    """In a domain with a corner at the input one end cannot be reached. f_1 - f_0 = 2 x_1 - x_2."""
    net = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, 0.0], [2.0, -1.0]]))
    x = torch.tensor([[1.0, 1.0]])
    found = crown_margins(net, ball(x, 0.5, low=0.9, high=1.0), torch.tensor([1]))
    assert float(found[0, 0]) == pytest.approx(2 * 0.9 - 1.0, abs=1e-12)


@torch.no_grad()
def test_no_tighter_than_the_triangle_relaxations_linear_programme():
    """CROWN is a feasible dual point of the programme of Ehlers (2017), whose value is below the truth."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    gaps, best = [], []
    for seed in range(6):
        x = torch.randn(1, 3, generator=torch.Generator().manual_seed(seed)).double()
        at, label = ball(x, 0.25), net(x).argmax(1)
        tape = Tape()
        bounds(net, at.low, at.high, tape=tape)
        made = relaxed(tape, at, 64)
        programme = triangle(net, at, made, int(label))
        tighter = triangle(net, at, relaxed(tape, at, 64, 0, 100), int(label))
        found = float(crown_margins(net, at, label, units=64)[0, 1 - int(label)])
        moved_slopes = float(alpha_crown_margins(net, at, label, units=64, steps=100)[0, 1 - int(label)])
        grid = torch.cartesian_prod(*([torch.linspace(-0.25, 0.25, 21).double()] * 3))
        out = net(x + grid).detach()
        truth = float((out[:, label] - out[:, 1 - label]).min())
        assert found <= programme + 1e-7 and programme <= tighter + 1e-7 and tighter <= truth + 1e-9
        assert found <= moved_slopes <= tighter + 1e-7
        gaps.append((programme - found) / (truth - programme + 1e-3))
        best.append((tighter - moved_slopes) / (tighter - found + 1e-6))
    assert min(gaps) < 0.5  # and not far below it
    # over all slopes the bound is the programme's dual (Salman et al., 2019, Theorem 4.2): no gap is left
    assert max(best) < 0.05


@pytest.mark.parametrize(
    ("share", "crown", "best"), [(0.5, -0.5, 0.0), (2.0, -1.0, -1.0), (-1.0, -1.0, -1.0)]
)
def test_slopes_by_hand(share, crown, best):
    """relu(x) - share x on [-1, 1.0001]: of share 1/2 the least is 0, by the slope 1/2; else at an end.

    CROWN has the slope 1; of share -1 the intervals are better. Mutants: no ascent; slopes beyond [0, 1],
    then 0 of share 2, above -1 of share -1.
    """

    class Bent(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(2, 2, bias=False)

        def forward(self, x):
            return self.last(torch.cat((x, F.relu(x)), 1))

    net = Bent().double()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[0.0, 0.0], [-share, 1.0]]))
    at = Ball(*torch.tensor([[[0.0]], [[-1.0]], [[1.0001]]]).double(), 1.0, "linf", torch.ones(()).double())
    label = torch.tensor([1])
    plain, moved_slopes = crown_margins(net, at, label), alpha_crown_margins(net, at, label, steps=60)
    assert float(plain[0, 0]) == pytest.approx(crown, abs=1e-3)
    assert float(moved_slopes[0, 0]) == pytest.approx(best, abs=0.01) and moved_slopes[0, 0] <= best + 1e-9
    assert torch.equal(alpha_crown_margins(net, at, label, steps=0), plain)
    with pytest.raises(ValueError, match="steps must be at least 0: got -1"):
        alpha_crown_margins(net, at, label, steps=-1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["ReLU", "graph", "max", "average"])
def test_moved_slopes_are_sound_and_never_looser(name, norm):
    net, x = network(name)
    eps = {"linf": 0.1, "l2": 0.4, "l1": 0.8}[norm]
    with torch.no_grad():
        y = net(x).argmax(1)
        points = moved(x, eps, norm, 500)
        out = net(points.reshape(-1, *x.shape[1:])).reshape(500, len(x), -1).double()
    least = (out.gather(2, y.expand(500, -1)[..., None]) - out).amin(0)
    at, off = ball(x, eps, norm), F.one_hot(y, 3) == 0
    plain, found = crown_margins(net, at, y), alpha_crown_margins(net, at, y, steps=10)
    assert (found >= plain).all() and (found <= least).all()
    assert (found > plain + 1e-5)[off].any() or name == "graph"  # whose slopes are the best nearly
    assert all(p.grad is None for p in net.parameters())


def triangle(net, at, made, label):
    """The least margin over the programme's variables: input, then each layer's sums and units."""
    weights = [(layer.weight.detach(), layer.bias.detach()) for layer in net if isinstance(layer, nn.Linear)]
    sizes = [3, 8, 8, 8, 8]
    starts = [sum(sizes[:k]) for k in range(6)]
    total = starts[-1]
    equal, right, less, most = [], [], [], []
    limits = [(float(a), float(b)) for a, b in zip(at.low[0], at.high[0], strict=True)] + [(None, None)] * 32
    for k, (W, b) in enumerate(weights[:2]):
        before, sums, units = starts[2 * k], starts[2 * k + 1], starts[2 * k + 2]
        box = made.boxes[2 * k + 1]
        for i in range(8):
            row = torch.zeros(total).double()
            row[before : before + W.shape[1]], row[sums + i] = -W[i], 1.0
            equal.append(row), right.append(float(b[i]))
            low, high = float(box.low[0, i]), float(box.high[0, i])
            limits[units + i] = (0.0, None)
            below = torch.zeros(total).double()
            below[sums + i], below[units + i] = 1.0, -1.0
            less.append(below), most.append(0.0)
            chord = 1.0 if low >= 0 else 0.0 if high <= 0 else high / (high - low)
            above = torch.zeros(total).double()
            above[units + i], above[sums + i] = 1.0, -chord
            less.append(above), most.append(-chord * low if low < 0 < high else 0.0)
    W, b = weights[2]
    cost = torch.zeros(total).double()
    cost[starts[4] :] = W[label] - W[1 - label]
    matrices = (torch.stack(less).numpy(), most, torch.stack(equal).numpy(), right)
    found = linprog(cost.numpy(), *matrices, limits)
    assert found.success
    return found.fun + float(b[label] - b[1 - label])


def test_layouts_in_which_examples_are_not_rows_are_bounded_one_by_one():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(8, 2)

        def forward(self, x):
            y = torch.tanh(self.first(x.transpose(0, 1)))
            return self.last(y.transpose(0, 1).flatten(1))

    torch.manual_seed(5)
    net, x, y = Turned(), torch.randn(4, 2, 3), torch.tensor([0, 1, 0, 1])
    whole = crown_margins(net, ball(x, 0.1), y)
    parts = torch.cat([crown_margins(net, ball(x[i : i + 1], 0.1), y[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-9)
    assert (whole > margin_bounds(net, x.double() - 0.1, x.double() + 0.1, y) + 1e-3).any()


def test_a_batch_gives_what_its_examples_give():
    net, x = network("graph")
    y = torch.tensor([0, 1, 2, 0])
    whole = crown_margins(net, ball(x, 0.05, "l2"), y, units=64)
    parts = torch.cat(
        [crown_margins(net, ball(x[i : i + 1], 0.05, "l2"), y[i : i + 1], units=64) for i in range(4)]
    )
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-7)


def test_rivals_alone_are_bounded():
    net, x = network("Tanh")
    y, at = torch.tensor([0, 1, 2, 0]), ball(x, 0.1)
    rivals = torch.tensor([[2], [0], [1], [1]])
    some, every = crown_margins(net, at, y, rivals=rivals), crown_margins(net, at, y)
    interval = margin_bounds(net, at.low, at.high, y)
    torch.testing.assert_close(some.gather(1, rivals), every.gather(1, rivals), rtol=0, atol=1e-12)
    others = F.one_hot(rivals[:, 0], 3) == 0
    assert torch.equal(some[others], interval[others])


def test_the_models_own_rounding_is_covered():
    """Scores that differ by a few roundings of float32, at points: no bound may be above the model's."""
    torch.manual_seed(6)
    net = nn.Sequential(nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 2))
    x = 100 * torch.rand(2000, 50)
    with torch.no_grad():
        out = net(x).double()
        net[2].bias[0] += (out[:, 1] - out[:, 0]).median()
        out = net(x).double()
    y = torch.zeros(2000, dtype=torch.long)
    near = (out[:, 0] - out[:, 1]).abs().argsort()[:200]
    found = crown_margins(net, ball(x[near], 0.0), y[near])
    exact = net.double()(x[near].double()).detach()
    assert (found[:, 1] <= (out[:, 0] - out[:, 1])[near]).all()
    assert (found[:, 1] <= exact[:, 0] - exact[:, 1]).all()


def test_of_a_class_per_pixel_each_pixel_is_bounded_by_itself():
    """A convolution of one pixel is exact; behind a rectifier lines gain. Mutant: the first term alone."""
    torch.manual_seed(7)
    net = nn.Conv2d(2, 3, 1).double()
    x = torch.randn(2, 2, 2, 3, dtype=torch.float64)
    y = torch.randint(3, (2, 2, 3), generator=torch.Generator().manual_seed(1))

    def classes(out):
        return out.permute(0, 2, 3, 1)

    found = crown_margins(net, ball(x, 0.2), y, classes)
    assert found.shape == (2, 2, 3, 3)
    for n, i, j in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(3)).tolist():
        w = net.weight[:, :, 0, 0]
        d = (w[y[n, i, j]] - w).detach()
        shift = (net.bias[y[n, i, j]] - net.bias).detach()
        exact = d @ x[n, :, i, j] + shift - 0.2 * d.abs().sum(1)
        assert found[n, i, j].tolist() == pytest.approx(exact.tolist(), abs=1e-11)
    deep = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1)).double()
    interval = margin_bounds(deep, x - 0.2, x + 0.2, y, classes)
    lines = crown_margins(deep, ball(x, 0.2), y, classes)
    out = classes(deep(moved(x, 0.2, "linf", 500).reshape(-1, *x.shape[1:]))).detach()
    out = out.reshape(500, 2, 2, 3, 3)
    gaps = out.gather(4, y.expand(500, -1, -1, -1)[..., None]) - out
    assert (lines >= interval).all() and (lines <= gaps.amin(0)).all()
    assert (lines > interval + 0.01)[F.one_hot(y, 3) == 0].any()
