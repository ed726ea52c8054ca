"""The rows that exact solves read: weighted moments against NumPy's, what is left out, what is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from margin.classic.linear import rows
from margin.core.findings import Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.engine.loop import NonFiniteError, State, risk
from margin.nn.preprocessed import Preprocessed


def problem(count: int = 25, features: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, features, generator=generator, dtype=torch.float64) + 5
    return x, torch.rand(count, generator=generator, dtype=torch.float64) + 0.1


@pytest.mark.parametrize("chunk", [1, 7, 25, 100])
@pytest.mark.parametrize("weighted", [False, True])
def test_mean_and_covariance_are_numpys(chunk: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "CHUNK", chunk)
    x, weight = problem()
    mean, S = rows.covariance(x, weight if weighted else None)
    given = weight.numpy() if weighted else None
    np.testing.assert_allclose(mean, np.average(x.numpy(), 0, given), rtol=1e-12)
    np.testing.assert_allclose(S, np.cov(x.numpy().T, aweights=given, ddof=0), rtol=1e-10, atol=1e-14)
    again = rows.covariance(x, 7 * weight if weighted else None)[1]
    assert torch.allclose(S, again, atol=1e-14)


def test_a_column_of_one_value_has_no_variance_whatever_its_size() -> None:
    x, weight = problem()
    x[:, 2] = 1e12 + 0.1
    for given in (None, weight):
        assert not rows.covariance(x, given)[1][2].any()
        centered, mean = rows.centered(x, given)
        assert not centered[:, 2].any()
        assert mean[2] == 1e12 + 0.1


def test_the_gram_matrix_of_rows_and_of_columns() -> None:
    x, _ = problem()
    assert torch.allclose(rows.gram(x), x.T @ x, atol=1e-10)
    assert torch.allclose(rows.gram(x.T), x @ x.T, atol=1e-10)


def test_eigenvectors_rebuild_the_matrix() -> None:
    S = rows.covariance(problem()[0])[1]
    values, vectors = rows.eigenvectors(S)
    assert torch.allclose(vectors * values @ vectors.T, S, atol=1e-12)
    assert values.tolist() == sorted(values.tolist())


def test_equal_weights_are_none() -> None:
    assert rows.even(torch.full((3,), 0.7).double()) is None
    assert rows.even(torch.tensor([1.0, 1, 2]).double()) is not None


def test_rows_are_what_the_core_sees_without_those_of_weight_zero() -> None:
    scale = Standardize(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]))
    model = Preprocessed(scale, nn.Linear(2, 1))
    batch = Batch(
        (torch.tensor([[3.0, 2], [1, 6], [9, 9]]),), torch.tensor([1, 0, 1]), torch.tensor([1.0, 2, 0])
    )
    found = rows.rows_of(State({"model": model}), batch, learner="it")
    assert found.x.tolist() == [[1, 0], [0, 1]]
    assert (found.y.tolist(), found.weight.tolist()) == ([1, 0], [1, 2])
    assert {part.dtype for part in found} == {torch.float64}
    subject = Subject(model=model, test=[batch], train=[batch, batch], task=VALUES, objective=risk(VALUES))
    asked = rows.training_rows(subject)
    assert torch.equal(asked.x, torch.cat((found.x, found.x)))
    assert rows.training_rows(subject, targets=False).y.numel() == 0


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (Batch((torch.ones(2, 2),)), ValueError, "it needs targets: the data have none"),
        (
            Batch((torch.ones(2, 2),), torch.ones(2), torch.tensor([1, math.nan])),
            ValueError,
            "got nan in row 1",
        ),
        (Batch((torch.ones(2, 2),), torch.ones(2), torch.zeros(2)), ValueError, "got 2 of weight 0"),
        (
            Batch((torch.tensor([[1.0], [math.inf]]),), torch.ones(2)),
            NonFiniteError,
            "row 1 of the batch, feature 0",
        ),
    ],
)
def test_rows_that_no_solve_can_read_are_refused(batch: Batch, error: type, message: str) -> None:
    with pytest.raises(error, match=message) as told:
        rows.rows_of(State({"model": nn.Linear(2, 1)}), batch, learner="it")
    assert "\n" not in str(told.value)
