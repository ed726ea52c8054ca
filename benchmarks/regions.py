"""How fast all linear regions are found: on 1,000 segments of a wide network, on a square of a deep one.

Exactness is checked along with the speed: on the square by areas, Euler's formula and the network's own
patterns at every centroid, on the segments by its own outputs and patterns between the breakpoints.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from benchmarks.record import record
from margin.data.sets.synthetic import two_moons
from margin.theory.regions.plane import plane_regions
from margin.theory.regions.segments import breakpoints

ROUNDS = 5
SEGMENTS = 1000
T = TypeVar("T")


def he(widths: tuple[int, ...], seed: int) -> nn.Sequential:
    """He weights, biases N(0, 0.1^2), in float64."""
    generator = torch.Generator().manual_seed(seed)
    made: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layer = nn.Linear(fan_in, fan_out).double()
        with torch.no_grad():
            weight = torch.randn(fan_out, fan_in, generator=generator, dtype=torch.float64)
            layer.weight.copy_(math.sqrt(2 / fan_in) * weight)
            layer.bias.copy_(0.1 * torch.randn(fan_out, generator=generator, dtype=torch.float64))
        made += [layer, nn.ReLU()]
    return nn.Sequential(*made[:-1])


def on_moons(net: nn.Sequential) -> float:
    """Train on two moons, scaled to the square; the accuracy."""
    data = two_moons(examples=1000, noise=0.1, seed=0)
    part = data.splits["train"]
    x, y = data.preprocess(part.inputs[0]).double() / 2, part.targets
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(500):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return float((net(x).argmax(1) == y).double().mean())


def patterns(net: nn.Sequential, x: Tensor) -> Tensor:
    found = []
    for layer in net:
        if isinstance(layer, nn.ReLU):
            found.append(x > 0)
        x = layer(x)
    return torch.cat(found, 1)


def timed(run: Callable[[], T], what: str, target: float) -> tuple[T, dict[str, object]]:
    """Seconds of one thread's processor, which other load leaves alone; the wall's beside them."""
    run()
    processor, wall = [], []
    for _ in range(ROUNDS):
        start, clock = time.process_time(), time.perf_counter()
        result = run()
        processor.append(time.process_time() - start)
        wall.append(time.perf_counter() - clock)
    return result, {
        "what": f"time for all of them, {what}",
        "value": statistics.median(processor),
        "interval": [min(processor), max(processor)],
        "unit": "s of one processor",
        "wall seconds": [min(wall), max(wall)],
        "target": f"<= {target:g}",
        "met": statistics.median(processor) <= target,
    }


def square(net: nn.Sequential, what: str) -> list[dict[str, object]]:
    net.eval().requires_grad_(False)
    axes = torch.eye(2, dtype=torch.float64)
    zero = torch.zeros(2).double()
    found, seconds = timed(lambda: plane_regions(net, zero, axes[0], axes[1]), what, 10.0)
    own = torch.equal(patterns(net, found.plane.centroids()), found.patterns)
    exact = {
        "areas less 4": float(found.plane.areas().sum()) - 4,
        "V - E + F": found.plane.euler(),
        "different patterns": len(found.patterns.unique(dim=0)),
        "patterns are the network's own at each centroid": own,
    }
    regions = found.activation_regions
    met = abs(exact["areas less 4"]) <= 1e-9 and exact["V - E + F"] == 1
    met = met and exact["different patterns"] == regions and own and not found.flaw()
    return [
        {
            "what": f"regions of a 2-64-64-64-2 network on [-1, 1]^2, {what}",
            "value": regions,
            "linear regions": found.linear_regions,
            "unit": "activation regions",
            "exactness": exact,
            "target": "areas sum to 4 (1e-9), V - E + F = 1, patterns differ and are the network's own",
            "met": met,
        },
        seconds,
    ]


def segments() -> list[dict[str, object]]:
    net = he((784, 256, 256, 10), seed=0).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    starts, ends = torch.randn(2, SEGMENTS, 784, generator=generator, dtype=torch.float64)
    found, seconds = timed(lambda: breakpoints(net, starts, ends), f"{SEGMENTS:,} segments", 2.0)
    few = found.segment < 50
    segment, position = found.segment[few], found.position[few]
    x = torch.lerp(starts[segment], ends[segment], position[:, None])
    gap = float((net(x) - found.outputs[few]).abs().max())
    inner = segment.diff() == 0
    middle = torch.lerp(x[:-1], x[1:], 0.5)[inner]
    own = torch.cat((segment[:-1][inner][:, None], patterns(net, middle).long()), 1)
    different = len(own.unique(dim=0)) == len(own)
    # Affine between its breakpoints: in the middle the output is the mean of the ends'.
    bend = float(
        (net(middle) - torch.lerp(found.outputs[few][:-1], found.outputs[few][1:], 0.5)[inner]).abs().max()
    )
    return [
        {
            "what": f"breakpoints of a 784-256-256-10 network on {SEGMENTS:,} segments",
            "value": int((found.activation_regions - 1).sum()),
            "linear regions": int(found.linear_regions.sum()),
            "unit": "breakpoints",
            "exactness (50 segments)": {
                "largest error of an output at a breakpoint": gap,
                "largest error of an output between two": bend,
                "patterns of a segment all differ": different,
            },
            "target": "outputs to 1e-9, patterns differ",
            "met": gap <= 1e-9 and bend <= 1e-9 and different,
        },
        seconds,
    ]


def main() -> None:
    torch.set_num_threads(1)
    figures = square(he((2, 64, 64, 64, 2), seed=0), "He weights, biases N(0, 0.1^2)")
    trained = he((2, 64, 64, 64, 2), seed=0)
    accuracy = on_moons(trained)
    figures += square(trained, f"trained on two moons (accuracy {accuracy:.3f})")
    figures += segments()
    record(
        "theory/regions",
        title=f"All linear regions of ReLU networks, one thread, median of {ROUNDS} runs",
        figures=figures,
    )


if __name__ == "__main__":
    main()
