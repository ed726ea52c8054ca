"""Synthetic sequences whose answer is known: what is true of them stands in ``encoding["truth"]``.

Every set is a function of its options; ``seed`` draws the examples, ``split_seed`` the random split.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from margin.data.assembly import Raw, tokens_schema
from margin.data.examples import Data, offsets_of
from margin.data.formats.sequences.rows import Ragged
from margin.data.formats.sequences.sources import assemble_sequences
from margin.data.options import option_groups
from margin.data.splits import Split
from margin.math.seeds import mix


@option_groups()
def adding(
    *,
    examples: int = 10_000,
    time: int = 100,
    seed: int = 0,
    split: Split = Split(test=0.1, val=0.1),
) -> Data:
    """The adding problem: of T numbers, uniform on [0, 1], the sum of the two that are marked.

    A step is (number, mark). One mark is 1 in each half of the sequence, all others are 0. The constant
    answer 1 has mean squared error 1/6, the variance of the sum of two independent uniform numbers; knowing
    one of the two leaves 1/12.

    Args:
        examples: Number of sequences.
        time: T, at least 2.
        seed: Seed of numbers and marks.
        split: Test and validation part, seed.

    Raises:
        ValueError: The options leave no sequence, or the halves are empty.

    Reference: Hochreiter & Schmidhuber 1997, Long short-term memory, section 5.4 (numbers in [-1, 1], marks
    of three kinds); in this form Arjovsky, Shah & Bengio 2016, Unitary evolution recurrent neural networks,
    section 4.2.
    """
    generator = generator_of("adding", examples, seed)
    at_least("adding", "time", time, 2)
    numbers = torch.rand(examples, time, generator=generator)
    half = time // 2
    first = torch.randint(half, (examples,), generator=generator)
    second = half + torch.randint(time - half, (examples,), generator=generator)
    marks = torch.zeros(examples, time)
    row = torch.arange(examples)
    marks[row, first] = marks[row, second] = 1.0
    truth = {"answer": "sum of number times mark", "constant": 1.0, "mse of the constant": 1 / 6}
    raw = Raw(
        name="adding",
        inputs=_rectangle(torch.stack((numbers, marks), -1)),
        targets=(numbers * marks).sum(1),
        task="values",
        encoding={"truth": truth},
        notes=("the constant answer 1 has mean squared error 1/6 = .1667",),
    )
    return assemble_sequences(raw, split)


@option_groups()
def parity(
    *,
    examples: int = 2000,
    shortest: int = 1,
    longest: int = 20,
    seed: int = 0,
    split: Split = Split(test=0.2, val=0.2),
) -> Data:
    """Sequences of fair bits of several lengths, the class whether the number of ones is even or odd.

    No proper part of a sequence says anything of its class, and two states suffice to decide it.

    Args:
        examples: Number of sequences.
        shortest: Least length, at least 0.
        longest: Largest length, at least ``shortest`` and 1.
        seed: Seed of lengths and bits.
        split: Test and validation part, seed.

    Raises:
        ValueError: The options leave no sequence, or the lengths are none.

    Reference: Minsky & Papert 1969, Perceptrons, chapter 3 (parity has full order).
    """
    generator = generator_of("parity", examples, seed)
    at_least("parity", "shortest", shortest, 0)
    at_least("parity", "longest", longest, max(1, shortest))
    lengths = torch.randint(shortest, longest + 1, (examples,), generator=generator)
    bits = torch.randint(2, (int(lengths.sum()),), generator=generator)
    rows = Ragged(bits, offsets_of(lengths))
    raw = Raw(
        name="parity",
        inputs=replace(rows, steps=bits[:, None].float()),
        targets=rows.padded(torch.arange(examples))[0].sum(1) % 2,
        task="classes",
        classes=("even", "odd"),
        encoding={"truth": {"answer": "sum of the bits mod 2", "accuracy of a guess": 0.5}},
    )
    return assemble_sequences(raw, split)


def _rectangle(x: Tensor) -> Ragged:
    count, time = x.shape[:2]
    return Ragged(x.flatten(0, 1), torch.arange(count + 1) * time)


def generator_of(name: str, examples: int, seed: int) -> Generator:
    """What draws a set of ``examples``, of which there must be one."""
    at_least(name, "examples", examples, 1)
    return Generator().manual_seed(mix(seed, 11))


def at_least(name: str, option: str, value: int, least: int) -> None:
    """Refuse an option below its least value."""
    if value < least:
        raise ValueError(f"{name}: {option} must be at least {least}: got {value}")


def token_encoding(
    vocabulary: Sequence[str], shape: Sequence[int], split: Split, *, official: bool = False
) -> dict[str, Any]:
    """The encoding of token sequences of a known vocabulary."""
    own = {"vocabulary": list(vocabulary), "split": split.as_json(official=official)}
    return tokens_schema(format="tokens", shape=shape, own=own).as_json()
