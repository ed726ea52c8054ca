"""Threshold units, associative memories, linear models."""

from margin.catalog import LABELS, TRAINING, Claim, Entry, Need

MODELS = (
    Entry(
        name="classic/perceptron",
        summary="A halfspace, learned by Rosenblatt's mistake rule until a pass makes no mistake",
        build="margin.classic.perceptron:Perceptron",
        task="margin.tasks:HALFSPACE",
        step="margin.classic.perceptron:mistake_rule",
        tiny="margin.data.tiny:sides",
        optimizers=(),
        parallel=False,
        defaults={"epochs": 1000, "batch_size": "all", "until": {"mistakes": 0}},
        reference="Rosenblatt 1958; Novikoff 1962, Section 1",
        covers=("perceptron.model", "perceptron.margin", "perceptron.algorithm"),
    ),
    Entry(
        name="classic/linear_regression",
        summary="The affine map of least squared error and smallest norm, by an exact solve",
        build="margin.classic.linear_regression:LinearRegression",
        task="margin.tasks:VALUES",
        step="margin.classic.linear_regression:least_squares",
        tiny="margin.data.tiny:values",
        optimizers=(),
        parallel=False,
        defaults={"epochs": 1, "batch_size": "all"},
        reference="Gauss 1809; Penrose 1956; Golub and Van Loan 2013, Section 5.5",
    ),
    Entry(
        name="classic/logistic_regression",
        summary="Class probabilities log-linear in the features, two classes or more",
        build="margin.classic.logistic_regression:LogisticRegression",
        task="margin.tasks:CLASSES",
        tiny="margin.data.tiny:classes",
        defaults={
            "epochs": 100,
            "lr": 0.02,
            "schedule": "cosine",
            "optimizer_options": {"weight_decay": 0.0},
        },
        reference="Cox 1958, Section 2; Hastie, Tibshirani and Friedman 2009, Eq. 4.17-4.18",
    ),
)

CLAIMS = (
    Claim(
        name="classic/perceptron.novikoff",
        summary="Does the mistake rule err at most (R / gamma)^2 times on the training examples?",
        ask="margin.classic.perceptron_claims:novikoff",
        demo="margin.classic.perceptron_claims:demo",
        needs=(LABELS, TRAINING, Need("a perceptron", "margin.classic.perceptron_claims:is_perceptron")),
        reference="Novikoff 1962; Freund and Schapire 1999, Theorem 1",
        covers=("perceptron.novikoff",),
    ),
)
