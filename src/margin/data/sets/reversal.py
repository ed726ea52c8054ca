"""Words and their reversal: pairs whose answer is known and whose difficulty grows with their length."""

import torch
from torch import Generator, Tensor

from margin.data.examples import Data, offsets_of
from margin.data.formats.sequences.rows import Ragged, fingerprint_of
from margin.data.formats.sequences.sources import lengths_line
from margin.data.formats.text.pair_examples import EOS, Pairs
from margin.data.formats.text.pairs import encoding_of
from margin.data.formats.text.tokenizers import SPECIAL, Tokenizer
from margin.data.options import option_groups
from margin.data.splits import Split, parts_of
from margin.math.seeds import mix


@option_groups()
def reversal(
    *,
    examples: int = 10_000,
    symbols: int = 20,
    shortest: int = 1,
    longest: int = 20,
    seed: int = 0,
    split: Split = Split(test=0.1, val=0.1),
) -> Data:
    """Uniform words of several lengths; the target is the word read backward.

    A model that must press a word into one vector fails from some length on, however long it learns; one that
    may look at every letter (attention) need not.

    Args:
        examples: Number of words.
        symbols: Number of different letters, at least 1.
        shortest: Least length, at least 0.
        longest: Largest length, at least ``shortest`` and 1.
        seed: Seed of lengths and letters.
        split: Test and validation part, seed.

    Raises:
        ValueError: The options leave no word.

    Reference: Sutskever, Vinyals & Le 2014, Sequence to sequence learning with neural networks, section 3.3
    (on reversing); constructed for Bahdanau, Cho & Bengio 2015, section 2 (the bottleneck).
    """
    least = {"examples": (examples, 1), "symbols": (symbols, 1), "shortest": (shortest, 0)}
    least["longest"] = (longest, max(1, shortest))
    for option, (value, bound) in least.items():
        if value < bound:
            raise ValueError(f"reversal: {option} must be at least {bound}: got {value}")
    generator = Generator().manual_seed(mix(seed, 11))
    lengths = torch.randint(shortest, longest + 1, (examples,), generator=generator)
    ends = offsets_of(lengths)
    letters = torch.randint(symbols, (int(ends[-1]),), generator=generator) + len(SPECIAL)
    words = Ragged(letters, ends)
    whole = Pairs(with_end(words), backward(words))
    splits = {part: whole.part(index) for part, index in parts_of(examples, None, split).items()}
    vocabulary = (*SPECIAL, *(f"s{k}" for k in range(symbols)))
    return Data(
        name="reversal",
        splits=splits,
        spec={
            "source_vocab_size": len(vocabulary),
            "vocab_size": len(vocabulary),
            "longest": longest + 1,
            "num_examples": len(splits["train"]),
        },
        encoding=encoding_of(
            [Tokenizer("words", "kept", vocabulary)] * 2,
            {
                "split": split.as_json(official=False),
                "truth": {"answer": "the source read backward"},
                "about": [
                    ["pairs", f"words over {symbols} letters"],
                    ["lengths", lengths_line(lengths, "letters")],
                ],
            },
        ),
        fingerprint=fingerprint_of(splits),
    )


def with_end(rows: Ragged) -> Ragged:
    """Each row with ``<eos>`` after it."""
    ends = offsets_of(rows.lengths + 1)
    tokens = torch.full((int(ends[-1]),), EOS)
    kept = torch.ones(len(tokens), dtype=torch.bool)
    kept[ends[1:] - 1] = False
    tokens[kept] = rows.steps
    return Ragged(tokens, ends)


def backward(rows: Ragged) -> Ragged:
    """Each row read from its end to its beginning."""
    starts, lengths = rows.offsets[:-1], rows.lengths
    at = torch.arange(len(rows.steps))
    mirrored: Tensor = (2 * starts + lengths - 1).repeat_interleave(lengths) - at
    return Ragged(rows.steps[mirrored], rows.offsets)
