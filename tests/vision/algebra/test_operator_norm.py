"""The operator norm of a convolution, against the dense matrix; spectral_norm of the kernel is another."""

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from margin.math.linear_algebra import convolution_norms
from margin.math.linear_algebra.convolution_norms import (
    circular_norm,
    circular_singular_values,
    kernel_norm_bound,
)
from margin.vision.algebra.operator_norm import norm_bounds, power_iteration_norm


def matrix_of(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """The linear part, a column for each unit of the input."""
    units = torch.eye(torch.Size(shape).numel(), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        return (layer(units) - layer(torch.zeros_like(units[:1]))).flatten(1).T


def drawn(kind: type[nn.Module], *given, seed: int = 0, **options) -> nn.Module:
    torch.manual_seed(seed)
    return kind(*given, **options).double()


CASES = [
    (nn.Conv2d, (2, 3, 3), {"padding": 1}, (2, 6, 7)),
    (nn.Conv2d, (3, 2, (2, 3)), {}, (3, 6, 5)),
    (nn.Conv2d, (2, 4, 3), {"padding": 1, "stride": 2}, (2, 7, 6)),
    (nn.Conv2d, (2, 4, 3), {"padding": 2, "dilation": 2}, (2, 7, 6)),
    (nn.Conv2d, (4, 4, 3), {"padding": 1, "groups": 2}, (4, 5, 6)),
    (nn.Conv2d, (4, 2, 3), {"stride": (1, 2), "padding": (2, 1), "dilation": (2, 1), "groups": 2}, (4, 7, 6)),
    (nn.Conv2d, (2, 3, 3), {"padding": "same"}, (2, 6, 7)),
    (nn.Conv2d, (2, 3, 3), {"padding": 1, "padding_mode": "circular"}, (2, 6, 7)),
    (nn.Conv2d, (2, 3, 3), {"padding": 2, "dilation": 2, "padding_mode": "circular"}, (2, 6, 7)),
    (nn.Conv2d, (2, 3, 3), {"padding": 2, "padding_mode": "circular"}, (2, 6, 7)),
    (nn.Conv2d, (2, 3, 3), {"padding": 1, "stride": 2, "padding_mode": "circular"}, (2, 6, 8)),
    (nn.Conv1d, (3, 2, 4), {"padding": 2}, (3, 12)),
    (nn.Conv3d, (2, 2, 2), {"padding": 1}, (2, 3, 4, 3)),
]


@pytest.mark.parametrize(("kind", "given", "options", "shape"), CASES)
def test_the_bounds_hold_the_norm_of_the_dense_matrix(kind, given, options, shape) -> None:
    layer = drawn(kind, *given, **options)
    truth = float(torch.linalg.matrix_norm(matrix_of(layer, shape), 2))
    found = norm_bounds(layer, shape, generator=Generator().manual_seed(0))
    assert found.low <= truth * (1 + 1e-9) and truth <= found.high * (1 + 1e-9)
    assert found.low >= 0.98 * truth  # with probability 1 over the start; fixed by its seed


@pytest.mark.parametrize("dilation", [1, 2])
def test_it_is_exact_where_the_image_is_periodic(dilation: int) -> None:
    options = {"padding": dilation, "dilation": dilation, "padding_mode": "circular"}
    layer = drawn(nn.Conv2d, 2, 3, 3, **options)
    values = torch.linalg.svdvals(matrix_of(layer, (2, 6, 7)))
    found = norm_bounds(layer, (2, 6, 7), generator=Generator().manual_seed(0))
    assert found.high == pytest.approx(float(values[0]), rel=1e-12) and found.by == "circular norm"
    if dilation == 1:
        ours = circular_singular_values(layer.weight.detach(), (6, 7))
        assert torch.allclose(ours, values, atol=1e-12)


def test_a_kernel_larger_than_the_image_wraps_around() -> None:
    weight = torch.randn(2, 2, 5, 5, generator=Generator().manual_seed(0), dtype=torch.float64)
    layer = nn.Conv2d(2, 2, 5, padding=2, padding_mode="circular", bias=False).double()
    layer.weight.data.copy_(weight)
    truth = float(torch.linalg.matrix_norm(matrix_of(layer, (2, 4, 3)), 2))
    assert circular_norm(weight, (4, 3)) == pytest.approx(truth, rel=1e-12)


def test_spectral_norm_of_the_reshaped_kernel_is_no_lipschitz_constant() -> None:
    layer = spectral_norm(drawn(nn.Conv2d, 4, 4, 3, padding=1, bias=False), n_power_iterations=200).eval()
    kernel = float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2))
    assert kernel == pytest.approx(1.0, abs=1e-6)  # what is claimed
    low = power_iteration_norm(layer, (4, 8, 8), generator=Generator().manual_seed(0))
    truth = float(torch.linalg.matrix_norm(matrix_of(layer, (4, 8, 8)), 2))
    assert truth > 1.4 and low == pytest.approx(truth, rel=1e-3)
    ones = torch.ones(1, 1, 3, 3, dtype=torch.float64) / 3
    assert circular_norm(ones, (9, 9)) == pytest.approx(3.0)  # the reshaped kernel's norm is 1: sqrt(9) less


