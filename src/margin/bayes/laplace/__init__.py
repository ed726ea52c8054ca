"""Laplace's approximation of the posterior over a network's weights."""

from margin.core.catalog import LABELS, LONG, TRAINING, Claim, Cost, Entry, Need

AT_ONCE = {"epochs": 1, "batch_size": "all", "precision": "float64"}
REFERENCE = "MacKay 1992, Section 2; Ritter, Botev and Barber 2018, Section 3; Immer et al. 2021, Section 3"
LAPLACE = Need("a Laplace posterior", model="margin.bayes.laplace.posterior:LaplacePosterior")
SMALL = Need("a fitted posterior of at most 2,000 weights", "margin.bayes.laplace.claims:is_small")
LOGITS = Need("a network of classes with a last affine layer", "margin.bayes.laplace.claims:predicts_classes")

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("bayes/laplace", ".posterior:LaplaceClassifier", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:moons",
        "Laplace's approximation: a Gaussian posterior around a network's weights, the prior by evidence",
        REFERENCE, step=".learning:approximation", optimizers=(), parallel=False, whole=True,
        defaults=AT_ONCE, covers=("bayes.laplace",)),
    Entry("bayes/laplace:values", ".posterior:LaplaceRegressor", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:values",
        "Laplace's approximation of a regression network: intervals of values, prior and noise by evidence",
        REFERENCE, step=".learning:approximation", optimizers=(), parallel=False, whole=True,
        defaults=AT_ONCE),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("bayes/laplace.posterior", ".claims:posterior", ".claims:demo",
        "Are the deviations those of the posterior of the linearized network?",
        "Immer, Korzepa and Bauer 2021, Equation 10", needs=(LAPLACE, TRAINING, SMALL),
        cost=Cost(100, "train"), question="trained", covers=("bayes.laplace",)),
    Claim("bayes/laplace.last_layer", ".claims:last_layer", ".claims:classes_demo",
        "Last-layer Laplace: what does a posterior of the last layer gain on the point prediction?",
        "Kristiadi, Hein and Hennig 2020, Section 3", needs=(LABELS, TRAINING, LOGITS),
        cost=Cost(100, "train", 1024), by_name=LONG, question="probabilities"),
)
# fmt: on
