"""Rosenblatt's rule beside scikit-learn's Perceptron: same weights, time, and mistakes of a plain loop."""

import numpy as np
import torch
from sklearn.linear_model import Perceptron as Reference

from benchmarks.record import interleaved, ratio, record
from margin.classic.perceptron.model import mistakes_of_pass

ROWS, FEATURES, MARGIN, PASSES, ROUNDS = 100_000, 100, 0.02, 5, 7


def sample() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of N(0, I / features), pushed away from a hyperplane to the margin."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=generator, dtype=torch.float64) / FEATURES**0.5
    w = torch.randn(FEATURES, generator=generator, dtype=torch.float64)
    w /= w.norm()
    score = x @ w
    y = torch.where(score >= 0, 1.0, -1.0).double()
    short = (MARGIN - y * score).clamp(min=0)
    return x + (short * y)[:, None] * w, y


def plain(x: np.ndarray, y: np.ndarray) -> int:
    w, b, mistakes = np.zeros(FEATURES), 0.0, 0
    for _ in range(PASSES):
        for row, sign in zip(x, y, strict=True):
            if sign * (w @ row + b) <= 0:
                w += sign * row
                b += sign
                mistakes += 1
    return mistakes


def main() -> None:
    x, y = sample()
    xn, yn = x.numpy(), y.numpy()
    found: dict[str, object] = {}

    def ours() -> None:
        w, b = torch.zeros(FEATURES, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        made = sum(len(mistakes_of_pass(w, b, x, y)) for _ in range(PASSES))
        found.update(w=w, b=float(b), mistakes=made)

    def reference() -> None:
        found["reference"] = Reference(shuffle=False, tol=None, max_iter=PASSES).fit(xn, yn)

    times = interleaved(ROUNDS, ours=ours, reference=reference)
    slower, least, most = ratio(times, "ours", "reference")
    theirs = found["reference"]
    gap = max(np.abs(found["w"].numpy() - theirs.coef_[0]).max(), abs(found["b"] - theirs.intercept_[0]))
    mistakes = plain(xn, yn)
    record(
        "classic/perceptron",
        title="Rosenblatt's rule, 100,000 x 100, margin 0.02, 5 passes, beside scikit-learn's Perceptron",
        figures=[
            {
                "what": "largest difference of w and b",
                "value": float(gap),
                "unit": "1",
                "target": "<= 1e-9",
                "met": bool(gap <= 1e-9),
            },
            {
                "what": "mistakes",
                "value": found["mistakes"],
                "unit": "mistakes",
                "target": f"{mistakes} (plain loop)",
                "met": found["mistakes"] == mistakes,
            },
            {
                "what": "time / scikit-learn's",
                "value": slower,
                "unit": "ratio",
                "interval": [least, most],
                "target": "<= 1.5",
                "met": slower <= 1.5,
            },
        ],
        packages=("scikit-learn",),
        seconds={name: sorted(values)[len(values) // 2] for name, values in times.items()},
    )


if __name__ == "__main__":
    main()
