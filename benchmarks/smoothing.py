"""What smoothing costs beside its bare forward passes, and adversarial training beside its bare gradients."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.record import interleaved, ratio, record
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import GradientUpdate, State, risk
from margin.robust.certificates.smoothing import CHUNK, certify
from margin.robust.training.adversarial import adversarial_training

DRAWS, SELECT, BATCH, STEPS, ROUNDS = 10_000, 100, 128, 5, 7


def small_cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )


def smoothing_cost() -> dict[str, object]:
    model, x = small_cnn().eval(), torch.rand(1, 1, 28, 28)
    copies = x.repeat(CHUNK, 1, 1, 1)

    @torch.no_grad()
    def bare() -> None:
        for size in (SELECT, *[CHUNK] * (DRAWS // CHUNK)):
            model(copies[:size])

    def ours() -> None:
        certify(model, x, 0.25, Generator().manual_seed(0), select=SELECT, draws=DRAWS)

    times = interleaved(ROUNDS, ours=ours, bare=bare)
    cost, least, most = ratio(times, "ours", "bare")
    return {
        "what": f"CERTIFY at n = {DRAWS:,}, n0 = {SELECT} an image / its bare forward passes",
        "value": cost,
        "unit": "ratio",
        "interval": [least, most],
        "target": "<= 1.2",
        "met": cost <= 1.2,
    }


def training_cost() -> dict[str, object]:
    generator = Generator().manual_seed(0)
    x, y = (
        torch.rand(BATCH, 1, 28, 28, generator=generator),
        torch.randint(0, 10, (BATCH,), generator=generator),
    )
    model, plain = small_cnn().train(), small_cnn().train()
    state = State({"model": model}, {"": torch.optim.Adam(model.parameters(), fused=True)})
    optimizer = torch.optim.Adam(plain.parameters(), fused=True)
    step = adversarial_training(
        risk(CLASSES), GradientUpdate(), Domain(torch.tensor(0.0), torch.tensor(1.0)), eps=0.1, steps=STEPS
    )

    def ours() -> None:
        for _ in range(5):
            step(state, Batch((x,), y))

    def gradient(moved: Tensor) -> Tensor:
        moved = moved.detach().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(plain(moved), y), moved)[0]

    def bare() -> None:
        for _ in range(5):
            for _ in range(STEPS):
                gradient(x)
            optimizer.zero_grad()
            F.cross_entropy(plain(x), y).backward()
            optimizer.step()

    times = interleaved(ROUNDS, ours=ours, bare=bare)
    cost, least, most = ratio(times, "ours", "bare")
    return {
        "what": f"adversarial training, {STEPS} steps of ascent, batch {BATCH} / its bare gradients",
        "value": cost,
        "unit": "ratio",
        "interval": [least, most],
        "target": "<= 1.15",
        "met": cost <= 1.15,
    }


def main() -> None:
    torch.set_num_threads(1)
    record(
        "robust/costs",
        title="Costs of smoothing and of adversarial training, small CNN on 28x28 images, one thread",
        figures=[smoothing_cost(), training_cost()],
        rounds=ROUNDS,
    )


if __name__ == "__main__":
    main()
