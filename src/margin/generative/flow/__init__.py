"""Densities by invertible or autoregressive maps."""

from margin.core.catalog import KNOWN, TRAINING, TWO_EXAMPLES, Claim, Cost, Entry, Need

FLOW = {"epochs": 200, "lr": 2e-3, "clip": 5.0, "schedule": "cosine", "patience": 20}
FLOWS = Need("a flow (a map to noise with its inverse)", "margin.generative.flow.claims:is_flow", of="model")
BITS_AND_LEVELS = {**FLOW, "epochs": 50, "lr": 0.001, "scale": "unit"}
DINH_2017 = "Dinh, Sohl-Dickstein and Bengio 2017, Equations 2 to 8"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("generative/realnvp",
        ".realnvp:realnvp", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:moons",
        "RealNVP: a normalizing flow of affine couplings, with an exact density of rows", DINH_2017,
        objective="margin.engine.objectives:negative_log_density", defaults=FLOW,
        covers=("flow.realnvp", "flow.change_of_variables")),
    Entry("generative/conditional_realnvp",
        ".realnvp:conditional_realnvp", "margin.core.tasks:DENSITY",
        "margin.data.sets.tiny.tables:moons",
        "Class-conditional RealNVP: a flow of affine couplings that read the class", DINH_2017,
        objective=".objectives:negative_log_density_given", defaults=FLOW, covers=("flow.realnvp",)),
    Entry("generative/neural_spline_flow",
        ".realnvp:neural_spline_flow", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:moons",
        "Neural spline flow: couplings by monotone rational-quadratic splines",
        "Durkan, Bekasov, Murray and Papamakarios 2019, Section 3",
        objective="margin.engine.objectives:negative_log_density", defaults=FLOW,
        covers=("flow.realnvp", "flow.change_of_variables")),
    Entry("generative/realnvp_images",
        ".realnvp_images:RealNVPImages", "margin.core.tasks:PROBABILITY",
        "margin.data.sets.tiny.tables:images",
        "RealNVP of images: multi-scale checkerboard and channel couplings, uniform dequantization",
        "Dinh, Sohl-Dickstein and Bengio 2017, Sections 3.6 and 4.1", objective=".objectives:negative_bound",
        defaults=BITS_AND_LEVELS, covers=("flow.realnvp", "flow.change_of_variables")),
    Entry("generative/made",
        ".made:MADE", "margin.core.tasks:PROBABILITY", "margin.data.sets.tiny.tables:images",
        "MADE: a masked autoencoder, the probability of each bit given those before it",
        "Germain, Gregor, Murray and Larochelle 2015, Section 3",
        objective=".objectives:negative_log_probability", defaults=BITS_AND_LEVELS,
        covers=("autoregressive.model",)),
    Entry("generative/gaussian_made",
        ".made:GaussianMADE", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:values",
        "Gaussian MADE: a masked autoregressive flow, a Gaussian of each number given those before it",
        "Papamakarios, Pavlakou and Murray 2017, Equations 2 to 5",
        objective="margin.engine.objectives:negative_log_density", defaults=FLOW,
        covers=("autoregressive.model",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/flow.inverse", ".claims:inverse", ".claims:demo",
        "Invertibility: does the inverse undo the map on held-out examples, in the model's precision?",
        "Dinh, Sohl-Dickstein and Bengio 2017, Equation 8", needs=(FLOWS,), cost=Cost(passes=3, limit=1024),
        covers=("flow.realnvp",)),
    Claim("generative/flow.log_det", ".claims:log_det", ".claims:demo",
        "Is the log-determinant that the flow reports that of its Jacobian?",
        "Dinh, Sohl-Dickstein and Bengio 2017, Equations 3, 6 and 7",
        needs=(FLOWS, Need("inputs of at most 128 numbers", "margin.generative.flow.claims:is_small")),
        cost=Cost(passes=400, limit=3), by_name=KNOWN, covers=("flow.realnvp", "flow.change_of_variables")),
    Claim("generative/flow.radius", ".claims:radius", ".claims:demo",
        "Is the noise of held-out examples as far out as normal noise?",
        "Papamakarios et al. 2021, Section 2.1; Massart 1990, Corollary 1", needs=(FLOWS,),
        cost=Cost(limit=10240), covers=("flow.change_of_variables",)),
    Claim("generative/density.mass", ".claims:mass", ".claims:plane_demo",
        "Does the density of the plane integrate to 1?", "Dinh, Sohl-Dickstein and Bengio 2017, Equation 2",
        needs=(
            Need("a density of the plane that can be sampled",
                 "margin.generative.flow.claims:is_plane"),),
        cost=Cost(passes=500, limit=400), covers=("flow.change_of_variables",), figure=".figures:density"),
    Claim("generative/density.gain", ".claims:gain", ".claims:plane_demo",
        "Log-likelihood gain over a Gaussian, in nats, on held-out examples",
        "Theis, van den Oord and Bethge 2016, Section 3.1",
        needs=(
            Need("an exact density",
                 "margin.generative.flow.claims:is_density", of="model"), TRAINING, TWO_EXAMPLES,
            Need("at most 1,000 features, and more training rows than features",
                 "margin.generative.flow.claims:is_narrow")),
        cost=Cost(passes=2, part="train"), covers=("flow.realnvp",), question="right"),
    Claim("generative/made.causality", ".claims:causality", ".claims:bits_demo",
        "Does no output of a masked network see its own number or a later one?",
        "Germain, Gregor, Murray and Larochelle 2015, Section 3, Equations 10 to 14",
        needs=(Need("a masked network", "margin.generative.flow.claims:is_autoregressive", of="model"),),
        cost=Cost(passes=1000, limit=4), by_name=KNOWN, covers=("autoregressive.model",)),
    Claim("generative/made.total", ".claims:total", ".claims:bits_demo",
        "Do the probabilities of all rows of bits sum to 1?",
        "Germain, Gregor, Murray and Larochelle 2015, Section 3, Equation 5",
        needs=(
            Need("a masked network of at most 14 bits",
                 "margin.generative.flow.claims:is_few_bits", of="model"),),
        cost=Cost(passes=16000, limit=1), by_name=KNOWN, covers=("autoregressive.model",)),
)
# fmt: on
