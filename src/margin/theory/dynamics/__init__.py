"""How a training moves: rates, noise, stability, shrinkage."""

from margin.core.catalog import (
    HISTORY,
    INDEPENDENT,
    INITIAL,
    KNOWN,
    PARAMETERS,
    TARGETS,
    TRAINING,
    Claim,
    Cost,
    Need,
    Part,
)

LAST_LAYER = Need(
    "a last affine map whose training features and targets are known",
    "margin.theory.signal.chain:has_last_layer",
)

EDGE = Need(
    "a history with the track theory/edge_of_stability", "margin.theory.dynamics.edge_of_stability:has_edge"
)

AFFINE = Need(
    "models that are affine in their weights, at most 100,000, with a squared error or a cross-entropy",
    "margin.theory.dynamics.weight_function:is_affine",
    of="model",
)

LEAST_SQUARES = Need(
    "models that are affine in their weights, at most 256, with a squared error",
    "margin.theory.dynamics.weight_function:is_affine_squared",
    of="model",
)

TWO_WEIGHTS = Need(
    "models of two weights", "margin.theory.dynamics.weight_function:has_two_weights", of="model"
)

REPEATABLE = Need(
    "a training at a constant rate, short enough to be repeated step by step",
    "margin.theory.dynamics.training_rates:is_repeatable",
)

ENOUGH_ROWS = Need(
    "a history of at least 8 evaluations with a positive training loss",
    "margin.theory.dynamics.training_rates:has_enough_rows",
)

