"""What is true of every convolution: it holds, a broken premise is named, a layer that lies violates it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from margin.core.catalog import claims
from margin.core.findings import Finding, NotAsked, Subject, Verdict, finding_of
from margin.vision.algebra.convolution_claims import periodic_demo, strided_demo
from margin.vision.algebra.image_claims import classifying, demo

ALL = ("equivariance", "characterization", "theorem", "backward", "channels", "norm")


def asked(name: str, subject: Subject) -> Finding:
    claim = claims()[name]
    assert claim.by_name and claim.refusal(subject) == ""
    return finding_of(claim, subject)


@pytest.mark.parametrize("name", ALL)
def test_it_holds_of_periodic_convolutions(name: str) -> None:
    assert asked(f"vision/convolution.{name}", periodic_demo()).verdict is Verdict.HOLDS


@pytest.mark.parametrize("name", ALL[2:])
def test_it_holds_with_stride_padding_and_groups(name: str) -> None:
    assert asked(f"vision/convolution.{name}", strided_demo()).verdict is Verdict.HOLDS


@pytest.mark.parametrize("name", ["equivariance", "characterization"])
@pytest.mark.parametrize(
    ("options", "evidence"),
    [
        ({"padding": 1}, "layer '0' pads otherwise"),
        ({}, "layer '0' pads otherwise"),
        ({"padding": 1, "padding_mode": "reflect"}, "layer '0' pads otherwise"),
        ({"padding": 2, "padding_mode": "circular"}, "layer '0' pads otherwise"),
        ({"padding": 1, "stride": 2, "padding_mode": "circular"}, "layer '0' steps further"),
    ],
    ids=str,
)
def test_padding_and_stride_refute_a_premise(name: str, options: dict, evidence: str) -> None:
    found = asked(f"vision/convolution.{name}", classifying(nn.Conv2d(1, 2, 3, **options)))
    assert found.verdict is Verdict.UNFOUNDED
    assert [p.evidence for p in found.premises if p.status == "refuted"] == [evidence]


def test_zeros_around_break_equivariance_at_the_border_alone() -> None:
    """What the premise is for: with zeros the two sides differ, by as much as at the border they must."""
    subject = classifying(nn.Conv2d(1, 2, 3, padding=1))
    found = asked("vision/convolution.equivariance", subject)
    assert float(found.value) > 0.01
    layer, x = subject.model[0], subject.test[0].inputs[0]
    with torch.no_grad():
        gap = layer(x.roll((1, 2), (2, 3))) - layer(x).roll((1, 2), (2, 3))
    inside = torch.zeros_like(gap[0, 0], dtype=torch.bool)
    inside[2:-1, 3:-1] = True
    assert float(gap[:, :, inside].abs().max()) < 1e-5 < float(gap[:, :, ~inside].abs().max())


class Placed(nn.Conv2d):
    """It adds what tells its places apart."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y * (1 + 1e-4 * torch.arange(y.shape[3], dtype=y.dtype))


class Louder(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return 1.0001 * super().forward(x)


class Tenfold(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return 10 * super().forward(x)


class Far(nn.Conv2d):
    """It adds what lies far away, behind the back of what is followed."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        y[:, :, 4:8].add_(1e-3 * x.mean((1, 2, 3), keepdim=True))
        return y


LIES: dict[str, tuple[type[nn.Conv2d], Callable[[], Subject]]] = {
    "convolution.equivariance": (Placed, periodic_demo),
    "convolution.characterization": (Placed, periodic_demo),
    "convolution.theorem": (Louder, strided_demo),
    "convolution.channels": (Louder, strided_demo),
    "convolution.norm": (Tenfold, strided_demo),
    "field.bound": (Far, demo),
}


@pytest.mark.parametrize("name", LIES)
def test_a_layer_that_is_none_violates_it(name: str) -> None:
    kind, build = LIES[name]
    subject = build()
    subject.model[0].__class__ = kind
    found = asked(f"vision/{name}", subject)
    assert found.verdict is Verdict.VIOLATED
    assert found.verdicts[-1] is Verdict.HOLDS or name == "field.bound"


def test_a_gradient_that_is_another_violates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out as plain convolutions, as is sometimes printed, the gradients are others."""
    from margin.vision.algebra import convolution_claims as module

    right = module.convolution_backward

    def printed(x, weight, gradient, layout):
        found = right(x, weight, gradient, layout)
        return found._replace(weight=found.weight.flip(2, 3))

    monkeypatch.setattr(module, "convolution_backward", printed)
    assert asked("vision/convolution.backward", strided_demo()).verdict is Verdict.VIOLATED


def test_the_norm_names_its_bound_and_shows_the_reshaped_kernels() -> None:
    found = asked("vision/convolution.norm", periodic_demo())
    assert found.labels == ("0 (circular norm)", "2 (circular norm)")
    assert torch.allclose(found.value, found.high, rtol=1e-2)
    layers = [m for m in periodic_demo().model if isinstance(m, nn.Conv2d)]
    expected = [float(torch.linalg.matrix_norm(m.weight.detach().flatten(1), 2)) for m in layers]
    assert found.curves["norm of the reshaped kernel"].tolist() == pytest.approx(expected)
    assert float(found.value[0]) > expected[0]


def test_only_models_with_convolutions_are_asked() -> None:
    subject = replace(demo(), model=nn.Sequential(nn.Flatten(), nn.Linear(144, 2)))
    for claim in claims().values():
        if claim.name.startswith(("vision/convolution.", "vision/field.", "vision/filters.")):
            assert "models with convolutions of images" in claim.refusal(subject)


def test_a_convolution_that_is_never_called_as_a_layer_is_not_asked() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.conv2d(x, self.conv.weight).mean((2, 3))

    with pytest.raises(NotAsked, match="called as a layer of its own"):
        asked("vision/convolution.theorem", replace(demo(), model=Own()))


def test_fields_of_maps_that_may_see_everything_are_left_out() -> None:
    subject = classifying(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Conv2d(2, 2, 3))
    found = asked("vision/field.bound", subject)
    assert found.labels == ("0, height", "0, width") and found.value.tolist() == [3, 3]
