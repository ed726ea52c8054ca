"""Rows of more numbers than are looked at: images by means over cells, others by some of their features."""

import pytest
import torch
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.evidence.duplicates import duplicates
from margin.theory.evidence.rows import LEAST, WIDEST, drawn
from margin.theory.evidence.shift import LEVEL, shift


def subject_of(test: Tensor, train: Tensor) -> Subject:
    """Two parts of rows, cut in batches of 7, with labels 0 and 1 in turn."""
    parts = [
        [Batch((rows,), torch.arange(len(rows)) % 2) for rows in part.split(7)] for part in (test, train)
    ]
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(2))
    model(test[:1])
    return Subject(model=model, test=parts[0], train=parts[1], task=CLASSES, objective=risk(CLASSES))


def images(count: int, size: int, seed: int) -> Tensor:
    return torch.rand(count, 1, size, size, generator=torch.Generator().manual_seed(seed))


def test_an_image_of_63504_pixels_is_looked_at_by_means_over_3_x_3() -> None:
    """sqrt(63,504 / 12,500) = 2.25, so cells of 3: 84 x 84 of them, in the order of rows."""
    x = images(20, 252, 0)
    test, train = drawn(subject_of(x, images(16, 252, 1)))
    expected = x.double().reshape(20, 84, 3, 84, 3).mean((2, 4)).flatten(1)
    torch.testing.assert_close(test.inputs, expected, rtol=1e-12, atol=1e-12)
    assert (test.shape, train.inputs.shape) == (torch.Size((1, 84, 84)), (16, 7056))
    assert test.words == "all 20 held-out examples"
    assert train.words == "all 16 training examples, by means over 3 x 3 pixels"
    assert test.names(85) == "pixels of plane 0 from row 3, column 3"


def test_a_cell_at_the_edge_is_the_mean_of_the_pixels_that_there_are() -> None:
    """39,000 numbers, by cells of 2 x 2: 50 rows of 65 and one of a pixel's width."""
    x = torch.ones(4, 3, 100, 131)
    test, _ = drawn(subject_of(x, x))
    assert test.shape == (3, 50, 66)
    assert torch.equal(test.inputs, torch.ones(4, 3 * 50 * 66).double())


@pytest.mark.parametrize("width", [WIDEST, WIDEST + 1])
def test_a_row_of_12501_features_is_looked_at_by_12500_under_their_own_names(width: int) -> None:
    x = torch.arange(float(width)).expand(5, width)
    test, train = drawn(subject_of(x, x))
    assert test.inputs.shape == (5, WIDEST)
    assert bool((test.inputs[0].diff() > 0).all())
    assert test.names(7000) == f"feature {int(test.inputs[0, 7000])}"
    told = "" if width == WIDEST else ", by 12,500 of their 12,501 features, drawn at random"
    assert train.words == f"all 5 training examples{told}"


def test_of_a_long_sequence_whole_steps_are_drawn() -> None:
    """300 steps of 60 columns, which hold their own numbers: 208 steps of 60 are 12,480 numbers."""
    x = torch.arange(60.0).expand(5, 300, 60)
    test, _ = drawn(subject_of(x, x))
    assert test.inputs.shape == (5, 208 * 60)
    assert torch.equal(test.inputs.reshape(-1, 60), torch.arange(60).double().expand(5 * 208, 60))


def test_a_corner_that_is_lighter_is_found_and_its_cells_are_named() -> None:
    """A cell of 9 pixels of deviation .29 has .096: .2 is 2 of these, of 60 and 60 images beyond doubt."""
    x = images(60, 252, 2)
    x[:, :, 30:33, 60:63] += 0.2
    found = shift(subject_of(x, images(60, 252, 3)))
    values = dict(zip(found.labels, found.value.tolist(), strict=True))
    assert values["pixels of plane 0 from row 30, column 60"] < LEVEL
    assert "for all 7058 tests" in found.statement
    assert "means over 3 x 3 pixels" in found.statement


def test_a_large_image_that_was_made_lighter_is_nearly_a_copy() -> None:
    x, train = images(30, 252, 4), images(60, 252, 5)
    x[4] = 0.9 * train[11] + 0.05
    found = duplicates(subject_of(x, train))
    counts = dict(zip(found.labels, found.value.tolist(), strict=True))
    assert counts["held-out rows that stand in the training part"] == 0
    assert counts["held-out rows nearly equal to a training row"] == 1


def test_at_most_200_wide_rows_are_drawn_and_each_with_its_own_target() -> None:
    """Of 210 images those drawn hold their own number, which is their label."""
    numbers = torch.arange(210)
    x = numbers.float()[:, None, None, None].expand(210, 1, 120, 120)
    subject = subject_of(x, x)
    first = 0
    for i, batch in enumerate(subject.train):
        subject.train[i] = batch._replace(targets=numbers[first : first + len(batch.inputs[0])])
        first += len(batch.inputs[0])
    _, train = drawn(subject)
    assert len(train.inputs) == LEAST
    assert torch.equal(train.inputs[:, 0].long(), train.targets)
    assert train.words.startswith("200 of 210 training examples, drawn at random, by means")
