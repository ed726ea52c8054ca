"""How many MNIST digits each associative memory keeps: Hebbian weights, dense energies, softmax attention."""

import torch

from benchmarks.record import record
from margin.classic.memory.dense_associative_memory import DenseAssociativeMemory, ModernHopfield
from margin.classic.memory.hopfield import Hopfield
from margin.data.open import open_data

COUNTS, SEEDS, NOISE = (2, 5, 10, 29, 100, 300), range(5), 0.1
MEMORIES = {
    "Hebbian weights": lambda n, s: Hopfield(n, s, num_patterns=s, threshold=127.5),
    "rectified cubic energy": lambda n, s: DenseAssociativeMemory(
        n, s, num_patterns=s, threshold=127.5, separation="rectified", order=3
    ),
    "exponential energy": lambda n, s: DenseAssociativeMemory(n, s, num_patterns=s, threshold=127.5),
    "softmax attention, beta 1": lambda n, s: ModernHopfield(n, s, num_patterns=s),
}


def share_kept(memory: torch.nn.Module, x: torch.Tensor, preprocess: torch.nn.Module, noise: float) -> float:
    """Share of stored digits retrieved whole (real ones to a thousandth) from probes with inverted pixels."""
    memory.store(x, preprocess)
    inverted = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < noise
    with torch.no_grad():
        found = memory(preprocess(torch.where(inverted, 255 - x, x)))
    patterns = memory.patterns
    return float(((found - patterns).norm(dim=1) <= 1e-3 * patterns.norm(dim=1)).double().mean())


def main() -> None:
    torch.set_num_threads(1)
    data = open_data("mnist", {})
    digits, preprocess = data.splits["train"].inputs[0], data.preprocess.float()
    figures = []
    for name, build in MEMORIES.items():
        for noise in (0.0, NOISE):
            for count in COUNTS:
                shares = []
                for seed in SEEDS:
                    chosen = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))[
                        :count
                    ]
                    x = digits[chosen].float()
                    shares.append(share_kept(build(784, count), x, preprocess, noise))
                figures.append(
                    {
                        "what": f"{name}, {count} digits, {noise:.0%} of pixels inverted: share retrieved",
                        "value": sum(shares) / len(shares),
                        "unit": "1",
                        "interval": [min(shares), max(shares)],
                    }
                )
    record(
        "classic/hopfield_mnist",
        title="MNIST digits that an associative memory retrieves whole: mean over 5 draws, least and largest",
        figures=figures,
        seeds=list(SEEDS),
    )


if __name__ == "__main__":
    main()
