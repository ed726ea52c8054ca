"""Feed-forward networks: multilayer perceptrons and what is said of them."""

from margin.catalog import Entry

MODELS = (
    Entry(
        name="feedforward/mlp",
        summary="A multilayer perceptron to class logits",
        build="margin.feedforward.mlp:MLP",
        task="margin.tasks:CLASSES",
        tiny="margin.data.tiny:moons",
        defaults={"epochs": 100, "batch_size": 32, "patience": 15},
        reference="Rumelhart, Hinton and Williams 1986, Eq. 1-2",
    ),
    Entry(
        name="feedforward/mlp_regressor",
        summary="A multilayer perceptron to one real number",
        build="margin.feedforward.mlp:MLPRegressor",
        task="margin.tasks:VALUES",
        tiny="margin.data.tiny:values",
        defaults={"epochs": 100, "batch_size": 32, "patience": 15},
        reference="Rumelhart, Hinton and Williams 1986, Eq. 1-2",
    ),
)
