"""Files of sequences as they come: the archives' text formats by hand, and what is refused with its line."""

import gzip
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from margin.data.formats.sequences.files import Found, load_sequences


def rows(found: Found) -> list[list]:
    steps, ends = found.train[0].steps.tolist(), found.train[0].offsets.tolist()
    return [steps[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize(
    "text",
    [
        "2\t0.5\t1\n-1\t3\t4\n",
        "2,0.5,1\n-1,3,4\n\n",
        "  2.0000000e+00  5e-1  1\n -1.0 3 4",
        "2 0.5 1\r\n-1 3 4\r\n",
    ],
    ids=["tabs", "commas", "blanks", "windows"],
)
def test_a_line_is_a_class_and_its_numbers(csv: Callable, text: str) -> None:
    found = load_sequences(csv(text, "a.txt"), "error", None)
    assert rows(found) == [[[0.5], [1]], [[3], [4]]]
    assert found.train[1].tolist() == ["2", "-1"]
    assert found.classes == ("-1", "2")  # by number, not by letter
    assert found.task == "classes"
    assert load_sequences(csv("10 1 2\n9 3 4\nb 5 6\n", "b.txt"), "error", None).classes == ("9", "10", "b")


def test_lines_may_be_of_several_lengths_or_filled_up(csv: Callable, refused: Callable) -> None:
    assert [len(row) for row in rows(load_sequences(csv("1 2 3\n1 2\n1\n", "a.txt"), "error", None))] == [
        2,
        1,
        0,
    ]
    path = csv("1\t2\t3\n1\t2\tNaN\n", "a.tsv")
    assert [len(row) for row in rows(load_sequences(path, "end", None))] == [2, 1]
    with refused("a.tsv", "row 1, time 1", "--data.missing end"):
        load_sequences(path, "error", None)


TS = """# a comment
@problemName Some
@classLabel true up down
@data
1,2,3:4,5,6:up
7,8:9,10:down
"""

ARFF = r"""% a comment
@relation 'Some'
@attribute relationalAtt relational
@attribute att0 numeric
@end relationalAtt
@attribute direction {up,down}
@data
'1,2,3\n4,5,6',up
'7,8\n9,10',down
"""


@pytest.mark.parametrize(("text", "name"), [(TS, "a.ts"), (ARFF, "a.arff")])
def test_channels_become_numbers_of_a_step(csv: Callable, text: str, name: str) -> None:
    found = load_sequences(csv(text, name), "error", None)
    assert rows(found) == [[[1, 4], [2, 5], [3, 6]], [[7, 9], [8, 10]]]
    assert found.train[1].tolist() == ["up", "down"]
    assert found.classes == ("up", "down")  # in the file's order


def test_an_arff_of_one_channel_is_a_table(csv: Callable) -> None:
    text = "@relation a\n@attribute t0 numeric\n@attribute class {1,2}\n@data\n0.5,1,2\n3,?,1\n"
    found = load_sequences(csv(text, "a.arff"), "end", None)
    assert rows(found) == [[[0.5], [1]], [[3]]]
    assert found.train[1].tolist() == ["2", "1"]


def test_values_where_the_file_or_the_user_says_so(csv: Callable, refused: Callable) -> None:
    text = "@targetLabel true\n@data\n1,2:0.5\n3,4:1.5\n"
    found = load_sequences(csv(text, "a.ts"), "error", None)
    assert (found.task, found.train[1].tolist()) == ("values", [0.5, 1.5])
    assert load_sequences(csv("2.5 1 2\n", "a.txt"), "error", "values").train[1].tolist() == [2.5]
    with refused("values must be numbers: got 'up' in row 0"):
        load_sequences(csv("up 1 2\n", "a.txt"), "error", "values")


def test_the_test_part_lies_beside_and_may_be_packed(tmp_path: Path) -> None:
    for part, text in (("TRAIN", "1 2 3\n2 4 5\n"), ("TEST", "2 6 7\n")):
        (tmp_path / f"A_{part}.txt.gz").write_bytes(gzip.compress(text.encode()))
    found = load_sequences(tmp_path / "A_TRAIN.txt.gz", "error", None)
    assert found.test is not None
    assert found.test[0].steps[:, 0].tolist() == [6, 7]
    assert found.test[1].tolist() == ["2"]
    assert load_sequences(tmp_path / "A_TEST.txt.gz", "error", None).test is None


@pytest.mark.parametrize(
    ("text", "name", "texts"),
    [
        ("1 2 3\n1 x 3\n", "a.txt", ("a.txt, line 2", "got 'x' at time 0")),
        ("", "a.txt", ("at least one sequence",)),
        ("hello\n", "a.txt", ("a.txt, line 1", "a class and numbers: got 'hello'")),
        ("@data\n1,2:3:up\n", "a.ts", ("a.ts, line 2", "one length: got [1, 2]")),
        ("1 2 3\n", "a.doc", (".npz, .tsv", "got .doc ending")),
        (b"\xff1 2", "a.txt", ("UTF-8", "0xff")),
        (b"\xff\xfe1", "a.txt", ("UTF-16 to its end", "0x31")),
        (b"no gzip", "a.txt.gz", ("gzip",)),
        (b"no archive", "a.npz", ("not a file of plain arrays",)),
    ],
    ids=["word", "empty", "no numbers", "channels", "ending", "bytes", "half a character", "gzip", "npz"],
)
def test_what_cannot_be_read_is_refused(
    csv: Callable, text: str, name: str, texts: tuple, refused: Callable
) -> None:
    with refused(*texts):
        load_sequences(csv(text, name), "error", None)


def test_an_empty_cell_is_a_missing_number_not_a_shorter_sequence(csv: Callable, refused: Callable) -> None:
    for text in ("0,1,,3\n1,4,5,6\n", "0\t1\t\t3\n1\t4\t5\t6\n", "0, 1, , 3\n1, 4, 5, 6\n"):
        with refused("nan at row 0, time 1"):
            load_sequences(csv(text, "a.csv"), "error", None)
    filled = load_sequences(csv("0,1,,\n1,4,5,6\n", "a.csv"), "end", None)
    assert rows(filled) == [[[1]], [[4], [5], [6]]]


def test_offsets_of_nothing_are_refused(tmp_path: Path, refused: Callable) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((5, 1)), y=np.array([0, 1]), offsets=np.array([], dtype=int))
    with refused("offsets must rise from 0: got none"):
        load_sequences(tmp_path / "a.npz", "error", None)


def test_a_missing_file_is_named(tmp_path: Path, refused: Callable) -> None:
    with refused("none.npz", error=FileNotFoundError):
        load_sequences(tmp_path / "none.npz", "error", None)


def test_an_array_is_padded_or_cut_by_what_lies_beside_it(tmp_path: Path, refused: Callable) -> None:
    path = tmp_path / "a.npz"
    x = np.arange(6.0).reshape(2, 3)

    def saved(**arrays: object) -> list[list]:
        np.savez(path, **arrays)
        return rows(load_sequences(path, "error", None))

    assert saved(x=x) == [[[0], [1], [2]], [[3], [4], [5]]]
    assert saved(x=x, lengths=[1, 3]) == [[[0]], [[3], [4], [5]]]
    assert saved(x=x, lengths=[0, 1, 1]) == [[], [[0, 1, 2]], [[3, 4, 5]]]
    assert saved(x=x, offsets=[0, 2]) == [[[0, 1, 2], [3, 4, 5]]]
    assert saved(X=x.ravel(), offsets=[0, 1, 6]) == [[[0]], [[1], [2], [3], [4], [5]]]
    with refused("add up to the steps of x", "got 5 for x of shape (2, 3)"):
        saved(x=x, lengths=[2, 1, 2])
    with refused("a.npz: offsets must rise from 0: got 1, 2"):
        saved(x=x, offsets=[1, 2])
    with refused("offsets must rise from 0: got 0, 2, 1"):
        saved(x=x, offsets=[0, 2, 1])
    with refused("got both"):
        saved(x=x, offsets=[0, 2], lengths=[2])
    with refused("lengths must be in 0 .. 3", "got 4 in row 0"):
        saved(x=x, lengths=[4, 3])
    assert saved(x=x, lengths=[1.0, 3.0]) == saved(x=x, lengths=[1, 3])
    assert saved(x=x, lengths=[0.0, 1.0, 1.0]) == saved(x=x, lengths=[0, 1, 1])
    assert saved(x=x, offsets=[0.0, 2.0]) == saved(x=x, offsets=[0, 2])
    for lengths in ([1, -3], [2, -3, 3]):
        with refused("a.npz: lengths must be at least 0: got -3 in row 1"):
            saved(x=x, lengths=lengths)
    with refused("lengths must be whole numbers: got 1.5 in row 1"):
        saved(x=x, lengths=[1, 1.5])
    with refused("offsets must be whole numbers: got inf in row 1"):
        saved(x=x, offsets=[0, np.inf])
    with refused("lengths must be whole numbers in one row: got shape (2, 1) of int64"):
        saved(x=x, lengths=[[1], [3]])
    with refused("offsets must be whole numbers in one row: got shape (2,) of <U1"):
        saved(x=x, offsets=["0", "2"])
    with refused("both x_test and y_test"):
        saved(x=x, y=[0, 1], x_test=x)
