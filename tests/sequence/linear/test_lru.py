"""The linear recurrent unit: its formula by a loop in numpy, its ring, its gain, its streaming form."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from margin.sequence.linear.lru import LRU, classifier, eigenvalues, language, normalization, regressor, ring


def by_hand(layer: LRU, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The outputs and states of one sequence, in numpy, a step at a time."""
    nu, phi, B, C, d = (p.detach().double().numpy() for p in (layer.nu, layer.phi, layer.B, layer.C, layer.d))
    lam = np.exp(-np.exp(nu) + 1j * phi)
    gamma = np.sqrt(1 - np.abs(lam) ** 2)
    B, C = B[:, 0] + 1j * B[:, 1], C[..., 0] + 1j * C[..., 1]
    zeta, states, outputs = np.zeros(len(nu), complex), [], []
    for x_t in x.double().numpy():
        zeta = lam * zeta + gamma * (B @ x_t)
        states.append(zeta)
        outputs.append((C @ zeta).real + d * x_t)
    return np.array(outputs), np.array(states)


@pytest.fixture
def layer() -> LRU:
    torch.manual_seed(0)
    return LRU(3, states=5).double()


@pytest.mark.parametrize("time", [1, 2, 7, 33, 100])
def test_it_is_its_formula(layer: LRU, time: int) -> None:
    x = torch.randn(2, time, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y, (zeta,) = layer(x)
    for i in range(2):
        outputs, states = by_hand(layer, x[i])
        np.testing.assert_allclose(y[i].detach(), outputs, rtol=0, atol=1e-12)
        np.testing.assert_allclose(zeta[i].detach(), states[-1], rtol=0, atol=1e-12)


def test_all_steps_at_once_are_the_steps_one_by_one_with_their_gradients(layer: LRU) -> None:
    x = torch.randn(4, 37, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    start = (torch.randn(4, 5, generator=torch.Generator().manual_seed(2), dtype=torch.complex128),)
    y, (last,) = layer(x, None, start)
    outputs, state = [], start
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    torch.testing.assert_close(y, torch.stack(outputs, 1), rtol=0, atol=1e-10)
    torch.testing.assert_close(last, state[0], rtol=0, atol=1e-10)
    parameters = list(layer.parameters())
    by_scan = torch.autograd.grad(y.square().sum(), parameters)
    by_loop = torch.autograd.grad(torch.stack(outputs, 1).square().sum(), parameters)
    for one, other in zip(by_scan, by_loop, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_sequence_may_be_read_in_two_parts(layer: LRU) -> None:
    x = torch.randn(2, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y, last = layer(x)
    first, state = layer(x[:, :4])
    second, state = layer(x[:, 4:], None, state)
    torch.testing.assert_close(torch.cat((first, second), 1), y, rtol=0, atol=1e-12)
    torch.testing.assert_close(state[0], last[0], rtol=0, atol=1e-12)


def test_padding_changes_nothing_whatever_it_holds(layer: LRU) -> None:
    x = torch.randn(4, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([8, 3, 1, 0])
    start = (torch.randn(4, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(2)),)
    for filler in (0.0, 7.0, math.nan):
        padded = x.clone()
        for i, length in enumerate(lengths):
            padded[i, length:] = filler
        y, (zeta,) = layer(padded, lengths, start)
        for i, length in enumerate(lengths.tolist()):
            alone, (state,) = layer(x[i : i + 1, :length], None, (start[0][i : i + 1],))
            torch.testing.assert_close(y[i, :length], alone[0], rtol=0, atol=1e-12)
            torch.testing.assert_close(zeta[i], state[0], rtol=0, atol=1e-12)
            assert not y[i, length:].any()
        gradients = torch.autograd.grad(y.sum() + zeta.abs().sum(), list(layer.parameters()))
        assert all(bool(g.isfinite().all()) for g in gradients)
    torch.testing.assert_close(zeta[3], start[0][3])  # of length 0: the state it came with


def test_the_modulus_is_below_1_for_any_parameters_down_to_the_edge_of_rounding() -> None:
    nu = torch.tensor([-16.0, -5.0, 0.0, 3.0, 100.0])
    modulus = torch.exp(-nu.exp())
    assert bool((modulus < 1).all())
    assert bool((modulus >= 0).all())
    assert float(torch.exp(-torch.tensor(-18.0).exp())) == 1.0  # why the claim asks for nu >= -16 in float32
    exact = np.exp(-np.exp(nu.double().numpy()) + 0.3j)
    np.testing.assert_allclose(eigenvalues(nu.double(), torch.full((5,), 0.3).double()), exact, atol=1e-15)


def test_the_gain_keeps_its_digits_where_the_modulus_is_near_1() -> None:
    nu = torch.tensor([-16.0, -14.0, -8.0, 0.0, 2.0])
    exact = np.sqrt(-np.expm1(-2 * np.exp(nu.double().numpy())))
    np.testing.assert_allclose(normalization(nu).numpy(), exact, rtol=1e-6)
    naive = (1 - torch.exp(-nu.exp()).square()).sqrt().numpy()
    assert abs(naive[0] / exact[0] - 1) > 0.01  # sqrt(1 - |lambda|^2) as the paper writes it
    assert float(normalization(torch.tensor([200.0]))) == 1.0


@pytest.mark.parametrize(("r_min", "r_max"), [(0.0, 1.0), (0.4, 0.9), (0.9, 0.999)])
def test_the_ring_is_uniform_in_area(r_min: float, r_max: float) -> None:
    """The square of the modulus is affine in u: for every u, not only in law."""
    u = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    modulus = torch.exp(-ring(u, r_min, r_max).exp())
    torch.testing.assert_close(modulus.square(), r_min**2 + u * (r_max**2 - r_min**2), rtol=1e-12, atol=0)


def test_the_mean_modulus_is_two_thirds_as_for_a_large_random_matrix_not_one_half() -> None:
    """Seeds are fixed. The mean of 1,000 moduli of the law has standard error sqrt(1/18/1000) = .0075.

    The ring's 20,000 draws miss 2/3 by .007, four standard errors, with probability 6e-5; the eigenvalues of
    a Ginibre matrix repel each other and scatter less.
    """
    torch.manual_seed(0)
    matrix = torch.randn(1000, 1000, dtype=torch.float64) / math.sqrt(1000)
    assert float(torch.linalg.eigvals(matrix).abs().mean()) == pytest.approx(2 / 3, abs=0.01)
    layer = LRU(1, states=20_000, r_min=0.0, r_max=1.0)
    modulus = layer.eigenvalues.detach().abs().double()
    assert float(modulus.mean()) == pytest.approx(2 / 3, abs=0.007)
    assert float(modulus.square().mean()) == pytest.approx(1 / 2, abs=0.009)
    phases = layer.phi.detach().double()
    assert float(phases.min()) >= 0
    assert float(phases.max()) <= 2 * math.pi
    assert float(phases.mean()) == pytest.approx(math.pi, abs=0.052)
    drawn = torch.rand(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    printed = torch.exp(-(-drawn.log()).log().exp())  # nu = log(-log r), r uniform, as the notes have it
    assert float(printed.mean()) == pytest.approx(1 / 2, abs=0.009)


def test_white_input_leaves_the_variance_of_its_row_of_b() -> None:
    """The covariance of zeta is a geometric series: summed to the end it is ||B_i||^2 on the diagonal."""
    torch.manual_seed(1)
    layer = LRU(4, states=6, r_min=0.2, r_max=0.9).double()
    with torch.no_grad():
        impulse = torch.eye(4, dtype=torch.float64)[:, None]  # one unit of each input number, then nothing
        x = torch.cat((impulse, torch.zeros(4, 600, 4, dtype=torch.float64)), 1)
        zeta, state = [], layer.initial(x)
        for x_t in x.unbind(1):
            _, state = layer.step(x_t, state)
            zeta.append(state[0])
        variance = torch.stack(zeta).abs().square().sum((0, 1))
    torch.testing.assert_close(variance, layer.B.detach().square().sum((1, 2)), rtol=1e-9, atol=0)


def test_rows_of_b_begin_at_length_1_in_the_mean() -> None:
    """4,000 rows of 16 squares of variance 2/32^2 each: standard error .0056, so 4 of them are .0224."""
    torch.manual_seed(0)
    rows = LRU(8, states=4000).B.detach().double().square().sum((1, 2))
    assert float(rows.mean()) == pytest.approx(1.0, abs=0.0224)


def test_it_refuses() -> None:
    for options in ({"r_min": 0.5, "r_max": 0.5}, {"r_min": -0.1}, {"r_max": 1.1}):
        with pytest.raises(ValueError, match=r"0 <= r_min < r_max <= 1: got"):
            LRU(3, **options)
    for phase in (0.0, 7.0, math.nan):
        with pytest.raises(ValueError, match="max_phase must be in"):
            LRU(3, max_phase=phase)
    with pytest.raises(ValueError, match="states must be at least 1: got 0"):
        LRU(3, states=0)


def test_the_builders_answer_in_the_shapes_of_their_tasks() -> None:
    torch.manual_seed(0)
    x, lengths = torch.randn(3, 6, 2), torch.tensor([6, 2, 0])
    assert classifier(2, 5)(x, lengths).shape == (3, 5)
    assert regressor(2)(x, lengths).shape == (3,)
    model = language(11, width=8, states=4).double()
    tokens = torch.randint(11, (3, 6))
    logits = model(tokens)
    state = model.initial(tokens)
    for t, token in enumerate(tokens.unbind(1)):
        out, state = model.step(token, state)
        torch.testing.assert_close(out, logits[:, t], rtol=0, atol=1e-10)


def test_no_output_reads_a_later_input() -> None:
    torch.manual_seed(0)
    stack = classifier(2, 3, width=6, states=4).recurrence.double()
    x = torch.randn(1, 9, 2, dtype=torch.float64, requires_grad=True)
    y, _ = stack(x)
    for t in range(9):
        (gradient,) = torch.autograd.grad(y[0, t].sum(), x, retain_graph=True)
        assert not gradient[0, t + 1 :].any()
        assert bool(gradient[0, : t + 1].any(1).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_of_16_bits_have_states_of_32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    short, x = LRU(3, states=5).to(dtype), torch.randn(2, 40, 3).to(dtype)
    y, (zeta,) = short(x)
    assert (y.dtype, zeta.dtype) == (dtype, torch.complex64)
    assert short.initial(x)[0].dtype == torch.complex64
    exact, _ = copy.deepcopy(short).double()(x.double())
    assert float(((y - exact).norm() / exact.norm()).detach()) < 0.02
    state = short.initial(x)
    for t in range(40):
        step, state = short.step(x[:, t], state)
        torch.testing.assert_close(step, y[:, t], atol=0.1, rtol=0.02)
    assert state[0].dtype == torch.complex64
    y.sum().backward()
    assert all(bool(p.grad.isfinite().all()) and p.grad.dtype == dtype for p in short.parameters())
    assert classifier(3, 2, width=4, states=4).to(dtype)(x).dtype == dtype
