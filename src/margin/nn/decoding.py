"""Decoding: reading a sequence off a model of the next token, greedily, by a beam search, by sampling.

Everything here asks one function, ``step(token, state) -> (scores of the next token, new state)``, which any
autoregressive model has: a language model, the decoder of an encoder-decoder, a WaveNet. Continuations of a
prefix (Graves 2013) are drawn by temperature, of the likeliest tokens: :func:`drawn`, :func:`sampled`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

State = tuple[Tensor, ...]
"""What a model remembers: tensors of shape (batch, ...)."""

Tokens = Int[Tensor, " batch"]
NextToken = Callable[[Tensor, State], tuple[Tensor, State]]
"""``(token (batch,), state) -> (scores (batch, vocabulary), state)``; p(next | past) is softmax(scores)."""


class Decoded(NamedTuple):
    """One sequence an example, as it was read off a model.

    ``tokens`` holds the end token where it was reached, and behind it nothing else. ``lengths`` counts the
    tokens, the end included. ``log_probability`` is log p of these tokens, in nats. ``ended`` is False where
    the longest sequence allowed came without an end, or the model has none.
    """

    tokens: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    log_probability: Float[Tensor, " batch"]
    ended: Bool[Tensor, " batch"]


@torch.no_grad()
def greedy(step: NextToken, state: State, first: Tokens, *, end: int | None, longest: int) -> Decoded:
    """The sequence whose every token is the most probable one after those before it.

    Its own probability need not be the largest, see :func:`beam`.

    Args:
        step: The model.
        state: Its state before ``first``.
        first: The token that each example's first step is given; it is not part of what is returned.
        end: The token that ends a sequence; None: none does.
        longest: Tokens at most, at least 1.

    Raises:
        ValueError: ``longest`` is below 1, or the model's scores are no distribution: NaN, inf,
            or -inf for every token.

    Reference: Sutskever, Vinyals and Le 2014, Section 3.2 (a beam of size 1).
    """
    return _followed(lambda log_p: log_p.argmax(-1), step, state, first, end=end, longest=longest)


@torch.no_grad()
def ancestral(
    step: NextToken,
    state: State,
    first: Tokens,
    *,
    end: int | None,
    longest: int,
    generator: Generator,
    temperature: float = 1.0,
) -> Decoded:
    """A draw from the model: each token from its distribution after those before it.

    Args:
        step: The model.
        state: Its state before ``first``.
        first: The token that each example's first step is given.
        end: The token that ends a sequence; None: none does.
        longest: Tokens at most, at least 1.
        generator: What is drawn from.
        temperature: t > 0, finite: tokens are drawn from softmax(log p / t); 1 is the model's own
            distribution.

    Returns:
        The draws; their log-probability is the model's own, whatever the temperature.

    Raises:
        ValueError: An option is out of range, or the model's scores are no distribution: NaN, inf,
            or -inf for every token.

    Reference: Bishop 2006, Section 8.1.2 (ancestral sampling); Graves 2013, Section 2.
    """
    if not 0 < temperature < torch.inf:
        raise ValueError(
            f"temperature must be finite and above 0, greedy decoding being its limit: got {temperature}"
        )

    def drawn(log_p: Tensor) -> Tensor:
        # the largest is taken off first, and in float64: a small temperature would make it overflow, or be 0
        below = (log_p - log_p.amax(-1, keepdim=True)).double()
        p = (below / temperature).softmax(-1).to(log_p.dtype)
        return torch.multinomial(p, 1, generator=generator)[:, 0]

    return _followed(drawn, step, state, first, end=end, longest=longest)


def _followed(
    choose: Callable[[Tensor], Tensor],
    step: NextToken,
    state: State,
    first: Tensor,
    *,
    end: int | None,
    longest: int,
) -> Decoded:
    """One token after the other, each chosen from the log-probabilities of the next."""
    _check_longest(longest)
    token, ended, tokens, gains = first, torch.zeros_like(first, dtype=torch.bool), [], []
    lengths = torch.zeros_like(first)
    for _ in range(longest):
        log_p, state = _asked(step, token, state)
        token = choose(log_p)
        gains.append(log_p.gather(1, token[:, None])[:, 0].masked_fill(ended, 0))
        lengths = lengths + (~ended).to(lengths.dtype)
        if end is not None:
            token = token.masked_fill(ended, end)
            ended = ended | (token == end)
        tokens.append(token)
        if bool(ended.all()):
            break
    return Decoded(torch.stack(tokens, 1), lengths, torch.stack(gains, 1).sum(1), ended)


@torch.no_grad()
def beam(
    step: NextToken,
    state: State,
    first: Tokens,
    *,
    end: int | None,
    longest: int,
    width: int,
    length_normalization: float = 0.0,
) -> Decoded:
    r"""The best ended sequence that a search finds which keeps ``width`` unended ones at a time.

    .. math:: s(y) = \frac{\log p(y)}{l(|y|)}, \qquad l(n) = \left(\frac{5 + n}{6}\right)^\alpha

    Each step extends every kept sequence by every token. Of these candidates an ended one is a result if it
    is among the ``width`` best, and the ``width`` best of those not ended are kept. The search stops when
    none of them can reach the best result any more, as log p only falls: what is returned does not depend on
    the other examples of the batch. Without length normalization a width of 1 is greedy decoding. A width of
    V^longest, V the number of tokens, is an exhaustive search. Between, a wider beam is *not* always better:
    the sequence that a narrow one finds may fall out of a wider one before it ends.

    Args:
        step: The model.
        state: Its state before ``first``.
        first: The token that each example's first step is given.
        end: The token that ends a sequence; None: none does, and all have ``longest`` tokens.
        longest: Tokens at most, the end included, at least 1.
        width: Sequences kept, at least 1; it may be more than there are tokens.
        length_normalization: alpha >= 0 of s; 0 compares log p itself, which favors short sequences. |y|
            counts the end token.

    Returns:
        The best ended sequence; where none ended within ``longest`` tokens, the best of the unended.

    Raises:
        ValueError: An option is out of range, or the model's scores are no distribution: NaN, inf,
            or -inf for every token.

    Reference: Sutskever, Vinyals and Le 2014, Section 3.2; Wu et al. 2016, Equation 14 (alpha, without its
        penalty of coverage); Huang, Zhao and Ma 2017, Section 3 (when to stop).
    """
    _check_longest(longest)
    if width < 1:
        raise ValueError(f"width must be at least 1: got {width}")
    if not length_normalization >= 0:
        raise ValueError(f"length_normalization must be at least 0: got {length_normalization}")
    kept = _Kept(torch.zeros_like(first, dtype=torch.float64)[:, None], first[:, None, None][:, :, :0])
    best, token = _Best.none(first, longest, end), first
    for time in range(1, longest + 1):
        log_p, state = _asked(step, token, state)
        candidates = kept.score[:, :, None] + log_p.double().unflatten(0, kept.score.shape)
        if end is not None:
            best = best.or_ended(candidates, kept, width, end, ((5 + time) / 6) ** length_normalization)
            candidates[:, :, end] = -torch.inf
        room = candidates.shape[1] * (candidates.shape[2] - (end is not None))
        if room == 0:  # the end is the only token
            break
        kept, parent = kept.extended(candidates, min(width, room))
        reachable = kept.score[:, 0] / ((5 + longest) / 6) ** length_normalization
        if end is not None and bool((best.score >= reachable).all()):
            break
        token, state = kept.tokens[:, :, -1].flatten(), _of_parents(state, parent)
    return best.or_unended(kept)


class _Kept(NamedTuple):
    """The sequences not ended that a search keeps of each example, the best first."""

    score: Float[Tensor, "batch kept"]
    tokens: Int[Tensor, "batch kept time"]

    def extended(self, candidates: Tensor, count: int) -> tuple["_Kept", Tensor]:
        """The best ``count`` candidates (batch, kept, vocabulary), and which sequence each extends."""
        score, index = candidates.flatten(1).topk(count)
        parent, token = index // candidates.shape[2], index % candidates.shape[2]
        before = self.tokens.gather(1, parent[:, :, None].expand(-1, -1, self.tokens.shape[2]))
        return _Kept(score, torch.cat((before, token[:, :, None]), 2)), parent


class _Best(NamedTuple):
    """The best ended sequence of each example so far; its score is -inf where there is none."""

    score: Float[Tensor, " batch"]
    total: Float[Tensor, " batch"]
    tokens: Int[Tensor, "batch longest"]
    lengths: Int[Tensor, " batch"]

    @staticmethod
    def none(first: Tensor, longest: int, end: int | None) -> "_Best":
        """No sequence has ended."""
        score = torch.full_like(first, -torch.inf, dtype=torch.float64)
        tokens = first.new_full((len(first), longest), 0 if end is None else end)
        return _Best(score, score, tokens, torch.zeros_like(first))

    def or_ended(self, candidates: Tensor, kept: _Kept, width: int, end: int, norm: float) -> "_Best":
        """The better one of this and of the candidates that end and are among the ``width`` best."""
        count = candidates.shape[2]
        top, index = candidates.flatten(1).topk(min(width, candidates.shape[1] * count))
        total, place = top.masked_fill(index % count != end, -torch.inf).max(1)
        parent = index.gather(1, place[:, None]) // count
        before = kept.tokens.gather(1, parent[:, :, None].expand(-1, -1, kept.tokens.shape[2]))[:, 0]
        better, time = total / norm > self.score, before.shape[1]
        tokens = self.tokens.clone()
        tokens[:, :time] = torch.where(better[:, None], before, tokens[:, :time])
        tokens[:, time:] = torch.where(better[:, None], end, tokens[:, time:])
        return _Best(
            torch.where(better, total / norm, self.score),
            torch.where(better, total, self.total),
            tokens,
            self.lengths.masked_fill(better, time + 1),
        )

    def or_unended(self, kept: _Kept) -> Decoded:
        """This, and the best of the kept sequences where none has ended."""
        ended, time = self.score > -torch.inf, kept.tokens.shape[2]
        tokens = self.tokens.clone()
        tokens[:, :time] = torch.where(ended[:, None], tokens[:, :time], kept.tokens[:, 0])
        lengths = self.lengths.masked_fill(~ended, time)
        total = torch.where(ended, self.total, kept.score[:, 0])
        longest = int(lengths.max()) if len(lengths) else 0
        return Decoded(tokens[:, :longest], lengths, total, ended)


def _asked(step: NextToken, token: Tensor, state: State) -> tuple[Tensor, State]:
    """The log-probabilities of the next token; those of a model that gives them already stay as they are."""
    scores, state = step(token, state)
    log_p = scores.log_softmax(-1)
    if bool(log_p.isnan().any()):  # it is where a score is NaN or inf, and where all are -inf
        what = "NaN" if bool(scores.isnan().any()) else "inf, or -inf for every token"
        raise ValueError(f"a model must give a score to each token, a number for one at least: got {what}")
    return log_p, state


def _of_parents(state: State, parent: Tensor) -> State:
    """The state of the sequence that each new one extends."""
    batch, kept = len(parent), len(state[0]) // len(parent) if state and len(parent) else 1
    index = (parent + kept * torch.arange(batch, device=parent.device)[:, None]).flatten()
    return tuple(part.index_select(0, index) for part in state)


def _check_longest(longest: int) -> None:
    if longest < 1:
        raise ValueError(f"longest must be at least 1: got {longest}")


def drawn(
    logits: Float[Tensor, "batch vocab"],
    generator: Generator,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> Int[Tensor, " batch"]:
    r"""One token of each row, drawn from p_i proportional to exp(l_i / temperature) over the likeliest.

    The likeliest are the k largest; of what is left at this temperature, the fewest whose probabilities sum
    to ``top_p`` or more (nucleus sampling). Temperature 0 is the limit: the largest logit, the first of
    equals. Of tokens with equal logits the first ones stay, so exactly k do.

    Args:
        logits: l, the unnormalized log probabilities.
        generator: Where the draw comes from.
        temperature: At least 0; 1 samples the model itself.
        top_k: k, how many tokens may be drawn; 0 is all of them.
        top_p: In (0, 1]; 1 leaves all.

    Raises:
        ValueError: The temperature is negative or not finite, k is negative, top_p is not in (0, 1], or a
            logit is NaN.

    Reference:
        Graves 2013, Section 2; Fan, Lewis and Dauphin 2018, Section 5.4 (top-k); Holtzman et al. 2020,
        Section 3.1 (top-p).
    """
    if not 0 <= temperature < torch.inf or top_k < 0:
        raise ValueError(
            f"sampling needs a finite temperature >= 0 and top_k >= 0: got {temperature}, {top_k}"
        )
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be in (0, 1]: got {top_p}")
    if bool(logits.isnan().any()):
        raise ValueError("the model's logits are NaN: nothing can be drawn from them")
    if temperature == 0:
        return logits.argmax(-1)
    cut = 0 < top_k < logits.shape[-1]
    order = logits.sort(stable=True, dim=-1, descending=True).indices if cut or top_p < 1 else logits
    if cut:
        logits = logits.scatter(-1, order[:, top_k:], -torch.inf)
    # the largest is taken off first: a small temperature would make it overflow
    p = ((logits - logits.amax(-1, keepdim=True)) / temperature).softmax(-1)
    if top_p < 1:
        ranked = p.gather(-1, order)
        before = ranked.double().cumsum(-1) - ranked  # of the likelier ones alone
        p = p.scatter(-1, order, ranked.masked_fill(before >= top_p, 0))
    return torch.multinomial(p, 1, generator=generator)[:, 0]


@runtime_checkable
class Autoregressive(Protocol):
    """A model of the next token, as a language model is one."""

    vocab_size: int

    def initial(self, tokens: Int[Tensor, " batch *rest"]) -> State:
        """The state before the first token."""
        ...

    def step(self, token: Tokens, state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The scores of the token after this one, and the new state."""
        ...


