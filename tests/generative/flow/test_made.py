"""Masked networks: a distribution of bits sums to 1, no number sees itself or a later one."""

import itertools
import math

import pytest
import torch
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.generative.flow.made import MADE, Autoregressive, GaussianMADE, masks
from margin.generative.flow.objectives import negative_log_probability


def made(features: int = 8, seed: int = 0, gain: float = 3.0, **options: object) -> MADE:
    torch.manual_seed(seed)
    model = MADE(features, **{"hidden": (24, 24), **options}).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(gain)
    return model


def all_bits(features: int) -> Tensor:
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=features)), dtype=torch.float64)


@pytest.mark.parametrize("hidden", [(24, 24), (3,), (50,), (5, 40, 5)])
def test_the_probabilities_of_all_rows_of_8_bits_sum_to_1(hidden: tuple[int, ...]) -> None:
    p = made(hidden=hidden)(all_bits(8)).exp()
    assert float(p.detach().sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(p.detach().max()) > 3 / 256  # not even


@pytest.mark.parametrize("hidden", [(24, 24), (3,), (5, 40, 5)])
@pytest.mark.parametrize("features", [1, 2, 8])
def test_no_output_sees_its_own_number_or_a_later_one(features: int, hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = Autoregressive(features, 2, hidden=hidden, activation="tanh").double()
    x = torch.randn(features, generator=Generator().manual_seed(1), dtype=torch.float64)
    J = torch.func.jacrev(network)(x).reshape(2, features, features)
    assert not J.triu().any()


def test_a_wide_network_sees_every_number_before() -> None:
    """The other side of causality: strictly below the diagonal no entry is lost to the masks."""
    for hidden in ((7,), (7, 7), (30, 9)):
        between = masks(8, hidden, 1)
        seen = between[0].long()
        for mask in between[1:]:
            seen = mask.long() @ seen
        assert torch.equal(seen > 0, torch.ones(8, 8).tril(-1) > 0)


def test_the_masks_are_the_papers() -> None:
    """D = 3, hidden degrees 1, 2: Equations 12 and 13 by hand; outputs follow one another."""
    first, last = masks(3, (2,), 2)
    assert first.tolist() == [[True, False, False], [True, True, False]]
    row = [[False, False], [True, False], [True, True]]
    assert last.tolist() == row + row


def test_samples_have_the_probabilities() -> None:
    """20,000 rows of 3 bits: each of the 8 counts within 4 standard errors, a failure in 2,000 seeds."""
    model = made(3, hidden=(8,), gain=4.0)
    x = model.sample(20_000, generator=Generator().manual_seed(0))
    index = (x @ torch.tensor([4.0, 2.0, 1.0], dtype=x.dtype)).long()
    share = torch.bincount(index, minlength=8) / 20_000
    with torch.no_grad():
        p = model(all_bits(3)).exp()
    assert bool(((share - p).abs() < 4 * (p * (1 - p) / 20_000).sqrt()).all())


def test_pixels_are_drawn_or_thresholded() -> None:
    model = made(2, hidden=(4,))
    x = torch.tensor([[0.3, 0.7]], dtype=torch.float64).expand(40_000, 2)
    loss = negative_log_probability(model, Batch((x,)), Generator().manual_seed(0)).detach()
    p = -model.of_bits(all_bits(2)).detach()
    weight = torch.tensor([0.7 * 0.3, 0.7 * 0.7, 0.3 * 0.3, 0.3 * 0.7], dtype=torch.float64)
    expected, spread = float((weight * p).sum()), float(p.max() - p.min())
    assert float(loss.mean()) == pytest.approx(expected, abs=4 * spread / 2 / math.sqrt(40_000))
    fixed = made(2, hidden=(4,), pixels="threshold")
    loss = negative_log_probability(fixed, Batch((x[:1],)), Generator().manual_seed(0)).detach()
    torch.testing.assert_close(loss, p[1:2])  # the bits 0, 1
    torch.testing.assert_close(-model(x[:1]).detach(), p[1:2])
    half = torch.tensor([[0.5, 0.49]], dtype=torch.float64)
    torch.testing.assert_close(-model(half).detach(), p[2:3])


def test_bits_are_never_redrawn_as_others() -> None:
    model = made(4, hidden=(6,))
    x = all_bits(4).repeat(50, 1)
    loss = negative_log_probability(model, Batch((x,)), Generator().manual_seed(0))
    torch.testing.assert_close(loss, -model(x))


def test_inputs_outside_of_the_unit_interval_are_refused_with_the_remedy() -> None:
    x = torch.tensor([[-0.42, 2.8]], dtype=torch.float64)
    for ask in (lambda: made(2)(x), lambda: negative_log_probability(made(2), Batch((x,)), Generator())):
        with pytest.raises(
            ValueError, match=r"needs inputs in .0, 1.: got from -0.42 to 2.8; train with --scale unit"
        ):
            ask()
    with pytest.raises(ValueError, match=r"got from nan"):
        made(2)(x * math.nan)


def test_no_rows_have_no_probabilities() -> None:
    for model in (made(3), GaussianMADE(3).double()):
        assert model(torch.zeros(0, 3, dtype=torch.float64)).shape == (0,)
    loss = negative_log_probability(made(3), Batch((torch.zeros(0, 3).double(),)), Generator())
    assert loss.shape == (0,)


def test_no_hidden_layer_is_refused() -> None:
    for hidden in ((), (0,), (4, -1)):
        with pytest.raises(ValueError, match=r"hidden must be one width or more"):
            MADE(3, hidden=hidden)


def test_images_are_flattened() -> None:
    model = made(6)
    x = (torch.rand(2, 1, 2, 3, generator=Generator().manual_seed(0)) > 0.5).double()
    torch.testing.assert_close(model(x), model(x.flatten(1)))
    single = torch.func.vmap(lambda one: model(one[None])[0])(x)
    torch.testing.assert_close(single, model(x))


def test_a_gaussian_of_each_has_the_density_of_its_flow() -> None:
    torch.manual_seed(0)
    model = GaussianMADE(5, hidden=(20,), activation="tanh").double()
    x = torch.randn(50, 5, generator=Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        z, log_det = model.transform(x)
        torch.testing.assert_close(model.inverse(z), x, atol=1e-10, rtol=0)
        mean, s = model.network(x).chunk(2, 1)
        deviation = torch.exp(5.0 * torch.tanh(s))
        expected = torch.distributions.Normal(mean, deviation).log_prob(x).sum(1)
        torch.testing.assert_close(model(x), expected)
    J = torch.func.jacrev(lambda one: model.transform(one[None])[0][0])(x[0]).detach()
    assert not J.triu(1).any()
    torch.testing.assert_close(log_det[0], torch.linalg.slogdet(J).logabsdet, atol=1e-10, rtol=0)
    ends = model.interpolate(5, generator=Generator().manual_seed(2))[[0, -1]]
    torch.testing.assert_close(ends, model.sample(2, generator=Generator().manual_seed(2)))
    with pytest.raises(ValueError, match=r"max_log_scale must be positive"):
        GaussianMADE(3, max_log_scale=0.0)
