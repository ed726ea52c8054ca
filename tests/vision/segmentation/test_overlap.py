"""Dice and intersection over union by class: hand cases, scikit-learn, weights, intervals over images."""

import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score
from torch import Generator, nn

from margin import metrics
from margin.core.findings import Subject
from margin.core.tasks import CLASSES, PIXEL_CLASSES
from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, risk
from margin.figures.frames import FILLS
from margin.figures.svg import drawing
from margin.theory.prediction.held_out import stated
from margin.vision.segmentation.figures import in_colors, overlays, shades
from margin.vision.segmentation.overlap import (
    demo,
    dice,
    dice_loss,
    has_masks,
    iou,
    soft_dice,
    with_dice,
    worst_masks,
)


class Stated(nn.Module):
    """Scores of the classes that an image's levels say."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot(x[:, 0].long(), 3).double()


def subject(found: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor | None = None) -> Subject:
    batch = Batch((found[:, None].double(),), labels, weight)
    return Subject(model=Stated(), test=[batch], task=PIXEL_CLASSES, objective=risk(PIXEL_CLASSES))


def drawn(images: int = 12, side: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = Generator().manual_seed(seed)
    labels = torch.randint(3, (images, side, side), generator=g)
    wrong = torch.rand(images, side, side, generator=g) < torch.rand(images, 1, 1, generator=g) / 2
    return torch.where(wrong, torch.randint(3, labels.shape, generator=g), labels), labels


def test_the_hand_case() -> None:
    assert dice(demo()).value.tolist() == pytest.approx([0.8, 2 / 3])
    assert iou(demo()).value.tolist() == pytest.approx([4 / 6, 2 / 4])


def test_they_are_scikit_learns_over_all_pixels() -> None:
    found, labels = drawn()
    one = subject(found, labels)
    y, p = labels.flatten().numpy(), found.flatten().numpy()
    assert dice(one).value.tolist() == pytest.approx(f1_score(y, p, average=None).tolist())
    assert iou(one).value.tolist() == pytest.approx(jaccard_score(y, p, average=None).tolist())


def test_pixels_of_weight_0_count_for_nothing() -> None:
    """Kills an ignored label that is counted as class 0, which it holds."""
    found, labels = drawn()
    weight = (torch.rand(labels.shape, generator=Generator().manual_seed(3)) < 0.7).double()
    kept = weight.flatten() > 0
    expected = f1_score(labels.flatten()[kept].numpy(), found.flatten()[kept].numpy(), average=None)
    zeroed = torch.where(weight > 0, labels, 0)
    assert dice(subject(found, zeroed, weight)).value.tolist() == pytest.approx(expected.tolist())


def test_errors_are_over_images_not_over_pixels() -> None:
    """Each pixel four times over is no more evidence. Kills an interval by the number of pixels."""
    found, labels = drawn()
    big = [one.repeat_interleave(2, 1).repeat_interleave(2, 2) for one in (found, labels)]
    for few, many in zip(dice(subject(found, labels)).shown, dice(subject(*big)).shown, strict=True):
        torch.testing.assert_close(few, many)


def test_metrics_give_the_same_numbers_and_leave_ignored_pixels_out() -> None:
    found, labels = drawn()
    of_classes = metrics.dice(found, labels)
    finding = dice(subject(found, labels))
    low, high = finding.shown
    for k, name in enumerate(("class 0", "class 1", "class 2")):
        expected = (float(finding.value[k]), float(low[k]), float(high[k]))
        assert tuple(of_classes[name]) == pytest.approx(expected)
    scores = nn.functional.one_hot(found, 3).double()
    assert metrics.iou(scores, labels) == metrics.iou(found.numpy(), labels.numpy())
    marked = labels.clone()
    marked[:, 0] = 255
    assert metrics.dice(found, marked) == metrics.dice(found[:, 1:], labels[:, 1:])


@pytest.mark.parametrize(
    ("predictions", "targets", "rule"),
    [
        (torch.zeros(2, 3, 3).long(), torch.zeros(2, 3, 4).long(), "of one shape"),
        (torch.zeros(2, 3, 3).long(), torch.full((2, 3, 3), 255), "no pixel has a class"),
        (torch.zeros(2, 3, 3), torch.zeros(2, 3, 3).long(), "whole numbers"),
        (torch.zeros(2, 3, 3, 2), torch.full((2, 3, 3), 2), "from 0 to 1: got 2"),
    ],
)
def test_metrics_refuse_what_fits_no_mask(
    predictions: torch.Tensor, targets: torch.Tensor, rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        metrics.dice(predictions, targets)


def test_soft_dice_of_a_sure_forecast_is_the_coefficient_but_for_a_pixel() -> None:
    labels = torch.tensor([[[0, 0], [0, 1]]])
    sure = nn.functional.one_hot(torch.tensor([[[0, 0], [1, 1]]]), 3).double()
    assert soft_dice(sure, labels)[0].tolist() == pytest.approx([(4 + 1) / (5 + 1), (2 + 1) / (3 + 1), 1.0])
    weight = torch.tensor([[[1.0, 1.0], [0.0, 1.0]]])
    assert soft_dice(sure, labels, weight)[0].tolist() == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_dice_rule_mixes_both_losses_image_by_image(share: float) -> None:
    """Against loops over images and classes. Kills one Dice coefficient for the whole batch."""
    logits = torch.randn(2, 4, 4, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.randint(3, (2, 4, 4), generator=Generator().manual_seed(1))
    weight = (torch.rand(2, 4, 4, generator=Generator().manual_seed(2)) < 0.8).double()
    objective = with_dice(risk(PIXEL_CLASSES), PIXEL_CLASSES, share)
    losses = objective(nn.Identity(), Batch((logits,), labels, weight), Generator())
    for n in range(2):
        p, parts = logits[n].softmax(-1), []
        for k in range(3):
            g = (labels[n] == k).double()
            both, sizes = (weight[n] * p[..., k] * g).sum(), (weight[n] * (p[..., k] ** 2 + g)).sum()
            parts.append((2 * both + 1) / (sizes + 1))
        entropy = -logits[n].log_softmax(-1).gather(-1, labels[n][..., None])[..., 0]
        torch.testing.assert_close(losses[n], share * (1 - sum(parts) / 3) + (1 - share) * entropy)


def test_the_dice_rule_refuses_what_is_no_segmentation() -> None:
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\]: got 2"):
        dice_loss(risk(PIXEL_CLASSES), GradientUpdate(), PIXEL_CLASSES, share=2.0)
    with pytest.raises(ValueError, match="got the task 'classes'"):
        dice_loss(risk(CLASSES), GradientUpdate(), CLASSES)


def test_what_is_drawn_are_the_worst_images_thinned_out() -> None:
    found, labels = drawn(images=5, side=200)
    weight = torch.ones(labels.shape)
    weight[:, 0] = 0
    curves = worst_masks(subject(found, labels, weight))
    shares = ((found != labels) * (weight > 0)).flatten(1).sum(1)
    worst = shares.argsort(descending=True)[:3].tolist()
    assert [name for name in curves if name.startswith("mask")] == ["mask 1", "mask 2", "mask 3"]
    for k, i in enumerate(worst):
        assert torch.equal(curves[f"predicted {k + 1}"], found[i, ::3, ::3])
        assert bool((curves[f"mask {k + 1}"][0] == -1).all())


def test_pixels_without_a_class_make_no_image_one_of_the_worst() -> None:
    labels, weight = torch.zeros(4, 4, 4).long(), torch.ones(4, 4, 4)
    found = labels.clone()
    found[0, 0], weight[0, 0] = 1, 0  # four wrong pixels, none of which counts
    found[1:, 2, 2] = 2
    curves = worst_masks(subject(found, labels, weight))
    assert all(bool((curves[f"predicted {k}"] == 2).any()) for k in (1, 2, 3))


def test_it_is_asked_of_images_with_masks_alone() -> None:
    assert has_masks(demo())
    assert not has_masks(stated(torch.zeros(4, 2), torch.zeros(4).long()))
    tokens = stated(torch.zeros(4, 5, 2), torch.zeros(4, 5).long(), task=PIXEL_CLASSES)
    assert not has_masks(tokens)


def test_the_figure_says_what_it_shows_and_colors_wrong_pixels_by_their_class() -> None:
    finding = dice(demo())
    with drawing() as (_, axes):
        words = overlays(axes, finding)
    assert words.startswith(
        "2 held-out images, their masks, the predicted classes, the wrong pixels: 25.0%, 25.0%"
    )
    colors = in_colors(torch.tensor([[-1.0, 0.0, 1.0]]))
    assert (255 * torch.tensor(colors[0, 2])).round().int().tolist() == [*FILLS[1]]
    assert shades(torch.tensor([[2.0, 4.0]]))[0, :, 0].tolist() == [0.0, 1.0]
    assert shades(torch.full((2, 2), 7.0)).max() == 0.0
