"""Every format, damaged in every way: a user gets well-formed data, or one line that names the file, exit 2.

A small valid file of each format in the tables of formats is cut, has bits turned, sizes and types changed,
by a fixed seed, and is read by the function behind ``margin data show``, its memory limited. A format that
the tables gain is tested by being there, and fails as long as it has no sample.
"""

import gzip
import io
import json
import re
import resource
import struct
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from torch import Generator, Tensor

from margin.cli import main
from margin.core.catalog import formats
from margin.data import open as opening
from margin.data.examples import Data, TargetedExamples
from margin.data.formats.audio.wave import write_wave
from margin.data.formats.graphs.networkx import ENDINGS as GRAPHS
from margin.data.formats.points.files import ENDINGS as POINTS
from margin.data.formats.sequences.files import PARSERS
from margin.data.source import endings, prefixes

FORMATS = [
    *endings(),
    *(f"{prefix}:" for prefix in prefixes()),
    *(f"{name}/" for name, row in formats().items() if row.holds),
    *(f"sequences:{ending}" for ending in (*PARSERS, ".npy")),
    *(f"points:{ending}" for ending in POINTS),
    *(f"graph:{ending}" for ending in GRAPHS),
    *(f"{ending}.gz" for ending in (".csv", ".idx", ".graphml")),
    *("text:.gz", "series:.parquet", "graph:.npz", "points:.npz", "graphs:folder"),
]
"""What the tables name: endings, prefixes, what a folder holds, and the formats behind each prefix."""

CASES = 24
"""Damaged files of each format."""

ROOM = 2**30
"""Bytes of address space beyond what the process has when a case begins."""

SLOW = 10.0
"""Seconds that no case may take: a kilobyte is read in a hundredth of one."""

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(24, 3)).round(3), np.arange(24) % 2
Sample = tuple[str, list[str]]
"""What is typed, and the files that are damaged."""


def write(path: str, content: str | bytes) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(path: str, mark: str = ",") -> Sample:
    rows = [
        mark.join(map(str, (*row, ["no", "yes"][k], "ab"[i % 3 == 0])))
        for i, (row, k) in enumerate(zip(X, Y, strict=True))
    ]
    head = mark.join(("a", "b", "c", "target", "kind"))
    return write(path, "\n".join((head, *rows)) + "\n"), [path]


def packed(path: str, content: bytes) -> str:
    return write(path, gzip.compress(content, mtime=0))


def parquet(path: str) -> Sample:
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "target": Y.astype(bool)}).write_parquet(path)
    return path, [path]


def archive(path: str, source: str = "", **arrays: np.ndarray) -> Sample:
    np.savez(path, **(arrays or {"x": X, "y": Y, "groups": np.arange(24) % 12}))
    return f"{source}{path}", [path]


def array(path: str) -> Sample:
    np.save(path, X)
    np.save(path.replace(".npy", "_y.npy"), Y)
    return path, [path, path.replace(".npy", "_y.npy")]


def idx(path: str, labels: str) -> Sample:
    images = b"\0\0\x08\x03" + struct.pack(">3I", 24, 3, 3) + RNG.bytes(216)
    write(path, gzip.compress(images, mtime=0) if path.endswith(".gz") else images)
    write(labels, b"\0\0\x08\x01" + struct.pack(">I", 24) + bytes(Y.tolist()))
    return path, [path, labels]


def idx_folder() -> Sample:
    files = []
    for part in ("train", "t10k"):
        files += idx(f"m/{part}-images-idx3-ubyte", f"m/{part}-labels-idx1-ubyte")[1]
    return "m", files


def images(ending: str) -> Sample:
    files = []
    for k in range(12):
        picture = Image.fromarray(RNG.integers(0, 256, (4, 5), np.uint8))
        path = f"i/{'ab'[k % 2]}/{k}{ending}"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        picture = picture.convert("P") if ending == ".gif" else picture
        picture.convert("RGB").save(path) if ending in (".webp", ".ppm") else picture.save(path)
        files.append(path)
    return "i", files


def sounds() -> Sample:
    files = [f"s/{'ab'[k % 2]}_{k}.wav" for k in range(12)]
    for path in files:
        Path(path).parent.mkdir(exist_ok=True)
        write_wave(path, torch.rand(40) - 0.5, 8000)
    return "audio:s", files


