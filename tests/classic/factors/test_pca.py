"""PCA, the linear autoencoder, and what the best low-rank map leaves: scikit-learn's, the spectrum's tail."""

import math

import numpy as np
import pytest
import torch
from sklearn import decomposition
from sklearn.datasets import load_digits

from margin.classic.factors.linear_autoencoder import LinearAutoencoder
from margin.classic.factors.pca import PCA, principal_axes, principal_components
from margin.core.types import Batch
from margin.data.preprocess import fit_standardize
from margin.engine.loop import State
from margin.engine.objectives import reconstruction_error
from margin.nn.preprocessed import Preprocessed


def problem(rows: int = 40, features: int = 6, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.arange(features, 0, -1).double()
    return torch.randn(rows, features, generator=generator, dtype=torch.float64) * scale + 10


def fitted(x: torch.Tensor, components: int, weight: torch.Tensor | None = None) -> tuple[PCA, dict]:
    state = State({"model": PCA(x[0].numel(), components=components).double()})
    metrics = principal_components()(state, Batch((x,), None, weight))
    return state.model, metrics


@pytest.mark.parametrize("shape", [(40, 6), (5, 12), (7, 7)])
def test_axes_and_variances_are_scikit_learns(shape: tuple[int, int]) -> None:
    x = problem(*shape)
    model, metrics = fitted(x, 3)
    peer = decomposition.PCA(3, svd_solver="full").fit(x.numpy())
    rows = len(x)
    np.testing.assert_allclose(model.spectrum[:3], peer.explained_variance_ * (rows - 1) / rows, rtol=1e-9)
    sign = np.sign((model.axes.detach().numpy() * peer.components_).sum(1))
    np.testing.assert_allclose(
        model.axes.detach() * torch.from_numpy(sign)[:, None], peer.components_, atol=1e-8
    )
    np.testing.assert_allclose(
        model(x).detach() * torch.from_numpy(sign), peer.transform(x.numpy()), atol=1e-8
    )
    assert float(metrics["explained"]) == pytest.approx(peer.explained_variance_ratio_.sum(), rel=1e-9)
    assert len(model.spectrum) == shape[1]
    assert float(model.spectrum.sum()) == pytest.approx(float(x.var(0, correction=0).sum()), rel=1e-12)


def test_without_centering_as_in_many_notes_the_axes_are_others() -> None:
    """(1/n) X^T X is the covariance only of centered rows: else its top eigenvector points at the mean."""
    x = problem()
    raw = torch.linalg.eigh(x.T @ x / len(x)).eigenvectors[:, -1]
    mean = x.mean(0) / x.mean(0).norm()
    assert abs(float(raw @ mean)) > 0.99
    assert abs(float(fitted(x, 1)[0].axes[0].detach() @ mean)) < 0.6


def test_the_loss_is_the_tail_of_the_spectrum_and_the_objectives_mean() -> None:
    x = problem()
    model, metrics = fitted(x, 2)
    error = reconstruction_error(model, Batch((x,)), torch.Generator()).mean().detach()
    assert float(error) == pytest.approx(float(model.spectrum[2:].sum()), rel=1e-9)
    assert float(metrics["loss"]) == pytest.approx(float(error), rel=1e-9)


def test_all_components_lose_nothing() -> None:
    x = problem()
    model, _ = fitted(x, 6)
    assert torch.allclose(model.decode(model.encode(x)), x, atol=1e-10)


def test_of_weights_two_is_two_examples_and_zero_none() -> None:
    x = problem(12)
    weight = torch.tensor([0.0, 2, 1] * 4).double()
    one, _ = fitted(x, 2, weight)
    two, _ = fitted(x.repeat_interleave(weight.long(), 0), 2)
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=1e-10)


def test_the_sign_of_an_axis_is_that_of_its_largest_coordinate() -> None:
    for seed in range(5):
        _, axes, _ = principal_axes(problem(seed=seed), 4)
        assert bool((axes.gather(1, axes.abs().argmax(1, keepdim=True)) > 0).all())
        assert torch.allclose(axes @ axes.T, torch.eye(4).double(), atol=1e-12)


def test_constant_columns_and_constant_rows_have_no_variance() -> None:
    x = torch.cat((problem(), torch.full((40, 1), 1e6).double()), 1)
    model, _ = fitted(x, 3)
    assert model.axes[:, 6].abs().max() == 0
    assert float(model.spectrum[6]) < 1e-12
    model, metrics = fitted(torch.full((5, 3), 0.1).double(), 2)
    assert not model.spectrum.any()
    assert float(metrics["explained"]) == 0


@pytest.mark.parametrize(("components", "message"), [(0, "got 0"), (7, "got 7")])
def test_a_number_of_components_out_of_range_is_refused(components: int, message: str) -> None:
    for model in (PCA, LinearAutoencoder):
        with pytest.raises(ValueError, match=f"from 1 to the number of features, 6: {message}"):
            model(6, components=components)
    with pytest.raises(ValueError, match=f"from 1 to the rows and features, 40 and 6: {message}"):
        principal_axes(problem(), components)


# the best low-rank map


