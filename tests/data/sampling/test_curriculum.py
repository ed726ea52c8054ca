"""Curriculum: hard examples are absent before their time; where all are in, batches are the plain ones."""

import math
import pickle

import pytest
import torch

from margin.data.examples import Arrays, Shuffled
from margin.data.sampling.curriculum import Paced, Pacing, paced, within_classes

N = 50
SCORES = torch.randperm(N, generator=torch.Generator().manual_seed(0)).double()
GROWTHS = ("linear", "root", "step", "exponential")


def examples(n=N):
    return Arrays((torch.arange(n)[:, None].double(),), torch.arange(n) % 3, torch.rand(n))


def indices(batch):
    return batch.inputs[0][:, 0].long()


def same(one, other):
    return all(
        torch.equal(a, b)
        for a, b in zip(
            (*one.inputs, one.targets, one.weight), (*other.inputs, other.targets, other.weight), strict=True
        )
    )


def test_uniform_pacing_is_plain_shuffling_to_the_bit():
    plain = Shuffled(examples(), 8, seed=5)
    data = examples()
    plain = Shuffled(data, 8, seed=5)
    uniform = Paced(data, SCORES, 8, Pacing("uniform", steps=1000), seed=5)
    from_start = paced(data, SCORES, 8, pacing="linear", start=1.0, epochs=3, seed=5)
    assert (uniform.per_epoch, uniform.batch_size) == (plain.per_epoch, plain.batch_size) == (7, 8)
    for step in (*range(22), 500):
        assert same(uniform(step), plain(step)) and same(from_start(step), plain(step))


@pytest.mark.parametrize("growth", GROWTHS)
def test_hard_examples_are_absent_before_their_time_and_present_after(growth):
    data, total = examples(), 200
    batches = paced(data, SCORES, 5, pacing=growth, start=0.2, end=0.5, total=total, seed=1)
    plain = Shuffled(data, 5, seed=1)
    seen = torch.zeros(N, dtype=torch.bool)
    for step in range(100):
        allowed = math.ceil(round(Pacing(growth, 0.2, 100.0)(step) * N, 6))
        drawn = indices(batches(step))
        assert SCORES[drawn].max() < allowed, step
        assert len(drawn.unique()) == 5  # without replacement
        seen[drawn] = True
    assert seen[SCORES < 10].all()
    if growth == "step":
        assert seen.sum() == 10
    for step in range(100, 120):
        assert same(batches(step), plain(step))


def test_each_growth_is_its_formula():
    b, steps = 0.25, 80
    for step in (0, 1, 20, 79):
        r = step / steps
        assert Pacing("linear", b, steps)(step) == pytest.approx(b + (1 - b) * r)
        assert Pacing("root", b, steps)(step) ** 2 == pytest.approx(b**2 + (1 - b**2) * r)
        assert math.log(Pacing("exponential", b, steps)(step)) == pytest.approx((1 - r) * math.log(b))
        assert Pacing("step", b, steps)(step) == b
    for growth in GROWTHS:
        shares = [Pacing(growth, b, steps)(step) for step in range(100)]
        assert shares[0] == b
        assert shares == sorted(shares)
        assert all(share == 1 for share in shares[80:]) and shares[79] < 1
        assert Pacing(growth, b, 0)(0) == 1
    mid = [Pacing(growth, b, steps)(40) for growth in ("step", "exponential", "linear", "root")]
    assert mid == sorted(mid)


def test_the_easiest_come_first_and_ties_in_the_datas_order():
    scores = torch.tensor([3.0, 1.0, 2.0, 1.0, 0.0])
    batches = Paced(examples(5), scores, 1, Pacing("step", 0.6, 10), seed=0)
    assert batches.pool(0).tolist() == [4, 1, 3]
    assert batches.pool(10).tolist() == [4, 1, 3, 2, 0]
    backwards = Paced(examples(5), -scores, 1, Pacing("step", 0.6, 10), seed=0)
    assert backwards.pool(0).tolist() == [0, 2, 1]


