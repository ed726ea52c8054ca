"""The objective: one draw where it is differentiated, else many; in the model's units, the data's shape."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.generative.diffusion.denoising_loss import DRAWS, conditional_denoising_loss, denoising_loss
from margin.generative.diffusion.model import Diffusion
from margin.generative.diffusion.schedules import linear_schedule
from margin.nn.preprocessed import Preprocessed


class Spy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Tensor, Tensor | None]] = []

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        self.seen.append((x, label))
        return torch.zeros_like(x)


def model(num_classes: int = 0) -> tuple[Spy, Preprocessed]:
    spy = Spy()
    core = Diffusion(spy, linear_schedule(9), (4,), num_classes=num_classes, drop=0.0)
    mean, std = torch.full((2, 2), 7.0).double(), torch.ones(2, 2).double()
    return spy, Preprocessed(Standardize(mean, std), core)


def test_one_draw_where_the_loss_is_differentiated_and_the_mean_of_many_where_it_is_read() -> None:
    spy, whole = model()
    batch = Batch((torch.full((5, 2, 2), 7.0),))
    for mode in (True, False):
        assert denoising_loss(whole.train(mode), batch, Generator().manual_seed(0)).shape == (5,)
    assert len(spy.seen) == 2
    with torch.no_grad():
        many = denoising_loss(whole, batch, Generator().manual_seed(0))
    assert len(spy.seen) == 2 + DRAWS
    g = Generator().manual_seed(0)
    expected = sum(denoising_loss(whole, batch, g) for _ in range(DRAWS)) / DRAWS
    torch.testing.assert_close(many, expected)


def test_examples_reach_the_network_flat_and_in_its_units() -> None:
    """Examples of 7 are 0 there: what is left is noise of variance below 1."""
    spy, whole = model()
    denoising_loss(whole.train(), Batch((torch.full((2000, 2, 2), 7.0),)), Generator().manual_seed(0))
    x = spy.seen[0][0]
    assert x.shape == (2000, 4)
    assert float(x.mean().abs()) < 0.1


def test_labels_are_read_where_there_are_classes() -> None:
    spy, whole = model(num_classes=3)
    label = torch.tensor([2, 0, 1])
    batch = Batch((torch.zeros(3, 2, 2),), label)
    conditional_denoising_loss(whole.train(), batch, Generator().manual_seed(0))
    assert spy.seen[0][1] is not None
    assert torch.equal(spy.seen[0][1], label)


def test_a_class_that_is_lacking_is_not_taken_for_none() -> None:
    _, whole = model(num_classes=3)
    with pytest.raises(ValueError, match="needs labeled examples: got none with a label"):
        conditional_denoising_loss(whole, Batch((torch.zeros(3, 2, 2),)), Generator())
