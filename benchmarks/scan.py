"""The scan beside the loop that it replaces, and beside the other ways to compute it.

Forward and backward of z_t = a_t z_{t-1} + b_t on one thread. The loop unbinds time once and calls addcmul,
under autograd; a slice a[:, t] for each step would make its backward quadratic. ``--designs`` measures every
design that was tried, ``--compiled`` torch.compile too, which takes a minute to compile.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Generator, Tensor

from benchmarks.record import interleaved, ratio, record
from margin.nn import scan as module
from margin.nn.scan import compose, doubling, scan

SHAPES = {"batch 1, width 32": (1, 4096, 32), "batch 16, width 128": (16, 4096, 128)}
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
ROUNDS = 7
KEPT = {
    "MALLOC_MMAP_THRESHOLD_": str(2**33),
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**26),
}
States = Callable[[Tensor, Tensor], Tensor]


def loop(a: Tensor, b: Tensor) -> Tensor:
    z, states = torch.zeros_like(b[:, 0]), []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        z = torch.addcmul(b_t, a_t, z)
        states.append(z)
    return torch.stack(states, 1)


def in_place(a: Tensor, b: Tensor) -> Tensor:
    """Our backward, and the loop written in place, without chunks."""
    before, module.WIDE["cpu"] = module.WIDE["cpu"], 1
    states = scan(a, b)
    module.WIDE["cpu"] = before
    return states


def unsegmented(a: Tensor, b: Tensor) -> Tensor:
    """Chunks over all of time at once, not a cache's worth at a time."""
    before, module.CACHE = module.CACHE, 2**40
    states = scan(a, b)
    module.CACHE = before
    return states


