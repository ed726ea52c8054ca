"""The main jobs: a text file to GPT and on from a prompt, a corpus to BERT and a head from its run, pairs."""

from pathlib import Path

import pytest
import torch

import margin
from margin.core.catalog import models
from margin.data.formats.text.tokenizers import Tokenizer
from margin.engine.check_options import told_by
from margin.engine.runs import load
from margin.nn.preprocessed import core_of
from margin.runs.run_data import tensors_of_run
from margin.runs.sampling import sample

WORDS = ["one", "two", "three", "four", "five", "six"]
SMALL = {"width": 16, "depth": 1, "heads": 2}


def lines(count: int) -> str:
    return "".join(f"{' '.join(WORDS[(k + i) % 6] for i in range(3 + k % 2))}.\n" for k in range(count))


def test_a_text_to_gpt_and_on_from_a_prompt(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text(lines(150))
    run = margin.train("gpt", str(book), options=SMALL, max_steps=3, out=tmp_path / "run")
    assert run.record["data"]["encoding"]["format"] == "text"
    found = sample(run, 2, prefix="one tw", options={"temperature": 0.8, "top_p": 0.9, "length": 20})
    assert all(text.startswith("one tw") and len(text) == 26 for text in found.texts)
    assert sample(run, 1, prefix="one").values.shape == (1, 128)  # as many as have a position
    with pytest.raises(
        ValueError, match=r"fit the 128 positions: got 3 and 200 tokens; --sample.beyond slide"
    ):
        sample(run, 1, prefix="one", options={"length": 200})
    assert len(sample(run, 1, prefix="one", options={"length": 200, "beyond": "slide"}).texts[0]) == 203


def test_a_corpus_to_bert_and_a_head_from_its_run(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for k in range(3):
        (folder / f"{k}.txt").write_text(lines(20) + "\n" + lines(20))
    data = margin.open_source(f"corpus:{folder}", {"level": "wordpiece", "vocab_size": 60})
    first = margin.train("bert", data, options={**SMALL, "dropout": 0.0}, max_steps=3, out=tmp_path / "first")
    assert first.record["recipe"]["model"] == "text/bert:masked"
    assert Tokenizer.from_path(first.path).as_json() == {
        key: first.record["data"]["encoding"][key] for key in Tokenizer.from_path(first.path).as_json()
    }
    table = tmp_path / "reviews.csv"
    rows = [f"{' '.join(WORDS[(k + j) % 6] for j in range(3))} {k},{'ab'[k % 2]}\n" for k in range(60)]
    table.write_text("text,label\n" + "".join(rows))
    texts = margin.open_source(str(table), {"target": "label", "tokenizer": str(first.path)})
    run = margin.train("bert", texts, init_from=str(first.path), max_steps=2, out=tmp_path / "run")
    assert run.record["recipe"]["model"] == "text/bert"
    kept = run.record["recipe"]["options"]
    assert {name: kept[name] for name in (*SMALL, "dropout")} == {**SMALL, "dropout": 0.0}
    begun = margin.train(
        "bert",
        texts,
        options={"dropout": 0.2},
        init_from=str(first.path),
        max_steps=1,
        lr=1e-12,
        out=tmp_path / "b",
    )
    assert begun.record["recipe"]["options"]["dropout"] == 0.2
    one, other = (core_of(load(each)).body.embedding.weight for each in (first, begun))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_pairs_to_the_transformer(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{row}\t{row.upper()}\n" for row in lines(40).split("\n") if row))
    run = margin.train("transformer", str(pairs), options=SMALL, max_steps=2, out=tmp_path / "run")
    assert run.record["data"]["encoding"]["format"] == "pairs"
    assert "translation" in margin.predict(run, str(pairs), longest=4)


def test_a_model_tells_a_text_only_where_it_reads_one_kind(tmp_path: Path) -> None:
    book, table = tmp_path / "book.txt", tmp_path / "t.csv"
    book.write_text("a\n")
    table.write_text("a\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("a\n")
    rows = models()
    kinds = {
        "text/gpt": "text",
        "text/elmo:tokens": "text",
        "text/transformer": "pairs",
        "text/bert": "corpus",
        "text/bert:tags": "tagged",
        **dict.fromkeys(("text/skipgram", "text/glove", "text/log_bilinear", "text/pmi_svd"), "corpus"),
    }
    assert {name: told_by(rows[name], str(book)) for name in kinds} == {
        name: f"{kind}:{book}" for name, kind in kinds.items()
    }
    folder, classes = tmp_path / "folder", tmp_path / "classes"
    for entry in ("text/bert", "text/skipgram"):
        assert told_by(rows[entry], folder) == f"corpus:{folder}"
    for place in (classes / "good", classes / "bad"):
        place.mkdir(parents=True)
        (place / "a.txt").write_text("a\n")
    for entry, kind in {"bert": "texts", "text_cnn": "texts", "bert:masked": "corpus"}.items():
        assert told_by(rows[f"text/{entry}"], classes) == f"{kind}:{classes}"
    questions = tmp_path / "q.json"
    questions.write_text("{}")
    for entry in ("text/bert", "text/bert:spans"):
        assert told_by(rows[entry], questions) == f"questions:{questions}"
    for entry, given in (
        ("sequence/lstm", str(book)),
        ("text/gpt", str(table)),
        ("text/gpt", f"text:{book}"),
        ("text/gpt", "tinyshakespeare"),
        ("feedforward/mlp", str(book)),
        ("feedforward/mlp", classes),
        ("text/bert:spans", str(book)),
    ):
        assert told_by(rows[entry], given) == given


def swapped(first: Path, second: Path) -> None:
    """Two texts of the same six words, each as often as another has: their numbers are in another order."""
    first.write_text("".join(f"{word} " * (10 - k) for k, word in enumerate(WORDS)) * 6)
    second.write_text("".join(f"{word} " * (k + 5) for k, word in enumerate(WORDS)) * 6)


def test_a_token_keeps_its_vector_where_its_number_changes(tmp_path: Path) -> None:
    """As many tokens in another order: by their numbers every word would begin with the vector of another."""
    swapped(tmp_path / "a.txt", tmp_path / "b.txt")
    options = {"level": "words", "time": 8}
    first, second = (margin.open_source(f"text:{tmp_path}/{name}.txt", options) for name in "ab")
    assert first.spec["vocab_size"] == second.spec["vocab_size"] == 6
    assert first.spec["vocabulary"] != second.spec["vocabulary"]
    for entry, own in (("gpt", {**SMALL, "readout": "own"}), ("lstm", {"hidden": 6, "embedding": 6})):
        run = margin.train(entry, first, options=own, max_steps=3, out=tmp_path / entry)
        begun = margin.train(
            entry,
            second,
            options=own,
            init_from=str(run.path),
            max_steps=1,
            lr=1e-12,
            out=tmp_path / f"{entry} b",
        )
        one, other = (core_of(load(each)) for each in (run, begun))
        there = [first.spec["vocabulary"].index(word) for word in second.spec["vocabulary"]]
        for (name, old), new in zip(one.named_parameters(), other.parameters(), strict=True):
            moved = name in ("embedding.weight", "head.weight", "head.bias")
            torch.testing.assert_close(new, old[there] if moved else old, rtol=0, atol=1e-6, msg=name)


def test_what_one_text_alone_knows_begins_as_drawn_and_it_is_said(tmp_path: Path) -> None:
    swapped(tmp_path / "a.txt", tmp_path / "b.txt")
    (tmp_path / "b.txt").write_text((tmp_path / "b.txt").read_text().replace("two", "zwei"))
    options = {"level": "words", "time": 8}
    first, second = (margin.open_source(f"text:{tmp_path}/{name}.txt", options) for name in "ab")
    run = margin.train("gpt", first, options=SMALL, max_steps=3, out=tmp_path / "run")
    given = {"options": SMALL, "max_steps": 1, "lr": 1e-12}
    drawn = margin.train("gpt", second, out=tmp_path / "drawn", **given)
    begun = margin.train("gpt", second, init_from=str(run.path), out=tmp_path / "begun", **given)
    one, plain, other = (core_of(load(each)).embedding.weight for each in (run, drawn, begun))
    for row, word in enumerate(second.spec["vocabulary"]):
        known = word != "zwei"
        wanted = one[first.spec["vocabulary"].index(word)] if known else plain[row]
        torch.testing.assert_close(other[row], wanted, rtol=0, atol=1e-6)
    _, said = tensors_of_run(core_of(load(drawn)), run, drawn.record)
    assert said == [
        "the 6 tokens of the run are others than the 6 of the data: embedding.weight, head.weight have the "
        f"values of the 5 that both know, the rest as drawn; --data.tokenizer {run.path} reads texts as the "
        "run does"
    ]
