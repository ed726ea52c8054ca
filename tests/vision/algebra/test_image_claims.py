"""Questions to networks of images, on models whose answers are known; on users' modules; what is refused."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import beta
from torch import Generator, Tensor, nn

from margin.core.catalog import claims, resolve
from margin.core.deadline import deadline
from margin.core.findings import Finding, NotAsked, Subject, Verdict, finding_of
from margin.core.tasks import DENSITY, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.figures.svg import drawing
from margin.vision.algebra.image_claims import (
    SIDE,
    classifying,
    concentration,
    demo,
    map_gap,
    moved,
    receptive_field,
    roughness,
    shift_errors,
    shown,
)
from margin.vision.convnets.lenet5 import LeNet5

QUESTIONS = ("shift.classes", "shift.maps", "field.measured", "filters.first", "saliency.pixels")


def asked(name: str, subject: Subject) -> Finding:
    claim = claims()[f"vision/{name}"]
    assert not claim.by_name and claim.refusal(subject) == ""
    return finding_of(claim, subject)


def test_an_image_is_moved_and_its_edge_repeated() -> None:
    x = torch.arange(12.0).view(1, 1, 3, 4)
    for down, right in ((1, 0), (-1, 0), (0, 1), (0, -2), (2, -1)):
        rows = np.clip(np.arange(3) - down, 0, 2)
        columns = np.clip(np.arange(4) - right, 0, 3)
        expected = x[0, 0].numpy()[np.ix_(rows, columns)]
        assert moved(x, down, right)[0, 0].tolist() == expected.tolist()


class Corner(nn.Module):
    """The class is the sign of one pixel."""

    def __init__(self, row: int, column: int) -> None:
        super().__init__()
        self.at = row, column
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        z = self.scale * x[:, 0, self.at[0], self.at[1]]
        return torch.stack((-z, z), 1)


def test_the_share_of_classes_that_change_is_counted_over_four_directions() -> None:
    subject = replace(demo(), model=Corner(0, 5))
    found = asked("shift.classes", subject)
    sign = subject.test[0].inputs[0][:, 0] > 0
    one = [sign[:, 0, 5] != sign[:, r, c] for r, c in ((0, 4), (0, 6), (1, 5))]  # above, the edge is repeated
    four = [sign[:, 0, 5] != sign[:, r, c] for r, c in ((0, 1), (0, 9), (4, 5))]
    k = int(torch.stack(one).any(0).sum())
    assert 0 < k < 12 and float(found.value) == pytest.approx(k / 12)
    assert float(found.curves["share that changes"][3]) == pytest.approx(
        float(torch.stack(four).any(0).double().mean())
    )
    low, high = found.shown
    assert float(low) == pytest.approx(beta.ppf(0.025, k, 13 - k))
    assert float(high) == pytest.approx(beta.ppf(0.975, k + 1, 12 - k))
    assert found.verdict is Verdict.MEASURED


def test_a_model_that_sees_no_place_never_changes_its_class() -> None:
    class Range(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            z = self.scale * x[:, :, 4:8, 4:8].square().sum((1, 2, 3)).ceil().clamp(0, 1)
            return torch.stack((-z, z), 1)

    found = asked("shift.classes", replace(demo(), model=Range()))
    assert float(found.value) == 0 and float(found.shown[0]) == 0
    assert float(found.shown[1]) == pytest.approx(1 - 0.025 ** (1 / 12))


def errors(*layers: nn.Module, side: int = 12) -> Tensor:
    subject = classifying(*layers, side=side)
    return shift_errors(subject.model.double(), subject.test[0].inputs[0].double()).errors


def test_convolutions_of_stride_one_commute_with_shifts_but_for_zeros_around() -> None:
    around = {"padding": 1, "padding_mode": "circular"}
    assert float(errors(nn.Conv2d(1, 3, 3, **around), nn.ReLU(), nn.Conv2d(3, 2, 3, **around)).max()) < 1e-14
    assert float(errors(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 4)).max()) < 1e-14  # without padding
    assert float(errors(nn.Conv2d(1, 2, 3, padding=1)).min()) > 0.01
    zeros = [float(errors(nn.Conv2d(1, 2, 3, padding=1), side=n).mean()) for n in (12, 48)]
    assert zeros[1] < zeros[0]  # the border is a smaller part of a larger image


def test_a_stride_breaks_equivariance_between_its_steps() -> None:
    found = errors(nn.Conv2d(1, 2, 3, padding=1, stride=2, padding_mode="circular")).mean(2)[0]
    assert float(found[[1, 3]].max()) < 1e-14 and float(found[[0, 2]].min()) > 0.1
    found = errors(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), nn.MaxPool2d(4)).mean(2)
    assert float(found[0].max()) < 1e-14 and float(found[1, 3]) < 1e-14 < 0.1 < float(found[1, :3].min())


def test_each_axis_has_a_step_of_its_own() -> None:
    """Moved by two pixels a map goes two places down and one to the right. Kills the other axis's step."""
    around = {"padding": 1, "padding_mode": "circular"}
    found = errors(nn.Conv2d(1, 2, 3, stride=(1, 2), **around)).mean(2)[0]
    assert float(found[[1, 3]].max()) < 1e-14 and float(found[[0, 2]].min()) > 0.05


