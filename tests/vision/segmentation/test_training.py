"""Training on masks: weights of classes count pixels, a network of one's own, the rule, a whole training."""

from pathlib import Path

import pytest
import torch
from torch import nn

from margin import Training, open_source, train
from margin.core.options import Training as Options
from margin.core.tasks import PIXEL_CLASSES
from margin.data.sets.synthetic_geometry import thin_lines
from margin.engine.objectives import class_weights, smoothed
from margin.vision.segmentation.unet import UNet

FEW = Training(max_steps=2, batch_size=4, threads=1)


def test_balanced_classes_count_labeled_pixels(tmp_path: Path) -> None:
    """Kills weights of classes by images, and unlabeled pixels that count as class 0, which they hold."""
    import numpy as np
    from PIL import Image

    masks = np.random.default_rng(0).choice((0, 1, 2, 255), (5, 4, 4), p=(0.5, 0.2, 0.1, 0.2))
    for k, mask in enumerate(masks):
        for kind in ("images", "masks"):
            (tmp_path / kind).mkdir(exist_ok=True)
            Image.fromarray(mask.astype(np.uint8)).save(tmp_path / kind / f"{k}.png")
    data = open_source(str(tmp_path), {"test": 0.0, "val": 0.0})
    counts = torch.tensor([(masks == k).sum() for k in range(3)]).double()
    weights = class_weights(data, Options(class_weight="balanced"))
    torch.testing.assert_close(weights, counts.sum() / (3 * counts))


def test_smoothed_labels_of_pixels_are_those_of_as_many_examples() -> None:
    logits, labels = torch.randn(2, 3, 4, 5), torch.randint(5, (2, 3, 4))
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])
    found = smoothed(PIXEL_CLASSES, smoothing=0.1, class_weight=weight).task.loss(logits, labels)
    peer = nn.functional.cross_entropy(
        logits.permute(0, 3, 1, 2), labels, weight, reduction="none", label_smoothing=0.1
    )
    torch.testing.assert_close(found, peer)


def test_cutmix_of_masks_is_refused_in_one_line(tmp_path: Path) -> None:
    data = thin_lines(examples=8, size=8)
    with pytest.raises(ValueError, match="cutmix needs one target an example: these have one at every pixel"):
        train("unet", data, {"width": 2}, Training(mix="cutmix", max_steps=1), out=tmp_path / "run")


class First(nn.Module):
    """One convolution whose classes stand on the second axis, as torch's losses take them."""

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, num_classes, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class Last(First):
    """The same with the classes on the last axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).movedim(1, -1)


def test_a_network_of_ones_own_trains_on_masks_or_is_told_how_to_end(tmp_path: Path) -> None:
    data = thin_lines(examples=8, size=8)
    assert "test_accuracy" in train(Last, data, training=FEW, out=tmp_path / "run").metrics
    with pytest.raises(
        ValueError, match=r"\(N, 8, 8, 2\): got \(N, 2, 8, 8\); end its forward with .movedim"
    ):
        train(First, data, training=FEW, out=tmp_path / "other")


def test_thin_lines_are_found_and_the_dice_rule_trains_too(tmp_path: Path) -> None:
    """Seeds are fixed. One class for all is right as often as the pixels are no lines."""
    data = thin_lines(examples=60, size=16, lines=2, noise=15.0)
    how = Training(epochs=12, batch_size=8, lr=0.01, patience=0, threads=1)
    options, constant = {"width": 8, "levels": 2}, 1 - float(data.splits["test"].targets.double().mean())
    plain = train("unet", data, options, how, out=tmp_path / "a")
    ruled = train("unet", data, options, how, out=tmp_path / "b", step={"share": 0.7}, rule="dice_loss")
    for run in (plain, ruled):
        assert 1 - run.metrics["test_accuracy"] < 0.5 * (1 - constant)


@pytest.mark.parametrize("seed", range(2))
def test_lines_are_where_the_classes_say(seed: int) -> None:
    """Without noise the levels tell the classes."""
    data = thin_lines(examples=6, size=12, noise=0.0, seed=seed, test=0.0, val=0.0)
    batch = data.splits["train"].take(torch.arange(6), torch.Generator())
    assert torch.equal(batch.inputs[0][:, 0], 100.0 + 60.0 * batch.targets)
    assert batch.targets.flatten(1).sum(1).min() >= 6


def test_numbers_of_lines_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="thin lines need at least 3 examples"):
        thin_lines(examples=2)


def test_channels_last_gives_the_same_logits() -> None:
    torch.manual_seed(0)
    net, x = UNet(3, 2, width=4).eval(), torch.randn(2, 3, 16, 16)
    last = net.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, net(x), rtol=1e-4, atol=1e-5)
