"""Piecewise-linear functions of one variable as networks."""

from margin.core.catalog import KNOWN, TRAINING, Claim, Cost, Entry, Need, Part

ONE_INPUT = Need(
    "a ReLU network of one input", "margin.feedforward.piecewise.linear_claims:is_one_input_relu", of="model"
)

ONE_OUTPUT = Need(
    "a ReLU network of one input and one output",
    "margin.feedforward.piecewise.linear_claims:is_one_output_relu",
    of="model",
)

INTERPOLANT = Need(
    "a piecewise-linear interpolant",
    model="margin.feedforward.piecewise.linear:PiecewiseLinearInterpolant",
)

SAWTOOTH = Need("a sawtooth", model="margin.feedforward.piecewise.sawtooth:Sawtooth")

KNOWN_MODULUS = Need(
    "an interpolant of a function of known modulus of continuity",
    "margin.feedforward.piecewise.error:has_modulus",
    of="model",
)

KNOWN_CURVATURE = Need(
    "an interpolant of a function of known curvature",
    "margin.feedforward.piecewise.error:has_curvature",
    of="model",
)

LEBESGUE_1898 = "Lebesgue 1898; de Boor 2001, Chapter III, Section Broken line interpolation"
LEBESGUE_1898_A = "Lebesgue 1898; Arora, Basu, Mianjy and Mukherjee 2018, Theorem 2.2"
TELGARSKY_2016 = "Telgarsky 2016, Theorem 1.1"
BOOR_2001 = "de Boor 2001, Chapter III, Section Broken line interpolation"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("feedforward/pwl_interpolant",
        ".linear:PiecewiseLinearInterpolant", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:line",
        "The straight lines through the data of one feature, as a ReLU network, written down exactly",
        LEBESGUE_1898, step=".linear:interpolation", optimizers=(), parallel=False, whole=True,
        defaults={"epochs": 1, "batch_size": "all"}, covers=("relu.pwl_basis", "relu.universality")),
)

PARTS: tuple[Part, ...] = (
    Part("feedforward/pwl_basis", "theorem", ".linear:pwl_basis",
        "The ramps a x + b + sum c_i (x - x_i)_+ of the piecewise-linear function through points",
        "Lebesgue 1898", covers=("relu.pwl_basis",)),
    Part("feedforward/relu_network", "theorem", ".linear:relu_network",
        "A piecewise-linear function of one variable as one hidden layer of ReLUs", LEBESGUE_1898_A,
        covers=("relu.pwl_basis",)),
    Part("feedforward/pwl_basis_of_network", "measure", ".linear:basis_of_network",
        "The ramps that a network of one input and one hidden layer of ReLUs computes", LEBESGUE_1898_A,
        covers=("relu.pwl_basis",)),
    Part("feedforward/line_pieces", "measure", ".pieces:pieces_of",
        "The exact pieces of any chain of affine maps and ReLUs of one input", "Telgarsky 2016",
        covers=("depth.separation",)),
    Part("feedforward/interpolant_within", "theorem", ".error:interpolant_within",
        "A ReLU network within a uniform tolerance of a smooth function of one variable",
        "de Boor 2001, Chapter III; Leshno et al. 1993, Theorem 1",
        covers=("relu.universality", "relu.density")),
    Part("feedforward/sawtooth", "theorem", ".sawtooth:Sawtooth",
        "The tent map composed with itself: 2^L pieces by L layers of two ReLUs",
        "Telgarsky 2015; Montufar, Pascanu, Cho and Bengio 2014", covers=("depth.separation",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("feedforward/line.pieces", ".linear_claims:pieces", ".linear_claims:demo",
        "Of how many affine pieces is a ReLU network of one input, and of how many could it be?",
        "Serra, Tjandraatmadja and Ramalingam 2018, Theorem 1", by_name=KNOWN,
        needs=(ONE_INPUT,), cost=Cost(limit=1000),
        covers=("relu.pwl_basis", "depth.separation"),
        figure="margin.feedforward.approximation.figures:approximation"),
    Claim("feedforward/line.separation", ".sawtooth:separation", ".linear_claims:demo",
        "Is a ReLU network of one input at least 1/2 away from a sawtooth of more pieces?", TELGARSKY_2016,
        by_name=KNOWN, needs=(ONE_OUTPUT,), cost=Cost(limit=1000), covers=("depth.separation",),
        figure="margin.feedforward.approximation.figures:approximation"),
    Claim("feedforward/sawtooth.pieces", ".sawtooth:count", ".sawtooth:demo",
        "Has the tent map composed L times exactly 2^L pieces?", TELGARSKY_2016, needs=(SAWTOOTH,),
        cost=Cost(limit=1000), covers=("depth.separation",),
        figure="margin.feedforward.approximation.figures:approximation"),
    Claim("feedforward/pwl_interpolant.interpolates", ".linear_claims:interpolates", ".linear_claims:demo",
        "Does the interpolant pass through the mean training target at each knot?", LEBESGUE_1898,
        needs=(TRAINING, INTERPOLANT), cost=Cost(part="train"), covers=("relu.universality",)),
    Claim("feedforward/density.modulus", ".error:by_modulus", ".error:demo",
        "Is the interpolant's largest error at most what the function moves over a piece?", BOOR_2001,
        by_name=KNOWN, needs=(KNOWN_MODULUS,), cost=Cost(limit=1000), covers=("relu.density",),
        figure="margin.feedforward.approximation.figures:approximation"),
    Claim("feedforward/density.curvature", ".error:by_curvature", ".error:demo",
        "Is the interpolant's largest error at most h^2 |f''| / 8?", BOOR_2001, by_name=KNOWN,
        needs=(KNOWN_CURVATURE,), cost=Cost(limit=1000), covers=("relu.density",),
        figure="margin.feedforward.approximation.figures:approximation"),
)
# fmt: on