def test_the_gap_of_two_maps_written_out() -> None:
    before, after = torch.randn(2, 2, 3, 5, 6, generator=Generator().manual_seed(0), dtype=torch.float64)
    expected = []
    for n in range(2):
        by_k = []
        for k in (1, 2):
            one, other = after[n, :, k:], before[n, :, : 5 - k]
            spread = other - other.mean((1, 2), keepdim=True)
            by_k.append(float((one - other).norm() / spread.norm()))
        expected.append(min(by_k))
    assert map_gap(before, after, 1.5, 2).tolist() == pytest.approx(expected)
    whole = map_gap(before, after, 1.0, 2).tolist()
    assert whole != pytest.approx(expected)
    flat = torch.ones(2, 1, 3, 3)
    assert map_gap(flat, flat, 1.0, 3).tolist() == [0, 0] and map_gap(flat, flat + 1, 1.0, 3).tolist() == [
        1,
        1,
    ]
    assert bool(map_gap(flat, flat, 7.0, 2).isnan().all())


def test_maps_are_asked_with_an_error_and_named_with_their_step() -> None:
    found = asked("shift.maps", demo())
    table = shift_errors(demo().model, demo().test[0].inputs[0]).errors
    assert found.labels == ("0, step 1", "2, step 2", "3, step 2")
    assert torch.allclose(found.value, table[:, 0].mean(1))
    assert torch.allclose(found.stderr, table[:, 0].std(1) / math.sqrt(12))
    assert torch.allclose(found.curves["after 2"], table[1].mean(1))


def test_a_network_that_first_resizes_its_images_is_asked() -> None:
    torch.manual_seed(0)
    x = torch.rand(6, 1, 8, 8, generator=Generator().manual_seed(0))
    subject = replace(demo(), model=LeNet5(1, 10).eval(), test=[Batch((x,), torch.arange(6))])
    found = asked("shift.maps", subject)
    assert found.labels[0] == "features.0, step 0.25" and found.labels[-1] == "features.5, step 1"
    assert bool(found.value.isfinite().all())
    for name in QUESTIONS:
        assert asked(name, subject).failure == ""


def test_of_tokens_of_patches_no_map_is_known() -> None:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mix = nn.Linear(16, 4), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            patches = F.unfold(x, 4, stride=4).transpose(1, 2)
            return self.mix(self.embed(patches).transpose(1, 2).unflatten(2, (3, 3))).mean((2, 3))

    subject = replace(demo(), model=Patches())
    with pytest.raises(NotAsked, match="no feature map"):
        asked("shift.maps", subject)
    found = asked("field.measured", subject)
    assert found.value.tolist() == [12] and "may see all of it" in found.statement


def test_fields_are_measured_in_pixels() -> None:
    found = asked("field.measured", demo())
    assert found.value.tolist() == [3, 4, 8] and found.labels == ("0", "2", "3")
    assert "of images of 12 x 12; of the last map its windows allow 8" in found.statement
    (picture,) = found.curves.values()
    assert picture.shape == (12, 12) and int((picture > 0).any(1).sum()) == 8


