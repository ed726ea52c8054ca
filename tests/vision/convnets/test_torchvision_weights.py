"""AlexNet, VGG, GoogLeNet and DenseNet under torchvision's names are ours: plain networks that bear them."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from margin import Training
from margin.core.catalog import find, models, resolve
from margin.data.examples import Arrays, Data
from margin.runs.training import prepare
from margin.vision.convnets.weights import alexnet_weights, densenet_weights, vgg_weights

CLASSES = 5


class Plain(nn.Module):
    """Features, a mean over so many squares, and a classifier: AlexNet and VGG in torchvision."""

    def __init__(self, features: list[nn.Module], side: int, classifier: list[nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(side)
        self.classifier = nn.Sequential(*classifier)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet() -> nn.Module:
    layers = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    for fan_in, fan_out in ((192, 384), (384, 256), (256, 256)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1), nn.ReLU()]
    dense = [nn.Dropout(), nn.Linear(9216, 7), nn.ReLU(), nn.Dropout(), nn.Linear(7, 7), nn.ReLU()]
    return Plain([*layers, nn.MaxPool2d(3, 2)], 6, [*dense, nn.Linear(7, CLASSES)])


def vgg(norm: bool) -> nn.Module:
    layers: list[nn.Module] = []
    fan_in = 3
    for maps in (3, "pool", 4, "pool", 5, 5, "pool", 6, 6, "pool", 7, 7, "pool"):  # configuration A
        if isinstance(maps, str):
            layers.append(nn.MaxPool2d(2, 2))
        else:
            layers += [nn.Conv2d(fan_in, maps, 3, padding=1), *([nn.BatchNorm2d(maps)] if norm else [])]
            layers.append(nn.ReLU())
            fan_in = maps
    dense = [nn.Linear(7 * 49, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 9), nn.ReLU(), nn.Dropout()]
    return Plain(layers, 7, [*dense, nn.Linear(9, CLASSES)])


class Normalized(nn.Module):
    def __init__(self, fan_in: int, fan_out: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(fan_in, fan_out, size, stride, size // 2, bias=False)
        self.bn = nn.BatchNorm2d(fan_out, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class Module4(nn.Module):
    def __init__(self, fan_in: int, one: int, red3: int, three: int, red5: int, five: int, pool: int) -> None:
        super().__init__()
        self.branch1 = Normalized(fan_in, one, 1)
        self.branch2 = nn.Sequential(Normalized(fan_in, red3, 1), Normalized(red3, three, 3))
        self.branch3 = nn.Sequential(Normalized(fan_in, red5, 1), Normalized(red5, five, 3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), Normalized(fan_in, pool, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)), 1)


class GoogLeNet(nn.Module):
    """An eighth of the maps of Table 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = Normalized(3, 8, 7, 2), Normalized(8, 8, 1), Normalized(8, 24, 3)
        self.inception3a = Module4(24, 8, 12, 16, 2, 4, 4)
        self.inception3b = Module4(32, 16, 16, 24, 4, 12, 8)
        self.inception4a = Module4(60, 24, 12, 26, 2, 6, 8)
        self.inception4b = Module4(64, 20, 14, 28, 3, 8, 8)
        self.inception4c = Module4(64, 16, 16, 32, 3, 8, 8)
        self.inception4d = Module4(64, 14, 18, 36, 4, 8, 8)
        self.inception4e = Module4(66, 32, 20, 40, 4, 16, 16)
        self.inception5a = Module4(104, 32, 20, 40, 4, 16, 16)
        self.inception5b = Module4(104, 48, 24, 48, 6, 16, 16)
        self.aux1, self.aux2 = nn.Linear(64, CLASSES), nn.Linear(66, CLASSES)  # in training only
        self.fc = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x), 3, 2, ceil_mode=True)
        x = F.max_pool2d(self.conv3(self.conv2(x)), 3, 2, ceil_mode=True)
        x = F.max_pool2d(self.inception3b(self.inception3a(x)), 3, 2, ceil_mode=True)
        x = self.inception4d(self.inception4c(self.inception4b(self.inception4a(x))))
        x = F.max_pool2d(self.inception4e(x), 2, 2, ceil_mode=True)
        return self.fc(self.inception5b(self.inception5a(x)).mean((2, 3)))


