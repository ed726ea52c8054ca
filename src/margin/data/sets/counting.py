"""Strings that only counting can tell: a^n b^n."""

import torch
from torch import Tensor

from margin.data.examples import Data, offsets_of
from margin.data.formats.sequences.rows import Ragged, TokenSequences, fingerprint_of
from margin.data.formats.sequences.sources import lengths_line
from margin.data.options import option_groups
from margin.data.sets.synthetic_sequences import at_least, generator_of, token_encoding
from margin.data.splits import Split, parts_of


@option_groups("test")
def anbn(
    *,
    examples: int = 1000,
    longest: int = 12,
    test_longest: int = 24,
    seed: int = 0,
    split: Split = Split(test=0.0, val=0.2),
) -> Data:
    """Strings a^n b^n and an end, whose b's can be told only by counting; the test part has larger n.

    Tokens are 0: a, 1: b, 2: end. Each token asks for the next. How many a's come is chance, so the targets
    of the a's count 0; from the first b on everything is determined, so accuracy 1 is reached by counting and
    by nothing that reads a bounded number of tokens. In training n is uniform on 1 .. ``longest``, and the
    validation part holds strings that are in training too; the test part holds each n of ``longest`` + 1 ..
    ``test_longest`` once.

    Args:
        examples: Number of strings in training and validation.
        longest: Largest n of these, at least 1.
        test_longest: Largest n of the test part, more than ``longest``.
        seed: Seed of the n.
        split: Test and validation part, seed.

    Raises:
        ValueError: The options leave no string in a part.

    Reference: Joulin & Mikolov 2015, Inferring algorithmic patterns with stack-augmented recurrent nets,
    section 4.
    """
    generator = generator_of("anbn", examples, seed)
    at_least("anbn", "longest", longest, 1)
    at_least("anbn", "test_longest", test_longest, longest + 1)
    drawn = torch.randint(1, longest + 1, (examples,), generator=generator)
    counts = {part: drawn[index] for part, index in parts_of(examples, None, split).items()}
    counts["test"] = torch.arange(longest + 1, test_longest + 1)
    splits = {part: _counted(n) for part, n in counts.items()}
    everything = torch.cat([part.lengths for part in splits.values()])
    about = [
        ["tokens", "a, b and end; the b's and the end count"],
        ["lengths", lengths_line(everything, "tokens")],
        ["test part", f"n = {longest + 1} .. {test_longest}; in training n = 1 .. {longest}"],
    ]
    return Data(
        name="anbn",
        splits=splits,
        spec={"vocab_size": 3, "longest": 2 * longest, "num_examples": len(splits["train"])},
        encoding={
            **token_encoding(["a", "b", "<eos>"], [0], split, official=True),
            "truth": {"answer": "as many b's as a's, then the end", "accuracy": 1.0},
            "about": about,
        },
        fingerprint=fingerprint_of(splits),
    )


def _counted(n: Tensor) -> TokenSequences:
    """The strings a^n b^n with the next token of each; the targets of the a's count 0."""
    ends = offsets_of(2 * n)
    at = torch.arange(int(ends[-1])) - ends[:-1].repeat_interleave(2 * n)
    each = n.repeat_interleave(2 * n)
    tokens, answers = (at >= each).long(), (at + 1 >= each).long() + (at + 1 == 2 * each)
    counted = (at >= each).float()
    return TokenSequences(Ragged(tokens, ends), Ragged(answers, ends), Ragged(counted, ends))
