"""Questions to masked networks: a weight that looks ahead is told, and so is a sum that is not 1."""

import math

import pytest
import torch
from torch import Tensor

from margin.core.findings import Subject, Verdict
from margin.core.tasks import PROBABILITY
from margin.core.types import Batch
from margin.generative.flow.claims import bits_demo, causality, is_autoregressive, is_few_bits, total
from margin.generative.flow.made import MADE, GaussianMADE
from margin.generative.flow.objectives import negative_log_probability


def of(core: torch.nn.Module, x: Tensor) -> Subject:
    return Subject(model=core, test=[Batch((x,))], task=PROBABILITY, objective=negative_log_probability)


def test_both_hold_of_masked_networks() -> None:
    assert causality(bits_demo()).verdict == Verdict.HOLDS
    assert total(bits_demo()).verdict == Verdict.HOLDS
    assert causality(of(GaussianMADE(5), torch.randn(6, 5))).verdict == Verdict.HOLDS


@pytest.mark.parametrize("layer", [0, 2])
def test_a_layer_that_looks_ahead_is_told(layer: int) -> None:
    """Units that see all numbers, or units of the second layer that see all units."""
    subject = bits_demo()
    mask = subject.model.network[layer].mask
    with torch.no_grad():
        mask.fill_(True)
    assert causality(subject).verdict == Verdict.VIOLATED
    assert float(causality(subject).value) > 0


def test_a_number_that_sees_itself_and_none_later_is_told() -> None:
    """The last mask with >= in place of >, as if the outputs were hidden units."""
    subject = bits_demo()
    degrees = 1 + torch.arange(16) * 7 // 16
    subject.model.network[4].mask.copy_(torch.arange(1, 9)[:, None] >= degrees)
    assert causality(subject).verdict == Verdict.VIOLATED


class Careless(MADE):
    """A network without masks whose numbers see themselves."""

    def of_bits(self, bits: Tensor) -> Tensor:
        return super().of_bits(bits) + 0.001


def test_a_sum_other_than_1_is_told() -> None:
    torch.manual_seed(0)
    found = total(of(Careless(6, hidden=(8,)), torch.ones(1, 6)))
    assert found.verdict == Verdict.VIOLATED
    assert float(found.value) == pytest.approx(math.exp(0.001), abs=1e-5)


def test_a_network_without_masks_does_not_sum_to_1() -> None:
    subject = bits_demo()
    for layer in (0, 2, 4):
        subject.model.network[layer].mask.fill_(True)
    assert total(subject).verdict == Verdict.VIOLATED


def test_nan_fails_and_others_are_not_asked() -> None:
    subject = bits_demo()
    with torch.no_grad():
        subject.model.network[0].weight.fill_(math.nan)
    assert total(subject).verdict == Verdict.FAILED
    assert causality(subject).verdict == Verdict.FAILED
    assert is_autoregressive(bits_demo())
    assert is_few_bits(bits_demo())
    assert not is_few_bits(of(MADE(15), torch.ones(1, 15)))
    assert not is_few_bits(of(GaussianMADE(3), torch.ones(1, 3)))
    assert not is_autoregressive(of(torch.nn.Linear(2, 2), torch.ones(1, 2)))
