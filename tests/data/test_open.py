"""Any source is opened; new data are read by the record of a finished run."""

import gzip
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

import margin
from margin.core.catalog import UnknownName, sources
from margin.data.arrays import as_numpy
from margin.data.data_home import LYING, PLACED
from margin.data.examples import Arrays, Data
from margin.data.open import encode, open_data, reader_of
from margin.data.source import Source

TABLE = "num,cat,flag,y\n" + "\n".join(
    f"{'' if k == 5 else k},{'pqr'[k % 3]},{k % 2 == 0},{'no' if k % 4 else 'yes'}" for k in range(60)
)


@pytest.fixture
def run(csv) -> Data:
    return open_data(csv(TABLE), {"missing": "mean"})


def test_every_name_is_described_and_opened(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    assert {"digits", "iris", "two-moons", "blobs", "mnist"} <= set(sources())
    for name, part in sources().items():
        reader = reader_of(name)
        assert all(p.kind is p.KEYWORD_ONLY for p in inspect.signature(reader).parameters.values())
        assert reader is reader_of(part.name)
        if name in (*LYING, *PLACED):
            with pytest.raises(FileNotFoundError, match=r"MARGIN_DATA"):
                open_data(name, {})
            continue
        assert open_data(name, {}).name == name
        if "test" in inspect.signature(reader).parameters:
            assert "split_seed" in inspect.signature(reader).parameters
            assert open_data(name, {"test": 0.5}).encoding["split"]["test"] == 0.5


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("sequences:a.npz", "read_sequences"),
        ("text:a.txt", "read_text"),
        ("pairs:a.tsv", "read_pairs"),
        ("series:a.csv", "read_series"),
        ("graph:a.csv", "read_graph"),
        ("a.wav", "read_audio"),
        ("a.ply", "read_clouds"),
        ("a.graphml", "read_graph"),
        ("a.csv", "read_table"),
    ],
)
def test_a_prefix_or_an_ending_says_what_a_file_is(csv, name: str, reader: str) -> None:
    prefix, _, file = name.rpartition(":")
    path = csv("x", file)
    source = f"{prefix}:{path}" if prefix else str(path)
    assert reader_of(source).__name__ == reader
    assert Source(source).place == source


@pytest.mark.parametrize(
    ("file", "reader"),
    [
        ("three/a.wav", "read_audio"),
        ("DS_graph_indicator.txt", "read_graphs"),
        ("edges.csv", "read_graph"),
        ("chair/a.ply", "read_clouds"),
        ("chair/a.png", "read_folder"),
    ],
)
def test_a_folder_is_known_by_the_files_in_it(tmp_path: Path, file: str, reader: str) -> None:
    (tmp_path / "set" / file).parent.mkdir(parents=True)
    (tmp_path / "set" / file).touch()
    assert reader_of(tmp_path / "set").__name__ == reader


def test_a_prefix_before_nothing_is_refused(csv, refused) -> None:
    with refused("no such file: none.csv", error=FileNotFoundError):
        open_data("series:none.csv", {})
    path = csv("x", "series:odd.csv")  # a file may be called so
    assert reader_of(str(path)).__name__ == "read_table"


def test_graphs_and_lists_of_arrays_are_known_by_what_they_have() -> None:
    import networkx as nx

    class Handed:
        x, edge_index = torch.zeros(2, 1), torch.zeros(2, 0, dtype=torch.long)

    assert Source(Handed()).form == Source(nx.path_graph(3)).form == "graph_object"
    assert Source([Handed(), Handed()]).form == Source((nx.path_graph(3),)).form == "graph_objects"
    several, equal = [torch.zeros(3, 2), torch.zeros(4, 2)], [torch.zeros(3, 2), torch.zeros(3, 2)]
    assert Source((several, [0, 1])).form == "ragged"
    assert Source((equal, [0, 1])).form == Source(([[1.0, 2.0], [3.0]], [0, 1])).form == "pair"


