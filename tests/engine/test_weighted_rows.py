"""Weights of examples are read in one way: strict, rows of weight 0 left out, places kept."""

import pytest
import torch

from margin.core.findings import Subject, without_loss
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, State
from margin.engine.weighted_rows import batch_rows, training_rows, weighted

X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
Y = torch.tensor([0, 1, 1])


def subject_of_rows(train: list[Batch]) -> Subject:
    return Subject(model=torch.nn.Identity(), test=train, task=CLASSES, objective=without_loss, train=train)


def test_rows_of_weight_0_are_left_out_and_places_kept() -> None:
    rows = weighted(X, Y, torch.tensor([0.0, 2.0, 0.5]), "it")
    assert rows.x.tolist() == [[3.0, 4.0], [5.0, 6.0]]
    assert rows.targets.tolist() == [1, 1]
    assert rows.weight.tolist() == [2.0, 0.5]
    assert rows.places.tolist() == [1, 2]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, -1.0])
def test_a_weight_that_is_no_weight_is_refused(bad: float) -> None:
    # a reading by ``weight > 0`` would drop NaN and -1 in silence
    with pytest.raises(ValueError, match=rf"finite and at least 0: got {bad:g} in row 1"):
        weighted(X, Y, torch.tensor([1.0, bad, 1.0]), "it")


def test_weights_that_are_all_0_are_refused() -> None:
    with pytest.raises(ValueError, match="the solver needs an example of weight above 0: got 3 of weight 0"):
        weighted(X, None, torch.zeros(3), "the solver")


def test_a_number_that_is_not_finite_is_named_by_its_place_where_it_counts() -> None:
    x = X.clone()
    x[0, 1] = x[2, 0] = torch.nan
    with pytest.raises(NonFiniteError, match="features must be finite: got nan in row 2, feature 0"):
        weighted(x, Y, torch.tensor([0.0, 1.0, 1.0]), "it")
    assert len(weighted(x, Y, torch.tensor([0.0, 1.0, 0.0]), "it").x) == 1
    with pytest.raises(NonFiniteError, match="targets must be finite: got inf in row 1"):
        weighted(X, torch.tensor([0.0, torch.inf, 1.0]), None, "it")


def test_a_weight_keeps_its_precision() -> None:
    weight = torch.tensor([1.0, 1.0 + 1e-12, 1.0], dtype=torch.float64)
    assert weighted(X, Y, weight, "it").weight[1] == weight[1]


def test_a_batch_and_a_subject_are_read_alike() -> None:
    state = State(modules={"model": torch.nn.Identity()})
    weight = torch.tensor([1.0, 0.0, 3.0])
    rows = batch_rows(state, Batch((X,), Y, weight), learner="it")
    assert rows.places.tolist() == [0, 2]
    images = torch.arange(12.0).reshape(3, 1, 2, 2)
    assert batch_rows(state, Batch((images,)), learner="it", targets=False).x.tolist()[1] == [4, 5, 6, 7]
    found = training_rows(subject_of_rows([Batch((X,), Y, weight), Batch((X[:1],), Y[:1])]))
    assert found.places.tolist() == [0, 2, 3]
    assert found.weight.tolist() == [1.0, 3.0, 1.0]
    fillers = Batch((X,), Y, torch.zeros(3))
    assert training_rows(subject_of_rows([fillers, Batch((X,), Y, weight)])).places.tolist() == [3, 5]
    with pytest.raises(ValueError, match="needs an example of weight above 0: got 6 of weight 0"):
        training_rows(subject_of_rows([fillers, fillers]))
    with pytest.raises(ValueError, match="finite and at least 0: got nan in row 0"):
        training_rows(subject_of_rows([Batch((X,), Y, torch.full((3,), torch.nan))]))
    with pytest.raises(ValueError, match="it needs targets: the data have none"):
        batch_rows(state, Batch((X,)), learner="it")
