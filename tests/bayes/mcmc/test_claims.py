"""What is asked of chains: those that disagree, diverge or follow another rule are told apart."""

import math
from collections.abc import Callable

import pytest
import torch

from margin.bayes.mcmc.claims import agreement, balance, demo, divergences, reversed_trajectory, traces, worth
from margin.bayes.mcmc.diagnostics import effective_sample_size, r_hat
from margin.bayes.mcmc.figures import chains
from margin.core.findings import Finding, Subject, Verdict
from margin.figures.svg import drawing


def test_chains_are_compared_by_what_they_predict() -> None:
    subject = demo()
    model = subject.model
    x = subject.test[0].inputs[0]
    draws = traces(subject)
    weight, bias = model.draws[3, 1]
    assert draws.shape == (40, 4, 24) and torch.allclose(draws[3, 1], x[:, 0] * weight + bias)
    assert float(agreement(subject).value) == float(r_hat(draws).max())
    assert float(worth(subject).value) == float(effective_sample_size(draws).min())
    model.draws[:, 0] += 10
    assert float(agreement(subject).value) > 1.5


@pytest.mark.parametrize("claim", [agreement, worth])
def test_draws_that_are_no_numbers_agree_with_nothing(claim: Callable[[Subject], Finding]) -> None:
    """R-hat of NaN is NaN, which a constant output has too: that one agrees."""
    subject = demo()
    subject.model.draws[3, 1] = math.nan
    assert claim(subject).verdict is Verdict.FAILED


def test_divergences_are_shares_of_each_chain() -> None:
    subject = demo()
    subject.model.divergent[2] = 45
    found = divergences(subject)
    assert found.value.tolist() == [0, 0, 45 / 60, 0]
    assert "1 chains diverged and are left out" in agreement(subject).statement


def test_identities_hold() -> None:
    subject = demo()
    for ask in (reversed_trajectory, balance):
        assert ask(subject).verdict is Verdict.HOLDS


def test_the_picture_has_a_trace_and_a_histogram_of_ranks_of_each_chain() -> None:
    subject = demo()
    with drawing() as (_, axes):
        words = chains(axes, agreement(subject))
        assert words.startswith("40 draws of each of 4 chains")
        trace, ranks = axes.child_axes
        assert len(trace.lines) == 4 and len(ranks.patches) == 4
        assert trace.lines[2].get_ydata().shape == (40,)
        counts = [patch.get_data().values.sum() for patch in ranks.patches]
        assert counts == [40] * 4