def test_roughness_of_a_blob_an_edge_a_checkerboard_and_noise() -> None:
    def share(filters: np.ndarray) -> float:
        u = np.arange(-256, 256) / 512 + 1 / 1024  # a fine grid of its own, not the formula's
        waves = np.exp(-2j * np.pi * np.outer(u, np.arange(filters.shape[1])))
        power = np.abs(np.einsum("ui,cij,vj->cuv", waves, filters, waves)) ** 2
        high = np.hypot(u[:, None], u) > 0.25
        return float((power.sum(0) * high).sum() / power.sum())

    kernels = {
        "blob": np.ones((1, 5, 5)),
        "edge": np.array([[[1.0, 1, -1, -1]] * 4]),
        "board": np.array([[[1.0, -1], [-1, 1]]]),
        "colored": np.stack([np.ones((3, 3)), np.eye(3)]),
    }
    found = {}
    for name, kernel in kernels.items():
        found[name] = float(roughness(torch.from_numpy(kernel)[None]))
        assert found[name] == pytest.approx(share(kernel), abs=0.02), name
    assert found["blob"] < 0.2 < 0.9 < found["board"]
    noise = torch.randn(2000, 1, 7, 7, generator=Generator().manual_seed(0))
    assert float(roughness(noise).mean()) == pytest.approx(1 - math.pi / 16, abs=0.01)


def test_first_filters_weigh_by_power_and_tell_where_they_began() -> None:
    subject = demo()
    layer = subject.model[0]
    layer.requires_grad_(False)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[1] = 2.0
        layer.weight[3, 0, 0, 0] = 1.0  # white: 1 of 37 parts of the power
    start = demo().model
    found = asked("filters.first", replace(subject, initial=start))
    blob, white = (float(roughness(layer.weight[i : i + 1])) for i in (1, 3))
    assert float(found.value) == pytest.approx((36 * blob + white) / 37)
    assert "of '0'" in found.statement and "when training began: .804" in found.statement
    assert list(found.curves)[1] == "filter 1" and found.curves["response of filter 1"].shape == (1, 12, 12)
    with torch.no_grad():
        layer.weight.zero_()
    assert asked("filters.first", subject).verdict is Verdict.FAILED


def test_half_of_a_mass() -> None:
    mass = torch.tensor([[1.0, 1, 1, 1], [0, 0, 5, 0], [0, 3, 1, 0], [1, 2, 1, 4], [0, 0, 0, 0]])
    found = concentration(mass)
    assert found[:4].tolist() == pytest.approx([0.5, 0.125, 1 / 6, 0.25])
    assert bool(found[4].isnan())


def test_saliency_is_the_derivative_of_the_predicted_class() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 2))
    subject = replace(demo(), model=model)
    found = asked("saliency.pixels", subject)
    x = subject.test[0].inputs[0]
    predicted = model(x).argmax(1)
    weights = model[1].weight.detach()[predicted]
    expected = concentration(weights.square())
    assert float(found.value) == pytest.approx(float(expected.mean()))
    assert float(found.stderr) == pytest.approx(float(expected.std()) / math.sqrt(12))
    assert torch.allclose(found.curves["saliency 2"], weights[1].abs().view(1, 12, 12).double())
    assert torch.equal(found.curves["image 2"], x[1].double())


def test_the_saliency_of_a_pixel_is_its_largest_over_channels() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 144, 2))
    x = torch.rand(12, 3, 12, 12, generator=Generator().manual_seed(0))
    found = asked("saliency.pixels", replace(demo(), model=model, test=[Batch((x,), torch.arange(12) % 2)]))
    weights = model[1].weight.detach()[model(x).argmax(1)].view(12, 3, 144)
    expected = concentration(weights.abs().amax(1).square())
    assert float(found.value) == pytest.approx(float(expected.mean()))


def test_a_constant_model_has_no_saliency() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 2))
    nn.init.zeros_(model[1].weight)
    with pytest.raises(NotAsked, match="no pixel moves the score"):
        asked("saliency.pixels", replace(demo(), model=model))


