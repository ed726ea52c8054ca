"""Ancestral sampling from a model of the next token (Graves 2013): greedy, by temperature, of the top k."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

State = tuple[Tensor, ...]


def drawn(
    logits: Float[Tensor, "batch vocab"],
    generator: Generator,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
) -> Int[Tensor, " batch"]:
    r"""One token of each row, drawn from p_i proportional to exp(l_i / temperature) over the k largest.

    Temperature 0 is the limit: the largest logit, the first of equals. Of tokens equal to the k-th largest
    logit the first ones stay, so exactly k do.

    Args:
        logits: l, the unnormalized log probabilities.
        generator: Where the draw comes from.
        temperature: At least 0; 1 samples the model itself.
        top_k: k, how many tokens may be drawn; 0 is all of them.

    Raises:
        ValueError: The temperature is negative or not finite, k is negative, or a logit is NaN.

    Reference:
        Graves 2013, Section 2; Fan, Lewis and Dauphin 2018, Section 5.4 (top-k).
    """
    if not 0 <= temperature < torch.inf or top_k < 0:
        raise ValueError(
            f"sampling needs a finite temperature >= 0 and top_k >= 0: got {temperature}, {top_k}"
        )
    if bool(logits.isnan().any()):
        raise ValueError("the model's logits are NaN: nothing can be drawn from them")
    if temperature == 0:
        return logits.argmax(-1)
    if 0 < top_k < logits.shape[-1]:
        order = logits.sort(stable=True, dim=-1, descending=True).indices
        logits = logits.scatter(-1, order[:, top_k:], -torch.inf)
    # the largest is taken off first: a small temperature would make it overflow
    p = ((logits - logits.amax(-1, keepdim=True)) / temperature).softmax(-1)
    return torch.multinomial(p, 1, generator=generator)[:, 0]


def continued(
    step: Callable[[Tensor, State], tuple[Tensor, State]],
    state: State,
    prefix: Int[Tensor, "batch prefix"],
    length: int,
    draw: Callable[[Tensor], Tensor],
) -> tuple[Int[Tensor, "batch length"], State]:
    """Tokens drawn one after the other, each from the model's prediction after all before it.

    Args:
        step: ``(token (batch,), state) -> (logits (batch, vocab), state)``.
        state: The state before the prefix.
        prefix: Tokens read first, at least one.
        length: Tokens to draw, at least 0.
        draw: ``logits -> token``.

    Returns:
        The drawn tokens, without the prefix, and the state that has read all of them but the last.

    Raises:
        ValueError: The prefix is empty, or the length is negative.
    """
    if prefix.shape[1] < 1 or length < 0:
        raise ValueError(
            "a continuation needs a prefix of at least 1 token and length >= 0: "
            f"got {prefix.shape[1]} and {length}"
        )
    for token in prefix.unbind(1):
        logits, state = step(token, state)
    tokens: list[Tensor] = []
    for _ in range(length):
        if tokens:
            logits, state = step(tokens[-1], state)
        tokens.append(draw(logits))
    return torch.stack(tokens, 1) if tokens else prefix[:, :0], state
