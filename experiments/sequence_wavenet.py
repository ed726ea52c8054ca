"""A small WaveNet on spoken digits (fsdd, MARGIN_DATA): bits a sample on the official test part, and sound.

The clips of recordings 6 and later are joined to one stream to train on, recording 5 is held out for the
learning curve, recordings 0 to 4 are the official test part. Every test sample is predicted from at least
1,023 samples before it. Beside it stand the best code without context and the best with one sample of it,
both counted on the training stream. The weights of the last step are judged; nothing is chosen on the test
part.
"""

import argparse
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.record import record
from margin import Training, load, train
from margin.core.types import Batch
from margin.data.examples import Data, InOrder
from margin.data.formats.audio.wave import write_wave
from margin.data.transforms.mu_law import mu_law_decode, mu_law_encode
from margin.engine.evaluation import eval_mode
from margin.nn.preprocessed import core_of

LEVELS, CONTEXT, RATE = 256, 1024, 8000


@dataclass(frozen=True, eq=False)
class Stream:
    """Windows of a row of codes; the first ``context`` predictions of each have weight 0."""

    codes: Tensor
    starts: Tensor
    time: int
    context: int
    evaluation_batch: int = 16

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, index: Tensor, generator: Generator) -> Batch:
        at = self.starts[index][:, None] + torch.arange(self.time)
        weight = (torch.arange(self.time) >= self.context).float().expand(len(index), -1)
        return Batch((self.codes[at],), self.codes[at + 1], weight)

    def tensors(self) -> list[Tensor]:
        return [self.codes, self.starts]


def streams(window: int) -> tuple[Data, Tensor]:
    """The data, and the clip to which each code of the test part belongs."""
    held = np.load(Path(os.environ["MARGIN_DATA"]) / "fsdd" / "fsdd.npz")
    ends, recording = torch.from_numpy(held["offsets"]), torch.from_numpy(held["rec"])
    codes = mu_law_encode(torch.from_numpy(held["audio"]).double() / 32768)
    order = torch.randperm(len(recording), generator=Generator().manual_seed(0))
    wanted = {"train": recording > 5, "val": recording == 5, "test": recording < 5}
    rows, clips = {}, {}
    for part, chosen in wanted.items():
        index = [i for i in order.tolist() if chosen[i]]
        rows[part] = torch.cat([codes[ends[i] : ends[i + 1]] for i in index])
        sizes = torch.tensor([int(ends[i + 1] - ends[i]) for i in index])
        clips[part] = torch.repeat_interleave(torch.arange(len(index)), sizes)
    splits = {}
    for part, row in rows.items():
        inside = part == "train"
        time_, step = (window, 512) if inside else (2 * CONTEXT, CONTEXT)
        starts = torch.arange(0, len(row) - time_ - 1, step)
        splits[part] = Stream(row, starts, time_, 0 if inside else CONTEXT - 1)
    spec = {"vocab_size": LEVELS, "time": window, "num_examples": len(splits["train"])}
    encoding = {"format": "fsdd", "kind": "tokens", "task": "tokens", "shape": [window], "dtype": "int64"}
    return Data(name="fsdd", splits=splits, spec=spec, encoding=encoding), clips["test"]


def counted(train_codes: Tensor, context: int) -> Tensor:
    """log2 p(next | the ``context`` codes before), counted with half a count for each code added."""
    if context == 0:
        counts = torch.bincount(train_codes, minlength=LEVELS).double()[None] + 0.5
    else:
        pairs = train_codes[:-1] * LEVELS + train_codes[1:]
        counts = torch.bincount(pairs, minlength=LEVELS**2).double().view(LEVELS, LEVELS) + 0.5
    return (counts / counts.sum(1, keepdim=True)).log2()


def bits_by_clip(bits: Tensor, clip: Tensor) -> tuple[float, float]:
    """Bits a sample, and its standard error over clips (Cochran 1977, Section 2.11: ratio of totals)."""
    count = int(clip.max()) + 1
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, clip, bits)
    size = torch.bincount(clip, minlength=count).double()
    mean = total.sum() / size.sum()
    residual = total - mean * size
    return float(mean), float((residual.square().sum() * count / (count - 1)).sqrt() / size.sum())


def judged(model: torch.nn.Module, test: Stream) -> tuple[Tensor, Tensor]:
    """Bits of each predicted sample, and its place in the stream."""
    bits, places, first = [], [], 0
    with eval_mode(model), torch.no_grad():
        for batch in InOrder(test, 16):
            nats = torch.nn.functional.cross_entropy(model(*batch.inputs).mT, batch.targets, reduction="none")
            kept = batch.weight > 0
            at = test.starts[first : first + len(nats), None] + torch.arange(test.time) + 1
            bits.append(nats[kept].double() / math.log(2))
            places.append(at[kept])
            first += len(nats)
    return torch.cat(bits), torch.cat(places)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--window", type=int, default=4096)
    parser.add_argument("--out", type=Path, required=True, help="where the run and the sounds go")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data, clip = streams(arguments.window)
    training = Training(
        max_steps=arguments.steps, batch_size=2, lr=3e-3, schedule="cosine", warmup=100, clip=1.0,
        evaluate_every=800, patience=0, threads=1, seed=0,
    )  # fmt: skip
    start = time.perf_counter()
    run = train("sequence/wavenet", data, training=training, out=arguments.out / "run")
    seconds = time.perf_counter() - start
    model = load(run, "last")
    test = data.splits["test"]
    bits, places = judged(model, test)
    held, codes = clip[places], test.codes
    row = data.splits["train"].codes
    none, one = counted(row, 0)[0], counted(row, 1)
    found = {
        "wavenet": bits_by_clip(bits, held),
        "one sample of context": bits_by_clip(-one[codes[places - 1], codes[places]], held),
        "no context": bits_by_clip(-none[codes[places]], held),
    }
    start = time.perf_counter()
    drawn = core_of(model).sample(4, generator=Generator().manual_seed(0), length=3 * RATE)
    sampling = time.perf_counter() - start
    for i, sound in enumerate(mu_law_decode(drawn)):
        write_wave(arguments.out / f"sample-{i}.wav", sound, RATE)
    write_wave(arguments.out / "real.wav", mu_law_decode(codes[: 3 * RATE]), RATE)
    figures = [
        {
            "what": f"bits a sample, {name}",
            "value": value,
            "unit": "bits",
            "interval": [value - 2 * error, value + 2 * error],
        }
        for name, (value, error) in found.items()
    ]
    figures[0] |= {
        "target": "below the code with one sample of context",
        "met": found["wavenet"][0] < found["one sample of context"][0],
    }
    figures += [
        {"what": "training, one thread", "value": seconds, "unit": "s"},
        {"what": "a drawn sample, batch of 4", "value": sampling / (4 * 3 * RATE) * 1e6, "unit": "us"},
    ]
    record(
        "sequence/wavenet",
        title="WaveNet (width 32, skip 64, dilations 1 .. 512) on fsdd, 8 kHz mu-law, official test part",
        figures=figures,
        seed=0,
        parameters=sum(p.numel() for p in model.parameters()),
        samples={part: len(split.codes) for part, split in data.splits.items()},
        predicted=len(bits),
        trained_on=f"{arguments.steps} steps of 2 windows of {arguments.window} samples",
        interval="two standard errors over clips, which are taken as independent; speakers are in both parts",
    )


if __name__ == "__main__":
    main()
