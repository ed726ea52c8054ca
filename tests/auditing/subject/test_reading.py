"""How probabilities are read: a class of probability 0 has an infinite loss, which is said with its count."""

import math

import pytest
import torch

from margin.auditing.subject.outputs import PROBABILITIES, say_infinite


@pytest.mark.parametrize(("dtype", "taken"), [(torch.float32, "87.3"), (torch.float64, "708")])
def test_true_classes_of_probability_0_are_counted_and_their_loss_is_said(
    dtype: torch.dtype, taken: str
) -> None:
    """The least normal number is 2^-126 in float32, 2^-1022 in float64; its logarithm stands for -inf."""
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [1e-30, 1.0]], dtype=dtype)
    labels = torch.tensor([1, 0, 0, 0])
    assumed: list[str] = []
    say_infinite(PROBABILITIES, p, labels, assumed)
    (line,) = assumed
    assert line.startswith("loss: infinite for 2 held-out examples")
    assert f"taken as {taken}" in line
    assert float(taken) == pytest.approx((126 if dtype == torch.float32 else 1022) * math.log(2), rel=1e-3)
    say_infinite(PROBABILITIES, p[1:2], labels[1:2], assumed)
    assert len(assumed) == 1  # nothing is said where none is
