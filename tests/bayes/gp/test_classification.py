"""Gaussian process classification: scikit-learn's at equal hyper-parameters, integrals, weights."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from sklearn.gaussian_process import GaussianProcessClassifier as Reference
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from margin.bayes.gp.classification import (
    GaussianProcessClassifier,
    log_evidence,
    logistic_gaussian,
    mode_of,
)
from margin.bayes.gp.kernels import Hyperparameters, gram
from margin.bayes.gp.learning import classification
from margin.core.types import Batch
from margin.engine.loop import State


def rows(count: int = 50, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    noise = 0.5 * torch.randn(count, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] ** 2 + x[:, 1] + noise > 0.8).double()


def found(scales=(0.8, 1.7), signal: float = 2.3) -> Hyperparameters:
    return Hyperparameters(*(torch.tensor(v, dtype=torch.float64) for v in (scales, signal, 1.0)))


@pytest.mark.parametrize(
    ("kernel", "peer"), [("rbf", RBF((0.8, 1.7))), ("matern32", Matern((0.8, 1.7), nu=1.5))]
)
def test_the_evidence_and_its_gradient_are_scikit_learns(kernel: str, peer) -> None:
    x, labels = rows()
    value, slopes, _ = log_evidence(x, 2 * labels - 1, torch.ones(50).double(), found(), kernel)
    theirs = Reference(ConstantKernel(2.3) * peer, optimizer=None).fit(x.numpy(), labels.numpy())
    expected, gradient = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(slopes[:3], [gradient[1], gradient[2], gradient[0]], rtol=1e-4, atol=1e-5)


def test_the_gradient_is_that_of_finite_differences() -> None:
    """With weights, so that the part by way of the mode is weighed too."""
    x, labels = rows(25)
    weight, log = torch.arange(1, 26).double() / 9, found().log()
    ours = log_evidence(x, 2 * labels - 1, weight, found(), "matern52")[1]
    for i in range(3):
        step = torch.zeros_like(log)
        step[i] = 1e-4
        ends = [
            log_evidence(x, 2 * labels - 1, weight, Hyperparameters.of_log(log + s * step), "matern52")[0]
            for s in (1, -1)
        ]
        assert float(ours[i]) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4, abs=1e-6)


def test_the_mode_is_at_rest_and_a_weight_of_two_is_two_labels() -> None:
    x, labels = rows(20)
    sign = 2 * labels - 1
    K = gram(x, x, found(), "rbf")
    weight = torch.tensor([2.0] * 5 + [1.0] * 15).double()
    mode = mode_of(K, sign, weight)
    assert torch.allclose(torch.linalg.solve(K, mode.latent), mode.slope, atol=1e-5)
    index = torch.cat((torch.arange(5), torch.arange(20)))
    twice = mode_of(gram(x[index], x[index], found(), "rbf"), sign[index], torch.ones(25).double())
    assert torch.allclose(twice.latent[5:], mode.latent, atol=1e-6)
    assert float(twice.evidence) == pytest.approx(float(mode.evidence), rel=1e-6)


def test_the_average_over_the_latent_value_is_its_integral() -> None:
    for mean, variance in ((0.0, 1.0), (-2.0, 0.3), (3.0, 9.0), (-6.0, 4.0), (1.0, 0.0)):
        ours = logistic_gaussian(torch.tensor(mean).double(), torch.tensor(variance).double())
        if variance:
            density = lambda f: np.exp(-((f - mean) ** 2) / 2 / variance) / np.sqrt(2 * np.pi * variance)  # noqa: B023
            expected = quad(lambda f: density(f) / (1 + np.exp(-f)), -60, 60, points=[mean], limit=400)[0]  # noqa: B023
        else:
            expected = 1 / (1 + np.exp(-mean))
        assert float(ours.exp()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_scikit_learns(classes: int) -> None:
    """Theirs is an approximation by five error functions (Williams and Barber 1998), good to 1e-3."""
    x, labels = rows(60)
    if classes == 3:
        labels = labels + (x[:, 1] > 1).double() * (labels == 1).double()
    new = rows(20, seed=1)[0]
    model = GaussianProcessClassifier(2, classes, 60, learn="none", lengthscale=1.3).double()
    metrics = classification()(State({"model": model}), Batch((x,), labels.long()))
    peer = Reference(RBF(1.3), optimizer=None).fit(x.numpy(), labels.numpy())
    np.testing.assert_allclose(model(new).detach().exp(), peer.predict_proba(new.numpy()), atol=2e-3)
    assert torch.allclose(model(new).exp().sum(1), torch.ones(20).double())
    theirs = -np.log(peer.predict_proba(x.numpy())[np.arange(60), labels.long().numpy()]).mean()
    assert float(metrics["loss"]) == pytest.approx(theirs, rel=5e-3)


def test_learning_raises_the_evidence_and_the_noise_has_no_part_in_it() -> None:
    x, labels = rows(60)
    made = {}
    for learn in ("none", "evidence"):
        model = GaussianProcessClassifier(2, 2, 60, learn=learn).double()
        made[learn] = classification()(State({"model": model}), Batch((x,), labels.long()))["evidence"]
    assert made["evidence"] > made["none"] + 1
    slopes = log_evidence(x, 2 * labels - 1, torch.ones(60).double(), model.hyperparameters(0), "rbf")[1]
    assert slopes.abs().max() < 0.05 and slopes[-1] == 0
