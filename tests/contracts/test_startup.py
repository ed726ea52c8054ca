"""What loads when: the tables, the help and every message about a wrong name load no torch."""

import subprocess
import sys

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
    ],
)
def test_no_torch_is_loaded(code: str) -> None:
    assert loaded(code) == set()


def test_loading_a_run_loads_no_report() -> None:
    assert loaded("import margin.runs.training") & {"matplotlib", "sklearn", "polars", "jinja2"} == set()


def test_a_worker_that_fits_an_estimator_loads_no_reader_of_tables_and_no_report() -> None:
    """What each process of ``n_jobs`` pays for is torch and scikit-learn, which itself may load pandas."""
    code = (
        "from margin import MarginRegressor; MarginRegressor('ridge').fit([[0.0], [1.0], [3.0]], [0, 1, 2])"
    )
    assert loaded(code) & {"matplotlib", "polars", "jinja2"} == set()
