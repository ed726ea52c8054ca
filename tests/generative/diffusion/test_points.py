"""The builders of points: every option reaches what it names."""

import inspect
from typing import Any

import pytest
import torch

from margin.generative.diffusion.networks import conditional_diffusion as conditional_points
from margin.generative.diffusion.networks import conditional_image_diffusion, image_diffusion
from margin.generative.diffusion.networks import diffusion as points
from margin.generative.diffusion.process import schedule_of


@pytest.mark.parametrize("conditional", ["no", "yes"])
def test_every_option_arrives(conditional: str) -> None:
    given = {"hidden": 12, "depth": 2, "embedding": 6, "steps": 9, "beta": "cosine", "terminal": "zero"}
    given |= {"parametrization": "v", "variance": "small", "weighting": "bound"}
    made = points(3, **given) if conditional == "no" else conditional_points(3, 4, drop=0.5, **given)  # type: ignore[arg-type]
    assert torch.equal(made.schedule.alpha_bar, schedule_of(9, "cosine", "zero").alpha_bar)
    assert (made.parametrization, made.variance, made.weighting) == ("v", "small", "bound")
    assert made.shape == (3,)
    network: Any = made.network
    assert (network.enter.out_features, len(network.blocks), network.embedding) == (12, 2, 6)
    if conditional == "yes":
        assert (made.num_classes, made.drop) == (4, 0.5)
        assert network.classes.num_embeddings == 5
    else:
        assert (made.num_classes, network.classes) == (0, None)


def test_rows_and_images_share_the_options_of_the_chain() -> None:
    """A step back has the variance of the step forth in all four, as Ho et al. have it on CIFAR-10."""
    defaults = [
        {name: parameter.default for name, parameter in inspect.signature(build).parameters.items()}
        for build in (points, conditional_points, image_diffusion, conditional_image_diffusion)
    ]
    chain = ("steps", "beta", "terminal", "parametrization", "variance", "weighting")
    assert all(d[name] == defaults[0][name] for d in defaults for name in chain)
    assert defaults[0]["variance"] == "large"
