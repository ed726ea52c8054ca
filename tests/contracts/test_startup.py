"""What loads when: the tables, the help and every message about a wrong name load no torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

HEAVY = ("torch", "numpy", "matplotlib", "sklearn", "polars", "scipy", "pandas", "jinja2")


def loaded(*codes: str) -> list[set[str]]:
    """The heavy modules that come into a fresh interpreter with each of some pieces of code, in turn."""
    news = f"print('NEW', *sorted({{m for m in {HEAVY!r} if m in sys.modules}} - seen), file=sys.stderr)"
    note = f"{news}; seen |= set(sys.modules)"
    text = "\n".join(["import sys; seen = set()", *(f"{code}\n{note}" for code in codes)])
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return [set(line.split()[1:]) for line in done.stderr.splitlines() if line.split()[:1] == ["NEW"]]


LIGHT = (
    "import margin",
    "import margin; margin.models(), margin.claims(), margin.rules(), margin.parts()",
    "from margin.cli import main; main(['--help'])",
    "from margin.cli import main; main(['models'])",
    "from margin.cli import main; main(['list'])",
    "from margin.cli import main; main(['list', '--kind', 'claim'])",
    "from margin.cli import main; main(['data'])",
    "from margin.cli import main; main(['train', '--help'])",
    "from margin.cli import main; assert main(['train', 'lenet6', 'digits']) == 2",
    "from margin.cli import main; assert main(['train', 'lenet5', 'digits', '--rule', 'nothing']) == 2",
    "from margin.cli import main; assert main(['train', 'lenet5', 'digitz']) == 2",
    "from margin.cli import main; assert main(['tarin']) == 2",
    "from margin.cli import main; main(['exercise'])",
    "from margin.cli import main; main(['exercise', 'ridge'])",
    "from margin.cli import main; assert main(['exercise', 'rigde']) == 2",
    "from margin.cli import main; assert main(['exercise', 'ridge', 'none.py']) == 2",
)
"""Code that waits for no heavy module."""


@pytest.fixture(scope="module")
def brought() -> dict[str, set[str]]:
    """What each piece of code brings, all in one interpreter: what it has none of, none has brought."""
    return dict(zip(LIGHT, loaded(*LIGHT), strict=True))


@pytest.mark.parametrize("code", LIGHT)
def test_no_torch_is_loaded(code: str, brought: dict[str, set[str]]) -> None:
    assert brought[code] == set()


WAITING = """
import io, sys
from margin.cli import main

class Terminal(io.StringIO):
    def isatty(self):
        return True

    def write(self, text):
        for name, modules in {"reading": ("torch", "numpy"), "building": ("torch._dynamo",)}.items():
            if text.startswith(("", "\\r\\x1b[2K")[name == "building"] + name):
                print(name, *(module for module in modules if module in sys.modules))
        return super().write(text)

sys.stderr = Terminal()
main(["train", "mlp", "two-moons", "--max-steps", "0", "--out", sys.argv[1]])
"""


def test_a_terminal_says_what_is_waited_for_before_it_loads(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITING, str(tmp_path / "r")]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert [line.strip() for line in done.stdout.splitlines()[:2]] == ["reading", "building"]  # and no module


OWN_CODE = """
ours = {name: module for name, module in sys.modules.items() if name.startswith("margin.")}
print(*[name for name, module in ours.items() if not hasattr(module, "__path__")])
"""
"""Prints the modules of ours that are loaded, but for packages, which hold tables or nothing."""

TRAINING = """
import io, sys
from margin.cli import main

class Pipe(io.StringIO):
    def write(self, text):
        if text.strip():
            print(text.strip(), "torch._dynamo" in sys.modules, sep="|")
        return super().write(text)

sys.stderr = Pipe()
words = "train mlp iris.csv --task classes --model.hidden 8 --max-steps 1 --out run"
main(words.split())
"""
AUDITING = """
import sys
from margin.cli import main

main(["audit", "run", "--claims", "risk.accuracy"])
"""


def printed(code: str, folder: Path) -> list[str]:
    """The lines that a fresh interpreter prints in a folder, the last of which are the modules of ours."""
    command = [sys.executable, "-c", code + OWN_CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a table is, and once it was asked for a run on it."""
    place = tmp_path_factory.mktemp("startup")
    load_iris(as_frame=True).frame.to_csv(place / "iris.csv", index=False)
    return place


@pytest.fixture(scope="module")
def training(folder: Path) -> list[str]:
    """The lines that a training on the table prints."""
    return printed(TRAINING, folder)


def test_a_pipe_reads_what_is_trained_before_the_optimizer_loads_the_compiler(training: list[str]) -> None:
    """Four inputs, a layer of 8, three classes: 4 * 8 + 8 + 8 * 3 + 3 numbers."""
    assert training[0] == "feedforward/mlp on iris.csv: 67 parameters|False"
    assert training[1].endswith("|True")  # this test would see the compiler


def loaded_of(modules: str, *begins: str) -> list[str]:
    """The modules of a line that have such a name, or lie in a package of it."""
    return [name for name in modules.split() if f"{name}.".startswith(tuple(f"{begin}." for begin in begins))]


def test_a_training_imports_what_it_uses(training: list[str]) -> None:
    """It changes no example, draws no sample and asks no claim."""
    idle = (
        "auditing",
        "theory",
        "robust",
        "data.transforms.augmentation",
        "data.formats.audio",
        "runs.sampling",
    )
    assert loaded_of(training[-1], *(f"margin.{name}" for name in idle)) == []
    assert 60 < len(training[-1].split()) <= 95


IDLE = (
    *("auditing.subject.subjects", "auditing.subject.probing", "auditing.subject.other_source"),
    *(
        "data.formats.objects",
        "data.formats.audio",
        "data.sampling.curriculum",
        "data.transforms.augmentation",
    ),
    *("engine.transfer", "engine.hooks", "runs.sampling", "runs.training", "robust"),
    *(
        "theory.behavior",
        "theory.bounds",
        "theory.curvature",
        "theory.dynamics",
        "theory.prediction.baselines",
    ),
)
"""What a stranger's module is probed by, what changes data, trains and draws, and what other claims ask."""


def test_an_audit_of_one_question_imports_what_it_uses(folder: Path, training: list[str]) -> None:
    modules = printed(AUDITING, folder)[-1]
    assert "margin.theory.prediction.risk" in modules.split()
    assert loaded_of(modules, *(f"margin.{name}" for name in IDLE)) == []
    assert 60 < len(modules.split()) <= 122


def test_loading_a_run_loads_no_report() -> None:
    (modules,) = loaded("import margin.runs.training")
    assert "torch" in modules
    assert modules & {"matplotlib", "sklearn", "polars", "jinja2"} == set()


def test_a_worker_that_fits_an_estimator_loads_no_reader_of_tables_and_no_report() -> None:
    """What each process of ``n_jobs`` pays for is torch and scikit-learn, which itself may load pandas."""
    code = (
        "from margin import MarginRegressor; MarginRegressor('ridge').fit([[0.0], [1.0], [3.0]], [0, 1, 2])"
    )
    (modules,) = loaded(code)
    assert "sklearn" in modules
    assert modules & {"matplotlib", "polars", "jinja2"} == set()
