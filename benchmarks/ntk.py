"""The empirical tangent kernel of LeNet-5 (61,706 weights, 10 outputs) beside vmap(jacrev), time and memory.

One thread, float32, 28 x 28 images of noise. Each side computes the kernel of all pairs of outputs in a
process of its own, in turn; memory is the peak of the process less what it held before. Both kernels must
agree.
"""

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from benchmarks.record import record
from margin.theory.kernels.empirical import empirical_ntk, ntk_plan
from margin.vision.convnets.lenet5 import LeNet5

FASTER, LEANER = 3.0, 0.25


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


def main() -> None:
    parser = argparse.ArgumentParser()
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
    for _ in range(given.rounds):
        for side, pipe in pipes.items():
            pipe.send(True)
            found[side].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send(False)
    mine, theirs = found["ours"][0], found["vmap(jacrev)"][0]
    if abs(mine[2] / theirs[2] - 1) > 1e-4 or (mine[3] - theirs[3]).norm() > 1e-4 * theirs[3].norm():
        raise ValueError(f"the two kernels must agree: got norms {mine[2]} and {theirs[2]}")
    times = {side: [row[0] for row in rows] for side, rows in found.items()}
    ratios = [b / a for a, b in zip(times["ours"], times["vmap(jacrev)"], strict=True)]
    share = mine[1] / theirs[1]
    faster = statistics.median(ratios)
    what = f"LeNet-5, {given.examples} images, 10 outputs"
    record(
        given.name,
        title="The empirical tangent kernel of all pairs of outputs, layer by layer, beside vmap(jacrev).",
        figures=[
            {"what": f"{what}: ours", "value": round(statistics.median(times["ours"]), 2), "unit": "s"},
            {
                "what": f"{what}: times faster than vmap(jacrev)",
                "value": round(faster, 2),
                "unit": "x",
                "interval": [round(min(ratios), 2), round(max(ratios), 2)],
                "target": f">= {FASTER:g}",
                "met": faster >= FASTER,
            },
            {"what": f"{what}: ours, peak memory", "value": round(mine[1]), "unit": "MiB"},
            {
                "what": f"{what}: memory, of vmap(jacrev)'s",
                "value": round(share, 3),
                "unit": "1",
                "target": f"<= {LEANER:g}",
                "met": share <= LEANER,
            },
        ],
        plan=plan,
        seconds=times,
    )


if __name__ == "__main__":
    main()
