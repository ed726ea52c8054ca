"""What loads when: the tables, the help and every message about a wrong name load no torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "numpy", "matplotlib", "sklearn", "polars", "scipy", "pandas", "jinja2")


def loaded(code: str) -> set[str]:
    """The heavy modules that a fresh interpreter holds after ``code``."""
    tail = f"import sys; print(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tail}"], capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
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
    ],
)
def test_no_torch_is_loaded(code: str) -> None:
    assert loaded(code) == set()


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


ANNOUNCING = """
import io, sys
from margin.cli import main

class Pipe(io.StringIO):
    def write(self, text):
        if text.strip():
            print(text.strip(), "torch._dynamo" in sys.modules, sep="|")
        return super().write(text)

sys.stderr = Pipe()
main(["train", "mlp", "two-moons", "--model.hidden", "8", "--max-steps", "0", "--out", sys.argv[1]])
"""


def test_a_pipe_reads_what_is_trained_before_the_optimizer_loads_the_compiler(tmp_path: Path) -> None:
    """Two inputs, a layer of 8, two classes: 2 * 8 + 8 + 8 * 2 + 2 numbers."""
    command = [sys.executable, "-c", ANNOUNCING, str(tmp_path / "r")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()[:2]
    assert first == "feedforward/mlp on two-moons: 42 parameters|False"
    assert second.endswith("|True")  # this test would see the compiler


def test_loading_a_run_loads_no_report() -> None:
    assert loaded("import margin.runs.training") & {"matplotlib", "sklearn", "polars", "jinja2"} == set()


def test_a_worker_that_fits_an_estimator_loads_no_reader_of_tables_and_no_report() -> None:
    """What each process of ``n_jobs`` pays for is torch and scikit-learn, which itself may load pandas."""
    code = (
        "from margin import MarginRegressor; MarginRegressor('ridge').fit([[0.0], [1.0], [3.0]], [0, 1, 2])"
    )
    assert loaded(code) & {"matplotlib", "polars", "jinja2"} == set()
