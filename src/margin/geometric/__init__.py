"""Sets, point clouds and graphs: networks that know no order, message passing, spectral filters."""

from margin.core.catalog import Need, Part

FAMILIES = ("sets", "graphs", "spectral")

GRAPHS = Need("models of graphs", "margin.geometric.graphs.layers:is_graph", of="model")

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("geometric/group", "test", "margin.math.groups.groups:axioms",
        "The axioms of a group put to a set with an operation, with the elements that break them",
        "Artin 2011, Algebra, Definition 2.2.1", covers=("geo.group",)),
    Part("geometric/permutation", "function", "margin.math.groups.permutations:matrix",
        "A permutation as a row of values, a matrix, cycles and a sign", "Artin 2011, Algebra, Section 1.5",
        covers=("geo.permutation",)),
    Part("geometric/power_sums", "fact", "margin.math.groups.power_sums:recovered",
        "M numbers read back from their first M power sums, in float64 or exactly",
        "Zaheer et al. 2017, Theorem 7; Macdonald 1995, Section I.2", covers=("geo.deepsets_universality",)),
)
# fmt: on
