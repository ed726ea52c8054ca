"""Standardizing against scikit-learn, on constants, in both types, and as a map with a gradient."""

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from margin.core.types import Domain
from margin.data.examples import Arrays, Data
from margin.data.preprocess import Moments, Scale, Standardize, fit_standardize, rescaled


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (x * 3 + 7).to(dtype)


@pytest.mark.parametrize("count", [2, 90, 4096, 9001])
def test_features_agree_with_scikit_learn(count: int) -> None:
    x = draw(count, 5) * torch.tensor([1e-3, 1.0, 10.0, 1e4, 1e8]) + torch.tensor([0.0, 1e3, -5.0, 0.0, 1e9])
    fitted = fit_standardize(x, per="feature")
    scaler = StandardScaler().fit(x.numpy())
    np.testing.assert_allclose(fitted.mean.numpy(), scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(fitted.std.numpy(), scaler.scale_, rtol=1e-9)
    np.testing.assert_allclose(fitted(x).numpy(), scaler.transform(x.numpy()), atol=1e-8)


def test_statistics_are_float64_even_of_float32() -> None:
    x = (draw(50_000, 1) * 1e-3 + 1e3).float()
    fitted = fit_standardize(x, per="feature")
    exact = x.double().numpy()
    assert fitted.std.item() == pytest.approx(exact.std(), rel=1e-10)
    assert fitted(x).dtype == torch.float32
    assert fitted(x.double()).dtype == torch.float64


def test_channels_are_pooled_over_examples_and_pixels() -> None:
    x = draw(30, 3, 4, 5) * torch.tensor([1.0, 2.0, 0.5])[:, None, None]
    fitted = fit_standardize(x, per="channel")
    assert fitted.mean.shape == (3, 1, 1)
    np.testing.assert_allclose(fitted.mean.flatten().numpy(), x.numpy().mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(fitted.std.flatten().numpy(), x.numpy().std((0, 2, 3)), rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-30, 1e30, -7.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_becomes_zero(value: float, dtype: torch.dtype) -> None:
    # scikit-learn issue 18371: 0/0 where a column does not vary; 0.1 summed 1,001 times is not 100.1.
    x = torch.full((1001, 2), value, dtype=dtype)
    x[:, 1] = torch.arange(1001)
    fitted = fit_standardize(x, per="feature")
    assert fitted.std[0] == 1
    assert torch.equal(fitted(x)[:, 0], torch.zeros(1001, dtype=dtype))


def test_a_constant_image_stays_finite() -> None:
    fitted = fit_standardize(torch.full((3, 1, 2, 2), 0.1), per="channel")
    assert fitted.std.flatten().tolist() == [1.0]
    assert fitted(torch.full((3, 1, 2, 2), 0.1)).abs().max() < 1e-6


def test_one_example_is_enough() -> None:
    assert torch.equal(fit_standardize(torch.ones(1, 3), per="feature").std, torch.ones(3).double())


def test_indicators_are_left_as_they_are() -> None:
    x = torch.cat([draw(40, 1), (draw(40, 2) > 7).double()], 1)
    fitted = fit_standardize(x, per="feature", indicators=torch.tensor([False, True, True]))
    assert torch.equal(fitted(x)[:, 1:], x[:, 1:])
    assert abs(float(fitted(x)[:, 0].mean())) < 1e-12


def test_it_is_affine_with_the_right_gradient() -> None:
    fitted = fit_standardize(draw(40, 3), per="feature")
    x = draw(4, 3).requires_grad_()
    fitted(x).sum().backward()
    torch.testing.assert_close(x.grad, (1 / fitted.std).expand(4, 3))


def test_it_moves_with_its_module() -> None:
    fitted = fit_standardize(draw(40, 3), per="feature")
    assert set(fitted.state_dict()) == {"mean", "std"}
    assert not list(fitted.parameters())
    assert fitted.float().mean.dtype == torch.float32


def test_what_cannot_be_fitted_is_refused(refused) -> None:
    with refused("at least one training example"):
        fit_standardize(torch.empty(0, 3), per="feature")
    with refused("finite mean and variance"):
        fit_standardize(torch.tensor([[1e300], [-1e300]], dtype=torch.float64), per="feature")
    with refused("finite and positive"):
        Standardize(torch.zeros(2), torch.zeros(2))
    with refused("one shape"):
        Standardize(torch.zeros(2), torch.ones(3))


def test_the_inverse_undoes_it() -> None:
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0]], dtype=torch.float64)
    standardize = fit_standardize(x, per="feature")
    assert standardize.inverse(torch.tensor([[1.0, 0.0]], dtype=torch.float64)).tolist() == [[3.0, 5.0]]
    assert torch.equal(standardize.inverse(standardize(x)), x)


@pytest.mark.parametrize("sizes", [(3, 1, 7), (11,), (1, 1, 2)])
def test_moments_of_batches_are_those_of_all_their_rows(sizes: tuple[int, ...]) -> None:
    x = draw(sum(sizes), 4) * torch.tensor([1.0, 1e-3, 50.0, 1e4], dtype=torch.float64)
    seen = Moments("feature")
    for part in x.split(sizes):
        seen.add(part)
    scaler = StandardScaler().fit(x.numpy())
    np.testing.assert_allclose(seen.standardize().mean.numpy(), scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(seen.standardize().std.numpy(), scaler.scale_, rtol=1e-10)
    images = draw(sum(sizes), 2, 3, 3)
    pooled = Moments("channel")
    for part in images.split(sizes):
        pooled.add(part)
    expected = images.numpy().std((0, 2, 3))
    np.testing.assert_allclose(pooled.standardize().std.flatten().numpy(), expected, rtol=1e-12)


# another map in front of the model: ends of the domain by hand, the remedy where no domain is known

X = torch.tensor([[0.0, 4.0], [16.0, 8.0]])


def data(domain: Domain | None) -> Data:
    return Data(
        name="levels",
        splits={"train": Arrays((X,))},
        spec={"in_features": 2},
        preprocess=fit_standardize(X, per="feature"),
        domain=domain,
    )


BOX = Domain(torch.tensor(0.0), torch.tensor(16.0))
SIDES = Domain(torch.tensor([0.0, 4.0]), torch.tensor([16.0, 8.0]))


@pytest.mark.parametrize(
    ("scale", "domain", "expected"),
    [
        ("unit", BOX, [[0.0, 0.25], [1.0, 0.5]]),
        ("symmetric", BOX, [[-1.0, -0.5], [1.0, 0.0]]),
        ("unit", SIDES, [[0.0, 0.0], [1.0, 1.0]]),
        ("none", None, X.tolist()),
        ("standard", None, [[-1.0, -1.0], [1.0, 1.0]]),
    ],
)
def test_the_values_by_hand(scale: Scale, domain: Domain | None, expected: list[list[float]]) -> None:
    preprocess = rescaled(data(domain), scale).preprocess
    assert preprocess(X).tolist() == expected
    if isinstance(preprocess, Standardize):
        torch.testing.assert_close(preprocess.inverse(preprocess(X)), X)


def test_without_a_domain_the_message_names_the_option_that_gives_it() -> None:
    with pytest.raises(ValueError, match=r"levels: set --data.domain low,high, or --scale none"):
        rescaled(data(None), "unit")
