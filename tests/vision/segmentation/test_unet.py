"""The U-Net of segmentation: the paper's sizes and weights, images of every size, every option."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.nn.unet.network import ResidualBlock
from margin.vision.segmentation.unet import UNet, central, mirrored, unpadded_sizes

PAPER = {"levels": 5, "border": "mirror", "norm": "none"}


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_the_papers_network_has_its_parameters() -> None:
    """31,030,658 by hand: 9 a b + b a convolution, 4 a b + b on the way up. Kills a bias or a level more."""

    def pair(a: int, b: int) -> int:
        return 9 * a * b + b + 9 * b * b + b

    widths = [64, 128, 256, 512, 1024]
    by_hand = sum(pair(a, b) for a, b in zip([1, *widths], widths, strict=False))
    by_hand += sum(4 * 2 * b * b + b + pair(2 * b, b) for b in widths[:-1]) + 64 * 2 + 2
    with torch.device("meta"):
        assert parameters(UNet(1, 2, width=64, **PAPER)) == by_hand == 31_030_658


def test_without_padding_572_pixels_become_388() -> None:
    net = UNet(1, 2, width=1, **PAPER).eval()
    with torch.no_grad():
        assert net.maps(torch.zeros(1, 1, 572, 572)).shape == (1, 2, 388, 388)
    assert unpadded_sizes(388, 5) == (572, 388)


@pytest.mark.parametrize("levels", [1, 2, 3, 5])
def test_the_sizes_without_padding_are_the_least_that_suffice(levels: int) -> None:
    """Against the layers one after the other: -4 by two convolutions, half, then double."""

    def answer(n: int) -> int:
        for _ in range(levels - 1):
            if (n := n - 4) % 2 or n <= 0:
                return 0
            n //= 2
        n -= 4
        for _ in range(levels - 1):
            n = 2 * n - 4
        return n

    for size in (1, 2, 7, 16, 50):
        fitting = [n for n in range(1, 700) if answer(n) >= size]
        assert unpadded_sizes(size, levels) == (fitting[0], answer(fitting[0]))


@pytest.mark.parametrize("size", [(1, 1), (7, 9), (16, 16), (33, 20)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"border": "mirror", "norm": "none"},
        {"norm": "group", "width": 8},
        {"block": "residual", "norm": "group", "width": 8},
        {"skips": "none"},
        {"levels": 1},
    ],
    ids=str,
)
def test_an_image_of_any_size_has_logits_at_each_of_its_pixels(
    size: tuple[int, int], options: dict[str, object]
) -> None:
    torch.manual_seed(0)
    net = UNet(3, 4, **{"width": 4, "levels": 3, **options}).eval()
    x = torch.randn(2, 3, *size)
    y = net(x)
    assert y.shape == (2, *size, 4)
    assert bool(y.isfinite().all())
    torch.testing.assert_close(net(x[1:]), y[1:], rtol=1e-4, atol=1e-5)


def test_padding_goes_around_and_the_answer_is_cut_from_where_the_image_lies() -> None:
    """5 x 6 in 8 x 8 from row 1 and column 1. Kills an answer cut from the corner, and zeros on one side."""
    torch.manual_seed(0)
    net = UNet(1, 2, width=2, levels=4, norm="none").eval()
    x = torch.randn(1, 1, 5, 6)
    whole = torch.zeros(1, 1, 8, 8)
    whole[:, :, 1:6, 1:7] = x
    torch.testing.assert_close(net(x), net(whole)[:, 1:6, 1:7])


def test_the_mirrored_border_shows_each_pixel_where_it_is() -> None:
    """A linear network that copies the middle pixel: with a border of 92 pixels the answer is the image."""
    net = UNet(1, 1, width=1, skips="none", **(PAPER | {"levels": 1}))
    with torch.no_grad():
        for layer in (net.down[0][0], net.down[0][2]):
            layer.weight.zero_()[0, 0, 1, 1] = 1
            layer.bias.zero_()
        net.head.weight.fill_(1)
        net.head.bias.zero_()
    x = torch.rand(1, 1, 3, 5)
    torch.testing.assert_close(net(x)[..., 0], x[:, 0])


def test_what_is_passed_across_lies_where_the_image_lies() -> None:
    """A network that copies the first level across: the answer, larger than the image, is cut in its middle.

    Of 2 x 5 pixels 4 x 8 are answered. Kills a border of the wrong width, and what is joined the other way
    round.
    """
    net = UNet(1, 1, width=1, levels=3, border="mirror", norm="none")
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        for layer in (net.down[0][0], net.down[0][2], net.join[-1][0], net.join[-1][2]):
            layer.weight[0, 0, 1, 1] = 1
        net.head.weight.fill_(1)
    x = torch.rand(1, 1, 2, 5)
    torch.testing.assert_close(net(x)[..., 0], x[:, 0])


def test_mirroring_is_that_of_torch_and_goes_on_beyond_it() -> None:
    x = torch.arange(12.0).reshape(1, 1, 3, 4)
    torch.testing.assert_close(mirrored(x, 2, 1, 3, 0), F.pad(x, (3, 0, 2, 1), mode="reflect"))
    row = mirrored(torch.tensor([[[[1.0, 2.0, 3.0]]]]), 0, 0, 5, 4)
    assert row.flatten().tolist() == [2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3][:12]
    assert mirrored(torch.ones(1, 1, 1, 1), 2, 3, 1, 1).shape == (1, 1, 6, 3)


def test_of_larger_maps_the_middle_is_passed_across() -> None:
    x = torch.arange(48.0).reshape(1, 1, 6, 8)
    assert torch.equal(central(x, torch.zeros(1, 3, 2, 4)), x[:, :, 2:4, 2:6])
    assert torch.equal(central(x, torch.zeros(1, 1, 5, 8)), x[:, :, :5])


def test_what_is_passed_across_is_read_level_by_level() -> None:
    """Every parameter has a gradient; what is joined costs 9 b^2 more weights at each level."""
    torch.manual_seed(0)
    net = UNet(1, 2, width=2, levels=3, norm="none")
    names = {name for name, p in net.named_parameters()}
    net(torch.randn(1, 1, 8, 8)).square().sum().backward()
    assert [name for name in names if not bool(dict(net.named_parameters())[name].grad.any())] == []
    joined = parameters(net)
    alone = parameters(UNet(1, 2, width=2, levels=3, norm="none", skips="none"))
    assert joined - alone == sum(9 * b * b for b in (2, 4))


def test_the_residual_blocks_are_those_of_the_diffusion() -> None:
    net = UNet(1, 2, width=8, levels=2, block="residual", norm="group")
    blocks = [m for m in net.modules() if isinstance(m, ResidualBlock)]
    assert len(blocks) == 3
    assert all(block.time is None for block in blocks)
    assert float(blocks[0].conv2.weight.detach().abs().max()) < 1e-4  # begins near 0, as there


def test_weights_begin_so_that_variances_stay() -> None:
    """Standard deviations sqrt(2 / 9 a) and, of a transposed convolution, sqrt(1 / a); failure < 1e-6."""
    torch.manual_seed(0)
    net = UNet(1, 2, width=32, levels=3, norm="none")
    conv, up = net.down[1][2], net.up[0]
    assert float(conv.weight.detach().std()) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.03)
    assert float(up.weight.detach().std()) == pytest.approx((1 / 128) ** 0.5, rel=0.03)
    assert not bool(conv.bias.any())


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"levels": 0}, "levels from 1 to 12"),
        ({"width": 0}, "width must be at least 1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"norm": "group", "width": 12}, "divisible by 8: got 12"),
        ({"block": "residual"}, "need border zeros and norm group: got border zeros, norm batch"),
        ({"block": "residual", "norm": "group", "border": "mirror"}, "got border mirror"),
    ],
)
def test_options_of_which_no_network_can_be_built_are_refused(options: dict[str, object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        UNet(1, 2, **options)


def test_dropout_drops_numbers_of_the_lowest_maps_in_training_alone() -> None:
    """Of 4 x 8 x 8 x 8 numbers .75 are dropped, the others four times as large; the share to within .1."""
    torch.manual_seed(0)
    model, seen = UNet(1, 2, width=4, levels=2, norm="none", dropout=0.75), []
    model.down[-1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    model.up[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x = torch.randn(4, 1, 16, 16)
    model.train()(x)
    lowest, read = seen
    kept = read != 0
    assert torch.equal(read[kept], 4 * lowest[kept])
    positive = lowest > 0
    assert 0.65 < float((~kept & positive).sum() / positive.sum()) < 0.85  # 7 standard deviations
    seen.clear()
    model.eval()(x)
    assert torch.equal(*seen)
