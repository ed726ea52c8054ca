"""Graphs by the spectrum of their Laplacian."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part
from margin.geometric import GRAPHS

SMALL_GRAPH = Need("a graph of at most 4,000 nodes", "margin.geometric.spectral.subjects:is_small_graph")
FILTERS = Need("models with graph filters", "margin.geometric.spectral.filter_calls:has_filters", of="model")

CHEBYSHEV = Need(
    "models with Chebyshev filters", "margin.geometric.spectral.filter_calls:has_chebyshev", of="model"
)

ONE_GRAPH = {"epochs": 200, "batch_size": "all", "lr": 0.01, "patience": 50}
CHUNG_1997 = "Chung 1997, Spectral Graph Theory, Section 1.2"
SHUMAN_2013 = "Shuman, Narang, Frossard, Ortega and Vandergheynst 2013, Section II.C"
SANDRYHAILA_2013 = "Sandryhaila and Moura 2013, Section III"
DEFFERRARD_2016 = "Defferrard, Bresson and Vandergheynst 2016, Section 2.1"
CHUNG_1997_A = "Chung 1997, Spectral Graph Theory, Lemma 1.7"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("geometric/chebnet",
        ".chebnet:chebnet", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:nodes",
        "ChebNet: class logits of every node by Chebyshev polynomials of the Laplacian", DEFFERRARD_2016,
        takes="graph", defaults=ONE_GRAPH, covers=("gnn.chebnet",)),
    Entry("geometric/poly_filter",
        ".polynomial_filter:polynomial_network", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.graphs:nodes",
        "Class logits of every node by polynomials of the Laplacian", SANDRYHAILA_2013, takes="graph",
        defaults=ONE_GRAPH, covers=("gnn.poly_filter",)),
    Entry("geometric/spectral_filter",
        ".filters:spectral_network", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:nodes",
        "Class logits of every node by smooth filters in the Laplacian's eigenbasis",
        "Bruna, Zaremba, Szlam and LeCun 2014, Section 3; Henaff, Bruna and LeCun 2015, Section 3",
        takes="graph", defaults=ONE_GRAPH, covers=("gnn.spectral_filter",)),
)

PARTS: tuple[Part, ...] = (
    Part("geometric/laplacian", "function", ".laplacian:laplacian",
        "The graph Laplacian D - A and the normalized one, sparse: how nodes differ from neighbors",
        CHUNG_1997, covers=("graph.laplacian",)),
    Part("geometric/dirichlet_energy", "measure", ".laplacian:dirichlet_energy",
        "The sum of a (x_n - x_m)^2 over the edges: x' L x", CHUNG_1997, covers=("graph.laplacian",)),
    Part("geometric/graph_fourier", "function", ".graph_fourier:spectrum",
        "Eigenvalues and eigenvectors of a graph's Laplacian: the graph Fourier transform", SHUMAN_2013,
        covers=("graph.fourier",)),
    Part("geometric/graph_convolution", "function", ".graph_fourier:convolution",
        "x * y = U ((U' x) (U' y)): the convolution of two signals on a graph",
        "Shuman, Narang, Frossard, Ortega and Vandergheynst 2013, Section III.B", covers=("graph.fourier",)),
    Part("geometric/spectral_conv", "layer", ".filters:SpectralConv",
        "Filters between channels whose response is a smooth function of the eigenvalue",
        "Henaff, Bruna and LeCun 2015, Section 3", covers=("gnn.spectral_filter",)),
    Part("geometric/polynomial_conv", "layer", ".polynomial_filter:PolynomialConv",
        "Filters between channels that are polynomials of the Laplacian", SANDRYHAILA_2013,
        covers=("gnn.poly_filter",)),
    Part("geometric/cheb_conv", "layer", ".chebnet:ChebConv",
        "Filters between channels that are Chebyshev polynomials of the rescaled Laplacian", DEFFERRARD_2016,
        covers=("gnn.chebnet",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("geometric/fourier.frequency", ".laplacian_claims:frequency", ".laplacian_claims:demo",
        "How quickly do features, labels and outputs change along the edges of the graph?",
        "Shuman, Narang, Frossard, Ortega and Vandergheynst 2013, Section II.D", needs=(GRAPHS,),
        cost=Cost(20, limit=512), covers=("graph.fourier", "graph.laplacian"),
        figure=".figures:graph_spectrum"),
    Claim("geometric/fourier.orthogonality", ".laplacian_claims:orthogonality", ".laplacian_claims:demo",
        "Does the graph Fourier transform keep lengths and diagonalize the Laplacian?", SHUMAN_2013,
        needs=(GRAPHS, SMALL_GRAPH), cost=Cost(20, limit=512), by_name=KNOWN, covers=("graph.fourier",)),
    Claim("geometric/laplacian.components", ".laplacian_claims:components", ".laplacian_claims:demo",
        "Is 0 an eigenvalue of the Laplacian once for each component of the graph?", CHUNG_1997_A,
        needs=(GRAPHS, SMALL_GRAPH), cost=Cost(20, limit=512), by_name=KNOWN, covers=("graph.laplacian",)),
    Claim("geometric/laplacian.interval", ".laplacian_claims:interval", ".laplacian_claims:demo",
        "Does the normalized Laplacian's spectrum lie in [0, 2]?", CHUNG_1997_A, needs=(GRAPHS, SMALL_GRAPH),
        cost=Cost(20, limit=512), by_name=KNOWN, covers=("graph.laplacian",)),
    Claim("geometric/laplacian.bipartite", ".laplacian_claims:bipartite", ".laplacian_claims:demo",
        "Is 2 an eigenvalue of the normalized Laplacian once for each bipartite component?", CHUNG_1997_A,
        needs=(GRAPHS, SMALL_GRAPH), cost=Cost(20, limit=512), by_name=KNOWN, covers=("graph.laplacian",)),
    Claim("geometric/laplacian.energy", ".laplacian_claims:energy", ".laplacian_claims:demo",
        "Is x' L x the sum of the squared differences along the edges?", CHUNG_1997, needs=(GRAPHS,),
        cost=Cost(1, limit=512), by_name=KNOWN, covers=("graph.laplacian",)),
    Claim("geometric/filter.passed", ".filter_claims:passed", ".filter_claims:demo",
        "Which frequencies of the graph do the filters let through?",
        "Shuman, Narang, Frossard, Ortega and Vandergheynst 2013, Section III.A",
        needs=(FILTERS, SMALL_GRAPH), cost=Cost(20, limit=512),
        covers=("gnn.spectral_filter", "gnn.poly_filter", "gnn.chebnet"), figure=".figures:graph_spectrum"),
    Claim("geometric/filter.spectral_form", ".filter_claims:spectral_form", ".filter_claims:demo",
        "Is each graph filter what its response in the Laplacian's eigenbasis says?", DEFFERRARD_2016,
        needs=(FILTERS, SMALL_GRAPH), cost=Cost(20, limit=512), by_name=KNOWN,
        covers=("gnn.spectral_filter", "gnn.poly_filter", "gnn.chebnet")),
    Claim("geometric/filter.reach", ".filter_claims:reach", ".filter_claims:demo",
        "From how many edges away does each graph filter read?",
        "Hammond, Vandergheynst and Gribonval 2011, Lemma 5.2", needs=(FILTERS,), cost=Cost(30, limit=512),
        covers=("gnn.poly_filter", "gnn.chebnet")),
    Claim("geometric/chebnet.rescaling", ".filter_claims:rescaling", ".filter_claims:demo",
        "Does the spectrum of the rescaled Laplacian lie in [-1, 1]?", DEFFERRARD_2016, by_name=KNOWN,
        needs=(CHEBYSHEV,),
        cost=Cost(10, limit=512), covers=("gnn.chebnet",)),
    Claim("geometric/filter.heat", ".filter_claims:heat", ".filter_claims:demo",
        "Is the filter exp(-t lambda) the exponential of the Laplacian?",
        "Al-Mohy and Higham 2011, Algorithm 3.2", needs=(GRAPHS, SMALL_GRAPH), cost=Cost(20, limit=512),
        by_name=KNOWN, covers=("gnn.spectral_filter",)),
)
# fmt: on
