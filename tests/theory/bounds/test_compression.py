"""The compression bound: pruned copies and their lengths by hand, the best of all, coverage, what it says."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.bounds.binary_kl import kl_upper
from margin.theory.bounds.compression import KEEP, LEVELS, best_copy, compression, demo
from margin.theory.bounds.description import enumerated_nats, pruned

LN2 = math.log(2)


def test_a_pruned_copy_by_hand() -> None:
    """Of sizes .9 .1 .2 .7 .05 .82 half stay: their mean is .8067; or the nearer of .7 and .9."""
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.9, -0.1, 0.2], [-0.7, 0.05, 0.82]]))
        model.bias.copy_(torch.tensor([1.0, 3.0]))
    before = model.weight.clone()
    plain = 2 * math.log(33) + 4 * 32 * LN2  # two biases, and two ends of each tensor
    for levels, mean, counts in ((3, 2.42 / 3, [1, 3, 2]), (5, 0.0, [0, 1, 3, 0, 2])):
        twin, nats = pruned(model, levels, 0.5)
        big, small = (mean, mean) if mean else (0.9, 0.7)
        expected = torch.tensor([[big, 0, 0], [-small, 0, big]])
        assert torch.allclose(twin.weight, expected) and torch.allclose(twin.bias, model.bias)
        assert nats == pytest.approx(plain + enumerated_nats(torch.tensor(counts)))
    assert torch.equal(model.weight, before)
    whole, _ = pruned(model, 9, 1.0)
    assert (whole.weight - model.weight).abs().max() <= (0.9 - 0.05) / 3 / 2 + 1e-6
    assert bool((whole.weight != 0).all())


def test_buffers_are_written_and_whole_numbers_as_they_are_stored() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    model[1].running_var.copy_(torch.tensor([0.5, 2.0, 4.5]))
    twin, nats = pruned(model, 3, 1.0)
    code = (model[0].weight > 0).long()
    matrix = enumerated_nats(torch.bincount(code.flatten() * 2, minlength=3))
    assert nats == pytest.approx(15 * math.log(33) + (6 * 2 + 1) * 64 * LN2 + matrix)
    assert (twin[1].running_var - model[1].running_var).abs().max() <= 4 / 32 / 2 + 1e-9
    zero = nn.Linear(2, 2)
    nn.init.zeros_(zero.weight)
    assert torch.equal(pruned(zero, 3, 0.5)[0].weight, zero.weight)


def test_the_best_of_all_copies_pays_for_the_choice() -> None:
    """Each of twenty at a twentieth of .05, by its own errors on the 3,000 training examples."""
    subject = demo()
    x, y = subject.train[0].inputs[0], subject.train[0].targets
    bounds = {}
    for levels in LEVELS:
        for keep in KEEP:
            twin, nats = pruned(subject.model, levels, keep)
            with torch.no_grad():
                wrong = float((twin(x).argmax(1) != y).double().mean())
            bounds[levels, keep] = float(kl_upper(wrong, (nats + math.log(20 / 0.05)) / 3000))
    assert len(bounds) == 20
    found, shortest, n = best_copy(subject, 0.5)
    assert found is not None and n == 3000
    assert found.bound == pytest.approx(min(bounds.values()), abs=1e-12)
    assert bounds[found.levels, found.keep] == pytest.approx(found.bound, abs=1e-12)
    assert shortest == pytest.approx(min(pruned(subject.model, 3, keep)[1] for keep in KEEP))
    assert compression(subject).verdict is Verdict.HOLDS


def learner(seed: int, n: int) -> tuple[Subject, torch.Tensor, torch.Tensor]:
    """Least squares of noisy labels, and 20,000 examples of the same law."""
    g = Generator().manual_seed(seed)
    x = torch.randn(n + 20_000, 12, generator=g)
    y = (x[:, 0] + x[:, 1] > 0).long()
    y = torch.where(torch.rand(len(y), generator=g) < 0.1, 1 - y, y)
    model = nn.Linear(12, 2)
    w = torch.linalg.lstsq(x[:n], 2.0 * y[:n, None] - 1).solution[:, 0]
    with torch.no_grad():
        model.weight.copy_(torch.stack((-w, w)))
        model.bias.zero_()
    held_out = Batch((x[n : n + 50],), y[n : n + 50])
    subject = Subject(
        model=model, test=[held_out], train=[Batch((x[:n],), y[:n])], task=CLASSES, objective=risk(CLASSES)
    )
    return subject, x[n:], y[n:]


def test_it_covers_the_risk_of_the_copy() -> None:
    """Of 40 training sets of 600 at most 10 bounds fail: with 5 % each, more do so once in 20,000 times.

    That it pays: the training errors alone, without the length, fail for more.
    """
    failed = alone = 0
    for seed in range(40):
        subject, x, y = learner(seed, 600)
        found, *_ = best_copy(subject, 0.5)
        assert found is not None
        with torch.no_grad():
            truth = float((found.model(x).argmax(1) != y).double().mean())
        failed += found.bound < truth
        alone += found.risk < truth
    assert failed <= 10 < alone


def test_what_it_says_of_few_examples_and_of_another_population() -> None:
    """Of 50 examples of two classes as frequent pay for 50 ln 2 - ln(20 / .05) nats, 41 bits."""
    subject = demo()
    first = Batch((subject.train[0].inputs[0][:50],), subject.train[0].targets[:50])
    half = torch.arange(20) % 2
    even = Batch((subject.test[0].inputs[0][:20],), half)
    found = compression(dataclasses.replace(subject, train=[first], test=[even]))
    assert found.verdict is Verdict.VACUOUS
    assert found.remarks[0].endswith("50 training examples pay for 41.")
    other = [batch._replace(targets=1 - batch.targets) for batch in subject.test]
    assert compression(dataclasses.replace(subject, test=other)).verdict is Verdict.VIOLATED
    leaked = dataclasses.replace(subject, test=[subject.train[0]])
    assert compression(leaked).verdict is Verdict.UNFOUNDED


@pytest.mark.parametrize(
    ("levels", "keep", "message"),
    [
        (4, 0.5, "levels must be odd and at least 3: got 4"),
        (1, 0.5, "levels must be odd and at least 3: got 1"),
        (3, 0.0, r"keep must lie in \(0, 1\]: got 0"),
    ],
)
def test_numbers_out_of_range_are_refused(levels: int, keep: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pruned(nn.Linear(2, 2), levels, keep)
