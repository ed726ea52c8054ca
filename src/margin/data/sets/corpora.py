"""Texts that no package ships, read from the folder that ``$MARGIN_DATA`` names."""

from typing import Literal

from margin.data.data_home import placed
from margin.data.examples import Data
from margin.data.formats.text.pairs import WORDS, from_pairs, sentences_in
from margin.data.formats.text.sources import CHARACTERS, Unknown, from_text, text_in
from margin.data.formats.text.tokenizers import Tokenization
from margin.data.options import option_groups
from margin.data.splits import Split

Language = Literal["en", "de", "fr"]


@option_groups("split_seed", "longest")
def tiny_shakespeare(
    *,
    tokens: Tokenization = CHARACTERS,
    time: int = 128,
    unknown: Unknown = "error",
    split: Split = Split(test=0.05, val=0.05),
) -> Data:
    """A million characters of Shakespeare's plays, 65 kinds; read from ``$MARGIN_DATA/tinyshakespeare``.

    Args:
        tokens: What tokens are.
        time: Tokens a block, at least 1.
        unknown: "error" refuses a token that training lacks; "token" reads it as ``<unk>``.
        split: Test and validation part, seed.
        test: Share of the test part, the end of the text.
        val: Share of the validation part before it.

    Returns:
        Data as of :func:`margin.data.formats.text.sources.read_text`.

    Raises:
        FileNotFoundError: The file is missing; the message says which and where.

    Reference: Karpathy 2015, char-rnn, data/tinyshakespeare; Karpathy, Johnson & Fei-Fei 2015, Visualizing
    and understanding recurrent networks.
    """
    (path,) = placed("tinyshakespeare")
    return from_text(text_in(path), split, "tinyshakespeare", tokens, time, unknown)


@option_groups()
def multi30k(*, source: Language = "de", target: Language = "en", tokens: Tokenization = WORDS) -> Data:
    """Captions of pictures with their translations: 29,000 in training; from ``$MARGIN_DATA/multi30k``.

    The validation part (1,014) and the test part (1,000, that of 2016) are official.

    Args:
        source: The language that is read.
        target: The language that is asked for.
        tokens: What tokens are.
        longest: Tokens of a training sentence at most; 0 keeps all.

    Returns:
        Data as of :func:`margin.data.formats.text.pairs.read_pairs`.

    Raises:
        FileNotFoundError: A file is missing; the message says which and where.
        ValueError: Both languages are one.

    Reference: Elliott, Frank, Sima'an & Specia 2016, Multi30K: multilingual English-German image
    descriptions, section 2.
    """
    if source == target:
        raise ValueError(f"multi30k: source and target must be two languages: got {source} twice")
    stems = ("train", "val", "test_2016_flickr")
    files = placed(
        "multi30k", [f"multi30k/{stem}.{language}" for stem in stems for language in (source, target)]
    )
    train, val, test = (sentences_in(files[k], files[k + 1]) for k in (0, 2, 4))
    return from_pairs(*train, name="multi30k", rule=tokens, official={"val": val, "test": test})
