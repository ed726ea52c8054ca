"""LSTMs: the formula, the extra matrix at the identity equals torch, the cell's path is the forget gate."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from margin.nn.recurrence import Recurrence
from margin.sequence.recurrent.elman import recurrence as simple
from margin.sequence.recurrent.lstm import (
    CellMatrixLSTM,
    classifier,
    initialize_gates,
    language,
    lstm,
    recurrence,
    regressor,
)


def mapped(layer: nn.LSTM) -> CellMatrixLSTM:
    model = CellMatrixLSTM(layer.input_size, hidden=layer.hidden_size)
    with torch.no_grad():
        model.read.copy_(layer.weight_ih_l0)
        model.recur.copy_(layer.weight_hh_l0)
        model.bias.copy_(layer.bias_ih_l0 + layer.bias_hh_l0)
    return model


def test_with_the_identity_it_is_torchs() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(3, 4, batch_first=True).double()
    model, x = mapped(layer).double(), torch.randn(2, 9, 3, dtype=torch.float64)
    expected, (h, c) = layer(x)
    outputs, state = model(x)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(state, (h[0], c[0]))
    with torch.no_grad():
        model.output.copy_(torch.eye(4).roll(1, 0))
    assert not torch.allclose(model(x)[0], expected)


def test_the_extra_matrix_is_inside_the_tanh() -> None:
    """One step from zero, by numpy's functions: h = s(o) tanh(U (s(i) tanh(g)))."""
    torch.manual_seed(1)
    gates, U = torch.randn(2, 12, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    h, c = lstm(gates, torch.zeros(2, 3, dtype=torch.float64), U)
    i, _, g, o = (p.numpy() for p in gates.split(3, 1))
    s = lambda v: 1 / (1 + np.exp(-v))
    cell = s(i) * np.tanh(g)
    np.testing.assert_allclose(c, cell)
    np.testing.assert_allclose(h, s(o) * np.tanh(cell @ U.numpy().T))


def test_along_the_cell_the_derivative_is_the_forget_gate() -> None:
    torch.manual_seed(0)
    gates = torch.randn(1, 16, dtype=torch.float64)
    cell = torch.randn(1, 4, dtype=torch.float64)
    J = torch.autograd.functional.jacobian(lambda c: lstm(gates, c)[1], cell)[0, :, 0]
    torch.testing.assert_close(J, torch.diag(gates[0, 4:8].sigmoid()))


@pytest.mark.parametrize("bias", [1.0, 0.0, -2.5])
def test_the_forget_gate_begins_at_its_bias_in_every_layer(bias: float) -> None:
    """With weights 0 the cell decays by sigmoid(bias) a step: the gate is the second of torch's four."""
    layer = nn.LSTM(2, 3, 2, batch_first=True)
    other = {n: p.detach().clone() for n, p in layer.named_parameters()}
    initialize_gates(layer, bias)
    for name, p in layer.named_parameters():
        if name.startswith("weight"):
            assert torch.equal(p, other[name])
            continue
        assert torch.equal(p[:3], other[name][:3])
        assert torch.equal(p[6:], other[name][6:])
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.startswith("weight"):
                p.zero_()
            else:
                p[6:9] = 0.0  # the candidate: nothing new enters
    cell = torch.ones(2, 1, 3)
    _, (_, after) = layer(torch.zeros(1, 4, 2), (torch.zeros(2, 1, 3), cell))
    torch.testing.assert_close(after, torch.sigmoid(torch.tensor(bias)) ** 4 * cell)


@pytest.mark.parametrize("output", ["cell", "matrix"])
def test_the_default_forget_bias_is_one(output: str) -> None:
    model = recurrence(2, hidden=3, output=output)
    own = model.layer if output == "cell" else model.layers[0]
    biases = [p[3:6] for n, p in own.named_parameters() if n.startswith("bias")]
    assert sum(biases).tolist() == [1.0] * 3


@pytest.mark.parametrize("output", ["cell", "matrix"])
def test_a_memory_opens_the_forget_gate_for_up_to_its_steps_and_shuts_the_input_gate_as_far(
    output: str,
) -> None:
    """Tallec and Ollivier: sigmoid(-log u) = 1 / (1 + u), so what is forgotten of a cell is what enters."""
    torch.manual_seed(0)
    model = recurrence(2, hidden=400, output=output, memory=50)
    own = model.layer if output == "cell" else model.layers[0]
    biases = sum(p.detach() for n, p in own.named_parameters() if n.startswith("bias"))
    enters, keeps = biases[:400].sigmoid(), biases[400:800].sigmoid()
    torch.testing.assert_close(enters, 1 - keeps)
    u = 1 / enters - 1
    assert 1 <= float(u.min()) < 3
    assert 47 < float(u.max()) <= 49.001
    assert float(u.mean()) == pytest.approx(25, abs=2.8)  # four standard errors of uniform draws
    with pytest.raises(ValueError, match="at least 2 steps: got 1"):
        recurrence(2, memory=1)


@pytest.mark.parametrize("output", ["cell", "matrix"])
@pytest.mark.parametrize("bias", [1.0, 0.0])
def test_a_forget_bias_beside_a_memory_is_refused(output: str, bias: float) -> None:
    message = f"forget_bias must be left out beside a memory.* got forget_bias {bias:g}, memory 50"
    with pytest.raises(ValueError, match=message):
        recurrence(2, output=output, forget_bias=bias, memory=50)
    for model in (classifier, regressor, language):
        with pytest.raises(ValueError, match=message):
            model(*(2, 3)[: 2 if model is classifier else 1], output=output, forget_bias=bias, memory=50)


def test_it_has_four_matrices_a_layer_and_five_with_the_extra_one() -> None:
    def matrices(model: Recurrence) -> int:
        return sum(p.numel() for p in model.parameters() if p.ndim == 2)

    n, m = 3, 5
    assert matrices(recurrence(n, hidden=m)) == 4 * m * (n + m)
    assert matrices(recurrence(n, hidden=m, output="matrix")) == 4 * m * (n + m) + m * m


def test_the_models_have_their_shapes_and_options() -> None:
    x, lengths = torch.randn(3, 5, 2), torch.tensor([5, 0, 2])
    assert classifier(2, 4, hidden=6, output="matrix", layers=2)(x, lengths).shape == (3, 4)
    assert regressor(2)(x, lengths).shape == (3,)
    assert language(7, hidden=6)(torch.randint(7, (3, 5))).shape == (3, 5, 7)


@pytest.mark.parametrize("output", ["cell", "matrix"])
def test_no_layer_is_refused(output: str) -> None:
    with pytest.raises(ValueError, match=r"^layers must be at least 1: got 0$"):
        recurrence(2, layers=0, output=output)


@pytest.mark.parametrize("output", ["cell", "matrix"])
def test_no_unit_and_dropping_all_are_refused(output: str) -> None:
    with pytest.raises(ValueError, match=r"^hidden must be at least 1: got 0$"):
        recurrence(2, hidden=0, output=output)
    for dropout in (1, 1.0, -0.1):
        with pytest.raises(ValueError, match=rf"^dropout must be in \[0, 1\): got {dropout:g}$"):
            recurrence(2, layers=2, dropout=dropout, output=output)


def grown(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)[0]


def test_it_carries_a_gradient_over_a_hundred_steps_where_elman_loses_it() -> None:
    """Untrained: with an open forget gate (bias 5) dz_T/dx_1 stays, for Elman it is below 1e-8."""
    torch.manual_seed(0)
    sizes = {}
    for name, model in (
        ("lstm", recurrence(1, hidden=32, forget_bias=5.0)),
        ("elman", simple(1, hidden=32)),
    ):
        x = torch.randn(4, 100, 1, requires_grad=True)
        (grad,) = torch.autograd.grad(grown(model, x)[:, -1].square().sum(), x)
        sizes[name] = float(grad[:, 0].abs().max())
    assert sizes["lstm"] > 1e-4
    assert sizes["elman"] < 1e-8
