"""Sets and clouds of points."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part

SETS = Need("sets of vectors", "margin.geometric.sets.claims:has_sets")
POOLING = Need("models that pool sets", "margin.geometric.sets.claims:has_pooling", of="model")
MAXIMA = Need("models that pool sets by the maximum", "margin.geometric.sets.claims:has_maxima", of="model")
DEEP_SETS = Need("Deep Sets models", "margin.geometric.sets.claims:is_deep_sets", of="model")
TRANSFORMS = Need("models with a T-Net", "margin.geometric.sets.pointnet_claims:has_transform", of="model")

TURNABLE = Need(
    "models that pool the points of space and decide a class",
    "margin.geometric.sets.pointnet_claims:decides_clouds_in_space",
    of="model",
)

UNORDERED = Need(
    "models of sets or graphs that know no node by its number",
    "margin.geometric.graphs.layers:has_no_order",
    of="model",
)

OF_SETS = {"epochs": 200, "batch_size": 64, "patience": 30}
OF_CLOUDS = {"epochs": 60, "batch_size": 32, "schedule": "cosine", "patience": 0}
QI_2017 = "Qi, Su, Mo and Guibas 2017, Section 4.2"
ZAHEER_2017 = "Zaheer et al. 2017, Theorem 2"
QI_2017_A = "Qi, Su, Mo and Guibas 2017, Section 4.2 and Figure 2"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("geometric/deepsets",
        ".deep_sets:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:set_classes",
        "Deep Sets: class logits of a set from the sum of what is said of each element", ZAHEER_2017,
        defaults=OF_SETS, covers=("geo.deepsets",)),
    Entry("geometric/deepsets:values",
        ".deep_sets:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.graphs:sets",
        "Deep Sets: one real number of a set from the sum of what is said of each element", ZAHEER_2017,
        defaults=OF_SETS, covers=("geo.deepsets",), formerly=("geometric/deepsets_regressor",)),
    Entry("geometric/deepsets:points",
        ".equivariance:segmentation", "margin.core.tasks:POINT_CLASSES",
        "margin.data.sets.tiny.graphs:segments",
        "An equivariant network of sets: class logits of each element with the whole set",
        "Zaheer et al. 2017, Section 3.1", defaults={"epochs": 200, "batch_size": 32, "patience": 30},
        covers=("geo.deepsets_equivariant",), formerly=("geometric/deepsets_segmentation",)),
    Entry("geometric/pointnet",
        ".pointnet:PointNet", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:clouds",
        "PointNet: class logits of a cloud of points from the maximum over its points", QI_2017_A,
        objective=".pointnet:penalized", defaults=OF_CLOUDS, covers=("geo.pointnet",)),
    Entry("geometric/pointnet:points",
        ".pointnet:PointNetSegmentation", "margin.core.tasks:POINT_CLASSES",
        "margin.data.sets.tiny.graphs:segments",
        "PointNet: class logits of each point from itself and the maximum over all points", QI_2017_A,
        objective=".pointnet:penalized", defaults=OF_CLOUDS, covers=("geo.pointnet",),
        formerly=("geometric/pointnet_segmentation",)),
)

PARTS: tuple[Part, ...] = (
    Part("geometric/invariance", "test", ".equivariance:check_invariant",
        "How far a function of sets moves when their elements change places",
        "Zaheer et al. 2017, Deep Sets, Property 1", covers=("geo.invariance",)),
    Part("geometric/equivariance", "test", ".equivariance:check_equivariant",
        "How far a function from sets to sets is from moving as their elements do",
        "Zaheer et al. 2017, Deep Sets, Property 2; Bronstein et al. 2021, Section 3.1",
        covers=("geo.equivariance",)),
    Part("geometric/set_pooling", "layer", ".deep_sets:SetPool",
        "The sum, mean or maximum of the elements of each set, padding unread",
        "Zaheer et al. 2017, Theorem 2; Qi, Su, Mo and Guibas 2017, Section 4.2", covers=("geo.deepsets",)),
    Part("geometric/equivariant_linear", "layer", ".equivariance:EquivariantLinear",
        "The linear maps of sets that follow a renumbering: lambda I + gamma 1 1^T, for vectors",
        "Zaheer et al. 2017, Lemma 3 and Equation 4", covers=("geo.deepsets_equivariant",)),
    Part("geometric/equivariant_sets", "layer", ".equivariance:EquivariantSets",
        "A network y_m = rho(x_m, sum phi(x_j)) of each element with the whole set",
        "Zaheer et al. 2017, Section 3.1; Segol and Lipman 2020, Theorem 2",
        covers=("geo.deepsets_equivariant",)),
    Part("geometric/commuting", "fact", ".equivariance:commuting",
        "The matrices that commute with every permutation: a space of dimension 2",
        "Zaheer et al. 2017, Lemma 3", covers=("geo.deepsets_equivariant",)),
    Part("geometric/transform_net", "layer", ".pointnet:TransformNet",
        "A T-Net: from a cloud of points the matrix by which they are multiplied", QI_2017,
        covers=("geo.pointnet",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("geometric/permutation.equivariance",
        ".equivariance_claims:equivariance", ".equivariance_claims:demo",
        "Do outputs depend on the order in which elements, nodes and edges are listed?",
        "Zaheer et al. 2017, Section 2.1; Bronstein et al. 2021, Section 4.1", needs=(UNORDERED,),
        cost=Cost(12, limit=512), covers=("geo.invariance", "geo.equivariance", "geo.permutation")),
    Claim("geometric/group.axioms", ".equivariance_claims:group_axioms", ".equivariance_claims:demo",
        "Are reorderings a group that acts on the inputs?", "Artin 2011, Sections 2.2 and 6.7",
        needs=(UNORDERED,), by_name=KNOWN, covers=("geo.group", "geo.permutation")),
    Claim("geometric/deepsets.collision", ".claims:collides", ".claims:collides_demo",
        "Which two different sets does a code of this width not tell apart?",
        "Wagstaff, Fuchs, Engelcke, Posner and Osborne 2019, Theorem 4.3", needs=(SETS, DEEP_SETS),
        cost=Cost(200, limit=256), by_name=KNOWN, covers=("geo.deepsets_universality",)),
    Claim("geometric/power_sums.inversion", ".claims:inversion", ".claims:demo",
        "Are the numbers of a set read back from as many of their power sums?",
        "Zaheer et al. 2017, Theorem 7; Macdonald 1995, Section I.2", needs=(SETS,), cost=Cost(1, limit=16),
        by_name=KNOWN, covers=("geo.deepsets_universality",)),
    Claim("geometric/sets.twice", ".claims:twice", ".claims:demo",
        "What changes where every element of a set is listed twice?",
        "Xu, Hu, Leskovec and Jegelka 2019, Corollary 8; Qi et al. 2017, Theorem 2", needs=(SETS, POOLING),
        cost=Cost(3, limit=16), covers=("geo.deepsets", "geo.pointnet")),
    Claim("geometric/pointnet.critical_set", ".pointnet_claims:critical_set", ".pointnet_claims:demo",
        "Do the points that attain a maximum decide alone, and how many are they?",
        "Qi, Su, Mo and Guibas 2017, Theorem 2", needs=(SETS, MAXIMA), cost=Cost(3, limit=16),
        covers=("geo.pointnet",), figure=".figures:cloud"),
    Claim("geometric/pointnet.orthogonality", ".pointnet_claims:orthogonality", ".pointnet_claims:demo",
        "How much do the learned transforms stretch, and does the penalty bound it?",
        "Qi, Su, Mo and Guibas 2017, Equation 2; Horn and Johnson 2013, Theorem 4.3.1",
        by_name=KNOWN, needs=(SETS, TRANSFORMS), cost=Cost(1, limit=16), covers=("geo.pointnet",)),
    Claim("geometric/pointnet.rotation", ".pointnet_claims:rotation", ".pointnet_claims:demo",
        "How often does the class of a cloud change where the cloud is turned?", QI_2017,
        needs=(SETS, TURNABLE), cost=Cost(9, limit=128), covers=("geo.pointnet",)),
)
# fmt: on
