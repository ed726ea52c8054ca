"""Questions in SQuAD's JSON: where an answer stands in the tokens, and what cannot be asked."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Generator

from margin.data.formats.text.questions import answer_f1, encode_questions, read_questions
from margin.data.formats.text.tokenizers import Tokenizer
from margin.data.open import encode

COLORS = ["red", "blue", "green", "gray", "white"]


def squad(path: Path, *, answers: bool = True, articles: int = 10) -> Path:
    """Ten articles of a text each, which tells the colors of two things."""
    data = []
    for k in range(articles):
        one, two = COLORS[k % 5], f"{COLORS[(k + 1) % 5]} and old"
        context = f"Ce\u0301line's house is {one}. The barn is {two}, they say."
        qas = [
            {
                "question": f"What color is the {thing}?",
                "answers": [{"text": a, "answer_start": context.index(a)}],
            }
            for thing, a in (("house", one), ("barn", two))
        ]
        qas += [{"question": "Who lives there?", "answers": [], "is_impossible": True}]
        for qa in qas:
            qa["answers"] = qa["answers"] if answers else []
        data.append({"title": str(k), "paragraphs": [{"context": context, "qas": qas}]})
    path.write_text(json.dumps({"data": data}))
    return path


@pytest.mark.parametrize("level", ["words", "wordpiece", "bpe", "characters"])
def test_the_ends_are_those_of_the_answer(level: str, tmp_path: Path) -> None:
    data = read_questions(squad(tmp_path / "a.json"), level=level, vocab_size=300, min_count=1)
    assert {part: len(held) for part, held in data.splits.items()} == {"train": 14, "val": 2, "test": 4}
    assert "10 questions without an answer are left out" in data.notes
    tokenizer = Tokenizer.from_json(data.encoding)
    articles = {}
    for part, held in data.splits.items():
        (tokens, lengths, segments), ends, weight = held.take(torch.arange(len(held)), Generator())
        assert weight is None
        for k, one in enumerate(held.asked):
            start, end = ends[k].tolist()
            truth = one.context[slice(*one.answer)]
            assert tokenizer.decode(tokens[k, start : end + 1]).strip() == truth
            assert (segments[k, start : end + 1] == 1).all()
            question = tokens[k, : int((segments[k, : lengths[k]] == 0).sum())]
            assert tokenizer.decode(question).replace(" ?", "?") == one.question.lower()
            articles.setdefault(one.article, set()).add(part)
        shown = held.shown(
            {"start": ends[:, 0].tolist(), "end": ends[:, 1].tolist(), "probability": [1.0] * len(held)}
        )
        assert shown["answer"] == shown["truth"]
        assert shown["f1"] == [1.0] * len(held)
    assert all(len(parts) == 1 for parts in articles.values())


def test_new_questions_need_no_answers(tmp_path: Path) -> None:
    data = read_questions(squad(tmp_path / "a.json"), min_count=1)
    new = encode(str(squad(tmp_path / "b.json", answers=False)), data.encoding)
    assert (new.targets, len(new)) == (None, 30)
    pair = encode_questions([("What color is the house?", "The house is red.")], data.encoding)
    shown = pair.shown(
        {"start": [int(pair.lengths[0]) - 2], "end": [int(pair.lengths[0]) - 2], "probability": [0.5]}
    )
    assert shown == {"question": ["What color is the house?"], "answer": ["red"], "probability": [0.5]}
    nothing = pair.shown({"start": [0], "end": [1], "probability": [0.5]})
    assert nothing["answer"] == [""]


def test_longer_texts_are_refused_or_lose_their_end(tmp_path: Path, refused: Callable) -> None:
    path = squad(tmp_path / "a.json")
    with refused("at most longest=14 tokens: got 21", "--data.long cut"):
        read_questions(path, longest=14, min_count=1)
    data = read_questions(path, longest=14, long="cut", min_count=1)
    assert "10 questions whose answer is cut off are left out" in data.notes
    assert sum(map(len, data.splits.values())) == 10
    # the text is "the barn is COLOR and old , ...": an answer that is cut in its middle is cut off
    whole = read_questions(path, min_count=1)
    ends = torch.cat([held.targets for held in whole.splits.values()])
    inside = int((ends[:, 1] - ends[:, 0]).max())
    assert inside == 2
    for cut in range(1, inside + 2):
        longest = int(ends[:, 1].max()) + 1 - inside - 1 + cut
        data = read_questions(path, longest=longest, long="cut", min_count=1)
        assert sum(map(len, data.splits.values())) == (20 if cut > inside else 10)


def test_answers_that_stand_elsewhere_are_refused(tmp_path: Path, refused: Callable) -> None:
    path = squad(tmp_path / "a.json")
    path.write_text(path.read_text().replace('"answer_start": ', '"answer_start": 1'))
    with refused("a.json", "the answer 'red' must stand at character"):
        read_questions(path)
    for text, message in (
        ("{", "not questions"),
        ('{"data": 3}', "not questions"),
        ('{"rows": []}', "'data'"),
    ):
        path.write_text(text)
        with refused("a.json", message):
            read_questions(path)


def test_the_f1_of_answers_is_of_words_without_marks_and_articles() -> None:
    assert answer_f1("The red, house!", "a red house") == 1
    assert answer_f1("red house", "house of stone") == 2 * 1 / 5
    assert answer_f1("New New York", "new new deal") == 2 * 2 / 6  # words that recur count as often
    assert (answer_f1("", "x"), answer_f1("", "the")) == (0, 1)
