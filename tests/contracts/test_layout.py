"""The house keeps its budgets, its arrows and its reading sets."""

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
FILES = sorted((SOURCE / "margin").rglob("*.py"))
BODY, PARAMETERS, CONSTRUCTOR, CLASS, FILE = 40, 7, 10, 150, 300
NAMELESS = {"utils", "util", "common", "helpers", "misc", "base"}
ARROWS = (
    {"types", "tasks", "findings", "catalog", "options", "hints"},
    {"foundations"},
    {"nn", "optim", "data"},
    {"engine"},
    {"theory"},
    {"robust"},
    {"classic", "feedforward", "vision", "sequence", "text", "geometric", "generative", "bayes"},
    {"using", "sampling"},
    {"filming"},
    {"training", "auditing", "exporting", "exporting_onnx"},
    {"estimators", "testing"},
    {"cli"},
)
AREAS = ARROWS[6]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


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
    path = SOURCE.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "margin":
            candidates = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = {name_of(file) for file in FILES}
            found |= {c if c in modules else node.module for c in candidates}
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


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.name == "__init__.py" and p.parent.name not in ("margin", "cli")],
    ids=name_of,
)
def test_a_table_imports_only_the_catalog(path: Path) -> None:
    assert imports_of(name_of(path)) <= {"margin.catalog"}
    for node in tree_of(path).body:
        assert not isinstance(node, ast.FunctionDef | ast.ClassDef)


def closure(name: str) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for other in imports_of(waiting.pop()) - seen:
            seen.add(other)
            waiting.append(other)
    return seen - {name}


def model_files() -> list[str]:
    from margin.catalog import models

    return sorted({entry.build.partition(":")[0] for entry in models().values()})


@pytest.mark.parametrize("name", model_files())
def test_a_model_is_read_in_few_files(name: str) -> None:
    assert len(imports_of(name)) <= 4, sorted(imports_of(name))
    reading = {other for other in closure(name) if level(other) > 0}
    assert len(reading) <= 10, sorted(reading)


def test_every_source_file_has_its_tests() -> None:
    tests = Path(__file__).parents[1]
    rooms = {p.parent.name for p in FILES if p.parent.name not in ("margin",)}
    missing = [room for room in rooms if not list((tests / room).glob("test_*.py"))]
    assert not missing
