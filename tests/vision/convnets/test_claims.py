"""The pyramid of a network's maps, and the share of its dense layers."""

import pytest
import torch
from torch import nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.preprocessed import Preprocessed
from margin.vision.convnets.claims import convolves, dense_share, lenet_demo, map_sizes, pyramid
from margin.vision.convnets.resnet import ResNet


def subject_of(model: nn.Module, *shape: int) -> Subject:
    batch = Batch((torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)),), torch.tensor([0, 1]))
    return Subject(model=model.eval(), test=[batch], task=CLASSES, objective=risk(CLASSES))


def test_lenet_is_a_pyramid_and_mostly_dense() -> None:
    subject = lenet_demo()
    assert pyramid(subject).value.tolist() == [0, 0]
    # 120 (400 + 1), 84 (120 + 1), 10 (84 + 1) of 61,706
    assert dense_share(subject).value.item() == pytest.approx((48120 + 10164 + 850) / 61706)
    sizes = [size for name, size in map_sizes(subject.model, subject.test[0].inputs[0])]
    assert sizes[0] == (1, 28, 28) and sizes[1] == (6, 28, 28) and sizes[-1] == (16, 5, 5)


def test_what_breaks_the_pyramid_is_named() -> None:
    features = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(4, 3, 1))
    )
    model = Preprocessed(nn.Identity(), nn.Sequential(features, nn.Flatten(), nn.Linear(300, 2)))
    found = pyramid(subject_of(model, 1, 7, 7))
    assert found.value.tolist() == [1, 1]
    assert found.remarks == ("larger maps: 0.1.0", "fewer maps: 0.1.1 (4 to 3)")
    assert found.curves["maps"].tolist() == [1, 4, 4, 3]


@pytest.mark.parametrize("kind", ["basic", "bottleneck", "bottleneck_preactivation"])
def test_a_resnet_is_a_pyramid_of_whole_blocks(kind) -> None:
    subject = subject_of(ResNet(1, (16, 16), 2, block=kind), 1, 16, 16)
    assert pyramid(subject).value.tolist() == [0, 0]
    assert dense_share(subject).value < 0.01


def test_only_networks_that_convolve_images_are_asked() -> None:
    assert convolves(lenet_demo())
    assert not convolves(subject_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), 1, 2, 2))
