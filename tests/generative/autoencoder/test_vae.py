"""The variational autoencoder's verbs: shapes, laws, labels, what is refused."""

import math

import pytest
import torch
from torch import Generator, nn

from margin.generative.autoencoder.distributions import GaussianValues
from margin.generative.autoencoder.vae import VAE, conditional_vae, conv_vae, dense_vae


def known() -> VAE:
    """x = 3 z + 1 + 0.5 eps in one dimension: N(1, 9.25)."""
    encoder, decoder = nn.Linear(1, 2), nn.Linear(1, 1)
    model = VAE(encoder, decoder, GaussianValues(), code=1).double()
    with torch.no_grad():
        decoder.weight.fill_(3.0), decoder.bias.fill_(1.0)
        model.likelihood.log_noise.fill_(math.log(0.5))
    return model


@torch.no_grad()
def test_samples_have_the_models_law_and_means_leave_out_the_noise() -> None:
    n, g = 40_000, Generator().manual_seed(0)
    for values, variance in (("drawn", 9.25), ("mean", 9.0)):
        x = known().sample(n, generator=g, values=values)
        assert x.shape == (n, 1)
        assert x.dtype == torch.float64
        assert float(x.mean()) == pytest.approx(1.0, abs=4 * math.sqrt(variance / n))
        assert float(x.var()) == pytest.approx(variance, abs=4 * variance * math.sqrt(2 / n))


@torch.no_grad()
def test_one_seed_gives_one_set_of_samples_and_the_global_generator_rests() -> None:
    model, before = known(), torch.get_rng_state()
    first, second = (model.sample(5, generator=Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


@torch.no_grad()
def test_an_interpolation_begins_and_ends_at_the_means_of_two_draws_and_keeps_their_norms() -> None:
    torch.manual_seed(0)
    model = dense_vae(3, code=5, hidden=())
    codes: list[torch.Tensor] = []
    model.decoder.register_forward_pre_hook(lambda _, inputs: codes.append(inputs[0]))
    path = model.interpolate(7, generator=Generator().manual_seed(2))
    ends = torch.randn(2, 5, generator=Generator().manual_seed(2))
    assert path.shape == (7, 3)
    torch.testing.assert_close(codes[0][[0, -1]], ends)
    torch.testing.assert_close(path[[0, -1]], model.decode(ends))
    assert float(codes[0].norm(dim=1).min()) > 0.8 * float(ends.norm(dim=1).min())
    assert dense_vae(3, code=1).interpolate(4, generator=Generator().manual_seed(2)).shape == (4, 3)
    assert dense_vae(3, code=2).interpolate(1, generator=Generator().manual_seed(2)).shape == (1, 3)


@torch.no_grad()
def test_reconstructions_have_the_inputs_shape_and_codes_are_posterior_means() -> None:
    torch.manual_seed(0)
    model = dense_vae(12, code=2)
    x = torch.randn(4, 1, 3, 4)
    mean, log_scale = model.posterior(x)
    assert mean.shape == log_scale.shape == (4, 2)
    assert torch.equal(model(x), mean)
    assert model.reconstruct(x).shape == x.shape
    torch.testing.assert_close(model.reconstruct(x).flatten(1), model.decode(mean))


@torch.no_grad()
def test_a_conditional_model_takes_a_class_each_class_in_turn_or_the_likeliest() -> None:
    torch.manual_seed(0)
    model = conditional_vae(2, 3, code=2, hidden=(8,))
    g = Generator().manual_seed(0)
    seen: list[torch.Tensor] = []
    model.decoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][:, 2:].argmax(1)))
    model.sample(7, generator=g)
    model.sample(4, generator=g, label=2)
    model.interpolate(3, generator=g)
    model.interpolate(3, generator=g, label=1)
    assert [s.tolist() for s in seen] == [[0, 1, 2, 0, 1, 2, 0], [2] * 4, [0] * 3, [1] * 3]
    x = torch.randn(20, 2)
    z = model.encode(x)
    errors = torch.stack([(x - model.decode(z, torch.full((20,), y))).square().sum(1) for y in range(3)])
    best = (x - model.reconstruct(x)).square().sum(1)
    torch.testing.assert_close(best, errors.amin(0))
    for label in (3, -1):
        with pytest.raises(ValueError, match=f"labels must be from 0 to 2: got from {label} to {label}"):
            model.sample(2, generator=g, label=label)
    with pytest.raises(ValueError, match="labels must be from 0 to 2: got none"):
        model.decode(z)
    with pytest.raises(ValueError, match="conditional model"):
        dense_vae(2).sample(2, generator=g, label=0)


@torch.no_grad()
def test_the_likelihood_without_a_label_is_the_mean_over_labels() -> None:
    torch.manual_seed(0)
    model = conditional_vae(3, 4, code=2, decoder="bernoulli").double()
    x = torch.randint(0, 2, (5, 3)).double()
    z = torch.randn(5, 2).double()
    by_hand = sum(model.log_likelihood(x, z, torch.full((5,), y)).exp() for y in range(4)) / 4
    torch.testing.assert_close(model.log_likelihood(x, z), by_hand.log())


def test_a_grey_range_is_refused_in_training_and_by_the_bound_and_bits_are_fresh() -> None:
    model = dense_vae(3, decoder="bernoulli")
    g = Generator().manual_seed(0)
    with pytest.raises(ValueError, match=r"\[0, 1\]: got from -0.42 to 2.8; train with --scale unit"):
        model.bound(torch.tensor([[-0.42, 0.0, 2.8]]), generator=g)
    grey = torch.full((1, 3), 0.5)
    assert len({model.bound(grey, generator=g).item() for _ in range(8)}) == 8
    with pytest.raises(ValueError, match="draws must be at least 1: got 0"):
        model.bound(grey, generator=g, draws=0)
    assert model.discrete
    assert not dense_vae(3).discrete


@pytest.mark.parametrize("beta", [-0.1, math.nan, math.inf])
def test_a_beta_that_is_no_weight_is_refused(beta: float) -> None:
    with pytest.raises(ValueError, match="beta must be at least 0"):
        dense_vae(3, beta=beta)
    dense_vae(3, beta=0.0)


@torch.no_grad()
@pytest.mark.parametrize(("channels", "size"), [(1, (8, 8)), (1, (7, 5)), (3, (9, 16)), (2, (1, 6))])
@pytest.mark.parametrize("decoder", ["gaussian", "bernoulli"])
def test_images_of_any_size(channels: int, size: tuple[int, int], decoder: str) -> None:
    model = conv_vae(channels, size, code=3, width=4, depth=2, decoder=decoder)  # type: ignore[arg-type]
    x, g = torch.rand(2, channels, *size), Generator().manual_seed(0)
    assert model.bound(x, generator=g).shape == (2,)
    assert model.reconstruct(x).shape == x.shape
    assert model.sample(3, generator=g).shape == (3, channels, *size)
    assert model.interpolate(3, generator=g).shape == (3, channels, *size)
