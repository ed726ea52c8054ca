"""Training steps of LeNet-5 and of ResNet-18 for small images beside the same networks in plain torch.

One thread, float32, AdamW; batches of 64 images of 1 x 28 x 28, and of 16 of 3 x 32 x 32. Our step is the
package's own, which looks whether loss and gradients are finite before it moves a weight; both sides begin
with the same weights and give the same outputs. Each runs in a process of its own, since how a training
keeps memory is set for the whole process. Channels-last and torch.compile are measured for our ResNet beside.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.connection import Connection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.record import ratio, record
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.build import optimizer_of
from margin.engine.loop import GradientUpdate, State, descent, fit, risk
from margin.vision.convnets.lenet5 import LeNet5
from margin.vision.convnets.resnet import ResNet


class PlainLeNet(nn.Module):
    """LeNet-5 behind the same interpolation, in the calls of torch.nn.functional."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(x, size=(32, 32), mode="bilinear", align_corners=False, antialias=True)
        x = F.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class PlainBlock(nn.Module):
    """A basic block as it is commonly written for CIFAR."""

    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(fan_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or fan_in != fan_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(fan_in, fan_out, 1, stride, bias=False), nn.BatchNorm2d(fan_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class PlainResNet(nn.Module):
    """ResNet-18 with a first layer of 3x3, as it is commonly written for CIFAR."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
        blocks = [PlainBlock(a, b, 1 if a == b else 2) for a, b in pairwise(widths)]
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return self.linear(F.avg_pool2d(out, 4).flatten(1))


def alike(ours: nn.Module, plain: nn.Module, x: Tensor) -> None:
    """Give the plain network our weights, which stand in the same order, and check that it is the same."""
    kinds = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)
    for kind in kinds:
        pairs = zip(
            (m for m in ours.modules() if isinstance(m, kind)),
            (m for m in plain.modules() if isinstance(m, kind)),
            strict=True,
        )
        for mine, theirs in pairs:
            theirs.load_state_dict(mine.state_dict())
    with torch.no_grad():
        if not torch.allclose(ours.eval()(x), plain.eval()(x), rtol=1e-4, atol=1e-4):
            raise ValueError("the two networks must be one: their outputs differ")
    ours.train()
    plain.train()


def our_steps(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Callable[[], None]:
    """Steps of the package's loop on one batch."""
    optimizer = optimizer_of(model, "AdamW", lr=1e-4, options={}, decay_norms=True)
    state, step = State({"model": model}, {"": optimizer}), descent(risk(CLASSES), GradientUpdate())
    return lambda: void(fit(state, lambda at: Batch((x,), y), step, max_steps=state.step + steps))


CASES = {
    "LeNet-5, 28 x 28": ((1, 28, 28), 64, 20, lambda: (LeNet5(1, 10), PlainLeNet())),
    "ResNet-18, 32 x 32": ((3, 32, 32), 16, 3, lambda: (ResNet(3, (32, 32), 10, depth=18), PlainResNet())),
}
"""Shape of an image, images a step, steps a turn, and what makes the two networks."""


def serve(pipe: Connection, case: str, side: str) -> None:
    """Run a side's steps whenever a word comes, and answer with their CPU seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape, count, steps, make = CASES[case]
    x, y = torch.randn(count, *shape), torch.randint(10, (count,))
    ours, plain = make()
    alike(ours, plain, x)
    if side == "plain":
        run = plain_steps(plain, x, y, steps)
    elif side == "channels last":
        last, x = ours.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        run = our_steps(last, x, y, steps)
    else:
        if side == "compiled":
            ours.compile()
        run = our_steps(ours, x, y, steps)
    while pipe.recv():
        start = time.process_time()
        run()
        pipe.send(time.process_time() - start)


def in_turn(rounds: int, case: str, sides: list[str]) -> dict[str, list[float]]:
    """CPU seconds of each side, run in turn after one warm-up each: other work on the machine counts less."""
    spawn, pipes = multiprocessing.get_context("spawn"), {}
    for side in sides:
        pipes[side], end = spawn.Pipe()
        spawn.Process(target=serve, args=(end, case, side), daemon=True).start()
    times: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        for side, pipe in pipes.items():
            pipe.send(True)
            seconds = pipe.recv()
            if turn > 0:
                times[side].append(seconds)
    for pipe in pipes.values():
        pipe.send(False)
    return times


def void(_: object) -> None:
    """Drop a value."""


def plain_steps(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Callable[[], None]:
    """The loop as it is written by hand."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            loss.item()

    return run


def measured(name: str, images: int, times: dict[str, list[float]]) -> list[dict[str, object]]:
    """Images a second of both sides, and how many times as fast ours is."""
    value, low, high = ratio(times, "plain", "ours")
    rows: list[dict[str, object]] = [
        {
            "what": f"{name}: images a CPU second, {side}",
            "value": images / statistics.median(found),
            "unit": "1/s",
        }
        for side, found in times.items()
    ]
    speed = {"what": f"{name}: our images a second, in those of plain torch", "value": value, "unit": "ratio"}
    return [
        *rows,
        {**speed, "interval": [low, high], "target": ">= 1.0", "met": value >= 1.0},
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compiled", action="store_true", help="torch.compile beside; it takes a compiler")
    arguments = parser.parse_args()
    rows, seconds = [], {}
    for name, (_, count, steps, _) in CASES.items():
        more = ["channels last", *(["compiled"] if arguments.compiled else [])]
        sides = ["ours", "plain", *(more if name.startswith("ResNet") else [])]
        times = in_turn(arguments.rounds, name, sides)
        rows += measured(name, count * steps, times)
        seconds[name] = {side: statistics.median(found) for side, found in times.items()}
        print(name, seconds[name], flush=True)
    record(
        "vision/convnets_speed",
        title="Training steps of LeNet-5 and ResNet-18 beside plain torch, one thread, CPU seconds",
        figures=rows,
        seconds=seconds,
        rounds=arguments.rounds,
        threads=1,
    )


if __name__ == "__main__":
    main()
