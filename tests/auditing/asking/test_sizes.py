"""How many examples a model is asked, what is refused for memory, and what others leave of the processor."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from margin.auditing.asking.budget import Budget, Clock
from margin.auditing.asking.passes import Counted, PassCost, Passes, _of_batches
from margin.auditing.subject.probing import few_of
from margin.core.catalog import Cost, drawn
from margin.core.types import Batch


class Repeating(nn.Module):
    """The first number of a row, so many times: 4 bytes each."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers = numbers

    def forward(self, x):
        return x[:, :1].repeat(1, self.numbers)


def batch_of(rows, width=4):
    return Batch((torch.randn(rows, width),), torch.zeros(rows, dtype=torch.int64))


@pytest.mark.parametrize(("mib", "few"), [(0.1, 32), (1.34, 31), (4, 10), (10, 4), (40, 2), (64, 2)])
def test_a_model_is_asked_as_many_examples_as_hold_128_mib(mib, few):
    """Three tensors as large as an example's largest are live: 128 / (3 x 4) = 10.7 examples of 4 MiB.

    Mutants: one live tensor (32 of 4 MiB); rounded up (11); no least of two (0 of 64 MiB).
    """
    assert few_of(Repeating(int(mib * 2**18)), batch_of(100), 1e9) == few


@pytest.mark.parametrize(("fits", "few"), [(40, 32), (12.5, 12), (0.5, 2)])
def test_a_model_is_asked_as_many_examples_as_five_passes_count_for(fits, few):
    """A product of 1,000 x 1,000: 2e6 operations at 5e10 a second, its weights read at 5e9 bytes a second."""
    one = 2e6 / 5e10 + 4 * (1e6 + 3e3) / 5e9
    assert few_of(nn.Linear(1000, 1000), batch_of(100, 1000), 5 * fits * one) == few


def test_what_cannot_be_cut_or_raises_is_asked_32():
    large = Repeating(2**24)
    assert few_of(large, batch_of(2), 1e9) == 32
    assert few_of(large, batch_of(3), 1e9) == 2
    assert few_of(nn.Linear(5, 2), batch_of(100), 1e9) == 32


class Drawing(nn.Module):
    """It draws in evaluation mode too, and counts in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + torch.randn_like(x)


def test_asking_how_many_leaves_no_trace():
    model, batch = nn.Sequential(nn.BatchNorm1d(4), Drawing()).train(), batch_of(10)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    drawn_before = torch.get_rng_state()
    few_of(model, batch, 1e9)
    assert model.training and model[1].training
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn_before)


@pytest.mark.parametrize(
    ("held", "passes", "minutes", "refused"),
    [
        (2**29 + 2**20, 3, 2.0, True),
        (2**29, 3, 2.0, False),
        (2**29 + 2**20, 2.9, 2.0, False),  # no gradient
        (2**29 + 2**20, 3, float("inf"), False),
    ],
)
def test_a_gradient_that_holds_more_than_512_mib_is_refused(
    subject, claim_of, finding, monkeypatch, held, passes, minutes, refused
):
    cost = PassCost(Passes(1e-4, 1e-4), Passes(1e-4, 1e-4), held)
    monkeypatch.setattr("margin.auditing.asking.budget.cost_of_passes", lambda *_: cost)
    claim = replace(claim_of(lambda s: finding()), cost=Cost(passes))
    said = "needs about 513 MiB for the gradient of one example of the 512 that it may take"
    assert Budget(subject, minutes).lacking(claim) == (said if refused else "")


@pytest.mark.parametrize(("times", "seconds"), [(0.5, 8), (1, 8), (2, 16), (3, 24), (10, 24)])
def test_what_is_left_for_the_report_follows_how_long_a_spin_takes(monkeypatch, times, seconds):
    """8 s of 10 minutes, as many times as a spin takes of its own time, three times at most."""
    now = [0.0]

    def thread_time():
        now[0] += 1e-6
        return now[0]

    monkeypatch.setattr(time, "thread_time", thread_time)
    monkeypatch.setattr(time, "perf_counter", lambda: times * now[0])
    assert Clock(600.0, began=0.0).end == pytest.approx(600 - seconds, abs=0.5)


def test_a_spin_that_is_disturbed_once_is_outweighed_by_those_that_are_not(monkeypatch):
    """The first takes 3 times its processor's time, the other three theirs: 1.5 times in all."""
    now, wall = [0.0], [0.0]
    factor = [3.0]

    def thread_time():
        now[0] += 1e-5
        wall[0] += factor[0] * 1e-5
        return now[0]

    monkeypatch.setattr(time, "thread_time", thread_time)
    monkeypatch.setattr(time, "perf_counter", lambda: wall[0])
    clock = Clock(600.0, began=0.0)
    factor[0] = 1.0
    for _ in range(3):
        clock.look_at_load()
    assert clock.end == pytest.approx(600 - 1.5 * 8, abs=0.2)


