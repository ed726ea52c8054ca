"""Autoencoders: PCA where they are linear, no error where the code is long enough, corruption by its law."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from margin import Training, load, train
from margin.core.tasks import CODES
from margin.core.types import Batch
from margin.data.examples import InOrder
from margin.data.sets.tiny import tables as tiny
from margin.engine.evaluation import evaluate
from margin.generative.autoencoder.model import (
    Autoencoder,
    denoising_autoencoder,
    dense_autoencoder,
    restoration_error,
)
from margin.nn.preprocessed import core_of


def least_error(model: Autoencoder, x: Tensor, iterations: int = 150) -> float:
    """The mean error at the end of a quasi-Newton descent on all rows."""
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=0.0
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        mean = restoration_error(model, Batch((x,)), Generator()).mean()
        mean.backward()
        return mean

    optimizer.step(loss)
    return loss().item()


def test_without_a_hidden_layer_it_is_pca() -> None:
    g = Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=g).double() * torch.tensor([3.0, 2.0, 0.5, 0.3]).double() + 1
    x = x @ torch.linalg.qr(torch.randn(4, 4, generator=g).double()).Q
    torch.manual_seed(0)
    model = dense_autoencoder(4, code=2, hidden=()).double()
    error = least_error(model, x)
    mean, rows = x.numpy().mean(0), x.numpy()
    axes = np.linalg.svd(rows - mean)[2][:2]
    restored = mean + (rows - mean) @ axes.T @ axes
    least = float(np.square(rows - restored).sum(1).mean())
    assert least <= error <= least * 1.00001  # no map of rank 2 is below it
    decoded = model.decode(model.encode(x)).detach().numpy()
    np.testing.assert_allclose(decoded, restored, atol=0.01)


@pytest.mark.parametrize("code", [2, 3])
def test_a_code_as_long_as_the_data_leaves_no_error(code: int) -> None:
    """Rows of two dimensions in three: two coordinates are enough, one is not."""
    g = Generator().manual_seed(1)
    x = torch.randn(100, 2, generator=g).double() @ torch.randn(2, 3, generator=g).double()
    torch.manual_seed(1)
    assert least_error(dense_autoencoder(3, code=code, hidden=()).double(), x) < 1e-8
    assert least_error(dense_autoencoder(3, code=1, hidden=()).double(), x) > 0.1


def test_the_error_is_summed_over_features_of_each_example() -> None:
    model = Autoencoder(nn.Flatten(), nn.Linear(4, 4))
    nn.init.zeros_(model.decoder.weight), nn.init.zeros_(model.decoder.bias)
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 1.0]]])
    assert restoration_error(model, Batch((x,)), Generator()).tolist() == [30.0, 1.0]


def test_the_reconstruction_has_the_inputs_shape_and_the_target_is_not_corrupted() -> None:
    torch.manual_seed(0)
    model = denoising_autoencoder(6, code=2, hidden=(5,))
    x = torch.rand(3, 1, 2, 3) + 1
    assert model.reconstruct(x).shape == x.shape
    found = restoration_error(model, Batch((x,)), Generator().manual_seed(4))
    corrupted = model.corrupted(x, Generator().manual_seed(4))
    assert not torch.equal(corrupted, x)
    expected = (x - model.reconstruct(corrupted)).square().sum((1, 2, 3))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(model(x), model.encode(x))  # in use nothing is corrupted


def test_masking_sets_a_share_to_zero_and_gaussian_noise_has_its_deviation() -> None:
    n = 40_000
    x = torch.full((n, 1), 2.0)
    masked = denoising_autoencoder(1, corruption=0.3).corrupted(x, Generator().manual_seed(0))
    assert set(masked.unique().tolist()) == {0.0, 2.0}
    # 4 standard errors: P < 1e-4
    assert abs(float((masked == 0).float().mean()) - 0.3) < 4 * math.sqrt(0.21 / n)
    noisy = denoising_autoencoder(1, corruption=0.3, noise="gaussian").corrupted(
        x, Generator().manual_seed(0)
    )
    assert float(noisy.mean()) == pytest.approx(2.0, abs=4 * 0.3 / math.sqrt(n))
    assert float(noisy.std()) == pytest.approx(0.3, rel=0.02)


def test_the_linear_denoiser_of_gaussian_rows_shrinks_as_wiener_says() -> None:
    """Of unit variance the best linear map of x + s e is 1 / (1 + s^2), and errs by s^2 / (1 + s^2)."""
    x = torch.randn(4000, 1, generator=Generator().manual_seed(0))
    model = denoising_autoencoder(1, code=1, hidden=(), corruption=0.5, noise="gaussian")
    with torch.no_grad():
        model.encoder[1][0].weight.fill_(1.0), model.encoder[1][0].bias.zero_()
        model.decoder[0].bias.zero_()
    errors = []
    for weight in (1.0, 0.8, 0.6):
        with torch.no_grad():
            model.decoder[0].weight.fill_(weight)
            errors.append(float(restoration_error(model, Batch((x,)), Generator().manual_seed(1)).mean()))
    assert errors[1] == min(errors)
    assert errors[1] == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize(
    ("noise", "corruption", "edge"),
    [("masking", 1.0, "1"), ("masking", -0.1, "1"), ("gaussian", -1.0, "inf")],
)
def test_a_corruption_out_of_range_is_refused(noise: str, corruption: float, edge: str) -> None:
    with pytest.raises(
        ValueError, match=rf"corruption by {noise} must be in \[0, {edge}\): got {corruption}"
    ):
        denoising_autoencoder(3, corruption=corruption, noise=noise)  # type: ignore[arg-type]


def test_codes_of_no_coordinate_are_refused() -> None:
    with pytest.raises(ValueError, match="code must be at least 1: got 0"):
        dense_autoencoder(3, code=0)


def test_it_trains_from_its_name_and_is_judged_by_one_fixed_corruption(tmp_path: Path) -> None:
    data = tiny.values()
    run = train("generative/denoising_autoencoder", data, {}, Training(epochs=4), out=tmp_path / "run")
    assert run.history[-1]["val_loss"] < run.history[0]["val_loss"]
    model, judged = load(run), InOrder(data.splits["test"], 8)
    first, second = (evaluate(model, judged, CODES, restoration_error)["loss"] for _ in range(2))
    assert first == second
    assert core_of(model).corruption == 0.25
