"""Linear regression with a Gaussian prior."""

from margin.core.catalog import Entry

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("bayes/linear", ".regression:BayesianLinearRegression", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:values",
        "Linear regression with a Gaussian prior: the exact posterior, both variances by evidence",
        "Bishop 2006, Sections 3.3 and 3.5; MacKay 1992, Equations 4.5 to 4.9",
        step=".regression:conjugate", optimizers=(), parallel=False, whole=True,
        defaults={"epochs": 1, "batch_size": "all", "precision": "float64"}, covers=("bayes.posterior",)),
)
# fmt: on
