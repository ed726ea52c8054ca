"""Sampling: its distribution, its limits, and a stream that equals the whole."""

import pytest
import torch
from torch import Generator

from margin.nn.decoding import continued, drawn

LOGITS = torch.tensor([[1.0, 3.0, 0.0, 2.0]])


def counts(**options: float) -> torch.Tensor:
    g = Generator().manual_seed(0)
    tokens = drawn(LOGITS.expand(40_000, -1), g, **options)
    return tokens.bincount(minlength=4) / 40_000


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_it_draws_from_the_softmax_at_its_temperature(temperature: float) -> None:
    """Each frequency within 5 standard errors: four of them fail with probability below 3e-6."""
    p = (LOGITS[0] / temperature).softmax(0)
    error = (p * (1 - p) / 40_000).sqrt()
    assert bool(((counts(temperature=temperature) - p).abs() <= 5 * error).all())


def test_top_k_renormalizes_what_is_left() -> None:
    p = torch.tensor([0.0, 1 / (1 + torch.tensor(-1.0).exp()), 0.0, 0.0])
    p[3] = 1 - p[1]
    found = counts(top_k=2)
    assert found[0] == found[2] == 0
    assert float((found - p).abs().max()) < 5 * 0.5 / 200  # 5 standard errors at most
    for k in (0, 4, 9):
        assert bool((counts(top_k=k) > 0).all())


@pytest.mark.parametrize(
    ("top_p", "left"),
    [(0.6, [1]), (0.66, [1, 3]), (0.88, [1, 3]), (0.9, [0, 1, 3]), (0.999, [0, 1, 2, 3]), (1e-9, [1])],
)
def test_top_p_leaves_the_fewest_that_hold_so_much(top_p: float, left: list[int]) -> None:
    """p = softmax(1, 3, 0, 2) = .0871, .6439, .0321, .2369: 1 and 3 hold .8808 together."""
    p = LOGITS[0].softmax(0)
    wanted = torch.zeros(4)
    wanted[left] = p[left] / p[left].sum()
    found = counts(top_p=top_p)
    error = (wanted * (1 - wanted) / 40_000).sqrt()
    assert bool(((found - wanted).abs() <= 5 * error).all())


def test_top_p_is_of_what_temperature_and_top_k_leave() -> None:
    """Of the two largest at temperature 1/2 the first holds 1 / (1 + e^-2) = .8808, at 1 it holds .7311."""
    assert bool((counts(top_k=2, temperature=0.5, top_p=0.8)[[0, 2, 3]] == 0).all())
    assert float(counts(top_k=2, top_p=0.8)[3]) > 0.2
    tied = torch.zeros(500, 4)
    assert set(drawn(tied, Generator().manual_seed(0), top_p=0.5).tolist()) == {0, 1}  # of equals the first


def test_the_limits_are_the_largest_logit() -> None:
    g = Generator().manual_seed(0)
    tied = torch.tensor([[0.0, 2.0, 2.0, 1.0]]).expand(500, -1)
    assert drawn(tied, g, temperature=0).tolist() == [1] * 500
    assert drawn(tied, g, top_k=1).tolist() == [1] * 500  # of equals the first, so exactly k stay
    assert set(drawn(tied, g, temperature=1e-4).tolist()) == {1, 2}
    assert set(drawn(1e30 * tied, g).tolist()) == {1, 2}  # nothing overflows


def test_the_same_generator_gives_the_same_tokens() -> None:
    one, other = (drawn(LOGITS.expand(50, -1), Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1.0}, {"temperature": float("nan")}, {"temperature": float("inf")}, {"top_k": -1}],
)
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="finite temperature >= 0 and top_k >= 0"):
        drawn(LOGITS, Generator(), **options)


@pytest.mark.parametrize("top_p", [0.0, 1.5, float("nan")])
def test_a_top_p_that_is_no_share_is_refused(top_p: float) -> None:
    with pytest.raises(ValueError, match=r"top_p must be in \(0, 1\]"):
        drawn(LOGITS, Generator(), top_p=top_p)


def test_a_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="logits are NaN"):
        drawn(torch.tensor([[0.0, float("nan")]]), Generator(), temperature=0)


def test_a_continuation_reads_all_before_it() -> None:
    """A step whose logits point at (sum of all tokens so far + 1) mod 7: each draw is known."""

    def step(
        token: torch.Tensor, state: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        total = state[0] + token
        return torch.nn.functional.one_hot((total + 1) % 7, 7).float(), (total,)

    tokens, (total,) = continued(
        step,
        (torch.zeros(2, dtype=torch.int64),),
        torch.tensor([[1, 2], [0, 0]]),
        4,
        lambda logits: logits.argmax(-1),
    )
    assert tokens.tolist() == [[4, 1, 2, 4], [1, 2, 4, 1]]
    assert total.tolist() == [10, 7]  # the last token is not read
    none, _ = continued(step, (torch.zeros(1, dtype=torch.int64),), torch.tensor([[1]]), 0, torch.argmax)
    assert none.shape == (1, 0)
    with pytest.raises(ValueError, match="prefix of at least 1 token and length >= 0: got 0 and 2"):
        continued(step, (), torch.zeros(1, 0, dtype=torch.int64), 2, torch.argmax)
