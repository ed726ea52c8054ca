"""Importance sampling: frequencies, ratios, and batches as a function of the step."""

import math
import pickle

import pytest
import torch

from margin.data.examples import Arrays, Share, Shuffled
from margin.data.sampling.importance import Sampled


def examples(n=6, weight=None):
    return Arrays((torch.arange(n).double()[:, None],), torch.arange(n), weight)


P = torch.tensor([0.3, 0.25, 0.2, 0.15, 0.08, 0.02], dtype=torch.float64)


def test_examples_are_drawn_with_their_probabilities_and_carry_1_over_n_p():
    """5000 draws: 6 standard deviations of a count fail with p < 6 * 2e-9."""
    batches = Sampled(examples(), 7 * P, 5, seed=0)  # any multiple of p will do
    drawn = [batches(step) for step in range(1000)]
    index = torch.cat([batch.targets for batch in drawn])
    counts = index.bincount(minlength=6)
    assert ((counts - 5000 * P).abs() < 6 * (5000 * P * (1 - P)).sqrt()).all()
    ratios = torch.cat([batch.inputs[1] for batch in drawn])
    torch.testing.assert_close(ratios, 1 / (6 * P)[index], rtol=1e-12, atol=0)
    assert all(batch.weight is None for batch in drawn)
    assert any(len(batch.targets.unique()) < 5 for batch in drawn)  # with replacement


def test_the_mean_of_any_values_times_the_ratios_is_their_mean():
    values = torch.tensor([3.0, -1.0, 4.0, 1.0, 50.0, -9.0], dtype=torch.float64)
    ratio = Sampled(examples(), P, 3, seed=0).examples.ratio
    torch.testing.assert_close((P * ratio * values).sum(), values.mean())


def test_batches_are_a_function_of_the_step():
    batches = Sampled(examples(), P, 4, seed=3)
    again = pickle.loads(pickle.dumps(batches))
    for step in (9, 0, 4):
        assert torch.equal(again(step).targets, batches(step).targets)
    assert not torch.equal(torch.stack([batches(s).targets for s in range(4)]).float().std(0), torch.zeros(4))
    plain = Shuffled(examples(), 4, seed=0)
    assert (batches.per_epoch, batches.batch_size) == (plain.per_epoch, plain.batch_size)


def test_processes_divide_each_batch_ratios_too_and_weights_pass():
    data = examples(weight=torch.rand(6))
    whole = Sampled(data, P, 5, seed=0)
    parts = [Sampled(data, P, 5, seed=0, share=Share(rank, 2)) for rank in (0, 1)]
    for get in (lambda b: b.targets, lambda b: b.inputs[1], lambda b: b.weight):
        assert torch.equal(torch.cat([get(part(2)) for part in parts]), get(whole(2)))


def test_an_example_that_could_never_be_drawn_is_refused():
    for bad in (0.0, -0.1, math.nan, math.inf):
        p = P.clone()
        p[2] = bad
        with pytest.raises(
            ValueError, match=r"probabilities must be positive and finite, one an example, \(6,\)"
        ):
            Sampled(examples(), p, 2, seed=0)
    with pytest.raises(ValueError, match=r"got shape \(5,\)"):
        Sampled(examples(), P[1:], 2, seed=0)
