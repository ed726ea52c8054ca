"""A process that holds torch and forks a training on request, so that many can be killed quickly.

It computes nothing itself and forks before torch has started a thread. One line of standard input is
one request, ``DIRECTORY MODE NUMBER``; its answer is one line of standard output.

plain      train to the end
resume     resume to the end
step N     kill -9 from outside as soon as the N-th step has ended
rename N   kill -9 inside the N-th replacement of a file, between its writing and its renaming
start      kill -9 after the run's directory was made, before the first checkpoint
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer imports it: once here, not in every child

from margin.core.options import Training
from margin.data.open import open_data
from margin.engine.loop import State
from margin.engine.runs import Run
from margin.runs.training import finish, prepare, reopen

DATA = open_data("two-moons", {"examples": 300})
TRAINING = Training(
    max_steps=300,
    batch_size=16,
    checkpoint_every=5,
    evaluate_every=30,
    average=0.9,
    schedule="cosine",
    seed=3,
)
ARGUMENTS = {"options": {"hidden": [16, 16], "dropout": 0.3, "norm": "batch"}, "step": {}, "rule": ""}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def forbid_rename(number: int) -> None:
    replace, count = Path.replace, [0]

    def replacing(self: Path, target: Path) -> Path:
        count[0] += 1
        if count[0] == number:
            die()
        return replace(self, target)

    Path.replace = replacing


def child(directory: str, mode: str, number: int, ready: int) -> None:
    if mode == "resume":
        finish(reopen(directory, DATA, Training()))
        return
    if mode == "rename":
        forbid_rename(number)
    if mode == "start":
        Run.save = lambda self, state, best: die()
    job = prepare("mlp", DATA, ARGUMENTS, TRAINING, directory)

    def tell(state: State, metrics: dict) -> None:
        os.write(ready, b"1")

    finish(job, hooks=[tell])


def serve(directory: str, mode: str, number: int) -> str:
    """Fork, read a byte a step, kill where asked; how it ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            child(directory, mode, number, write)
            os._exit(0)
        except BaseException as error:  # the parent must see any failure
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(3)
    os.close(write)
    steps = 0
    while byte := os.read(read, 1):
        steps += len(byte)
        if mode == "step" and steps == number:
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(read)
    return "killed" if os.WIFSIGNALED(status) else "done" if os.WEXITSTATUS(status) == 0 else "error"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        directory, mode, number = line.split()
        print(serve(directory, mode, int(number)), flush=True)
