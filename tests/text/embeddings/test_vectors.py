"""Vectors by name: neighbors and analogies by hand, the files of word2vec, GloVe and NumPy, damage."""

import gzip
import struct

import numpy as np
import pytest
import torch
from torch import nn

from margin.text.embeddings.vectors import WordVectors, read_analogies, read_pairs, read_vectors

WORDS = ("man", "woman", "king", "queen", "tea")
PLANE = torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, 0.2], [1.0, 0.1, 2.0], [0.1, 1.0, 2.0], [-1.0, -1.0, 0.0]])


@pytest.fixture
def vectors() -> WordVectors:
    return WordVectors(WORDS, PLANE)


def test_neighbors_are_those_of_largest_cosine(vectors) -> None:
    cosine = torch.nn.functional.cosine_similarity(PLANE[:1], PLANE)
    order = [k for k in cosine.argsort(descending=True).tolist() if k != 0]
    found = vectors.nearest("man", 3)
    assert [word for word, _ in found] == [WORDS[k] for k in order[:3]]
    assert [value for _, value in found] == pytest.approx(cosine[order[:3]].tolist())
    assert vectors.similarity("man", "tea") == pytest.approx(float(cosine[4]))
    assert len(vectors.nearest("man", 99)) == 4


def test_a_longer_vector_is_no_nearer() -> None:
    """Not the product: that of b is larger, the angle of c smaller."""
    found = WordVectors(("a", "b", "c"), torch.tensor([[1.0, 0], [9, 9], [1, 0.5]])).nearest("a", 1)
    assert found[0][0] == "c"


def test_an_analogy_leaves_its_own_words_out(vectors) -> None:
    assert vectors.analogy("man", "king", "woman")[0][0] == "queen"
    # the nearest of all to b - a + c may be b or c itself
    answers = vectors.answers(
        [
            ("man", "king", "woman", "queen"),
            ("man", "king", "woman", "tea"),
            ("a", "b", "c", "d"),
            ("man", "king", "woman", "zzz"),
        ]
    )
    assert answers.right.tolist() == [True, False] and answers.unknown == 2
    assert WordVectors(WORDS, PLANE).answers([]).right.tolist() == []


def test_analogies_are_those_of_the_formula_by_brute_force() -> None:
    """Of 20 drawn words of very different lengths; each neighbor of the formula answers some otherwise."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20, 4, generator=g, dtype=torch.float64) * torch.rand(20, 1, generator=g).exp() ** 4
    unit = x / x.norm(dim=1, keepdim=True)
    words = [f"w{k}" for k in range(20)]
    asked = [torch.randperm(20, generator=g)[:3].tolist() for _ in range(40)]

    def best(rows: torch.Tensor, sign: float, without: int) -> list[int]:
        found = []
        for a, b, c in asked:
            cosine = unit @ (sign * (rows[b] - rows[a]) + rows[c])
            cosine[[a, b, c][3 - without :]] = -torch.inf
            found.append(int(cosine.argmax()))
        return found

    wanted = best(unit, 1, 3)
    others = [best(unit, -1, 3), best(x, 1, 3), best(unit, 1, 1)]
    assert all(other != wanted for other in others)
    vectors = WordVectors(tuple(words), x)
    found = [vectors.analogy(*(words[k] for k in three))[0][0] for three in asked]
    assert found == [words[k] for k in wanted]
    questions = [[words[k] for k in (*three, d)] for three, d in zip(asked, wanted, strict=True)]
    assert bool(vectors.answers(questions).right.all())


def test_similarities_are_of_the_pairs_that_are_known(vectors) -> None:
    found = vectors.similarities([("man", "woman", 7.0), ("man", "horse", 3.0), ("tea", "king", 1.5)])
    expected = [[7.0, vectors.similarity("man", "woman")], [1.5, vectors.similarity("tea", "king")]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    assert vectors.similarities([]).shape == (0, 2)


def test_the_vectors_of_any_model_are_its_table_with_a_row_a_word() -> None:
    model = nn.Sequential(nn.Embedding(3, 4), nn.Embedding(5, 2))
    found = WordVectors.of(model, WORDS)
    assert torch.equal(found.vectors, model[1].weight) and not found.vectors.requires_grad
    with pytest.raises(ValueError, match="a row a word, 2: got rows 3, 5"):
        WordVectors.of(model, WORDS[:2])


def test_an_unknown_word_is_named_with_those_spelled_like_it(vectors) -> None:
    with pytest.raises(ValueError, match="got 'King'; spelled like it: king"):
        vectors.nearest("King")
    with pytest.raises(ValueError, match="got 'quene'; spelled like it: queen"):
        vectors.nearest("quene")
    with pytest.raises(ValueError, match="k must be at least 1"):
        vectors.nearest("king", 0)
    with pytest.raises(ValueError, match="each word must stand once: got 'a' twice"):
        WordVectors(("a", "b", "a"), torch.zeros(3, 1))
    with pytest.raises(ValueError, match="got 1 words, 3 vectors"):
        WordVectors(("a",), torch.zeros(3, 1))


def as_binary(ends: str) -> bytes:
    rows = b"".join(
        word.encode() + b" " + struct.pack("<3f", *row) + ends.encode()
        for word, row in zip(WORDS, PLANE.tolist(), strict=True)
    )
    return b"5 3\n" + rows


@pytest.mark.parametrize("ends", ["", "\n"])
def test_word2vecs_binary_is_read_with_and_without_line_ends(tmp_path, ends) -> None:
    """word2vec's program ends each row with a line break, gensim does not."""
    (tmp_path / "v.bin").write_bytes(as_binary(ends))
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(as_binary(ends)))
    for name in ("v.bin", "v.bin.gz"):
        found = read_vectors(tmp_path / name)
        assert found.words == WORDS and torch.equal(found.vectors, PLANE)


