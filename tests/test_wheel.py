"""The wheel as pip installs it: every file of the package, commands that run far from a checkout.

It is built without the network, by hatchling, which the extra ``test`` brings. The environment that it is
installed into is empty but for what margin depends on, which is lent by the one that runs the tests.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
LENT = sysconfig.get_path("purelib")
NUMBERS = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")

pytestmark = pytest.mark.skipif(
    not (find_spec("hatchling") and find_spec("pip")),
    reason="building a wheel offline needs hatchling and pip",
)


def run(*words: str | Path, cwd: Path, **more: str) -> str:
    """What a command prints where nothing of the checkout is on any path."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=kept | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    offline = {"PIP_NO_INDEX": "1"} | ({"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {})
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    run(*PIP, *build, cwd=folder, **offline)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it, and the libraries that it needs behind it."""
    place = tmp_path_factory.mktemp("new") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=place.parent)
    run(*PIP, "--python", place / "bin" / "python", "install", "--no-index", "--no-deps", wheel, cwd=place)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{LENT}\n")  # its own .pth files, as of an editable margin, are not read
    return place


def test_every_file_of_the_package_is_in_it_and_nothing_else(wheel: Path) -> None:
    folder = ROOT / "src" / "margin"
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {str(path.relative_to(folder.parent)) for path in files}
    assert {"margin/py.typed", "margin/auditing/report/report.html.jinja"} <= names


# seven seconds: a wheel is built, and a training run from it
def test_it_runs_without_the_checkout(environment: Path, tmp_path: Path) -> None:
    margin = environment / "bin" / "margin"
    python = environment / "bin" / "python"
    place = run(python, "-c", "import margin; print(margin.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(environment)
    assert run(margin, "--version", cwd=tmp_path).startswith("margin 0")
    assert "commands:" in run(margin, "--help", cwd=tmp_path)
    assert "classic/perceptron" in run(margin, "models", cwd=tmp_path)
    told = run(margin, "train", "multiclass_perceptron", "iris", "--epochs", "1", "--out", "r", cwd=tmp_path)
    assert "run in r" in told
    assert "holds" in run(margin, "claims", "perceptron.novikoff", cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run(margin, "audit", tmp_path / "r", "--claims", "risk", "--out", "a", cwd=elsewhere)
    page = (elsewhere / "a" / "report.html").read_text()  # the template and its style sheet were found
    assert "<style>" in page
    assert "iris" in page


@pytest.mark.parametrize("number", NUMBERS)
def test_what_needs_no_torch_runs_under_each_python(number: str, wheel: Path, tmp_path: Path) -> None:
    python = interpreter(number)
    if python is None:
        pytest.skip(f"there is no Python {number} on this machine")
    target = tmp_path / "site"
    run(*PIP, "install", "--no-index", "--no-deps", "--no-compile", "--target", target, wheel, cwd=tmp_path)
    paths: Mapping[str, str] = {"PYTHONPATH": f"{target}{os.pathsep}{LENT}"}
    run(python, "-m", "compileall", "-q", target, cwd=tmp_path)
    for words, said in {
        ("--help",): "commands:",
        ("models",): "classic/perceptron",
        ("list", "--kind", "claim"): "classic/perceptron.novikoff",
        ("data",): "iris",
        ("train", "--help"): "margin train MODEL DATA",
    }.items():
        assert said in run(python, "-W", "error", "-m", "margin", *words, cwd=tmp_path, **paths)


def interpreter(number: str) -> Path | None:
    """The Python of that version on the path, or of pyenv's."""
    if number == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{number}"), *versions.glob(f"{number}.*/bin/python{number}")]
    for path in filter(None, found):
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=False
        )  # a shim fails
        if asked.stdout.startswith(f"Python {number}."):
            return Path(path)
    return None