class Inside(nn.Module):
    """A convolution that runs where nothing can be looked at, or from which nothing is derived."""

    def __init__(self, mapped: bool) -> None:
        super().__init__()
        self.conv, self.mapped = nn.Conv2d(1, 2, 3), mapped

    def forward(self, x: Tensor) -> Tensor:
        if self.mapped:
            return torch.vmap(lambda z: self.conv(z[None])[0].mean((1, 2)))(x)
        with torch.no_grad():
            return self.conv(x).mean((2, 3))


def test_what_cannot_be_looked_at_or_derived_is_not_asked() -> None:
    mapped, frozen = (replace(demo(), model=Inside(mapped)) for mapped in (True, False))
    for name in ("shift.maps", "field.measured", "filters.first"):
        with pytest.raises(NotAsked):
            asked(name, mapped)
    for name in ("field.measured", "saliency.pixels"):
        with pytest.raises(NotAsked):
            asked(name, frozen)
    for name in ("convolution.theorem", "convolution.norm", "field.bound"):
        with pytest.raises(NotAsked):
            finding_of(claims()[f"vision/{name}"], mapped)
    with pytest.raises(NotAsked, match="no derivative"):
        finding_of(claims()["vision/field.bound"], frozen)


def test_weights_that_are_no_numbers_fail_and_violate_nothing() -> None:
    subject = demo()
    with torch.no_grad():
        subject.model[0].weight[0, 0, 0, 0] = math.nan
    for name in ("shift.maps", "field.measured", "filters.first", "saliency.pixels"):
        assert asked(name, subject).verdict is Verdict.FAILED, name
    for name in ("field.bound", "convolution.theorem", "convolution.backward", "convolution.channels"):
        assert finding_of(claims()[f"vision/{name}"], subject).verdict is Verdict.FAILED, name
    assert finding_of(claims()["vision/convolution.norm"], subject).labels == ("3 (circular norm)",)


@pytest.mark.parametrize("name", QUESTIONS)
def test_figures_find_their_curves_and_the_widest_are_cut(name: str) -> None:
    claim = claims()[f"vision/{name}"]
    x = torch.rand(4, 3, 60, 90, generator=Generator().manual_seed(0))
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()]
    layers += [layer for _ in range(6) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    subject = replace(demo(), model=model, test=[Batch((x,), torch.arange(4))])
    found = asked(name, subject)
    assert all(max(curve.shape[-2:]) <= SIDE for curve in found.curves.values() if curve.ndim > 1)
    draw = resolve(claim.figure)
    with drawing() as (_, axes):
        assert draw(axes, found)
        assert draw(axes, replace(found, curves={})) == ""


def test_pictures_are_averaged_down() -> None:
    image = torch.rand(3, 96, 48, generator=Generator().manual_seed(0))
    small = shown(image)
    assert small.shape == (3, 48, 24)
    assert torch.allclose(small[:, 0, 0], image[:, :2, :2].double().mean((1, 2)))
    assert shown(image[:, :10, :10]).shape == (3, 10, 10)


def test_what_is_no_image_and_no_class_is_refused() -> None:
    images, scores = "images of at least 8 x 8 pixels", "class scores"
    tokens = replace(demo(), test=[Batch((torch.randint(5, (4, 9)),), torch.arange(4))])
    small = replace(demo(), test=[Batch((torch.rand(4, 1, 7, 9),), torch.arange(4))])
    deep = replace(demo(), test=[Batch((torch.rand(4, 5, 9, 9),), torch.arange(4))])
    for name in QUESTIONS:
        claim = claims()[f"vision/{name}"]
        assert "tokens" in claim.refusal(tokens)
        assert images in claim.refusal(small) and images in claim.refusal(deep)
        values = replace(demo(), task=VALUES, objective=risk(VALUES))
        assert (scores in claim.refusal(values)) == (name in ("shift.classes", "saliency.pixels"))


def test_maps_of_a_density_are_not_asked() -> None:
    """A bound that sums over the steps of a chain makes each map many times, and takes minutes."""
    density = replace(demo(), task=DENSITY)
    for name in ("shift.maps", "field.measured"):
        assert "a loss compares with targets" in claims()[f"vision/{name}"].refusal(density)
        assert not claims()[f"vision/{name}"].refusal(demo())


def test_gradients_of_maps_end_at_the_deadline() -> None:
    with pytest.raises(NotAsked, match="its time is up"), deadline(time.perf_counter()):
        receptive_field(demo())
