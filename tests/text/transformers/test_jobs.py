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