def clouds(ending: str) -> Sample:
    files = []
    for k in range(12):
        path, points = f"c/{'ab'[k % 2]}/{k}{ending}", RNG.normal(size=(5, 3)).round(2)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(" ".join(map(str, row)) for row in points) + "\n"
        form, body = (
            ("ascii", text.encode())
            if k % 4 < 2
            else ("binary_little_endian", points.astype("<f4").tobytes())
        )
        head = (
            f"ply\nformat {form} 1.0\nelement vertex 5\n"
            + "property float %s\n" * 3 % (*"xyz",)
            + "end_header\n"
        )
        if ending == ".npy":
            np.save(path, points)
        else:
            write(path, head.encode() + body if ending == ".ply" else text)
        files.append(path)
    return "points:c", files


def cloud_archive() -> Sample:
    sets = RNG.normal(size=(24, 4, 3)).astype(np.float32)
    return archive("c.npz", "points:", x=sets.reshape(-1, 3), sizes=np.full(24, 4), y=Y)


def lines(path: str, texts: list[str]) -> str:
    return write(path, "\n".join(texts) + "\n")


TAGGED = ["the DET", "dog NOUN", "", "a DET", "cat NOUN", ""] * 12
JSON_ROWS = [
    json.dumps({"a": row[0], "b": row[1], "target": ["no", "yes"][k]})
    for row, k in zip(X.tolist(), Y.tolist(), strict=True)
]
UNIVERSAL = ["# a", "1\tthe\tthe\tDET\t_", "2\tdog\tdog\tNOUN\t_", ""] * 12
ASKED = {"question": "What barks?", "answers": [{"text": "dog", "answer_start": 4}]}
SQUAD = json.dumps({"data": [{"paragraphs": [{"context": "The dog barks.", "qas": [ASKED]}]}] * 12})


def texts_in_folders() -> Sample:
    files = []
    for k in range(24):
        Path(f"f/{k % 2}").mkdir(parents=True, exist_ok=True)
        files.append(write(f"f/{k % 2}/{k}.txt", f"a text of {k % 3} words"))
    return "texts:f", files


def sequences(ending: str) -> Sample:
    path = f"q{ending}"
    cells = [",".join(map(str, row)) for row in X]
    if ending == ".ts":
        lines(
            path,
            [
                "@problemName q",
                "@classLabel true 0 1",
                "@data",
                *(f"{c}:{k}" for c, k in zip(cells, Y, strict=True)),
            ],
        )
    elif ending == ".arff":
        head = [
            "@relation q",
            *(f"@attribute a{k} numeric" for k in range(3)),
            "@attribute target {0,1}",
            "@data",
        ]
        lines(path, [*head, *(f"{c},{k}" for c, k in zip(cells, Y, strict=True))])
    elif ending == ".npy":
        array(path)
        return f"sequences:{path}", [path, "q_y.npy"]
    else:
        lines(
            path,
            [
                f"{k},{c}" if ending == ".csv" else f"{k}\t" + c.replace(",", "\t")
                for c, k in zip(cells, Y, strict=True)
            ],
        )
    return f"sequences:{path}", [path]


def graph(ending: str) -> Sample:
    path, made = f"g{ending}", nx.cycle_graph(24)
    for k, node in made.nodes(data=True):
        node |= {"a": float(X[k, 0]), "target": ["no", "yes"][Y[k]]}
    if ending == ".net":
        text = "".join(f'{k + 1} "n{k}" {X[k, 0]} {X[k, 1]} ellipse target "c{Y[k]}"\n' for k in range(24))
        write(
            path,
            f"*Vertices 24\n{text}*Edges\n" + "".join(f"{k + 1} {(k + 1) % 24 + 1} 1.0\n" for k in range(24)),
        )
    else:
        {".graphml": nx.write_graphml, ".gml": nx.write_gml, ".gexf": nx.write_gexf}[ending](made, path)
    return f"{path} --target=target", [path]


def edge_tables() -> Sample:
    rows = [f"n{k},{X[k, 0]},{['no', 'yes'][Y[k]]}" for k in range(24)]
    lines("e/nodes.csv", ["id,a,target", *rows])
    lines("e/edges.csv", ["source,target,w", *(f"n{k},n{(k + 1) % 24},{X[k, 1]}" for k in range(24))])
    return "graph:e", ["e/nodes.csv", "e/edges.csv"]


def edge_list(ending: str) -> Sample:
    path = lines(f"e{ending}", [f"n{k} n{(k + 1) % 24} {X[k, 1]}" for k in range(24)])
    lines("nodes.csv", ["id,a,target", *(f"n{k},{X[k, 0]},{['no', 'yes'][Y[k]]}" for k in range(24))])
    return f"{path} --target=target", [path, "nodes.csv"]


