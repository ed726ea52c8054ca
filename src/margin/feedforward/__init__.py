"""Feed-forward networks: multilayer perceptrons and what is said of them."""

from margin.core.catalog import Part

FAMILIES = ("mlp", "piecewise", "approximation")

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("feedforward/chebyshev", "theorem", "numpy.polynomial:Chebyshev",
        "Polynomials in Chebyshev's basis: interpolation, fits, evaluation", "Trefethen 2013, Chapter 4",
        covers=("approx.weierstrass",)),
)
# fmt: on
