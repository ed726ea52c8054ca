"""Logistic regression: against scikit-learn, and its loss in closed form."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression as Reference

from margin import Training, load, train
from margin.classic.logistic_regression import LogisticRegression
from margin.tasks import CLASSES


@pytest.mark.parametrize("classes", [2, 3])
def test_the_minimum_is_scikit_learns(classes: int, tmp_path: Path) -> None:
    x, y = make_classification(
        400, 5, n_informative=4, n_redundant=0, n_classes=classes, class_sep=0.5, flip_y=0.2, random_state=0
    )
    training = Training(
        batch_size="all",
        optimizer="LBFGS",
        lr=0.5,
        max_steps=300,
        evaluate_every=300,
        schedule="constant",
        precision="float64",
        optimizer_options={"max_iter": 1, "history_size": 20, "tolerance_grad": 0.0, "tolerance_change": 0.0},
    )
    from margin.data.opening import open_data

    data = open_data((x, y), {"test": 0.25, "val": 0.0})
    run = train("logistic_regression", data, training=training, out=tmp_path / "run")
    part = data.splits["train"]
    reference = Reference(C=np.inf, tol=1e-10, max_iter=10_000).fit(
        part.inputs[0].numpy(), part.targets.numpy()
    )
    ours = load(run)(part.inputs[0].double()).softmax(-1).detach().numpy()
    assert np.abs(ours - reference.predict_proba(part.inputs[0].numpy())).max() <= 1e-5


def test_two_classes_share_one_hyperplane() -> None:
    model = LogisticRegression(3, 2)
    assert sum(p.numel() for p in model.parameters()) == 4
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    model.linear.weight.data = torch.tensor([[1.0, -2.0, 0.5]])
    z = x @ torch.tensor([1.0, -2.0, 0.5])
    assert torch.allclose(model(x).softmax(-1)[:, 1], torch.sigmoid(z), atol=1e-6)
    labels = torch.tensor([0, 1] * 5)
    expected = torch.nn.functional.softplus(-(2 * labels - 1) * z)
    assert torch.allclose(CLASSES.loss(model(x), labels), expected, atol=1e-6)


def test_at_zero_the_loss_is_the_entropy_of_a_guess() -> None:
    for classes in (2, 5):
        loss = CLASSES.loss(
            LogisticRegression(4, classes)(torch.randn(3, 4)), torch.zeros(3, dtype=torch.long)
        )
        assert torch.allclose(loss, torch.full((3,), math.log(classes)), atol=1e-6)


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_classes must be at least 2: got 1"):
        LogisticRegression(4, 1)