def test_what_is_saved_comes_back_and_gloves_text_has_no_head(tmp_path, vectors) -> None:
    vectors.save(tmp_path / "v.txt")
    back = read_vectors(tmp_path / "v.txt")
    assert back.words == WORDS and torch.equal(back.vectors, PLANE)
    rows = (tmp_path / "v.txt").read_text().split("\n", 1)[1]
    (tmp_path / "glove.txt").write_text(rows.replace("tea ", "at name@domain.com "))  # as in glove.840B
    found = read_vectors(tmp_path / "glove.txt")
    assert found.words == (*WORDS[:4], "at name@domain.com") and torch.equal(found.vectors, PLANE)


def test_a_matrix_of_numpy_takes_its_words_from_a_list(tmp_path) -> None:
    np.save(tmp_path / "m.npy", PLANE.numpy())
    with pytest.raises(
        ValueError, match=r"needs its words, a word a line: give words=, or write m\.words\.txt"
    ):
        read_vectors(tmp_path / "m.npy")
    (tmp_path / "list").write_text("\n".join(WORDS))
    assert read_vectors(tmp_path / "m.npy", words=tmp_path / "list").words == WORDS
    (tmp_path / "m.vocab").write_text("\n".join(WORDS))
    assert torch.equal(read_vectors(tmp_path / "m.npy").vectors, PLANE)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"2 2\nx 1 2\n", "got 1 words, 2 are announced"),
        ("a.txt", b"", "got 0 words, none is announced"),
        ("a.txt", b"x 1 2\ny 1\n", "line 2: a word must have 2 numbers after it: got 'y 1'"),
        ("a.txt", b"x 1 2\ny 1 z\n", "line 2: a word must have 2 numbers"),
        ("a.bin", as_binary("")[:-1], "it ends in word 5"),
        ("a.bin", b"words", "must begin with the numbers of words and of dimensions"),
    ],
)
def test_a_damaged_file_is_named_with_its_place(tmp_path, name, content, said) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_vectors(tmp_path / name)


def test_judged_pairs_and_analogies_are_read_and_a_bad_line_is_named(tmp_path) -> None:
    (tmp_path / "p").write_text("Tiger\tcat\t7.35\n\nbook paper 7.46\na,b,1\n")
    assert read_pairs(tmp_path / "p") == [("tiger", "cat", 7.35), ("book", "paper", 7.46), ("a", "b", 1.0)]
    (tmp_path / "p").write_text("tiger cat 1\ntiger cat\n")
    with pytest.raises(ValueError, match="line 2: a pair must be word word number"):
        read_pairs(tmp_path / "p")
    (tmp_path / "q").write_text(": capitals\nAthens Greece Oslo Norway\n")
    assert list(read_analogies(tmp_path / "q")) == [("athens", "greece", "oslo", "norway")]
    (tmp_path / "q").write_text("a b c\n")
    with pytest.raises(ValueError, match="line 1: an analogy must be four words"):
        list(read_analogies(tmp_path / "q"))
