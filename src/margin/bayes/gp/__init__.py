"""Gaussian processes."""

from margin.core.catalog import TRAINING, Claim, Cost, Entry, Need

EXACT = {"epochs": 1, "batch_size": "all", "precision": "float64"}
PROCESS = Need("a Gaussian process regression", model="margin.bayes.gp.regression:GaussianProcess")

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("bayes/gp", ".regression:GaussianProcess", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:values",
        "Gaussian process regression: an exact posterior over functions, hyper-parameters by evidence",
        "Rasmussen and Williams 2006, Chapter 2 and Section 5.4.1", step=".learning:regression",
        optimizers=(), parallel=False, whole=True, defaults=EXACT,
        covers=("gp.definition", "gp.kernel", "gp.rbf", "gp.regression")),
    Entry("bayes/gp:classes", ".classification:GaussianProcessClassifier", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:classes",
        "Gaussian process classification: latent functions through logistic curves, by Laplace's method",
        "Rasmussen and Williams 2006, Sections 3.4 and 5.5.1", step=".learning:classification",
        optimizers=(), parallel=False, whole=True, defaults=EXACT),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("bayes/gp.posterior", ".claims:posterior", ".claims:demo",
        "Are mean and variance those of the exact posterior of the training examples?",
        "Rasmussen and Williams 2006, Equations 2.25 and 2.26", needs=(PROCESS, TRAINING),
        cost=Cost(100, "train"), question="trained", figure=".figures:functions", covers=("gp.regression",)),
    Claim("bayes/gp.stationarity", ".claims:stationarity", ".claims:demo",
        "Are the hyper-parameters at a maximum of the evidence?",
        "Rasmussen and Williams 2006, Equation 5.9", needs=(PROCESS, TRAINING),
        cost=Cost(100, "train"), question="trained"),
)
# fmt: on
