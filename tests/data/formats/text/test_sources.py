"""A text as blocks: every held-out token asked for once, training blocks anywhere."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Generator

from margin.data.examples import InOrder
from margin.data.formats.text.sources import Blocks, decode, encode_prompt, encode_text, read_text

TEXT = "abcdefghij" * 40  # 400 characters, each known by its place mod 10


def asked(blocks: Blocks, size: int = 3) -> list[int]:
    """The targets that count, in order."""
    found: list[int] = []
    for batch in InOrder(blocks, size):
        weight = torch.ones_like(batch.targets) if batch.weight is None else batch.weight
        found += batch.targets[weight == 1].tolist()
    return found


@pytest.mark.parametrize("count", [2, 3, 6, 7, 11, 12, 13])
def test_fixed_blocks_ask_for_every_token_once(count: int) -> None:
    ids = torch.arange(1, count + 1)
    blocks = Blocks(ids, 5)
    assert len(blocks) == -(-(count - 1) // 5)
    assert asked(blocks) == ids[1:].tolist()
    assert blocks.targets.flatten()[: count - 1].tolist() == ids[1:].tolist()


def test_a_target_is_the_token_after_and_padding_counts_0() -> None:
    batch = Blocks(torch.arange(1, 9), 5).take(torch.tensor([0, 1]), Generator())
    assert batch.inputs[0].tolist() == [[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]]
    assert batch.targets.tolist() == [[2, 3, 4, 5, 6], [7, 8, 0, 0, 0]]
    assert batch.weight.tolist() == [[1] * 5, [1, 1, 0, 0, 0]]
    assert Blocks(torch.arange(1, 12), 5).take(torch.tensor([0, 1]), Generator()).weight is None


def test_a_drawn_block_starts_anywhere_and_stays_whole() -> None:
    blocks = Blocks(torch.arange(23), 5, "drawn")
    generator = Generator().manual_seed(0)
    starts = []
    for _ in range(400):
        batch = blocks.take(torch.arange(len(blocks)), generator)
        assert torch.equal(batch.targets, batch.inputs[0] + 1)
        assert torch.equal(batch.inputs[0], batch.inputs[0][:, :1] + torch.arange(5))
        starts += batch.inputs[0][:, 0].tolist()
    # 18 starts, 2,000 draws: that one is never drawn has probability below 18 (1 - 1/25)^2000 < 1e-30
    assert set(starts) == set(range(18))


def test_a_drawn_block_is_a_function_of_the_generator() -> None:
    blocks = Blocks(torch.arange(100), 5, "drawn")
    one, two = (blocks.take(torch.arange(9), Generator().manual_seed(3)).inputs[0] for _ in range(2))
    assert torch.equal(one, two)


def test_the_shortest_texts_are_blocks(refused: Callable) -> None:
    assert asked(Blocks(torch.tensor([4, 5]), 5)) == [5]
    whole = Blocks(torch.arange(6), 5, "drawn").take(torch.tensor([0]), Generator().manual_seed(0))
    assert whole.inputs[0].tolist() == [[0, 1, 2, 3, 4]]
    with refused("blocks need 2 tokens at least: got 1"):
        Blocks(torch.tensor([4]), 5)
    with refused("blocks need 6 tokens at least: got 5"):
        Blocks(torch.arange(5), 5, "drawn")


def test_parts_follow_each_other_and_each_held_out_token_is_asked_for_once(csv: Callable) -> None:
    data = read_text(csv(TEXT, "a.txt"), time=7, test=0.1, val=0.2)
    kinds = tuple(data.encoding["vocabulary"])
    assert data.spec == {"vocab_size": 10, "vocabulary": kinds, "time": 7, "num_examples": 40}
    said = {
        part: "".join(data.encoding["vocabulary"][k] for k in asked(data.splits[part]))
        for part in ("val", "test")
    }
    assert said == {"val": TEXT[280:360], "test": TEXT[360:]}
    assert decode(data.splits["train"].ids, data.encoding) == TEXT[:280]


def test_the_vocabulary_is_that_of_the_training_part(csv: Callable, refused: Callable) -> None:
    path = csv(TEXT + "\nxy\nx", "a.txt")
    with refused(
        "a.txt, line 1", "every character must be in the training part: got '\\n'", "(5 in all, 3 kinds)"
    ):
        read_text(path, time=7)
    with refused("b.txt, line 2", "got 'x'", "(3 in all, 2 kinds)", "--data.unknown token"):
        read_text(csv(TEXT[:9] + "\n" + TEXT + "xyx", "b.txt"), time=7)
    data = read_text(path, time=7, unknown="token")
    assert data.encoding["vocabulary"][0] == "<unk>"
    assert asked(data.splits["test"]).count(0) == 5
    assert "unknown" in dict(data.encoding["about"])
    rare = read_text(csv("q" + TEXT, "a.txt"), time=7, unknown="token", min_count=2)
    assert "q" not in rare.encoding["vocabulary"]
    assert rare.splits["train"].ids[0] == 0


def test_words_are_tokens_too(csv: Callable) -> None:
    data = read_text(csv("The dog. A dog! " * 30, "a.txt"), level="words", case="lower", time=3)
    assert set(data.encoding["vocabulary"]) == {"the", "dog", ".", "a", "!"}
    assert data.encoding["vocabulary"][0] == "dog"
    assert decode([0, 0], data.encoding) == "dog dog"


def test_the_baseline_is_the_entropy_of_frequencies(csv: Callable) -> None:
    data = read_text(csv(TEXT, "a.txt"), time=7)
    assert dict(data.encoding["about"])["baseline"].startswith("2.3026 nats")  # ln 10


def test_new_text_is_read_by_the_record(csv: Callable, refused: Callable) -> None:
    data = read_text(csv(TEXT, "a.txt"), time=7)
    new = encode_text(csv("abcba" * 3, "b.txt"), data.encoding)
    assert decode(new.ids, data.encoding) == "abcba" * 3
    assert len(asked(new)) == 14
    assert decode(encode_prompt("hij", data.encoding), data.encoding) == "hij"
    with refused("b.txt, line 1", "got 'x'", "train with --data.unknown token"):
        encode_text(csv("abx", "b.txt"), data.encoding)
    with refused("the prompt", "got 'x'"):
        encode_prompt("x", data.encoding)
    with refused("at least two tokens: got 1"):
        encode_text(csv("a", "b.txt"), data.encoding)


def test_line_breaks_and_packing_change_nothing(csv: Callable, tmp_path: Path) -> None:
    text = "ab\ncd\n" * 50
    plain = read_text(csv(text, "a.txt"), time=5)
    assert read_text(csv(text.replace("\n", "\r\n"), "a.txt"), time=5).fingerprint == plain.fingerprint
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    packed = read_text(tmp_path / "a.txt.gz", time=5)
    assert packed.fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    ("content", "options", "texts"),
    [
        (
            "abc",
            {"time": 3},
            ("more than time=3 tokens", "got 3 of 3; give a longer text, or set --data.time"),
        ),
        (
            "abc",
            {"time": 1},
            ("train, val, test", "too few for val=0.05, test=0.05", "set --data.val 0 --data.t"),
        ),
        ("abcdefgh", {"time": 1, "val": 0.2}, ("needs a token: got 8 in all", "set --data.test 0")),
        (TEXT, {"time": 0}, ("time must be at least 1: got 0",)),
        (TEXT, {"min_count": 2}, ("min_count above 1 needs --data.unknown token",)),
        ("", {}, ("more than time=128 tokens: got 0 of 0; give a longer text",)),
        (b"ab\n\xff", {}, ("a.txt, line 2", "UTF-8", "0xff")),
    ],
    ids=["short", "nothing held out", "no test", "no time", "rare", "empty", "bytes"],
)
def test_what_cannot_be_learned_from_is_refused(
    csv: Callable, content: str | bytes, options: dict, texts: tuple, refused: Callable
) -> None:
    with refused(*texts):
        read_text(csv(content, "a.txt"), **options)


def test_no_block_is_short_enough_for_an_empty_text(csv: Callable) -> None:
    with pytest.raises(ValueError, match=r"give a longer text$"):
        read_text(csv("a", "a.txt"))


@pytest.mark.parametrize(("test", "val", "parts"), [(0.0, 0.0, ["train"]), (0.1, 0.0, ["train", "test"])])
def test_a_share_of_0_leaves_a_part_out(csv: Callable, test: float, val: float, parts: list[str]) -> None:
    assert list(read_text(csv(TEXT, "a.txt"), time=7, test=test, val=val).splits) == parts


@pytest.mark.parametrize(("level", "exact"), [("bpe", True), ("wordpiece", False)])
def test_a_text_of_pieces_is_cut_by_characters(level: str, exact: bool, tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    text = "the lower tower, the low tower; " * 100 + "ŷ"
    path.write_text(text)
    data = read_text(path, level=level, vocab_size=290, time=16)
    whole = data.splits["train"].ids.tolist()
    for part in ("val", "test"):
        assert whole[-1] == data.splits[part].ids[0]  # the token before is read, its own are asked for
        whole += data.splits[part].ids[1:].tolist()
    assert (decode(whole, data.encoding) == text) == exact
    assert data.spec["vocab_size"] == len(data.encoding["vocabulary"]) <= 290
    assert decode(encode_prompt("low tower", data.encoding), data.encoding) == "low tower"
    assert (decode(encode_text(path, data.encoding).ids, data.encoding) == text) == exact
    with pytest.raises(ValueError, match="the training part must have more than time=5000 tokens: got"):
        read_text(path, level=level, vocab_size=290, time=5000)


def test_a_tokenizer_of_a_file_brings_its_level(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("the lower tower, the low tower; " * 100)
    first = read_text(path, level="bpe", vocab_size=270, time=16)
    (tmp_path / "tokenizer.json").write_text(first.encoding["tokenizer"])
    again = read_text(path, tokenizer=str(tmp_path), time=16)
    assert again.encoding["level"] == "bpe"
    assert torch.equal(again.splits["test"].ids, first.splits["test"].ids)


@pytest.mark.parametrize(
    ("count", "time", "stride"), [(24, 5, 2), (6, 5, 5), (5, 5, 2), (3, 5, 1), (21, 8, 7)]
)
def test_overlapping_blocks_ask_for_each_token_once_behind_what_came_before(count, time, stride):
    """The scheme of Hugging Face's guide to perplexity: begins, ends, how many targets are new."""
    ids = torch.randint(100, (count,), generator=Generator().manual_seed(0))
    wanted, before = [], 0
    for begin in range(0, count - 1, stride):
        end = min(begin + time, count - 1)
        wanted.append((begin, end, end - before))
        before = end
        if end == count - 1:
            break
    blocks = Blocks(ids, time, stride=stride)
    assert len(blocks) == len(wanted)
    batch = blocks.take(torch.arange(len(blocks)), Generator())
    weight = torch.ones_like(batch.targets) if batch.weight is None else batch.weight
    for k, (begin, end, new) in enumerate(wanted):
        size = end - begin
        assert batch.inputs[0][k, :size].tolist() == ids[begin:end].tolist()
        assert batch.targets[k, :size].tolist() == ids[begin + 1 : end + 1].tolist()
        assert weight[k].nonzero()[:, 0].tolist() == list(range(size - new, size))
    assert weight.sum() == count - 1
    assert torch.equal(blocks.targets[weight > 0], ids[1:])


def test_a_stride_is_kept_for_new_texts_and_leaves_training_alone(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("abcd" * 100)
    data = read_text(path, time=20, stride=5)
    plain = read_text(path, time=20)
    assert len(data.splits["train"]) == len(plain.splits["train"])
    assert len(data.splits["test"]) == 1 and len(encode_text(path, data.encoding)) == 1 + 379 // 5 + 1
    assert any("every 5" in line for _, line in data.encoding["about"])
    with pytest.raises(ValueError, match=r"stride must be in 0 \.\. time=20: got 21"):
        read_text(path, time=20, stride=21)
