"""Multilayer perceptrons."""

from margin.core.catalog import Entry

EPOCHS = {"epochs": 100, "batch_size": 32, "patience": 15}
RUMELHART_1986 = "Rumelhart, Hinton and Williams 1986, Eq. 1-2"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("feedforward/mlp", ".model:MLP", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:moons",
        "A multilayer perceptron to class logits", RUMELHART_1986, defaults=EPOCHS,
        covers=("ffn.layer", "ffn.compose")),
    Entry("feedforward/mlp:values",
        ".model:MLPRegressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.tables:values",
        "A multilayer perceptron to one real number", RUMELHART_1986, defaults=EPOCHS,
        formerly=("feedforward/mlp_regressor",)),
    Entry("feedforward/residual_mlp",
        ".model:ResidualMLP", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:moons",
        "A deep perceptron whose layers each add to what they are given",
        "He, Zhang, Ren and Sun 2016, Equation 1", defaults=EPOCHS, covers=("residual.layer",)),
    Entry("feedforward/dense_mlp",
        ".model:DenseMLP", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:moons",
        "A perceptron whose layers each read every layer before them",
        "Huang, Liu, van der Maaten and Weinberger 2017, Equation 2", defaults=EPOCHS,
        covers=("densenet.block",)),
    Entry("feedforward/sigmoid_net",
        ".sigmoid_net:SigmoidNet", "margin.core.tasks:VALUES", "margin.data.sets.tiny.tables:values",
        "A sum of sigmoid ridge functions, to one real number",
        "Cybenko 1989, Equation 1; Barron 1993, Equation 1",
        defaults={"epochs": 300, "batch_size": 32, "lr": 1e-2, "schedule": "cosine"},
        covers=("sigmoid_net",)),
    Entry("feedforward/stacked_autoencoder",
        ".stacked_autoencoder:StackedAutoencoder", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:moons",
        "A classifier whose layers first learn, one after another, to reconstruct their inputs",
        "Bengio, Lamblin, Popovici and Larochelle 2007; Vincent et al. 2010, Section 3",
        step=".stacked_autoencoder:greedy_pretraining", parallel=False, weighted=False,
        defaults={"epochs": 100, "batch_size": 32}, covers=("train.transfer_bootstrap",)),
)
# fmt: on
