"""A training with augmentation beside a loop written by hand, which crops or turns its batches itself."""

import torch
import torch.nn.functional as F
from torch import Generator, nn

from benchmarks.record import interleaved, ratio, record
from margin.core.tasks import CLASSES
from margin.data.examples import Arrays, Shuffled
from margin.data.transforms.augmentation import augmented, transforms_of
from margin.engine.loop import GradientUpdate, State, descent, fit, risk

N, SIZE, BATCH, STEPS, ROUNDS = 4096, 28, 64, 100, 9
SPEC = {"channels": 1, "image_size": (SIZE, SIZE)}
generator = Generator().manual_seed(0)
X = torch.rand(N, 1, SIZE, SIZE, generator=generator)
Y = torch.randint(10, (N,), generator=generator)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 256), nn.ReLU(), nn.Linear(256, 10))


def ours(*words):
    examples = augmented(Arrays((X,), Y), transforms_of(words, SPEC))

    def run():
        net = model()
        state = State({"model": net}, {"": torch.optim.AdamW(net.parameters(), fused=True)})
        batches = Shuffled(examples, BATCH, seed=0)
        fit(state, batches, descent(risk(CLASSES), GradientUpdate()), max_steps=STEPS)

    return run


def crop(x):
    windows = F.pad(x, (2, 2, 2, 2)).unfold(2, SIZE, 1).unfold(3, SIZE, 1)
    top, left = torch.randint(5, (2, len(x)))
    return windows[torch.arange(len(x)), :, top, left]


def rotate(x):
    angle = torch.empty(len(x)).uniform_(-0.26, 0.26)
    zero = torch.zeros_like(angle)
    rows = torch.stack((angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero), 1)
    grid = F.affine_grid(rows.reshape(-1, 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def by_hand(change):
    def run():
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), fused=True)
        order = torch.randperm(N)
        for step in range(STEPS):
            index = order[step * BATCH % N : step * BATCH % N + BATCH]
            loss = F.cross_entropy(net(change(X[index])), Y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()

    return run


def main() -> None:
    torch.set_num_threads(1)
    figures, raw = [], {}
    for word, change in (("crop:2", crop), ("rotate:15", rotate)):
        times = interleaved(ROUNDS, margin=ours(word), hand=by_hand(change))
        middle, low, high = ratio(times, "margin", "hand")
        raw[word] = times
        figures.append(
            {
                "what": f"seconds of a training with {word} by those of the loop by hand, median",
                "value": middle,
                "unit": "1",
                "interval": [low, high],
                "target": "<= 1.3",
                "met": middle <= 1.3,
            }
        )
    record(
        "engine/augmentation",
        title=f"MLP of 256 units on {N} images of 28 x 28 pixels, {STEPS} steps of {BATCH}, one thread, "
        f"{ROUNDS} pairs",
        figures=figures,
        seconds=raw,
    )


if __name__ == "__main__":
    main()
