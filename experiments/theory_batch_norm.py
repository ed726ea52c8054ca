"""The gradient's change along itself in a deep net, without and with batch normalization, on digits.

Santurkar, Tsipras, Ilyas and Mądry (2018), Figure 4: during training the gradient of a net with batch
normalization predicts the next one better, and the smoothness seen along it is smaller. With torch's default
weights (n Var W = 1/3) the net without normalization does not train at all: its gradient vanishes, and with
it every change of it.
"""

import math

import torch
from torch import nn

from benchmarks.record import record
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.sets.bundled import digits
from margin.engine.loop import risk
from margin.feedforward.mlp.model import layers
from margin.nn.initialization import initialize
from margin.theory.dynamics.predictiveness import gradient_predictiveness

SEEDS, STEPS, EVERY, BATCH, LR = range(5), 200, 10, 128, 0.1
HIDDEN = (100,) * 8
RATES = (0.01, 0.03, 0.1, 0.3)


def smoothness(norm: str, init: str, seed: int) -> tuple[float, float, float]:
    """Geometric means over a training of the smoothness at its rate and of the largest; the last loss."""
    data = digits()
    x, labels = (
        data.preprocess(data.splits["train"].inputs[0].float()).flatten(1),
        data.splits["train"].targets,
    )
    torch.manual_seed(seed)
    model = layers((x.shape[1], *HIDDEN, 10), activation="relu", dropout=0.0, norm=norm).train()
    if init != "default":
        initialize(model, init)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    generator = torch.Generator().manual_seed(seed)
    at_rate, largest, loss = [], [], torch.zeros(())
    for step in range(STEPS):
        index = torch.randint(len(x), (BATCH,), generator=generator)
        batch = Batch((x[index],), labels[index])
        if step % EVERY == 0:
            found = gradient_predictiveness(model, risk(CLASSES), batch, RATES).smoothness
            at_rate.append(float(found[RATES.index(LR)]))
            largest.append(float(found.max()))
        loss = nn.functional.cross_entropy(model(*batch.inputs), batch.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return *(math.exp(sum(map(math.log, v)) / len(v)) for v in (at_rate, largest)), loss.item()


def compared(init: str, runs: dict[str, list[tuple[float, float, float]]]) -> list[dict[str, object]]:
    """With batch normalization over without, paired by seed."""
    losses = {norm: sum(r[2] for r in found) / len(found) for norm, found in runs.items()}
    rows: list[dict[str, object]] = []
    for i, what in enumerate(("at the rate of training, eta = 0.1", "the largest of eta = 0.01 to 0.3")):
        pairs = zip(runs["none"], runs["batch"], strict=True)
        logs = torch.tensor([math.log(b[i] / a[i]) for a, b in pairs], dtype=torch.float64)
        half = 2.776 * float(logs.std()) / math.sqrt(len(logs))  # Student's t, 4 degrees of freedom, 95 %
        mean = float(logs.mean())
        rows.append(
            {
                "what": f"{init}: smoothness along the gradient, {what}, with batch normalization over "
                f"without (last losses {losses['batch']:.3f} and {losses['none']:.3f})",
                "value": math.exp(mean),
                "unit": "1",
                "interval": [math.exp(mean - half), math.exp(mean + half)],
                "published": "below 1 (Santurkar et al. 2018, Figure 4)",
                "target": "the paired 95 % interval over 5 seeds lies below 1",
                "met": mean + half < 0,
            }
        )
    return rows


def main() -> None:
    figures: list[dict[str, object]] = []
    every = {}
    for init in ("he_normal", "default"):
        runs = {norm: [smoothness(norm, init, seed) for seed in SEEDS] for norm in ("none", "batch")}
        figures += compared(init, runs)
        every[init] = {norm: [list(run) for run in found] for norm, found in runs.items()}
    record(
        "theory/batch_norm",
        title=f"Smoothness seen along the gradient in an MLP of {len(HIDDEN)} hidden layers of {HIDDEN[0]} "
        f"on digits, {STEPS} steps of SGD at rate {LR}, geometric mean over the training",
        figures=figures,
        seeds=list(SEEDS),
        runs=every,
    )


if __name__ == "__main__":
    main()
