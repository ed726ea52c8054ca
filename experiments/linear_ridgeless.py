"""The risk of least squares of smallest norm beside its limit (Hastie et al. 2022): a peak at p = n."""

import math

import torch

from benchmarks.record import record
from margin.classic.linear.regression import minimum_norm_solution

ROWS, NOISE, DRAWS = 200, 0.5, 40


def limit(gamma: float) -> float:
    """The asymptotic excess risk for isotropic features, |beta| = 1."""
    if gamma < 1:
        return NOISE**2 * gamma / (1 - gamma)
    return 1 - 1 / gamma + NOISE**2 / (gamma - 1)


def excess(gamma: float) -> tuple[float, float]:
    """The mean excess risk |w - beta|^2 over draws of data, and its standard error."""
    features = round(gamma * ROWS)
    found = []
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        beta = torch.randn(features, generator=generator, dtype=torch.float64)
        beta /= beta.norm()
        x = torch.randn(ROWS, features, generator=generator, dtype=torch.float64)
        y = x @ beta + NOISE * torch.randn(ROWS, generator=generator, dtype=torch.float64)
        w, _, _ = minimum_norm_solution(x, y)
        found.append(float((w - beta).square().sum()))
    values = torch.tensor(found)
    return float(values.mean()), float(values.std() / math.sqrt(DRAWS))


def main() -> None:
    figures: list[dict[str, object]] = []
    for gamma in (0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 4.0):
        mean, error = excess(gamma)
        exact = limit(gamma)
        near = abs(mean - exact) <= 4 * error + 0.03 * exact
        figures.append(
            {
                "what": f"excess risk at p/n = {gamma:g}",
                "value": mean,
                "unit": "1",
                "interval": [mean - 2 * error, mean + 2 * error],
                "published": f"{exact:.4f} (limit n -> inf)",
                "target": "within 4 standard errors and 3 %, the size of finite n",
                "met": near,
            }
        )
    record(
        "classic/linear_ridgeless",
        title=f"Least squares of smallest norm, n = {ROWS}, |beta| = 1, noise {NOISE}, {DRAWS} draws: "
        "excess risk beside Hastie, Montanari, Rosset and Tibshirani 2022, Theorem 1",
        figures=figures,
        seeds=list(range(DRAWS)),
    )


if __name__ == "__main__":
    main()