def beginning(
    prefix: Int[Tensor, " prefix"] | None, count: int, vocab_size: int, generator: Generator
) -> tuple[Int[Tensor, "count prefix"], bool]:
    """What each of ``count`` samples begins with: the prefix, or a token drawn evenly, which is its first.

    Returns:
        The tokens, and whether they were drawn.
    """
    if prefix is not None and len(prefix):
        return prefix.to(generator.device).expand(count, -1), False
    return torch.randint(vocab_size, (count, 1), generator=generator, device=generator.device), True


@torch.no_grad()
def sampled(
    model: Autoregressive,
    count: int,
    length: int,
    prefix: Int[Tensor, " prefix"] | None,
    draw: Callable[[Tensor], Tensor],
    generator: Generator,
) -> Int[Tensor, "count length"]:
    """Continuations of a prefix, or texts from nothing, drawn from a model token by token.

    Args:
        model: The model.
        count: How many, at least 1.
        length: Tokens of each, at least 0.
        prefix: What they continue; None begins with a token drawn evenly, which is the first of each.
        draw: ``logits -> token``, see :func:`drawn`.
        generator: Where that first token comes from.

    Raises:
        ValueError: The count is below 1, or the length negative.
    """
    check_counts(count, length)
    start, new = beginning(prefix, count, model.vocab_size, generator)
    rest, _ = continued(model.step, model.initial(start), start, max(length - new, 0), draw)
    return torch.cat((start, rest), 1)[:, :length] if new else rest


def check_counts(count: int, length: int) -> None:
    """Refuse to draw fewer than one sample, or fewer than no tokens."""
    if count < 1 or length < 0:
        raise ValueError(f"sampling needs count >= 1 and length >= 0: got {count} and {length}")


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