def test_the_error_of_the_truncated_svd_is_the_tail_and_nothing_of_its_rank_is_nearer() -> None:
    x = problem(20, 5) - 10
    U, S, Vh = torch.linalg.svd(x, full_matrices=False)
    best = U[:, :2] * S[:2] @ Vh[:2]
    tail = float(S[2:].norm())
    assert float((x - best).norm()) == pytest.approx(tail, rel=1e-12)
    assert float(torch.linalg.matrix_norm(x - best, 2)) == pytest.approx(float(S[2]), rel=1e-12)
    generator = torch.Generator().manual_seed(0)
    for scale in (0.01, 0.1, 1.0):
        for _ in range(334):
            left = U[:, :2] * S[:2] + scale * torch.randn(20, 2, generator=generator, dtype=torch.float64)
            right = Vh[:2] + scale * torch.randn(2, 5, generator=generator, dtype=torch.float64)
            other = x - left @ right
            assert float(other.norm()) > tail
            assert float(torch.linalg.matrix_norm(other, 2)) > float(S[2])


def test_the_best_map_is_unique_only_where_the_next_singular_value_is_less() -> None:
    x = torch.diag(torch.tensor([3.0, 2, 2, 1])).double()
    one, other = (torch.diag(torch.tensor(kept).double()) for kept in ([3.0, 2, 0, 0], [3.0, 0, 2, 0]))
    assert float((x - one).norm()) == float((x - other).norm()) == pytest.approx(5**0.5, rel=1e-15)
    x[2, 2] = 1.9
    other[2, 2] = 1.9
    assert float((x - other).norm()) > float((x - one).norm()) + 0.05


def test_a_duplicate_column_has_the_coordinates_of_its_twin() -> None:
    x = problem()
    model, _ = fitted(torch.cat((x, x[:, :1]), 1), 3)
    assert torch.allclose(model.axes[:, 0], model.axes[:, 6], atol=1e-10)
    assert float(model.spectrum[6]) < 1e-10


def test_the_factors_printed_in_some_notes_have_not_even_the_shape() -> None:
    """U_m S_m V_m^T, not U_m U_m^T V_m^T."""
    U, _, Vh = torch.linalg.svd(problem(20, 5), full_matrices=False)
    with pytest.raises(RuntimeError):
        U[:, :2] @ U[:, :2].T @ Vh[:2]


# the linear autoencoder


def descended(x: torch.Tensor, components: int, seed: int) -> LinearAutoencoder:
    torch.manual_seed(seed)
    model = LinearAutoencoder(x.shape[1], components=components).double()
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=1000, line_search_fn="strong_wolfe", tolerance_change=1e-12
    )

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = reconstruction_error(model, Batch((x,)), torch.Generator()).mean()
        value.backward()
        return value

    optimizer.step(loss)
    return model


@pytest.mark.parametrize("seed", range(4))
def test_descent_from_any_start_ends_at_the_tail_of_the_spectrum_in_pcas_subspace(seed: int) -> None:
    x = problem() - 9
    model = descended(x, 2, seed)
    mean, axes, spectrum = principal_axes(x, 2)
    loss = reconstruction_error(model, Batch((x,)), torch.Generator()).mean().detach()
    assert float(loss) == pytest.approx(float(spectrum[2:].sum()), rel=1e-6)
    Q = torch.linalg.qr(model.decoder.weight.detach()).Q
    cosines = torch.linalg.svdvals(axes @ Q)
    assert math.acos(min(1.0, float(cosines[-1]))) < 1e-3
    projector = (model.decoder.weight @ model.encoder.weight).detach()
    assert torch.allclose(projector, axes.T @ axes, atol=1e-3)
    assert torch.allclose(model.decode(model.encode(mean[None])), mean[None], atol=1e-3)


def test_its_weights_are_not_the_eigenvectors_as_some_notes_say() -> None:
    x = problem() - 9
    model = descended(x, 2, 0)
    _, axes, _ = principal_axes(x, 2)
    columns = model.decoder.weight.detach() / model.decoder.weight.detach().norm(dim=0)
    assert (axes @ columns).abs().max(1).values.min() < 0.99


# the objective


def test_the_reconstruction_error_is_in_the_units_behind_the_preprocessing() -> None:
    x = problem()
    preprocess = fit_standardize(x, per="feature").double()
    core = PCA(6, components=2).double()
    model = Preprocessed(preprocess, core)
    state = State({"model": model})
    principal_components()(state, Batch((x,)))
    z = preprocess(x)
    by_hand = (z - core.decode(core.encode(z))).square().sum(1)
    assert torch.allclose(reconstruction_error(model, Batch((x,)), torch.Generator()), by_hand, atol=1e-12)


def test_images_are_flattened() -> None:
    images = torch.from_numpy(load_digits().images)[:100, None]
    model, _ = fitted(images, 5)
    assert model(images).shape == (100, 5)
    error = reconstruction_error(model, Batch((images,)), torch.Generator()).mean().detach()
    peer = decomposition.PCA(5, svd_solver="full").fit(images.flatten(1).numpy())
    codes = peer.transform(images.flatten(1).numpy())
    theirs = np.square(images.flatten(1).numpy() - peer.inverse_transform(codes)).sum(1).mean()
    assert float(error) == pytest.approx(theirs, rel=1e-9)
