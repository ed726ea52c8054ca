"""What is asked of any model of the next token: perplexity, sums of likelihoods, steps that are the whole.

Nothing here knows what the model is made of: a recurrent one, a GPT, a stranger's.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import TOKENS
from margin.core.types import Batch
from margin.data.formats.text.vocabulary import UNKNOWN
from margin.engine.evaluation import drawn_rows, eval_mode, in_double, weight_of_terms
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of
from margin.text.transformers.gpt import GPT
from margin.theory.prediction.held_out import (
    held_out_losses,
    independent_draws,
    limits_of,
    weighted_mean,
)

EXAMPLES, STEPS = 4, 256
"""Held-out texts that are read token by token, and their first tokens."""

LOGITS = 2**19
"""Numbers that all beginnings of a text together may make, whose probabilities are added up."""

ROUNDING = 1e-9
"""In float64, where thousands of probabilities are added."""


BLANK = "\u0120"
"""How byte-level pieces write a blank, by which they are known."""


def bytes_of(vocabulary: Sequence[str]) -> Tensor | None:
    """The bytes of each token in UTF-8; None where no text is put together of the tokens alone, as of words.

    A byte-level piece has one character a byte. Other tokens must be characters, special ones apart.
    """
    if any(BLANK in token for token in vocabulary):
        return torch.tensor([len(token) for token in vocabulary], dtype=torch.float64)
    if not vocabulary or any(len(token) > 1 and token not in (UNKNOWN, "<pad>") for token in vocabulary):
        return None
    return torch.tensor([len(token.encode()) for token in vocabulary], dtype=torch.float64)


def _targets(batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """The targets of all batches, and what each weighs."""
    kept = [
        (batch.targets, weight_of_terms(batch.targets, batch))
        for batch in batches
        if batch.targets is not None
    ]
    targets, weights = (torch.cat([x.flatten().cpu() for x in side]) for side in zip(*kept, strict=True))
    return targets[weights > 0], weights[weights > 0]


def frequencies(subject: Subject, vocab: int) -> Tensor | None:
    """The mean held-out cross-entropy of the training frequencies, one added to each; None without these."""
    if not len(subject.train):
        return None
    seen, weight = _targets(subject.train)
    p = torch.bincount(seen, weight, vocab) + 1
    targets, weights = _targets(subject.test)
    losses = -(p / p.sum()).log()[targets]
    return (weights * losses).sum() / weights.sum()


def perplexity(subject: Subject) -> Finding:
    r"""The perplexity per token :math:`e^H`, H the mean held-out cross-entropy; bits per token and byte.

    Whatever the logarithm's base b, b^H is the same. Of an even guess among V tokens it is V. Per byte, H
    times the tokens over the bytes they stand for, models of other tokens can be compared.

    Args:
        subject: A model of the next token.

    Reference: Jelinek, Mercer, Bahl and Baker 1977; Goodfellow, Bengio and Courville 2016, Section 12.4.
    """
    terms = held_out_losses(subject)
    mean, (low, high) = weighted_mean(terms), limits_of(terms)
    with torch.no_grad(), eval_mode(subject.model):
        vocab = subject.model(*subject.test[0].inputs).shape[-1]
    bits, of = 1 / math.log(2), [("bits per token", 1.0)]
    if (sizes := bytes_of(subject.vocabulary)) is not None and len(sizes) == vocab:
        targets, weights = _targets(subject.test)
        of.append(("bits per byte", float(weights.sum() / (weights * sizes[targets]).sum())))
    rows = [torch.stack((mean.mean.exp(), mean.mean.exp() * mean.stderr, low.exp(), high.exp()))]
    rows += [torch.stack((mean.mean, mean.stderr, low, high)) * bits * share for _, share in of]
    labels = ["perplexity per token", *(label for label, _ in of)]
    if (base := frequencies(subject, vocab)) is not None:
        rows.append(torch.stack((base.exp(), torch.zeros_like(base), base.exp(), base.exp())))
        labels.append("perplexity of the training frequencies")
    value, stderr, below, above = torch.stack(rows).T
    return Finding(
        statement=f"Perplexity of the next on {len(terms.values):,} held-out tokens of {vocab:,} kinds.",
        value=value,
        kind="estimate",
        stderr=stderr,
        range=(0.0, math.inf),
        printed=(below, above),
        premises=(independent_draws(subject),),
        labels=tuple(labels),
        failure="" if bool(stderr.isfinite().all()) else "no error from fewer than 2 held-out examples",
    )


@torch.no_grad()
def normalization(subject: Subject) -> Finding:
    """Whether the probabilities of all continuations of a token sum to 1, each given to the model by itself.

    Args:
        subject: A model of the next token whose only input is the tokens.
    """
    model = in_double(subject.model)
    first = subject.test[0].inputs[0][:1, :1]
    vocab = model(first).shape[2]
    depth = 1
    while vocab**depth * (depth + 1) * vocab <= LOGITS and depth < subject.test[0].inputs[0].shape[1]:
        depth += 1
    body = torch.tensor(list(itertools.product(range(vocab), repeat=depth - 1)), dtype=torch.int64)
    body = body.reshape(vocab ** (depth - 1), depth - 1).to(first.device)
    total = torch.zeros((), dtype=torch.float64)
    with eval_mode(model):
        for part in body.split(4096):
            log_p = model(torch.cat((first.expand(len(part), -1), part), 1)).log_softmax(2)
            before = log_p[:, :-1].gather(2, part[:, :, None])[:, :, 0].sum(1)
            total = total + (before + log_p[:, -1].logsumexp(1)).exp().sum().cpu()
    return Finding(
        statement=f"The probabilities of all {vocab**depth:,} continuations by {depth} tokens of the first "
        f"held-out token sum to 1 ({vocab} tokens).",
        value=total,
        unit="probability",
        range=(0.0, math.inf),
        equals=1.0,
        tolerance=ROUNDING,
    )


def reads_alone(subject: Subject) -> bool:
    """Whether the tokens are the model's only input, but for their lengths."""
    inputs = subject.test[0].inputs if len(subject.test) else ()
    return len(inputs) in (1, 2) and inputs[0].ndim == 2 and all(x.ndim == 1 for x in inputs[1:])


