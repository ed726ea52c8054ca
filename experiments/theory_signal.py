"""Signal propagation in wide random networks: lengths, gradients and correlations against mean-field theory.

Poole et al. (2016) and Schoenholz et al. (2017) promise, for width to infinity, that squared gradients grow
by chi_1 a layer and that distances of correlations from their fixed point shrink e-fold in xi_c layers. He et
al. (2015) choose the ReLU weights that keep lengths. Twenty networks a setting; 4 standard errors.
"""

import math

import torch

from benchmarks.record import record
from margin.theory.signal.mean_field import (
    chi,
    correlation_slope,
    critical_point,
    depth_scale,
    fixed_length,
    next_correlation,
    next_length,
)

WIDTH, DEPTH, NETWORKS, PAIRS = 1000, 30, 20, 16
HALF = 4.0


def f64(value):
    return torch.tensor(value, dtype=torch.float64)


def estimate(values):
    """Mean over networks and the interval of 4 standard errors."""
    values = torch.tensor(values, dtype=torch.float64)
    mean, error = float(values.mean()), float(values.std()) / math.sqrt(len(values))
    return mean, [mean - HALF * error, mean + HALF * error]


def passed(phi, sigma_w, sigma_b, x, depth, generator):
    """Pre-activations of a fresh random network, layer by layer, and the weights."""
    zs, weights = [], []
    h = x
    for _ in range(depth):
        n = h.shape[1]
        W = torch.randn(WIDTH, n, generator=generator) * sigma_w / math.sqrt(n)
        z = h @ W.T + torch.randn(WIDTH, generator=generator) * sigma_b
        zs.append(z)
        weights.append(W)
        h = phi(z)
    return zs, weights


def on_sphere(count, q, generator):
    x = torch.randn(count, WIDTH, generator=generator)
    return x * (q**0.5 * math.sqrt(WIDTH) / x.norm(dim=1, keepdim=True))


def slope(xs, ys):
    """Slope of the least-squares line."""
    xs, ys = (torch.as_tensor(v, dtype=torch.float64) for v in (xs, ys))
    return float(((xs - xs.mean()) * ys).sum() / (xs - xs.mean()).square().sum())


def row(what, values, theory, unit="1", note=""):
    mean, interval = estimate(values)
    return {
        "what": what,
        "value": mean,
        "unit": unit,
        "interval": interval,
        "target": f"{theory:.5g}{note}",
        "met": interval[0] <= theory <= interval[1],
    }


def gradient_rates(sigma_w, sigma_b):
    """The growth of log mean squared gradients a layer, one number a network, at the fixed length."""
    q = fixed_length(torch.tanh, sigma_w, sigma_b)
    found = []
    for seed in range(NETWORKS):
        generator = torch.Generator().manual_seed(seed)
        # what layer 1 takes: so scaled that its pre-activations have the fixed length
        x = on_sphere(4, (q - sigma_b**2) / sigma_w**2, generator)
        zs, weights = passed(torch.tanh, sigma_w, sigma_b, x, DEPTH, generator)
        delta = torch.randn(zs[-1].shape, generator=generator)
        sizes = [float(delta.double().square().mean())]
        for z, W in zip(reversed(zs[:-1]), reversed(weights[1:]), strict=True):
            delta = (delta @ W) * (1 - z.tanh().square())
            sizes.append(float(delta.double().square().mean()))
        found.append(slope(range(DEPTH), [math.log(size) for size in sizes]))
    return found, math.log(float(chi(torch.tanh, f64(q), sigma_w)))


def correlation_rates(sigma_w, sigma_b, first, last):
    """How fast the mean correlation of pairs nears its fixed point, from layer ``first`` to ``last``."""
    q = f64(fixed_length(torch.tanh, sigma_w, sigma_b))
    c = f64(0.5)
    for _ in range(500):
        c = next_correlation(torch.tanh, c, q, sigma_w, sigma_b).clamp(-1, 1)
    theory = float(depth_scale(correlation_slope(torch.tanh, c, q, sigma_w)))
    found = []
    for seed in range(NETWORKS):
        generator = torch.Generator().manual_seed(1000 + seed)
        x = on_sphere(2 * PAIRS, (float(q) - sigma_b**2) / sigma_w**2, generator)
        zs, _ = passed(torch.tanh, sigma_w, sigma_b, x, last, generator)
        apart = []
        for z in zs:
            a, b = z.double().split(PAIRS)
            cosine = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))
            apart.append(float((float(c) - cosine).mean()))
        found.append(-1 / slope(range(first, last), [math.log(abs(e)) for e in apart[first:last]]))
    return found, theory


def he_lengths():
    """q^30 / q^1 of ReLU networks under He's weights, and under Glorot's half of them."""
    found = {}
    for name, sigma_w in (("He", math.sqrt(2)), ("half of He's variance", 1.0)):
        values = []
        for seed in range(NETWORKS):
            generator = torch.Generator().manual_seed(2000 + seed)
            zs, _ = passed(torch.relu, sigma_w, 0.0, on_sphere(16, 1.0, generator), DEPTH, generator)
            q = [float(z.double().square().mean()) for z in zs]
            values.append(q[-1] / q[0])
        kept = f64(1.0)
        for _ in range(DEPTH - 1):
            kept = next_length(torch.relu, kept, sigma_w, 0.0)
        found[name] = (values, float(kept))
    return found


def main():
    figures = []
    sigma_w, sigma_b = (float(each) for each in critical_point(torch.tanh, f64(0.5)))
    for name, w, b in (
        ("ordered", 1.0, 0.3),
        ("critical", sigma_w, sigma_b),
        ("chaotic", 2.0, 0.3),
    ):
        values, theory = gradient_rates(w, b)
        what = f"log growth of squared gradients a layer, tanh, {name}: sigma_w = {w:.4g}, sigma_b = {b:.4g}"
        figures.append(row(what, values, theory, note=" = log chi_1"))
    for name, w, b, first, last in (("ordered", 1.0, 0.3, 4, 14), ("chaotic", 2.0, 0.3, 2, 9)):
        values, theory = correlation_rates(w, b, first, last)
        what = f"depth scale of correlations, tanh, {name}: sigma_w = {w:.4g}, sigma_b = {b:.4g}"
        figures.append(row(what, values, theory, "layers", " = xi_c"))
    for name, (values, theory) in he_lengths().items():
        what = f"q^30 / q^1 of ReLU networks, {name} (sigma_b = 0)"
        figures.append(row(what, values, theory))
    record(
        "theory/signal",
        title=f"Networks {WIDTH} wide against mean-field theory: {NETWORKS} a setting, 4 standard errors",
        figures=figures,
        seeds=f"0-{NETWORKS - 1}, 1000-{999 + NETWORKS}, 2000-{1999 + NETWORKS}",
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
