"""The picture of a Gaussian process: draws of its prior and the band of its posterior, in the user's unit."""

import pytest
import torch

from margin.bayes.gp import claims
from margin.bayes.gp.claims import demo, posterior
from margin.bayes.gp.figures import functions
from margin.figures.svg import drawing


def test_prior_functions_have_the_prior_variance_and_the_band_is_the_predictives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,000 functions: a variance errs by 3.2 % in one deviation, and the mean by 1 / sqrt(2,000) of it."""
    monkeypatch.setattr(claims, "FUNCTIONS", 2000)
    subject = demo()
    core = subject.model.model
    found = posterior(subject)
    draws = torch.stack([found.curves[f"prior {k + 1}"] for k in range(2000)])
    signal = float(core.hyperparameters.signal * core.unit.double() ** 2)
    assert float(draws.var(0)[40]) == pytest.approx(signal, rel=0.16)
    assert abs(float(draws.mean(0)[40] - core.shift)) < 5 * (signal / 2000) ** 0.5
    feature = int(core.hyperparameters.scales.argmin())
    rows = core.examples[: int(core.count)].double()
    at = rows.mean(0, keepdim=True)
    at[0, feature] = found.curves["along"][10]
    law = core.predictive(at)
    assert torch.allclose(found.curves["mean"][10], law.mean[0])
    assert torch.allclose(
        found.curves["high"][10], law.mean[0] + 1.959964 * law.variance[0].sqrt(), rtol=1e-6
    )
    assert found.curves["along"][[0, -1]].tolist() == [
        float(rows[:, feature].min()),
        float(rows[:, feature].max()),
    ]


def test_the_picture_has_a_line_a_function_and_one_of_the_mean() -> None:
    with drawing() as (_, axes):
        words = functions(axes, posterior(demo()))
        assert words.startswith("4 functions drawn from the prior") and len(axes.lines) == 5
