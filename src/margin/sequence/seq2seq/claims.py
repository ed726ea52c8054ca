"""What an encoder-decoder must keep, and how it aligns, searches, and fades with the length of the source."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, odd_parameter
from margin.core.tasks import TOKENS
from margin.core.types import Batch
from margin.engine.evaluation import ExampleSample, drawn_rows, eval_mode, expand_weight, in_double
from margin.engine.loop import learn, risk
from margin.nn.preprocessed import core_of, features_of
from margin.nn.recurrence import valid
from margin.nn.seq2seq import BEGIN, END, AligningSeq2Seq
from margin.sequence.seq2seq.model import AttentionSeq2Seq
from margin.theory.prediction.held_out import (
    Estimate,
    Terms,
    held_out_terms,
    independent_draws,
    weighted_mean,
)

EXAMPLES = 200
"""Held-out pairs that are aligned or translated, at most."""

LOGITS = 2**19
"""Numbers that all beginnings of a target together may make, whose probabilities are added up."""

WIDTH, EXHAUSTIVE = 5, 512
"""Of the beam beside greedy decoding; where so many sequences are all there are, the beam keeps them all."""

ROUNDING = 1e-9
"""In float64, where thousands of probabilities are added."""

ZERO = torch.zeros((), dtype=torch.float64)


class Aligned(NamedTuple):
    """The attention of some held-out pairs, and which places are tokens."""

    weights: Float[Tensor, "batch time source"]
    source: Int[Tensor, "batch source"]
    lengths: Int[Tensor, " batch"]
    counted: Float[Tensor, "batch time"]


@torch.no_grad()
def aligned(subject: Subject) -> tuple[list[Aligned], ExampleSample]:
    """The weights for drawn held-out pairs, batch by batch, their known targets being shown.

    Raises:
        ValueError: The model has no attention.
    """
    core = core_of(subject.model)
    if not isinstance(core, AligningSeq2Seq):
        raise ValueError(f"this is asked of an encoder-decoder with attention: got {type(core).__name__}")
    drawn, found = drawn_rows(subject.test, EXAMPLES), list[Aligned]()
    for batch in drawn.batches:
        source, lengths, shown = (x[:EXAMPLES] for x in batch.inputs)
        with eval_mode(subject.model):
            weights = core.alignment(features_of(subject.model, source), lengths, shown)
        weight = None if batch.weight is None else batch.weight[:EXAMPLES]
        counted = expand_weight(torch.ones(shown.shape, dtype=weights.dtype, device=weights.device), weight)
        found.append(Aligned(weights, source, lengths, counted))
    return found, drawn


def _off(one: Aligned) -> tuple[Tensor, int]:
    """How far a row is from the sum 1 and what lies on padding, at most; how many sources have a token."""
    there, some = valid(one.lengths, one.source.shape[1]), one.lengths > 0
    off = (one.weights[some].double().sum(2) - 1).abs()
    padding = one.weights.double().masked_fill(there[:, None], 0)
    return torch.stack([x.amax().cpu() if x.numel() else ZERO for x in (off, padding)]), int(some.sum())


def rows(subject: Subject) -> Finding:
    """Whether each row of the attention sums to 1, and padding has exactly the weight 0.

    Args:
        subject: An encoder-decoder with attention.
    """
    parts, drawn = aligned(subject)
    found = [_off(one) for one in parts]
    # a softmax of n terms divides n rounded numbers by their rounded sum
    rounding = max((one.source.shape[1] + 4) * torch.finfo(one.weights.dtype).eps for one in parts)
    return Finding(
        statement=f"Over {drawn.words()}, of which {sum(n for _, n in found)} have a source with tokens, the "
        "weights of each target token on the source sum to 1, and none lies on padding.",
        value=torch.stack([off for off, _ in found]).amax(0),
        range=(0.0, math.inf),
        low=torch.zeros(2, dtype=torch.float64),
        high=torch.tensor([rounding, 0.0], dtype=torch.float64),
        labels=("largest |sum - 1|", "largest weight on padding"),
    )


def diagonal_terms(
    weights: Float[Tensor, "batch time source"],
    tokens: Int[Tensor, " batch"],
    counted: Float[Tensor, "batch time"],
) -> tuple[Terms, Terms]:
    """Whether the largest weight of target token i is on source token i, or on token n - 1 - i.

    Args:
        weights: The attention.
        tokens: n of each source, its end token left out; target tokens from n on are not counted.
        counted: The weight of each target token.
    """
    place = torch.arange(weights.shape[1], device=weights.device)
    most, n = weights.argmax(2), tokens[:, None]
    counted = counted.double() * (place < n)
    keep = counted > 0
    example = torch.arange(len(weights), device=weights.device)[:, None].expand_as(counted)[keep]

    def terms(expected: Tensor) -> Terms:
        right = (most == expected).double()[keep]
        return Terms(right.cpu(), counted[keep].cpu(), example.cpu())

    return terms(place.expand_as(most)), terms(n - 1 - place)


def joined(parts: Sequence[Terms], sizes: Sequence[int]) -> Terms:
    """The terms of several batches of so many examples, their examples numbered through."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    example = [part.example + start for part, start in zip(parts, starts, strict=True)]
    return Terms(
        torch.cat([p.values for p in parts]), torch.cat([p.weight for p in parts]), torch.cat(example)
    )


