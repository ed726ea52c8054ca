"""What a code keeps: PCA's bound on affine decoders, kept, attained, not asked of bent ones; traversals."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.types import Batch
from margin.generative.autoencoder.code_claims import (
    affine_decoder,
    bent_demo,
    demo,
    is_coder,
    least_share,
    moved,
    reconstruction,
    reconstructs,
    traversal,
)
from margin.generative.autoencoder.conv_vae import conv_vae
from margin.generative.autoencoder.dense_vae import conditional_vae, dense_vae
from margin.generative.autoencoder.model import Autoencoder, dense_autoencoder
from margin.nn.preprocessed import core_of


def rows(n: int = 50, d: int = 5, seed: int = 0) -> Tensor:
    g = Generator().manual_seed(seed)
    return torch.randn(n, d, generator=g) @ torch.randn(d, d, generator=g) + 1


def of(model: nn.Module, x: Tensor, label: Tensor | None = None) -> Subject:
    return dataclasses.replace(demo(), model=model.eval(), test=(Batch((x,), label),))


@torch.no_grad()
def principal(x: Tensor, m: int) -> Autoencoder:
    """The linear autoencoder that is PCA of these rows."""
    model = dense_autoencoder(x.shape[1], code=m, hidden=())
    axes, mean = torch.linalg.svd(x - x.mean(0), full_matrices=False).Vh[:m], x.mean(0)
    model.encoder[1][0].weight.copy_(axes), model.encoder[1][0].bias.copy_(-axes @ mean)
    model.decoder[0].weight.copy_(axes.T), model.decoder[0].bias.copy_(mean)
    return model


@pytest.mark.parametrize("seed", range(5))
def test_an_affine_decoder_loses_no_less_than_pca(seed: int) -> None:
    torch.manual_seed(seed)
    found = reconstruction(of(dense_autoencoder(5, code=2, hidden=()), rows(seed=seed)))
    assert found.verdict == Verdict.HOLDS
    assert float(found.value) > float(found.low)


@pytest.mark.parametrize("m", [1, 3, 5])
def test_pca_attains_the_bound(m: int) -> None:
    x = rows()
    found = reconstruction(of(principal(x, m), x))
    spectrum = np.linalg.svd((x.double() - x.double().mean(0)).numpy(), compute_uv=False) ** 2
    expected = spectrum[m:].sum() / spectrum.sum()
    assert float(found.low) == pytest.approx(expected, abs=1e-12)
    assert float(found.value) == pytest.approx(expected, abs=1e-6)
    # all five dimensions are kept: the bound is 0, which says nothing
    assert found.verdict == (Verdict.HOLDS if m < 5 else Verdict.VACUOUS)


def test_a_reconstruction_that_peeks_past_the_code_is_caught() -> None:
    """An affine decoder cannot be better than PCA: one that is must have seen the input."""
    model = principal(rows(), 2)
    model.reconstruct = lambda x: x  # type: ignore[method-assign]
    assert reconstruction(of(model, rows())).verdict == Verdict.VIOLATED


def test_nothing_is_promised_of_a_bent_decoder_or_of_bits() -> None:
    for model in (core_of(bent_demo().model), dense_vae(3, code=2, hidden=(), decoder="bernoulli")):
        assert not affine_decoder(model)
    assert affine_decoder(dense_vae(3, hidden=()))
    found = reconstruction(bent_demo())
    assert found.verdict == Verdict.MEASURED
    assert not found.premises


@torch.no_grad()
def test_a_decoder_that_reads_the_class_may_lose_less_than_pca() -> None:
    """Two parallel lines, one for each class: each is a subspace of its own, which no one line is."""
    model = conditional_vae(2, 2, code=1, hidden=())
    model.decoder[0].weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 5.0, -5.0]]))
    model.decoder[0].bias.zero_()
    model.encoder[1][0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    model.encoder[1][0].bias.zero_()
    side = torch.tensor([5.0, -5.0]).repeat(30)
    x = torch.stack((torch.randn(60, generator=Generator().manual_seed(0)), side), 1)
    assert not affine_decoder(model)
    found = reconstruction(of(model, x))
    assert found.verdict == Verdict.MEASURED
    assert float(found.value) < 1e-6 < least_share(x.double(), torch.ones(60).double(), 1)


def test_the_least_share_counts_weights_as_repetitions() -> None:
    x = rows(20).double()
    weight = torch.ones(20, dtype=torch.float64)
    weight[3] = 3
    repeated = torch.cat((x, x[3:4], x[3:4]))
    assert least_share(x, weight, 2) == pytest.approx(least_share(repeated, torch.ones(22).double(), 2))


def test_the_least_share_is_that_of_rows_in_a_plane() -> None:
    flat = torch.cat((rows(30, 2), torch.zeros(30, 2)), 1).double()
    ones = torch.ones(30, dtype=torch.float64)
    assert least_share(flat, ones, 2) == pytest.approx(0.0, abs=1e-12)
    assert least_share(flat, ones, 0) == pytest.approx(1.0)


def test_a_traversal_moves_one_coordinate_between_its_quantiles() -> None:
    codes = torch.stack((torch.arange(101.0), torch.arange(101.0).flip(0) * 2), 1)
    paths = moved(codes)
    assert paths.shape == (2, 7, 2)
    assert paths[0, :, 0].tolist() == pytest.approx([5, 20, 35, 50, 65, 80, 95])
    assert paths[0, :, 1].tolist() == [100.0] * 7
    assert paths[1, [0, -1], 1].tolist() == pytest.approx([10.0, 190.0])


@torch.no_grad()
def test_the_move_of_a_linear_decoder_is_its_columns_length() -> None:
    x = rows()
    model = principal(x, 2)
    found = traversal(of(model, x))
    codes = model.encode(x)
    spread = codes.quantile(0.95, dim=0) - codes.quantile(0.05, dim=0)
    torch.testing.assert_close(found.value.float(), spread / math.sqrt(5), rtol=1e-4, atol=1e-5)
    assert found.curves["codes"].shape == (50, 2)
    assert float(found.curves["traversal"][0].std()) >= float(found.curves["traversal"][1].std())


def test_pictures_keep_their_shape_and_labels_color_the_map() -> None:
    x, label = torch.rand(8, 3, 5, 7), torch.arange(8) % 3
    subject = of(conv_vae(3, (5, 7), code=2, width=4), x, label)
    assert reconstructs(subject)
    assert is_coder(subject)
    found = traversal(subject)
    assert found.curves["traversal"].shape == (2, 7, 3, 5, 7)
    assert found.curves["labels of codes"].tolist() == label.tolist()
    assert reconstruction(subject).curves["reconstructions"].shape == (8, 3, 5, 7)
    conditional = of(conditional_vae(4, 3, code=3), torch.rand(8, 4), label)
    assert bool(traversal(conditional).value.isfinite().all())
    assert not reconstructs(of(nn.Linear(3, 3), x))


def test_weights_that_are_not_finite_fail() -> None:
    subject = demo()
    with torch.no_grad():
        core_of(subject.model).decoder[0].weight.fill_(math.nan)
    for ask in (reconstruction, traversal):
        assert ask(subject).verdict == Verdict.FAILED
