"""The pyramid of a network's maps, and the share of its dense layers."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.preprocessed import Preprocessed
from margin.vision.convnets.alexnet import AlexNet
from margin.vision.convnets.claims import convolves, dense_share, lenet_demo, map_sizes, pyramid
from margin.vision.convnets.densenet import DenseNet
from margin.vision.convnets.googlenet import GoogLeNet
from margin.vision.convnets.resnet import ResNet
from margin.vision.convnets.vgg import VGG


def subject_of(model: nn.Module, *shape: int) -> Subject:
    batch = Batch((torch.rand(2, *shape),), torch.tensor([0, 1]))
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


@pytest.mark.parametrize("factor", [(1, 2), (2, 1)])
def test_maps_that_grow_along_one_axis_are_larger(factor: tuple[int, int]) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Upsample(scale_factor=factor), nn.Conv2d(2, 2, 1))
    assert pyramid(subject_of(model, 1, 7, 7)).value.tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["basic", "bottleneck", "bottleneck_preactivation"])
def test_a_resnet_is_a_pyramid_of_whole_blocks(kind) -> None:
    subject = subject_of(ResNet(1, (16, 16), 2, block=kind), 1, 16, 16)
    assert pyramid(subject).value.tolist() == [0, 0]
    assert dense_share(subject).value < 0.01


@pytest.mark.parametrize(
    ("model", "dense", "all_"),
    [
        # 4096 (256 36 + 1) + 4096 (4096 + 1) + 1000 (4096 + 1); VGG has 512 49 in place of 256 36
        (lambda: AlexNet(3, (224, 224), 1000), 58_631_144, 61_100_840),
        (lambda: VGG(3, (224, 224), 1000, depth=16), 123_642_856, 138_357_544),
        (lambda: GoogLeNet(3, (224, 224), 1000, third=3), 1_025_000, 6_624_904),
        (lambda: ResNet(3, (224, 224), 1000, depth=18), 513_000, 11_689_512),
        (lambda: ResNet(3, (224, 224), 1000, depth=50), 2_049_000, 25_557_032),
        (lambda: DenseNet(3, (224, 224), 1000, depth=121), 1_025_000, 7_978_856),
    ],
)
def test_most_parameters_are_dense_in_alexnet_and_vgg_alone(
    model: Callable[[], nn.Module], dense: int, all_: int
) -> None:
    with torch.device("meta"):
        network = model()
    share = dense_share(subject_of(network, 1, 1, 1)).value.item()
    assert share == pytest.approx(dense / all_)
    assert (share > 0.85) == (all_ > 5e7) and (share < 0.16) == (all_ < 5e7)


@pytest.mark.parametrize(
    ("network", "fewer"),
    [
        (AlexNet, ["(96 to 64)"]),
        (VGG, []),
        (GoogLeNet, []),
        (ResNet, []),
        (DenseNet, ["(96 to 48)", "(120 to 60)"]),
    ],
)
def test_maps_become_fewer_in_alexnet_and_densenet(network: type[nn.Module], fewer: list[str]) -> None:
    found = pyramid(subject_of(network(3, (32, 32), 10), 3, 32, 32))
    assert found.value.tolist() == [0, len(fewer)]
    assert all(text in " ".join(found.remarks) for text in fewer)


def test_only_networks_that_convolve_images_are_asked() -> None:
    assert convolves(lenet_demo())
    assert not convolves(subject_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), 1, 2, 2))
