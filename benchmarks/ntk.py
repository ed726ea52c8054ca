"""The empirical tangent kernel of LeNet-5 (61,706 weights, 10 outputs) beside its peers, time and memory.

python -m benchmarks.ntk [--peer PYTHON_WITH_NEURAL_TANGENTS]. One thread, float32, 28 x 28 images of noise.
Each side computes the kernel of all pairs of outputs in a process of its own, in turn: ours, vmap(jacrev) and
neural-tangents, compiled before, by the contraction of Jacobians: the faster of its ways that run under a jax
of today, which its structured derivatives do not. Memory is the peak of the process less what it held before.
All kernels must agree.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from benchmarks.record import record
from margin.theory.kernels.empirical import empirical_ntk, ntk_plan
from margin.vision.convnets.lenet5 import SIDE, LeNet5

FASTER, LEANER, BESIDE = 3.0, 0.25, 1.0

PEER = """
import sys, time, types, json, resource
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")
import jax, jax.numpy as jnp, neural_tangents as nt, numpy as np
file = np.load(sys.argv[1])
x = jnp.asarray(file["x"])
weights = [(jnp.asarray(file[f"w{i}"]), jnp.asarray(file[f"b{i}"])) for i in range(5)]
def outputs(weights, x):
    for w, b in weights[:2]:
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        x = jnp.tanh(x + b[:, None, None])
        x = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
    x = x.reshape(len(x), -1)
    for i, (w, b) in enumerate(weights[2:]):
        x = jnp.tanh(x @ w.T + b) if i < 2 else x @ w.T + b
    return x
way = nt.NtkImplementation.JACOBIAN_CONTRACTION
kernel = jax.jit(nt.empirical_ntk_fn(outputs, trace_axes=(), vmap_axes=0, implementation=way))
outputs(weights, x[:2]).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kernel(x, None, weights).block_until_ready()
for line in sys.stdin:
    start = time.perf_counter()
    K = kernel(x, None, weights).block_until_ready()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    K = np.asarray(K, dtype=np.float64)
    told = [seconds, peak / 1024, float(np.linalg.norm(K)), K[0, -1].tolist()]
    print(json.dumps(told), flush=True)
"""
"""Kernels there have both examples before both outputs."""


def jacobians(model: nn.Module, x: Tensor) -> Tensor:
    """As it is commonly written: the Jacobian of every example at once, then its product with itself."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    found = vmap(jacrev(lambda w, one: functional_call(model, w, (one[None],))[0]), (None, 0))(weights, x)
    J = [part.flatten(2) for part in found.values()]
    return sum(torch.einsum("iap,jbp->iajb", part, part) for part in J)


