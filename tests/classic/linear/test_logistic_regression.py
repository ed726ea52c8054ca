"""Logistic regression: against scikit-learn, and its loss in closed form."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression as Reference

from margin import Training, load, train
from margin.classic.linear.logistic import LogisticRegression
from margin.core.tasks import BINARY, CLASSES


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
    from margin.data.open import open_data

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


# the functions that it stands on


def test_the_sigmoids_identities() -> None:
    z = torch.linspace(-30, 30, 601, dtype=torch.float64, requires_grad=True)
    s = z.sigmoid()
    (slope,) = torch.autograd.grad(s.sum(), z)
    assert ((s + (-z).sigmoid()) - 1).abs().max() < 1e-12
    assert (slope - s * (1 - s)).abs().max() < 1e-12
    assert (z.tanh() - (2 * (2 * z).sigmoid() - 1)).abs().max() < 1e-12
    assert (float(slope.max()), int(slope.argmax())) == (0.25, 300)
    far = torch.nn.functional.logsigmoid(torch.tensor([-1e4, 1e4], dtype=torch.float64))
    assert far.tolist() == [-1e4, 0.0]


def test_three_forms_of_the_binary_loss_agree_and_the_printed_one_does_not() -> None:
    """With the sigmoid in the first term alone, log(1 - z) is not even a number for a logit above 1."""
    z = torch.linspace(-5, 5, 11, dtype=torch.float64).repeat(2)
    y = torch.tensor([0, 1]).repeat_interleave(11)
    library = torch.nn.functional.binary_cross_entropy_with_logits(z, y.double(), reduction="none")
    p = z.sigmoid()
    assert torch.allclose(library, -y * p.log() - (1 - y) * (1 - p).log(), atol=1e-12)
    assert torch.allclose(library, -torch.nn.functional.logsigmoid((2 * y - 1) * z), atol=1e-12)
    assert torch.allclose(library, torch.nn.functional.softplus(-(2 * y - 1) * z), atol=1e-12)
    assert torch.allclose(BINARY.loss(z, y), library, atol=1e-12)
    assert BINARY.loss(torch.zeros(2), torch.tensor([0, 1])).tolist() == pytest.approx([math.log(2)] * 2)
    printed = -y * p.log() - (1 - y) * (1 - z).log()
    assert bool(printed.isnan().any())
    free = z.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: BINARY.loss(z, y), (free,))


def test_the_binary_loss_in_bits_bounds_the_error_at_every_logit() -> None:
    z = torch.linspace(-8, 8, 161, dtype=torch.float64)
    z[80] = 0
    for label in (0, 1):
        wrong = (z * (2 * label - 1) <= 0).double()
        bits = BINARY.loss(z, torch.full((161,), label)) / math.log(2)
        assert bool((wrong <= bits + 1e-15).all())
        assert float(bits[80]) == pytest.approx(1, abs=1e-15)  # attained at 0: no smaller factor will do
        assert bool((wrong > bits * math.log(2)).any())  # in nats it is no bound


def test_softmax_has_the_jacobian_of_a_covariance() -> None:
    z = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64)
    p = z.softmax(0)
    found = torch.func.jacrev(lambda z: z.softmax(0))(z)
    assert torch.allclose(found, p.diag() - torch.outer(p, p), atol=1e-12)
    assert torch.linalg.eigvalsh(found)[0] > -1e-12
    assert found.sum(1).abs().max() < 1e-12
    assert torch.allclose((z + 100).softmax(0), p, atol=1e-12)
    assert torch.stack((z, torch.zeros(4))).softmax(0)[0].tolist() == pytest.approx(z.sigmoid().tolist())


def test_the_gradient_of_cross_entropy_is_softmax_less_the_label() -> None:
    z = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    loss = CLASSES.loss(z, torch.tensor([1]))
    (slope,) = torch.autograd.grad(loss.sum(), z)
    expected = z.detach().softmax(-1) - torch.tensor([[0.0, 1, 0]])
    assert torch.allclose(slope, expected, atol=1e-12)
    assert abs(float(slope.sum())) < 1e-12
    equal = CLASSES.loss(torch.full((1, 5), 7.0), torch.tensor([2]))
    assert float(equal) == pytest.approx(math.log(5), rel=1e-6)
    assert float(equal) / math.log(2) == pytest.approx(math.log2(5), rel=1e-6)


def test_the_hessian_of_the_logistic_loss_is_positive_semidefinite() -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(20) % 2
    w = torch.tensor([0.5, -1, 2], dtype=torch.float64)
    found = torch.func.jacrev(torch.func.jacrev(lambda w: BINARY.loss(x @ w, y).mean()))(w)
    p = (x @ w).sigmoid()
    assert torch.allclose(found, x.T @ (x * (p * (1 - p))[:, None]) / 20, atol=1e-12)
    assert torch.linalg.eigvalsh(found)[0] > 0
    (slope,) = torch.autograd.grad(BINARY.loss(x @ (v := w.clone().requires_grad_()), y).mean(), v)
    assert torch.allclose(slope, x.T @ (p - y) / 20, atol=1e-12)
