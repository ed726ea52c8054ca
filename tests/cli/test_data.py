"""``margin data`` says truly what is here; ``margin data get`` fetches whole, right files or nothing."""

import gzip
import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

from margin.cli import main
from margin.cli.data import here
from margin.core.catalog import sources
from margin.data.data_home import FOUR, LYING, PLACED
from margin.data.sets import download

FILES = {f"{name}.gz": gzip.compress(name.encode() * 50) for pair in FOUR.values() for name in pair}


class Server(ThreadingHTTPServer):
    """Serves FILES; ``asked`` tells which were asked for, ``broken`` says what goes wrong."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.files = dict(FILES)
        self.cut: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        body = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:20] if name in self.server.cut else body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(download, "BASE", f"http://127.0.0.1:{server.server_port}/data")
        sums = {name: hashlib.sha256(gzip.decompress(body)).hexdigest() for name, body in FILES.items()}
        monkeypatch.setattr(download, "CONTENTS", sums)
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path / "sets"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sets"


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a mistake gets."""
    capsys.readouterr()
    assert main(["data", "get", *words]) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert [line for line in lines if line.startswith("margin: ")] == lines[-1:]
    return lines[-1].removeprefix("margin: ")


def left(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_set_is_fetched_once(server: Server, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "get", "fashion-mnist", "--json"]) == 0
    captured = capsys.readouterr()
    folder = root / "fashion-mnist"
    assert json.loads(captured.out) == {
        "name": "fashion-mnist",
        "folder": str(folder),
        "files": dict.fromkeys(FILES, "fetched"),
    }
    assert captured.err.count("MB") == 4
    assert left(folder) == FILES
    assert sorted(server.asked) == sorted(FILES)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    # packed anew, the same bytes are another file, and as good
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"t10k-images-idx3-ubyte" * 50, 1))
    assert main(["data", "get", "fashion-mnist"]) == 0
    assert server.asked[4:] == ["t10k-labels-idx1-ubyte.gz"]
    assert f"fashion-mnist lies in {folder}" in capsys.readouterr().out


def test_another_folder_may_be_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MARGIN_DATA")
    said = refused(capsys, "fashion-mnist")
    assert said == (
        "margin data get needs a folder: set the environment variable MARGIN_DATA, or give --out DIR"
    )
    assert main(["data", "get", "fashion-mnist", "--out", "here/it/is"]) == 0
    assert left(tmp_path / "here" / "it" / "is") == FILES


