"""The linear regions of a piecewise-linear network."""

from margin.core.catalog import KNOWN, NOT_MOVABLE, TWO_EXAMPLES, Claim, Cost, Need, Part

# fmt: off

REAL_INPUT = Need("one input of real numbers", "margin.theory.regions.claims:has_real_inputs",
    why=NOT_MOVABLE)
FOLLOWED = Need("a forward that is made of known functions",
    "margin.theory.regions.claims:can_be_followed", why="margin.theory.regions.claims:not_followed")
PIECEWISE = Need("a piecewise linear network", "margin.theory.regions.claims:is_piecewise_linear",
    why="margin.theory.regions.claims:not_piecewise_linear")
PLANE = Need("three held-out examples that span a plane of real inputs",
    "margin.theory.regions.claims:has_plane", why=NOT_MOVABLE)
HANIN_2019 = "Hanin and Rolnick 2019, Section 2"

PARTS: tuple[Part, ...] = (
    Part("theory/activation_pattern", "measure", ".arrangements:activation_pattern",
        "Which units of a layer are on, the convex cell of a pattern and the affine map there.",
        "Montufar, Pascanu, Cho and Bengio 2014, Section 2", covers=("relu.activation_pattern",)),
    Part("theory/plane_regions", "measure", ".plane:plane_regions",
        "All activation and linear regions of a piecewise-linear network on a square, as polygons.",
        HANIN_2019, covers=("relu.activation_pattern",)),
    Part("theory/breakpoints", "measure", ".segments:breakpoints",
        "Every breakpoint of a piecewise-linear network on many segments, and its linear pieces.", HANIN_2019,
        covers=("relu.activation_pattern",)),
    Part("theory/most_regions", "theorem", ".arrangements:most_regions",
        "The number of regions of m hyperplanes in general position in R^n.",
        "Zaslavsky 1975, Theorem A; Stanley 2004, Proposition 2.4", covers=("relu.zaslavsky",)),
    Part("theory/count_regions", "theorem", ".arrangements:count_regions",
        "The number of regions of any arrangement, |chi(-1)|, by its characteristic polynomial.",
        "Zaslavsky 1975, Theorem A; Stanley 2004, Theorem 2.5", covers=("relu.zaslavsky",)),
    Part("theory/arrangement_cells", "measure", ".arrangements:cells",
        "The regions of an arrangement one by one, by linear programs, with a point of each.",
        "Serra, Tjandraatmadja and Ramalingam 2018, Section 5", covers=("relu.zaslavsky",)),
    Part("theory/montufar_bound", "theorem", ".arrangements:montufar_bound",
        "A number of linear regions that some network of L hidden layers of m ReLUs reaches.",
        "Montufar, Pascanu, Cho and Bengio 2014, Theorem 5", covers=("relu.montufar",)),
    Part("theory/folding_network", "fact", ".arrangements:folding_network",
        "Weights that reach Montufar's bound: layers that fold their input onto itself.",
        "Montufar, Pascanu, Cho and Bengio 2014, Section 3.1", covers=("relu.montufar",)),
    Part("theory/serra_bound", "theorem", ".arrangements:serra_bound",
        "A number of regions that no network of these ReLU layers exceeds.",
        "Serra, Tjandraatmadja and Ramalingam 2018, Theorem 1", covers=("relu.montufar",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/regions.in_plane", ".claims:in_plane", ".claims:demo",
        "Linear regions: into how many does the network cut a plane through three examples?",
        "Serra, Tjandraatmadja and Ramalingam 2018, Section 3 (the bound); Hanin and Rolnick 2019, Section "
        "2 (both kinds of regions)", by_name=KNOWN,
        needs=(PLANE, FOLLOWED, PIECEWISE), cost=Cost(8000, "test", 3),
        covers=("relu.activation_pattern", "relu.zaslavsky"), figure=".figures:regions"),
    Claim("theory/regions.possible", ".claims:possible", ".claims:demo",
        "Montufar's bound: how many linear regions has some network of this depth and width?",
        "Montufar, Pascanu, Cho and Bengio 2014, Theorem 5 (some weights reach it)", by_name=KNOWN,
        needs=(PLANE, FOLLOWED, PIECEWISE), cost=Cost(20_000.0, "test", 3), covers=("relu.montufar",)),
    Claim("theory/regions.on_segments", ".claims:on_segments", ".claims:trained_demo",
        "Breakpoints: at how many points does the network bend between two examples, now and initially?",
        "Serra, Tjandraatmadja and Ramalingam 2018, Section 3 (the bound, for n = 1); Hanin and Rolnick "
        "2019, Section 3 (the growth)", by_name=KNOWN,
        needs=(REAL_INPUT, FOLLOWED, PIECEWISE, TWO_EXAMPLES),
        cost=Cost(1000.0, "test", 32), covers=("relu.activation_pattern",)),
)
# fmt: on
