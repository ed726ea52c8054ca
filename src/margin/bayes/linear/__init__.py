"""Linear regression with a Gaussian prior."""

from margin.core.catalog import KNOWN, TRAINING, Claim, Cost, Entry, Need

LINEAR = Need("a Bayesian linear regression", model="margin.bayes.linear.regression:BayesianLinearRegression")
SMALL = Need("a fitted posterior of at most 1,000 training examples", "margin.bayes.linear.claims:is_small")

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("bayes/linear", ".regression:BayesianLinearRegression", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:values",
        "Linear regression with a Gaussian prior: the exact posterior, both variances by evidence",
        "Bishop 2006, Sections 3.3 and 3.5; MacKay 1992, Equations 4.5 to 4.9",
        step=".regression:conjugate", optimizers=(), parallel=False, whole=True,
        defaults={"epochs": 1, "batch_size": "all", "precision": "float64"}, covers=("bayes.posterior",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("bayes/linear.laplace", ".claims:exact", ".claims:demo",
        "Is the posterior that of Laplace's approximation, whose evidence is the density of the values?",
        "Bishop 2006, Equations 3.53 and 3.54 and Section 4.4", needs=(LINEAR, TRAINING, SMALL),
        by_name=KNOWN, cost=Cost(100, "train"), covers=("bayes.posterior", "bayes.laplace")),
    Claim("bayes/linear.hamiltonian", ".claims:sampled", ".claims:demo",
        "Do Hamiltonian draws of the coefficients have the variances of the exact posterior?",
        "Neal 2011, Section 3", needs=(LINEAR, TRAINING, SMALL), by_name=KNOWN, cost=Cost(2000, "train"),
        covers=("bayes.posterior", "mcmc.hmc")),
)
# fmt: on