def test_a_share_that_is_a_whole_number_of_examples_is_not_rounded_up():
    """0.28 * 25 is 7.000000000000001 in floating point."""
    assert 0.28 * 25 > 7
    batches = Paced(examples(25), torch.arange(25.0), 1, Pacing("step", 0.28, 9), seed=0)
    assert len(batches.pool(0)) == 7
    assert len(Paced(examples(25), torch.arange(25.0), 1, Pacing("step", 0.29, 9), seed=0).pool(0)) == 8


def test_a_pool_holds_at_least_a_batch():
    batches = Paced(examples(), SCORES, 20, Pacing("linear", 0.1, 50), seed=0)
    assert len(batches.pool(0)) == 20
    assert sorted(SCORES[indices(batches(0))].tolist()) == list(range(20))


def test_draws_within_the_pool_are_uniform():
    """2000 batches of 2 out of 10: counts are 400, variance 400 * 0.8; 6 deviations fail with p < 1e-7."""
    batches = Paced(examples(), SCORES, 2, Pacing("step", 0.2, 5000), seed=0)
    counts = torch.cat([indices(batches(step)) for step in range(2000)]).bincount(minlength=N)
    assert (counts[SCORES < 10] - 400).abs().max() < 6 * math.sqrt(320)


def test_a_batch_is_a_function_of_the_seed_and_the_step():
    data = examples()
    batches = paced(data, SCORES, 5, epochs=10, seed=1)
    again = pickle.loads(pickle.dumps(batches))
    for step in (30, 3, 99, 0):
        assert torch.equal(indices(again(step)), indices(batches(step)))
    other = paced(data, SCORES, 5, epochs=10, seed=2)
    assert not torch.equal(indices(other(3)), indices(batches(3)))
    assert not torch.equal(indices(batches(3)), indices(batches(4)))


def test_total_and_epochs_say_the_same():
    data = examples()
    by_epochs = paced(data, SCORES, 8, end=0.5, epochs=4, seed=0)
    by_steps = paced(data, SCORES, 8, end=0.5, total=28, seed=0)
    assert by_epochs.pacing == by_steps.pacing == Pacing("linear", 0.2, 14)


def test_processes_divide_each_batch():
    from margin.data.examples import Share

    data = examples()
    whole = paced(data, SCORES, 6, total=100, seed=0)
    parts = [paced(data, SCORES, 6, total=100, seed=0, share=Share(rank, 2)) for rank in (0, 1)]
    for step in (0, 50, 100):
        assert torch.equal(torch.cat([indices(part(step)) for part in parts]), indices(whole(step)))


def test_within_classes_every_class_comes_in_at_one_rate():
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4, 9.0, 8.0, 7.0, 6.0])
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    shares = within_classes(scores, labels)
    assert shares.tolist() == [0, 0.25, 0.5, 0.75, 0.75, 0.5, 0.25, 0]
    pool = Paced(examples(8), shares, 1, Pacing("step", 0.5, 9), seed=0).pool(0)
    assert sorted(pool.tolist()) == [0, 1, 6, 7]
    uneven = within_classes(torch.arange(5.0), torch.tensor([2, 2, 2, 2, 0]))
    assert uneven.tolist() == [0, 0.25, 0.5, 0.75, 0]
    turned = within_classes(torch.tensor([3.0, 1.0, 2.0, 9.0]), torch.tensor([0, 0, 0, 1]))
    torch.testing.assert_close(turned, torch.tensor([2.0, 0.0, 1.0, 0.0]) / 3)


def test_bad_scores_and_options_are_refused():
    with pytest.raises(ValueError, match=r"scores must be one an example, \(50,\): got shape \(49,\)"):
        paced(examples(), SCORES[1:], 5, epochs=1)
    broken = SCORES.clone()
    broken[7] = math.nan
    with pytest.raises(ValueError, match="every score must be finite: got nan at index 7"):
        paced(examples(), broken, 5, epochs=1)
    for start in (0.0, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"share at the start must be in \(0, 1\]"):
            paced(examples(), SCORES, 5, start=start, epochs=1)
    for end in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"end must be a share of the training"):
            paced(examples(), SCORES, 5, end=end, epochs=1)
    with pytest.raises(ValueError, match="steps of a pacing must be at least 0"):
        Pacing(steps=-1.0)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        paced(examples(), SCORES, 0, epochs=1)
