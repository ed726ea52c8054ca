"""The U-Net: sizes of every kind, what it reads, how it begins, what it refuses."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from margin.nn.unet.network import Double, Half, Stage, UNet, check_shape

SMALL = {"widths": (4, 8, 8), "attention": (1,), "head_width": 4, "groups": 2}
SIZES = [(8, 8), (7, 7), (9, 5), (28, 20), (1, 1), (1, 6)]


def scattered(network: UNet, seed: int = 0) -> UNet:
    """The network with every parameter drawn, also those that begin at 0."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.randn(p.shape, generator=g) / (p[0].numel() + 1) ** 0.5)
    return network


def inputs(channels: int, size: tuple[int, int], count: int = 3) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(count, channels, *size, generator=g), torch.tensor([0.0, 3.5, 999.0])[:count]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_images_of_any_size_come_back_in_it_one_row_at_a_time(size: tuple[int, int], channels: int) -> None:
    network = scattered(UNet(channels, size, **SMALL))
    x, t = inputs(channels, size)
    y = network(x, t)
    assert y.shape == x.shape
    assert bool(y.isfinite().all())
    torch.testing.assert_close(network(x[1:2], t[1:2]), y[1:2], rtol=1e-4, atol=1e-5)
    assert network(x[:0], t[:0]).shape == (0, channels, *size)


def test_an_odd_image_is_an_even_one_with_zeros_around_it() -> None:
    """7 x 9 lies in 8 x 12 from row 0 and column 1. Kills zeros on one side only, and none at all."""
    network = scattered(UNet(1, (7, 9), **SMALL))
    x, t = inputs(1, (7, 9))
    whole = torch.zeros(3, 1, 8, 12)
    whole[:, :, :7, 1:10] = x
    torch.testing.assert_close(network(x, t), network(whole, t)[:, :, :7, 1:10])


def test_at_first_it_says_nearly_zero_and_every_parameter_has_a_gradient() -> None:
    torch.manual_seed(0)
    x, t = inputs(2, (8, 8))
    network = UNet(2, (8, 8), **SMALL)
    y = network(x, t)
    assert float(y.detach().abs().max()) < 1e-3
    (y - x).square().sum().backward()
    assert [name for name, p in network.named_parameters() if not bool(p.grad.any())] == []


def test_every_parameter_is_moved_and_every_pixel_and_time_read() -> None:
    """An attention that is built but not called, or a skip that is not read, has no gradient."""
    network = scattered(UNet(2, (8, 8), num_classes=3, blocks=2, **SMALL))
    x, t = inputs(2, (8, 8))
    x, t = x.requires_grad_(), t.requires_grad_()
    network(x, t, torch.tensor([0, 1, 3])).square().sum().backward()
    # a key's bias moves every score of a query alike, so softmax cannot see it
    for name, p in network.named_parameters():
        slope = p.grad
        assert slope is not None, name
        if name == "classes.weight":
            assert slope.abs().sum(1).ne(0).tolist() == [True, True, False, True]
        elif name.endswith("queries_keys_values.bias"):
            queries, _, values = slope.chunk(3)
            assert bool((queries != 0).all() and (values != 0).all()), name
        else:
            assert bool((slope != 0).all()), name
    assert bool((x.grad != 0).all())
    assert bool((t.grad != 0).all())


def test_the_class_is_read_and_none_is_a_class_of_its_own() -> None:
    network = scattered(UNet(1, (4, 4), num_classes=2, **SMALL))
    x, t = inputs(1, (4, 4), 1)
    answers = [network(x, t, torch.tensor([k])) for k in range(3)]
    assert not any(torch.allclose(answers[i], answers[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    with pytest.raises(ValueError, match="exactly where there are classes: got none with num_classes=2"):
        network(x, t)
    with pytest.raises(ValueError, match="got one with num_classes=0"):
        UNet(1, (4, 4), **SMALL)(x, t, torch.tensor([0]))


def test_the_layers_are_those_of_the_description() -> None:
    """By hand for widths 4, 8, 8 and two blocks: what each stage reads is what the way down left."""
    network = UNet(1, (8, 8), blocks=2, **SMALL)

    def shown(layers: nn.ModuleList) -> list[str]:
        names: list[str] = []
        for layer in layers:
            if isinstance(layer, Stage):
                fan = (layer.residual.conv1.in_channels, layer.residual.conv1.out_channels)
                mark = "" if isinstance(layer.attention, nn.Identity) else "a"
                names.append(f"{fan[0]}-{fan[1]}{mark}")
            else:
                assert isinstance(layer, Half | Double)
                names.append(type(layer).__name__)
        return names

    assert shown(network.down) == ["4-4", "4-4", "Half", "4-8a", "8-8a", "Half", "8-8", "8-8"]
    up = ["16-8", "16-8", "16-8", "Double", "16-8a", "16-8a", "12-8a", "Double", "12-4", "8-4", "8-4"]
    assert shown(network.up) == up
    assert [type(layer).__name__ for layer in network.turn] == [
        "ResidualBlock",
        "AttentionBlock",
        "ResidualBlock",
    ]


def test_it_is_the_same_function_in_training_and_evaluation_and_in_float64() -> None:
    network = scattered(UNet(1, (6, 6), **SMALL))
    x, t = inputs(1, (6, 6))
    y = network.train()(x, t)
    assert torch.equal(network.eval()(x, t), y)
    torch.testing.assert_close(network.double()(x.double(), t.double()).float(), y, rtol=1e-3, atol=1e-4)


def test_one_level_has_no_sizes_to_change() -> None:
    network = scattered(UNet(1, (5, 3), widths=(4,), attention=(), head_width=2, groups=2))
    x, t = inputs(1, (5, 3))
    assert network(x, t).shape == x.shape
    e = network.embed(t, None)
    torch.testing.assert_close(e, F.silu(network.embedding(features(t, 4))))


def features(t: Tensor, width: int) -> Tensor:
    """Cosines, then sines, of frequencies 1 and 1/100."""
    assert width == 4
    return torch.stack((t.cos(), (t / 100).cos(), t.sin(), (t / 100).sin()), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widths": ()}, "must be positive: got widths=()"),
        ({"widths": (4, 0)}, "must be positive"),
        ({"blocks": 0}, "must be positive"),
        ({"head_width": 0}, "must be positive"),
        ({"groups": 0}, "must be positive"),
        ({"groups": 3}, "groups must divide every width: got widths=(4, 8), groups=3"),
        ({"widths": (5, 5), "groups": 5, "head_width": 5}, "first width must be even"),
        ({"attention": (2,)}, "levels of attention must be from 0 to 1: got (2,)"),
        ({"attention": (-1,)}, "levels of attention must be from 0 to 1: got (-1,)"),
        ({"head_width": 3}, "head_width must divide"),
        ({"attention": (0,), "head_width": 8}, "head_width must divide"),
        ({"attention": (0,), "widths": (4, 6)}, "head_width must divide"),
    ],
)
def test_refusals(change: dict[str, object], message: str) -> None:
    shape = {"widths": (4, 8), "blocks": 1, "attention": (1,), "head_width": 4, "groups": 2}
    check_shape(**shape)  # type: ignore[arg-type]
    with pytest.raises(ValueError) as error:
        UNet(1, (8, 8), **{**shape, **change})  # type: ignore[arg-type]
    assert message in str(error.value)
