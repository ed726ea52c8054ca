"""Two one-thread processes beside one: an MLP 784-1024-1024-10 at batch 512, and what starting them costs."""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue

import torch
import torch.multiprocessing
from torch import nn

from benchmarks.record import interleaved, ratio, record
from margin.core.tasks import CLASSES
from margin.data.examples import Arrays, Shuffled
from margin.engine.build import optimizer_of
from margin.engine.loop import GradientUpdate, State, descent, fit, risk
from margin.engine.parallel.launching import launch
from margin.engine.parallel.processes import world

ROWS, BATCH, STEPS, ROUNDS, STARTS = 5_120, 512, 10, 15, 5


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


def rows() -> Arrays:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, 784, generator=generator)
    return Arrays((X,), torch.randint(0, 10, (ROWS,), generator=generator))


def ours() -> Callable[[], None]:
    """A function that takes STEPS more steps through fit: this process's share of each batch."""
    model = network()
    batches = Shuffled(rows(), BATCH, seed=0, share=world())
    state = State({"model": model}, {"": optimizer_of(model, "AdamW", lr=1e-3, options={}, decay_norms=True)})
    step = descent(risk(CLASSES), GradientUpdate())
    return lambda: fit(state, batches, step, max_steps=state.step + STEPS) and None


def stock() -> Callable[[], None]:
    """The same by hand, around a stock DistributedDataParallel."""
    model = nn.parallel.DistributedDataParallel(network(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    examples, size = rows(), BATCH // world().size

    def run() -> None:
        for _ in range(STEPS):
            index = torch.randint(0, ROWS, (size,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(examples.inputs[0][index]), examples.targets[index])
            loss.backward()
            optimizer.step()
            loss.item()

    return run


def work(stop: Callable[[], bool], requests: list[Queue], answers: Queue) -> None:
    torch.set_num_threads(1)
    known = {"ours": ours(), "stock": stock()}
    while name := requests[world().rank].get():
        known[name]()
        answers.put(world().rank)


def by_two(name: str, requests: list[Queue], answers: Queue) -> None:
    for one in requests:
        one.put(name)
    for _ in requests:
        answers.get()


def starting(processes: int) -> float:
    """Seconds of a training of one step, from the command line."""
    with tempfile.TemporaryDirectory() as directory:
        words = ["train", "mlp", "two-moons", "--max_steps", "1", "--threads", "1"]
        where = ["--processes", str(processes), "--out", str(Path(directory) / "run")]
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "margin", *words, *where], check=True, capture_output=True)
        return time.perf_counter() - begun


def main() -> None:
    torch.set_num_threads(1)
    context = torch.multiprocessing.get_context("spawn")
    requests, answers = [context.Queue(), context.Queue()], context.Queue()
    group = threading.Thread(target=launch, args=(work, 2, "cpu", (requests, answers)))
    group.start()
    contestants = {
        "one": ours(),
        "two": lambda: by_two("ours", requests, answers),
        "stock": lambda: by_two("stock", requests, answers),
    }
    times = interleaved(ROUNDS, **contestants)
    for one in requests:
        one.put("")
    group.join()
    speed, slowest, fastest = ratio(times, "one", "two")
    stock_speed = ratio(times, "one", "stock")
    starts = {str(n): [starting(n) for _ in range(STARTS)] for n in (1, 2)}
    cost = statistics.median(starts["2"]) - statistics.median(starts["1"])
    record(
        "engine/processes",
        title="Two one-thread processes (DDP) beside one: MLP 784-1024-1024-10, batch 512",
        figures=[
            {
                "what": "one process / two processes, seconds a step",
                "value": speed,
                "unit": "ratio",
                "interval": [slowest, fastest],
                "target": ">= 1.5",
                "met": speed >= 1.5,
            },
            {
                "what": "the same around a stock DistributedDataParallel, by hand",
                "value": stock_speed[0],
                "unit": "ratio",
                "interval": list(stock_speed[1:]),
            },
            {
                "what": "starting --processes 2, more than one",
                "value": cost,
                "unit": "s",
                "interval": [
                    min(starts["2"]) - max(starts["1"]),
                    max(starts["2"]) - min(starts["1"]),
                ],
                "target": "<= 12",
                "met": cost <= 12,
            },
        ],
        seconds_a_step={name: statistics.median(values) / STEPS for name, values in times.items()},
        seconds_of_a_start=starts,
        rounds=ROUNDS,
    )


if __name__ == "__main__":
    main()
