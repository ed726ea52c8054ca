"""On linear-Gaussian data three ways are one: a posterior that is wrong is told by each."""

import torch

from margin.bayes.linear.claims import demo, exact, is_small, sampled
from margin.core.findings import Verdict


def test_laplace_and_hamiltonian_draws_are_the_exact_posterior() -> None:
    subject = demo()
    assert is_small(subject)
    assert exact(subject).verdict is Verdict.HOLDS and float(exact(subject).value.max()) < 1e-10
    assert set(sampled(subject).verdicts) == {Verdict.HOLDS}


def test_a_covariance_or_a_mean_that_is_wrong_is_violated() -> None:
    subject = demo()
    subject.model.covariance.mul_(1.1)
    assert [v is Verdict.VIOLATED for v in exact(subject).verdicts] == [False, True, False]
    assert set(sampled(subject).verdicts) == {Verdict.VIOLATED}
    subject = demo()
    with torch.no_grad():
        subject.model.weight[1] += 0.3
    verdicts = exact(subject).verdicts
    assert verdicts[0] is Verdict.VIOLATED and verdicts[2] is Verdict.VIOLATED


def test_a_posterior_without_examples_is_not_asked() -> None:
    subject = demo()
    subject.model.count.zero_()
    assert not is_small(subject)
