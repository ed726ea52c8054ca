"""Critical points by hand, models that mix points refused, transforms between their bounds, turns."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, POINT_CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.geometric.sets.deep_sets import DeepSets
from margin.geometric.sets.pointnet import PointNet, PointNetSegmentation, TransformNet
from margin.geometric.sets.pointnet_claims import (
    critical,
    critical_set,
    decides_clouds_in_space,
    demo,
    has_transform,
    orthogonality,
    rotation,
    turns,
)
from margin.geometric.sets.pooling import SetPool


def asked(model: nn.Module, x: Tensor) -> Subject:
    return Subject(
        model=model.eval(),
        test=[Batch((x,), torch.zeros(len(x)).long())],
        task=CLASSES,
        objective=risk(CLASSES),
    )


def test_critical_points_are_those_that_attain_a_maximum() -> None:
    model = DeepSets(nn.Identity(), nn.Identity(), pool="max")
    cloud = torch.tensor([[0.0, 5.0], [1.0, 1.0], [3.0, 5.0], [2.0, 0.0]])
    outputs, kept, counts = critical(model, cloud)
    # of two points that attain 5 the first is taken
    assert outputs.tolist() == [[3.0, 5.0]] and kept.tolist() == [True, False, True, False] and counts == [2]


@pytest.mark.parametrize("kind", [PointNet, PointNetSegmentation])
def test_critical_points_decide_alone(kind: type) -> None:
    torch.manual_seed(0)
    model = kind(3, 4, features=24)
    for one in model.modules():
        if isinstance(one, TransformNet):
            nn.init.normal_(one.affine.weight, std=0.1)
    x = torch.randn(5, 60, 3, generator=Generator().manual_seed(0))
    finding = critical_set(asked(model, x))
    assert finding.verdict == Verdict.HOLDS and finding.premises[0].status == "proved"
    assert 0 < int(finding.curves["cloud critical"].sum()) <= 3 * 24
    assert ("cloud classes" in finding.curves) == (kind is PointNetSegmentation)
    # the points of the last maximum alone do not do: those of the T-Nets decide too
    model = model.double().eval()
    cloud = x[0].double()
    with torch.no_grad():
        high = model.features.high
        local = model.features(cloud[None])[0]
        last = high(local[0]).argmax(0).unique()
        kept = critical(model, cloud)[1]
        assert float((model(cloud[kept][None]) - model(cloud[None])[..., -1:, :]).abs().max()) >= 0
        assert len(last) < int(kept.sum())


class Attending(nn.Module):
    """Points that see each other before the maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(4, 1, batch_first=True)
        self.pool = SetPool("max")

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x + self.mix(x, x, x)[0])


class Centered(nn.Module):
    """Points from their mean, by no layer that could be known."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = SetPool("max")

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x - x.mean(1, keepdim=True))


def test_a_class_of_the_users_is_not_taken_at_its_parents_word() -> None:
    class Own(DeepSets):
        pass

    for kind, status in ((DeepSets, "proved"), (Own, "assumed")):
        model = kind(nn.Identity(), nn.Identity(), pool="max")
        assert critical_set(asked(model, torch.randn(2, 5, 3))).premises[0].status == status


def test_models_that_mix_points_are_refused_or_found_out() -> None:
    x = torch.randn(3, 12, 4, generator=Generator().manual_seed(0))
    finding = critical_set(asked(Attending(), x))
    assert finding.verdict == Verdict.UNFOUNDED and "mix (MultiheadAttention)" in finding.premises[0].evidence
    assert critical_set(asked(Centered(), x)).verdict == Verdict.VIOLATED


def test_nan_fails() -> None:
    subject = demo()
    nn.init.constant_(subject.model.logits.weight, torch.nan)
    assert critical_set(subject).verdict == Verdict.FAILED


def test_transforms_lie_between_their_bounds() -> None:
    subject = demo()
    assert has_transform(subject)
    finding = orthogonality(subject)
    assert finding.verdict == Verdict.HOLDS and finding.value.shape == (4,)
    for one in subject.model.modules():
        if isinstance(one, TransformNet):
            nn.init.zeros_(one.affine.weight)
            # A = c I: both bounds are attained where the axes are one, as |c^2 - 1| = ||I - A A^T||_F
            one.affine.bias.data = torch.eye(one.size).flatten() * 0.5
    scaled = orthogonality(subject)
    torch.testing.assert_close(scaled.value, torch.full((4,), 1.5, dtype=torch.float64))
    assert scaled.verdict == Verdict.HOLDS
    for one in subject.model.modules():
        if isinstance(one, TransformNet):
            one.affine.bias.data = torch.diag(torch.tensor([0.5] + [0.0] * (one.size - 1))).flatten()
    tight = orthogonality(subject)
    assert (
        tight.high is not None
        and tight.value[1] == pytest.approx(1.5)
        and float(tight.high[1]) == pytest.approx(1.5)
    )


def test_turns_are_rotations() -> None:
    upright, any_ = turns(50, Generator().manual_seed(0))
    for Q in (upright, any_):
        torch.testing.assert_close(Q @ Q.mT, torch.eye(3, dtype=torch.float64).expand(50, 3, 3))
        torch.testing.assert_close(torch.linalg.det(Q), torch.ones(50, dtype=torch.float64))
    assert torch.equal(upright[:, 2], torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(50, 3))


class Tall(nn.Module):
    """Class 1 where the cloud is taller than it is wide: turns about the third axis change nothing of it."""

    def __init__(self, radial: bool) -> None:
        super().__init__()
        self.pool, self.radial = SetPool("max"), radial

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(1, keepdim=True)
        parts = (
            (x[..., :2].norm(dim=-1), x[..., 2].abs())
            if self.radial
            else (x.norm(dim=-1), 2 * x.norm(dim=-1))
        )
        return self.pool(torch.stack(parts, -1))


def test_the_share_that_a_turn_changes_is_that_of_known_models() -> None:
    x = torch.randn(40, 20, 3, generator=Generator().manual_seed(0)) * torch.tensor([0.3, 0.3, 1.0])
    about_one = rotation(asked(Tall(radial=True), x))
    assert float(about_one.value[0]) == 0 and float(about_one.value[1]) > 0.3
    assert rotation(asked(Tall(radial=False), x)).value.tolist() == [0.0, 0.0]


def test_turns_are_asked_of_classes_of_clouds_in_space() -> None:
    subject = demo()
    assert decides_clouds_in_space(subject)
    assert not decides_clouds_in_space(replace(subject, task=POINT_CLASSES))
    assert not decides_clouds_in_space(asked(DeepSets(nn.Identity(), nn.Identity()), torch.randn(2, 3, 2)))