BECK_2009 = "Beck and Teboulle 2009, Theorem 3.1"
NESTEROV_2018 = "Nesterov 2018, Lemma 1.2.3"
NESTEROV_2018_A = "Nesterov 2018, Section 1.2.3"
POLYAK_1963 = "Polyak 1963; Karimi, Nutini and Schmidt 2016, Theorem 1"
SU_2016 = "Su, Boyd and Candes 2016, Equation 2; Beck and Teboulle 2009, Theorem 4.4"
ORTEGA_1970 = "Ortega and Rheinboldt 1970, Chapter 9"
POLYAK_1963_A = "Polyak 1963; Karimi, Nutini and Schmidt 2016, Equation 3"
SMITH_2017 = "Smith 2017, Section 3.3"
SANTURKAR_2018 = "Santurkar, Tsipras, Ilyas and Mądry 2018, Section 3.1"
ALI_2019 = "Ali, Kolter and Tibshirani 2019, Theorem 1"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("theory/decoupled_decay", "fact", ".weight_decay:first_adam_step",
        "The first step of Adam with a penalty and with decoupled decay, by formula.",
        "Loshchilov and Hutter 2019, Algorithm 2", covers=("opt.adamw_vs_l2",)),
    Part("theory/shrinkage", "theorem", ".shrinkage:shrinkage",
        "The factor lambda / (lambda + mu) by which a penalty shrinks each eigendirection.",
        "Goodfellow, Bengio and Courville 2016, Section 7.1.1", covers=("reg.l2_quadratic_shrinkage",)),
    Part("theory/constrained_minimizer", "measure", ".shrinkage:constrained_minimizer",
        "The minimizer of a quadratic in a ball with its multiplier, by the secular equation.",
        "Boyd and Vandenberghe 2004, Section 5.5.3; Moré and Sorensen 1983, Section 3",
        covers=("reg.l2_as_constraint",)),
    Part("theory/optimal_decay", "theorem", ".shrinkage:optimal_decay",
        "The penalty s^2 / u^2 of least expected error, and of the mode under a Gaussian prior.",
        "Hoerl and Kennard 1970, Section 5; Bishop 2006, Equations 3.52 to 3.55",
        covers=("reg.optimal_decay", "reg.map_gaussian_prior")),
    Part("theory/ridge_ratio", "theorem", ".shrinkage:ridge_ratio",
        "What early stopping keeps of a direction over what the penalty 1/t keeps: 1 to 1.2985.", ALI_2019,
        covers=("reg.early_stopping_equals_l2",)),
    Part("theory/gradient_predictiveness", "measure", ".predictiveness:gradient_predictiveness",
        "The change of a gradient after steps along itself.", SANTURKAR_2018,
        covers=("norm.batch_motivation",)),
    Part("theory/gradient_sample", "measure", ".gradient_noise:gradient_sample",
        "The gradients of single examples: their squared distances from the mean gradient.",
        "Bottou, Curtis and Nocedal 2018, Section 4.1"),
    Part("theory/minibatch_variance", "fact", ".gradient_noise:minibatch_variance",
        "The variance of a minibatch gradient, with and without replacement.", "Cochran 1977, Theorem 2.2",
        covers=("opt.sgd",)),
    Part("theory/edge_of_stability", "track", ".edge_of_stability:track",
        "Sharpness of the training loss beside the limit of the optimizer's stability.",
        "Cohen, Kaur, Li, Kolter and Talwalkar 2021, Section 2; Cohen et al. 2022, Section 2",
        covers=("opt.curvature_diagnostic",)),
    Part("theory/rate_sweep", "measure", ".lr_range:sweep",
        "The loss while the learning rate rises geometrically from step to step.", SMITH_2017),
    Part("theory/sufficient_decrease", "theorem", ".rates:sufficient_decrease",
        "The least decrease of an L-smooth function by a gradient step: the descent lemma.", NESTEROV_2018,
        covers=("opt.descent_lemma",)),
    Part("theory/stationary_bound", "theorem", ".rates:stationary_bound",
        "The least squared gradient of T steps on a smooth function: at most 2 L (h_0 - h*) / T.",
        NESTEROV_2018_A, covers=("opt.rate_smooth",)),
    Part("theory/stationary_steps", "theorem", ".rates:stationary_steps",
        "The steps after which some iterate of a smooth function is epsilon-critical.", NESTEROV_2018_A,
        covers=("opt.rate_smooth",)),
    Part("theory/convex_bound", "theorem", ".rates:convex_bound",
        "The gap of a convex function after t steps of descent: at most |theta_0 - z|^2 / (2 eta t).",
        BECK_2009, covers=("opt.rate_convex",)),
    Part("theory/nesterov_bound", "theorem", ".rates:nesterov_bound",
        "The gap of a convex function after t steps of Nesterov's method: of the order of 1 / t^2.", SU_2016,
        covers=("opt.nesterov",)),
    Part("theory/nesterov_linear_bound", "theorem", ".rates:nesterov_linear_bound",
        "The gap of a strongly convex function after t steps of Nesterov's method.",
        "d'Aspremont, Scieur and Taylor 2021, Chapter 4", covers=("opt.nesterov",)),
    Part("theory/linear_factor", "theorem", ".rates:linear_factor",
        "The factor 1 - mu/L of the gap a step under the Polyak-Lojasiewicz condition.", POLYAK_1963,
        covers=("opt.pl", "opt.strong_convexity")),
    Part("theory/best_step", "theorem", ".rates:best_step",
        "The best fixed step 2 / (L + mu) of descent, whose factor is (k - 1) / (k + 1).",
        "Nesterov 2018, Theorem 2.1.15", covers=("opt.strong_convexity",)),
    Part("theory/heavy_ball_bound", "theorem", ".rates:heavy_ball_bound",
        "The distance to the minimizer of a quadratic after t steps of the best heavy ball.", "Polyak 1964",
        covers=("opt.heavy_ball",)),
    Part("theory/diverges", "theorem", ".rates:diverges",
        "Whether descent on a quadratic diverges: exactly at steps above 2/L.",
        "Goodfellow, Bengio and Courville 2016, Section 4.3", covers=("opt.gd",)),
    Part("theory/follow", "function", ".rates:follow",
        "The iterates of an optimizer on a function of one vector.", NESTEROV_2018_A, covers=("opt.gd",)),
    Part("theory/fitted_rate", "measure", ".rates:fitted_rate",
        "The factor a step of a sequence that converges geometrically, with its error.", ORTEGA_1970),
    Part("theory/fitted_exponent", "measure", ".rates:fitted_exponent",
        "The power of the step of a sequence that converges algebraically, with its error.", ORTEGA_1970),
    Part("theory/stochastic_descent", "measure", ".rates:stochastic_descent",
        "Runs of stochastic gradient descent side by side: last, averaged and late iterates.",
        "Nemirovski, Juditsky, Lan and Shapiro 2009, Section 2", covers=("opt.sgd_rates",)),
    Part("theory/stochastic_bound", "theorem", ".rates:lipschitz_bound",
        "The expected gap of a convex function at the averaged stochastic iterate.",
        "Nemirovski, Juditsky, Lan and Shapiro 2009, Section 2.2", covers=("opt.sgd_rates",)),
    Part("theory/noise_floor", "theorem", ".rates:noise_floor",
        "The gap at which a constant step stalls under noise, in proportion to the step.",
        "Bottou, Curtis and Nocedal 2018, Theorem 4.6", covers=("opt.sgd_rates",)),
    Part("theory/stochastic_moments", "fact", ".rates:moments",
        "Mean and variance of a stochastic iterate on a parabola, for any schedule of rates.",
        "Robbins and Monro 1951, Theorem 1", covers=("opt.robbins_monro",)),
    Part("theory/basin", "fact", ".weight_function:basin",
        "Which well of (x^2 - 1)^2 gradient descent falls into: the sign of the start decides.",
        "Goodfellow, Bengio and Courville 2016, Section 8.2", covers=("opt.trajectory_dependence",)),
    Part("theory/pl", "track", ".rate_claims:track",
        "The Polyak-Lojasiewicz ratio |gradient|^2 / (2 loss) at every evaluation of a training.",
        POLYAK_1963_A, covers=("opt.pl",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/gradient_noise.variance", ".gradient_noise:variance", ".gradient_noise:demo",
        "How far do the gradients of single examples lie from their mean?",
        "Cochran 1977, Theorem 2.2; Bottou, Curtis and Nocedal 2018, Section 4.1",
        needs=(TARGETS, PARAMETERS, INDEPENDENT), cost=Cost(20, "train", 512), covers=("opt.sgd",)),
    Claim("theory/gradient_noise.scale", ".gradient_noise:scale", ".gradient_noise:demo",
        "Averaged over how many examples is a gradient as much signal as noise?",
        "McCandlish et al. 2018, Section 2.2 (the simple noise scale)",
        needs=(TARGETS, PARAMETERS, INDEPENDENT), cost=Cost(20, "train", 512)),
    Claim("theory/rates.training", ".training_rates:training", ".training_rates:demo",
        "Did a convex training by gradient descent get as low as it must by its last step?",
        "Beck and Teboulle 2009, Theorem 3.1 (with Lemma 2.3 at any z)",
        needs=(TARGETS, TRAINING, HISTORY, INITIAL, AFFINE, REPEATABLE), cost=Cost(600, "train"),
        covers=("opt.rate_convex",)),
    Claim("theory/rates.descent", ".rate_claims:descent", ".rate_claims:demo",
        "Does each step of gradient descent at 1/L lower a convex training loss as it must?",
        "Nesterov 2018, Lemma 1.2.3 (below) and Equation 2.1.2 (above)", needs=(TARGETS, PARAMETERS, AFFINE),
        cost=Cost(100, "train", 4096), covers=("opt.descent_lemma",)),
    Claim("theory/rates.stationary", ".rate_claims:stationary", ".rate_claims:demo",
        "Is the least gradient among the first T steps of descent as small as it must be?", NESTEROV_2018_A,
        needs=(TARGETS, PARAMETERS, AFFINE), cost=Cost(400, "train", 4096), covers=("opt.rate_smooth",)),
    Claim("theory/rates.linear", ".rate_claims:linear", ".rate_claims:demo",
        "Does descent on least squares shrink the gap to the minimum by 1 - mu/L a step?", POLYAK_1963,
        needs=(TARGETS, PARAMETERS, LEAST_SQUARES), cost=Cost(1000, "train", 4096),
        covers=("opt.pl", "opt.strong_convexity")),
    Claim("theory/rates.accelerated", ".rate_claims:accelerated", ".rate_claims:demo",
        "Does Nesterov's method on least squares keep its bound of order 1 / t^2?", SU_2016,
        needs=(TARGETS, PARAMETERS, LEAST_SQUARES), cost=Cost(1000, "train", 4096), covers=("opt.nesterov",)),
    Claim("theory/rates.heavy_ball", ".rate_claims:heavy_ball", ".rate_claims:demo",
        "Does the heavy ball on least squares keep its bound of order t r^t?",
        "Polyak 1964; Lessard, Recht and Packard 2016, Section 2", needs=(TARGETS, PARAMETERS, LEAST_SQUARES),
        cost=Cost(1000, "train", 4096), covers=("opt.heavy_ball",)),
    Claim("theory/rates.fitted", ".training_rates:fitted", ".training_rates:demo",
        "How fast did the training loss fall: by what factor a step, or what power of the step?",
        "Ortega and Rheinboldt 1970, Chapter 9 (root convergence factors)", needs=(HISTORY, ENOUGH_ROWS),
        cost=Cost(0), covers=("opt.rate_convex",)),
    Claim("theory/rates.pl", ".rate_claims:along_path", ".rate_claims:pl_demo",
        "How steep is the training loss for its height, at least, where training has been?", POLYAK_1963_A,
        needs=(TARGETS, PARAMETERS), cost=Cost(6, "train", 4096), covers=("opt.pl",)),
    Claim("theory/rates.segment", ".training_rates:segment", ".training_rates:demo",
        "Is the training loss convex along the way from the first weights to the last?",
        "Boyd and Vandenberghe 2004, Section 3.1.1 (restriction to a line)",
        needs=(TARGETS, PARAMETERS, INITIAL), cost=Cost(21, "train", 1024), covers=("opt.convexity",)),
    Claim("theory/rates.paths", ".weight_function:paths", ".weight_function:demo",
        "Which way do four optimizers take over a loss of two weights?",
        "Polyak 1964; Nesterov 1983; Kingma and Ba 2015, Algorithm 1",
        needs=(TARGETS, PARAMETERS, TWO_WEIGHTS), cost=Cost(4700, "train", 4096),
        covers=("opt.trajectory_dependence",), figure=".figures:trajectories"),
    Claim("theory/edge_of_stability.ratio", ".edge_of_stability:ratio", ".edge_of_stability:demo",
        "How near did the training come to the curvature at which its optimizer's step is unstable?",
        "Cohen, Kaur, Li, Kolter and Talwalkar 2021, Section 3; Cohen et al. 2022, Section 2", needs=(EDGE,),
        cost=Cost(0), covers=("opt.curvature_diagnostic",),
        figure="margin.theory.curvature.figures:landscape"),
    Claim("theory/range_test", ".lr_range:range_test", ".lr_range:demo",
        "At which learning rates does gradient descent fall fastest, go lowest, and diverge?", SMITH_2017,
        needs=(TRAINING, PARAMETERS), cost=Cost(10, "train", 8192),
        figure="margin.theory.curvature.figures:landscape"),
    Claim("theory/predictiveness.gradient", ".predictiveness:predictiveness", ".predictiveness:demo",
        "By how much does the gradient change after a step along itself?", SANTURKAR_2018,
        needs=(TARGETS, PARAMETERS), cost=Cost(18.0, "train", 256), covers=("norm.batch_motivation",)),
    Claim("theory/weight_decay.sgd", ".weight_decay:sgd_is_penalty", ".weight_decay:demo",
        "Is SGD with weight decay SGD on the loss with a penalty, on this model?",
        "Loshchilov and Hutter 2019, Proposition 1; Goodfellow, Bengio and Courville 2016, Eq. 7.5",
        by_name=KNOWN, needs=(TARGETS, PARAMETERS), cost=Cost(6.0, "train", 256),
        covers=("reg.l2", "reg.weight_decay")),
    Claim("theory/weight_decay.adam", ".weight_decay:adam_shrinks_unevenly", ".weight_decay:demo",
        "How unevenly does a penalty in Adam's gradient shrink the weights? AdamW does so evenly.",
        "Loshchilov and Hutter 2019, Proposition 2 and Algorithm 2", by_name=KNOWN,
        needs=(TARGETS, PARAMETERS), cost=Cost(3.0, "train", 4096), covers=("opt.adamw_vs_l2",)),
    Claim("theory/shrinkage.parameters", ".shrinkage:parameters", ".shrinkage:demo",
        "How many effective parameters does a penalty leave the last affine map?",
        "Hastie, Tibshirani and Friedman 2009, Equation 3.50; Goodfellow, Bengio and Courville 2016, "
        "Section 7.1.1", by_name=KNOWN, needs=(LAST_LAYER,), cost=Cost(1.0, "train", 1024),
        covers=("reg.l2_quadratic_shrinkage",)),
    Claim("theory/shrinkage.multiplier", ".shrinkage:multiplier", ".shrinkage:demo",
        "Does the ball that a penalized solution lies on give back its penalty as the multiplier?",
        "Boyd and Vandenberghe 2004, Section 5.5.3; Goodfellow, Bengio and Courville 2016, Section 7.2",
        by_name=KNOWN, needs=(LAST_LAYER,), cost=Cost(1.0, "train", 1024), covers=("reg.l2_as_constraint",)),
    Claim("theory/early_stopping.ridge", ".shrinkage:against_ridge", ".shrinkage:demo",
        "Is early stopping of the last affine map within its bound of the penalty 1 / (rate T)?",
        "Ali, Kolter and Tibshirani 2019, Theorem 1 (gradient flow: 1.2985, squared 1.6862)", by_name=KNOWN,
        needs=(LAST_LAYER,), cost=Cost(1.0, "train", 1024), covers=("reg.early_stopping_equals_l2",)),
)
# fmt: on
