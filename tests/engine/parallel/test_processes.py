"""Two processes train what one trains: weights, metrics, checkpoints; what is drawn has the same law."""

import contextlib
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.parallel import rule_server
from engine.parallel.process_server import DIVIDED, draws, normalizes, parallel
from margin.cli import main
from margin.core.options import Training
from margin.data.examples import Arrays, Share
from margin.engine.parallel.launching import _sendable
from margin.engine.runs import Run
from margin.runs.training import load, prepare
from margin.runs.verbs import train

SERVER = Path(__file__).with_name("process_server.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
PATIENCE = 600
"""Seconds after which a process hangs, whatever else the machine computes."""
CHANGED = ("pieces", "fewer-than-processes", "weighted", "fsdp", "fsdp-nested", "fsdp-images")


# a minute, once for 150 tests: one process trains every entry, then two together do
@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("processes")
    paths = [str(SERVER.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, str(SERVER), str(directory)], check=True, timeout=1200, env=environment)
    return directory


def gap(one: Path, other: Path) -> float:
    """The largest difference between any two numbers of two runs' last weights."""
    a, b = load(one, "last").state_dict(), load(other, "last").state_dict()
    assert list(a) == list(b)
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def moved(run: Path) -> float:
    first, last = load(run, "initial").state_dict(), load(run, "last").state_dict()
    return max(float((first[name] - last[name]).abs().max()) for name in first)


@pytest.mark.parametrize("name", parallel())
def test_two_processes_leave_the_weights_and_metrics_of_one(made: Path, name: str) -> None:
    """But for a model that normalizes over the batch or draws while it trains, which is asked anew here."""
    if name in json.loads((made / DIVIDED).read_text()):
        check_the_same(made, name.replace("/", "-"))
    else:
        assert normalizes(name) or draws(name)


@pytest.mark.parametrize("case", CHANGED)
def test_two_processes_repeat_a_training_of_other_options(made: Path, case: str) -> None:
    check_the_same(made, case)


def check_the_same(made: Path, case: str) -> None:
    one, two = made / f"by-1-{case}", made / f"by-2-{case}"
    assert moved(one) > 1e-3
    assert gap(one, two) <= 1e-10
    assert Run(two).metrics == pytest.approx(Run(one).metrics, rel=1e-10)
    rows = [Run(path).history for path in (one, two)]
    assert [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]]
    for ours, theirs in zip(*rows, strict=True):
        for name in ("train_loss", "train_grad_norm", "val_loss"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-9), name


@pytest.mark.parametrize("case", ["feedforward-mlp", "fsdp"])
def test_a_checkpoint_has_one_layout_whatever_the_number_of_processes(made: Path, case: str) -> None:
    from safetensors import safe_open

    layouts = []
    for count in (1, 2):
        with safe_open(Run(made / f"by-{count}-{case}").checkpoint("last"), "pt") as file:
            layouts.append({name: file.get_slice(name).get_shape() for name in file.keys()})  # noqa: SIM118
    assert layouts[0] == layouts[1]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_runs_resume_with_another_number_of_processes(made: Path, strategy: str) -> None:
    by_two, by_one = made / f"begun-by-1-{strategy}", made / f"begun-by-2-{strategy}"
    assert Run(by_two).checkpoints["last"] == Run(by_one).checkpoints["last"] == 12
    assert gap(by_one, by_two) <= 1e-10
    assert Run(by_one).record["arguments"]["training"]["processes"] == 1
    assert [row["step"] for row in Run(by_one).history] == [row["step"] for row in Run(by_two).history]


@pytest.mark.parametrize("case", rule_server.CASES)
def test_two_processes_repeat_a_training_under_a_rule(made: Path, case: str) -> None:
    one, two = (made / "rules" / f"by-{count}-{case}" for count in (1, 2))
    assert moved(one) > 1e-3
    assert gap(one, two) <= 1e-10


