"""Affine maps, by a solve or by descent."""

from margin.classic import SOLVE
from margin.core.catalog import KNOWN, LABELS, PROBABILITIES, TRAINING, Claim, Cost, Entry, Need, Part

LEAST_SQUARES = Need("a linear regression", model="margin.classic.linear.regression:LinearRegression")

RIDGE = Need("a ridge regression", model="margin.classic.linear.ridge:Ridge")
LASSO = Need("a lasso", model="margin.classic.linear.lasso:Lasso")
SOFTMAX = Need("a softmax regression", model="margin.classic.linear.logistic:SoftmaxRegression")

LOGISTIC = Need(
    "a logistic regression of two classes",
    "margin.classic.linear.logistic_claims:is_binary_logistic",
    of="model",
)

NETWORK = Need("a linear network", model="margin.classic.linear.networks:LinearNetwork")

DEEP = Need(
    "a linear network of two layers or more",
    "margin.classic.linear.network_claims:is_deep_linear_network",
    of="model",
)

TWO_LAYERS = Need(
    "a linear network of two layers", "margin.classic.linear.network_claims:is_two_layer_network", of="model"
)

AT_ONCE = {"epochs": 1, "batch_size": "all"}
HOERL_1970 = "Hoerl and Kennard 1970, Equation 2.1"
SAXE_2013 = "Saxe, McClelland and Ganguli 2013, Section 1"
SAXE_2013_A = "Saxe, McClelland and Ganguli 2013, Equations 9 and 12"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("classic/linear_regression",
        ".regression:LinearRegression", "margin.core.tasks:VALUES", "margin.data.sets.tiny.tables:values",
        "The affine map of least squared error and smallest norm, by an exact solve",
        "Gauss 1809; Penrose 1956; Golub and Van Loan 2013, Section 5.5", step=".regression:least_squares",
        optimizers=(), parallel=False, whole=True, defaults=AT_ONCE, covers=("ols", "pinv")),
    Entry("classic/lms",
        ".regression:AdaptiveLinear", "margin.core.tasks:VALUES", "margin.data.sets.tiny.tables:values",
        "The affine map of least squared error, by a gradient step on one example at a time",
        "Widrow and Hoff 1960; Haykin 2014, Equation 6.10", step=".regression:lms", optimizers=(),
        parallel=False, defaults={"epochs": 100, "batch_size": "all"}, covers=("lms",)),
    Entry("classic/ridge", ".ridge:Ridge", "margin.core.tasks:VALUES", "margin.data.sets.tiny.tables:values",
        "The affine map of least squared error and penalized squared length, by an exact solve", HOERL_1970,
        step=".ridge:ridge", optimizers=(), parallel=False, whole=True, defaults=AT_ONCE,
        covers=("ridge",)),
    Entry("classic/kernel_ridge",
        ".ridge:KernelRidge", "margin.core.tasks:VALUES", "margin.data.sets.tiny.tables:values",
        "Ridge regression in the feature space of a kernel, by an exact solve",
        "Saunders, Gammerman and Vovk 1998, Equation 9", step=".ridge:kernel_ridge", optimizers=(),
        parallel=False, whole=True, defaults=AT_ONCE),
    Entry("classic/lasso", ".lasso:Lasso", "margin.core.tasks:VALUES", "margin.data.sets.tiny.tables:values",
        "The affine map of least squared error with a penalty on its absolute coefficients",
        "Tibshirani 1996, Equation 1", step=".lasso:lasso", optimizers=(), parallel=False, whole=True,
        defaults=AT_ONCE, covers=("lasso",)),
    Entry("classic/logistic_regression",
        ".logistic:LogisticRegression", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:classes",
        "Class probabilities log-linear in the features, two classes or more",
        "Cox 1958, Section 2; Hastie, Tibshirani and Friedman 2009, Eq. 4.17-4.18",
        defaults={"epochs": 100, "lr": 0.02, "schedule": "cosine",
                  "optimizer_options": {"weight_decay": 0.0}},
        covers=("logistic.regression",)),
    Entry("classic/softmax_regression",
        ".logistic:SoftmaxRegression", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:classes",
        "Class probabilities log-linear in the features, of largest penalized likelihood",
        "Cox 1966, Section 4; Hastie, Tibshirani and Friedman 2009, Equation 4.17",
        step=".logistic:penalized_likelihood", optimizers=(), parallel=False, whole=True,
        defaults=AT_ONCE, covers=("logistic.regression", "softmax")),
    Entry("classic/linear_network",
        ".networks:LinearNetwork", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:classes",
        "Class logits by a product of matrices, without a nonlinearity between them",
        "Baldi and Hornik 1989; Saxe, McClelland and Ganguli 2013, Equation 1",
        defaults={"epochs": 30, "optimizer_options": {"weight_decay": 0.0}}, covers=("linear.two_layer",)),
)

