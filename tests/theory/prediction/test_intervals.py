"""Stated laws judged: log-likelihood, coverage, calibration, in closed form, on laws wrong by design."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import kstest, norm
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.figures.svg import drawing
from margin.math.probability.mixtures import Mixture
from margin.nn.predictive import predictive_of, states_law
from margin.nn.preprocessed import Preprocessed
from margin.theory.prediction.figures import quantiles
from margin.theory.prediction.intervals import calibration, coverage, demo, log_likelihood, states_laws


class Scaled(nn.Module):
    """The law N(x, s^2)."""

    def __init__(self, s: float) -> None:
        super().__init__()
        self.s = s

    def forward(self, x):
        return x[:, 0]

    def predictive(self, x):
        return Mixture(x[None, :, 0].double(), torch.full((1, len(x)), self.s**2, dtype=torch.float64))


def of(s: float):
    return replace(demo(), model=Scaled(s))


def test_the_log_likelihood_is_the_mean_log_density() -> None:
    y = demo().test[0].targets.numpy()
    for s in (1.0, 0.5, 2.0):
        found = log_likelihood(of(s))
        assert float(found.value) == pytest.approx(norm.logpdf(y, 0, s).mean(), rel=1e-12)
        assert float(found.interval[0]) < float(found.value) < float(found.interval[1])


def test_right_laws_cover_as_they_say_and_narrow_ones_do_not() -> None:
    assert coverage(of(1.0)).value.tolist() == [0.5, 0.8, 0.9, 0.95]
    for s in (0.5, 2.0):
        found = coverage(of(s))
        levels = torch.tensor([0.5, 0.8, 0.9, 0.95]).double()
        expected = 2 * norm.cdf(s * norm.ppf((1 + levels.numpy()) / 2)) - 1
        assert torch.allclose(found.value, torch.from_numpy(expected), atol=1 / 200)
        assert bool(((found.value > levels) == (s > 1)).all())


def test_the_calibration_error_is_the_kolmogorov_distance() -> None:
    y = demo().test[0].targets.numpy()
    for s in (1.0, 0.5, 2.0):
        found = calibration(of(s))
        assert float(found.value) == pytest.approx(kstest(y, norm(0, s).cdf).statistic, abs=1e-12)
        half = math.sqrt(math.log(40) / 800)
        assert float(found.interval[1]) == pytest.approx(float(found.value) + half)


@pytest.mark.parametrize("mean", [-0.5, 0.5])
def test_a_law_too_high_or_too_low_is_as_far_on_either_side_of_a_step(mean: float) -> None:
    """The empirical law jumps at a value: of one side the distance is D+, of the other D-."""
    batch = demo().test[0]._replace(inputs=(torch.full((400, 1), mean).double(),))
    found = calibration(replace(of(1.0), test=[batch]))
    expected = kstest(batch.targets.numpy(), norm(mean, 1).cdf).statistic
    assert float(found.value) == pytest.approx(expected, abs=1e-12)


def test_a_weight_counts_an_example_so_often() -> None:
    batch = demo().test[0]
    weight = torch.ones(400).double()
    weight[:100] = 0
    some = replace(of(2.0), test=[Batch(batch.inputs, batch.targets, weight)])
    rest = replace(of(2.0), test=[Batch((batch.inputs[0][100:],), batch.targets[100:])])
    for ask in (log_likelihood, coverage, calibration):
        assert torch.allclose(ask(some).value, ask(rest).value, rtol=1e-12)


def test_a_law_comes_in_the_users_unit() -> None:
    """The outcome of a training on standardized targets is y = 4 z + 10."""
    back = Standardize(torch.tensor(-10 / 4).double(), torch.tensor(1 / 4).double())
    model = Preprocessed(
        Standardize(torch.tensor([2.0]).double(), torch.tensor([3.0]).double()), Scaled(0.5), back
    )
    law = predictive_of(model, torch.tensor([[8.0]]).double())
    assert float(law.mean) == float(model(torch.tensor([[8.0]]).double())) == 18
    assert float(law.variance) == 4


def test_only_models_of_values_that_state_laws_are_asked() -> None:
    subject = demo()
    assert states_laws(subject) and states_law(subject.model)
    assert not states_laws(replace(subject, task=CLASSES))
    assert not states_laws(replace(subject, model=nn.Flatten(0)))


def test_sharpness_is_drawn_as_the_widths_of_the_intervals() -> None:
    found = calibration(of(2.0))
    assert torch.allclose(found.curves["width"], torch.tensor(2 * 2 * norm.ppf(0.975)).double())
    with drawing() as (_, axes):
        assert "sharpness" in quantiles(axes, found)
        (inside,) = axes.child_axes
        assert inside.patches[0].get_data().values.sum() == len(found.curves["width"])
