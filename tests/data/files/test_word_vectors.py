"""Word vectors of a file in the place of drawn ones: by word, in each form that the field writes."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import margin
from margin.data.files.word_vectors import is_vectors
from margin.engine.transfer import with_vectors

WORDS = ("<pad>", "<unk>", "dog", "cat", "bird")
VECTORS = {"cat": [1.0, 2.0, -3.0], "bird": [0.5, 0.25, 4.0], "fish": [9.0, 9.0, 9.0]}
LINES = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in VECTORS.items())


@pytest.mark.parametrize("form", ["glove.txt", "word2vec.vec", "fasttext.txt.gz", "array.npy"])
def test_rows_are_found_by_their_word(form: str, tmp_path: Path) -> None:
    path = tmp_path / form
    if form == "array.npy":
        np.save(path, np.array(list(VECTORS.values()), "float32"))
        path.with_suffix(".txt").write_text("\n".join(VECTORS) + "\n")
    elif form == "fasttext.txt.gz":
        path.write_bytes(gzip.compress(LINES.encode()))
    else:
        path.write_text("3 3\n" * (form == "word2vec.vec") + LINES)
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    before = model[0].weight.detach().clone()
    assert is_vectors(str(path))
    assert with_vectors(model, path, WORDS) == ("0.weight", 2)
    assert model[0].weight[3].tolist() == VECTORS["cat"]
    assert model[0].weight[4].tolist() == VECTORS["bird"]
    assert torch.equal(model[0].weight[:3], before[:3])


def test_vectors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(LINES)
    with pytest.raises(ValueError, match=r"have 3 numbers, the model's 4: set --model\.embedding 3"):
        with_vectors(nn.Embedding(5, 4), path, WORDS)
    with pytest.raises(ValueError, match="none of the 2 tokens has a vector in it"):
        with_vectors(nn.Embedding(2, 3), path, ("x", "y"))
    with pytest.raises(ValueError, match="need a model with one table of the 5 tokens"):
        with_vectors(nn.Linear(5, 3), path, WORDS)
    path.write_text("dog 1 two 3\n")
    with pytest.raises(ValueError, match="line 1: a word must have 3 numbers after it: got 'dog 1 two 3'"):
        with_vectors(nn.Embedding(5, 3), path, WORDS)


def test_a_training_begins_with_them_and_may_freeze_them(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("red 1 2 3\ndog 4 5 6\n")
    texts = [f"{'red dog' if k % 2 else 'dog red'} {'ab'[k // 2 % 2]}" for k in range(40)]
    run = margin.train(
        "text_cnn",
        (texts, ["no", "yes"] * 20),
        {"embedding": 3, "filters": 4},
        margin.Training(epochs=1, init_from=str(path), freeze=["body.embedding"]),
        out=tmp_path / "run",
    )
    words = run.record["data"]["encoding"]["vocabulary"]
    rows = margin.load(run).state_dict()
    (table,) = (tensor for name, tensor in rows.items() if name.endswith("embedding.weight"))
    assert table[words.index("red")].tolist() == [1, 2, 3]
    assert table[words.index("dog")].tolist() == [4, 5, 6]