def test_rules_that_cannot_be_spread_say_so(made: Path) -> None:
    messages = (made / "rules" / "refused").read_text().splitlines()
    assert messages[0] == "newton takes a batch in one process: processes must be 1, got 2"
    for rule, message in zip(("gradient_flow", "entropy_sgd", "continuation"), messages[1:], strict=True):
        assert message == f"{rule} needs whole weights: set --strategy ddp, got shares of them (fsdp)"


def measured(made: Path, count: int, rank: int) -> dict:
    return json.loads((made / f"numbers-{count}-{rank}.json").read_text())


def by_hand(weight: torch.Tensor) -> list[float]:
    """Four clipped gradient steps on batches of 4, 4, 3 in the order that one process takes."""
    from margin.data.examples import Shuffled

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1, dtype=torch.float64)
    x = torch.randn(11, 3, dtype=torch.float64)
    A = torch.cat([x, torch.ones(11, 1, dtype=torch.float64)], 1)
    w = torch.cat([model.weight.detach()[0], model.bias.detach()])
    order = Shuffled(Arrays((torch.arange(11),)), 4, seed=0)
    for step in range(4):
        index = order(step).inputs[0]
        residual = A[index] @ w - x[index].sum(1)
        gradient = 2 * A[index].T @ (weight[index] * residual) / weight[index].sum()
        norm = float(gradient.norm())
        w = w - 0.1 * gradient * min(1.0, 0.3 / (norm + 1e-6))
    return w.tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_a_step_without_an_objective_averages_its_gradients(made: Path, count: int) -> None:
    weight = torch.tensor([0.0, 1, 2, 3, 0, 1, 0, 0, 0, 0, 5], dtype=torch.float64)
    for rank in range(count):
        numbers = measured(made, count, rank)
        assert numbers["by hand"] == pytest.approx(by_hand(torch.ones_like(weight)), abs=1e-12)
        assert numbers["by hand, weighted"] == pytest.approx(by_hand(weight), abs=1e-12)


def test_an_evaluation_counts_every_example_once(made: Path) -> None:
    terms = [(i % 3, i * i) for i in range(1003)]
    mean = sum(w * v for w, v in terms) / sum(w for w, _ in terms)
    for count, rank in ((1, 0), (2, 0), (2, 1)):
        assert measured(made, count, rank)["evaluated"]["mse"] == pytest.approx(mean, rel=1e-12)


def test_what_is_drawn_has_the_law_of_one_process(made: Path) -> None:
    one, two = (measured(made, count, 0)["first losses"] for count in (1, 2))
    assert one != two
    spread = math.hypot(statistics.stdev(one), statistics.stdev(two)) / math.sqrt(len(one))
    # |z| > 4 has probability 6e-5
    assert abs(statistics.fmean(one) - statistics.fmean(two)) < 4 * spread


def test_each_process_draws_its_own_noise(made: Path) -> None:
    first, second = (measured(made, 2, rank)["masks"] for rank in (0, 1))
    assert first == measured(made, 1, 0)["masks"]
    assert first != second


def test_the_norm_of_a_gradient_in_shares_is_the_whole_ones(made: Path) -> None:
    for count, rank in ((1, 0), (2, 0), (2, 1)):
        assert measured(made, count, rank)["sharded norm"] == pytest.approx(21 * math.sqrt(6), rel=1e-12)


def test_shares_of_a_batch_are_its_examples_once_each() -> None:
    examples = Arrays((torch.arange(10),), weight=torch.arange(10.0))
    index = torch.tensor([7, 2, 9, 4, 1])
    taken = [Share(rank, 2).take(examples, index, torch.Generator()) for rank in (0, 1)]
    assert torch.cat([batch.inputs[0] for batch in taken]).tolist() == index.tolist()
    fillers = [Share(rank, 8).take(examples, index, torch.Generator()) for rank in range(8)]
    assert [batch.weight.sum().item() for batch in fillers] == [7, 2, 9, 4, 1, 0, 0, 0]
    assert all(len(batch.inputs[0]) == 1 for batch in fillers)


