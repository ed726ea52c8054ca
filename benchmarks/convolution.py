"""Convolution by FFT beside the direct one, forward, and from which kernel on it is faster: one thread.

A single channel is what the transform is for; a layer of many channels transforms each once and sums
products, so that its kernel must be larger than any network's before it pays.
"""

import math
import statistics

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from benchmarks.record import interleaved, ratio, record
from margin.vision.algebra.discrete import convolve, fft_convolve, smooth

ROUNDS = 7
KERNELS = {
    "1 axis, 16,384 places": ((16384,), (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)),
    "2 axes, 256 x 256": ((256, 256), (3, 5, 7, 11, 15, 23, 31, 47)),
}
LAYERS = {
    "16 to 16 channels, 8 images of 56 x 56": (8, 16, 56, (3, 5, 7, 11, 15, 23)),
    "64 to 64 channels, 4 images of 28 x 28": (4, 64, 28, (3, 5, 7, 11, 15)),
}


def fft_layer(x: Tensor, weight: Tensor) -> Tensor:
    """conv2d(x, weight) with padding k // 2, stride 1, as a sum of products of transforms."""
    k = weight.shape[-1]
    size = [smooth(n + k - 1) for n in x.shape[2:]]
    product = torch.einsum(
        "ncij,ocij->noij", torch.fft.rfft2(x, size), torch.fft.rfft2(weight.flip(2, 3), size)
    )
    full = torch.fft.irfft2(product, size)
    return full[:, :, k // 2 : k // 2 + x.shape[2], k // 2 : k // 2 + x.shape[3]]


def crossing(kernels: list[int], ratios: list[float]) -> float | None:
    """The kernel at which the ratio passes 1 for good, on logarithmic axes; None where it does not."""
    behind = [i for i, value in enumerate(ratios) if value < 1]
    last = behind[-1] if behind else -1
    if last == len(kernels) - 1:
        return None
    if last < 0:
        return float(kernels[0])
    (k0, k1), (r0, r1) = kernels[last : last + 2], ratios[last : last + 2]
    share = -math.log(r0) / (math.log(r1) - math.log(r0))
    return math.exp(math.log(k0) + share * (math.log(k1) - math.log(k0)))


def measured(name: str, contestants: dict[int, tuple]) -> list[dict[str, object]]:
    """A row a kernel: how many times as long the direct one takes; then where both take as long."""
    rows, ratios = [], []
    for kernel, (direct, fft, gap) in contestants.items():
        times = interleaved(ROUNDS, direct=direct, fft=fft)
        value, low, high = ratio(times, "direct", "fft")
        ratios.append(value)
        seconds = {key: statistics.median(found) for key, found in times.items()}
        what = f"direct / FFT, {name}, kernel {kernel}"
        rows.append(
            {"what": what, "value": value, "unit": "ratio", "interval": [low, high], "seconds": seconds}
        )
        rows[-1]["largest relative difference"] = gap
        print(rows[-1], flush=True)
    at = crossing(list(contestants), ratios)
    what = f"kernel from which FFT is faster, {name}"
    rows.append({"what": what, "value": math.nan if at is None else at, "unit": "places an axis"})
    if at is None:
        rows[-1] |= {
            "value": float(max(contestants)),
            "note": "not reached: the largest kernel that was tried",
        }
    return rows


def relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


def arrays() -> list[dict[str, object]]:
    rows = []
    for name, (sizes, kernels) in KERNELS.items():
        f = torch.randn(sizes, generator=Generator().manual_seed(0))
        made = {}
        for k in kernels:
            h = torch.randn([k] * len(sizes), generator=Generator().manual_seed(1))
            direct, fft = (lambda f=f, h=h: convolve(f, h)), (lambda f=f, h=h: fft_convolve(f, h))
            made[k] = (direct, fft, relative(fft(), direct()))
        rows += measured(name, made)
    return rows


def layers() -> list[dict[str, object]]:
    rows = []
    for name, (batch, channels, side, kernels) in LAYERS.items():
        x = torch.randn(batch, channels, side, side, generator=Generator().manual_seed(0))
        made = {}
        for k in kernels:
            w = torch.randn(channels, channels, k, k, generator=Generator().manual_seed(1))
            direct, fft = (
                (lambda x=x, w=w, k=k: F.conv2d(x, w, padding=k // 2)),
                (lambda x=x, w=w: fft_layer(x, w)),
            )
            made[k] = (direct, fft, relative(fft(), direct()))
        rows += measured(name, made)
    return rows


def main() -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        figures = [*arrays(), *layers()]
    record(
        "vision/fft_convolution",
        title="Convolution by FFT beside the direct one, forward, one thread, float32",
        figures=figures,
        rounds=ROUNDS,
        threads=1,
    )


if __name__ == "__main__":
    main()