def test_what_is_not_the_published_file_is_not_kept(
    server: Server, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files["train-images-idx3-ubyte.gz"] = gzip.compress(b"something else")
    said = refused(capsys, "fashion-mnist")
    assert "train-images-idx3-ubyte.gz: must hold what was published" in said
    assert hashlib.sha256(b"something else").hexdigest()[:16] in said
    server.files["train-images-idx3-ubyte.gz"] = b"<html>"
    assert "got no whole gzip file" in refused(capsys, "fashion-mnist")
    assert left(root / "fashion-mnist") == {}


def test_a_broken_connection_leaves_nothing(
    server: Server, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.cut = {"t10k-images-idx3-ubyte.gz"}
    said = refused(capsys, "fashion-mnist")
    assert said.startswith(f"{download.BASE}/t10k-images-idx3-ubyte.gz: the connection broke after ")
    assert sorted(left(root / "fashion-mnist")) == sorted(FILES)[2:]  # the two that came before
    server.cut = set()
    assert main(["data", "get", "fashion-mnist"]) == 0
    assert left(root / "fashion-mnist") == FILES


def test_no_server_and_no_file(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del server.files["train-images-idx3-ubyte.gz"]
    assert refused(capsys, "fashion-mnist").endswith("the server must have the file: it answers 404")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(download, "BASE", f"http://127.0.0.1:{port}/data")
    assert "no connection to the server" in refused(capsys, "fashion-mnist")
    monkeypatch.setattr(download, "BASE", "http://nowhere.invalid")
    assert "no connection to the server" in refused(capsys, "fashion-mnist")
    assert left(root / "fashion-mnist") == {}


def test_a_file_of_the_users_is_not_replaced(
    server: Server, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = root / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(FILES[path.name][:30])
    said = refused(capsys, "fashion-mnist")
    assert said == f"{path}: the file is not the published one: remove it, and get it again"
    assert left(path.parent) == {path.name: FILES[path.name][:30]}
    assert server.asked == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mnist"], "mnist is not fetched, but read from $MARGIN_DATA/mnist: put there train-images-idx3"),
        (["digits"], "digits is here already: it ships with a package, or is made"),
        (["fashion"], "unknown data set 'fashion'; nearest: fashion-mnist"),
        ([], "margin data get needs NAME"),
        (["fashion-mnist", "--uot", "x"], "unknown option --uot; nearest: --out"),
    ],
)
def test_sets_that_are_not_fetched(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *words)


def test_what_is_here_is_said_truly(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def is_here(name: str) -> bool:
        capsys.readouterr()
        assert main(["data", "--json"]) == 0
        return {row["name"]: row["here"] for row in json.loads(capsys.readouterr().out)}[name]

    assert is_here("digits")
    assert not is_here("mnist")
    folder = root / "mnist"
    folder.mkdir(parents=True)
    names = [name for pair in FOUR.values() for name in pair]
    for i, name in enumerate(names):
        assert not is_here("mnist")  # three of four files are no set
        (folder / (name if i % 2 else f"{name}.gz")).write_bytes(b"")
    assert is_here("mnist")
    assert main(["data", "show", "fashion-mnist"]) == 2
    assert "margin data get fashion-mnist fetches them" in capsys.readouterr().err


def test_a_folder_of_images_is_shown_trained_on_and_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k, name in enumerate(("dark", "light")):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(30):
            Image.new("L", (6, 4), 40 * (1 + 3 * k) + i).save(tmp_path / "set" / name / f"{i}.png")
    assert main(["data", "show", "set"]) == 0
    said = capsys.readouterr().out
    assert "image of 1 channel, 4 x 6 pixels" in said
    assert "dark   train 18, val 5, test 7" in said
    words = ["set", "--data.memory", "never", "--lr", "0.03", "--out", "run", "--threads", "1"]
    assert main(["train", "mlp", *words, "--epochs", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["test_accuracy"] == 1
    for place, count in (("set/light", 30), ("set/light/3.png", 1), ("set", 60)):
        assert main(["predict", "run", place, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        classes = ["dark"] * (count - 30) + ["light"] * min(count, 30)
        assert [row["class"] for row in rows] == classes
    assert main(["train", "--resume", "run", "--epochs", "21"]) == 0
    (tmp_path / "set" / "dark" / "3.png").write_bytes((tmp_path / "set/light/4.png").read_bytes())
    assert main(["train", "--resume", "run", "--epochs", "22"]) == 2
    assert "the data set have changed since the run began" in capsys.readouterr().err


SHARED = Path(os.environ.get("MARGIN_DATA", "")) / "fashion-mnist"


@pytest.mark.skipif(
    not (SHARED / "t10k-labels-idx1-ubyte.gz").is_file(), reason="MARGIN_DATA has no fashion-mnist"
)
def test_the_sums_are_those_of_the_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "get", "fashion-mnist", "--out", str(SHARED), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == dict.fromkeys(download.CONTENTS, "kept")


def test_what_augmentations_do_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(["data", "show", "digits", "--augment", "shift:1, rotate:20", "--out", "sheet.png", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out) == {
        "picture": "sheet.png",
        "augment": ["shift:1", "rotate:20"],
    }
    with Image.open("sheet.png") as sheet:
        assert sheet.width > sheet.height > 100
    for words, message in [
        (["iris", "--augment", "flip"], "flip changes images: these are vectors"),
        (["digits", "--augment", "flipp"], "unknown augmentation 'flipp'; nearest for images: flip"),
        (["digits", "--augment", "flip", "--out", "no/such.png"], "no such folder: no"),
        (["digits", "--augment", "flip", "--out", "sheet.pdf"], "--out must be a .png file"),
        (["digits", "--out", "sheet.png"], "--out is the picture of --augment, which is not given"),
    ]:
        assert main(["data", "show", *words]) == 2
        assert message in capsys.readouterr().err


def test_a_set_is_here_where_its_files_lie(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    assert not here("tinyshakespeare")
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt.gz").touch()
    assert here("tinyshakespeare")
    monkeypatch.delenv("MARGIN_DATA")
    assert not here("tinyshakespeare")
    assert set(LYING) <= set(sources())
    # every set that says MARGIN_DATA in its summary is one whose place is known, and no other
    named = {name for name, part in sources().items() if "MARGIN_DATA" in part.summary}
    assert named == {*LYING, *PLACED}