@pytest.mark.parametrize(
    ("places", "each", "few"),
    [(100, 1.0, 4), (99, 1.0, 32), (100, 0.04, 32), (100, 0.01, 64), (100, 0.003, 128)],
)
def test_of_many_targets_an_example_that_is_dear_four_are_drawn(
    subject, claim_of, finding, monkeypatch, places, each, few
):
    """A quarter of 2 minutes is 30 s: 20 passes of .04 s are 102 s of 128 examples and 26 s of 32."""
    x, y = torch.randn(200, 4), torch.zeros(200, places, dtype=torch.int64)
    whole = replace(subject, test=[Batch((x,), y)], train=[Batch((x,), y)])
    cost = PassCost(Passes(each, each), Passes(each, each))
    monkeypatch.setattr("margin.auditing.asking.budget.cost_of_passes", lambda *_: cost)
    plan = Budget(whole, 2.0)
    assert plan.has_many_places is (places == 100)
    assert plan.drawn(replace(claim_of(lambda s: finding()), cost=drawn(20))) == few


def test_the_cost_of_a_batch_is_a_line_through_those_of_two_sizes():
    """A forward pass of 5 s for one and 14 s for four is 2 + 3 n: 50 s of 16 examples, 3.125 s of each.

    Forward and backward it is 8 s and 20 s: 4 + 4 n, 68 s, and as timed, 3 s of an example in a batch of four
    that counts for 5, 3/5 of that. Mutants: through the origin (3.5); of one alone (5).
    """
    fewer, more = (
        Counted(n, Passes(*counted), Passes(), 0, 0.0) for n, counted in ((1, (5, 8)), (4, (14, 20)))
    )
    cost = PassCost(Passes(3.5, 5.0), Passes(2.0, 3.0), 7.0)
    found = _of_batches(cost, fewer, more, 16)
    assert tuple(found.counted) == pytest.approx((50 / 16, 68 / 16))
    assert tuple(found.timed) == pytest.approx((2 * 0.85, 3 * 0.85))  # 68 / 16 of 5
    assert found.held == 7.0
    # what takes no longer for four than for one takes no longer for 16
    flat = more._replace(counted=Passes(5, 8))
    assert tuple(_of_batches(cost, fewer, flat, 16).counted) == pytest.approx((5 / 16, 8 / 16))


LARGE_PASS = """
import re, sys, torch, margin
from margin.auditing.asking.passes import cost_of_passes
from margin.auditing.subject.subjects import subject_of
from margin.vision.segmentation.unet import UNet

def memory(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.rand(6, 3, 256, 256), torch.randint(2, (6, 256, 256))
model = UNet(3, 2, width=16, levels=4).eval()
held = cost_of_passes(subject_of(model, (x, y))).held / 2**20
start = 0.0

def begins(claim, place, count):
    global start
    start = memory("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")

audit = margin.audit(model, (x, y), claims=sys.argv[1], minutes=20.0, progress=begins)
print(held, memory("VmHWM") - start, [a.absence for a in audit.answers])
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak of a process")
def test_a_large_pass_is_held_once_though_it_is_run_six_times():
    """A U-Net of which a pass over an example of 256 x 256 holds 78 MiB: 102 at most are taken.

    Mutant: the C library keeps blocks that were freed (265 MiB).
    """
    words = [sys.executable, "-c", LARGE_PASS, "theory/signal.activations"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    held, peak, absent = done.stdout.strip().split(" ", 2)
    assert absent == "['']" and float(held) > 70
    assert float(peak) < 2 * float(held)