def serve(pipe: Connection, side: str, examples: int) -> None:
    """Compute the kernel whenever a word comes; answer with seconds, peak and a mark of the kernel."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = LeNet5(1, 10).eval(), torch.randn(examples, 1, 28, 28)
    run: Callable[[], Tensor] = {
        "ours": lambda: empirical_ntk(model, x, memory=2**29),
        "vmap(jacrev)": lambda: jacobians(model, x),
    }[side]
    model(x[:2])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send(str(ntk_plan(model, x, memory=2**29)) if side == "ours" else "")
    while pipe.recv():
        start = time.perf_counter()
        K = run()
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        pipe.send((seconds, peak / 1024, float(K.double().norm()), K[0, :, -1].double()))


def peer_of(python: str, examples: int, folder: str) -> subprocess.Popen[str]:
    """The process of neural-tangents with the weights and images of the others, brought to size."""
    torch.manual_seed(0)
    model, x = LeNet5(1, 10), torch.randn(examples, 1, 28, 28)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    given = {f"w{i}": m.weight.detach().numpy() for i, m in enumerate(layers)}
    given |= {f"b{i}": m.bias.detach().numpy() for i, m in enumerate(layers)}
    x = F.interpolate(x, size=(SIDE, SIDE), mode="bilinear", align_corners=False, antialias=True)
    path = Path(folder) / "lenet5.npz"
    np.savez(path, x=x.numpy(), **given)
    one = {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        ["taskset", "-c", str(min(os.sched_getaffinity(0))), python, "-c", PEER, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **one},
    )  # fmt: skip


def ask(peer: subprocess.Popen[str]) -> tuple:
    """Its seconds, peak, and the mark of its kernel."""
    peer.stdin.write("\n")
    peer.stdin.flush()
    seconds, peak, norm, column = json.loads(peer.stdout.readline())
    return seconds, peak, norm, torch.tensor(column, dtype=torch.float64)


def compared(what: str, found: dict[str, list[tuple]], other: str, target: float) -> dict[str, object]:
    """How many times faster than another side, round by round."""
    ratios = [b[0] / a[0] for a, b in zip(found["ours"], found[other], strict=True)]
    faster = statistics.median(ratios)
    return {
        "what": f"{what}: times faster than {other}",
        "value": round(faster, 2),
        "unit": "x",
        "interval": [round(min(ratios), 2), round(max(ratios), 2)],
        "target": f">= {target:g}",
        "met": faster >= target,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", default="", help="the interpreter of the environment of neural-tangents")
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="kernels/empirical_ntk")
    given = parser.parse_args()
    spawn, pipes = multiprocessing.get_context("spawn"), {}
    plan = ""
    for side in ("ours", "vmap(jacrev)"):
        pipes[side], end = spawn.Pipe()
        spawn.Process(target=serve, args=(end, side, given.examples), daemon=True).start()
        plan = pipes[side].recv() or plan
    found: dict[str, list[tuple]] = {side: [] for side in pipes}
    with tempfile.TemporaryDirectory() as folder:
        peer = peer_of(given.peer, given.examples, folder) if given.peer else None
        for _ in range(given.rounds):
            for side, pipe in pipes.items():
                pipe.send(True)
                found[side].append(pipe.recv())
            if peer:
                found.setdefault("neural-tangents", []).append(ask(peer))
        for pipe in pipes.values():
            pipe.send(False)
        if peer:
            peer.stdin.close()
            peer.wait()
    mine = found["ours"][0]
    for side, ((_, _, norm, column), *_) in found.items():
        if abs(mine[2] / norm - 1) > 1e-4 or (mine[3] - column).norm() > 1e-4 * column.norm():
            raise ValueError(f"kernels must agree: got norms {mine[2]} and, of {side}, {norm}")
    kept(given.name, given.examples, found, plan)


def kept(name: str, examples: int, found: dict[str, list[tuple]], plan: str) -> None:
    times = {side: [row[0] for row in rows] for side, rows in found.items()}
    what, peaks = (
        f"LeNet-5, {examples} images, 10 outputs",
        {side: rows[0][1] for side, rows in found.items()},
    )
    share = peaks["ours"] / peaks["vmap(jacrev)"]
    figures = [
        {"what": f"{what}: ours", "value": round(statistics.median(times["ours"]), 2), "unit": "s"},
        compared(what, found, "vmap(jacrev)", FASTER),
        {"what": f"{what}: ours, peak memory", "value": round(peaks["ours"]), "unit": "MiB"},
        {
            "what": f"{what}: memory, of vmap(jacrev)'s",
            "value": round(share, 3),
            "unit": "1",
            "target": f"<= {LEANER:g}",
            "met": share <= LEANER,
        },
    ]
    if "neural-tangents" in found:
        figures.append(compared(what, found, "neural-tangents", BESIDE))
    record(
        name,
        title="The empirical tangent kernel of all pairs of outputs, layer by layer, beside its peers.",
        figures=figures,
        plan=plan,
        seconds=times,
        peak_memory=peaks,
        peer="neural-tangents 0.6.5, jax 0.5.3" if "neural-tangents" in found else "not measured",
    )


if __name__ == "__main__":
    main()
