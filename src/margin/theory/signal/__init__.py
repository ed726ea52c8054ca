"""How signals and gradients pass the layers."""

from margin.core.catalog import KNOWN, PROBABILITIES, TARGETS, TWO_EXAMPLES, Claim, Cost, Need, Part
from margin.theory import ALIKE, HIDDEN_UNITS

# fmt: off

AFFINE_CHAIN = Need("chains of Linear layers and pointwise activations",
    "margin.theory.signal.backpropagation:is_affine_chain", of="model")
RANDOM_NET = Need("chains of two Linear layers or more with pointwise activations, on rows",
    "margin.theory.signal.mean_field:is_random_net", of="model")
LAYERS = Need("layers with parameters of their own",
    "margin.theory.signal.propagation:has_layers", of="model")
RECTIFIERS = Need("models with rectifiers (ReLU) as layers",
    "margin.theory.signal.propagation:has_rectifiers", of="model")
AFFINE_MAPS = Need("affine maps", "margin.theory.signal.initialization:has_affine_maps", of="model")
DROPOUT = Need("models with dropout", "margin.theory.signal.dropout:has_dropout", of="model")
BATCH_NORM = Need("models in which batch normalization follows a dense layer",
    "margin.theory.signal.normalization:has_pairs", of="model")
RELU_CHAIN = Need("chains of linear maps with ReLUs between them",
    "margin.theory.signal.initialization:is_relu_chain", of="model")
RUMELHART_1986 = "Rumelhart, Hinton and Williams 1986, Equations 4-7"
POOLE_2016 = "Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 3"
SCHOENHOLZ_2017 = "Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 4"
HECHT_NIELSEN_1990 = "Hecht-Nielsen 1990; Bishop 2006, Section 5.1.1"
AINSWORTH_2023 = "Ainsworth, Hayase and Srinivasa 2023, Algorithm 1"

