"""Sets, point clouds and graphs: networks that know no order, message passing, spectral filters."""

from margin.catalog import Claim, Entry, Part

PARTS: tuple[Part, ...] = (
    Part(
        name="geometric/group",
        summary="The axioms of a group put to a set with an operation, with the elements that break them",
        kind="test",
        target="margin.geometric.groups:axioms",
        reference="Artin 2011, Algebra, Definition 2.2.1",
        covers=("geo.group",),
    ),
    Part(
        name="geometric/permutation",
        summary="A permutation as a row of values, a matrix, cycles and a sign",
        kind="function",
        target="margin.geometric.permutations:matrix",
        reference="Artin 2011, Algebra, Section 1.5",
        covers=("geo.permutation",),
    ),
    Part(
        name="geometric/invariance",
        summary="How far a function of sets moves when their elements change places",
        kind="test",
        target="margin.geometric.equivariance:check_invariant",
        reference="Zaheer et al. 2017, Deep Sets, Property 1",
        covers=("geo.invariance",),
    ),
    Part(
        name="geometric/equivariance",
        summary="How far a function from sets to sets is from moving as their elements do",
        kind="test",
        target="margin.geometric.equivariance:check_equivariant",
        reference="Zaheer et al. 2017, Deep Sets, Property 2; Bronstein et al. 2021, Section 3.1",
        covers=("geo.equivariance",),
    ),
    Part(
        name="geometric/weisfeiler_leman",
        summary="Color refinement: the classes of nodes that message passing can tell apart at most",
        kind="test",
        target="margin.geometric.weisfeiler_leman:refined",
        reference="Weisfeiler and Leman 1968; Morris et al. 2019, Section 2",
        covers=("graph.wl",),
    ),
)

MODELS: tuple[Entry, ...] = ()

CLAIMS: tuple[Claim, ...] = ()
