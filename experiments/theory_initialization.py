"""What initialization keeps through fifty layers: He's mean square and its scatter, LeCun's halving, lengths.

He, Zhang, Ren and Sun (2015): through maps of variance 2/n with ReLU the mean square is kept in the mean over
nets; a single net scatters, with a log-variance of about 5 L / n.
"""

import math

import torch
from torch import nn

from benchmarks.record import record
from margin.nn.initialization import initialize

WIDTH, DEPTH = 1024, 50
NETS = {"he_normal": 200, "lecun_normal": 20, "default": 20}


def log_ratio(scheme: str, generator: torch.Generator) -> float:
    """log |h_L|^2 / |h_0|^2 of one net of ReLU layers on one input, a layer at a time."""
    h = torch.randn(WIDTH, generator=generator)
    start = float(h.square().sum())
    layer = nn.Linear(WIDTH, WIDTH, bias=False)
    with torch.no_grad():
        for _ in range(DEPTH):
            if scheme == "default":  # torch's own: U[-1/sqrt n, 1/sqrt n]
                layer.weight.uniform_(-1 / math.sqrt(WIDTH), 1 / math.sqrt(WIDTH), generator=generator)
            else:
                initialize(layer, scheme, generator=generator)
            h = layer(h).relu()
    return math.log(float(h.square().sum())) - math.log(start)


def row(what: str, value: float, error: float, target: str, met: bool) -> dict[str, object]:
    return {
        "what": what,
        "value": value,
        "unit": "1",
        "interval": [value - 4 * error, value + 4 * error],
        "target": target,
        "met": met,
    }


def main() -> None:
    figures: list[dict[str, object]] = []
    expected = {"he_normal": 0.0, "lecun_normal": -DEPTH * math.log(2), "default": -DEPTH * math.log(6)}
    words = {"he_normal": "1", "lecun_normal": "2^-50", "default": "6^-50 (n Var W = 1/3)"}
    for scheme, nets in NETS.items():
        generator = torch.Generator().manual_seed(0)
        logs = torch.tensor([log_ratio(scheme, generator) for _ in range(nets)], dtype=torch.float64)
        ratio = (logs - expected[scheme]).exp()
        mean, error = float(ratio.mean()), float(ratio.std()) / math.sqrt(nets)
        name = f"{scheme}: mean of |h_50|^2 / |h_0|^2 over {nets} nets, relative to {words[scheme]}"
        figures.append(row(name, mean, error, "1 within 4 standard errors", abs(mean - 1) <= 4 * error))
        if scheme == "he_normal":
            variance = float(logs.var())
            exact = 5 * DEPTH / WIDTH
            spread = variance * math.sqrt(2 / (nets - 1))
            near = abs(variance - exact) <= 4 * spread
            figures.append(
                row("he_normal: variance of its log", variance, spread, f"about 5 L / n = {exact:.3f}", near)
            )
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(DEPTH))).double()
    initialize(net, "orthogonal", generator=generator)
    x = torch.randn(64, 256, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        gap = float((net(x).norm(dim=1) / x.norm(dim=1) - 1).abs().max())
    name = "orthogonal: largest relative change of a length through 50 linear layers of width 256"
    figures.append(row(name, gap, 0.0, "0 up to rounding (1e-12)", gap < 1e-12))
    record(
        "theory/initialization",
        title=f"Random initialization through {DEPTH} layers of width {WIDTH} with ReLU",
        figures=figures,
        seeds=[0],
    )


if __name__ == "__main__":
    main()
