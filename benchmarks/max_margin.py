"""The widest separator beside scikit-learn's SVC(kernel="linear", C=1e10): how wide, and how soon."""

import warnings

import numpy as np
import torch
from sklearn.svm import SVC

from benchmarks.record import interleaved, ratio, record
from margin.classic.perceptron.max_margin import maximum_margin
from margin.classic.perceptron.model import geometric_margin

SHAPES, ROUNDS = ((200, 3), (2000, 20), (500, 300)), 5


def sample(rows: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian rows in the unit ball, labeled by a hyperplane without a gap."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    w = torch.randn(features, generator=generator, dtype=torch.float64)
    sign = torch.where(x @ w > 0.1 * w.norm(), 1.0, -1.0).double()
    return x / x.norm(dim=1).max(), sign


def compared(rows: int, features: int) -> list[dict[str, object]]:
    x, sign = sample(rows, features)
    xn, yn = x.numpy(), sign.numpy()
    found: dict[str, object] = {}

    def ours() -> None:
        found["ours"] = maximum_margin(x, sign)

    def machine() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it stopped at max_iter: the margin shows it
            found["machine"] = SVC(kernel="linear", C=1e10, tol=1e-6, cache_size=500, max_iter=1_000_000).fit(
                xn, yn
            )

    times = interleaved(ROUNDS, ours=ours, machine=machine)
    slower, least, most = ratio(times, "ours", "machine")
    best, other = found["ours"], found["machine"]
    w = torch.tensor(other.coef_[0])
    score = np.asarray(xn @ other.coef_[0])
    # the best bias for its normal, so that only the direction counts
    b = torch.tensor(-(score[yn > 0].min() + score[yn < 0].max()) / 2)
    theirs = float(geometric_margin(w, b, x, sign).min())
    shape = f"{rows} x {features}"
    return [
        {
            "what": f"{shape}: 1 - margin / proved bound",
            "value": 1 - best.margin / best.bound,
            "unit": "1",
            "target": "<= 1e-6",
            "met": best.margin >= best.bound * (1 - 1e-6),
        },
        {"what": f"{shape}: 1 - SVC's margin / proved bound", "value": 1 - theirs / best.bound, "unit": "1"},
        {
            "what": f"{shape}: time / SVC's",
            "value": slower,
            "unit": "ratio",
            "interval": [least, most],
            "target": "<= 2",
            "met": slower <= 2,
        },
    ]


def main() -> None:
    figures = [row for shape in SHAPES for row in compared(*shape)]
    record(
        "classic/max_margin",
        title='The separator of largest margin beside scikit-learn\'s SVC(kernel="linear", C=1e10)',
        figures=figures,
        packages=("scikit-learn", "scipy"),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
