"""The taxonomy: every entry has its place, stated densities integrate to 1, implicit models refuse."""

from typing import Any

import pytest
import torch
from torch import nn

from margin.core.catalog import call_with, models, resolve
from margin.generative.latent.taxonomy import Place, density_of, exact_log_prob, place_of, taxonomy

KNOWN = {
    "autoencoder": "none",
    "nmf": "none",
    "vae": "explicit, approximate",
    "rbm": "explicit, approximate",
    "diffusion": "explicit, approximate",
    "realnvp": "explicit, tractable",
    "made": "explicit, tractable",
    "mixture": "explicit, tractable",
    "gplvm": "explicit, tractable",
    "gan": "implicit",
    "conditional_gan": "implicit",
}


def built(name: str) -> Any:
    torch.manual_seed(0)
    spec = {"in_features": 2, "num_examples": 12, "num_classes": 2}
    return call_with(resolve(models()[name].build), spec, {}, name)


@pytest.mark.parametrize(("name", "density"), KNOWN.items())
def test_models_stand_where_the_literature_puts_them(name: str, density: str) -> None:
    assert density_of(built(f"generative/{name}")) == density


def test_every_entry_has_a_place_and_methods_agree() -> None:
    before = torch.get_rng_state()
    places = taxonomy()
    assert torch.equal(before, torch.get_rng_state())
    assert [p.name for p in places] == [name for name in models() if name.startswith("generative/")]
    for place in places:
        assert place.can_logprob or place.density != "explicit, tractable"
        assert place.can_sample or place.density != "implicit"
        assert not (place.density in ("implicit", "none") and place.can_logprob)


def test_probabilistic_pca_is_explicit_and_tractable() -> None:
    assert place_of(models()["classic/ppca"]) == Place(
        "classic/ppca", "explicit, tractable", can_sample=True, can_logprob=True, has_encoder=True
    )


@torch.no_grad()
@pytest.mark.parametrize(
    "name",
    ["realnvp", "neural_spline_flow", "conditional_realnvp", "gaussian_made", "mixture", "gplvm"],
)
def test_a_stated_density_integrates_to_one_in_the_plane(name: str) -> None:
    model = built(f"generative/{name}").double().eval()
    axis = torch.linspace(-9, 9, 181, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    total = sum(float(exact_log_prob(model, x).exp().sum()) for x in grid.split(8192)) * 0.1**2
    assert total == pytest.approx(1.0, abs=2e-3)


def test_an_implicit_model_has_no_density_to_ask_for() -> None:
    with pytest.raises(ValueError, match="of models with an explicit density: GAN is implicit"):
        exact_log_prob(built("generative/gan"), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="VAE is explicit, approximate"):
        exact_log_prob(built("generative/vae"), torch.zeros(1, 2))
    assert density_of(nn.Linear(2, 2)) == "none"
