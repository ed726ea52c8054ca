"""A pass is counted by its operations: by hand here, on sizes where the neighbors of a formula differ."""

import gc
import time
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from margin.auditing.asking.budget import Budget
from margin.auditing.asking.passes import PassCost, Passes, cost_of_passes
from margin.auditing.subject.operations import BYTES, FLOPS, LIVE, OVERHEAD, Counter
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk

FLOAT = 4


def counted(function, *args):
    with Counter() as counter:
        function(*args)
    return counter.seconds


def seconds(operations, flops, numbers):
    return operations * OVERHEAD + flops / FLOPS + numbers * FLOAT / BYTES


def test_a_product_counts_its_multiplications_and_additions_and_what_it_reads_and_writes():
    n, k, m = 30, 50, 70
    x, w = torch.randn(n, k), torch.randn(k, m)
    assert counted(torch.mm, x, w) == pytest.approx(seconds(1, 2 * n * k * m, n * k + k * m + n * m))


def test_a_convolution_counts_its_kernel_at_each_place():
    x, w = torch.randn(2, 3, 10, 12), torch.randn(5, 3, 3, 3)
    flops = 2 * 2 * 5 * (8 * 10) * 3 * 9
    numbers = x.numel() + w.numel() + 2 * 5 * 8 * 10
    assert counted(F.conv2d, x, w) == pytest.approx(seconds(1, flops, numbers))


@pytest.mark.parametrize("groups", [1, 4, 32])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_convolution_in_groups_counts_twice_its_products_backward(kind, groups):
    """Mutant: torch's own formula, by which a layer of one kernel a channel counts 34 times, not 3."""
    layer = kind(32, 32, 3, padding=1, groups=groups, bias=False)
    x = torch.randn(8, 32, 16, 16, requires_grad=True)
    flops = 2 * 8 * 32 * (16 * 16) * 9 * 32 // groups
    numbers = x.numel() * 12 + layer.weight.numel() * 4  # each is read or written a few times

    def both():
        torch.autograd.grad(layer(x).sum(), (x, layer.weight))

    assert 3 * flops / FLOPS <= counted(both) <= seconds(12, 3 * flops, numbers)


def test_a_view_counts_as_an_operation_alone_and_a_lookup_reads_its_rows():
    x = torch.randn(1000, 64)
    assert counted(lambda: x.t()) == pytest.approx(OVERHEAD)
    index = torch.arange(5)
    looked_up = OVERHEAD + (5 * 8 + 5 * 64 * FLOAT) / BYTES
    assert counted(F.embedding, index, x) == pytest.approx(looked_up)


def test_inference_mode_hides_no_product():
    """There a linear map arrives whole, and is taken apart."""
    layer, x = nn.Linear(50, 70), torch.randn(30, 50)

    def inferred():
        with torch.inference_mode():
            layer(x)

    with torch.no_grad():
        assert counted(inferred) == pytest.approx(counted(layer, x), rel=0.2)
    assert counted(inferred) > 2 * 30 * 50 * 70 / FLOPS


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrence_counts_the_products_of_every_step(kind):
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[kind]
    layer, x = kind(64, 96, batch_first=True), torch.randn(8, 200, 64)
    flops = 2 * 8 * 200 * gates * 96 * (64 + 96)
    with torch.no_grad():
        found = counted(layer, x)
    assert flops / FLOPS <= found <= 2 * flops / FLOPS + 200 * 40 * OVERHEAD


def test_a_recurrence_counts_twice_as_much_backward():
    layer, x = nn.LSTM(64, 96, batch_first=True), torch.randn(8, 200, 64)
    products = 2 * 8 * 200 * 4 * 96 * (64 + 96) / FLOPS

    def both():
        torch.autograd.grad(layer(x)[0].sum(), tuple(layer.parameters()))

    # of the first layer the inputs are not differentiated
    assert counted(both) >= 3 * products * (1 - 64 / (3 * 160))


def test_a_recurrence_that_runs_as_one_kernel_counts_its_products_and_little_else():
    """Mutants: the kernel's backward as one product of each weight; inputs and states among its weights."""
    layer, x = nn.LSTM(256, 256, batch_first=True), torch.randn(32, 20, 256)
    products = 2 * 32 * 20 * 4 * 256 * 512 / FLOPS

    def both():
        torch.autograd.grad(layer(x)[0].sum(), tuple(layer.parameters()))

    with torch.no_grad():
        assert products <= counted(layer, x) <= 1.25 * products
    assert 3 * products <= counted(both) <= 4 * products


def test_a_transformer_layer_that_runs_as_one_kernel_counts_its_products():
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True).eval()
    x = torch.randn(32, 20, 64)
    products = 2 * 32 * 20 * (4 * 64 * 64 + 2 * 64 * 256) / FLOPS
    with torch.inference_mode():
        assert products <= counted(layer, x) <= 2 * products


