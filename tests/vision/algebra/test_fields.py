"""Receptive fields followed through models, and measured: chains, sums, concatenations, up-sampling."""

import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from margin.nn.windows import Window, receptive_field
from margin.vision.algebra.fields import extent, followed, measured_support
from margin.vision.convnets.resnet import ResNet

X = torch.randn(3, 2, 48, 48, generator=Generator().manual_seed(0), dtype=torch.float64)


def both(model: nn.Module, x: Tensor = X) -> dict[str, tuple[float, Fraction | None, int]]:
    """Of each map the field that is allowed, its step, and the extent that is measured."""
    torch.manual_seed(0)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    model = model.double().eval()
    support = measured_support(model, x, generator=Generator().manual_seed(0))
    with followed(model, x) as maps:
        model(x)
    return {one.layer: (*one.fields[0], max(extent(support[one.layer]))) for one in maps}


def test_a_chain_sees_what_the_formula_says_and_no_less() -> None:
    layers = (
        nn.Conv2d(2, 3, 3, padding=1, stride=2),
        nn.BatchNorm2d(3),
        nn.GELU(),
        nn.Conv2d(3, 3, 3, padding=2, dilation=2),
        nn.AvgPool2d(2),
        nn.Conv2d(3, 3, 2),
    )
    windows = [Window(3, 2), Window(3, 1, 2), Window(2, 2), Window(2)]
    fields = [receptive_field(windows[: i + 1]) for i in range(4)]
    found = both(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)))
    assert [allowed for allowed, _, _ in found.values()] == fields
    assert [seen for _, _, seen in found.values()] == fields
    assert [step for _, step, _ in found.values()] == [2, 2, 4, 4]