def graph_archive() -> Sample:
    ring = np.stack((np.arange(24), (np.arange(24) + 1) % 24))
    sparse = {"x_data": X[:, 0], "x_indices": np.arange(24) % 3, "x_indptr": np.arange(25)}
    return archive("g.npz", "graph:", edge_index=ring, y=Y, x_shape=np.array([24, 3]), **sparse)


def masks() -> Sample:
    files = []
    for k in range(12):
        for kind in ("images", "masks"):
            path = f"m/{kind}/{k}.png"
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(RNG.integers(0, 256 if kind == "images" else 3, (4, 5), np.uint8)).save(path)
            files.append(path)
    return "m", [*files, write("m/classes.txt", "0 sky\n1 road\n2 tree\n")]


def tu_folder() -> Sample:
    lines("t/t_graph_indicator.txt", [str(k // 2 + 1) for k in range(48)])
    lines("t/t_A.txt", [f"{a}, {b}" for k in range(1, 48, 2) for a, b in ((k, k + 1), (k + 1, k))])
    lines("t/t_graph_labels.txt", [str(k) for k in Y])
    lines("t/t_node_labels.txt", [str(k % 3) for k in range(48)])
    lines("t/t_node_attributes.txt", [f"{a}, {b}" for a, b, _ in np.concatenate((X, X))])
    return "graphs:t", [f"t/t_{kind}.txt" for kind in ("graph_indicator", "A", "graph_labels", "node_labels")]


def graph_text() -> Sample:
    each = [text for k in Y for text in (f"2 {k}", f"{k} 1 1 .5", "0 1 0 .25")]
    return f"graphs:{lines('gs.txt', ['24', *each])}", ["gs.txt"]


def series(path: str) -> Sample:
    times = [f"2024-01-{1 + k // 24:02} {k % 24:02}:00:00" for k in range(400)]
    values = np.sin(np.arange(400) / 4).round(3).tolist()
    frame = pl.DataFrame({"date": times, "load": values, "sun": values[::-1]})
    frame.write_parquet(path) if path.endswith(".parquet") else frame.write_csv(path)
    return f"series:{path}", [path]


PROSE = "the quick brown fox jumps over the lazy dog\n" * 60
TABLES: dict[str, Callable[[], Sample]] = {
    **{ending: (lambda e=ending: table(f"a{e}")) for ending in (".csv", ".txt", ".data")},
    **{ending: (lambda e=ending: table(f"a{e}", "\t")) for ending in (".tsv", ".tab")},
    **{ending: (lambda e=ending: parquet(f"a{e}")) for ending in (".parquet", ".pq")},
    ".csv.gz": lambda: (packed("b.csv.gz", Path(table("b.csv")[0]).read_bytes()), ["b.csv.gz"]),
    **dict.fromkeys((".jsonl", ".ndjson"), lambda: (lines("a.jsonl", JSON_ROWS), ["a.jsonl"])),
    ".npz": lambda: archive("a.npz"),
    ".npy": lambda: array("a.npy"),
    ".idx": lambda: idx("images.idx", "labels.idx"),
    ".idx.gz": lambda: idx("images.idx.gz", "labels.idx"),
    "idx/": idx_folder,
    "series:": lambda: series("s.csv"),
    "series:.parquet": lambda: series("s.parquet"),
    "text:": lambda: (f"text:{write('t.txt', PROSE)}", ["t.txt"]),
    "text:.gz": lambda: (f"text:{packed('t.txt.gz', PROSE.encode())}", ["t.txt.gz"]),
    "texts:": texts_in_folders,
    **dict.fromkeys((".conll", "tagged:"), lambda: (lines("w.conll", TAGGED), ["w.conll"])),
    ".conllu": lambda: (lines("w.conllu", UNIVERSAL), ["w.conllu"]),
    "questions:": lambda: (f"questions:{write('q.json', SQUAD)}", ["q.json"]),
    "corpus:": lambda: (f"corpus:{write('c.txt', PROSE)}", ["c.txt"]),
    "pairs:": lambda: (
        f"pairs:{lines('p.txt', [f'a b{k % 3} c{chr(9)}d e{k % 3}' for k in range(40)])}",
        ["p.txt"],
    ),
}
SAMPLES: dict[str, Callable[[], Sample]] = {
    **TABLES,
    **{ending: (lambda e=ending: images(e)) for ending, form in endings().items() if form == "image"},
    **dict.fromkeys(("masks:", "masks/"), masks),
    **dict.fromkeys((".wav", "audio:", "audio/"), sounds),
    **{ending: (lambda e=ending: clouds(e)) for ending in (".ply", ".xyz")},
    **{f"points:{ending}": (lambda e=ending: clouds(e)) for ending in (".ply", ".xyz", ".npy")},
    **dict.fromkeys(("points:", "points:.npz"), cloud_archive),
    "points/": lambda: ("c", clouds(".ply")[1]),
    "sequences:": lambda: archive("q.npz", "sequences:", x=X[:, :, None], y=Y, lengths=np.arange(24) % 3 + 1),
    **{
        f"sequences:{e}": (lambda e=e: sequences(e)) for e in (".tsv", ".txt", ".csv", ".ts", ".arff", ".npy")
    },
    **{ending: (lambda e=ending: graph(e)) for ending in (".graphml", ".gml", ".gexf", ".net")},
    **{f"graph:{ending}": (lambda e=ending: graph(e)) for ending in (".graphml", ".gml", ".gexf", ".net")},
    **{ending: (lambda e=ending: edge_list(e)) for ending in (".edgelist", ".edges")},
    ".graphml.gz": lambda: (
        packed("z.graphml.gz", Path(graph(".graphml")[1][0]).read_bytes()),
        ["z.graphml.gz"],
    ),
    **dict.fromkeys(("graph:", "graph/"), edge_tables),
    "graph:.npz": graph_archive,
    **dict.fromkeys(("graphs/", "graphs:folder"), tu_folder),
    "graphs:": graph_text,
}


# damages


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(len(content)))]


def turned(content: bytes, rng: np.random.Generator) -> bytes:
    made = bytearray(content)
    for at in rng.integers(len(made), size=int(rng.integers(1, 9))):
        made[at] ^= 1 << int(rng.integers(8))
    return bytes(made)


EXTREMES = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)


