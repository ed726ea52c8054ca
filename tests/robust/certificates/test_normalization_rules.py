"""Rules of normalization and softmax: sound on random boxes, exact at a point, tight at their corners."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import BINARY, CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust.accuracy_curves import measure
from margin.robust.certificates.interval_arithmetic import Box, NoIntervalRule
from margin.robust.certificates.intervals import bounds, margin_bounds, propagate
from margin.robust.sandwich import linf_sandwich


def shifted(layer):
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -2, 2)
    return layer


class Gated(nn.Module):
    def forward(self, x):
        return F.glu(x, 1)


LAYERS = {
    "layer norm": (lambda: shifted(nn.LayerNorm(6)), (6,)),
    "layer norm of two axes": (lambda: shifted(nn.LayerNorm([3, 4])), (2, 3, 4)),
    "layer norm without constants": (lambda: nn.LayerNorm(5, elementwise_affine=False), (5,)),
    "group norm": (lambda: shifted(nn.GroupNorm(2, 4)), (4, 3, 2)),
    "group norm of rows": (lambda: shifted(nn.GroupNorm(3, 6)), (6,)),
    "instance norm": (lambda: shifted(nn.InstanceNorm2d(3, affine=True)), (3, 4, 2)),
    "rms norm": (lambda: shifted(nn.RMSNorm(6)), (6,)),
    "softmax": (lambda: nn.Softmax(1), (5,)),
    "softmax of channels": (lambda: nn.Softmax(1), (3, 2, 2)),
    "log softmax": (lambda: nn.LogSoftmax(1), (5,)),
    "glu": (Gated, (6,)),
}


def box_of(shape, seed, width):
    generator = torch.Generator().manual_seed(seed)
    center = 2 * torch.randn(1, *shape, generator=generator)
    radius = width * torch.rand(1, *shape, generator=generator)
    return center - radius, center + radius


def points_of(low, high, count=4000):
    generator = torch.Generator().manual_seed(7)
    t = torch.rand(count, *low.shape[1:], generator=generator)
    t[: count // 2] = t[: count // 2].round()
    return torch.maximum(torch.minimum(low + t * (high - low), high), low)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("width", [0.0, 0.02, 0.5, 3.0])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_no_value_escapes_from_random_boxes(name, width, kind):
    build, shape = LAYERS[name]
    for seed in range(5):
        torch.manual_seed(seed)
        module = build().to(kind)
        if not list(module.parameters()):
            module.register_buffer("kind", torch.zeros(1, dtype=kind))
        if name == "rms norm" and kind is torch.bfloat16:
            module.eps = 1e-5
        low, high = (end.to(kind) for end in box_of(shape, seed, width))
        found = bounds(module, low, high)
        with torch.no_grad():
            y = module(points_of(low, high).to(kind)).double()
        assert ((found.low <= y) & (y <= found.high)).all()


@pytest.mark.parametrize("name", LAYERS)
def test_at_a_point_the_bounds_are_the_value(name):
    build, shape = LAYERS[name]
    torch.manual_seed(0)
    module = build().double()
    x = box_of(shape, 1, 0.0)[0].double()
    found = propagate(module, Box(x, x))
    torch.testing.assert_close(found.low, module(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.high, module(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["layer norm", "group norm", "rms norm"])
def test_a_constant_group_far_from_0_is_covered_though_its_variance_is_rounding(name):
    # mean(x^2) - mean(x)^2 cancels: in float32 the computed variance of 300 + noise of 1e-3 is mostly error.
    build, shape = LAYERS[name]
    torch.manual_seed(0)
    module = build()
    for seed in range(20):
        x = 300 + 1e-3 * torch.randn(1, *shape, generator=torch.Generator().manual_seed(seed))
        found = bounds(module, x, x)
        for form in (x, x.to(memory_format=torch.channels_last) if x.ndim == 4 else x):
            y = module(form).double()
            assert ((found.low <= y) & (y <= found.high)).all()


def test_a_mean_summed_one_after_another_in_the_models_type_is_covered():
    # 200 times .1 in bfloat16, each sum rounded: the mean is off by a tenth, where c is 0 and eps is small.
    x = torch.full((1, 200), 0.1).bfloat16()
    total = torch.zeros((), dtype=torch.bfloat16)
    for term in x[0]:
        total = total + term
    c = x[0, 0].double() - (total / 200).double()
    y = c / 1e-5**0.5
    assert abs(y) > 2
    found = bounds(nn.LayerNorm(200).bfloat16(), x, x)
    assert ((found.low <= y) & (y <= found.high)).all()


def test_of_two_coordinates_the_bounds_are_the_range():
    # With n = 2, y = +-d / sqrt(d^2 + eps), d = (x1 - x2) / 2: the ends are those of d.
    module = nn.LayerNorm(2, eps=0.1, elementwise_affine=False).double()
    low, high = (torch.tensor([ends], dtype=torch.float64) for ends in ((0.2, -0.3), (0.9, 0.1)))
    d = torch.tensor([(0.2 - 0.1) / 2, (0.9 + 0.3) / 2], dtype=torch.float64)
    ends = d / (d.square() + 0.1).sqrt()
    found = propagate(module, Box(low, high))
    # The rule does not know that both squares are equal: c^2 + S with S of its own box.
    assert found.low[0, 0] <= ends[0] and ends[1] <= found.high[0, 0]
    corner = d[0] / ((d[0].square() + d[1].square()) / 2 + 0.1).sqrt()
    assert found.low[0, 0].item() == pytest.approx(corner.item(), abs=1e-12)


def test_the_range_of_softmax_is_met_at_its_corners():
    low, high = (end.double() for end in box_of((4,), 3, 1.0))
    found = propagate(nn.Softmax(1), Box(low, high))
    for i in range(4):
        worst, best = high.clone(), low.clone()
        worst[0, i], best[0, i] = low[0, i], high[0, i]
        assert found.low[0, i].item() == pytest.approx(worst.softmax(1)[0, i].item(), rel=1e-12)
        assert found.high[0, i].item() == pytest.approx(best.softmax(1)[0, i].item(), rel=1e-12)


HEADS = {
    "softmax": nn.Softmax(1),
    "log softmax": nn.LogSoftmax(1),
    "sigmoid": nn.Sigmoid(),
    "log of softmax": nn.Sequential(nn.LogSoftmax(1), nn.LogSoftmax(1)),
}


def classifier(head=None, kind=torch.float32):
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)]
    return nn.Sequential(*layers, *([] if head is None else [head])).to(kind)


@pytest.mark.parametrize("head", HEADS)
def test_a_final_head_certifies_what_its_argument_certifies(head):
    x = torch.rand(300, 8, generator=torch.Generator().manual_seed(0)).double()
    plain, headed = classifier(None, torch.float64), classifier(HEADS[head], torch.float64)
    y = plain(x).argmax(1)
    some = torch.zeros(300, dtype=torch.bool)
    for eps in (0.0, 0.003, 0.02):
        own = margin_bounds(plain, x - eps, x + eps, y).scatter(1, y[:, None], torch.inf).amin(1) > 1e-9
        under = margin_bounds(headed, x - eps, x + eps, y).scatter(1, y[:, None], torch.inf).amin(1) > 0
        assert torch.equal(own, under)
        some |= ~own
    assert 0 < some.sum() < 300


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_margins_under_a_head_are_below_those_of_sampled_points(head, kind):
    model = classifier(HEADS[head], kind)
    x = torch.rand(40, 8, generator=torch.Generator().manual_seed(0)).to(kind)
    y = model(x).argmax(1)
    for eps in (0.0, 0.01, 0.1):
        low, high = (x.double() - eps).to(kind), (x.double() + eps).to(kind)
        below = margin_bounds(model, low, high, y)
        for seed in range(60):
            t = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).to(kind)
            t = t.round() if seed % 2 else t
            z = torch.maximum(torch.minimum(low + t * (high - low), high), low)
            out = model(z).double()
            assert (below <= out.gather(1, y[:, None]) - out).all()


def test_a_saturated_head_certifies_nothing_that_ties_in_the_models_type():
    # sigmoid(40) and sigmoid(60) are both 1 in float32: the first of equals is predicted, not the larger.
    model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid())
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[0].bias.zero_()
    x, y = torch.tensor([[40.0, 60.0]]), torch.tensor([1])
    assert model(x).argmax(1) == 0
    assert margin_bounds(model, x, x, y)[0, 0] <= 0
    near = torch.tensor([[1.0, 1.0 + 2**-23]])
    soft = nn.Sequential(model[0], nn.Softmax(1))
    assert margin_bounds(soft, near, near, y)[0, 0] <= 0


def test_one_sigmoid_is_certified_where_its_logit_is():
    task = BINARY
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    y = (model(x) > 0).long()
    made = {"task": task, "objective": risk(task), "domain": Domain(torch.tensor(-9.0), torch.tensor(9.0))}
    curves = measure(
        Subject(model=model, test=(Batch((x,), y),), **made), "linf", (0.0, 0.01), 200, certify=True
    )
    assert curves.certified[0].all() and torch.equal(curves.certified[1], curves.attacked[1])
    p = nn.Sequential(model, nn.Sigmoid())
    sides = bounds(p, x, x, lambda p: torch.stack((1 - p, p), 1))
    assert torch.equal((sides.low[:, 1] > sides.high[:, 0]).long(), y)


def test_the_sandwich_of_a_network_with_norms_and_softmax_holds():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Flatten(), nn.LayerNorm(144),
        nn.Linear(144, 3), nn.Softmax(1),
    )  # fmt: skip
    x = torch.rand(60, 1, 8, 8)
    y = model(x).argmax(1)
    domain = Domain(torch.tensor(0.0), torch.tensor(1.0))
    made = Subject(model=model, test=(Batch((x,), y),), task=CLASSES, objective=risk(CLASSES), domain=domain)
    finding = linf_sandwich(made, shares=(0.0, 1e-4))
    assert finding.verdict is Verdict.HOLDS and finding.low[0] > 0.8 and finding.low[1] > 0.3


def test_what_the_rules_do_not_cover_is_refused():
    x = torch.rand(2, 4)
    with pytest.raises(NoIntervalRule, match="running statistics"):
        bounds(nn.InstanceNorm1d(4, track_running_stats=True), torch.rand(2, 4, 3), torch.rand(2, 4, 3) + 1)
    with pytest.raises(NoIntervalRule, match="root mean square"):
        bounds(nn.RMSNorm(4).bfloat16(), x, x)

    class Coarse(nn.Module):
        def forward(self, x):
            return x.softmax(1, dtype=torch.float16)

    with pytest.raises(NoIntervalRule, match="coarser type"):
        bounds(Coarse(), x, x)
