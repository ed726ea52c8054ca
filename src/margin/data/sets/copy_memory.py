"""The copy memory task: symbols to be repeated after a lag, with the loss that no memory can go below."""

import math

import torch

from margin.data.examples import Arrays, Data
from margin.data.formats.sequences.rows import fingerprint_of
from margin.data.options import option_groups
from margin.data.sets.synthetic_sequences import at_least, generator_of, token_encoding
from margin.data.splits import Split, parts_of

SYMBOLS, COPIED = 8, 10
"""How many symbols there are, and how many of them are to be remembered."""


@option_groups()
def copy_memory(
    *,
    examples: int = 5000,
    lag: int = 100,
    seed: int = 0,
    split: Split = Split(test=0.1, val=0.1),
) -> Data:
    """The copy memory task: ten symbols are to be repeated, in order, after a lag.

    Tokens 0 .. 7 are the symbols, 8 is the blank, 9 the delimiter. The input is ten symbols, lag - 1 blanks,
    the delimiter and ten blanks; the target is lag + 10 blanks and the ten symbols. Without memory the best
    answer is certain of the blanks and uniform over the symbols: 10 ln 8 / (lag + 20) nats a token.

    Args:
        examples: Number of sequences.
        lag: Steps between the last symbol shown and the first asked for, at least 1.
        seed: Seed of the symbols.
        split: Test and validation part, seed.

    Raises:
        ValueError: The options leave no sequence, or no lag.

    Reference: Arjovsky, Shah & Bengio 2016, Unitary evolution recurrent neural networks, section 4.1, after
    Hochreiter & Schmidhuber 1997.
    """
    generator = generator_of("copy-memory", examples, seed)
    at_least("copy-memory", "lag", lag, 1)
    symbols = torch.randint(SYMBOLS, (examples, COPIED), generator=generator)
    time = lag + 2 * COPIED
    tokens = torch.full((examples, time), SYMBOLS)
    tokens[:, :COPIED] = symbols
    tokens[:, COPIED + lag - 1] = SYMBOLS + 1
    answers = torch.full((examples, time), SYMBOLS)
    answers[:, -COPIED:] = symbols
    splits = {
        part: Arrays((tokens[index],), answers[index])
        for part, index in parts_of(examples, None, split).items()
    }
    floor = COPIED * math.log(SYMBOLS) / time
    truth = {"answer": "the first ten tokens again at the end", "loss without memory": floor}
    vocabulary = [*map(str, range(SYMBOLS)), "_", "?"]
    return Data(
        name="copy-memory",
        splits=splits,
        spec={"vocab_size": SYMBOLS + 2, "time": time, "num_examples": len(splits["train"])},
        encoding={
            **token_encoding(vocabulary, [time], split),
            "truth": truth,
            "about": [
                ["tokens", f"{SYMBOLS} symbols, blank and delimiter; {time} steps each"],
                ["baseline", f"{floor:.4f} nats a token without memory"],
            ],
        },
        fingerprint=fingerprint_of(splits),
    )
