"""Classification of MNIST by the Gaussian process of infinitely wide networks (Lee et al. 2018, Table 1).

Regression on one-hot targets of mean 0 with the NNGP kernel of a ReLU network; the depth, sigma_w and the
noise are chosen on images that are part of neither training nor test. All 10,000 test images. Files under
MARGIN_DATA.
"""

import argparse
import math

import torch
from torch import Tensor

from benchmarks.record import record
from margin.data.open import open_data
from margin.theory.kernels.regression import kernel_regression
from margin.theory.kernels.wide import nngp

PUBLISHED = {100: 0.77, 1000: 0.93, 10_000: 0.97}
"""As remembered of Lee et al. 2018, Table 1; to be looked up before they are quoted."""

CHOICES = [
    (depth, std, noise) for depth in (1, 3, 10) for std in (1.2, math.sqrt(2), 1.8) for noise in (1e-3, 1e-1)
]
CHOOSING = 2000


def right(
    train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], choice: tuple[int, float, float]
) -> float:
    depth, weight_std, noise = choice
    options = {"depth": depth, "weight_std": weight_std, "bias_std": 0.3}
    y = torch.nn.functional.one_hot(train[1], 10).double() - 0.1
    K = nngp(train[0], **options)
    cross = nngp(test[0], train[0], **options)
    mean = kernel_regression(K, cross, y, ridge=noise * float(K.diagonal().mean())).mean
    return float((mean.argmax(1) == test[1]).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="kernels/nngp_mnist")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data("mnist", {})
    parts = {}
    for name in ("train", "test"):
        x = data.splits[name].inputs[0].flatten(1).double()
        parts[name] = (x, data.splits[name].targets)
    center = parts["train"][0].mean(0)
    parts = {name: (x - center, y) for name, (x, y) in parts.items()}
    order = torch.randperm(len(parts["train"][0]), generator=torch.Generator().manual_seed(given.seed))
    figures = []
    for n in given.sizes:
        train, val = (
            tuple(part[order[rows]] for part in parts["train"])
            for rows in (slice(0, n), slice(-CHOOSING, None))
        )
        few = tuple(part[: min(n, 2000)] for part in train)
        choice = max(CHOICES, key=lambda c: right(few, val, c))
        share = right(train, parts["test"], choice)
        error = math.sqrt(share * (1 - share) / len(parts["test"][0]))
        figures.append(
            {
                "what": f"MNIST, {n:,} training images: accuracy on the test images",
                "value": round(share, 4),
                "unit": "1",
                "interval": [round(share - 1.96 * error, 4), round(share + 1.96 * error, 4)],
                "target": f"about {PUBLISHED[n]}" if n in PUBLISHED else "",
                "source": "Lee et al. 2018, Table 1 (from memory)",
                "choice": "depth {}, sigma_w {:.2f}, noise {:g}".format(*choice),
            }
        )
    record(
        given.name,
        title="MNIST by the Gaussian process of infinitely wide ReLU networks, as regression on classes.",
        figures=figures,
        seed=given.seed,
    )


if __name__ == "__main__":
    main()
