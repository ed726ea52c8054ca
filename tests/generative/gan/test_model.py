"""GANs of vectors: shapes, sizes of their layers, what a seed fixes, classes."""

import pytest
import torch
from torch import Generator, nn

from margin.generative.gan.model import conditional_gan as conditional_points
from margin.generative.gan.model import gan as points


def test_samples_are_a_function_of_the_seed() -> None:
    model = points(3, noise=5, hidden=(7,))
    one = model.sample(4, generator=Generator().manual_seed(1))
    assert one.shape == (4, 3)
    assert torch.equal(one, model.sample(4, generator=Generator().manual_seed(1)))
    assert not torch.equal(one, model.sample(4, generator=Generator().manual_seed(2)))


def test_without_hidden_layers_the_generator_is_affine() -> None:
    model = points(3, noise=2, hidden=())
    layer = model.generator.network[0]
    assert isinstance(layer, nn.Linear)
    z = model.generator.draw(4, Generator().manual_seed(0))
    torch.testing.assert_close(model.generator(z), z @ layer.weight.T + layer.bias)
    assert model(torch.randn(4, 3)).shape == (4,)


def test_inputs_of_more_axes_are_flattened() -> None:
    model, x = points(6, hidden=(5,)), torch.randn(4, 2, 3)
    torch.testing.assert_close(model(x), model(x.flatten(1)))


def test_a_path_begins_at_one_sample_and_ends_at_another() -> None:
    model = points(2, noise=8).double()
    path = model.interpolate(7, generator=Generator().manual_seed(3))
    ends = model.sample(2, generator=Generator().manual_seed(3))
    assert path.dtype == torch.float64
    torch.testing.assert_close(path[[0, -1]], ends)


def test_a_conditional_model_samples_classes_in_turn_or_one() -> None:
    model = conditional_points(2, 3, noise=4)
    z = model.generator.draw(5, Generator().manual_seed(0))
    mixed = model.sample(5, generator=Generator().manual_seed(0))
    torch.testing.assert_close(mixed, model.generator(z, torch.tensor([0, 1, 2, 0, 1])))
    ones = model.sample(5, generator=Generator().manual_seed(0), label=1)
    torch.testing.assert_close(ones, model.generator(z, torch.ones(5).long()))
    path = model.interpolate(5, generator=Generator().manual_seed(0), label=2)
    ends = model.generator.draw(2, Generator().manual_seed(0))
    torch.testing.assert_close(path[[0, -1]], model.generator(ends, torch.tensor([2, 2])))
    unnamed = model.interpolate(5, generator=Generator().manual_seed(0))
    first = model.interpolate(5, generator=Generator().manual_seed(0), label=0)
    torch.testing.assert_close(unnamed, first)  # a path stays in its class
    with pytest.raises(ValueError, match="label must be from 0 to 2: got 3"):
        model.sample(2, generator=Generator(), label=3)
    labels = torch.tensor([0, 1, 2, 1])
    x = torch.randn(4, 2)
    torch.testing.assert_close(
        model(x), torch.stack([model.critic(x, torch.full_like(labels, k)) for k in range(3)]).amax(0)
    )


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="noise must be at least 1 number: got 0"):
        points(2, noise=0)
    with pytest.raises(ValueError, match="hidden must be widths of at least 1"):
        points(2, hidden=(0,))
    with pytest.raises(ValueError, match="minibatch must be at least 0: got -2"):
        points(2, minibatch=-2)
