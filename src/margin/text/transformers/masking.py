"""What BERT learns from (Devlin et al. 2019): hidden tokens, and whether a sentence follows another."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from margin.core.tasks import Task
from margin.core.types import Batch, PerExample
from margin.data.formats.sequences.rows import evaluation_batch
from margin.data.formats.text.corpus import Corpus
from margin.nn.losses import IGNORED
from margin.nn.preprocessed import core_of

GOLDEN = -0x61C8864680B583EB
"""2^64 divided by the golden ratio, odd, as a number with a sign."""

SHARE, MASKED_SHARE, RANDOM_SHARE = 0.15, 0.8, 0.1
"""Of the tokens that are asked for; of these, that are shown as [MASK], or as a random token."""

LONGEST = 512
"""Tokens of a pair of sentences, the special ones too: more are cut off the longer of the two."""

Tokens = Int[Tensor, "batch time"]


def luck(seed: int, index: Int[Tensor, "*#shape"], place: Int[Tensor, "*#shape"], kind: int) -> Tensor:
    """Numbers evenly spread in [0, 1), each a function of its example and place alone, whatever the batch.

    The seed, then the kind, the place and the example are mixed into 64 bits one after the other.

    Args:
        seed: Of a batch.
        index: The examples.
        place: Where in them.
        kind: What is drawn.

    Reference: Steele, Lea and Flood 2014, Figure 16 (the finalizer of SplitMix64).
    """
    bits = torch.full_like(index, seed)
    for part in (torch.full_like(index, kind), place, index):
        bits = bits + part * GOLDEN + GOLDEN
        for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
            bits = (bits ^ (bits >> shift & (1 << 64 - shift) - 1)) * factor
    return (bits >> 11 & (1 << 53) - 1).double() / (1 << 53)


def hidden(
    tokens: Tokens,
    ordinary: Bool[Tensor, "batch time"],
    words: Int[Tensor, " words"],
    mask: int,
    draws: Float[Tensor, "3 batch time"],
) -> tuple[Tokens, Bool[Tensor, "batch time"]]:
    """Texts with some of their tokens hidden, and which are asked for.

    Of the ordinary tokens each is asked for with probability 15 %, at least one of a text that has some. Of
    those asked for, 80 % are shown as [MASK], 10 % as a token drawn evenly, and 10 % as they are.

    Args:
        tokens: The texts.
        ordinary: Which may be asked for: no special token, no padding.
        words: The tokens of which random ones are drawn (the paper's may be special ones too).
        mask: The token [MASK].
        draws: Numbers even in [0, 1): which are asked for, how they are shown, and as which token.

    Reference: Devlin et al. 2019, Section 3.1 and Appendix A.1.
    """
    chance, kind, which = draws
    chance = chance.masked_fill(~ordinary, torch.inf)
    asked = ordinary & ((chance < SHARE) | (chance == chance.amin(1, keepdim=True)))
    others = words[(which * len(words)).long()]
    shown = torch.where(kind < MASKED_SHARE, torch.full_like(tokens, mask), others)
    shown = torch.where(kind < MASKED_SHARE + RANDOM_SHARE, shown, tokens)
    return torch.where(asked, shown, tokens), asked


@dataclass(frozen=True, slots=True, eq=False)
class MaskedPairs:
    """Pairs ``[CLS] A [SEP] B [SEP]`` with hidden tokens: inputs ``(tokens, lengths, segments)``.

    With probability 1/2 B is the sentence after A, else one of another document (of the only one, any other).
    Which, and which tokens are hidden, is drawn anew each time. The target of a token is what it is where it
    is asked for, else :data:`~margin.nn.losses.IGNORED`; that of [CLS] is 0 where B follows, else 1.

    Args:
        corpus: Sentences and their documents.
        vocab_size: Number of tokens.

    Raises:
        ValueError: The vocabulary lacks a special token, or no sentence has another behind it.
    """

    corpus: Corpus
    vocab_size: int

    def __post_init__(self) -> None:
        special = self.corpus.special
        if lacking := [name for name in ("[CLS]", "[SEP]", "[MASK]") if name not in special]:
            raise ValueError(
                f"masked words need a vocabulary with [CLS], [SEP] and [MASK]: got no {', '.join(lacking)}; "
                "read the corpus by --data.level wordpiece, or by --data.tokenizer FOLDER"
            )
        if not len(self.firsts):
            raise ValueError(
                f"a document must have two sentences: each of {len(self.corpus)} has one; a line is a "
                "sentence, or --data.sentences marks"
            )

    @property
    def firsts(self) -> Int[Tensor, " pairs"]:
        """The sentences with another behind them in their document."""
        documents = self.corpus.documents
        return (documents[1:] == documents[:-1]).nonzero()[:, 0]

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def targets(self) -> None:
        """None: what is asked for is drawn with each batch."""
        return

    @property
    def evaluation_batch(self) -> int:
        """Pairs a batch of an evaluation."""
        return evaluation_batch(2 * int(self.corpus.lengths.max()) + 3)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The pairs that begin with the sentences at ``index``; second parts and hidden tokens are drawn."""
        seed = int(torch.randint(2**62, (), generator=generator))
        first, start = self.firsts[index], torch.zeros_like(index)
        apart = luck(seed, index, start, 0) < 0.5
        second = torch.where(apart, self._elsewhere(first, luck(seed, index, start, 1)), first + 1)
        tokens, lengths, segments = self._joined(first, second)
        special = torch.tensor(sorted(self.corpus.special.values()))
        ordinary = (torch.arange(tokens.shape[1]) < lengths[:, None]) & ~torch.isin(tokens, special)
        every = torch.arange(self.vocab_size)
        words = every[~torch.isin(every, special)]
        place, rows = torch.arange(tokens.shape[1]).expand_as(tokens), index[:, None].expand_as(tokens)
        draws = torch.stack([luck(seed, rows, place, kind) for kind in (2, 3, 4)])
        shown, asked = hidden(tokens, ordinary, words, self.corpus.special["[MASK]"], draws)
        targets = torch.where(asked, tokens, torch.full_like(tokens, IGNORED))
        targets[:, 0] = apart.long()
        return Batch((shown, lengths, segments), targets)

    def _elsewhere(self, first: Tensor, draws: Tensor) -> Tensor:
        """A sentence of another document for each, drawn evenly; of the only one, any but the next."""
        documents, count = self.corpus.documents, len(self.corpus)
        sizes = documents.bincount()
        if len(sizes[sizes > 0]) > 1:
            own = documents[first]
            start, size = (sizes.cumsum(0) - sizes)[own], sizes[own]
        else:
            start, size = first + 1, torch.ones_like(first)
        drawn = (draws * (count - size)).long()
        return drawn + size * (drawn >= start)

    def _joined(self, first: Tensor, second: Tensor) -> tuple[Tokens, Tensor, Tokens]:
        """``[CLS] A [SEP] B [SEP]``, its lengths, and 1 from B on; too long ones are cut."""
        steps, special = self.corpus.sentences.steps, self.corpus.special
        lengths, room = self.corpus.lengths, LONGEST - 3
        a, b = lengths[first], lengths[second]
        b = torch.minimum(b, (room - a).clamp_min(room // 2))
        a = torch.minimum(a, room - b)
        place, total = torch.arange(int((a + b).max()) + 3), a + b + 3
        starts = self.corpus.sentences.offsets
        at_a = (starts[first][:, None] + place - 1).clamp(0, len(steps) - 1)
        at_b = (starts[second][:, None] + place - a[:, None] - 2).clamp(0, len(steps) - 1)
        behind = place > a[:, None] + 1
        tokens = torch.where(behind, steps[at_b], steps[at_a])
        tokens[:, 0] = special["[CLS]"]
        rows = torch.arange(len(first))
        tokens[rows, a + 1] = tokens[rows, total - 1] = special["[SEP]"]
        here = place < total[:, None]
        return tokens * here, total, (behind & here).long()

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return self.corpus.tensors()


def masked_pairs(split: Corpus) -> MaskedPairs:
    """The examples of a part of a corpus.

    Raises:
        ValueError: As of :class:`MaskedPairs`.
    """
    return MaskedPairs(split, split.vocab_size)


def asked_of(targets: Tokens) -> Bool[Tensor, "batch time"]:
    """Which tokens are asked for: those with a target, [CLS] apart."""
    asked = targets != IGNORED
    return asked & (torch.arange(targets.shape[1], device=targets.device) > 0)


def _mean_of_asked(values: Float[Tensor, " asked"], asked: Bool[Tensor, "batch time"]) -> PerExample:
    """The mean of each text's values; 0 where there are none."""
    total = values.new_zeros(len(asked)).index_add(0, asked.nonzero()[:, 0], values)
    return total / asked.sum(1).clamp_min(1)


def masked_loss(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
    """The mean cross-entropy of the hidden tokens of each text, plus that of its parts' following each other.

    Only the hidden tokens' logits are computed. Each text counts alike (in the paper each hidden token).

    Args:
        model: A :class:`~margin.text.transformers.bert.MaskedModel`.
        batch: As of :class:`MaskedPairs`.
        generator: Not used.

    Reference: Devlin et al. 2019, Appendix A.2 ("the sum of the mean masked LM likelihood and the mean next
        sentence prediction likelihood").
    """
    core, targets = core_of(model), batch.targets
    if targets is None:
        raise ValueError("masked words need targets: the tokens that are hidden")
    z, asked = core.body(*batch.inputs), asked_of(targets)
    words = F.cross_entropy(core.words(z[asked]), targets[asked], reduction="none")
    apart = F.cross_entropy(core.follows(z), targets[:, 0], reduction="none")
    return _mean_of_asked(words, asked) + apart


Logits = Float[Tensor, "batch time vocab"]


def masked_accuracy(outputs: Logits, targets: Tokens) -> PerExample:
    """The share of each text's hidden tokens whose largest logit is theirs."""
    asked = asked_of(targets)
    right = outputs[asked].argmax(-1) == targets[asked]
    return _mean_of_asked(right.to(outputs.dtype), asked)


def next_accuracy(outputs: Logits, targets: Tokens) -> PerExample:
    """1 where it is told rightly whether the second part follows the first."""
    return (outputs[:, 0].argmax(-1) == targets[:, 0]).to(outputs.dtype)


MASKED = Task(
    "masked",
    None,
    {"masked_accuracy": masked_accuracy, "next_accuracy": next_accuracy},
    lambda outputs: {"follows": outputs[:, 0].softmax(-1)[:, 0]},
)
"""The logits of every token of a text; at [CLS] of 0, the second part follows, and of 1, it does not.

A term is a text.
"""