def resized(content: bytes, rng: np.random.Generator) -> bytes:
    """A field of 2, 4 or 8 bytes near an end of the file, where sizes are stated, becomes an extreme one."""
    width = int(rng.choice([2, 4, 8]))
    near = int(rng.integers(min(len(content), 160)))
    at = min(near if rng.random() < 0.7 else len(content) - 1 - near, max(0, len(content) - width))
    value = int(rng.choice(np.array(EXTREMES, dtype=object))) % 256**width
    return content[:at] + value.to_bytes(width, rng.choice(["little", "big"])) + content[at + width :]


WORDS = (
    b"100000000000",
    b"-1",
    b"0",
    b"nan",
    b"inf",
    b"1e400",
    b"9" * 400,
    b"x",
    b"",
    b"\xff\xfe",
    b"\0",
    b"'\"",
)


def retyped(content: bytes, rng: np.random.Generator) -> bytes:
    """A number that is written out becomes another, or a word; else some bytes do."""
    numbers = [*re.finditer(rb"-?\d[\d.]*", content)]
    if numbers and rng.random() < 0.8:
        start, end = numbers[int(rng.integers(len(numbers)))].span()
    else:
        start = int(rng.integers(len(content)))
        end = min(len(content), start + int(rng.integers(1, 12)))
    return content[:start] + WORDS[int(rng.integers(len(WORDS)))] + content[end:]


def moved(content: bytes, rng: np.random.Generator) -> bytes:
    """A piece is left out, comes twice, or is overwritten by one from elsewhere."""
    a, b, c = sorted(rng.integers(len(content) + 1, size=3).tolist())
    return (content[:a] + content[b:], content[:b] + content[a:], content[:a] + content[b:c] + content[b:])[
        int(rng.integers(3))
    ]


DAMAGES = (cut, turned, resized, retyped, moved)


def repacked(path: str, content: bytes, change: Callable[[bytes], bytes], rng: np.random.Generator) -> bytes:
    """Damage behind a checksum, in packed text, a member of an archive, a chunk of a picture, anywhere."""
    if path.endswith(".gz"):
        return gzip.compress(change(gzip.decompress(content)), mtime=0)
    if path.endswith(".npz"):
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
            chosen = old.namelist()[int(rng.integers(len(old.namelist())))]
            for name in old.namelist():
                new.writestr(name, change(old.read(name)) if name == chosen else old.read(name))
        return made.getvalue()
    if path.endswith(".png"):
        size = int.from_bytes(content[33:37], "big")
        body = change(content[16:29]) if rng.random() < 0.5 else content[16:29]
        if len(body) != 13 or 41 + size > len(content):
            return change(content)
        data = content[41 : 41 + size]
        data = zlib.compress(change(zlib.decompress(data))) if body == content[16:29] else data
        chunks = [(b"IHDR", body), (b"IDAT", data), (b"IEND", b"")]
        return content[:8] + b"".join(
            struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
            for kind, part in chunks
        )
    return change(content)