def test_the_reshaped_kernels_bound_every_size_and_none_can_be_left_out() -> None:
    for seed in range(20):
        generator = Generator().manual_seed(seed)
        weight = torch.randn(3, 2, 3, 2, generator=generator, dtype=torch.float64)
        assert circular_norm(weight, (11, 13)) <= kernel_norm_bound(weight) * (1 + 1e-12)
    # a kernel of one tap: all four forms have its norm, and the bound is sqrt(taps) times that
    tap = torch.zeros(2, 2, 3, 3, dtype=torch.float64)
    tap[:, :, 1, 1] = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    assert kernel_norm_bound(tap) == pytest.approx(9.0) and circular_norm(tap, (5, 5)) == pytest.approx(3.0)
    # tight: all taps equal, one channel
    ones = torch.ones(1, 1, 3, 3, dtype=torch.float64)
    assert kernel_norm_bound(ones) == pytest.approx(9.0) == circular_norm(ones, (6, 6))


def test_of_a_large_image_fewer_frequencies_and_a_margin_still_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        layer = drawn(nn.Conv2d, 2, 2, 3, padding=1, seed=seed)
        exact = norm_bounds(layer, (2, 61, 53), generator=Generator().manual_seed(0)).high
        monkeypatch.setattr(convolution_norms, "MOST_FREQUENCIES", 17 * 17)
        coarse = norm_bounds(layer, (2, 61, 53), generator=Generator().manual_seed(0)).high
        monkeypatch.undo()
        assert exact <= coarse <= 1.08 * exact


def test_what_is_not_known_is_refused() -> None:
    layer = drawn(nn.Conv2d, 1, 1, 3, padding=1, padding_mode="reflect")
    with pytest.raises(ValueError, match="got 'reflect'"):
        norm_bounds(layer, (1, 5, 5), generator=Generator())
    with pytest.raises(ValueError, match="got Linear"):
        norm_bounds(nn.Linear(2, 2), (2,), generator=Generator())


def test_a_layer_of_zeros_stretches_nothing() -> None:
    layer = nn.Conv2d(1, 1, 3).double()
    nn.init.zeros_(layer.weight)
    found = norm_bounds(layer, (1, 5, 5), generator=Generator().manual_seed(0))
    assert found.low == found.high == 0.0


def test_the_least_of_the_four_forms_bounds() -> None:
    """Two taps on a diagonal: rows by columns their norm is 1, in one row sqrt(2). Kills the largest form."""
    diagonal = torch.eye(2, dtype=torch.float64)[None, None]
    assert kernel_norm_bound(diagonal) == pytest.approx(2.0) == circular_norm(diagonal, (6, 6))