class Residual(nn.Module):
    """A sum of a long path and a shortcut with a stride, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, stride=2, padding=1)
        self.second = nn.Conv2d(3, 3, 3, padding=1)
        self.short = nn.Conv2d(2, 3, 1, stride=2)
        self.last = nn.Conv2d(6, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        long = self.second(self.first(x).tanh())
        return self.last(torch.cat((long + self.short(x), self.short(x)), 1))


def test_of_a_sum_the_widest_counts_once() -> None:
    found = both(Residual())
    # in a row they would see 1 + 2 + 4 + 0 + 4 x 2 and step by 4
    assert found["short"] == (1, 2, 1) and found["short (2)"] == (1, 2, 1)
    assert found["second"] == (7, 2, 7)
    assert found["last"] == (11, 2, 11)


class Resized(nn.Module):
    def __init__(self, **how) -> None:
        super().__init__()
        self.how = how
        self.conv = nn.Conv2d(2, 1, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, **self.how))


@pytest.mark.parametrize(
    ("how", "step"),
    [
        ({"size": (96, 96), "mode": "bilinear"}, Fraction(1, 2)),
        ({"scale_factor": 2}, Fraction(1, 2)),
        ({"size": (24, 24), "mode": "bilinear", "antialias": True}, Fraction(2)),
        ({"size": (32, 32), "mode": "bicubic"}, Fraction(3, 2)),
    ],
    ids=str,
)
def test_resizing_scales_the_step_and_reads_its_neighbors(how: dict, step: Fraction) -> None:
    allowed, found, seen = both(Resized(**how))["conv"]
    assert found == step and seen <= math.ceil(allowed) <= seen + 3


def test_a_transposed_convolution_halves_the_step() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, stride=2), nn.ConvTranspose2d(3, 3, 2, stride=2), nn.Conv2d(3, 1, 3)
    )
    found = both(model)
    assert [step for _, step, _ in found.values()] == [2, 1, 1]
    assert found["1"][2] == found["1"][0] == 3
    assert found["2"][2] <= found["2"][0] == 5


def test_a_transposed_convolution_reads_all_pixels_that_write_to_a_place() -> None:
    """The first and third of three taps write to every other place. Kills a span over stride rounded down."""
    assert both(nn.Sequential(nn.ConvTranspose2d(2, 1, 3, stride=2)))["0"] == (2, Fraction(1, 2), 2)


@pytest.mark.parametrize("pooling", [nn.MaxPool2d, nn.AvgPool2d])
def test_a_pooling_steps_by_its_stride(pooling: type[nn.Module]) -> None:
    """Kernel 3, stride 2, padding 1. Kills a stride that is the kernel, or the padding."""
    found = both(nn.Sequential(pooling(3, stride=2, padding=1), nn.Conv2d(2, 1, 2)))
    assert [row[:2] for row in found.values()] == [(3, 2), (5, 2)]


def test_the_middle_of_an_oblong_map_is_asked() -> None:
    model = nn.Sequential(nn.Conv2d(2, 1, 1)).double()
    support = measured_support(model, X[:, :, :6, :10], generator=Generator().manual_seed(0))["0"]
    assert support.nonzero().tolist() == [[3, 5]]


@pytest.mark.parametrize("mixing", [nn.GroupNorm(1, 3), nn.Linear(22, 22)], ids=["norm", "linear"])
def test_what_mixes_places_may_see_the_whole_image(mixing: nn.Module) -> None:
    x = X[:, :, :24, :24]
    model = nn.Sequential(nn.Conv2d(2, 3, 3), mixing, nn.Conv2d(3, 1, 3))
    allowed, step, seen = both(model, x)["2"]
    assert math.isinf(allowed) and seen == 24
    assert step == (1 if isinstance(mixing, nn.GroupNorm) else None)


def test_padding_of_every_kind_leaves_the_field_as_it_is() -> None:
    for mode in ("zeros", "circular", "reflect", "replicate"):
        model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode=mode), nn.Conv2d(3, 1, 3))
        assert both(model)["1"] == (5, 1, 5)


def test_what_is_read_for_its_type_alone_widens_nothing() -> None:
    class Standardized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(2, 1, 1))
            self.conv = nn.Conv2d(2, 1, 3)

        def forward(self, x: Tensor) -> Tensor:
            shifted = x - self.mean.to(x) + torch.zeros_like(x) + x.new_ones(2, 1, 1)
            return self.conv(shifted.type_as(x))

    assert both(Standardized())["conv"] == (3, 1, 3)


def test_what_is_set_in_place_may_see_the_whole_image() -> None:
    class Setting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(2, 1, 3), nn.Conv2d(1, 1, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            y[:, :, 20:26] = x.mean((1, 2, 3), keepdim=True)
            return self.last(y)

    found = both(Setting())
    assert found["first"] == (3, 1, 3)
    assert math.isinf(found["last"][0]) and found["last"][1] is None and found["last"][2] == 48


def test_what_does_not_depend_on_the_image_has_no_field() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Parameter(torch.ones(1, 2, 8, 8))
            self.conv = nn.Conv2d(2, 1, 3)

        def forward(self, x: Tensor) -> Tensor:
            return x.mean((1, 2, 3)) + self.conv(self.own).mean()

    assert both(Constant()) == {}


def test_the_extent_of_a_support() -> None:
    support = torch.zeros(5, 7)
    assert extent(support) == (0, 0)
    support[1, 2] = support[3, 3] = -1e-30
    assert extent(support) == (3, 2)


class Sliced(nn.Module):
    """A convolution, what a function makes of its maps, and a convolution again."""

    def __init__(self, function) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 2)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


@pytest.mark.parametrize(
    ("function", "steps"),
    [
        (lambda x: x[:, :, ::2, ::3], (2, 3)),
        (lambda x: x[..., 1::2, 2::3], (2, 3)),
        (lambda x: x[:, :, ::2], (2, 1)),
        (lambda x: x[..., ::3], (1, 3)),
        (lambda x: x[:, ..., ::3], (1, 3)),
        (lambda x: x[::2, 1:][:, [0, 1, 1]], (None, None)),
        (lambda x: x[:, :, torch.tensor([3, 0, 1])], (None, None)),
    ],
)
def test_a_slice_steps_as_a_window_of_one_place(function, steps) -> None:
    model = Sliced(function).double().eval()
    with followed(model, X) as maps:
        model(X)
    fields = {one.layer: one.fields for one in maps}
    if steps == (None, None):
        assert all(field == (math.inf, None) for field in fields["last"])
        return
    assert fields["last"] == tuple((3 + step, step) for step in steps)
    support = measured_support(model, X, generator=Generator().manual_seed(0))
    assert extent(support["last"]) == tuple(3 + step for step in steps)


def test_shortcuts_without_parameters_are_followed() -> None:
    """Option A of ResNets: every second row and column, then maps of zeros."""
    model = ResNet(2, (48, 48), 3, depth=20, shortcut="padded", block="basic", blocks=(1, 1), widths=(3, 5))
    found = both(model)
    assert [(allowed, step) for allowed, step, _ in found.values()] == [
        (3, 1),
        (5, 1),
        (7, 1),
        (9, 2),
        (13, 2),
    ]
    assert [seen for _, _, seen in found.values()] == [allowed for allowed, _, _ in found.values()]
