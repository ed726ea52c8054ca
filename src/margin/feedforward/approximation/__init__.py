"""What sums of ridges approximate, and how well."""

from margin.core.catalog import Claim, Need, Part

GREEDY = Need(
    "a greedy net of a function of known C_f",
    model="margin.feedforward.approximation.barron:GreedyNet",
)

BARRON_1993 = "Barron 1993, Theorem 1"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("feedforward/uniform_distance", "measure", ".uniform:uniform_distance",
        "The largest gap of two functions on a box, and by a Lipschitz constant the largest possible",
        "Cheney 1966, Chapter 1", covers=("approx.metrics",)),
    Part("feedforward/best_uniform_fit", "measure", ".uniform:best_uniform_fit",
        "The best fit by a span of functions in the largest error, by a linear program",
        "Chebyshev 1854; Cheney 1966, Chapter 2", covers=("approx.metrics",)),
    Part("feedforward/bernstein", "theorem", ".uniform:bernstein",
        "The polynomial that is the mean of f(K / n), K binomial: uniformly near every continuous f",
        "Bernstein 1912; Lorentz 1986, Section 1.1", covers=("approx.weierstrass",)),
    Part("feedforward/monomial_network", "theorem", ".ridges:monomial_network",
        "k + 1 units of any activation that is no polynomial, as near to x^k as one likes",
        "Leshno, Lin, Pinkus and Schocken 1993, Theorem 1; Pinkus 1999, Section 3",
        covers=("approx.leshno",)),
    Part("feedforward/product_as_ridges", "fact", ".ridges:product_as_ridges",
        "The product of two numbers as a sum of two functions of one number each", "Pinkus 1999, Section 3",
        covers=("approx.lifting",)),
    Part("feedforward/random_ridge_fit", "theorem", ".ridges:random_ridge_fit",
        "The least-squares fit by ridges phi(w.x + b) of random directions",
        "Pinkus 1999, Section 3; Rahimi and Recht 2008", covers=("approx.lifting",)),
    Part("feedforward/barron_greedy", "theorem", ".barron:greedy",
        "Sigmoids added one at a time, each the best for what is left, in a convex hull",
        "Jones 1992; Barron 1993, Theorem 1", covers=("approx.barron",)),
    Part("feedforward/barron_bound", "theorem", ".barron:barron_bound",
        "The mean squared error (2 r C_f)^2 / m that some net of m sigmoids keeps on a ball", BARRON_1993,
        covers=("approx.barron",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("feedforward/barron.greedy", ".barron:greedy_bound", ".barron:demo",
        "Does a greedy net of m sigmoids keep the mean squared error (2 r C_f)^2 / m on a ball?", BARRON_1993,
        needs=(GREEDY,), covers=("approx.barron",), figure=".figures:approximation"),
)
# fmt: on
