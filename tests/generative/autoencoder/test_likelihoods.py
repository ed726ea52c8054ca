"""What a decoder says of an input: against torch's distributions; pixels out of range are refused."""

import math

import pytest
import torch
from torch import Generator
from torch.distributions import Bernoulli, Normal

from margin.generative.autoencoder.distributions import BernoulliPixels, GaussianValues, likelihood_of


@pytest.fixture
def g() -> Generator:
    return Generator().manual_seed(0)


def gaussian(noise: float) -> GaussianValues:
    made = GaussianValues().double()
    with torch.no_grad():
        made.log_noise.fill_(math.log(noise))
    return made


def test_normal_values_have_torchs_density_summed_over_all_axes(g: Generator) -> None:
    x, output = torch.randn(2, 6, 3, 5, generator=g, dtype=torch.float64)
    expected = Normal(output, 0.3).log_prob(x).sum((1, 2))
    torch.testing.assert_close(gaussian(0.3).log_prob(output, x), expected, rtol=1e-12, atol=1e-10)


def test_bits_have_torchs_probability_summed_over_all_axes(g: Generator) -> None:
    logits = 3 * torch.randn(6, 3, 5, generator=g, dtype=torch.float64)
    x = (torch.rand(6, 3, 5, generator=g) < 0.5).double()
    expected = Bernoulli(logits=logits).log_prob(x).sum((1, 2))
    torch.testing.assert_close(BernoulliPixels().log_prob(logits, x), expected, rtol=1e-12, atol=1e-12)


def test_the_probabilities_of_all_pictures_of_three_bits_sum_to_one(g: Generator) -> None:
    logits = torch.randn(3, generator=g, dtype=torch.float64).expand(8, 3)
    pictures = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    assert float(BernoulliPixels().log_prob(logits, pictures).exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_a_certain_decoder_stays_finite() -> None:
    """At a logit of 200 a probability rounds to 1 and its logarithm's complement would be -inf."""
    value = BernoulliPixels().log_prob(torch.full((1, 1), 200.0), torch.zeros(1, 1))
    assert float(value) == -200.0


def test_the_learned_noise_of_best_likelihood_is_the_mean_squared_error(g: Generator) -> None:
    x = 0.4 * torch.randn(50, 8, generator=g, dtype=torch.float64)
    rms = float(x.square().mean().sqrt())
    made = gaussian(rms)
    made.log_prob(torch.zeros_like(x), x).sum().backward()
    assert abs(float(made.log_noise.grad)) < 1e-10


def test_bits_are_drawn_with_the_pixels_as_probabilities_and_bits_stay(g: Generator) -> None:
    x = torch.tensor([0.0, 0.25, 0.8, 1.0]).expand(40_000, 4)
    bits = BernoulliPixels().observed(x, g)
    assert set(bits.unique().tolist()) == {0.0, 1.0}
    assert bits[:, 0].sum() == 0
    assert bits[:, 3].sum() == 40_000
    for k, p in ((1, 0.25), (2, 0.8)):  # 4 standard errors: P < 1e-4 each
        assert abs(float(bits[:, k].mean()) - p) < 4 * math.sqrt(p * (1 - p) / 40_000)
    assert torch.equal(BernoulliPixels().observed(bits, g), bits)


def test_a_black_pixel_stays_black_where_the_draw_is_zero(
    monkeypatch: pytest.MonkeyPatch, g: Generator
) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.zeros(shape))
    assert BernoulliPixels().observed(torch.tensor([[0.0, 0.1]]), g).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("pixel", "shown"), [(-0.42, "from -0.42 to 1"), (2.8, "from 0 to 2.8"), (math.nan, "from nan to nan")]
)
def test_a_pixel_out_of_range_names_the_option_that_rescales(pixel: float, shown: str, g: Generator) -> None:
    x = torch.tensor([[0.0, 1.0, pixel]])
    with pytest.raises(
        ValueError, match=rf"Bernoulli decoder needs .* \[0, 1\]: got {shown}; .*--scale unit"
    ):
        BernoulliPixels().observed(x, g)


@pytest.mark.parametrize("pixel", [-1e-7, 1 + 2e-7])
def test_rounding_alone_is_not_refused(pixel: float, g: Generator) -> None:
    bit = BernoulliPixels().observed(torch.tensor([[pixel]]), g)
    assert float(bit) == round(pixel)


def test_draws_have_the_law_and_the_mean_is_theirs(g: Generator) -> None:
    output = torch.tensor([0.5, -1.0]).double().expand(50_000, 2)
    for law, spread in ((gaussian(0.3), [0.3, 0.3]), (BernoulliPixels(), None)):
        drawn, mean = law.draw(output, g), law.mean(output)[0]
        deviation = torch.tensor(spread).double() if spread else (mean * (1 - mean)).sqrt()
        assert bool(((drawn.mean(0) - mean).abs() < 4 * deviation / math.sqrt(50_000)).all())
        torch.testing.assert_close(drawn.std(0), deviation, rtol=0.02, atol=0)


def test_an_unknown_decoder_is_named() -> None:
    with pytest.raises(ValueError, match="decoder must be gaussian or bernoulli: got 'poisson'"):
        likelihood_of("poisson")
