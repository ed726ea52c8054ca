"""Forward against reverse accumulation of a full Jacobian: the order turns with the shape of the map."""

import torch

from benchmarks.record import interleaved, ratio, record
from margin.math.linear_algebra.layouts import accumulation_passes

ROUNDS, WIDE = 15, 1000


def main():
    figures = []
    generator = torch.Generator().manual_seed(0)
    for n, m in ((WIDE, 1), (1, WIDE)):
        A = torch.randn(200, n, generator=generator, dtype=torch.float64)
        B = torch.randn(m, 200, generator=generator, dtype=torch.float64)
        x = torch.randn(n, generator=generator, dtype=torch.float64)

        def f(x, A=A, B=B):
            return B @ (A @ x).tanh()

        gap = (torch.func.jacfwd(f)(x) - torch.func.jacrev(f)(x)).abs().max().item()
        times = interleaved(
            ROUNDS,
            forward=lambda f=f, x=x: torch.func.jacfwd(f)(x),
            reverse=lambda f=f, x=x: torch.func.jacrev(f)(x),
        )
        median, low, high = ratio(times, "forward", "reverse")
        passes = accumulation_passes(n, m)
        figures.append(
            {
                "what": f"seconds of jacfwd / seconds of jacrev for R^{n} -> R^{m} ({passes.forward} passes "
                f"against {passes.reverse}); the two differ by {gap:.1g}",
                "value": median,
                "unit": "1",
                "interval": [low, high],
                "target": "above 1" if n > m else "below 1",
                "met": (low > 1) if n > m else (high < 1),
            }
        )
    record(
        "foundations/accumulation",
        title="A full Jacobian by forward and by reverse accumulation, interleaved; least and largest ratio",
        figures=figures,
        seed=0,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
