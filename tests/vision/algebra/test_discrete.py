"""Discrete convolution in one to three axes: against numpy, scipy and sums written out; its matrices."""

from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.linalg import circulant, toeplitz
from scipy.signal import convolve as scipy_convolve
from torch import Generator, Tensor

from margin.vision.algebra.discrete import (
    convolution_matrix,
    convolve,
    cross_correlate,
    dilated,
    fft_convolve,
    flip,
    impulse_response,
    smooth,
)

SHAPES = [((11,), (4,)), ((7,), (7,)), ((6, 9), (3, 2)), ((5, 4, 6), (2, 3, 2)), ((8,), (1,))]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_it_is_numpys_and_scipys(n: tuple[int, ...], m: tuple[int, ...], mode) -> None:
    f, h = drawn(*n), drawn(*m, seed=1)
    expected = torch.from_numpy(scipy_convolve(f.numpy(), h.numpy(), mode, method="direct"))
    assert torch.allclose(convolve(f, h, mode), expected, atol=1e-12)
    assert torch.allclose(fft_convolve(f, h, mode), expected, atol=1e-10)
    if len(n) == 1:
        assert torch.allclose(
            convolve(f, h, mode), torch.from_numpy(np.convolve(f.numpy(), h.numpy(), mode)), atol=1e-12
        )


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_circular_is_the_sum_over_a_period(n: tuple[int, ...], m: tuple[int, ...]) -> None:
    f, h = drawn(*n), drawn(*m, seed=1)
    expected = torch.zeros_like(f)
    for t in product(*map(range, m)):
        expected += h[t] * f.roll(t, tuple(range(len(n))))
    assert torch.allclose(convolve(f, h, "circular"), expected, atol=1e-12)
    assert torch.allclose(fft_convolve(f, h, "circular"), expected, atol=1e-10)


def test_without_padding_a_product_of_transforms_wraps_around() -> None:
    f, h = drawn(9), drawn(4, seed=1)
    wrapped = torch.fft.ifft(torch.fft.fft(f) * torch.fft.fft(h, 9)).real
    assert torch.allclose(wrapped, convolve(f, h, "circular"), atol=1e-12)
    assert not torch.allclose(wrapped, convolve(f, h)[:9], atol=1e-3)


def test_commutative_associative_and_of_support_n_plus_m_minus_one() -> None:
    f, g, h = drawn(7), drawn(5, seed=1), drawn(3, seed=2)
    assert torch.allclose(convolve(f, g), convolve(g, f), atol=1e-13)
    assert torch.allclose(convolve(convolve(f, g), h), convolve(f, convolve(g, h)), atol=1e-12)
    assert convolve(f, g).shape == (11,)
    ends = convolve(f, g)[[0, -1]]
    assert torch.allclose(ends, torch.stack((f[0] * g[0], f[-1] * g[-1])), atol=1e-15)


def test_cross_correlation_is_torchs_convolution_and_numpys_correlate() -> None:
    f, h = drawn(10), drawn(4, seed=1)
    found = cross_correlate(h, f)
    assert torch.allclose(found, F.conv1d(f[None, None], h[None, None])[0, 0], atol=1e-13)
    assert torch.allclose(found, torch.from_numpy(np.correlate(f.numpy(), h.numpy(), "valid")), atol=1e-13)
    written = torch.stack([sum(h[t] * f[u + t] for t in range(4)) for u in range(7)])
    assert torch.allclose(found, written, atol=1e-13)
    image, kernel = drawn(6, 7), drawn(3, 2, seed=1)
    expected = F.conv2d(image[None, None], kernel[None, None])[0, 0]
    assert torch.allclose(cross_correlate(kernel, image), expected, atol=1e-13)
    assert not torch.allclose(convolve(image, kernel, "valid"), expected, atol=1e-2)  # true convolution flips


def test_cross_correlation_does_not_commute_but_turns_around() -> None:
    f, h = drawn(6), drawn(6, seed=1)
    one, other = cross_correlate(h, f, "full"), cross_correlate(f, h, "full")
    assert not torch.allclose(one, other, atol=1e-2)
    assert torch.allclose(one, flip(other), atol=1e-13)
    periodic = cross_correlate(h[:3], f, "circular")
    expected = torch.stack([sum(h[t] * f[(u + t) % 6] for t in range(3)) for u in range(6)])
    assert torch.allclose(periodic, expected, atol=1e-13)


def test_its_matrix_is_toeplitz_and_circulant() -> None:
    h, n = drawn(3, seed=1), 6
    column = np.concatenate([h.numpy(), np.zeros(n - 1)])
    expected = torch.from_numpy(toeplitz(column, np.r_[h[0].item(), np.zeros(n - 1)]))
    assert torch.equal(convolution_matrix(h, [n]), expected)
    around = circulant(np.concatenate([h.numpy(), np.zeros(n - 3)]))
    assert torch.allclose(convolution_matrix(h, [n], "circular"), torch.from_numpy(around), atol=1e-15)


