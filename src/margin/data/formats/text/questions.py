"""Questions whose answer is a span of a text (Rajpurkar et al. 2016, SQuAD): where it starts and ends."""

import json
import os
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.assembly import Schema, cut
from margin.data.examples import Data
from margin.data.files.reading import reading
from margin.data.formats.sequences.rows import Ragged, evaluation_batch, fingerprint_of
from margin.data.formats.sequences.sources import lengths_line
from margin.data.formats.text.sources import text_in
from margin.data.formats.text.texts import SPECIAL, TEXTS, Long
from margin.data.formats.text.tokenizers import Tokenization, Tokenizer
from margin.data.options import option_groups
from margin.data.splits import Split, coded, grouped

SPLIT = Split(test=0.2, val=0.1)


class Asked(NamedTuple):
    """A question about a text.

    Args:
        question: The question.
        context: The text.
        answer: From which character to which the answer stands in the text; None where it is not known.
        article: Which article the text is of.
    """

    question: str
    context: str
    answer: tuple[int, int] | None = None
    article: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """Examples of question and text: inputs ``(tokens, lengths, segments)``, targets the answer's two ends.

    The tokens are ``[CLS] question [SEP] text [SEP]`` where the vocabulary has these; segments are 0 up to
    the text and 1 from it on. The ends are the first and last token of the answer, from 0.

    Args:
        tokens: The tokens.
        segments: In the same places, 0 and 1.
        places: In the same places, from which character to which a token stands in the text; -1 at others.
        asked: What they were made of.
        answers: The ends; None where they are not known.
        groups: The article of each, counted from 0.
    """

    tokens: Ragged
    segments: Ragged
    places: Ragged
    asked: Sequence[Asked]
    answers: Int[Tensor, "rows 2"] | None = None
    groups: Int[Tensor, " rows"] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        """The number of tokens of each example."""
        return self.tokens.lengths

    @property
    def targets(self) -> Int[Tensor, "rows 2"] | None:
        """The ends of all answers."""
        return self.answers

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return evaluation_batch(int(self.lengths.max()))

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; nothing is drawn."""
        tokens, lengths = self.tokens.padded(index)
        answers = None if self.answers is None else self.answers[index]
        return Batch((tokens, lengths, self.segments.padded(index)[0]), answers)

    def shown(self, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Predictions as spans of the text, with their questions; F1 scores where answers are known."""
        found: dict[str, list[Any]] = {"question": [], "answer": [], "probability": columns["probability"]}
        for k, (start, end) in enumerate(zip(columns["start"], columns["end"], strict=True)):
            first = int(self.tokens.offsets[k])
            low, high = int(self.places.steps[first + start, 0]), int(self.places.steps[first + end, 1])
            found["question"].append(self.asked[k].question)
            found["answer"].append(self.asked[k].context[low:high] if low >= 0 and high >= 0 else "")
        if all(one.answer is not None for one in self.asked):
            truth = [one.context[slice(*one.answer)] for one in self.asked if one.answer is not None]
            found["truth"] = truth
            found["f1"] = [answer_f1(a, b) for a, b in zip(found["answer"], truth, strict=True)]
        return found

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [
            self.tokens.steps,
            self.tokens.offsets,
            self.segments.steps,
            *([] if self.answers is None else [self.answers]),
        ]


@option_groups()
def read_questions(
    path: str | os.PathLike[str],
    *,
    test_file: str | None = None,
    tokens: Tokenization = TEXTS,
    long: Long = "error",
    split: Split = SPLIT,
) -> Data:
    """Questions and answers in SQuAD's JSON (``.gz`` too); no article lies in two of the parts that are cut.

    Of several answers the first is taken. Questions without an answer are left out and counted.

    Args:
        path: The file.
        test_file: An official test part, which is kept.
        tokens: What tokens are.
        long: What becomes of question and text of more than ``longest`` tokens: an error, or the beginning of
            the text is kept; a question whose answer is cut off is left out and counted.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.

    Returns:
        Data of tokens with the two ends of an answer each.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no such JSON, an answer does not stand where it is said to, or there is none.
    """
    path = Path(path)
    asked, unanswered = _asked(path)
    official = [] if test_file is None else _asked(Path(test_file))[0]
    groups = torch.tensor([one.article for one in asked])
    index, record = cut(
        str(path), asked, "spans", split, own={"test": None} if official else {}, groups=groups
    )
    parts = {part: [asked[i] for i in at.tolist()] for part, at in index.items()}
    parts |= {"test": official} if official else {}
    contexts = dict.fromkeys(one.context for one in parts["train"])
    texts = [*contexts, *(one.question for one in parts["train"])]
    tokenizer = tokens.made(texts, SPECIAL.get("bpe" if tokens.tokenizer else tokens.level))
    kept = {**tokenizer.as_json(), "longest": tokens.longest, "long": long}
    splits = {part: _questions(held, tokenizer, kept, str(path)) for part, held in parts.items()}
    left = sum(map(len, parts.values())) - sum(map(len, splits.values()))
    notes = [f"{unanswered:,} questions without an answer are left out"] * bool(unanswered)
    notes += [f"{left:,} questions whose answer is cut off are left out"] * bool(left)
    lengths = torch.cat([held.lengths for held in splits.values()])
    about = [
        ["questions", f"of {len(set(groups.tolist())):,} articles, none of which lies in two parts"],
        ["tokens", f"{tokenizer.called} of {tokenizer.size:,} kinds; {lengths_line(lengths, 'tokens')}"],
    ]
    own = {**kept, "about": about, "group": grouped("article", groups, index)}
    return _data(path.name, splits, record, own, tuple(notes))


