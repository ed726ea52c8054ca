"""What rules promise: the volume of a step by hand, variances by iterating moments, wrong rules violated."""

import math

import pytest
import torch

from margin.bayes.mcmc import stationary
from margin.bayes.mcmc.chains import overdamped_langevin, underdamped_langevin
from margin.bayes.mcmc.claims import demo
from margin.bayes.mcmc.stationary import is_small, overdamped, underdamped, volume
from margin.core.findings import Verdict


def test_a_leapfrog_keeps_volume_and_eulers_step_makes_it_what_its_determinant_says() -> None:
    """The demonstration's energy is quadratic: of Euler's step det = det(I + step^2 M^-1 H)."""
    subject = demo()
    assert is_small(subject)
    found = volume(subject)
    assert found.verdict is Verdict.HOLDS and abs(float(found.value)) < 1e-8
    core = subject.model
    x = torch.cat((subject.train[0].inputs[0], torch.ones(24, 1, dtype=torch.float64)), 1)
    H = x.T @ x / math.exp(core.log_noise) + torch.diag(core.precisions)
    step, inverse = core.adaptation.step(False), core.adaptation.inverse
    expected = torch.logdet(torch.eye(2, dtype=torch.float64) + step**2 * inverse[:, None] * H)
    assert float(found.statement.rpartition(" is ")[2].rstrip(".")) == pytest.approx(
        float(expected), rel=0.02
    )


def test_a_trajectory_that_loses_volume_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    def damped(energy, start, momentum, inverse, step, steps):
        return trajectory(energy, start, 0.99 * momentum, inverse, step, steps)

    trajectory = stationary.trajectory
    monkeypatch.setattr(stationary, "trajectory", damped)
    found = volume(demo())
    assert found.verdict is Verdict.VIOLATED
    assert float(found.value) == pytest.approx(2 * math.log(0.99), rel=1e-6)


def iterated(A: torch.Tensor, Q: torch.Tensor) -> float:
    S = torch.zeros_like(A)
    for _ in range(2000):
        S = A @ S @ A.T + Q
    return float(S[0, 0])


@pytest.mark.parametrize("eta", stationary.UNDERDAMPED)
def test_the_promised_variance_is_the_fixed_point_of_the_moments(eta: float) -> None:
    """The recursion by hand at curvature 1 and friction 1, as of the position after the momentum."""
    keep = 1 - eta
    A = torch.tensor([[1 - eta * eta, eta * keep], [-eta, keep]], dtype=torch.float64)
    noise = torch.tensor([eta, 1.0], dtype=torch.float64)
    assert stationary._lyapunov(eta) == pytest.approx(
        iterated(A, 2 * eta * torch.outer(noise, noise)), rel=1e-10
    )


def test_both_laws_hold_whatever_the_curvature_and_the_wrong_rules_are_violated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seeds are fixed and only scaled by the curvature: what holds once holds always."""
    subject = demo()
    assert overdamped(subject).verdict is Verdict.HOLDS and underdamped(subject).verdict is Verdict.HOLDS

    def no_half(slope, theta, *, draws, step, generator):
        return overdamped_langevin(lambda t: 2 * slope(t), theta, draws=draws, step=step, generator=generator)

    def printed(slope, theta, *, draws, step, friction, generator):
        """The noise 2 eta g in the place of its root: the temperature is 2 eta g."""
        scale = (2 * step * friction) ** 0.5
        found = underdamped_langevin(
            slope, theta / scale, draws=draws, step=step, friction=friction, generator=generator
        )
        return scale * found

    monkeypatch.setattr(stationary, "overdamped_langevin", no_half)
    monkeypatch.setattr(stationary, "underdamped_langevin", printed)
    assert set(overdamped(subject).verdicts) == {Verdict.VIOLATED}
    assert set(underdamped(subject).verdicts[:1] + underdamped(subject).verdicts[2:]) == {Verdict.VIOLATED}
