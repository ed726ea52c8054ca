"""RealNVP beside nflows and zuko: log-likelihood and sampling of 100,000 points of the plane, one thread.

The peers stand in build/peers (``PYTHONPATH=build/peers``). All three have eight affine couplings whose
networks have two hidden layers: as many parameters each. nflows gets a plain MLP, as ours and zuko's are.
"""

import argparse
import statistics

import torch
import torch.nn.functional as F
import zuko
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.nn.nets.mlp import MLP
from nflows.transforms.base import CompositeTransform
from nflows.transforms.coupling import AffineCouplingTransform
from torch import Generator, Tensor, nn

from benchmarks.record import interleaved, ratio, record
from margin.generative.flow.realnvp import realnvp

LAYERS = 8
TARGETS = {"nflows": 1.5, "zuko": 1.0}


class Plain(MLP):
    """nflows' MLP, called as its couplings call: with a context, which is none."""

    def forward(self, inputs: Tensor, context: None = None) -> Tensor:
        return super().forward(inputs)


def of_nflows(width: int) -> Flow:
    def network(fan_in: int, fan_out: int) -> nn.Module:
        return Plain((fan_in,), (fan_out,), [width, width], activation=F.relu)

    masks = [torch.tensor([i % 2, (i + 1) % 2]) for i in range(LAYERS)]
    return Flow(
        CompositeTransform([AffineCouplingTransform(mask, network) for mask in masks]), StandardNormal([2])
    )


def contest(width: int, points: int, rounds: int) -> tuple[dict[str, list[float]], list[int]]:
    """Seconds of each contestant at each task, and the parameters of each."""
    torch.manual_seed(0)
    ours = realnvp(2, layers=LAYERS, hidden=(width, width))
    nflows = of_nflows(width)
    other = zuko.flows.RealNVP(2, 0, transforms=LAYERS, hidden_features=(width, width))
    x, generator = torch.randn(points, 2), Generator().manual_seed(0)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (ours, nflows, other)]
    if len(set(sizes)) > 1:
        raise RuntimeError(f"the three must have as many parameters: got {sizes}")
    with torch.no_grad():
        times = interleaved(
            rounds,
            ours_likelihood=lambda: ours.log_prob(x),
            nflows_likelihood=lambda: nflows.log_prob(x),
            zuko_likelihood=lambda: other().log_prob(x),
            ours_sampling=lambda: ours.sample(points, generator=generator),
            nflows_sampling=lambda: nflows.sample(points),
            zuko_sampling=lambda: other().sample((points,)),
        )
    return times, sizes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures, seconds = [], {}
    for width in (32, 64):
        times, sizes = contest(width, arguments.points, arguments.rounds)
        seconds[f"width {width}"] = times
        for peer, target in TARGETS.items():
            for task in ("likelihood", "sampling"):
                middle, least, largest = ratio(times, f"{peer}_{task}", f"ours_{task}")
                ours = statistics.median(times[f"ours_{task}"])
                figures.append(
                    {
                        "what": f"{peer}'s seconds over ours, {task}, networks of 2 x {width} units "
                        f"({sizes[0]:,} parameters, ours {ours:.3f} s)",
                        "value": middle,
                        "unit": "1",
                        "interval": [least, largest],
                        "target": f">= {target}",
                        "met": middle >= target,
                    }
                )
    record(
        "generative/flows",
        title=f"{LAYERS} affine couplings on {arguments.points:,} points of the plane in float32, no "
        f"gradient, {arguments.threads} thread(s), medians of {arguments.rounds} interleaved rounds",
        figures=figures,
        packages=("nflows", "zuko"),
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
