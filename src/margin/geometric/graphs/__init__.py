"""Graphs by messages along their edges."""

from margin.core.catalog import KNOWN, LABELS, Claim, Cost, Entry, Need, Part
from margin.geometric import GRAPHS

PASSING = Need(
    "models of graphs with layers that are given edges",
    "margin.geometric.graphs.layers:passes_messages",
    of="model",
)

CONVOLUTIONS = Need("graph convolutional networks", "margin.geometric.graphs.claims:is_gcn", of="model")

LEFT_OUT = Need("nodes further apart than the layers reach", "margin.geometric.graphs.claims:leaves_some_out")

CLASSIFIED = Need(
    "classes of the nodes of a graph with edges", "margin.geometric.graphs.claims:classifies_nodes"
)

MANY_GRAPHS = {"epochs": 200, "batch_size": 32, "patience": 40}
ONE_GRAPH = {
    "epochs": 1000,
    "batch_size": "all",
    "lr": 0.005,
    "optimizer": "Adam",
    "optimizer_options": {"weight_decay": 0.0005},
    "patience": 100,
}
LI_2018 = "Li, Han and Wu 2018, Theorem 1; Oono and Suzuki 2020, Section 3"
CAI_2020 = "Cai and Wang 2020, Section 3"
BRODY_2022 = "Brody, Alon and Yahav 2022, Equation 7"
HAMILTON_2017 = "Hamilton, Ying and Leskovec 2017, Algorithm 1"
XU_2019 = "Xu, Hu, Leskovec and Jegelka 2019, Equation 4.1"
XU_2019_A = "Xu, Hu, Leskovec and Jegelka 2019, Equations 4.1 and 4.2"
XU_2019_B = "Xu et al. 2019, Lemma 2; Morris et al. 2019, Theorem 1"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("geometric/gcn", ".gcn:GCN", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:nodes",
        "Graph convolutional network: class logits of every node, A_hat relu(A_hat X W) W'",
        "Kipf and Welling 2017, Equation 9 and Section 5.2", takes="graph",
        defaults={"epochs": 200, "batch_size": "all", "lr": 0.01, "optimizer": "Adam", "patience": 0,
                  "optimizer_options": {"weight_decay": 0.0005}},
        covers=("gnn.gcn",)),
    Entry("geometric/gcn:graphs",
        ".gcn:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:graphs",
        "Graph convolutions and a pooled readout: class logits of every graph",
        "Kipf and Welling 2017, Equation 2; Xu, Hu, Leskovec and Jegelka 2019, Equation 2.4",
        takes="graphs",
        defaults=MANY_GRAPHS, covers=("gnn.gcn",), formerly=("geometric/gcn_graphs",)),
    Entry("geometric/gat",
        ".attention:gat", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:nodes",
        "Graph attention network: class logits of every node, neighbors weighed by learned scores",
        "Velickovic et al. 2018, Sections 2.1 and 3.3", takes="graph", defaults=ONE_GRAPH,
        covers=("gnn.gat",)),
    Entry("geometric/gatv2",
        ".attention:gatv2", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:nodes",
        "Graph attention with dynamic scores: class logits of every node", BRODY_2022, takes="graph",
        defaults=ONE_GRAPH, covers=("gnn.gat",)),
    Entry("geometric/sage",
        ".sage:GraphSAGE", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:nodes",
        "GraphSAGE: class logits of every node from its row and an aggregate of its neighbors'",
        HAMILTON_2017, takes="graph",
        defaults={"epochs": 200, "batch_size": "all", "lr": 0.01, "optimizer": "Adam", "patience": 50,
                  "optimizer_options": {"weight_decay": 0.0005}},
        covers=("gnn.message_passing",)),
    Entry("geometric/gin", ".gin:gin", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:nodes",
        "Graph isomorphism network: class logits of every node from sums over its neighbors", XU_2019,
        takes="graph", defaults={"epochs": 200, "batch_size": "all", "lr": 1e-2, "patience": 50},
        covers=("gnn.message_passing", "gnn.wl_bound")),
    Entry("geometric/gin:graphs",
        ".gin:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.graphs:graphs",
        "Graph isomorphism network: class logits of every graph from its pooled rows of all layers",
        XU_2019_A, takes="graphs", defaults={"epochs": 200, "batch_size": 32, "lr": 1e-2, "patience": 40},
        covers=("gnn.wl_bound",), formerly=("geometric/gin_graphs",)),
    Entry("geometric/gin:graph_values",
        ".gin:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.graphs:graph_values",
        "Graph isomorphism network: one real number of every graph", XU_2019_A, takes="graphs",
        defaults=MANY_GRAPHS, covers=("gnn.wl_bound",), formerly=("geometric/gin_graph_regressor",)),
    Entry("geometric/label_propagation",
        ".label_propagation:LabelPropagation", "margin.core.tasks:SCORES",
        "margin.data.sets.tiny.graphs:nodes",
        "Label propagation: scores of every node by the label that a walk meets first",
        "Zhu and Ghahramani 2002, Section 2.2", step=".label_propagation:label_propagation", takes="graph",
        optimizers=(), parallel=False, whole=True, defaults={"max_steps": 1, "batch_size": "all"}),
)

