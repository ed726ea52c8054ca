"""No certificate is broken in the model's own arithmetic: autocast, half precision by hand, flags."""

import math

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust.accuracy_curves import measure
from margin.robust.certificates.interval_arithmetic import Box, NoIntervalRule
from margin.robust.certificates.intervals import bounds, check_copy, coarsest_type
from margin.robust.sandwich import linf_sandwich


class Autocast(nn.Module):
    """A model under autocast within its forward."""

    def __init__(self, model, kind=torch.bfloat16):
        super().__init__()
        self.model, self.kind = model, kind

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.kind):
            return self.model(x).float()


class Halved(nn.Module):
    """Half precision by hand, in the type that a parameter has."""

    def __init__(self, model):
        super().__init__()
        self.first, self.rest = model[:2], model[2:].bfloat16()

    def forward(self, x):
        return self.rest(self.first(x).to(self.rest[1].weight.dtype)).float()


class Branching(nn.Module):
    """A branch on the type of its parameters, which bounds follow as the model does."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        y = self.model(x)
        weight = self.model[1].weight
        return y + 1e-3 * torch.tensor([1.0, 0.0]) if weight.dtype == torch.float32 else y


class OwnType(Branching):
    """A branch on the type of the input."""

    def forward(self, x):
        y = self.model(x)
        return y.roll(1, 1) if x.dtype == torch.float32 else y


def network(kind=torch.float32):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
    return net.to(kind)


def closest(model, count=512, kind=torch.float32):
    """The examples nearest to the boundary, right by a net in float64; labels are its own."""
    x = torch.rand(4000, 1, 8, 8, generator=torch.Generator().manual_seed(1)).to(kind)
    exact = network().double()
    with torch.no_grad():
        for own, given in zip(exact.parameters(), model.parameters(), strict=True):
            own.copy_(given)
        scores = exact(x.double())
    index = (scores[:, 0] - scores[:, 1]).abs().argsort()[:count]
    return x[index], scores[index].argmax(1)


def subject(model, x, y):
    domain = Domain(torch.zeros((), dtype=x.dtype), torch.ones((), dtype=x.dtype))
    return Subject(model=model, test=(Batch((x,), y),), task=CLASSES, objective=risk(CLASSES), domain=domain)


class Hidden(nn.Module):
    """Rounds to bfloat16 where only numbers show it: a fact of the input's size."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x) if type(x) is not torch.Tensor else self.model(x.bfloat16().float())


COARSE = {"autocast": Autocast, "hidden": Hidden}


@pytest.mark.parametrize("name", COARSE)
def test_what_the_bounds_do_not_follow_is_not_certified_and_the_cause_is_named(name):
    x, y = closest(network())
    finding = linf_sandwich(subject(COARSE[name](network()), x, y), shares=(0.0, 0.001))
    wrong = (COARSE[name](network())(x).argmax(1) != y).sum()
    assert wrong > 0  # examples that bounds in float64 would certify
    assert finding.verdict is Verdict.MEASURED and finding.low is None
    assert "the model computes in lower precision than its parameters" in finding.remarks[0]
    assert ("autocast to torch.bfloat16" in finding.remarks[0]) == (name == "autocast")
    assert finding.value[0] == 1 - wrong / 512


@pytest.mark.parametrize("shift", [1e-3, -1e-3])
def test_an_output_above_or_below_its_bounds_refuses_the_model(shift):
    class Shifted(nn.Linear):
        def forward(self, x):
            return super().forward(x) + (shift if type(x) is torch.Tensor else 0)

    torch.manual_seed(0)
    model, x = Shifted(4, 2), torch.rand(5, 4)
    with pytest.raises(NoIntervalRule, match=r"off by 0\.001 from that in float64, where rounding"):
        check_copy(model, x)
    check_copy(nn.Linear(4, 2), x)


def test_what_rounds_more_coarsely_only_far_from_the_examples_is_seen_at_a_corner():
    class Far(nn.Linear):
        def forward(self, x):
            far = type(x) is torch.Tensor and bool((x > 0.7).all())
            return super().forward(x) + (1e-2 if far else 0)

    torch.manual_seed(0)
    model, x = Far(4, 2), 0.5 * torch.rand(9, 4)
    made = subject(model, x, model(x).argmax(1))
    near = measure(made, "linf", (0.0, 0.1), 9, certify=True)
    wide = measure(made, "linf", (0.0, 0.1, 0.9), 9, certify=True)
    assert near.certified is not None and wide.certified is None and "lower precision" in wide.uncertified


