"""The smallest texts that models train on: what the contracts and demonstrations use."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Generator

from margin.data.examples import Data
from margin.data.formats.text.questions import read_questions
from margin.data.formats.text.tagged import from_tagged
from margin.data.formats.text.texts import from_texts
from margin.data.formats.text.tokenizers import Tokenization

WORDS = ("red", "blue", "old", "new", "dog", "cat", "tree", "house")


def drawn_texts() -> list[str]:
    """Sixty texts of 2 .. 7 words out of eight, with "red dog" in every second."""
    generator = Generator().manual_seed(0)
    texts = []
    for k in range(60):
        length = int(torch.randint(1, 6, (), generator=generator))
        words = [WORDS[i] for i in torch.randint(8, (length,), generator=generator).tolist()]
        words = [
            word
            for word, after in zip(words, [*words[1:], ""], strict=True)
            if (word, after) != ("red", "dog")
        ]
        at = int(torch.randint(len(words) + 1, (), generator=generator))
        pair = ("red", "dog") if k % 2 else ("dog", "red")
        texts.append(" ".join([*words[:at], *pair, *words[at:]]))
    return texts


def classes() -> Data:
    """Texts that hold the bigram "red dog" and such that hold its words the other way round."""
    texts = drawn_texts()
    labels = ["yes" if "red dog" in text else "no" for text in texts]
    return from_texts(texts, labels, name="red dogs", tokens=Tokenization(min_count=1))


def values() -> Data:
    """The same texts with the number of their dogs."""
    texts = drawn_texts()
    counts = torch.tensor([float(text.split().count("dog")) for text in texts])
    return from_texts(texts, counts, name="dogs", tokens=Tokenization(min_count=1))


def tags() -> Data:
    """The same texts with the kind of each word: a color, an age, an animal, or a thing."""
    kinds = dict(
        zip(WORDS, ("color", "color", "age", "age", "animal", "animal", "thing", "thing"), strict=True)
    )
    sentences = [text.split() for text in drawn_texts()]
    return from_tagged(sentences, [[kinds[word] for word in words] for words in sentences], name="kinds")


def questions() -> Data:
    """Thirty-six texts of four things with a color each, in twelve articles; the color of one is asked."""
    colors, things = ("red", "blue", "green", "black"), ("dog", "cat", "tree", "house")
    articles = []
    for k in range(12):
        paragraphs = []
        for j in range(3):
            order = [(k + i * (1 + j)) % 4 for i in range(4)]
            pairs = [f"{colors[c]} {thing}" for c, thing in zip(order, things, strict=True)]
            text, asked = ", ".join(pairs), (k + j) % 4
            answer = {"text": colors[order[asked]], "answer_start": text.index(pairs[asked])}
            paragraphs.append({"context": text, "qas": [{"question": things[asked], "answers": [answer]}]})
        articles.append({"title": str(k), "paragraphs": paragraphs})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "colors.json"
        path.write_text(json.dumps({"data": articles}))
        return read_questions(path, tokens=Tokenization(min_count=1))