PARTS: tuple[Part, ...] = (
    Part("geometric/weisfeiler_leman", "test", ".weisfeiler_leman:refined",
        "Color refinement: the classes of nodes that message passing can tell apart at most",
        "Weisfeiler and Leman 1968; Morris et al. 2019, Section 2", covers=("graph.wl",)),
    Part("geometric/twin_graphs", "fact", ".weisfeiler_leman:twins",
        "Pairs of graphs that are not isomorphic and that color refinement does not tell apart",
        "Murphy et al. 2019; Sato 2020", covers=("graph.wl",)),
    Part("geometric/smoothing_rate", "measure", ".oversmoothing:rate",
        "The largest |eigenvalue| of the coupling matrix other than the components' ones", LI_2018,
        covers=("gnn.oversmoothing",)),
    Part("geometric/smoothing_energy", "measure", ".oversmoothing:dirichlet_energy",
        "How unlike neighbors are, each divided by the root of its degree plus 1", CAI_2020,
        covers=("gnn.oversmoothing",)),
    Part("geometric/squashing_bound", "measure", ".oversquashing:bound",
        "What a chain of layers lets through from each node to one, at most", "Topping et al. 2022, Lemma 1",
        covers=("gnn.oversquashing",)),
    Part("geometric/message_passing", "layer", ".message_passing:MessagePassing",
        "Messages along edges by functions of one's own, their sum, mean or maximum, an update",
        "Gilmer, Schoenholz, Riley, Vinyals and Dahl 2017, Section 2", covers=("gnn.message_passing",)),
    Part("geometric/gcn_layer", "layer", ".gcn:GCNLayer",
        "A graph convolution A_hat X W with the coupling matrix D^(-1/2) (A + I) D^(-1/2)",
        "Kipf and Welling 2017, Equation 2", covers=("gnn.gcn",)),
    Part("geometric/gat_layer", "layer", ".attention:GATLayer",
        "Attention of a node to its neighbors and itself, in memory edges x heads",
        "Velickovic et al. 2018, Section 2.1", covers=("gnn.gat",)),
    Part("geometric/gatv2_layer", "layer", ".attention:GATv2Layer",
        "Attention to neighbors whose ranking depends on the node that attends", BRODY_2022,
        covers=("gnn.gat",)),
    Part("geometric/sage_layer", "layer", ".sage:SAGELayer",
        "A node's own row with the mean or the largest values of its neighbors' rows", HAMILTON_2017,
        covers=("gnn.message_passing",)),
    Part("geometric/gin_layer", "layer", ".gin:GINLayer",
        "An MLP of the sum of a node's row and its neighbors', which tells multisets apart", XU_2019,
        covers=("gnn.message_passing",)),
    Part("geometric/layered_inference", "function", ".node_net:layered",
        "Exact outputs of a network on a large graph, layer by layer and part by part",
        "Hamilton, Ying and Leskovec 2017, Section 3.1"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("geometric/gcn.coupling_norm", ".claims:norm", ".claims:small_gcn",
        "Is the norm of each layer's coupling matrix 1?", "Kipf and Welling 2017, Section 2.2",
        needs=(CONVOLUTIONS,), cost=Cost(3), by_name=KNOWN, covers=("gnn.gcn_norm",)),
    Claim("geometric/smoothing.rate", ".oversmoothing:contraction", ".claims:small_gcn",
        "How fast do propagations on this graph make its nodes alike?", LI_2018, by_name=KNOWN,
        needs=(GRAPHS,),
        cost=Cost(20), covers=("gnn.oversmoothing",), figure=".figures:smoothing"),
    Claim("geometric/smoothing.energy", ".oversmoothing:energy", ".claims:small_gcn",
        "How alike has each layer made neighbors, and what does a propagation leave of it?", CAI_2020,
        by_name=KNOWN,
        needs=(PASSING,), cost=Cost(20), covers=("gnn.oversmoothing",), figure=".figures:smoothing"),
    Claim("geometric/squashing.jacobian", ".oversquashing:jacobian", ".oversquashing:demo",
        "How strongly does a node depend on another so many edges away, and how strongly can it?",
        "Topping, Di Giovanni, Chamberlain, Dong and Bronstein 2022, Lemma 1", needs=(PASSING,),
        cost=Cost(80), covers=("gnn.oversquashing",)),
    Claim("geometric/depth.dependence", ".claims:dependence", ".claims:small_gcn",
        "Does a node depend on what is further away than the layers reach?", "Alon and Yahav 2021, Section 1",
        needs=(PASSING, LEFT_OUT), cost=Cost(60), by_name=KNOWN, covers=("gnn.depth_diameter",)),
    Claim("geometric/wl.bound", ".expressivity_claims:bound", ".claims:small_gcn",
        "Does the model tell apart graphs that color refinement does not?", XU_2019_B, needs=(PASSING,),
        cost=Cost(40), by_name=KNOWN, covers=("gnn.wl_bound", "graph.wl")),
    Claim("geometric/wl.classes", ".expressivity_claims:classes", ".expressivity_claims:demo",
        "How many of the classes that color refinement finds does the model tell apart?", XU_2019_B,
        needs=(PASSING,), cost=Cost(30), covers=("gnn.wl_bound", "graph.wl")),
    Claim("geometric/wl.ceiling", ".expressivity_claims:ceiling", ".expressivity_claims:demo",
        "How accurate can any network that passes messages be on these graphs?", XU_2019_B,
        needs=(LABELS, PASSING), cost=Cost(30), covers=("gnn.wl_bound", "graph.wl")),
    Claim("geometric/graph.homophily", ".claims:share", ".claims:homophilous_demo",
        "How often does an edge join nodes of one class, as labeled and as predicted?",
        "Zhu et al. 2020, Definition 1", needs=(CLASSIFIED,), cost=Cost(2), figure=".figures:graph"),
)
# fmt: on