PARTS: tuple[Part, ...] = (
    Part("theory/mean_field.next_length", "function", ".mean_field:next_length",
        "The variance of the next layer's pre-activations in a wide random network", POOLE_2016),
    Part("theory/mean_field.chi", "function", ".mean_field:chi",
        "The factor by which small differences and squared gradients grow in a layer", SCHOENHOLZ_2017),
    Part("theory/mean_field.critical_point", "function", ".mean_field:critical_point",
        "Where neither vanishes nor explodes: a point of the critical line",
        "Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 3"),
    Part("theory/mean_field.depth_scale", "function", ".mean_field:depth_scale",
        "The number of layers in which a correlation or gradient changes e-fold",
        "Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Sections 3 and 4"),
    Part("theory/softmax_ensemble", "theorem", ".dropout:softmax_ensemble",
        "The arithmetic and the geometric mean over every mask of a softmax-linear model.",
        "Goodfellow, Bengio and Courville 2016, Section 7.12", covers=("reg.dropout_ensemble",)),
    Part("theory/monte_carlo_prediction", "measure", ".dropout:monte_carlo_prediction",
        "The mean of any model's answers over dropout masks, with its standard error.",
        "Gal and Ghahramani 2016, Equation 6", covers=("reg.dropout_ensemble",)),
    Part("theory/backpropagation.chain", "function", ".backpropagation:pull_back",
        "Deltas and gradients of a chain of any layers, a transposed Jacobian a layer", RUMELHART_1986,
        covers=("backprop.chain",)),
    Part("theory/backpropagation.units", "function", ".backpropagation:unit_gradients",
        "The gradients of a multilayer perceptron by the formulas of a unit", RUMELHART_1986,
        covers=("backprop.mlp",)),
    Part("theory/activations", "track", ".propagation:activation_track",
        "Gains of activations and gradients through the layers, and the share of dead units",
        "Glorot and Bengio 2010, Section 4"),
    Part("theory/symmetry.permute_hidden", "function", ".symmetry:permute_hidden",
        "A copy of a network with a layer's hidden units in another order: the same function",
        HECHT_NIELSEN_1990, covers=("ffn.permutation_symmetry",)),
    Part("theory/symmetry.flip_signs", "function", ".symmetry:flip_signs",
        "A copy with hidden units' signs turned on both sides of an odd activation",
        "Hecht-Nielsen 1990; Chen, Lu and Hecht-Nielsen 1993", covers=("ffn.permutation_symmetry",)),
    Part("theory/symmetry.rescale", "function", ".symmetry:rescale",
        "A copy with hidden units scaled before a homogeneous activation and back after it",
        "Dinh, Pascanu, Bengio and Bengio 2017, Section 3"),
    Part("theory/symmetry.aligned", "function", ".symmetry:aligned",
        "A copy of a second network with its hidden units in the first one's order", AINSWORTH_2023),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/signal.activations", ".propagation:activations", ".propagation:doubling_demo",
        "Signal propagation: how large is each layer's output, now and at initialization?",
        "Glorot and Bengio 2010, Section 4; He, Zhang, Ren and Sun 2015, Section 2.2",
        needs=(LAYERS, TARGETS, TWO_EXAMPLES), cost=Cost(6, limit=1024, drawn=True),
        figure=".figures:over_depth"),
    Claim("theory/signal.gradients", ".propagation:gradients", ".propagation:doubling_demo",
        "Vanishing and exploding gradients: how large are they in each layer, now and at initialization?",
        "Glorot and Bengio 2010, Section 4; He, Zhang, Ren and Sun 2015, Section 2.2",
        needs=(LAYERS, TARGETS, TWO_EXAMPLES), cost=Cost(6, limit=1024, drawn=True),
        figure=".figures:over_depth"),
    Claim("theory/signal.dead", ".propagation:dead", ".propagation:dead_demo",
        "Dead units: how many rectified units give 0 for every example of a sample?",
        "Maas, Hannun and Ng 2013, Section 2; Clopper and Pearson 1934 (Brown, Cai and DasGupta 2001, "
        "Section 4.2.1)", needs=(RECTIFIERS,), cost=Cost(2, limit=1024, drawn=True), question="trained"),
    Claim("theory/mean_field.lengths", ".mean_field:lengths", ".mean_field:demo",
        "Mean-field length map: do pre-activations grow as in wide random networks?",
        POOLE_2016, needs=(RANDOM_NET, TARGETS),
        cost=Cost(12, limit=256, drawn=True), figure=".figures:over_depth"),
    Claim("theory/mean_field.gradients", ".mean_field:gradient_growth", ".mean_field:demo",
        "Mean-field chi_1: do gradients grow by it in each layer, as in wide random networks?",
        SCHOENHOLZ_2017, needs=(RANDOM_NET, TARGETS),
        cost=Cost(12, limit=256, drawn=True), figure=".figures:over_depth"),
    Claim("theory/initialization.variance", ".initialization:variance", ".initialization:demo",
        "Initialization variance: what is n Var W of each affine map, beside LeCun's, He's and Glorot's?",
        "LeCun, Bottou, Orr and Müller 1998, Section 4.6; Glorot and Bengio 2010, Equation 12; He, Zhang, "
        "Ren and Sun 2015, Equation 10", needs=(AFFINE_MAPS,), cost=Cost(0.0),
        covers=("init.lecun", "init.glorot", "init.he"), figure=".figures:gains"),
    Claim("theory/initialization.mean_square",
        ".initialization:mean_square", ".initialization:demo",
        "Initialization gain: what does each scheme, drawn anew, make of a signal's mean square?",
        "He, Zhang, Ren and Sun 2015, Equations 9 and 10; Glorot and Bengio 2010, Equation 12", by_name=KNOWN,
        needs=(RELU_CHAIN,), cost=Cost(800.0, "test", 128),
        covers=("init.he", "init.lecun", "init.glorot", "init.orthogonal")),
    Claim("theory/backpropagation.recursion",
        ".backpropagation:recursion", ".backpropagation:demo",
        "Backpropagation: do the written-out deltas give the gradient of automatic differentiation?",
        RUMELHART_1986, by_name=KNOWN, needs=(AFFINE_CHAIN, TARGETS), cost=Cost(4, limit=512),
        covers=("backprop.chain", "backprop.mlp")),
    Claim("theory/symmetry.permutation", ".symmetry_claims:permutation", ".symmetry_claims:demo",
        "Permutation symmetry: do outputs stay when the hidden units of a layer change places?",
        HECHT_NIELSEN_1990, by_name=KNOWN, needs=(HIDDEN_UNITS,), cost=Cost(4, limit=256),
        covers=("ffn.permutation_symmetry",)),
    Claim("theory/symmetry.alignment", ".symmetry_claims:alignment", ".symmetry_claims:apart_demo",
        "Weight matching: how near do the weights of two trainings come once hidden units are aligned?",
        AINSWORTH_2023, by_name=KNOWN,
        needs=(HIDDEN_UNITS, ALIKE), cost=Cost(4, limit=256)),
    Claim("theory/dropout.weight_scaling", ".dropout:weight_scaling", ".dropout:demo",
        "Weight scaling of dropout: is the output with all units kept the mean over masks?",
        "Goodfellow, Bengio and Courville 2016, Section 7.12; Srivastava et al. 2014, Section 7.5",
        needs=(DROPOUT,), cost=Cost(200.0, "test", 256), covers=("reg.dropout_ensemble",)),
    Claim("theory/dropout.ensemble", ".dropout:ensemble", ".dropout:demo",
        "Dropout ensemble: by how much does the confidence with all units kept exceed that over masks?",
        "Gal and Ghahramani 2016, Section 4; Srivastava et al. 2014, Section 7.5",
        needs=(PROBABILITIES, DROPOUT), cost=Cost(200.0, "test", 256), covers=("reg.dropout_ensemble",)),
    Claim("theory/normalization.batch_as_weight",
        ".normalization:batch_as_weight_norm", ".normalization:demo",
        "Batch over weight normalization: how far are a layer's inputs from white?",
        "Salimans and Kingma 2016, Section 2.2; Ioffe and Szegedy 2015, Algorithm 1", by_name=KNOWN,
        needs=(BATCH_NORM,), cost=Cost(2.0, "train", 4096), covers=("norm.batch_as_weight_norm",)),
)
# fmt: on
