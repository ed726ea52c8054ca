"""The second derivative of the training loss, and what is read off it."""

from margin.core.catalog import BESIDE, INITIAL, KNOWN, LONG, PARAMETERS, TARGETS, Claim, Cost, Need, Part
from margin.theory import ALIKE, HIDDEN_UNITS

OUTPUT_LOSS = Need(
    "an objective that is a loss of the model's outputs",
    "margin.theory.curvature.gauss_newton:has_output_loss",
)

OUTPUT_PROBABILITIES = Need(
    "an objective that is a loss of outputs that state probabilities",
    "margin.theory.curvature.gauss_newton:has_output_probabilities",
)

LEARNING_RATE = Need(
    "a history with a learning rate", "margin.theory.curvature.gradient_step:has_learning_rate"
)

FILTERS = Need(
    "a weight matrix or kernel that requires a gradient", "margin.theory.curvature.loss_slices:has_filters"
)

GOODFELLOW_2016 = "Goodfellow, Bengio and Courville 2016, Section 4.3 (Equation 4.9)"
KESKAR_2017 = "Keskar et al. 2017, Section 2.2.1, Metric 2.1"
GOODFELLOW_2015 = "Goodfellow, Vinyals and Saxe 2015, Section 3"
LI_2018 = "Li, Xu, Taylor, Studer and Goldstein 2018, Section 4"
GARIPOV_2018 = "Garipov, Izmailov, Podoprikhin, Vetrov and Wilson 2018, Section 3"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("theory/extreme_eigenvalues", "measure", ".lanczos:extreme_eigenvalues",
        "Both ends of a symmetric matrix's spectrum with residuals, by the Lanczos process.",
        "Parlett 1980, Theorem 4.5.1 and Chapter 13"),
    Part("theory/risk_hessian", "measure", ".hessian:risk_hessian",
        "The Hessian of the empirical risk as a linear map.", "Pearlmutter 1994, Section 2"),
    Part("theory/hutchinson_trace", "measure", ".trace:hutchinson_trace",
        "The trace of a matrix from products with random signs, with its error.",
        "Hutchinson 1990, Proposition 1"),
    Part("theory/leading_eigenpairs", "measure", ".leading:leading_eigenpairs",
        "The leading eigenpairs of a symmetric matrix with residuals, by thick-restart Lanczos.",
        "Wu and Simon 2000, Algorithm 3"),
    Part("theory/largest_eigenvalue", "measure", ".leading:largest_eigenvalue",
        "The largest eigenvalue of a risk's Hessian, preconditioned or not.",
        "Lanczos 1950; Parlett 1980, Chapter 13", covers=("loss.sharpness",)),
    Part("theory/deflated_trace", "measure", ".trace:deflated_trace",
        "A symmetric matrix's trace with its error, its large eigenvalues taken exactly (Hutch++).",
        "Meyer, Musco, Musco and Woodruff 2021, Algorithm 1"),
    Part("theory/estimated_diagonal", "measure", ".diagonal:estimated_diagonal",
        "The diagonal of a matrix from products with random signs, with an error a coordinate.",
        "Bekas, Kokiopoulou and Saad 2007, Section 2"),
    Part("theory/spectral_density", "measure", ".spectral_density:spectral_density",
        "The density of a symmetric matrix's spectrum by stochastic Lanczos quadrature.",
        "Lin, Saad and Yang 2016, Section 3.2"),
    Part("theory/curvature_map", "measure", ".gauss_newton:curvature_map",
        "The Gauss-Newton matrix, the empirical and the sampled Fisher matrix as linear maps.",
        "Schraudolph 2002, Section 3; Martens 2020, Sections 5 and 8"),
    Part("theory/condition_of", "measure", ".spectrum_claims:condition_of",
        "The ratio of the extreme magnitudes of eigenvalues that are not 0 within their error.",
        "Nesterov 2004, Theorem 2.1.15", covers=("opt.condition_number",)),
    Part("theory/box_ascent", "measure", ".flatness:box_ascent",
        "The largest loss that signed ascent finds in a box about the weights.", KESKAR_2017,
        covers=("loss.sharpness",)),
    Part("theory/curvature", "track", ".gradient_step:track",
        "Largest curvature, gradient norm and step ratio at every evaluation of a training.",
        "Goodfellow, Bengio and Courville 2016, Section 4.3", covers=("opt.curvature_diagnostic",)),
    Part("theory/bezier", "algorithm", ".connectivity:bezier",
        "The middle point of a quadratic curve between two models along which the loss is low.", GARIPOV_2018,
        covers=("loss.mode_connectivity",)),
    Part("theory/along", "measure", ".connectivity:along",
        "Loss and share of mistakes at evenly spaced places of a path of weights.",
        "Goodfellow, Vinyals and Saxe 2015, Section 3; Frankle et al. 2020, Section 2",
        covers=("loss.mode_connectivity",)),
    Part("theory/filter_normalized", "function", ".loss_slices:filter_normalized",
        "A random direction in weight space of which every filter has the norm of the weights'.", LI_2018),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/curvature.sharpness", ".trained_weights:sharpness", ".trained_weights:demo",
        "What are the largest and smallest eigenvalues of the mean loss's Hessian?",
        "Parlett 1980, Theorem 4.5.1 (an eigenvalue lies within the residual); Lanczos 1950",
        needs=(TARGETS, PARAMETERS), cost=Cost(150, "train", 1024), figure=".figures:spectrum"),
    Claim("theory/curvature.trace", ".trained_weights:trace", ".trained_weights:demo",
        "What is the trace of the mean loss's Hessian?",
        "Meyer, Musco, Musco and Woodruff 2021, Algorithm 1; Hutchinson 1990, Proposition 1",
        needs=(TARGETS, PARAMETERS), cost=Cost(500, "train", 256), figure=".figures:draws"),
    Claim("theory/curvature.leading", ".trained_weights:leading", ".trained_weights:demo",
        "What are the largest eigenvalues, in magnitude, of the mean loss's Hessian?",
        "Wu and Simon 2000, Algorithm 3; Parlett 1980, Theorem 4.5.1", needs=(TARGETS, PARAMETERS),
        cost=Cost(250, "train", 1024)),
    Claim("theory/curvature.layers", ".spectrum_claims:layers", ".trained_weights:demo",
        "In which parameters is the trace of the mean loss's Hessian?",
        "Hutchinson 1990, Proposition 1; Avron and Toledo 2011, Lemma 1", by_name=LONG,
        needs=(TARGETS, PARAMETERS), cost=Cost(720, "train", 1024)),
    Claim("theory/curvature.density", ".spectrum_claims:density", ".trained_weights:demo",
        "How are the eigenvalues of the mean loss's Hessian spread: negative, about 0, positive?",
        "Lin, Saad and Yang 2016, Section 3.2; Ghorbani, Krishnan and Xiao 2019, Section 2", by_name=LONG,
        needs=(TARGETS, PARAMETERS), cost=Cost(1500, "train", 512), figure=".figures:spectrum_density"),
    Claim("theory/curvature.condition", ".spectrum_claims:condition", ".trained_weights:demo",
        "What is the condition number of the mean loss's Hessian, its zeros apart?",
        "Nesterov 2004, Theorem 2.1.15 (steps by condition number); Parlett 1980, Theorem 4.5.1",
        by_name=LONG, needs=(TARGETS, PARAMETERS), cost=Cost(370, "train", 1024),
        covers=("opt.condition_number",)),
    Claim("theory/curvature.smoothness", ".smoothness:smoothness", ".smoothness:demo",
        "How large, at least, is the Lipschitz constant of the training loss's gradient?",
        "Nesterov 2004, Lemma 1.2.2", by_name=LONG, needs=(TARGETS, PARAMETERS),
        cost=Cost(300, "train", 1024), covers=("opt.lipschitz", "opt.smoothness")),
    Claim("theory/curvature.along_gradient", ".gradient_step:along_gradient_claim", ".gradient_step:demo",
        "How curved is the loss along its gradient, and up to which learning rate does a step help?",
        GOODFELLOW_2016, needs=(TARGETS, PARAMETERS), cost=Cost(10, "train", 1024),
        covers=("opt.curvature_diagnostic",)),
    Claim("theory/curvature.step_ratio", ".gradient_step:step_ratio", ".gradient_step:demo",
        "Would a gradient step at the training's last learning rate still lower the loss?", GOODFELLOW_2016,
        needs=(TARGETS, PARAMETERS, LEARNING_RATE), cost=Cost(10, "train", 1024),
        covers=("opt.curvature_diagnostic",)),
    Claim("theory/curvature.gauss_newton", ".gauss_newton_claims:gauss_newton", ".gauss_newton_claims:demo",
        "How much of the mean loss's Hessian is its Gauss-Newton part?",
        "Schraudolph 2002, Section 3; Parlett 1980, Theorem 4.5.1", by_name=LONG,
        needs=(TARGETS, PARAMETERS, OUTPUT_LOSS), cost=Cost(900, "train", 512)),
    Claim("theory/curvature.gauss_newton_definite",
        ".gauss_newton_claims:definite", ".gauss_newton_claims:demo",
        "Has the Gauss-Newton matrix of the training loss no negative eigenvalue?",
        "Schraudolph 2002, Section 3 (J' M J with M positive semidefinite)", by_name=KNOWN,
        needs=(TARGETS, PARAMETERS, OUTPUT_LOSS), cost=Cost(350, "train", 512)),
    Claim("theory/curvature.fisher", ".gauss_newton_claims:fisher", ".gauss_newton_claims:demo",
        "What are the traces of the Gauss-Newton matrix, the Fisher matrix and the empirical one?",
        "Martens 2020, Sections 5 and 8; Kunstner, Balles and Hennig 2019, Section 2", by_name=LONG,
        needs=(TARGETS, PARAMETERS, OUTPUT_PROBABILITIES), cost=Cost(1000, "train", 512)),
    Claim("theory/curvature.critical_point", ".critical_points:kind", ".critical_points:demo",
        "Are the weights a minimum of the training loss, a saddle point, or no critical point?",
        "Nocedal and Wright 2006, Theorems 2.3 and 2.4", needs=(TARGETS, PARAMETERS),
        cost=Cost(250, "train", 1024), covers=("loss.critical_points",)),
    Claim("theory/sharpness.box", ".flatness:box_sharpness", ".flatness:demo",
        "How much does the training loss rise, at least, when every weight moves a little?", KESKAR_2017,
        needs=(TARGETS, PARAMETERS), cost=Cost(70, "train", 1024), covers=("loss.sharpness",)),
    Claim("theory/sharpness.adaptive", ".flatness:adaptive_sharpness", ".flatness:demo",
        "How much does the loss rise, at least, when each weight moves by a share of itself?",
        "Kwon, Kim, Park and Choi 2021, Section 3 (adaptive sharpness)", needs=(TARGETS, PARAMETERS),
        cost=Cost(70, "train", 1024)),
    Claim("theory/loss_slices.plane", ".loss_slices:plane", ".trained_weights:demo",
        "What does the loss look like on the plane of the Hessian's two sharpest directions?",
        "Goodfellow, Vinyals and Saxe 2015, Section 3; Li et al. 2018, Section 4", by_name=LONG,
        needs=(TARGETS, PARAMETERS), cost=Cost(700, "train", 1024), figure=".figures:landscape"),
    Claim("theory/loss_slices.random", ".loss_slices:random_directions", ".flatness:demo",
        "How does the loss rise along random directions in which every filter has the weights' norm?",
        LI_2018, needs=(TARGETS, FILTERS), cost=Cost(168, "train", 1024), figure=".figures:landscape"),
    Claim("theory/connectivity.linear", ".connectivity_claims:linear", ".connectivity_claims:demo",
        "How high does the loss rise on the straight path between the weights of two trainings?",
        "Frankle, Dziugaite, Roy and Carbin 2020, Section 2; Entezari et al. 2022, Section 2",
        needs=(TARGETS, PARAMETERS, BESIDE), cost=Cost(42, "train", 2048), covers=("loss.mode_connectivity",),
        figure=".figures:landscape"),
    Claim("theory/connectivity.aligned", ".connectivity_claims:after_alignment", ".connectivity_claims:demo",
        "How high does it rise once the second one's hidden units are in the first one's order?",
        "Ainsworth, Hayase and Srinivasa 2023, Section 3.2; Entezari et al. 2022, Section 2",
        needs=(TARGETS, PARAMETERS, HIDDEN_UNITS, ALIKE), cost=Cost(84, "train", 2048),
        covers=("loss.mode_connectivity",), figure=".figures:landscape"),
    Claim("theory/connectivity.curved", ".connectivity_claims:curved", ".connectivity_claims:demo",
        "How high does the loss rise on a bent path between two trainings, trained for a low loss?",
        GARIPOV_2018, needs=(TARGETS, PARAMETERS, BESIDE), cost=Cost(240, "train", 1024),
        covers=("loss.mode_connectivity",), figure=".figures:landscape"),
    Claim("theory/connectivity.from_initial",
        ".connectivity_claims:from_initial", ".connectivity_claims:demo",
        "Does the loss fall all the way from a training's first weights straight to its last?",
        GOODFELLOW_2015, needs=(TARGETS, PARAMETERS, INITIAL), cost=Cost(42, "train", 2048),
        covers=("loss.mode_connectivity",), figure=".figures:landscape"),
)
# fmt: on