# how it ends


MARGIN = (sys.executable, "-m", "margin")


def ran(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=ENVIRONMENT, check=False
    )


@contextlib.contextmanager
def endless(run: Path) -> Iterator[subprocess.Popen]:
    """A training by two processes that has saved a checkpoint and would go on."""
    words = ("--max-steps", "1000000", "--patience", "0", "--processes", "2", "--out", str(run))
    with subprocess.Popen(
        [*MARGIN, "train", "mlp", "two-moons", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    ) as process:
        until_saved(run, process)
        yield process


def until_saved(run: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (run / "checkpoints.json").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, f"no checkpoint after {PATIENCE} s"
        time.sleep(0.05)


def workers(process: subprocess.Popen) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [pid for pid in map(int, children) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


# ten seconds: three processes are started, one is killed, and the others must notice
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the children of a process from /proc")
def test_a_killed_worker_ends_the_run_with_one_line_and_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with endless(run) as process:
        os.kill(workers(process)[1], signal.SIGKILL)
        _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    last = told.strip().splitlines()[-1]
    assert last == f"margin: process 1 of 2 was ended by SIGKILL; go on with margin train --resume {run}"
    assert "Traceback" not in told
    done = Run(run).checkpoints["last"]
    assert main(["train", "--resume", str(run), "--max_steps", str(done + 3), "--processes", "1"]) == 0
    assert Run(run).checkpoints["last"] == done + 3


def runs(pid: int) -> bool:
    """Whether a process does anything yet: one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# eight to sixteen seconds: processes are started and orphaned, and must end by themselves
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the children of a process from /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_process_that_started_them(
    tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with endless(run) as process:
        begun = workers(process)
        assert main(["train", "--resume", str(run)]) == 2
        assert f"{run} is being trained by process {process.pid} on " in capsys.readouterr().err
        os.kill(process.pid, number)
        process.communicate(timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while any(runs(pid) for pid in begun):
        assert time.monotonic() < deadline, "the workers went on"
        time.sleep(0.05)
    done = Run(run).checkpoints["last"]
    one = ["--processes", "1"] if number == signal.SIGTERM else []  # else by two, as it was begun
    assert main(["train", "--resume", str(run), "--max_steps", str(done + 300), *one]) == 0
    steps = [row["step"] for row in Run(run).history]
    assert steps == sorted(set(steps))  # nobody wrote beside
    assert Run(run).checkpoints["last"] == steps[-1] == done + 300
    assert not [path.name for path in run.iterdir() if path.suffix == ".new" or path.name == "lock"]


# ten seconds: a command with two processes, interrupted, and the run gone on with
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with endless(run) as process:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process gets it
        _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert re.search(rf"interrupted; saved after \d+ of 1000000 steps: .* --resume {run}$", told.strip())
    steps = int(re.search(r"saved after (\d+)", told)[1])
    assert Run(run).checkpoints == {"best": Run(run).checkpoints["best"], "last": steps, "ended": steps} | {
        "reason": "interrupted"
    }


# twelve seconds: torchrun and a command of ours, each with two processes
def test_torchrun_trains_what_spawned_processes_train(tmp_path: Path) -> None:
    options = ("train", "mlp", "two-moons", "--max-steps", "20", "--out")
    assert main([*options, str(tmp_path / "spawned"), "--processes", "2"]) == 0
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = ran(*torchrun, "-m", "margin", *options, str(tmp_path / "torchrun"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run in") == 1
    files = [Run(tmp_path / name).checkpoint("last").read_bytes() for name in ("spawned", "torchrun")]
    assert files[0] == files[1]


@pytest.mark.parametrize(("words", "status"), [(["models"], 0), (["modles"], 2)])
def test_a_process_of_torchrun_ends_without_taking_down_its_interpreter(
    words: list[str], status: int
) -> None:
    # threads of gloo that are left then would abort it, now and then
    script = (
        f"import atexit, os, sys; atexit.register(os.abort); sys.argv[1:] = {words}; import margin.__main__"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "TORCHELASTIC_RUN_ID": "one"}
    )
    assert done.returncode == status
    assert ("feedforward/mlp" in done.stdout) == (status == 0)
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGABRT  # else it is taken down


# six seconds: two processes are started
def test_data_in_memory_are_trained_by_two_processes(tmp_path: Path) -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    for count in (1, 2):
        training = Training(max_steps=6, processes=count, precision="float64")
        train("mlp", (x, (x[:, 0] > 0).long()), {}, training, out=tmp_path / f"by-{count}")
    assert gap(tmp_path / "by-1", tmp_path / "by-2") <= 1e-10


# seven seconds: a script that starts processes which start it again
def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    """The page of documentation on processes runs one with a guard."""
    (tmp_path / "script.py").write_text(
        "import margin\n"
        "margin.train('mlp', 'two-moons', training=margin.Training(max_steps=6, processes=2), out='run')\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 1
    assert "must begin under: if __name__ == '__main__'" in done.stderr


ENDINGS = """
import multiprocessing.util, os, sys
from margin.engine.parallel import launching
from margin.engine.parallel.processes import world
def late(stop):
    multiprocessing.util.Finalize(None, os.abort, exitpriority=1)
def early(stop):
    if world().rank:
        os.abort()
    while True:
        world()
def wrong(stop):
    if world().rank:
        raise ValueError("row 3 of rank 1")
if __name__ == "__main__":
    launching.GRACE = 0.5  # the seconds that the other process of "early" uses up
    launching.launch({"late": late, "early": early, "wrong": wrong}[sys.argv[1]], 2, "cpu", ())
    print("done")
"""


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        ("late", "done"),  # what was asked is done: that the process then crashes changes nothing
        ("early", "process 1 of 2 was ended by SIGABRT"),
        ("wrong", "ValueError: row 3 of rank 1"),
    ],
)
def test_how_processes_end_is_told(tmp_path: Path, ending: str, says: str) -> None:
    script = tmp_path / "endings.py"
    script.write_text(ENDINGS)
    done = ran(sys.executable, str(script), ending)
    assert done.returncode == (0 if ending == "late" else 1)
    assert says in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        ("perceptron", "two-moons", {}, "classic/perceptron cannot divide a batch between processes"),
        ("linear_regression", "diabetes", {}, "cannot divide a batch between processes: set --processes 1"),
        ("mlp", "two-moons", {"norm": "batch"}, "normalizes on cpu (in model.layers.2): set --processes 1"),
    ],
)
def test_what_cannot_be_divided_is_refused_before_anything_is_made(
    tmp_path: Path, model: str, data: str, options: dict, message: str
) -> None:
    from margin.runs.training import open_source

    arguments = {"options": options, "step": {}, "rule": ""}
    with pytest.raises(ValueError, match=re.escape(message)):
        prepare(model, open_source(data, {}), arguments, Training(processes=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_shares_of_weights_refuse_pieces_before_a_process_is_started(tmp_path: Path) -> None:
    training = Training(max_steps=1, processes=2, strategy="fsdp", accumulate=3)
    with pytest.raises(ValueError, match=r"accumulate must be 1 where weights are in shares \(fsdp\): got 3"):
        train("mlp", "two-moons", training=training, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Stubborn(Exception):
    """An error that cannot be pickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_error_reaches_the_first_process_whatever_it_is() -> None:
    for error in (ValueError("row 3"), Stubborn(1, 2)):
        with contextlib.suppress(type(error)):
            raise error
        sent = _sendable(error)
        assert str(error) in str(sent)
        assert "Traceback" in sent.__notes__[0]