def test_in_the_plane_it_is_doubly_block_toeplitz() -> None:
    h, (rows, columns) = drawn(2, 3, seed=1), (3, 4)
    H = convolution_matrix(h, (rows, columns)).view(rows + 1, columns + 2, rows, columns)
    f = drawn(rows, columns)
    assert torch.allclose((H.flatten(2).flatten(0, 1) @ f.flatten()).view(4, 6), convolve(f, h), atol=1e-13)
    for i, j in product(range(rows + 1), range(rows)):
        block = H[i, :, j]
        inside = 0 <= i - j < 2
        assert torch.equal(block, H[i + 1, :, j + 1]) if i < rows and j < rows - 1 else True
        diagonal = convolution_matrix(h[i - j], [columns]) if inside else torch.zeros_like(block)
        assert torch.equal(block, diagonal)  # itself Toeplitz, of a row of the kernel


def test_the_transpose_is_the_valid_cross_correlation() -> None:
    h, y = drawn(3, 2, seed=1), drawn(7, 6, seed=2)
    H = convolution_matrix(h, (5, 5))
    assert torch.allclose((H.T @ y.flatten()).view(5, 5), cross_correlate(h, y), atol=1e-13)


def test_the_fourier_transform_diagonalizes_a_circulant() -> None:
    h, n = drawn(3, seed=1), 7
    C = convolution_matrix(h, [n], "circular").to(torch.complex128)
    basis = torch.fft.ifft(torch.eye(n, dtype=torch.complex128), dim=0)
    transformed = torch.linalg.inv(basis) @ C @ basis
    assert torch.allclose(transformed, torch.diag(torch.fft.fft(h, n)), atol=1e-12)


def test_a_random_circulant_operator_is_known_by_its_impulse_response() -> None:
    kernel = drawn(5, 6, seed=3)
    found = impulse_response(lambda x: convolve(x, kernel, "circular"), (5, 6))
    assert torch.allclose(found, kernel, atol=1e-13)
    x = drawn(5, 6)
    mean = impulse_response(lambda x: x.mean().expand(5, 6), (5, 6))
    assert torch.allclose(convolve(x, mean, "circular"), x.mean().expand(5, 6), atol=1e-13)


def test_a_linear_map_that_is_not_equivariant_is_not_reproduced() -> None:
    matrix, x = drawn(6, 6, seed=4), drawn(6)
    kernel = impulse_response(lambda x: matrix @ x, (6,))
    assert not torch.allclose(convolve(x, kernel, "circular"), matrix @ x, atol=1e-1)


def test_stride_is_subsampling_and_dilation_is_zeros_between_the_taps() -> None:
    x, w = drawn(1, 2, 9, 10), drawn(3, 2, 3, 2, seed=1)
    whole = F.conv2d(x, w)
    assert torch.allclose(F.conv2d(x, w, stride=(2, 3)), whole[:, :, ::2, ::3], atol=1e-13)
    spread = dilated(w, (2, 3))
    assert spread.shape == (3, 2, 5, 4) and int((spread != 0).sum()) == w.numel()
    assert torch.allclose(F.conv2d(x, w, dilation=(2, 3)), F.conv2d(x, spread), atol=1e-13)


def test_a_layer_is_the_sum_written_out() -> None:
    x, w, b = drawn(2, 3, 5, 6), drawn(2, 3, 3, 2, seed=1), drawn(2, seed=2)
    y = torch.zeros(2, 2, 3, 5, dtype=torch.float64)
    for n, r, s, t in product(range(2), range(2), range(3), range(5)):
        terms = (w[r, u, k, m] * x[n, u, s + k, t + m] for u in range(3) for k in range(3) for m in range(2))
        y[n, r, s, t] = b[r] + sum(terms)
    assert torch.allclose(F.conv2d(x, w, b), y, atol=1e-12)


def test_sizes_of_transforms_are_the_least_products_of_small_primes() -> None:
    products = sorted({2**a * 3**b * 5**c for a, b, c in product(range(11), range(8), range(6))})
    for n in range(1, 700):
        assert smooth(n) == next(p for p in products if p >= n)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="same axes"):
        convolve(drawn(4), drawn(2, 2))
    with pytest.raises(ValueError, match="must not be empty"):
        fft_convolve(torch.zeros(0), drawn(2))
    for mode in ("valid", "circular"):
        with pytest.raises(ValueError, match=f"a {mode} kernel must fit"):
            convolve(drawn(3), drawn(4), mode)
    four = fft_convolve(drawn(2, 2, 2, 2), drawn(2, 1, 2, 1, seed=1))
    expected = scipy_convolve(drawn(2, 2, 2, 2).numpy(), drawn(2, 1, 2, 1, seed=1).numpy())
    assert torch.allclose(four, torch.from_numpy(expected), atol=1e-12)
    with pytest.raises(ValueError, match="1 to 3"):
        convolve(drawn(2, 2, 2, 2), drawn(2, 1, 2, 1))
