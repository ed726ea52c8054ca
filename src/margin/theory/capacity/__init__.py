"""How much a class of functions can fit: growth, the VC dimension, Rademacher complexity."""

from margin.core.catalog import KNOWN, MOVABLE, Claim, Cost, Part

# fmt: off

VAPNIK_1971 = "Vapnik and Chervonenkis 1971; Shalev-Shwartz and Ben-David 2014, Definition 6.5"
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
)

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/capacity.rademacher", ".rademacher:linear_complexity", ".rademacher:demo",
        "Rademacher complexity: is that of linear functions between Khintchine's bound and Jensen's?",
        f"{MOHRI_2018}, Theorem 5.10; Latala and Oleszkiewicz 1994, Theorem 1", needs=(MOVABLE,),
        cost=Cost(0), by_name=KNOWN, covers=("slt.rademacher",)),
)
# fmt: on
