"""Elman, LSTM and GRU as recurrences beside torch's bare layers, and the published GRU, which is a loop."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.record import interleaved, ratio, record
from margin.sequence.recurrent import gru
from margin.sequence.recurrent.layers import TorchRecurrence

ROUNDS, REPEATS, MOST, WIDTH = 7, 2, 1.05, 128
SIZES = ((1, 1024), (32, 128))
LAYERS = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


def ours(model: nn.Module, x: Tensor, lengths: Tensor | None = None) -> None:
    for _ in range(REPEATS):
        model.zero_grad()
        model(x, lengths)[0].square().sum().backward()


def bare(layer: nn.Module, x: Tensor) -> None:
    for _ in range(REPEATS):
        layer.zero_grad()
        layer(x)[0].square().sum().backward()


def bare_packed(layer: nn.Module, x: Tensor, lengths: Tensor) -> None:
    for _ in range(REPEATS):
        layer.zero_grad()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(layer(packed)[0], batch_first=True, total_length=x.shape[1])
        outputs.square().sum().backward()


def row(what: str, times: dict[str, list[float]], bounded: bool = True) -> dict[str, object]:
    value, least, most = ratio(times, "ours", "torch")
    target = {"target": f"<= {MOST}", "met": value <= MOST} if bounded else {}
    return {"what": what, "value": value, "unit": "ratio", "interval": [least, most], **target}


def main() -> None:
    torch.set_num_threads(1)
    figures = []
    for batch, time in SIZES:
        x = torch.randn(batch, time, WIDTH, generator=torch.Generator().manual_seed(0))
        for name, kind in LAYERS.items():
            torch.manual_seed(0)
            layer = kind(WIDTH, WIDTH, batch_first=True)
            model = TorchRecurrence(layer)
            times = interleaved(ROUNDS, ours=partial(ours, model, x), torch=partial(bare, layer, x))
            figures.append(row(f"{name}, batch {batch}, T = {time}: forward and backward / torch's", times))
    lengths = torch.randint(1, time + 1, (batch,), generator=torch.Generator().manual_seed(1))
    times = interleaved(
        ROUNDS, ours=partial(ours, model, x, lengths), torch=partial(bare_packed, layer, x, lengths)
    )
    figures.append(row(f"GRU, batch {batch}, lengths 1 .. {time}: the same / torch's, packed", times))
    loop = gru.ResetBeforeGRU(WIDTH, hidden=WIDTH)
    times = interleaved(ROUNDS, ours=partial(ours, loop, x), torch=partial(bare, layer, x))
    figures.append(
        row(f"GRU with reset before, a loop, batch {batch}, T = {time} / torch's GRU", times, False)
    )
    record(
        "sequence/recurrent_layers",
        title=f"Recurrences beside torch's layers, {WIDTH} units, float32, one thread",
        figures=figures,
        rounds=ROUNDS,
        threads=1,
    )


if __name__ == "__main__":
    main()