# the outcome


@pytest.fixture
def limited() -> Iterator[None]:
    """A limit of address space a little above what the process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def check(data: Data) -> None:
    """Every part has examples; those that are taken first are finite and as many as were asked for."""
    assert data.splits["train"] is not None
    for part in data.splits.values():
        assert len(part) > 0
        index = torch.arange(min(4, len(part)))
        batch = part.take(index, Generator().manual_seed(0))
        tensors = [one for one in (*batch.inputs, batch.targets) if isinstance(one, Tensor)]
        assert tensors
        for one in tensors:
            assert bool(one.isfinite().all()) if one.is_floating_point() else one.dtype != torch.float16
    assert all(bool(one.isfinite().all()) for one in data.preprocess.buffers())


def test_every_format_has_a_sample() -> None:
    assert set(FORMATS) <= set(SAMPLES), sorted(set(FORMATS) - set(SAMPLES))
    assert len(set(FORMATS)) * CASES >= 1464


def damaged(path: str, case: int, rng: np.random.Generator) -> bytes:
    """Other content than the file has."""
    content, damage = Path(path).read_bytes(), DAMAGES[case % len(DAMAGES)]
    change = lambda old: damage(old, rng)
    made = content
    while made == content:
        made = change(content) if case % 2 else repacked(path, content, change, rng)
    return made


def well_formed(examples: TargetedExamples) -> None:
    batch = examples.take(torch.arange(min(4, len(examples))), Generator().manual_seed(0))
    assert all(bool(one.isfinite().all()) for one in batch.inputs if one.is_floating_point())


def predicted(source: str, encoding: dict[str, Any], where: str) -> list[str]:
    """What refuses new data by the record of a run; none where they are well-formed."""
    try:
        well_formed(opening.encode(source, encoding))
    except (ValueError, FileNotFoundError) as error:  # what the command line says in one line
        return [str(error)]
    except BaseException as error:
        raise AssertionError(f"{where}, predicted") from error
    return []


@pytest.mark.parametrize("name", dict.fromkeys(FORMATS))
def test_a_damaged_file_is_read_or_refused_in_one_line(name, tmp_path, monkeypatch, capfd, limited) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[Data] = []
    monkeypatch.setattr(
        opening, "open_data", lambda *given, kept=opening.open_data: seen.append(kept(*given)) or seen[-1]
    )
    source, files = SAMPLES[name]()
    words = ["data", "show", *source.split()]
    assert main(words) == 0, capfd.readouterr().err
    check(data := seen.pop())
    encoding = json.loads(json.dumps(data.encoding))
    well_formed(opening.encode(words[2], encoding))
    capfd.readouterr()
    run = 0
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for case in range(CASES):
        path = files[int(rng.integers(len(files)))]
        content = Path(path).read_bytes()
        Path(path).write_bytes(damaged(path, case, rng))
        where = f"case {case} of {name}: {DAMAGES[case % len(DAMAGES)].__name__} of {path}"
        begun, run = time.monotonic(), run + 1
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                status = main(words)
            except BaseException as error:
                raise AssertionError(where) from error
            foreseen = predicted(words[2], encoding, where) if case % 10 == len(name) % 10 else []
        told = capfd.readouterr().err.splitlines()
        Path(path).write_bytes(content)
        assert not warned, f"{where}: {warned[0].message}"
        assert time.monotonic() - begun < SLOW, where
        named = {Path(path).name, Path(words[2].partition(":")[2] or words[2]).name}
        for one in foreseen:
            assert "\n" not in one, f"{where}: {one}"
            assert any(name in one for name in named), f"{where}: {one}"
        if status == 0:
            check(seen.pop())
            assert not told, f"{where}: {told}"
        else:
            assert status == 2, f"{where}: {told}"
            assert len(told) == 1, f"{where}: {told}"
            assert any(one in told[0] for one in named), f"{where}: {told}"
    assert run == CASES
