"""Every recurrent matrix of a model is found, with its spectrum; gated cells have none."""

import torch
from torch import nn

from margin.nn.preprocessed import Preprocessed
from margin.sequence.dynamics.transitions import transitions
from margin.sequence.linear.linear_system import LinearSystem
from margin.sequence.linear.lru import LRU


def test_it_finds_diagonal_dense_and_simple_recurrences_in_the_order_of_the_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(LRU(3, states=5), LinearSystem(3, states=4), nn.RNN(3, 6, 2, bidirectional=True))
    found = transitions(Preprocessed(nn.Identity(), model))
    names = [f"2.weight_hh_l{k}{way}" for k in range(2) for way in ("", "_reverse")]
    assert [t.name for t in found] == ["0", "1", *names]
    assert [len(t.eigenvalues) for t in found] == [5, 4, 6, 6, 6, 6]
    assert found[0].matrix is None
    torch.testing.assert_close(found[0].eigenvalues, model[0].eigenvalues.detach().to(torch.complex128))
    for t in found[1:]:
        assert t.matrix is not None
        vectors = torch.linalg.svdvals(t.matrix - t.eigenvalues[0] * torch.eye(len(t.matrix)).double())
        assert float(vectors[-1]) < 1e-9  # an eigenvalue: A - lambda I is singular
    assert {t.eigenvalues.dtype for t in found} == {torch.complex128}


def test_gated_cells_and_other_layers_have_none() -> None:
    assert transitions(nn.Sequential(nn.GRU(2, 3), nn.LSTM(2, 3), nn.Linear(2, 2))) == []


def test_a_matrix_that_is_not_finite_has_eigenvalues_that_are_not() -> None:
    layer = LinearSystem(2, states=3)
    with torch.no_grad():
        layer.A[0, 1] = torch.nan
    assert not bool(transitions(layer)[0].eigenvalues.isfinite().any())