def matrices(a: Tensor, b: Tensor, chunk: int = 16) -> Tensor:
    """Within a chunk the lower triangular matrix of gate products; between chunks a loop."""
    batch, length, width = b.shape
    a, b = (x.view(batch, length // chunk, chunk, width).transpose(2, 3) for x in (a, b))
    rows = a[..., None].expand(*a.shape, chunk).tril(-1)
    keep = torch.ones(chunk, chunk, dtype=torch.bool, device=a.device).tril()
    products = torch.where(keep.tril(-1), rows, torch.ones_like(rows)).cumprod(-2) * keep
    local = (products @ b[..., None])[..., 0]
    whole = a.cumprod(-1)
    z, entered = torch.zeros_like(local[:, 0, :, -1]), []
    for p, e in zip(whole[..., -1].unbind(1), local[..., -1].unbind(1), strict=True):
        entered.append(z)
        z = torch.addcmul(e, p, z)
    states = local + whole * torch.stack(entered, 1)[..., None]
    return states.transpose(2, 3).reshape(batch, length, width)


def sweeps(a: Tensor, b: Tensor) -> Tensor:
    """Up and down a tree, by halving time (Blelloch 1990)."""
    if b.shape[1] == 1:
        return b
    even = (a[:, 0::2], b[:, 0::2])
    odd = sweeps(*compose((a[:, 1::2], b[:, 1::2]), even))
    rest = torch.addcmul(even[1][:, 1:], even[0][:, 1:], odd[:, :-1])
    return torch.stack((torch.cat((even[1][:, :1], rest), 1), odd), 2).flatten(1, 2)


def log_space(a: Tensor, b: Tensor) -> Tensor:
    """Logarithms of sums of exponentials, positive and negative terms apart (Heinsen 2023)."""
    total = a.log().cumsum(1)
    positive, negative = (
        (total + torch.logcumsumexp(x.clamp_min(0).log() - total, 1)).exp() for x in (b, -b)
    )
    return positive - negative


def quotients(a: Tensor, b: Tensor) -> Tensor:
    """A cumulative sum of b over products of gates."""
    product = a.cumprod(1)
    return product * (b / product).cumsum(1)


def associative(a: Tensor, b: Tensor) -> Tensor:
    from torch._higher_order_ops.associative_scan import associative_scan

    def join(earlier, later):
        return compose(later, earlier)

    return associative_scan(join, (a, b), 1, combine_mode="generic")[1]


def doubled(a: Tensor, b: Tensor) -> Tensor:
    return doubling(a, b, b.new_zeros(b.shape[0], b.shape[2]))


def by_fft(a: Tensor, b: Tensor) -> Tensor:
    """Constant gates (width,): a convolution with their powers."""
    length = b.shape[1]
    powers = a ** torch.arange(length, dtype=b.dtype)[:, None]
    spectrum = torch.fft.rfft(powers, 2 * length, dim=0) * torch.fft.rfft(b, 2 * length, dim=1)
    return torch.fft.irfft(spectrum, 2 * length, dim=1)[:, :length]


DESIGNS: dict[str, States] = {
    "chunks, segments of time": scan,
    "chunks, all of time": unsegmented,
    "loop in place": in_place,
    "loop under autograd": loop,
    "matrices of chunks": matrices,
    "doubling (Hillis and Steele)": doubled,
    "up and down sweep (Blelloch)": sweeps,
    "logarithms of sums": log_space,
    "quotients of products": quotients,
    "torch's associative_scan": associative,
}


def drawn(shape: tuple[int, int, int], least: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(0)
    a, b = least + (1 - least) * torch.rand(shape, generator=g), torch.randn(shape, generator=g)
    return a.requires_grad_(), b.requires_grad_(), torch.randn(shape, generator=g)


def both_ways(states: States, a: Tensor, b: Tensor, cotangent: Tensor) -> Callable[[], None]:
    def run() -> None:
        torch.autograd.grad(states(a, b), (a, b), cotangent)

    return run


def against_the_loop() -> list[dict[str, object]]:
    rows = []
    for (name, shape), target in zip(SHAPES.items(), (15.0, 1.0), strict=True):
        a, b, cotangent = drawn(shape)
        times = interleaved(
            ROUNDS, loop=both_ways(loop, a, b, cotangent), scan=both_ways(scan, a, b, cotangent)
        )
        value, low, high = ratio(times, "loop", "scan")
        rows.append(
            {
                "what": f"loop / scan, forward and backward, {name}, T = {shape[1]:,}",
                "value": value,
                "unit": "ratio",
                "interval": [low, high],
                "target": f">= {target:g}",
                "met": value >= target,
                "seconds": {key: statistics.median(found) for key, found in times.items()},
            }
        )
    return rows


def processor_seconds(states: States) -> dict[str, dict[str, float]]:
    """Median seconds of processor time by shape and T."""
    found = {}
    for name, (batch, _, width) in SHAPES.items():
        runs = {n: both_ways(states, *drawn((batch, n, width))) for n in LENGTHS}
        times: dict[int, list[float]] = {n: [] for n in LENGTHS}
        for _ in range(ROUNDS + 1):
            for n, run in runs.items():
                start = time.process_time()
                run()
                times[n].append(time.process_time() - start)
        found[name] = {str(n): statistics.median(values[1:]) for n, values in times.items()}
    return found


def growth() -> list[dict[str, object]]:
    """The exponent of time in T, by a process whose memory is kept, and by one whose memory is not.

    By default the C library gives arrays of 32 MiB and more back to the system, which then takes as long to
    hand out their pages again as a pass over them: a product a * b seems to grow as T^1.8.
    """
    rows = []
    for kept in (True, False):
        command = [sys.executable, "-m", "benchmarks.scan", "--growth"]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=os.environ | (KEPT if kept else {})
        )
        for design, shapes in json.loads(done.stdout).items():
            for name, times in shapes.items():
                x, y = [math.log(int(n)) for n in times], [math.log(t) for t in times.values()]
                value = statistics.linear_regression(x, y).slope
                judged = kept and design == "scan" and name == "batch 16, width 128"
                rows.append(
                    {
                        "what": f"exponent of time in T, {LENGTHS[0]} to {LENGTHS[-1]:,}, {design}, {name}, "
                        f"memory {'kept' if kept else 'given back'}",
                        "value": value,
                        "unit": "1",
                        "seconds": times,
                    }
                    | ({"target": "1.0 +- 0.1", "met": abs(value - 1) <= 0.1} if judged else {})
                )
    return rows


def memory() -> list[dict[str, object]]:
    """Peak resident memory of one forward and backward beyond what was there, and beyond both gradients."""
    rows = []
    for name, shape in list(SHAPES.items())[1:]:
        a, b, cotangent = drawn(shape)
        both_ways(scan, *drawn((1, 64, 8)))()
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        status = Path("/proc/self/status")

        def kib(key: str, status: Path = status) -> int:
            return int(next(x.split()[1] for x in status.read_text().splitlines() if x.startswith(key)))

        before = kib("VmRSS")
        torch.autograd.grad(scan(a, b), (a, b), cotangent)
        inputs = 2 * b.numel() * b.element_size()
        value = ((kib("VmHWM") - before) * 1024 - inputs) / inputs
        rows.append(
            {
                "what": f"peak memory beyond inputs and gradients / inputs, {name}, T = {shape[1]:,}",
                "value": value,
                "unit": "ratio",
                "target": "<= 2",
                "met": value <= 2,
            }
        )
    return rows


def seconds_of(run: Callable[[], None], rounds: int) -> float:
    """Median processor time, which other programs on the machine change less than the clock."""
    run()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return statistics.median(found)


def worst(states: States, a: Tensor, b: Tensor, cotangent: Tensor) -> float:
    """The largest error of states and gradients by b against the loop in float64, over the largest value."""
    wide = [x.detach().double().requires_grad_() for x in (a, b)]
    expected = loop(wide[0].expand_as(b), wide[1])
    (wanted,) = torch.autograd.grad(expected, wide[1], cotangent.double())
    found = states(a, b)
    (got,) = torch.autograd.grad(found, b, cotangent)
    errors = [
        ((x.double() - y).abs().max() / y.abs().max()).item() for x, y in ((found, expected), (got, wanted))
    ]
    return max(errors) if all(map(math.isfinite, errors)) else math.nan


def designs(compiled: bool) -> list[dict[str, object]]:
    tried = dict(DESIGNS)
    if compiled:
        tried["doubling, by torch.compile"] = torch.compile(doubled)
    rows = []
    for name, shape in SHAPES.items():
        a, b, cotangent = drawn(shape)
        for design, states in tried.items():
            start = time.perf_counter()
            error = worst(states, *drawn((1, shape[1], 8) if compiled and "compile" not in design else shape))
            first = time.perf_counter() - start
            value = 1e3 * seconds_of(both_ways(states, a, b, cotangent), 3)
            row = {
                "what": f"{design}, {name}",
                "value": value,
                "unit": "ms of processor time",
                "error": error,
            }
            rows.append(row | ({"first call, s": first} if "compile" in design else {}))
            print(rows[-1], flush=True)
        constant = torch.linspace(0.5, 0.999, shape[2]).requires_grad_()
        for design, states in {"constant gates, chunks": scan, "constant gates, FFT": by_fft}.items():
            value = 1e3 * seconds_of(both_ways(states, constant, b, cotangent), 3)
            error = worst(states, constant, b, cotangent)
            rows.append(
                {"what": f"{design}, {name}", "value": value, "unit": "ms of processor time", "error": error}
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--designs", action="store_true")
    parser.add_argument(
        "--growth", action="store_true", help="print the times that the exponent is fitted to"
    )
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.growth:
        found = {"scan": processor_seconds(scan), "product a b": processor_seconds(torch.mul)}
        print(json.dumps(found))
        return
    if options.designs:
        record(
            "sequence/scan_designs",
            title="Ways to compute z_t = a_t z_{t-1} + b_t, forward and backward, T = 4,096, one thread",
            figures=designs(options.compiled),
            threads=1,
        )
        return
    record(
        "sequence/scan",
        title="The scan of z_t = a_t z_{t-1} + b_t beside a loop under autograd, one thread, float32",
        figures=[*memory(), *against_the_loop(), *growth()],
        rounds=ROUNDS,
        threads=1,
    )


if __name__ == "__main__":
    main()