def test_a_decomposition_counts_about_what_its_algorithm_takes():
    """Of a symmetric matrix all eigenvectors: 9 n^3 (Golub and Van Loan 2013, Section 8.3.3)."""
    A = torch.eye(300)
    assert 4.5 * 300**3 <= counted(torch.linalg.eigh, A) * FLOPS <= 18 * 300**3


def test_rows_that_are_added_to_a_table_count_and_not_the_table():
    table, index, rows = torch.zeros(10_000, 64), torch.arange(5), torch.ones(5, 64)
    added = OVERHEAD + (5 * 8 + 5 * 64 * FLOAT) / BYTES
    assert counted(lambda: table.index_add_(0, index, rows)) == pytest.approx(added, rel=0.2)


def test_attention_counts_both_of_its_products_and_what_is_differentiated_the_products_of_that():
    q = torch.randn(2, 4, 128, 32, requires_grad=True)
    flops = 2 * 2 * 2 * 4 * 128 * 128 * 32

    def both():
        torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).sum(), q)

    once = counted(F.scaled_dot_product_attention, q, q, q)
    assert flops / FLOPS <= once <= 1.6 * flops / FLOPS
    assert counted(both) >= 3 * flops / FLOPS


def test_a_backward_pass_counts_twice_the_products_of_a_forward_one(subject):
    wide = nn.Sequential(nn.Linear(4, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 3))
    counted = cost_of_passes(replace(subject, model=wide)).counted
    products = 2 * (4 * 1000 + 1000 * 1000 + 1000 * 3) / FLOPS
    assert counted.forward >= products
    # of the first layer the inputs are not differentiated
    assert counted.gradient >= 3 * products - 2 * 4 * 1000 / FLOPS
    assert cost_of_passes(replace(subject, model=wide)).counted == counted  # to the bit


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_script_is_counted_and_what_cannot_be_counted_is_timed(subject):
    model = nn.Sequential(nn.Linear(4, 300), nn.ReLU(), nn.Linear(300, 3)).eval()
    plain = cost_of_passes(replace(subject, model=model)).counted
    script = cost_of_passes(replace(subject, model=torch.jit.trace(model, torch.randn(2, 4)))).counted
    assert script.forward == pytest.approx(plain.forward, rel=0.3)

    class Hidden(nn.Module):
        """It refuses whoever watches its operations."""

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            if torch.utils._python_dispatch.is_in_torch_dispatch_mode():
                raise TypeError("not under a mode")
            return self.linear(x)

    hidden = cost_of_passes(replace(subject, model=Hidden()))
    assert 0 < hidden.counted.gradient <= OVERHEAD
    assert hidden.timed.gradient > 0


def test_a_model_that_is_broken_raises_what_it_raises(subject):
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("no such layer")

    with pytest.raises(RuntimeError, match="no such layer"):
        cost_of_passes(replace(subject, model=Broken()))


def test_what_a_pass_holds_for_the_backward_one_is_measured_without_the_weights(subject):
    """Of each example its 4 inputs, 4 times the 300 numbers of ReLU, and what the loss needs of 3 scores."""
    hidden = [layer for n in (4, 300, 300, 300) for layer in (nn.Linear(n, 300), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(300, 3))
    held = cost_of_passes(replace(subject, model=model)).held
    assert 4 * 300 * FLOAT <= held <= (4 + 4 * 300 + 3 + 3) * FLOAT


def test_a_pass_that_holds_nothing_for_a_gradient_needs_its_largest_tensors(subject):
    """Mutants: what the frozen body computes is not counted; weights of as many rows as examples are."""
    body = nn.Sequential(nn.Linear(4, 300), nn.ReLU(), nn.Linear(300, 20)).requires_grad_(False)
    model = nn.Sequential(body, nn.Linear(20, 3))
    assert cost_of_passes(replace(subject, model=model)).held == LIVE * 300 * FLOAT
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4000, 20)).requires_grad_(False)
    wide = nn.Sequential(nn.Linear(4, 4000), normed, nn.Linear(20, 3)).requires_grad_(False)
    assert cost_of_passes(replace(subject, model=wide)).held == LIVE * 4000 * FLOAT


def test_measuring_what_a_pass_holds_keeps_none_of_it(subject):
    """Of a branch that is not differentiated the backward pass frees nothing: it must not hold itself."""

    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            self.other(x).tanh()
            return self.linear(x)

    model = Beside()
    weights = [weakref.ref(p) for p in model.parameters()]
    cost_of_passes(replace(subject, model=model))
    del model
    gc.collect()
    assert not any(weight() is not None for weight in weights)


