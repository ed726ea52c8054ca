"""Couplings of images: Jacobians by autograd, exact inverses, which pixels move, odd sizes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from margin.generative.flow.coupling import Affine
from margin.generative.flow.realnvp_images import (
    Channels,
    Checkerboard,
    MultiScale,
    checkerboard,
    squeezed,
    unsqueezed,
)

SIZES = [(1, (4, 4), 1), (1, (4, 6), 2), (3, (8, 4), 3), (1, (5, 3), 1), (2, (1, 2), 1)]


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def begun(channels: int, size: tuple[int, int], scales: int) -> MultiScale:
    torch.manual_seed(0)
    flow = MultiScale(channels, size, scales=scales, width=6, blocks=1, affine=Affine()).double()
    with torch.no_grad():
        for name, parameter in flow.named_parameters():
            parameter.mul_(5.0 if ".network.3." in name else 1.0)  # away from the identity
    return flow


@pytest.mark.parametrize(("channels", "size", "scales"), SIZES)
def test_the_inverse_is_exact_and_the_log_determinant_that_of_the_jacobian(
    channels: int, size: tuple[int, int], scales: int
) -> None:
    flow, x = begun(channels, size, scales), drawn(2, channels, *size)
    with torch.no_grad():
        z, log_det = flow(x)
        assert z.shape == (2, x[0].numel())
        torch.testing.assert_close(flow.inverse(z), x, atol=1e-10, rtol=0)
        J = torch.func.jacrev(lambda one: flow(one[None])[0][0])(x[0]).flatten(1)
    assert abs(float(log_det[0])) > 0.01
    torch.testing.assert_close(log_det[0], torch.linalg.slogdet(J).logabsdet, atol=1e-10, rtol=0)
    single = flow.float()
    with torch.no_grad():
        back = single.inverse(single(x.float())[0])
    torch.testing.assert_close(back, x.float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("parity", [0, 1])
def test_one_color_moves_by_the_other_alone(parity: int) -> None:
    layer = Checkerboard(1, parity, Affine(), width=4, blocks=0).double()
    x = drawn(1, 1, 3, 4)
    moves = checkerboard(x, parity).flatten().bool()
    assert bool(moves[0]) == (parity == 1)  # the corner
    J = torch.func.jacrev(lambda one: layer(one.reshape(1, 1, 3, 4))[0].flatten())(x.flatten())
    torch.testing.assert_close(J[~moves], torch.eye(12, dtype=x.dtype)[~moves])
    inner = J[moves][:, moves]
    torch.testing.assert_close(inner, inner.diagonal().diag())
    assert bool((J[moves][:, ~moves] != 0).any(1).all())


@pytest.mark.parametrize("parity", [0, 1])
def test_half_of_the_channels_move(parity: int) -> None:
    layer, x = Channels(4, parity, Affine(), width=4, blocks=0).double(), drawn(1, 4, 2, 2)
    y, _ = layer(x)
    same = (y == x).flatten(2).all(2)[0].tolist()
    assert same == ([False, False, True, True] if parity else [True, True, False, False])


def test_every_number_is_moved_and_half_of_them_leave_at_each_scale() -> None:
    flow = begun(1, (8, 8), 3)
    assert flow.shapes == [(2, 4, 4), (4, 2, 2), (4, 2, 2)]
    x = drawn(1, 1, 8, 8)
    J = torch.func.jacrev(lambda one: flow(one[None])[0][0])(x[0]).flatten(1)
    assert bool(((J != 0).sum(1) > 1).all())  # none is left as it was, not even rescaled by itself alone


def test_squeezing_is_torchs_and_no_images_have_no_noise() -> None:
    x = drawn(2, 3, 4, 6)
    assert torch.equal(squeezed(x), F.pixel_unshuffle(x, 2))
    assert torch.equal(unsqueezed(squeezed(x)), x)
    z, log_det = begun(1, (4, 6), 2)(x[:0, :1])
    assert (z.shape, log_det.shape) == ((0, 24), (0,))
    assert begun(1, (4, 6), 2).inverse(z).shape == (0, 1, 4, 6)


def test_both_colors_move_at_the_last_scale() -> None:
    """The one scale of four checkerboards: no pixel leaves it as it was."""
    flow, x = begun(1, (3, 3), 1), drawn(1, 1, 3, 3)
    z, _ = flow(x)
    assert not (z == x.flatten(1)).any()


def test_sizes_that_cannot_be_halved_are_refused_with_the_remedy() -> None:
    for size in ((28, 27), (7, 8)):
        with pytest.raises(
            ValueError, match=r"2 scales need a height and width divisible by 2: got .*take scales 1"
        ):
            begun(1, size, 2)
    with pytest.raises(ValueError, match=r"divisible by 8: got 28 x 28"):
        begun(1, (28, 28), 4)
    with pytest.raises(ValueError, match=r"two pixels: got 1 x 1"):
        begun(3, (1, 1), 1)
    with pytest.raises(ValueError, match=r"scales must be at least 1: got 0"):
        begun(1, (4, 4), 0)