def test_the_options_of_a_source_are_its_readers(csv) -> None:
    assert "missing" in inspect.signature(reader_of(csv(TABLE))).parameters
    assert reader_of((torch.zeros(2, 1), torch.zeros(2))).__name__ == "from_arrays"
    assert reader_of(csv("x", "a.npz")).__name__ == "read_arrays"
    assert reader_of(csv("x", "t-images-idx3-ubyte")).__name__ == "read_images"
    assert reader_of(csv("a,y\n1,2\n", "adult.test")).__name__ == "read_table"
    assert reader_of(csv(b"\0\0\x08\x01\0\0\0\0", "labels")).__name__ == "read_images"
    assert reader_of(csv("a").parent).__name__ == "read_images"


def test_unknown_sources_are_refused(tmp_path: Path, csv, refused) -> None:
    with refused("unknown data set 'digitz'", "nearest: digits", error=UnknownName):
        open_data("digitz", {})
    with refused("no such file: there/is.csv", error=FileNotFoundError):
        open_data("there/is.csv", {})
    with refused("no such file: digits.csv", error=FileNotFoundError):
        open_data("digits.csv", {})
    with refused(str(tmp_path / "none"), error=FileNotFoundError):
        open_data(tmp_path / "none", {})
    with refused("a DataFrame, a torch Dataset or DataLoader, or a Data: got int"):
        open_data(3, {})
    with refused("no reader for such a file", ".parquet"):
        open_data(csv(b"PK\3\4\0\0", "a.docx"), {})


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.xlsx", "save the sheet as CSV (in Excel as CSV UTF-8)"),
        ("A.XLS", "save the sheet as CSV (in Excel as CSV UTF-8)"),
        ("a.zip", "unpack it, and name what was in it"),
        ("a.tar.gz", "unpack it, and name what was in it"),
        ("a.json", "pandas.read_json(FILE).to_csv(NEW, index=False)"),
        ("a.pkl", "no pickle is read, which may run anything"),
        ("a.feather", "pandas.read_feather(FILE).to_parquet(NEW)"),
        ("a.h5", "numpy.savez"),
    ],
)
def test_files_of_other_programs_are_refused_with_a_way(name: str, remedy: str, csv, refused) -> None:
    content = b"u,y\n1,a\n" if not name.endswith(".gz") else gzip.compress(b"u,y\n1,a\n")
    with refused(f"{name}: no reader for such a file: ", remedy):
        open_data(csv(content, name), {})


def test_a_file_that_is_not_there_has_a_nearest_one_and_an_address_is_none(csv, refused) -> None:
    path = csv("u,y\n1,a\n", "prices.csv")
    with refused(f"no such file: {path.parent}/price.csv; nearest: {path}", error=FileNotFoundError):
        open_data(path.parent / "price.csv", {})
    with pytest.raises(FileNotFoundError, match=r"no such file: \S+nothing.csv$"):
        open_data(path.parent / "nothing.csv", {})
    with refused("no such file: https://a.org/b.csv; download it first", error=FileNotFoundError):
        open_data("https://a.org/b.csv", {})


def test_a_web_page_and_cells_that_spaces_divide_are_told(csv, refused) -> None:
    for text in ("<!DOCTYPE html><html></html>\n", "\n<HTML>\n<body>404</body>\n"):
        with refused("a table must be delimited text: got a web page; download the file itself"):
            open_data(csv(text), {})
    rows = "".join(f"{k / 7:.3f} {k % 5} {'ab'[k % 2]}\n" for k in range(60))
    with refused("if spaces divide the cells, set --data.separator ' '"):
        open_data(csv("u v y\n" + rows), {})
    data = open_data(csv("u v y\n" + rows), {"separator": " "})
    assert [column["name"] for column in data.encoding["columns"]] == ["u", "v"]
    with pytest.raises(ValueError, match="different texts") as caught:
        open_data(csv("u v y\n" + rows + "a b c d\n"), {})
    assert "separator" not in str(caught.value)


def test_arrays_of_objects_and_sparse_ones_are_refused_with_a_way(refused) -> None:
    x = np.eye(8)
    with refused("the inputs must be numbers or names: got type object; give .astype(float)"):
        open_data((x.astype(object), np.arange(8) % 2), {})
    with refused("the inputs must be numbers or names: got csr_array; give .toarray()"):
        as_numpy(csr_array(x), "arrays", "inputs")


