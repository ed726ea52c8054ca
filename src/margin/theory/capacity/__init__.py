"""How much a class of functions can fit: growth, the VC dimension, Rademacher complexity."""

from margin.core.catalog import KNOWN, MOVABLE, Claim, Cost, Part

# fmt: off

VAPNIK_1971 = "Vapnik and Chervonenkis 1971; Shalev-Shwartz and Ben-David 2014, Definition 6.5"
HASTIE_2022 = "Hastie, Montanari, Rosset and Tibshirani 2022, Theorem 1"
BELKIN_2019 = "Belkin, Hsu, Ma and Mandal 2019, Figure 2"
GEMAN_1992 = "Geman, Bienenstock and Doursat 1992, Equation 2.6"
MOHRI_2018 = "Mohri, Rostamizadeh and Talwalkar 2018"

PARTS: tuple[Part, ...] = (
    Part("theory/growth", "measure", ".growth:growth",
        "The growth function of a finite class: the most labelings of n points, by exhaustive search.",
        VAPNIK_1971, covers=("slt.growth",)),
    Part("theory/shattering", "measure", ".growth:is_shattered",
        "Whether a class labels points in every way.", VAPNIK_1971, covers=("slt.shattering",)),
    Part("theory/vc_dimension", "measure", ".growth:vc_dimension",
        "The VC dimension of a finite class on finitely many points, by exhaustive search.",
        VAPNIK_1971, covers=("slt.vc_dim",)),
    Part("theory/sauer", "fact", ".growth:sauer",
        "Sauer's bound of the growth function by binomials up to the VC dimension.", "Sauer 1972, Theorem 1",
        covers=("slt.growth",)),
    Part("theory/network_vc_bound", "fact", ".growth:network_dimension_bound",
        "An upper bound of the VC dimension of a piecewise linear network.",
        "Bartlett, Harvey, Liaw and Mehrabian 2019, Theorem 7", covers=("slt.vc_dim",)),
    Part("theory/rademacher", "measure", ".rademacher:of_values",
        "The empirical Rademacher complexity of a finite class, over all signs or drawn ones.",
        "Bartlett and Mendelson 2002, Definition 2", covers=("slt.rademacher",)),
    Part("theory/linear_rademacher", "measure", ".rademacher:of_linear",
        "The empirical Rademacher complexity of linear functions of bounded norm.",
        f"{MOHRI_2018}, Theorem 5.10", covers=("slt.rademacher",)),
    Part("theory/massart", "fact", ".rademacher:massart",
        "Massart's bound of the Rademacher complexity of a finite class.", f"{MOHRI_2018}, Theorem 3.7",
        covers=("slt.rademacher",)),
    Part("theory/ridgeless_risk", "fact", ".interpolation:ridgeless_risk",
        "The limiting risk of least squares of smallest norm, with its peak at p = n.", HASTIE_2022,
        covers=("slt.double_descent",)),
    Part("theory/ridge_risk", "fact", ".interpolation:ridge_risk",
        "The limiting risk of ridge regression on isotropic features.",
        f"{HASTIE_2022} and Theorem 5; Dobriban and Wager 2018, Theorem 2.1", covers=("slt.double_descent",)),
    Part("theory/random_features_risk", "measure", ".interpolation:random_features_risk",
        "The risk of regression on random ReLU features, many data sets at once.", BELKIN_2019,
        covers=("slt.double_descent",)),
    Part("theory/bias_variance", "measure", ".interpolation:decomposed",
        "Bias and variance of a learner from its predictions over draws of the data, without bias.",
        GEMAN_1992, covers=("slt.bias_variance",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/capacity.rademacher", ".rademacher:linear_complexity", ".rademacher:demo",
        "Rademacher complexity: is that of linear functions between Khintchine's bound and Jensen's?",
        f"{MOHRI_2018}, Theorem 5.10; Latala and Oleszkiewicz 1994, Theorem 1", needs=(MOVABLE,),
        cost=Cost(0), by_name=KNOWN, covers=("slt.rademacher",)),
    Claim("theory/capacity.double_descent", ".interpolation:double_descent", ".rademacher:demo",
        "Double descent: does the risk of random features peak at p = n, and fall again beyond?",
        BELKIN_2019, needs=(MOVABLE,), cost=Cost(0), by_name=KNOWN, covers=("slt.double_descent",)),
    Claim("theory/capacity.least_squares", ".interpolation:exact_risk", ".rademacher:demo",
        "Exact risk: is that of least squares and ridge near its limit for p / n fixed?",
        f"{HASTIE_2022} and Theorem 5", needs=(MOVABLE,), cost=Cost(0), by_name=KNOWN,
        covers=("slt.double_descent",)),
    Claim("theory/capacity.bias_variance", ".interpolation:bias_variance", ".rademacher:demo",
        "Bias and variance: do draws of the data give those in closed form?",
        f"{GEMAN_1992}; Hastie, Tibshirani and Friedman 2009, Equation 7.12", needs=(MOVABLE,), cost=Cost(0),
        by_name=KNOWN, covers=("slt.bias_variance",)),
)
# fmt: on
