"""Breakpoints along a line grow with the neurons, not exponentially with depth (Hanin and Rolnick 2019).

ReLU networks of depth 1 to 16 at He initialization, biases N(0, 0.1^2), on segments between standard normal
points in R^16; and an MLP before and after training on MNIST, on segments between its test images.
"""

import itertools
import math
import os
import tempfile
from pathlib import Path

import torch
from torch import nn

from benchmarks.record import record
from margin import Training, load, train
from margin.data.open import open_data
from margin.theory.regions.arrangements import product_bound
from margin.theory.regions.claims import exact
from margin.theory.regions.segments import breakpoints

DIM, SEGMENTS, SEEDS = 16, 20, 30
WIDTHS, DEPTHS = (16, 32, 64), (1, 2, 4, 8, 16)


def network(width: int, depth: int, seed: int) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    made: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise((DIM, *[width] * depth, 1)):
        layer = nn.Linear(fan_in, fan_out).double().requires_grad_(False)
        weight = torch.randn(fan_out, fan_in, generator=generator, dtype=torch.float64)
        layer.weight.copy_(math.sqrt(2 / fan_in) * weight)
        layer.bias.copy_(0.1 * torch.randn(fan_out, generator=generator, dtype=torch.float64))
        made += [layer, nn.ReLU()]
    return nn.Sequential(*made[:-1])


def counted(width: int, depth: int) -> tuple[float, float]:
    """Mean number of breakpoints on a segment, and its standard error: networks are the draws."""
    means = []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(10_000 + seed)
        starts, ends = torch.randn(2, SEGMENTS, DIM, generator=generator, dtype=torch.float64)
        found = breakpoints(network(width, depth, seed), starts, ends)
        means.append(float((found.activation_regions - 1).double().mean()))
    values = torch.tensor(means, dtype=torch.float64)
    return float(values.mean()), float(values.std()) / math.sqrt(SEEDS)


def initialized() -> list[dict[str, object]]:
    figures: list[dict[str, object]] = []
    for width in WIDTHS:
        ratios = []
        for depth in DEPTHS:
            mean, error = counted(width, depth)
            neurons = width * depth
            ratios.append(mean / neurons)
            figures.append(
                {
                    "what": f"breakpoints per neuron, width {width}, depth {depth}",
                    "value": mean / neurons,
                    "unit": "1 / neuron",
                    "interval": [(mean - 4 * error) / neurons, (mean + 4 * error) / neurons],
                    "mean number": mean,
                    "what no weights exceed": f"{float(product_bound(1, [width] * depth) - 1):.3g}",
                }
            )
        spread = max(ratios) / min(ratios)
        figures.append(
            {
                "what": f"largest / least number per neuron over depths 1 to 16, width {width}",
                "value": spread,
                "unit": "ratio",
                "target": "bounded (linear growth): <= 2, where growth like 2^depth would give 2,048",
                "source": "Hanin and Rolnick 2019",
                "met": spread <= 2,
            }
        )
    return figures


def trained() -> list[dict[str, object]]:
    data = open_data("mnist", {"val": 0.05})
    with tempfile.TemporaryDirectory() as directory:
        options = {"hidden": (128, 128, 128)}
        run = train("mlp", data, options, Training(epochs=3, batch_size=128), out=Path(directory) / "run")
        models = {"at initialization": load(run, "initial"), "after 3 epochs": load(run, "last")}
    x = data.splits["test"].inputs[0][:400].double()
    figures: list[dict[str, object]] = []
    for name, model in models.items():
        with exact(model) as twin:
            found = breakpoints(twin, x[:200], x[200:])
        counts = (found.activation_regions - 1).double()
        error = float(counts.std()) / math.sqrt(len(counts))
        figures.append(
            {
                "what": f"breakpoints per neuron between MNIST test images, 784-128-128-128-10, {name}",
                "value": float(counts.mean()) / 384,
                "unit": "1 / neuron",
                "interval": [
                    (float(counts.mean()) - 4 * error) / 384,
                    (float(counts.mean()) + 4 * error) / 384,
                ],
                "target": "<= 2: of the order of one a neuron, where no weights exceed 129^3 / 384 = 5,590",
                "source": "Hanin and Rolnick 2019",
                "met": float(counts.mean()) / 384 <= 2,
            }
        )
    return figures


def main() -> None:
    figures = initialized()
    figures += trained() if os.environ.get("MARGIN_DATA") else []
    record(
        "theory/regions_growth",
        title=f"Breakpoints of ReLU networks along segments: {SEEDS} networks of {SEGMENTS} segments each",
        figures=figures,
        seed=f"0 to {SEEDS - 1}",
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
