"""Sequences in memory and from files become Data: parts, spec, a standardization that never sees padding."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from margin.data.description import describe, lines
from margin.data.formats.sequences.sources import encode_sequences, from_sequences, read_sequences


def ragged(count: int = 20, width: int = 2, seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.normal(3, 2, (draw.integers(0, 6), width)).astype(np.float32) for _ in range(count)]


LABELS = np.arange(20) % 2


def test_one_length_gives_one_input_and_its_time() -> None:
    x = np.random.default_rng(0).normal(size=(20, 5, 3)).astype(np.float32)
    data = from_sequences(x, LABELS)
    assert data.spec == {
        "input_size": 3,
        "num_examples": 12,
        "time": 5,
        "in_features": 15,
        "num_classes": 2,
    }
    assert data.encoding["shape"] == [5, 3]
    taken = data.splits["test"].take(torch.tensor([0]), Generator())
    assert [tuple(part.shape) for part in taken.inputs] == [(1, 5, 3)]
    # each example is one of the given ones, with its own label
    row = next(i for i in range(20) if np.array_equal(x[i], taken.inputs[0][0].numpy()))
    assert taken.targets.item() == LABELS[row]


def test_several_lengths_give_two_inputs_and_no_time() -> None:
    data = from_sequences(ragged(), LABELS)
    assert set(data.spec) == {"input_size", "num_examples", "longest", "num_classes"}
    assert data.spec["longest"] == int(data.splits["train"].ragged.lengths.max())
    assert data.encoding["shape"] == [0, 2]
    x, lengths = data.splits["val"].take(torch.arange(2), Generator()).inputs
    assert x.shape[:2] == (2, int(lengths.max()))


def test_a_single_other_length_in_the_test_part_makes_all_ragged() -> None:
    x, other = np.ones((20, 4), np.float32), [np.ones(4, np.float32), np.ones(3, np.float32)]
    x[:, 0] = np.arange(20)
    assert "time" in from_sequences(x, LABELS, test_sequences=(np.ones((2, 4)), np.array([0, 1]))).spec
    data = from_sequences(x, LABELS, test_sequences=(other, np.array([0, 1])))
    assert "time" not in data.spec
    assert len(data.splits["train"].take(torch.tensor([0]), Generator()).inputs) == 2


def test_the_standardization_is_that_of_the_training_steps_alone() -> None:
    data = from_sequences(ragged(), LABELS)
    steps = data.splits["train"].ragged.steps.double()
    assert len(steps) == int(data.splits["train"].ragged.lengths.sum())
    assert torch.allclose(data.preprocess.mean, steps.mean(0), atol=1e-12)
    assert torch.allclose(data.preprocess.std, steps.std(0, correction=0), atol=1e-12)
    x, _ = data.splits["train"].take(torch.arange(12), Generator()).inputs
    padded = x.double().flatten(0, 1).mean(0)
    assert not torch.allclose(padded, steps.mean(0), atol=0.1)  # what padding would have made of it


def test_a_padded_array_with_lengths_is_the_list_of_its_sequences() -> None:
    rows = ragged()
    x = np.full((20, 7, 2), 99.0, np.float32)
    for i, row in enumerate(rows):
        x[i, : len(row)] = row
    one = from_sequences(x, LABELS, lengths=np.array([len(row) for row in rows]))
    two = from_sequences(rows, LABELS)
    assert one.fingerprint == two.fingerprint
    assert one.spec == two.spec


def test_values_and_double_precision_are_kept() -> None:
    x = np.random.default_rng(0).normal(size=(20, 5))
    data = from_sequences(x, x.sum(1))
    assert data.encoding["task"] == "values"
    assert data.encoding["dtype"] == "float64"
    assert data.splits["train"].targets.dtype == torch.float64
    assert "num_classes" not in data.spec


def test_a_domain_holds_every_number(refused: Callable) -> None:
    x = np.arange(40.0).reshape(20, 2)
    assert from_sequences(x, LABELS, domain=(0, 39)).domain is not None
    with refused("domain must contain every input", "[0, 38]"):
        from_sequences(x, LABELS, domain=(0, 38))


def test_sequences_without_any_step_are_refused(refused: Callable) -> None:
    with refused("empty", "at least one step"):
        from_sequences([np.zeros((0, 2), np.float32)] * 20, LABELS)


def test_what_was_understood_is_said() -> None:
    text = "\n".join(lines(describe(from_sequences(ragged(), LABELS))))
    lengths = sorted(len(row) for row in ragged())
    assert "2 numbers a step" in text
    assert f"{lengths[0]} .. {lengths[-1]} steps" in text
    assert f"{lengths.count(0)} empty" in text
    assert "by similar length" in text


def test_new_sequences_are_read_by_the_record(refused: Callable) -> None:
    data = from_sequences(ragged(), LABELS)
    new = encode_sequences([np.ones((9, 2)), np.ones((0, 2))], data.encoding)
    assert new.ragged.lengths.tolist() == [9, 0]
    assert new.ragged.steps.dtype == torch.float32
    assert new.targets is None
    assert encode_sequences(([np.ones((9, 2))], [1]), data.encoding).targets.tolist() == [1]
    with refused("a step must have 2 numbers: got 3"):
        encode_sequences([np.ones((9, 3))], data.encoding)
    with refused("labels must be 0 .. 1: got 2 at index 0"):
        encode_sequences(([np.ones((9, 2))], [2]), data.encoding)
    fixed = from_sequences(np.random.default_rng(0).normal(size=(20, 5)), LABELS)
    with refused("every sequence must have 5 steps, as in training: got 4 in row 1 (1 in all)"):
        encode_sequences([np.ones(5), np.ones(4)], fixed.encoding)


def test_a_file_of_arrays_is_the_same_as_the_arrays(tmp_path: Path) -> None:
    rows = ragged()
    steps, lengths = np.concatenate(rows), np.array([len(row) for row in rows])
    path = tmp_path / "some.npz"
    whole = from_sequences(rows, LABELS)
    np.savez(path, x=steps, lengths=lengths, y=LABELS)
    assert read_sequences(path).fingerprint == whole.fingerprint
    np.savez(path, x=steps, offsets=np.concatenate(([0], lengths.cumsum())), y=LABELS)
    assert read_sequences(path).fingerprint == whole.fingerprint
    np.savez(path, x=steps, lengths=lengths, y=LABELS, x_test=steps[:3], lengths_test=[1, 2], y_test=[1, 0])
    data = read_sequences(path)
    assert data.name == "some.npz"
    assert data.splits["test"].targets.tolist() == [1, 0]
    assert len(data.splits["train"]) + len(data.splits["val"]) == 20
    again = encode_sequences(path, data.encoding)  # of a file with two parts, the test part
    assert again.ragged.lengths.tolist() == [1, 2]


def test_a_file_without_targets_is_read_only_as_new_data(tmp_path: Path, refused: Callable) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, x=np.ones((3, 5)))
    with refused("some.npz", "an array 'y' in it"):
        read_sequences(path)
    data = from_sequences(np.random.default_rng(0).normal(size=(20, 5)), LABELS)
    assert encode_sequences(path, data.encoding).targets is None


@pytest.mark.parametrize(
    ("name", "shape", "classes", "sizes"),
    [
        ("GunPoint_TRAIN.txt.gz", [150, 1], ["1", "2"], (50, 150)),
        ("Coffee_TRAIN.txt.gz", [286, 1], ["0", "1"], (28, 28)),
        ("BasicMotions_TRAIN.arff.gz", [100, 6], ["Standing", "Running", "Walking", "Badminton"], (40, 40)),
    ],
)
def test_the_archives_files_are_read_as_published(
    shared: Path, name: str, shape: list[int], classes: list[str], sizes: tuple[int, int]
) -> None:
    data = read_sequences(shared / "timeseries" / "ucr" / name)
    assert data.encoding["shape"] == shape
    assert data.encoding["classes"] == classes
    assert len(data.splits["train"]) + len(data.splits["val"]) == sizes[0]
    assert len(data.splits["test"]) == sizes[1]
    assert data.encoding["split"]["official"]


def test_whole_numbers_are_said_to_be_amounts_and_are_tokens_by_option(tmp_path, refused) -> None:
    lists = [[3, 7, 7], [9, 3], [7], [3, 9, 9]] * 5
    labels = np.arange(20) % 2
    data = from_sequences(lists, labels)
    (note,) = [note for note in data.notes if "whole numbers" in note]
    assert "3 .. 9" in note and "--data.whole tokens" in note
    assert data.spec["input_size"] == 1
    found = from_sequences(lists, labels, whole="tokens")
    assert found.spec["input_size"] == 3
    assert found.encoding["tokens"] == [3, 7, 9]
    assert found.preprocess.mean.tolist() == [0, 0, 0]  # as the 0/1 columns of a category
    assert found.preprocess.std.tolist() == [1, 1, 1]
    held = encode_sequences([[9, 3], [7]], found.encoding).ragged
    assert held.steps.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    with refused("every token must be one of the training's 3: got 8 at row 1, time 0"):
        encode_sequences([[9, 3], [8]], found.encoding)
    with refused("tokens must be whole numbers below 2^24: got 0.5"):
        from_sequences([[0.5, 1.0]] * 20, labels, whole="tokens")
    for x in ([[0.5, 1.0, 2.0]] * 20, [[0, 1, 1]] * 20):  # real numbers, bits
        assert not any("whole numbers" in note for note in from_sequences(x, labels).notes)
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{k},{row}\n" for row, k in zip(["3,7,7", "9,3,7"] * 10, labels, strict=True)))
    assert any("--data.whole tokens" in note for note in read_sequences(path).notes)
    assert read_sequences(path, whole="tokens").encoding["shape"] == [3, 3]
