"""The house keeps its budgets, its arrows, its two storeys and its reading sets."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
FILES = sorted((SOURCE / "margin").rglob("*.py"))
BODY, PARAMETERS, CONSTRUCTOR, CLASS, FILE = 40, 7, 10, 150, 400
LEAST = 60
"""Lines of a file at least, docstrings counted: a smaller one is merged with its neighbor."""

ENTRIES = 15
"""Files and folders in a folder at most, beside its ``__init__.py``."""

TABLE = 250
"""Lines of a table of rows at most."""

LONG_TABLES = {"margin.data": 378}
"""Tables that are longer."""

NAMELESS = {"utils", "util", "common", "helpers", "misc", "base"}
AREAS = {"classic", "feedforward", "vision", "sequence", "text", "geometric", "generative", "bayes"}
ARROWS = (
    {"core"},
    {"math"},
    {"nn", "optim", "figures"},
    {"data"},
    {"engine"},
    {"theory"},
    {"robust"},
    AREAS,
    {"runs", "auditing"},
    {"sklearn", "metrics", "testing"},
    {"cli"},
)

# What is not in order yet. A number that has become smaller is lowered here; none may grow.

CROWDED = {"margin": 25}
"""Folders with more than 15 entries, and how many they have: the root has rooms and faces."""

THIN = {
    "classic": 1,
    "data": 1,
    "generative": 1,
    "optim": 1,
    "sequence": 1,
    "vision": 1,
}
"""Files of less than 60 lines that fewer than two families import, by room."""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in FILES}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def documented(node: ast.AST) -> int:
    """Lines of the docstring of a module, class or function."""
    body = getattr(node, "body", [])
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[0].end_lineno - body[0].lineno + 1
    return 0


def docstring_lines(tree: ast.AST) -> int:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(documented(node) for node in ast.walk(tree) if isinstance(node, kinds))


def excused(path: Path, node: ast.AST) -> bool:
    """Whether a comment directly above or inside the signature says why a budget is exceeded."""
    lines = path.read_text().splitlines()
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    last = node.body[0].lineno - 1
    return any("#" in line for line in lines[max(0, first - 1) : last])


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_keeps_its_budgets(path: Path) -> None:
    tree = tree_of(path)
    assert path.stem not in NAMELESS
    assert ast.get_docstring(tree), f"{path} has no docstring"
    if path.name != "__init__.py":  # a table is as long as it has rows
        assert len(path.read_text().splitlines()) - docstring_lines(tree) <= FILE
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno - node.lineno + 1 - docstring_lines(node) <= CLASS, f"{path}: {node.name}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            check_function(path, node)


def check_function(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    arguments = node.args
    count = len(
        [
            a
            for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            if a.arg not in ("self", "cls")
        ]
    )
    start = node.body[0].lineno + documented(node)
    body = node.end_lineno - start + 1
    if not excused(path, node):
        assert body <= BODY, f"{path}:{node.lineno} {node.name} has a body of {body} lines"
        limit = CONSTRUCTOR if node.name == "__init__" else PARAMETERS
        assert count <= limit, f"{path}:{node.lineno} {node.name} has {count} parameters"
    assert node.name.startswith("_") or arguments.kwarg is None, (
        f"{path}:{node.lineno} {node.name} takes **kwargs"
    )


@cache
def imports_of(name: str) -> frozenset[str]:
    """The modules of ours that a module names in an import, at its top or inside a function."""
    found = set()
    for node in ast.walk(tree_of(MODULES[name])):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "margin":
            candidates = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {c if c in MODULES else node.module for c in candidates}
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] == "margin"}
    return frozenset(found - {"margin"})


def level(name: str) -> int:
    room = name.split(".")[1]
    return next(i for i, rooms in enumerate(ARROWS) if room in rooms)


@pytest.mark.parametrize(
    "path", [p for p in FILES if name_of(p) not in ("margin", "margin.__main__")], ids=name_of
)
def test_arrows_point_left(path: Path) -> None:
    name = name_of(path)
    for other in imports_of(name):
        assert level(other) <= level(name), f"{name} imports {other}"
        ours, theirs = name.split(".")[1], other.split(".")[1]
        if ours in AREAS and theirs in AREAS:
            assert ours == theirs, f"the area {ours} imports the area {theirs}"


def folder_of(name: str) -> str:
    return name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]


def circles() -> dict[tuple[str, str], int]:
    """The imports between folders that lie on a circle of folders, counted; those of the root left out."""
    arrows = Counter(
        (folder_of(name), folder_of(other))
        for name in MODULES
        for other in imports_of(name)
        if folder_of(name) != folder_of(other) and "margin" not in (folder_of(name), folder_of(other))
    )
    ahead: dict[str, set[str]] = {}
    for one, other in arrows:
        ahead.setdefault(one, set()).add(other)

    def reached(folder: str) -> set[str]:
        seen, waiting = set(), [folder]
        while waiting:
            for other in ahead.get(waiting.pop(), set()) - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    return {arrow: count for arrow, count in sorted(arrows.items()) if arrow[0] in reached(arrow[1])}


def test_folders_import_each_other_one_way() -> None:
    assert not circles()


def entries_of(folder: Path) -> int:
    return len([p for p in folder.iterdir() if p.name not in ("__init__.py", "__pycache__")])


def test_a_folder_is_seen_at_a_glance() -> None:
    folders = {path.parent for path in FILES}
    crowded = {name_of(folder): count for folder in folders if (count := entries_of(folder)) > ENTRIES}
    assert crowded == CROWDED


def is_thin(name: str) -> bool:
    """Whether a file is small and serves no two families."""
    path = MODULES[name]
    # the figures of a family are found by their file's name, however few
    if (
        path.name in ("__init__.py", "__main__.py", "figures.py")
        or len(path.read_text().splitlines()) >= LEAST
    ):
        return False
    return len({folder_of(other) for other in MODULES if name in imports_of(other)}) < 2


def test_a_file_is_worth_opening() -> None:
    thin = [name for name in MODULES if is_thin(name)]
    found = Counter(name.split(".")[1] for name in thin)
    assert found == THIN, f"less than {LEAST} lines, merge with a neighbor of the family: one of {thin}"


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.name == "__init__.py" and p.parent.name not in ("margin", "cli")],
    ids=name_of,
)
def test_a_table_is_short_and_imports_only_the_catalog_and_what_its_area_shares(path: Path) -> None:
    assert imports_of(name_of(path)) <= {"margin.core.catalog", name_of(path).rpartition(".")[0]}
    assert len(path.read_text().splitlines()) <= LONG_TABLES.get(name_of(path), TABLE)
    for node in tree_of(path).body:
        assert not isinstance(node, ast.FunctionDef | ast.ClassDef)


def test_no_private_name_is_imported() -> None:
    taken = [
        f"{name}: {node.module}.{alias.name}"
        for name, path in MODULES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "margin"
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert not taken


def closure(name: str) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for other in imports_of(waiting.pop()) - seen:
            seen.add(other)
            waiting.append(other)
    return seen - {name}


def model_files() -> list[str]:
    from margin.core.catalog import models

    return sorted({entry.build.partition(":")[0] for entry in models().values()})


@pytest.mark.parametrize("name", model_files())
def test_a_model_is_read_in_few_files(name: str) -> None:
    assert len(imports_of(name)) <= 4, sorted(imports_of(name))
    reading = {other for other in closure(name) if level(other) > 0}
    assert len(reading) <= 10, sorted(reading)


def test_every_folder_has_its_tests() -> None:
    tests = Path(__file__).parents[1]
    root = SOURCE / "margin"
    # a folder that holds folders alone is tested in them
    rooms = {p.parent.relative_to(root) for p in FILES if p.name != "__init__.py" and p.parent != root}
    missing = [room for room in rooms if not list((tests / room).glob("test_*.py"))]
    assert not missing


def test_tests_mirror_the_source() -> None:
    tests = Path(__file__).parents[1]
    folders = {p.parent for p in tests.rglob("test_*.py")} - {tests, tests / "contracts", tests / "unhooked"}
    # a package of tests holds cases of its own
    odd = [
        f
        for f in folders
        if not ((SOURCE / "margin" / f.relative_to(tests)).is_dir() or (f / "__init__.py").exists())
    ]
    assert not odd