def test_autocast_around_the_audit_is_seen_too():
    x = torch.rand(4, 1, 8, 8)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(NoIntervalRule, match=r"autocast to torch\.b"),
    ):
        bounds(network(), x, x)
    bounds(network(), x, x)
    # A model whose parameters are as coarse loses nothing by it.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bounds(network(torch.bfloat16), x, x).low.isfinite().all()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_no_certified_example_is_wrong_at_the_boundary_in_any_type(kind):
    net = network(kind)
    x, y = closest(net, kind=kind)
    curves = measure(subject(net, x, y), "linf", (0.0, 0.002, 0.05), 512, certify=True)
    assert curves.certified is not None, curves.uncertified
    assert not (curves.certified[0] & ~curves.clean).any()
    assert not (curves.certified & ~curves.attacked).any()
    assert curves.certified[0].sum() < curves.clean.sum() if kind is not torch.float32 else True
    far = measure(subject(net, *closest(net, 4000, kind)), "linf", (0.0,), 4000, certify=True)
    # 64 roundings of 2^-9 bound little of margins like these; float16 has 2^-11.
    assert (
        far.certified[0].double().mean() > {torch.float32: 0.9, torch.float16: 0.05, torch.bfloat16: -1}[kind]
    )


def test_the_coarsest_type_of_the_model_decides_the_rounding():
    mixed = Halved(network())
    assert coarsest_type(mixed) == torch.bfloat16
    x, y = closest(network())
    curves = measure(subject(mixed, x, y), "linf", (0.0,), 512, certify=True)
    assert curves.certified is not None and (~curves.clean).any()
    assert not (curves.certified[0] & ~curves.clean).any()

    class Unit(nn.Module):
        def forward(self, x):
            return x

    assert coarsest_type(Unit()) == torch.float32
    scaled = nn.Linear(2, 2)
    scaled.register_buffer("scale", torch.ones(2, dtype=torch.float16))
    assert coarsest_type(scaled) == torch.float16


@pytest.mark.parametrize("kind", [OwnType, Branching])
def test_a_branch_on_a_type_is_followed_as_the_model_takes_it(kind):
    x = torch.rand(8, 1, 8, 8)
    model = kind(network())
    found = bounds(model, x, x)
    with torch.no_grad():
        own = model(x)
    assert ((found.low <= own) & (own <= found.high)).all()
    check_copy(model, x)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_a_flag_that_multiplies_more_coarsely_is_refused_with_its_cure(precision):
    x = torch.rand(4, 1, 8, 8)
    torch.set_float32_matmul_precision(precision)
    try:
        with pytest.raises(NoIntervalRule, match="set 'highest'"):
            bounds(network(), x, x)
        bounds(network().double(), x, x)  # the flag is about float32 alone
    finally:
        torch.set_float32_matmul_precision("highest")


def test_values_that_overflow_in_the_models_type_are_not_bounded_by_finite_numbers():
    # 2 x 40,000 is infinite in float16, and a difference of two of them no number.
    layer = nn.Linear(2, 2, bias=False).half()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, -1.0], [1.0, 0.0]]))
    x = torch.tensor([[40_000.0, 40_000.0]]).half()
    assert bounds(layer, x, x).high[0, 0] == math.inf
    assert bounds(layer, x, x).low[0, 1] > 39_000


def test_a_value_that_underflows_in_the_models_type_stays_in_its_bounds():
    for kind, z in ((torch.float16, -20.0), (torch.float32, -110.0), (torch.bfloat16, -110.0)):
        x = torch.tensor([[z]]).to(kind)

        class Exp(nn.Module):
            def __init__(self, kind):
                super().__init__()
                self.zero = nn.Parameter(torch.zeros(1, dtype=kind))

            def forward(self, x):
                return x.exp()

        found = bounds(Exp(kind), x, x)
        assert x.exp().item() == 0 and found.low.item() <= 0 < found.high.item()


@pytest.mark.parametrize(("kind", "terms"), [(torch.float16, 1000), (torch.bfloat16, 200)])
def test_a_sum_one_term_after_another_stays_in_its_bounds(kind, terms):
    # Every addition of .1 rounds the same way for long stretches: the error grows with the terms.
    layer = nn.Linear(terms, 1).to(kind)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    x = torch.full((1, terms), 0.1).to(kind)
    total = torch.zeros((), dtype=kind)
    for term in x[0]:
        total = total + term
    exact = x.double().sum()
    unit = torch.finfo(kind).eps / 2
    assert abs(total.double() - exact) > 20 * unit * exact  # more than any fixed number of roundings
    found = bounds(layer, x, x)
    assert found.low <= total.double() <= found.high


def test_the_error_of_a_sum_is_that_of_the_theorem():
    # Higham (2002), Equation 3.4: gamma_n = n u / (1 - n u) for n roundings.
    box = Box(torch.zeros(1), torch.ones(1), torch.float32)
    for n in (1, 10, 10**4, 10**6):
        assert box.gamma(n) >= n * 2**-24 / (1 - n * 2**-24)
        assert box.gamma(n) <= 1.01 * (n + 16) * 2**-24 / (1 - (n + 16) * 2**-24)
    assert box.gamma(2**24) == math.inf