class DenseLayer(nn.Module):
    def __init__(self, fan_in: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(fan_in), nn.Conv2d(fan_in, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))), 1)


def densenet(counts: tuple[int, ...] = (6, 12, 24, 16), growth: int = 3) -> nn.Module:
    maps = 2 * growth
    layers: dict[str, nn.Module] = {"conv0": nn.Conv2d(3, maps, 7, 2, 3, bias=False)}
    layers |= {"norm0": nn.BatchNorm2d(maps), "relu0": nn.ReLU(), "pool0": nn.MaxPool2d(3, 2, 1)}
    for block, count in enumerate(counts, 1):
        inner = {f"denselayer{k + 1}": DenseLayer(maps + k * growth, growth) for k in range(count)}
        layers[f"denseblock{block}"] = nn.Sequential(OrderedDict(inner))
        maps += count * growth
        if block < len(counts):
            parts = {"norm": nn.BatchNorm2d(maps), "relu": nn.ReLU()}
            parts |= {"conv": nn.Conv2d(maps, maps // 2, 1, bias=False), "pool": nn.AvgPool2d(2, 2)}
            layers[f"transition{block}"] = nn.Sequential(OrderedDict(parts))
            maps //= 2
    layers["norm5"] = nn.BatchNorm2d(maps)
    mean = {"relu": nn.ReLU(), "pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
    whole = {"features": nn.Sequential(OrderedDict(layers)), **mean, "classifier": nn.Linear(maps, CLASSES)}
    return nn.Sequential(OrderedDict(whole))


NETWORKS = {
    "alexnet": ("alexnet", alexnet, {"groups": 1, "stem": "large", "hidden": 7}),
    "vgg11": (
        "vgg",
        lambda: vgg(False),
        {"depth": 11, "stem": "large", "widths": (3, 4, 5, 6, 7), "hidden": (8, 9), "norm": "none"},
    ),
    "vgg11_bn": (
        "vgg",
        lambda: vgg(True),
        {"depth": 11, "stem": "large", "widths": (3, 4, 5, 6, 7), "hidden": (8, 9), "norm": "batch"},
    ),
    "googlenet": ("googlenet", GoogLeNet, {"stem": "large", "width": 8, "third": 3}),
    "densenet121": ("densenet", densenet, {"depth": 121, "stem": "large", "growth": 3}),
    "densenet161": (
        "densenet",
        lambda: densenet((6, 12, 36, 24), 2),
        {"depth": 161, "stem": "large", "growth": 2},
    ),
}


def plain(name: str) -> nn.Module:
    """A plain network whose normalizations have statistics of their own."""
    torch.manual_seed(0)
    model = NETWORKS[name][1]()
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        for tensor in (norm.running_var, norm.weight):
            nn.init.uniform_(tensor, 0.5, 2)
        for tensor in (norm.running_mean, norm.bias):
            nn.init.uniform_(tensor, -0.5, 0.5)
    return model.eval()


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_torchvisions_names_and_answers_are_ours(name: str) -> None:
    size = 97, 130  # odd, and no square: ceilings and means count
    theirs, (row, _, options) = plain(name), NETWORKS[name]
    entry = find(models(), row, "model")
    found = resolve(entry.weights)(theirs.state_dict(), {})
    assert found.options == options and found.spec == {"channels": 3}
    model = resolve(entry.build)(3, size, CLASSES, **found.options).eval()
    model.load_state_dict(found.tensors)
    x = torch.randn(2, 3, *size)
    answer = theirs(x)
    assert answer.std() > 1e-3
    assert torch.allclose(model(x), answer, rtol=1e-4, atol=1e-5)
    assert resolve(entry.weights)(model.state_dict(), {}) is None  # our own names are no others'


def test_older_files_of_densenets_have_a_dot_before_the_number() -> None:
    new = plain("densenet121").state_dict()
    old = {}
    for name, tensor in new.items():
        for kind in ("norm", "conv"):
            for number in "12":
                if "denselayer" in name:
                    name = name.replace(f".{kind}{number}.", f".{kind}.{number}.")
        old[name] = tensor
    assert "features.denseblock1.denselayer2.norm.1.running_var" in old
    first, second = densenet_weights(old, {}), densenet_weights(new, {})
    assert first.options == second.options and first.tensors.keys() == second.tensors.keys()
    assert all(first.tensors[name] is second.tensors[name] for name in first.tensors)


def test_networks_of_other_depths_are_refused() -> None:
    weights = plain("vgg11").state_dict()
    with pytest.raises(ValueError, match=r"must have 8, 10, 13 or 16 convolutions: torchvision's has 9"):
        vgg_weights({**weights, "features.99.weight": torch.zeros(1, 1, 3, 3)}, {})
    message = r"must have the layers \(6, 12, 24, 16\), .*: torchvision's has \(6, 12, 24, 15\)"
    with pytest.raises(ValueError, match=message):
        densenet_weights(densenet((6, 12, 24, 15)).state_dict(), {})
    with pytest.raises(ValueError, match=r"an AlexNet of torchvision: 1 are not: gate.weight"):
        alexnet_weights({**plain("alexnet").state_dict(), "gate.weight": torch.zeros(1)}, {})


def images(channels: int) -> Data:
    part = Arrays((torch.randn(6, channels, 70, 66),), torch.arange(6) % 2)
    spec = {"channels": channels, "image_size": (70, 66), "num_classes": 2, "num_examples": 6}
    return Data(name="images", splits={"train": part, "test": part}, spec=spec)


BEGIN: dict[str, Any] = {"options": {}, "step": {}, "rule": ""}


@pytest.mark.parametrize("name", ["vgg11_bn", "googlenet", "densenet121"])
@pytest.mark.parametrize("kind", ["whole", "half", "bfloat", "safetensors"])
def test_a_training_begins_with_a_file_of_torchvision(tmp_path: Path, name: str, kind: str) -> None:
    """A checkpoint of a training on several processes, half precision, safetensors."""
    weights, row = plain(name).state_dict(), NETWORKS[name][0]
    types = {"half": torch.float16, "bfloat": torch.bfloat16}
    given = {
        n: t.to(types[kind]) if kind in types and t.is_floating_point() else t for n, t in weights.items()
    }
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    if kind == "safetensors":
        save_file(given, path)
    elif kind == "whole":
        inner = {f"module.{n}": tensor for n, tensor in given.items()}
        torch.save({"epoch": 3, "arch": row, "state_dict": inner, "optimizer": {"state": {}}}, path)
    else:
        torch.save(given, path)
    training = Training(max_steps=1, batch_size=2, init_from=str(path))
    job = prepare(row, images(3), BEGIN, training, tmp_path / "run")
    job.lock.release()
    assert any("new last layer, as drawn: " in note for note in job.notes)
    expected = resolve(find(models(), row, "model").weights)(weights, {})
    begun = job.state.core.state_dict()
    rest = [n for n in expected.tensors if not n.startswith(expected.head)]
    assert len(rest) > 20
    for n in rest:
        assert begun[n].dtype == weights_of(expected.tensors[n]).dtype
        assert torch.equal(begun[n], weights_of(expected.tensors[n].to(types.get(kind, torch.float32))))


def weights_of(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def test_gray_images_into_an_alexnet_of_rgb_name_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save(plain("alexnet").state_dict(), path)
    with pytest.raises(ValueError, match=r"must have the channels .*: got 1 for 3: .*--data.channels 3"):
        prepare("alexnet", images(1), BEGIN, Training(max_steps=1, init_from=str(path)), tmp_path / "run")