def goes_on(subject: Subject) -> bool:
    """Whether the model predicts the next token, and goes on from what it keeps: ``initial`` and ``step``."""
    core = core_of(subject.model)
    able = all(callable(getattr(core, name, None)) for name in ("initial", "step"))
    return able and subject.task.name == TOKENS.name and reads_alone(subject)


@torch.no_grad()
def steps(subject: Subject) -> Finding:
    """The largest difference between logits computed token by token from what is kept, and of the whole text.

    Args:
        subject: A model of the next token with ``initial`` and ``step``.
    """
    core: Any = in_double(core_of(subject.model))
    drawn = drawn_rows(subject.test, EXAMPLES)
    gap, largest, longest = torch.zeros((), dtype=torch.float64), 1.0, 0
    with eval_mode(core):
        for batch in drawn.batches:
            tokens = batch.inputs[0][:EXAMPLES, :STEPS]
            whole, state = core(tokens), core.initial(tokens)
            for t, token in enumerate(tokens.unbind(1)):
                logits, state = core.step(token, state)
                gap = torch.maximum(gap, (logits - whole[:, t]).abs().amax().cpu())
            largest, longest = max(largest, float(whole.abs().amax())), max(longest, tokens.shape[1])
    return Finding(
        statement="Logits computed token by token, from what is kept of those before, are those of the whole "
        f"text: the largest difference in {longest} tokens of {drawn.words()}.",
        value=gap,
        unit="nats",
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING * largest,
    )


def demo() -> Subject:
    """A GPT of 5 tokens with drawn weights, on six texts of 8 tokens, and six others."""
    g = Generator().manual_seed(0)
    tokens = torch.randint(5, (12, 9), generator=g)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = GPT(5, 8, width=8, depth=2, heads=2)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
    test, train = (Batch((part[:, :-1],), part[:, 1:]) for part in tokens.chunk(2))
    words = ("a", "b", "c", "\u00e9", "\n")
    return Subject(
        model=model, test=[test], train=[train], task=TOKENS, objective=risk(TOKENS), vocabulary=words
    )
