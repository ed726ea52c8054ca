"""Which runs of words a filter answers to: by filters whose answers are known."""

import torch

from margin.auditing.asking.worst_examples import worst_examples
from margin.auditing.report.plots import examples
from margin.figures.svg import drawing
from margin.text.convolution.claims import demo, has_filters, ngrams
from margin.text.convolution.figures import ngrams as drawn
from margin.text.convolution.text_cnn import bag_classifier


def test_the_runs_are_those_that_a_filter_was_made_for() -> None:
    subject = demo()
    finding = ngrams(subject)
    assert finding.labels[0].startswith("red dog | ")
    assert finding.labels[0].endswith("(for yes)")
    assert finding.labels[1] == "tree (for no)"
    assert finding.value.tolist() == [2.0, 1.0]
    tokens = subject.test[0].inputs[0]
    tree = (tokens == subject.vocabulary.index("tree")).any(1).double().mean()
    assert torch.allclose(finding.curves["mean answer"][1], tree)
    assert finding.verdict == "measured"
    with drawing() as (_, axes):
        assert "red dog" in drawn(axes, finding)


def test_without_a_vocabulary_the_numbers_stand_for_the_words() -> None:
    subject = demo()
    red, dog = (subject.vocabulary.index(word) for word in ("red", "dog"))
    object.__setattr__(subject, "vocabulary", ())
    assert ngrams(subject).labels[0].startswith(f"[{red}, {dog}]")


def test_a_bag_of_words_has_no_filters() -> None:
    subject = demo()
    object.__setattr__(subject, "model", bag_classifier(9, 2))
    assert not has_filters(subject)


def test_the_worst_examples_are_named_by_their_text() -> None:
    subject = demo()
    hard = worst_examples(subject, 2)
    tokens, lengths = subject.test[0].inputs
    for text, row, shown in zip(hard.texts, hard.index.tolist(), examples(hard), strict=True):
        words = [subject.vocabulary[k] for k in tokens[row, : lengths[row]].tolist()]
        assert text == " ".join(words)
        assert shown.text == text
        assert shown.features == ()
        assert shown.called == f"row {row} {text!r}"
    assert [record["text"] for record in hard.as_json()] == list(hard.texts)
    object.__setattr__(subject, "vocabulary", ())
    bare = worst_examples(subject, 2)
    assert bare.texts == ()
    assert examples(bare)[0].called == f"row {bare.index[0]}"