PARTS: tuple[Part, ...] = (
    Part("classic/standard_errors", "measure", ".regression:standard_errors",
        "The standard errors of least-squares coefficients",
        "Hastie, Tibshirani and Friedman 2009, Equations 3.8 and 3.10"),
    Part("classic/lasso_path", "algorithm", ".lasso:lasso_path",
        "The lasso's solutions over a sequence of penalties, each with its duality gap",
        "Friedman, Hastie and Tibshirani 2010, Section 2.5", covers=("lasso",)),
    Part("classic/one_layer_flow", "fact", ".networks:one_layer_flow",
        "Gradient flow of one matrix on whitened inputs: exponential, at one rate", SAXE_2013,
        covers=("linear.one_layer_flow",)),
    Part("classic/two_layer_modes", "fact", ".networks:mode_strength",
        "Gradient flow of two layers on whitened inputs: each mode a sigmoid, the strongest first",
        SAXE_2013_A, covers=("linear.two_layer_modes",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("classic/linear_regression.normal_equations",
        ".least_squares_claims:normal_equations", ".least_squares_claims:demo",
        "Is the training residual orthogonal to every feature and to the constant?",
        "Gauss 1809; Hastie, Tibshirani and Friedman 2009, Equation 3.5", needs=(LEAST_SQUARES, TRAINING),
        cost=Cost(4, "train"), covers=("ols",)),
    Claim("classic/linear_regression.minimum_norm",
        ".least_squares_claims:minimum_norm", ".least_squares_claims:demo",
        "Are the coefficients the shortest, and is the features' inverse Penrose's?",
        "Penrose 1955, Theorem 1; Penrose 1956, Theorem (best approximate solution)",
        needs=(LEAST_SQUARES, TRAINING), cost=SOLVE, covers=("pinv",)),
    Claim("classic/linear_regression.gaussian_noise",
        ".least_squares_claims:gaussian_noise", ".least_squares_claims:demo",
        "Are the targets under Gaussian noise as probable as an affine map can make them?",
        "Bishop 2006, Equations 3.11 and 3.21", needs=(LEAST_SQUARES, TRAINING), cost=SOLVE,
        covers=("gaussian_noise_mle",)),
    Claim("classic/linear_regression.coefficients",
        ".least_squares_claims:coefficients", ".least_squares_claims:demo",
        "What are the coefficients, and how certain?",
        "Hastie, Tibshirani and Friedman 2009, Equations 3.8, 3.10 and 3.14", needs=(LEAST_SQUARES, TRAINING),
        cost=SOLVE),
    Claim("classic/ridge.stationarity",
        ".penalized_claims:ridge_stationarity", ".penalized_claims:ridge_demo",
        "Is the gradient of the stated penalized loss 0 at the coefficients?", HOERL_1970,
        needs=(RIDGE, TRAINING), cost=Cost(4, "train"), covers=("ridge",)),
    Claim("classic/lasso.conditions", ".penalized_claims:lasso_conditions", ".penalized_claims:lasso_demo",
        "Does every coefficient satisfy the lasso's condition of optimality?",
        "Hastie, Tibshirani and Wainwright 2015, Equation 2.6", needs=(LASSO, TRAINING),
        cost=Cost(4, "train"), covers=("lasso",)),
    Claim("classic/lasso.gap", ".penalized_claims:lasso_gap", ".penalized_claims:lasso_demo",
        "Does the loss exceed the least found by no more than the duality gap?",
        "Kim, Koh, Lustig, Boyd and Gorinevsky 2007, Equation 12", by_name=KNOWN,
        needs=(LASSO, TRAINING), cost=SOLVE,
        covers=("lasso",)),
    Claim("classic/softmax_regression.stationarity",
        ".logistic_claims:stationarity", ".logistic_claims:softmax_demo",
        "Is the gradient of the penalized cross-entropy 0 at the weights?",
        "Hastie, Tibshirani and Friedman 2009, Equations 4.21 and 18.11", needs=(SOFTMAX, LABELS, TRAINING),
        cost=Cost(4, "train"), covers=("logistic.regression",)),
    Claim("classic/logistic_regression.surrogate",
        ".logistic_claims:surrogate", ".logistic_claims:surrogate_demo",
        "Is the error at most the cross-entropy in bits?", "Bartlett, Jordan and McAuliffe 2006, Section 1",
        by_name=KNOWN,
        needs=(LABELS, PROBABILITIES), covers=("logistic.regression",)),
    Claim("classic/logistic_regression.max_margin",
        ".logistic_claims:max_margin", ".logistic_claims:separable_demo",
        "How near is the margin of separable examples to the largest, where descent tends?",
        "Soudry, Hoffer, Nacson, Gunasekar and Srebro 2018, Theorem 3", needs=(LOGISTIC, LABELS, TRAINING),
        cost=Cost(100, "train"), covers=("logistic.regression",)),
    Claim("classic/linear_network.closure", ".network_claims:closure", ".network_claims:demo",
        "Do the layers compute the product of their matrices?", SAXE_2013, needs=(NETWORK, LABELS, TRAINING),
        cost=Cost(2, "train"), covers=("linear.closure",)),
    Claim("classic/linear_network.rank", ".network_claims:rank", ".network_claims:bottleneck_demo",
        "Is the rank of the network's matrix at most its least width?", "Baldi and Hornik 1989, Section 2",
        by_name=KNOWN, needs=(NETWORK,), covers=("linear.closure",)),
    Claim("classic/linear_network.conservation", ".network_claims:conservation", ".network_claims:demo",
        "Does gradient flow keep the balance W_{l+1}^T W_{l+1} - W_l W_l^T of adjacent layers?",
        "Arora, Cohen and Hazan 2018, Theorem 1; Du, Hu and Lee 2018, Theorem 2.1",
        by_name=KNOWN,
        needs=(DEEP, LABELS, TRAINING), cost=Cost(480, "train", 2000), covers=("linear.two_layer",)),
    Claim("classic/linear_network.shallow_flow", ".network_claims:shallow_flow", ".network_claims:demo",
        "Is gradient flow of one matrix on the whitened examples exponential?", SAXE_2013,
        by_name=KNOWN, needs=(NETWORK, LABELS, TRAINING), cost=SOLVE, covers=("linear.one_layer_flow",)),
    Claim("classic/linear_network.modes", ".network_claims:modes", ".network_claims:demo",
        "Do two layers learn the modes of the whitened examples along the sigmoids of theory?", SAXE_2013_A,
        by_name=KNOWN, needs=(TWO_LAYERS, LABELS, TRAINING), cost=SOLVE, covers=("linear.two_layer_modes",)),
)
# fmt: on
