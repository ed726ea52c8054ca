"""GRUs: the published form by its equations, both directions of the gate, and where torch's differs."""

import numpy as np
import pytest
import torch
from torch import nn

from margin.nn.recurrence import Recurrence
from margin.sequence.recurrent.gru import ResetBeforeGRU, classifier, gru, language, recurrence, regressor


def sigmoid(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


@pytest.mark.parametrize("gate", ["keeps", "renews"])
def test_it_is_the_published_equations(gate: str) -> None:
    """Cho et al. 2014, Equations 5-8, in numpy, over five steps."""
    torch.manual_seed(0)
    model = ResetBeforeGRU(3, hidden=4, gate=gate).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    W, b, U, V = (p.detach().numpy() for p in (model.read, model.bias, model.recur, model.candidate))
    z = np.zeros((2, 4))
    outputs, _ = model(x)
    for t in range(5):
        reads = x[:, t].numpy() @ W.T + b
        r = sigmoid(reads[:, :4] + z @ U[:4].T)
        s = sigmoid(reads[:, 4:8] + z @ U[4:].T)
        new = np.tanh(reads[:, 8:] + (r * z) @ V.T)
        z = s * z + (1 - s) * new if gate == "keeps" else (1 - s) * z + s * new
        np.testing.assert_allclose(outputs[:, t].detach(), z, atol=1e-12)


def test_a_negated_gate_in_the_other_direction_is_the_same_function() -> None:
    torch.manual_seed(0)
    one = ResetBeforeGRU(3, hidden=4, gate="keeps").double()
    other = ResetBeforeGRU(3, hidden=4, gate="renews").double()
    other.load_state_dict(one.state_dict())
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    assert not torch.allclose(one(x)[0], other(x)[0])
    with torch.no_grad():
        other.read[4:8] *= -1
        other.bias[4:8] *= -1
        other.recur[4:] *= -1
    torch.testing.assert_close(one(x)[0], other(x)[0])


def copied(layer: nn.GRU) -> ResetBeforeGRU:
    """The same matrices; torch's second candidate bias must be 0, since it is under the reset there."""
    m, model = layer.hidden_size, ResetBeforeGRU(layer.input_size, hidden=layer.hidden_size)
    with torch.no_grad():
        model.read.copy_(layer.weight_ih_l0)
        model.bias.copy_(layer.bias_ih_l0)
        model.bias[: 2 * m] += layer.bias_hh_l0[: 2 * m]
        model.recur.copy_(layer.weight_hh_l0[: 2 * m])
        model.candidate.copy_(layer.weight_hh_l0[2 * m :])
    return model


def test_it_is_torchs_where_the_reset_gate_is_one_and_only_there() -> None:
    torch.manual_seed(0)
    layer = nn.GRU(3, 4, batch_first=True).double()
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.bias_hh_l0[8:] = 0
    assert not torch.allclose(copied(layer).double()(x)[0], layer(x)[0], atol=1e-3)
    with torch.no_grad():
        layer.bias_ih_l0[:4] = 60.0
    torch.testing.assert_close(copied(layer).double()(x)[0], layer(x)[0], atol=1e-12, rtol=0)


def test_a_gate_at_one_keeps_or_renews_the_state() -> None:
    """Update gate saturated: "keeps" leaves z as it is for ever, "renews" forgets all but the candidate."""
    z, reads = torch.tensor([[0.3, -0.6]]), torch.tensor([[0.0, 0.0, 60.0, 60.0, 0.5, 0.25]])
    zeros = torch.zeros(4, 2), torch.zeros(2, 2)
    torch.testing.assert_close(gru(reads, z, *zeros, "keeps"), z)
    torch.testing.assert_close(gru(reads, z, *zeros, "renews"), torch.tensor([[0.5, 0.25]]).tanh())


def test_it_has_three_matrices() -> None:
    def matrices(model: Recurrence) -> int:
        return sum(p.numel() for p in model.parameters() if p.ndim == 2)

    n, m = 3, 5
    for model in (recurrence(n, hidden=m), recurrence(n, hidden=m, reset="before")):
        assert matrices(model) == 3 * m * (n + m)


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"reset must be 'after' with gate 'keeps', or 'before'.*'renews'"):
        recurrence(2, gate="renews")
    for reset in ("after", "before"):
        with pytest.raises(ValueError, match=r"^layers must be at least 1: got 0$"):
            recurrence(2, layers=0, reset=reset)
        with pytest.raises(ValueError, match=r"^hidden must be at least 1: got 0$"):
            recurrence(2, hidden=0, reset=reset)
        with pytest.raises(ValueError, match=r"^dropout must be in \[0, 1\): got 1$"):
            recurrence(2, layers=2, dropout=1, reset=reset)
    assert isinstance(recurrence(2, reset="before", gate="renews").layers[0], ResetBeforeGRU)


def test_the_models_have_their_shapes_and_options() -> None:
    x, lengths = torch.randn(3, 5, 2), torch.tensor([5, 0, 2])
    assert classifier(2, 4, hidden=6, reset="before", layers=2)(x, lengths).shape == (3, 4)
    assert regressor(2, recurrent_init="orthogonal")(x, lengths).shape == (3,)
    assert language(7, hidden=6)(torch.randint(7, (3, 5))).shape == (3, 5, 7)
