"""VGG: its published counts, its layers by hand, fields and weights of its stacks, its two forms."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.vision.convnets.alexnet import AlexNet
from margin.vision.convnets.claims import dense_share
from margin.vision.convnets.densenet import DenseNet
from margin.vision.convnets.googlenet import GoogLeNet
from margin.vision.convnets.vgg import VGG

PUBLISHED = {11: 132_863_336, 13: 133_047_848, 16: 138_357_544, 19: 143_667_240}
NORMALIZED = {11: 132_868_840, 13: 133_053_736, 16: 138_365_992, 19: 143_678_248}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("depth", PUBLISHED)
def test_it_has_the_published_parameters(depth: Any) -> None:
    with torch.device("meta"):
        model = VGG(3, (224, 224), 1000, depth=depth)
        assert count(VGG(3, (224, 224), 1000, depth=depth, norm="batch")) == NORMALIZED[depth]
    assert count(model) == PUBLISHED[depth]
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in model.modules()) == depth


def test_most_of_its_parameters_are_dense() -> None:
    with torch.device("meta"):
        model = VGG(3, (224, 224), 1000, depth=16)
    batch = Batch((torch.zeros(1, 3, 224, 224),), torch.tensor([0]))
    subject = Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
    # 4096 (7 7 512 + 1), 4096 (4096 + 1), 1000 (4096 + 1)
    assert dense_share(subject).value.item() == pytest.approx(123_642_856 / 138_357_544)
    assert dense_share(subject).value > 0.85


@pytest.mark.parametrize(("layers", "field", "weights", "one"), [(2, 5, 18, 25), (3, 7, 27, 49)])
def test_stacked_convolutions_read_as_far_with_fewer_weights(
    layers: int, field: int, weights: int, one: int
) -> None:
    c = 4
    stage = VGG(c, (16, 16), 2, stages=(layers,), widths=(c,), hidden=(), norm="none").features
    convolutions = [layer for layer in stage if isinstance(layer, nn.Conv2d)]
    assert sum(layer.weight.numel() for layer in convolutions) == weights * c**2
    assert nn.Conv2d(c, c, field).weight.numel() == one * c**2
    for layer in convolutions:
        nn.init.ones_(layer.weight)
    x = torch.ones(1, c, 16, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(stage[:-1](x)[0, 0, 8, 8], x)
    reached = gradient[0, 0].nonzero()
    assert (reached.amax(0) - reached.amin(0) + 1).tolist() == [field, field]


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_logits_are_the_papers_composition(norm: Any) -> None:
    torch.manual_seed(0)
    model = VGG(2, (9, 13), 3, stages=(1, 2), widths=(4, 6), hidden=(5,), norm=norm).double().eval()
    norms = [layer for layer in model.features if isinstance(layer, nn.BatchNorm2d)]
    for layer in norms:
        for tensor in (layer.weight, layer.bias, layer.running_mean):
            nn.init.normal_(tensor)
        nn.init.uniform_(layer.running_var, 0.5, 2)
    assert len(norms) == (3 if norm == "batch" else 0)
    convolutions = [layer for layer in model.features if isinstance(layer, nn.Conv2d)]
    x = z = torch.randn(2, 2, 9, 13, dtype=torch.float64)
    for i, layer in enumerate(convolutions):
        z = F.conv2d(z, layer.weight, layer.bias, padding=1)
        if norms:
            own = norms[i]
            z = F.batch_norm(z, own.running_mean, own.running_var, own.weight, own.bias)
        z = z.relu()
        if i in (0, 2):
            z = F.max_pool2d(z, 2)
    assert z.shape == (2, 6, 2, 3)
    first, last = (layer for layer in model.classifier if isinstance(layer, nn.Linear))
    z = (z.flatten(1) @ first.weight.T + first.bias).relu() @ last.weight.T + last.bias
    assert torch.allclose(model(x), z, rtol=0, atol=1e-10)


def test_the_form_follows_the_size_of_the_images() -> None:
    small = VGG(1, (28, 28), 10)
    widths = [layer.out_channels for layer in small.features if isinstance(layer, nn.Conv2d)]
    assert widths == [32, 32, 64, 64, 128, 128] and small.classifier[1].in_features == 128 * 9
    with torch.device("meta"):
        assert VGG(1, (65, 65), 10).classifier[2].in_features == 512 * 49
        assert VGG(1, (32, 32), 10, depth=11).classifier[2].in_features == 512 * 49


def test_what_does_not_fit_is_refused() -> None:
    message = r"images must have 32 x 32 pixels or more: got 28 x 28; fewer stages take them: --model.stages"
    with pytest.raises(ValueError, match=message):
        VGG(1, (28, 28), 10, depth=16)
    with pytest.raises(ValueError, match=r"images must have 8 x 8 pixels or more: got 4 x 9"):
        VGG(1, (4, 9), 10)
    with pytest.raises(ValueError, match=r"stages and widths must be as many numbers from 1 on"):
        VGG(1, (28, 28), 10, stages=(1, 1), widths=(4,))
    with pytest.raises(ValueError, match=r"hidden must be at least 1: got 0"):
        VGG(1, (28, 28), 10, hidden=(0,))


@pytest.mark.parametrize(
    ("size", "depth", "remedy"), [((5, 9), None, (2, 2)), ((28, 40), 16, (2, 2, 3, 3)), ((3, 3), 19, (2,))]
)
def test_the_stages_that_a_refusal_names_fit(
    size: tuple[int, int], depth: Any, remedy: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"pixels or more") as refused:
        VGG(1, size, 10, depth=depth)
    assert str(refused.value).endswith(f"--model.stages {','.join(map(str, remedy))}")
    assert VGG(1, size, 10, depth=depth, stages=remedy, hidden=(4,))(torch.zeros(2, 1, *size)).shape == (
        2,
        10,
    )
    with pytest.raises(ValueError, match=r"images must have 8 x 8 pixels or more: got 1 x 1$"):
        VGG(1, (1, 1), 10)


def test_weights_begin_so_that_gradients_keep_their_size() -> None:
    """Deviation sqrt(2 / 9 fan_out) of 32 to 64 maps; 18,432 draws: 3 % are 5.7 deviations. Kills fan_in."""
    torch.manual_seed(0)
    wider = VGG(1, (32, 32), 2).features[7]
    assert (wider.in_channels, wider.out_channels) == (32, 64) and not bool(wider.bias.any())
    assert float(wider.weight.detach().std()) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.03)


@pytest.mark.parametrize("network", [VGG, AlexNet, GoogLeNet, DenseNet])
def test_the_chosen_dropout_is_the_networks(network: Any) -> None:
    model = network(1, (8, 8), 2, dropout=0.125)
    assert {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)} == {0.125}
