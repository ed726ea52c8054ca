"""What dropout, batch normalization and augmentation cost beside the same loop written by hand in PyTorch."""

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.record import interleaved, ratio, record
from margin.core.tasks import CLASSES
from margin.data.examples import Arrays, Shuffled
from margin.data.transforms.augmentation import augmented, transforms_of
from margin.engine.build import optimizer_of
from margin.engine.loop import GradientUpdate, State, descent, fit, risk
from margin.feedforward.mlp.model import MLP

ROWS, SIDE, BATCH, ROUNDS, MOST, REACH = 12_800, 28, 128, 7, 1.3, 2
WORDS, SPEC = ("flip", f"crop:{REACH}"), {"channels": 1, "image_size": (SIDE, SIDE)}


def flipped_and_cropped(x: Tensor) -> Tensor:
    """Half of the images mirrored, then each cropped at random from itself with a border of two pixels."""
    n = len(x)
    x = torch.where(torch.rand(n, 1, 1, 1) < 0.5, x.flip(-1), x)
    x = F.pad(x, (REACH,) * 4)
    rows, columns = (torch.randint(0, 2 * REACH + 1, (n, 1)) + torch.arange(SIDE) for _ in range(2))
    return x[torch.arange(n)[:, None, None], 0, rows[:, :, None], columns[:, None, :]].unsqueeze(1)


def by_hand(X: Tensor, y: Tensor, model: nn.Module, change: Callable[[Tensor], Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def run() -> None:
        model.train()
        order = torch.randperm(ROWS)
        for i in range(0, ROWS, BATCH):
            index = order[i : i + BATCH]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(change(X[index])), y[index])
            loss.backward()
            optimizer.step()
            loss.item()

    return run


def by_fit(X: Tensor, y: Tensor, model: nn.Module, words: tuple[str, ...]) -> Callable[[], None]:
    batches = Shuffled(augmented(Arrays((X,), y), transforms_of(words, SPEC)), BATCH, seed=0)
    optimizer = optimizer_of(model, "AdamW", lr=1e-3, options={}, decay_norms=True)
    state, step = State({"model": model}, {"": optimizer}), descent(risk(CLASSES), GradientUpdate())

    def run() -> None:
        fit(state, batches, step, max_steps=state.step + batches.per_epoch)

    return run


def plain(dropout: float, norm: str) -> nn.Module:
    torch.manual_seed(0)
    hidden: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in ((784, 256), (256, 128)):
        hidden += [nn.Linear(fan_in, fan_out), *([nn.BatchNorm1d(fan_out)] if norm == "batch" else [])]
        hidden += [nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*hidden, nn.Linear(128, 10))


def ours(dropout: float, norm: str) -> nn.Module:
    torch.manual_seed(0)
    return MLP(784, 10, hidden=(256, 128), dropout=dropout, norm=norm)


TRICKS = {
    "dropout": (0.5, "none", ()),
    "batch normalization": (0.0, "batch", ()),
    "augmentation (flip, crop)": (0.0, "none", WORDS),
    "all three": (0.5, "batch", WORDS),
}


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, 1, SIDE, SIDE, generator=generator)
    y = torch.randint(0, 10, (ROWS,), generator=generator)
    figures, seconds = [], {}
    for name, (dropout, norm, words) in TRICKS.items():
        times = interleaved(
            ROUNDS,
            by_hand=by_hand(X, y, plain(dropout, norm), flipped_and_cropped if words else lambda x: x),
            by_fit=by_fit(X, y, ours(dropout, norm), words),
        )
        cost, least, most = ratio(times, "by_fit", "by_hand")
        figures.append(
            {
                "what": f"{name}: an epoch through fit / by hand",
                "value": cost,
                "unit": "ratio",
                "interval": [least, most],
                "target": f"<= {MOST}",
                "met": cost <= MOST,
            }
        )
        seconds[name] = {who: statistics.median(values) for who, values in times.items()}
    record(
        "feedforward/tricks",
        title=f"An epoch of 784-256-128-10 with tricks, {ROWS} rows, batch {BATCH}, beside plain PyTorch",
        figures=figures,
        seconds=seconds,
        rounds=ROUNDS,
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
