"""What bounds cost beside a forward pass: intervals, linear bounds, affine forms, Lipschitz constants.

The small CNN of Wong and Kolter (2018) on images of 28x28 in batches of 128, one thread, interleaved rounds;
bounds take their products in float32, as the forward pass does, and cover the rounding of both. Affine forms
are in float64, and asked of images of 8x8, which have as many coordinates as they are carried in.
"""

import torch
from torch import Tensor, nn

from benchmarks.record import interleaved, ratio, record
from benchmarks.smoothing import small_cnn
from margin.core.types import Domain
from margin.engine.parallel.processes import kept_memory
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.certify import ball_of
from margin.robust.certificates.intervals import margin_bounds
from margin.robust.certificates.linear_bounds import crown_margins
from margin.robust.certificates.lipschitz import lipschitz_margins

BATCH, ROUNDS, EPS = 128, 7, 0.02
UNIT = Domain(torch.tensor(0.0), torch.tensor(1.0))


def digits_cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Upsample(scale_factor=3.5), small_cnn()).eval()


def costs(model: nn.Module, x: Tensor, **bounds) -> dict[str, tuple[float, float, float]]:
    """The ratio of each bound's time to that of a forward pass, over the rounds."""

    @torch.no_grad()
    def forward() -> None:
        for _ in range(10):
            model(x)

    with kept_memory():  # of both, so that neither pays for pages that the system clears
        times = interleaved(ROUNDS, forward=forward, **bounds)
    return {name: tuple(10 * part for part in ratio(times, name, "forward")) for name in bounds}


def row(what: str, found: tuple[float, float, float], most: float | None = None) -> dict[str, object]:
    cost, least, largest = found
    made = {"what": what, "value": cost, "unit": "ratio", "interval": [least, largest]}
    return made if most is None else made | {"target": f"<= {most:g}", "met": cost <= most}


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    model, x = small_cnn().eval(), torch.rand(BATCH, 1, 28, 28, generator=generator)
    with torch.no_grad():
        y = model(x).argmax(1)
    ball, round_ball = ball_of(x, Threat(UNIT, EPS)), ball_of(x, Threat(UNIT, EPS, "l2"))
    rival = (y + 1)[:, None] % 10
    found = costs(
        model,
        x,
        intervals=lambda: margin_bounds(model, ball.low, ball.high, y),
        one=lambda: crown_margins(model, ball, y, rivals=rival),
        every=lambda: crown_margins(model, ball, y),
        constants=lambda: lipschitz_margins(model, round_ball, y),
    )
    few, small = x[:16, :, ::4, ::4][:, :, :8, :8], digits_cnn()
    few = torch.nn.functional.pad(few, (0, 8 - few.shape[3], 0, 8 - few.shape[2]))
    labels, box = y[:16], ball_of(few, Threat(UNIT, EPS))
    forms = costs(small, few, forms=lambda: crown_margins(small, box, labels, columns=64))["forms"]
    record(
        "robust/certificates",
        title="Costs of certificates in forward passes, small CNN, one thread",
        figures=[
            row("interval bounds of all margins / a forward pass, batch 128", found["intervals"], 4),
            row("linear bounds (CROWN) of one margin an example / a forward pass", found["one"], 20),
            row("linear bounds (CROWN) of all nine margins / a forward pass", found["every"]),
            row("Lipschitz constants, l2, of all margins / a forward pass", found["constants"]),
            row("CROWN with affine forms of 64 coordinates, all margins, batch 16 / a forward pass", forms),
        ],
        rounds=ROUNDS,
    )


if __name__ == "__main__":
    main()