def _data(
    name: str,
    splits: Mapping[str, Questions],
    split: Mapping[str, Any],
    own: Mapping[str, Any],
    notes: tuple[str, ...],
) -> Data:
    schema = Schema(
        format="questions",
        kind="questions",
        task="spans",
        shape=(0,),
        dtype=torch.float32,
        classes=(),
        split=split,
        own=own,
    )
    spec = {
        "vocab_size": len(own["vocabulary"]),
        "longest": int(splits["train"].lengths.max()),
        "num_examples": len(splits["train"]),
    }
    encoding, prints = schema.as_json(), fingerprint_of(splits)
    return Data(name=name, splits=splits, spec=spec, encoding=encoding, fingerprint=prints, notes=notes)


def encode_questions(source: Any, encoding: Mapping[str, Any]) -> Questions:
    """New questions by a run's record: SQuAD's JSON, with or without answers, or pairs (question, text).

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no such JSON, or too long.
    """
    if isinstance(source, str | os.PathLike):
        name, asked = str(source), _asked(Path(source), answered=False)[0]
    else:
        name, asked = "questions", [Asked(question, _composed(context)) for question, context in source]
    return _questions(asked, Tokenizer.from_json(encoding), encoding, name)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _asked(path: Path, *, answered: bool = True) -> tuple[list[Asked], int]:
    """The questions of a file, and how many of them were left out for want of an answer."""
    found, unanswered = [], 0
    what = "questions in SQuAD's JSON, data: [{paragraphs: [{context, qas: [{question, answers}]}]}]"
    try:
        with reading(path, what, parsers=("json",)):
            articles = [article["paragraphs"] for article in json.loads(text_in(path))["data"]]
            rows = [
                (k, part["context"], one["question"], one.get("answers") or [])
                for k, article in enumerate(articles)
                for part in article
                for one in part["qas"]
            ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not {what}: got no {error}") from None
    for k, context, question, answers in rows:
        _check_types(path, context, question, answers)
        if not answers and answered:
            unanswered += 1
            continue
        span = None
        if answers:
            start, text = answers[0]["answer_start"], answers[0]["text"]
            if context[start : start + len(text)] != text or not text:
                raise ValueError(
                    f"{path}, question {question!r}: the answer {text!r} must stand at character {start} of "
                    f"its text: there stands {context[start : start + len(text)]!r}"
                )
            span = len(_composed(context[:start])), len(_composed(context[: start + len(text)]))
        found.append(Asked(question, _composed(context), span, k))
    if not found:
        raise ValueError(f"{path}: there must be a question{' with an answer' * answered}: got none")
    return found, unanswered


def _check_types(path: Path, context: Any, question: Any, answers: Any) -> None:
    """Refuse what is no text, or a place that is no whole number."""
    first = answers[0] if isinstance(answers, list) and answers else {"text": "", "answer_start": 0}
    texts = (context, question, first.get("text") if isinstance(first, dict) else None)
    start = first.get("answer_start") if isinstance(first, dict) else None
    whole = isinstance(start, int) and not isinstance(start, bool) and start >= 0
    if not isinstance(answers, list) or not whole or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{path}, question {str(question)[:60]!r}: context, question and text must be texts, answers a "
            f"list, answer_start a whole number from 0: got {str(first)[:80]}"
        )


def _questions(asked: Sequence[Asked], tokenizer: Tokenizer, kept: Mapping[str, Any], name: str) -> Questions:
    """The tokens of questions and their texts; one whose answer is cut off is left out."""
    contexts: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}
    rows, segments, places, ends, held = [], [], [], [], []
    for one, ids in zip(asked, tokenizer.encode([q.question for q in asked], name), strict=True):
        if one.context not in contexts:
            contexts[one.context] = tokenizer.spans(one.context)
        text, at = contexts[one.context]
        first = tokenizer.framed(ids)
        last = tokenizer.framed([])[1:]
        room = kept["longest"] - len(first) - len(last) if kept["longest"] else len(text)
        if room < len(text) and (kept["long"] == "error" or room < 1):
            raise ValueError(
                f"{name}, question {one.question!r}: question and text must have at most "
                f"longest={kept['longest']} tokens: got {len(first) + len(text) + len(last)}; set "
                "--data.longest higher, or --data.long cut, which keeps the beginning of the text"
            )
        text, at = text[:room], at[:room]
        if one.answer is not None:
            inside = [i for i, (low, high) in enumerate(at) if high > one.answer[0] and low < one.answer[1]]
            if not inside or at[inside[-1]][1] < one.answer[1]:
                continue
            ends.append((len(first) + inside[0], len(first) + inside[-1]))
        held.append(one)
        rows.append(torch.tensor([*first, *text, *last]))
        segments.append(torch.tensor([0] * len(first) + [1] * (len(text) + len(last))))
        places.append(torch.tensor([(-1, -1)] * len(first) + at + [(-1, -1)] * len(last)))
    if not held:
        raise ValueError(f"{name}: every answer is cut off: set --data.longest higher")
    articles = coded(torch.tensor([one.article for one in held]), torch.arange(len(held)))
    answers = torch.tensor(ends) if len(ends) == len(held) else None
    return Questions(Ragged.of(rows), Ragged.of(segments), Ragged.of(places), held, answers, articles)


def answer_tokens(answer: str) -> list[str]:
    """The words of an answer as SQuAD compares them: small letters, no marks, no articles."""
    text = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def answer_f1(answer: str, truth: str) -> float:
    """The F1 score of an answer's words against the true ones; 1 where they are equal, which is exact match.

    Reference: Rajpurkar, Zhang, Lopyrev and Liang 2016, Section 6.1.
    """
    given, wanted = answer_tokens(answer), answer_tokens(truth)
    shared = sum((Counter(given) & Counter(wanted)).values())
    if not given or not wanted:
        return float(given == wanted)
    return 2 * shared / (len(given) + len(wanted))