def test_unknown_options_are_refused(csv, run: Data, refused) -> None:
    with refused("data set 'digits' has no option 'tset'", "it has: test"):
        open_data("digits", {"tset": 0.1})
    with refused("no option 'mising'", "missing"):
        open_data(csv(TABLE), {"mising": "mean"})
    with refused("no option 'target'"):
        open_data((torch.zeros(4, 1), torch.zeros(4)), {"target": "y"})
    with refused("take no options: got test"):
        open_data(run, {"test": 0.1})


def test_what_is_handed_over_is_opened(run: Data) -> None:
    assert open_data(run, {}) is run
    x, y = np.arange(40.0)[:, None], np.arange(40) % 2
    assert len(open_data((x, y), {}).splits["test"]) == 10
    assert len(open_data([x, torch.tensor(y)], {}).splits["test"]) == 10
    assert len(open_data(pl.DataFrame({"a": x[:, 0], "y": x[:, 0]}), {}).splits["test"]) == 10


def test_tables_and_arrays_load_only_what_they_need() -> None:
    code = (
        "import sys, margin.data.open as o; o.open_data('two-moons', {}); import torch;"
        "o.open_data((torch.rand(40, 2), torch.arange(40) % 2), {});"
        "print([m for m in ('polars', 'pandas', 'sklearn', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# new data by a run's record


def test_the_training_file_is_encoded_as_it_was(run: Data, csv) -> None:
    whole = encode(csv(TABLE), run.encoding)
    rows = {tuple(row) for part in run.splits.values() for row in part.inputs[0].tolist()}
    assert {tuple(row) for row in whole.inputs[0].tolist()} == rows
    assert whole.inputs[0].dtype == torch.float32
    assert whole.targets.tolist() == [int(k % 4 == 0) for k in range(60)]


def test_columns_are_found_by_name_and_targets_may_be_absent(run: Data, csv) -> None:
    new = encode(csv("flag,other,cat,num\nTRUE,?,q,7\nfalse,1,r,\n"), run.encoding)
    fill = run.encoding["columns"][0]["fill"]
    assert new.targets is None
    expected = torch.tensor([[7, 0, 1, 0, 1], [fill, 0, 0, 1, 0]])
    torch.testing.assert_close(new.inputs[0], expected)
    # Row 5 of the file, if it fell into training, was filled with this very mean and does not move it.
    assert fill == pytest.approx(float(run.splits["train"].inputs[0][:, 0].double().mean()), rel=1e-5)


def test_a_category_that_a_new_file_lacks_keeps_its_column(run: Data, csv) -> None:
    assert encode(csv("num,cat,flag\n1,r,True\n"), run.encoding).inputs[0].tolist() == [[1, 0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("num,cat\n1,p\n", ["no column 'flag'"]),
        ("Num,cat,flag\n1,p,True\n", ["no column 'num'", "nearest: Num"]),
        ("num,cat,flag\n1,p,True\n2,s,True\n", ["row 3, column 'cat'", "one of 'p', 'q', 'r': got 's'"]),
        ("num,cat,flag\n1,p,True\nx,p,True\n", ["row 3, column 'num': 'x' is not a number"]),
        ("num,cat,flag\n1,p,True\ninf,p,True\n", ["row 3, column 'num'", "must be finite"]),
        ("num,cat,flag\n1,p,yes\n", ["row 2, column 'flag': 'yes' is not true or false"]),
        (
            "num,cat,flag,y\n1,p,True,maybe\n",
            ["row 2, column 'y'", "class must be one of 'no', 'yes': got 'maybe'"],
        ),
        (
            "num,cat,flag,y\n1,p,True,yes\n2,p,True,\n",
            ["row 3, column 'y': the cell is empty", "leave the whole"],
        ),
        ("num,cat,flag\n", ["has a header but no rows"]),
    ],
)
def test_new_rows_that_do_not_fit_are_refused(text: str, texts: list[str], run: Data, csv, refused) -> None:
    path = csv(text, "new.csv")
    with refused(str(path), *texts):
        encode(path, run.encoding)


def test_without_a_fill_value_a_missing_cell_is_refused(csv, refused) -> None:
    run = open_data(csv(TABLE), {"missing": "drop"})
    with refused("row 7, column 'num': the cell is empty", "no value to fill in"):
        encode(csv(TABLE), run.encoding)


def test_whole_number_classes_are_found_by_their_number(csv) -> None:
    rows = "\n".join(f"{k},{(3, 10, 8)[k % 3]}" for k in range(30))
    run = open_data(csv(f"a,y\n{rows}\n"), {"task": "classes"})
    assert run.encoding["classes"] == ["3", "8", "10"]
    assert encode(csv("a,y\n1,10\n1,3.0\n1,8\n"), run.encoding).targets.tolist() == [2, 0, 1]


def test_values_of_new_rows(csv) -> None:
    rows = "\n".join(f"{k},{k}.5" for k in range(30))
    run = open_data(csv(f"a,y\n{rows}\n"), {})
    new = encode(csv("y,a\n7,1\n"), run.encoding)
    assert (new.inputs[0].tolist(), new.targets.tolist()) == ([[1]], [7])
    assert new.targets.dtype == torch.float32


def test_a_table_without_header(csv) -> None:
    rows = "\n".join(f"{k},{'p' if k % 2 else 'q'}" for k in range(30))
    run = open_data(csv(rows), {"header": "none", "target": "column_2"})
    assert encode(csv("5,p\n"), run.encoding).targets.tolist() == [0]
    assert encode(csv("5\n"), run.encoding).targets is None


def test_frames_are_encoded_too(run: Data) -> None:
    frame = pl.DataFrame({"num": [1, 2], "cat": ["p", "q"], "flag": [True, False]})
    assert encode(frame, run.encoding).inputs[0].tolist() == [[1, 1, 0, 0, 1], [2, 0, 1, 0, 0]]


def test_a_named_table_takes_a_file_with_its_columns(csv) -> None:
    run = open_data("iris", {})
    header = ",".join(record["name"] for record in run.encoding["columns"])
    new = encode(csv(f"{header},species\n5.1,3.5,1.4,0.2,setosa\n"), run.encoding)
    assert new.inputs[0][0].tolist() == pytest.approx([5.1, 3.5, 1.4, 0.2])
    assert new.targets.tolist() == [0]


def test_arrays_are_encoded_by_shape(tmp_path: Path) -> None:
    run = open_data("digits", {})
    pixels = np.arange(128, dtype=np.uint8).reshape(2, 8, 8) % 17
    for x in (pixels, torch.tensor(pixels), pixels[:, None], pixels.astype(float)):
        new = encode(x, run.encoding)
        assert new.targets is None
        assert new.inputs[0].dtype == torch.float32
        assert new.inputs[0].tolist() == pixels[:, None].tolist()
    assert encode((pixels, np.array([9, 0])), run.encoding).targets.tolist() == [9, 0]
    assert encode((pixels, np.array(["9", "0"])), run.encoding).targets.tolist() == [9, 0]
    np.savez(tmp_path / "a.npz", x=pixels)
    assert encode(tmp_path / "a.npz", run.encoding).targets is None
    np.savez(tmp_path / "a.npz", x=pixels, y=[1, 2], x_test=pixels[:1], y_test=[3])
    assert encode(tmp_path / "a.npz", run.encoding).targets.tolist() == [3]


@pytest.mark.parametrize(
    ("x", "y", "texts"),
    [
        (np.zeros((2, 9, 8)), None, ["shape (N, 1, 8, 8): got (2, 9, 8)"]),
        (np.zeros((2, 64)), None, ["shape (N, 1, 8, 8): got (2, 64)"]),
        (np.zeros((2, 3, 8, 8)), None, ["shape (N, 1, 8, 8): got (2, 3, 8, 8)"]),
        (np.full((2, 8, 8), np.nan), None, ["finite: got nan at index (0, 0, 0) (128 in all)"]),
        (np.zeros((2, 8, 8)), np.array([0, 10]), ["labels must be 0 .. 9: got 10 at index 1"]),
        (np.zeros((2, 8, 8)), np.array([-1, 0]), ["labels must be 0 .. 9: got -1 at index 0"]),
        (np.zeros((2, 8, 8)), np.array(["0", "ten"]), ["got 'ten' at index 1"]),
        (np.zeros((2, 8, 8)), np.array([[0], [1]]), ["(N,): got (2, 1); pass y[:, 0]"]),
        (np.zeros((2, 8, 8)), np.array([0]), ["one length: got 2 inputs, 1 targets"]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(x, y, texts, refused) -> None:
    with refused(*texts):
        encode(x if y is None else (x, y), open_data("digits", {}).encoding)


def test_a_table_for_a_run_on_images_is_refused(csv, refused) -> None:
    with refused("trained on arrays (N, 1, 8, 8): got a table"):
        encode(csv(TABLE), open_data("digits", {}).encoding)


def test_of_a_name_the_test_part_is_taken(refused) -> None:
    run = open_data("digits", {})
    assert torch.equal(encode("digits", run.encoding).inputs[0], run.splits["test"].inputs[0])
    other = open_data("digits", {"split_seed": 1})
    assert torch.equal(encode(other, run.encoding).targets, other.splits["test"].targets)
    with refused("iris: shape must be the run's, [1, 8, 8]: got [4]"):
        encode("iris", run.encoding)
    with refused("no test part; the parts are train, val"):
        encode(open_data("digits", {"test": 0.0}), run.encoding)
    with refused("task must be the run's, values: got classes"):
        encode("iris", open_data("noisy-linear", {"features": 4}).encoding)


def test_idx_files_are_encoded(tmp_path: Path) -> None:
    x, y = np.arange(60) % 9, np.arange(60) % 2
    run = open_data((np.repeat(x, 6).astype(np.uint8).reshape(60, 2, 3), y), {})
    path = tmp_path / "new-images-idx3-ubyte"
    path.write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]))
    assert encode(path, run.encoding).targets is None
    (tmp_path / "new-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 1, 1]))
    new = encode(path, run.encoding)
    assert isinstance(new, Arrays)
    assert new.targets.tolist() == [1]
    assert new.inputs[0].tolist() == [[[[1, 2, 3], [4, 5, 6]]]]


def test_of_a_folder_the_official_test_part_is_taken(tmp_path: Path) -> None:
    def write(name: str, shape: list[int], values: list[int]) -> None:
        sizes = b"".join(size.to_bytes(4, "big") for size in shape)
        (tmp_path / name).write_bytes(bytes([0, 0, 8, len(shape)]) + sizes + bytes(values))

    write("train-images-idx3-ubyte", [8, 1, 2], list(range(16)))
    write("train-labels-idx1-ubyte", [8], [0, 1] * 4)
    write("t10k-images-idx3-ubyte", [1, 1, 2], [7, 9])
    write("t10k-labels-idx1-ubyte", [1], [1])
    run = open_data(tmp_path, {"val": 0.25})
    new = encode(tmp_path, run.encoding)
    assert (new.inputs[0].tolist(), new.targets.tolist()) == ([[[[7, 9]]]], [1])


# tables of other libraries

IDENTITY = nn.Identity()


class Dataset:
    """As Hugging Face's and Arrow's: a shape, rows to take, and a way to pandas."""

    shape = (2, 2)

    def take(self, count: int) -> "Dataset":
        return self

    def to_pandas(self) -> None: ...


@pytest.mark.parametrize(
    ("table", "way"),
    [
        (Dataset(), r"data\.to_pandas\(\)"),
        (pl.DataFrame({"x": [1.0]}).lazy(), r"data\.collect\(\)"),
    ],
)
def test_the_conversion_is_named(table: object, way: str) -> None:
    for ask in (lambda: open_data(table, {}), lambda: margin.audit(IDENTITY, table)):
        with pytest.raises(ValueError, match=rf"got {type(table).__name__}.*; give {way}, a DataFrame"):
            ask()


def test_what_has_no_way_gets_no_advice() -> None:
    with pytest.raises(ValueError, match=r"or a Data: got dict$"):
        open_data({"x": np.zeros(3)}, {})