def _tokens(one: Aligned) -> Int[Tensor, " batch"]:
    """The tokens of each source, without the one that ends it."""
    if not one.source.shape[1]:
        return one.lengths
    end = one.source.gather(1, (one.lengths - 1).clamp_min(0)[:, None])[:, 0] == END
    return one.lengths - (end & (one.lengths > 0)).to(one.lengths.dtype)


def _longest(parts: Sequence[Aligned]) -> Tensor:
    """The attention of the pair with the longest source that counts, which has most to show."""
    sizes = [_tokens(one) * (one.counted[:, 0] > 0) for one in parts]
    which = max(range(len(parts)), key=lambda i: int(sizes[i].max()))
    one, shown = parts[which], int(sizes[which].argmax())
    time = int((one.counted[shown] > 0).sum())
    return one.weights[shown, :time, : int(one.lengths[shown])].detach().cpu()


def alignment(subject: Subject) -> Finding:
    """How often the token that is read most stands at the same place, counted from the begin or from the end.

    Of a copy the first is 1, of a reversal the second; a translation lies between. A measurement: no theorem
    says where a trained model looks.

    Args:
        subject: An encoder-decoder with attention.
    """
    parts, drawn = aligned(subject)
    both = zip(*(diagonal_terms(one.weights, _tokens(one), one.counted) for one in parts), strict=True)
    shares = [weighted_mean(joined(terms, [len(one.source) for one in parts])) for terms in both]
    return Finding(
        statement=f"Of {drawn.words()}, how often the largest weight of a target token lies on "
        "the source token of its own place, or of that place from the end (the picture: one pair).",
        value=torch.stack([share.mean for share in shares]),
        kind="estimate",
        stderr=torch.stack([share.stderr for share in shares]),
        unit="share of target tokens",
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        labels=("same place", "same place from the end"),
        failure=odd_parameter(subject.model)
        if bool(shares[0].stderr.isfinite())
        else "no error from fewer than 2 pairs with tokens",
        curves={"alignment": _longest(parts)},
    )


@torch.no_grad()
def normalization(subject: Subject) -> Finding:
    """Whether the probabilities of all targets of a source sum to 1: all that end, and all beginnings.

    The sum runs over every sequence that ends within d tokens and every one of d tokens that does not; d is
    as large as half a million logits allow. Each beginning is given to the model by itself, so the sum is 1
    only if what is said of a token depends on no later one.

    Args:
        subject: An encoder-decoder.
    """
    model = in_double(subject.model)
    source, lengths = (x[:1] for x in subject.test[0].inputs[:2])
    vocab = model(source, lengths, torch.full((1, 1), BEGIN, device=source.device)).shape[2]
    others = [token for token in range(vocab) if token != END]
    depth = 1
    while len(others) ** depth * (depth + 1) * vocab <= LOGITS:
        depth += 1
    total = ZERO.clone()
    for n in range(depth):
        body = torch.tensor(
            list(itertools.product(others, repeat=n)), dtype=torch.int64, device=source.device
        )
        body = body.reshape(len(others) ** n, n)
        shown = torch.cat((torch.full((len(body), 1), BEGIN, device=source.device), body), 1)
        log_p = model(source.expand(len(body), -1), lengths.expand(len(body)), shown).log_softmax(2)
        before = log_p[:, :n].gather(2, body[:, :, None])[:, :, 0].sum(1)
        after = log_p[:, n, END] if n < depth - 1 else log_p[:, n].logsumexp(1)
        total = total + (before + after).exp().sum().cpu()
    return Finding(
        statement=f"The probabilities of all targets that end within {depth} tokens, and of all beginnings "
        f"of {depth} tokens that do not, sum to 1 ({vocab:,} tokens; of one source, the first held-out one).",
        value=total,
        range=(0.0, math.inf),
        equals=1.0,
        tolerance=ROUNDING,
    )


@torch.no_grad()
def search(subject: Subject) -> Finding:
    """How much more probable the translations of a beam are than greedy ones.

    No theorem says that a wider beam finds better ones; only an exhaustive search, which takes the place of
    the beam where few sequences are possible, does. Sources whose translation comes to no end are left out.

    Args:
        subject: An encoder-decoder.
    """
    drawn = drawn_rows(subject.test, EXAMPLES)
    longest = 2 * max(batch.inputs[2].shape[1] for batch in drawn.batches)
    with eval_mode(subject.model):
        vocab = subject.model(*(x[:1] for x in drawn.batches[0].inputs)).shape[2]
    every = vocab**longest if longest * math.log(vocab) <= math.log(EXHAUSTIVE) else 0
    gain = torch.cat([_gain(subject.model, batch, every or WIDTH, longest) for batch in drawn.batches])
    level = 1e-5 * max(1.0, float(gain.abs().max()) if len(gain) else 1.0)  # sums of float32 logarithms
    better, worse = int((gain > level).sum()), int((gain < -level).sum())
    found = weighted_mean(Terms(gain, torch.ones_like(gain), torch.arange(len(gain))))
    what = "an exhaustive search" if every else f"a beam of {WIDTH}"
    return Finding(
        statement=f"{'The least' if every else 'What'} log p of a translation gains by {what} over greedy "
        f"decoding, of {drawn.words()} "
        f"those {len(gain)} whose translations end: more probable in {better}, less in {worse}.",
        value=gain.amin() if every and len(gain) else found.mean,
        kind="exact" if every else "estimate",
        stderr=None if every else found.stderr,
        unit="nats a target",
        range=(-math.inf, math.inf),
        low=ZERO if every else None,
        tolerance=level,
        premises=() if every else (independent_draws(subject),),
        failure="" if len(gain) > 1 else f"fewer than 2 of {drawn.taken} translations end",
    )


