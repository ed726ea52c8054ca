"""minGRU: its scan is its steps, its gate has two directions, and each coordinate stays in its range."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from margin.nn.recurrence import Recurrence, valid
from margin.sequence.linear import mingru
from margin.sequence.linear.mingru import MinGRU

MAKERS: dict[str, Callable[[], Recurrence]] = {
    "keeps": lambda: MinGRU(3, hidden=5),
    "renews": lambda: MinGRU(3, hidden=5, gate="renews", memory=30),
    "stacked": lambda: mingru.recurrence(3, hidden=5, layers=3),
}
LENGTHS = torch.tensor([4, 0, 7, 1, 6])


def made(name: str) -> Recurrence:
    torch.manual_seed(0)
    return MAKERS[name]().double()


def drawn(steps: int = 7) -> Tensor:
    return torch.randn(5, steps, 3, dtype=torch.float64, generator=Generator().manual_seed(1))


def started(model: Recurrence) -> tuple[Tensor, ...]:
    g = Generator().manual_seed(2)
    return tuple(torch.randn(s.shape, dtype=torch.float64, generator=g) for s in model.initial(drawn()))


def by_hand(x: Tensor, z: Tensor, weights: tuple[Tensor, ...], gate: str) -> Tensor:
    """The published equations with explicit matrices."""
    G, c, V, b = weights
    states = []
    for x_t in x.unbind(1):
        s = 1 / (1 + torch.exp(-(x_t @ G.T + c)))
        new = x_t @ V.T + b
        z = s * z + (1 - s) * new if gate == "keeps" else (1 - s) * z + s * new
        states.append(z)
    return torch.stack(states, 1)


@pytest.mark.parametrize("gate", ["keeps", "renews"])
def test_it_is_the_published_recurrence(gate: mingru.Gate) -> None:
    torch.manual_seed(0)
    model = MinGRU(3, hidden=5, gate=gate).double()
    weights = (model.gate.weight, model.gate.bias, model.candidate.weight, model.candidate.bias)
    x, (z,) = drawn(40), started(model)
    torch.testing.assert_close(model(x, None, (z,))[0], by_hand(x, z, weights, gate), atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", MAKERS)
def test_the_whole_is_its_steps(name: str) -> None:
    model, x = made(name), drawn(40)
    for state in (model.initial(x), started(model)):
        whole, after = model(x, None, state)
        outputs, s = [], state
        for x_t in x.unbind(1):
            y, s = model.step(x_t, s)
            outputs.append(y)
        torch.testing.assert_close(whole, torch.stack(outputs, 1), atol=1e-10, rtol=0)
        torch.testing.assert_close(after, s, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", MAKERS)
def test_it_goes_on_where_it_stopped(name: str) -> None:
    model, x = made(name), drawn(40)
    whole, after = model(x)
    first, state = model(x[:, :13])
    rest, end = model(x[:, 13:], None, state)
    torch.testing.assert_close(torch.cat((first, rest), 1), whole)
    torch.testing.assert_close(end, after)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("padding", [0.0, 1e3, float("nan")])
def test_padding_changes_nothing(name: str, padding: float) -> None:
    """Each example alone, unpadded, gives the same outputs, state and gradients, even beside NaN."""
    model = made(name)
    x = torch.where(valid(LENGTHS, 7)[:, :, None], drawn(), torch.tensor(padding, dtype=torch.float64))
    state = started(model)
    whole, after = model(x, LENGTHS, state)
    (whole.square().sum() + sum(a.sum() for a in after)).backward()
    together = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    for i, length in enumerate(LENGTHS.tolist()):
        own = tuple(s[i : i + 1] for s in state)
        alone, end = model(x[i : i + 1, :length], None, own)
        torch.testing.assert_close(whole[i, :length], alone[0])
        assert not whole[i, length:].any()
        torch.testing.assert_close(tuple(a[i : i + 1] for a in after), end)
        if length:
            (alone.square().sum() + sum(e.sum() for e in end)).backward()
    for n, p in model.named_parameters():
        torch.testing.assert_close(together[n], p.grad, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("name", MAKERS)
def test_an_output_reads_every_step_to_its_own_and_no_later_one(name: str) -> None:
    model, x = made(name), drawn()[:1].requires_grad_()
    outputs, _ = model(x)
    for t in range(7):
        (grad,) = torch.autograd.grad(outputs[0, t].sum(), x, retain_graph=True)
        assert not grad[0, t + 1 :].any()
        assert grad[0, : t + 1].any(1).all()


def test_negated_gates_with_the_other_direction_are_the_same_function() -> None:
    keeps, renews = MinGRU(3, hidden=5, gate="keeps"), MinGRU(3, hidden=5, gate="renews")
    renews.load_state_dict(keeps.state_dict())
    x = drawn().float()
    assert not torch.allclose(keeps(x)[0], renews(x)[0])
    with torch.no_grad():
        renews.gate.weight.neg_()
        renews.gate.bias.neg_()
    torch.testing.assert_close(keeps(x)[0], renews(x)[0])


def test_each_coordinate_stays_in_its_range_and_the_vector_may_leave_the_hull() -> None:
    """Two candidates (0, 0) and (1, 1), gates that keep the first coordinate and renew the second: (0, 1).

    The hull of {z_0, v_1, v_2} = {(0, 0), (1, 1)} is the diagonal, and (0, 1) is not on it.
    """
    model = MinGRU(1, hidden=2).double()
    with torch.no_grad():
        model.candidate.weight.fill_(1.0)
        model.candidate.bias.zero_()
        model.gate.weight.zero_()
        model.gate.bias.copy_(torch.tensor([1e3, -1e3]))
    outputs, _ = model(torch.tensor([[[0.0], [1.0]]], dtype=torch.float64))
    assert outputs[0, -1].tolist() == [0.0, 1.0]
    drawn_model, x = made("keeps"), drawn(200)
    z, (start,) = drawn_model(x)[0], drawn_model.initial(x)
    seen = torch.cat((start[:, None], drawn_model.candidate(x)), 1)
    low, high = seen.cummin(1).values[:, 1:], seen.cummax(1).values[:, 1:]
    assert ((z >= low - 1e-12) & (z <= high + 1e-12)).all()


@pytest.mark.parametrize("gate", ["keeps", "renews"])
def test_memory_sets_how_long_the_first_states_last(gate: mingru.Gate) -> None:
    torch.manual_seed(0)
    model = MinGRU(3, hidden=4000, gate=gate, memory=100)
    shares = model.logits(torch.zeros(1, 3)).sigmoid()
    assert shares.min() >= 0.5
    assert shares.max() <= 0.99
    assert shares.median().item() == pytest.approx(
        50 / 51, abs=2e-3
    )  # 4,000 draws: 8 standard errors of the median


@pytest.mark.parametrize(("batch", "steps"), [(0, 4), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", MAKERS)
def test_nothing_in_is_nothing_out(name: str, batch: int, steps: int) -> None:
    model = made(name)
    x = torch.zeros(batch, steps, 3, dtype=torch.float64)
    for lengths in (None, torch.zeros(batch, dtype=torch.int64)):
        outputs, state = model(x, lengths)
        assert outputs.shape == (batch, steps, 5)
        torch.testing.assert_close(state, model.initial(x))


def test_bad_options_are_refused() -> None:
    for options, message in (
        ({"hidden": 0}, "at least 1: got 3 and 0"),
        ({"memory": 1}, "at least 2 steps: got 1"),
        ({"layers": -1}, "layers must be at least 1: got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            mingru.recurrence(3, **options)
    with pytest.raises((ValueError, TypeError), match="forgets"):  # of the type hook, where it is on
        MinGRU(3, gate="forgets")
    with pytest.raises(ValueError, match=r"lengths must be in 0 \.\. 7"):
        made("keeps")(drawn(), torch.tensor([1, 2, 3, 4, 8]))


def test_builders() -> None:
    torch.manual_seed(0)
    x = drawn().float()
    assert mingru.classifier(3, 4, hidden=5, layers=2, pool="mean")(x, LENGTHS).shape == (5, 4)
    assert mingru.regressor(3, hidden=5, memory=9)(x).shape == (5,)
    model = mingru.language(6, embedding=5, hidden=5, readout="tied")
    tokens = torch.randint(6, (2, 9), generator=Generator().manual_seed(0))
    logits = model(tokens)
    state, streamed = model.initial(tokens), []
    for token in tokens.unbind(1):
        row, state = model.step(token, state)
        streamed.append(row)
    torch.testing.assert_close(logits, torch.stack(streamed, 1))
    assert model.sample(2, generator=Generator().manual_seed(0), length=8).shape == (2, 8)