def test_measuring_what_a_pass_holds_counts_as_nothing(subject):
    model = nn.Sequential(nn.Linear(4, 300), nn.GELU(), nn.Linear(300, 3))
    found = cost_of_passes(replace(subject, model=model, objective=risk(CLASSES))).counted
    batch = subject.test[0]
    with Counter() as counter, saved_tensors_hooks(lambda x: x, lambda x: x):  # which count as they do there
        torch.autograd.grad(model(*batch.inputs).sum(), tuple(model.parameters()))
    assert found.gradient * len(batch.inputs[0]) == pytest.approx(counter.seconds, rel=1e-9)


def test_a_backward_pass_that_cannot_be_run_is_put_at_two_forward_ones(subject):
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            y = self.linear(x).exp()
            z = y.square()
            y.zero_()
            return z

    found = cost_of_passes(replace(subject, model=Overwriting(), objective=risk(CLASSES)))
    assert found.timed.gradient == pytest.approx(3 * found.timed.forward)
    assert found.counted.gradient > found.counted.forward  # what is watched runs all the same


class Clocked(nn.Module):
    """A linear model that takes so long by a clock, and longer for a batch of a size that it has not seen."""

    def __init__(self, monkeypatch, again=0.01, first=0.5):
        super().__init__()
        self.linear, self.seen, self.now = nn.Linear(4, 3), [], 0.0
        self.again, self.first = again, first
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def forward(self, x):
        self.now += self.again if len(x) in self.seen else self.first
        self.seen.append(len(x))
        return self.linear(x)


def test_what_is_computed_for_the_first_time_is_not_what_it_takes(subject, monkeypatch):
    model = Clocked(monkeypatch)
    found = cost_of_passes(replace(subject, model=model, objective=risk(CLASSES)))
    assert found.timed.forward * len(subject.test[0].targets) == pytest.approx(0.01)


def test_a_pass_that_counts_for_enough_is_run_on_no_more_or_once_more_where_most_of_it_is_overhead(
    subject, monkeypatch
):
    """Of many small operations the second size tells what more examples add; of a large product one does."""
    monkeypatch.setattr("margin.auditing.asking.passes.PROBE", 1e-6)
    small, wide = Clocked(monkeypatch, 0.0, 0.0), Clocked(monkeypatch, 0.0, 0.0)
    wide.linear = nn.Sequential(nn.Linear(4, 2000), nn.Linear(2000, 2000), nn.Linear(2000, 3))
    for model, sizes in ((small, {1, 4}), (wide, {1})):
        cost_of_passes(replace(subject, model=model, objective=risk(CLASSES)))
        assert set(model.seen) == sizes


class LastState(nn.Module):
    """A GRU over a long sequence, its last state read by a linear map."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.seen = nn.GRU(3, 16, batch_first=True), nn.Linear(16, 3), []

    def forward(self, x):
        self.seen.append(len(x))
        return self.head(self.body(x)[0][:, -1])


def test_the_steps_of_a_recurrence_are_shared_by_the_examples_of_a_batch(subject, monkeypatch):
    """Hundreds of steps of a batch of 16, counted whole. Mutants: 16 times a single one's; no row's own."""
    monkeypatch.setattr("margin.auditing.asking.passes.PROBE", 0.02)
    model, x = LastState().eval(), torch.randn(16, 200, 3)
    test = [Batch((x,), torch.arange(16) % 3)]
    own = replace(subject, model=model, test=test, train=test, objective=risk(CLASSES))
    found = cost_of_passes(own)
    assert max(model.seen) == 4 and found.rows > 16
    weights = tuple(model.parameters())
    with Counter() as counter, saved_tensors_hooks(lambda x: x, lambda x: x):  # as it is counted there
        out = model(x)
        forward = counter.seconds
        torch.autograd.grad(out.sum(), weights)
    assert 16 * found.counted.forward == pytest.approx(forward, rel=0.03)
    assert 16 * found.counted.gradient == pytest.approx(counter.seconds, rel=0.03)
    start = time.process_time()
    torch.autograd.grad(model(x).sum(), weights)
    assert 16 * found.timed.gradient <= 5 * (time.process_time() - start)  # not as long as to watch it
    monkeypatch.setattr("margin.auditing.asking.passes.MANY", 0.0)
    assert cost_of_passes(own).counted.gradient > 8 * found.counted.gradient  # that of one alone


def test_a_batch_takes_no_more_than_a_sixtieth_of_the_budget(subject, monkeypatch):
    """An example of .5 s: of 2 s that a pass may take in 120 four are in a batch, of .3 s two at least."""
    x = torch.randn(32, 4)
    test = [Batch((x,), torch.arange(32) % 3)]
    cost = PassCost(Passes(0.2, 0.5), Passes(0.2, 0.5), 100.0)
    monkeypatch.setattr("margin.auditing.asking.budget.cost_of_passes", lambda *_: cost)
    for minutes, rows in ((2.0, 4), (0.3, 2)):
        plan = Budget(replace(subject, test=test), minutes)
        assert len(plan.within(plan._subject).test[0].inputs[0]) == rows