def _gain(model: nn.Module, batch: Batch, width: int, longest: int) -> Tensor:
    """What log p gains by a beam over greedy decoding, of the sources where both come to an end."""
    core = core_of(model)
    source, lengths = (x[:EXAMPLES] for x in batch.inputs[:2])
    source = features_of(model, source)
    narrow, wide = (core.translate(source, lengths, width=w, longest=longest) for w in (1, width))
    ended = narrow.ended & wide.ended
    gain: Tensor = (wide.log_probability - narrow.log_probability).double()[ended].cpu()
    return gain


def by_length(subject: Subject) -> Finding:
    """How much less often the next token is right where the source is long than where it is short.

    An encoder that hands on a single vector loses more of a longer source; one with attention need not. A
    measurement: how much is lost depends on the data.

    Args:
        subject: An encoder-decoder.
    """
    right = held_out_terms(subject.model, subject.test, _right)
    lengths = torch.cat([batch.inputs[1].cpu() for batch in subject.test])
    own = lengths[right.example]
    asked = lengths[right.example.unique()].double()
    # lengths that occur, so that the statement names whole tokens
    low, high = asked.quantile(1 / 3, interpolation="lower"), asked.quantile(2 / 3, interpolation="higher")

    def over(kept: Tensor) -> Estimate:
        return weighted_mean(Terms(right.values[kept], right.weight[kept], right.example[kept]))

    short, long = over(own <= low), over(own >= high)
    found = own.unique()
    return Finding(
        statement=f"Share of right next tokens where the source has {int(high)} tokens or more, less "
        f"that where it has at most {int(low)}.",
        value=long.mean - short.mean,
        kind="estimate",
        stderr=(short.stderr.square() + long.stderr.square()).sqrt(),
        unit="share of target tokens",
        range=(-1.0, 1.0),
        premises=(independent_draws(subject),),
        failure=odd_parameter(subject.model)
        if bool(low < high) and bool((short.stderr + long.stderr).isfinite())
        else "too few sources of different lengths",
        curves={
            "tokens of the source": found.double(),
            "share of right next tokens": torch.stack([over(own == n).mean for n in found]),
        },
    )


def _right(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    if batch.targets is None:
        raise ValueError("the held-out examples have no targets")
    return TOKENS.scores["accuracy"](model(*batch.inputs), batch.targets)


def demo() -> Subject:
    """An untrained attention model of 5 tokens, and 12 words of 0 to 6 letters with their reversal."""
    return _subject(vocab=5, words=[[3 + (i + j) % 2 for j in range(i % 7)] for i in range(12)])


def smallest() -> Subject:
    """As few sequences as an exhaustive search may have: 3 tokens, targets of one or two."""
    return _subject(vocab=3, words=[[0] * (i % 2) for i in range(6)])


def reversal_demo() -> Subject:
    """An attention model that has learned to write words of 2 to 7 letters backwards, and 40 new ones."""
    g = Generator().manual_seed(0)
    drawn = (torch.randint(3, 11, (int(n),), generator=g) for n in torch.randint(2, 8, (170,), generator=g))
    words = [list(word) for word in dict.fromkeys(tuple(word.tolist()) for word in drawn)]
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = AttentionSeq2Seq(11, 11, embedding=12, hidden=24, attention=12)
    learn(model, risk(TOKENS), _reversals(words[40:]), steps=70, lr=0.03)
    return Subject(model=model, test=[_reversals(words[:40])], task=TOKENS, objective=risk(TOKENS))


def _subject(vocab: int, words: list[list[int]]) -> Subject:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = AttentionSeq2Seq(vocab, vocab, embedding=4, hidden=6, attention=5)
    return Subject(model=model, test=[_reversals(words)], task=TOKENS, objective=risk(TOKENS))


def _reversals(words: list[list[int]]) -> Batch:
    width = max(map(len, words)) + 1
    source = torch.tensor([[*word, END] + [0] * (width - 1 - len(word)) for word in words])
    asked = torch.tensor([[*word[::-1], END] + [0] * (width - 1 - len(word)) for word in words])
    shown = torch.cat((torch.full((len(words), 1), BEGIN), asked[:, :-1]), 1)
    lengths = torch.tensor([len(word) + 1 for word in words])
    return Batch((source, lengths, shown), asked, valid(lengths, width).float())
