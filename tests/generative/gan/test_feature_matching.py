"""The squared distance of mean features, by hand."""

import torch

from margin.generative.gan.game import feature_matching


def test_it_is_the_squared_distance_of_the_means() -> None:
    real = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    fake = torch.tensor([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0]])
    assert float(feature_matching(real, fake)) == (2 - 1) ** 2 + (4 - 1) ** 2
    assert float(feature_matching(real, real.flip(0))) == 0
    weighted = feature_matching(real, fake, torch.tensor([3.0, 1.0]))
    assert float(weighted) == (1.5 - 1) ** 2 + (3 - 1) ** 2
    torch.testing.assert_close(
        feature_matching(real, fake, torch.tensor([1.0, 0.0])), feature_matching(real[:1], fake)
    )


def test_only_the_means_matter() -> None:
    """Two points match one at their middle: spread is not seen."""
    assert float(feature_matching(torch.tensor([[-1.0], [1.0]]), torch.zeros(1, 1))) == 0
