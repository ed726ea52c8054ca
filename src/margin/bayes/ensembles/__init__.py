"""Averages of networks: deep ensembles, Monte-Carlo dropout."""

from margin.core.catalog import Entry

EPOCHS = {"epochs": 100, "batch_size": 32, "patience": 15}
LAKSHMINARAYANAN_2017 = "Lakshminarayanan, Pritzel and Blundell 2017, Section 2"
GAL_2016 = "Gal and Ghahramani 2016, Section 4"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("bayes/ensemble", ".deep_ensemble:DeepEnsemble", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:moons",
        "A deep ensemble: the mean of the class probabilities of networks trained side by side",
        LAKSHMINARAYANAN_2017, step=".learning:side_by_side", parallel=False, defaults=EPOCHS),
    Entry("bayes/ensemble:values", ".deep_ensemble:GaussianEnsemble", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:values",
        "A deep ensemble: the mixture of the Gaussian laws of networks trained side by side",
        LAKSHMINARAYANAN_2017, step=".learning:likelihood", parallel=False, defaults=EPOCHS),
    Entry("bayes/mc_dropout", ".mc_dropout:DropoutClassifier", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:moons",
        "Monte-Carlo dropout: the mean of the class probabilities of a network over dropout masks", GAL_2016,
        defaults=EPOCHS),
    Entry("bayes/mc_dropout:values", ".mc_dropout:DropoutRegressor", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:values",
        "Monte-Carlo dropout: the mixture of the Gaussian laws of a network over dropout masks",
        f"{GAL_2016}; Kendall and Gal 2017, Equation 8", step=".learning:likelihood", parallel=False,
        defaults=EPOCHS, newer={"noise": None}),
)
# fmt: on
