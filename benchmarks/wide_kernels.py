"""The tangent kernel of infinitely wide ReLU networks between MNIST images, beside neural-tangents.

Three hidden layers, one thread, float64; neural-tangents 0.6.5 with jax 0.5.3 runs in an environment of its
own, whose interpreter is given, and is timed after it has compiled. Both kernels must agree. Files under
MARGIN_DATA.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import record
from margin.data.open import open_data
from margin.theory.kernels.wide import ntk

PEER = """
import sys, time, types, json
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
from neural_tangents import stax
layers = [layer for _ in range(3) for layer in (stax.Dense(1, W_std=2 ** 0.5, b_std=0.1), stax.Relu())]
kernel = jax.jit(stax.serial(*layers, stax.Dense(1, W_std=2 ** 0.5, b_std=0.1))[2], static_argnums=(2,))
x = np.load(sys.argv[1])
kernel(x, None, "ntk").block_until_ready()
for line in sys.stdin:
    start = time.perf_counter()
    K = kernel(x, None, "ntk").block_until_ready()
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, np.asarray(K[:3, :7]).tolist()]), flush=True)
"""
FASTER = 2.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, help="the interpreter of the environment of neural-tangents")
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="kernels/wide")
    given = parser.parse_args()
    torch.set_num_threads(1)
    x = open_data("mnist", {}).splits["train"].inputs[0][: given.examples].flatten(1).double()
    one = {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "OMP_NUM_THREADS": "1",
    }
    times: dict[str, list[float]] = {"ours": [], "neural-tangents": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, x.numpy())
        peer = subprocess.Popen(
            ["taskset", "-c", str(min(os.sched_getaffinity(0))), given.peer, "-c", PEER, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **one},
        )  # fmt: skip
        ntk(x[:500], depth=3, bias_std=0.1)  # warm, as the peer is that has compiled
        for _ in range(given.rounds):
            peer.stdin.write("\n")
            peer.stdin.flush()
            seconds, corner = json.loads(peer.stdout.readline())
            times["neural-tangents"].append(seconds)
            start = time.perf_counter()
            K = ntk(x, depth=3, bias_std=0.1)
            times["ours"].append(time.perf_counter() - start)
            torch.testing.assert_close(K[:3, :7], torch.tensor(corner).double(), rtol=1e-6, atol=1e-6)
        peer.stdin.close()
        peer.wait()
    ratios = [b / a for a, b in zip(times["ours"], times["neural-tangents"], strict=True)]
    faster = statistics.median(ratios)
    what = f"{given.examples:,} MNIST images, three hidden layers"
    record(
        given.name,
        title="The tangent kernel of an infinitely wide ReLU network beside neural-tangents, one thread.",
        figures=[
            {"what": f"{what}: ours", "value": round(statistics.median(times["ours"]), 2), "unit": "s"},
            {
                "what": f"{what}: times faster than neural-tangents",
                "value": round(faster, 2),
                "unit": "x",
                "interval": [round(min(ratios), 2), round(max(ratios), 2)],
                "target": f">= {FASTER:g}",
                "met": faster >= FASTER,
            },
        ],
        peer="neural-tangents 0.6.5, jax 0.5.3",
        seconds=times,
    )


if __name__ == "__main__":
    main()
