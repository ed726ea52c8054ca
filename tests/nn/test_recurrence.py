"""The recurrence: whole = stepwise, padding changes nothing, length 0, and what disagrees is refused."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.nn.recurrence import (
    Recurrence,
    check_lengths,
    gate_bias,
    last,
    mean,
    reversed_in_time,
    unrolled,
    valid,
)
from margin.sequence.recurrent import bidirectional, elman, gru, lstm, stack_memory

MAKERS = {
    "elman": lambda: elman.recurrence(3, hidden=5, layers=2),
    "relu": lambda: elman.recurrence(3, hidden=5, nonlinearity="relu"),
    "lstm": lambda: lstm.recurrence(3, hidden=5, layers=2),
    "cell matrix": lambda: lstm.recurrence(3, hidden=5, layers=2, output="matrix"),
    "gru": lambda: gru.recurrence(3, hidden=5, layers=2),
    "reset before": lambda: gru.recurrence(3, hidden=5, layers=2, reset="before"),
    "renews": lambda: gru.recurrence(3, hidden=5, reset="before", gate="renews"),
    "deep transition": lambda: elman.DeepTransition(3, hidden=5, depth=3),
    "stack memory": lambda: stack_memory.StackMemory(3, hidden=5, stacks=2, capacity=4),
    "stacks alone": lambda: stack_memory.StackMemory(3, hidden=5, capacity=4, recurrent="none"),
    "bidirectional": lambda: bidirectional.recurrence(3, cell="lstm", hidden=5, layers=2),
}
CAUSAL = [name for name in MAKERS if name != "bidirectional"]
LENGTHS = torch.tensor([4, 0, 7, 1, 6])


def made(name: str) -> Recurrence:
    torch.manual_seed(0)
    return MAKERS[name]().double()


def drawn(batch: int = 5, steps: int = 7) -> Tensor:
    return torch.randn(batch, steps, 3, dtype=torch.float64, generator=Generator().manual_seed(1))


def started(model: Recurrence, batch: int) -> tuple[Tensor, ...]:
    """A state that is not the initial one."""
    g = Generator().manual_seed(2)
    zeros = model.initial(torch.zeros(batch, 3, dtype=torch.float64))
    return tuple(0.3 * torch.randn(s.shape, dtype=torch.float64, generator=g) for s in zeros)


@pytest.mark.parametrize("name", CAUSAL)
def test_the_whole_is_its_steps(name: str) -> None:
    model, x = made(name), drawn()
    assert model.causal
    for state in (model.initial(x), started(model, 5)):
        whole, after = model(x, None, state)
        outputs, s = [], state
        for t in range(x.shape[1]):
            y, s = model.step(x[:, t], s)
            outputs.append(y)
        torch.testing.assert_close(whole, torch.stack(outputs, 1), atol=1e-12, rtol=0)
        for a, b in zip(after, s, strict=True):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", CAUSAL)
def test_it_goes_on_where_it_stopped(name: str) -> None:
    model, x = made(name), drawn()
    whole, after = model(x)
    first, state = model(x[:, :3])
    rest, end = model(x[:, 3:], None, state)
    torch.testing.assert_close(torch.cat((first, rest), 1), whole)
    torch.testing.assert_close(end, after)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("padding", [0.0, 1e3, float("nan")])
def test_padding_changes_nothing(name: str, padding: float) -> None:
    """Each example alone, unpadded, gives the same outputs, state and gradients, even beside NaN."""
    model, x = made(name), drawn()
    x = torch.where(valid(LENGTHS, 7)[:, :, None], x, torch.tensor(padding, dtype=torch.float64))
    state = started(model, 5)
    whole, after = model(x, LENGTHS, state)
    whole.square().sum().backward()
    together = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    for i, length in enumerate(LENGTHS.tolist()):
        own = tuple(s[i : i + 1] for s in state)
        alone, end = model(x[i : i + 1, :length], None, own)
        torch.testing.assert_close(whole[i, :length], alone[0])
        assert not whole[i, length:].any()
        for a, b in zip(after, end, strict=True):
            torch.testing.assert_close(a[i : i + 1], b)
        if length == 0:
            assert all(bool((a[i : i + 1] == o).all()) for a, o in zip(after, own, strict=True))
        else:
            alone.square().sum().backward()
    for n, p in model.named_parameters():
        torch.testing.assert_close(together[n], p.grad, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("name", MAKERS)
def test_full_lengths_are_none(name: str) -> None:
    model, x = made(name), drawn()
    a, s = model(x)
    b, t = model(x, torch.full((5,), 7))
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(s, t)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("batch", "steps"), [(0, 4), (3, 0), (0, 0)])
def test_nothing_in_is_nothing_out(name: str, batch: int, steps: int) -> None:
    model = made(name)
    x = torch.zeros(batch, steps, 3, dtype=torch.float64)
    for lengths in (None, torch.zeros(batch, dtype=torch.int64)):
        outputs, state = model(x, lengths)
        assert outputs.shape == (batch, steps, model.output_size)
        assert outputs.dtype == torch.float64
        torch.testing.assert_close(state, model.initial(x))
        assert model.final(outputs, lengths).shape == (batch, model.output_size)
        assert not model.final(outputs, lengths).any()


@pytest.mark.parametrize("name", CAUSAL)
def test_an_output_reads_no_later_step(name: str) -> None:
    model, x = made(name), drawn(1).requires_grad_()
    outputs, _ = model(x)
    for t in range(7):
        (grad,) = torch.autograd.grad(outputs[0, t].sum(), x, retain_graph=True)
        assert not grad[0, t + 1 :].any()
        assert name == "relu" or bool(grad[0, : t + 1].any(1).all())  # a ReLU may be off


def test_parameters_are_shared_so_their_gradient_is_the_sum_over_steps() -> None:
    """The gradient of a copy a step, summed over the copies, is the gradient of the one."""
    model, x = made("deep transition"), drawn()
    model(x)[0].square().sum().backward()
    copies, state, loss = [], model.initial(x), torch.tensor(0.0, dtype=torch.float64)
    for t in range(7):
        copy = made("deep transition")
        y, state = copy.step(x[:, t], state)
        loss = loss + y.square().sum()
        copies.append(copy)
    loss.backward()
    for name, p in model.named_parameters():
        total = sum(dict(c.named_parameters())[name].grad for c in copies)
        torch.testing.assert_close(total, p.grad)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([1, 2, 3, 4, 8]), r"lengths must be in 0 \.\. 7.*got 1 \.\. 8"),
        (torch.tensor([1, 2, -1, 4, 7]), r"got -1 \.\. 7"),
    ],
)
@pytest.mark.parametrize("name", MAKERS)
def test_lengths_outside_the_tensor_are_refused(name: str, lengths: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(name)(drawn(), lengths)


def test_lengths_of_another_shape_or_kind_are_refused() -> None:
    for lengths, got in (
        (torch.tensor([1, 2]), r"shape \(2,\)"),
        (torch.ones(5, 1, dtype=torch.int64), r"shape \(5, 1\)"),
        (torch.ones(5), "float32"),
        (torch.ones(5, dtype=torch.bool), "bool"),
    ):
        with pytest.raises(ValueError, match=rf"one integer a sequence, shape \(5,\): got.*{got}"):
            check_lengths(lengths, drawn())


def test_a_width_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1: got 0 and 4"):
        elman.DeepTransition(0, hidden=4)


def test_reversal_keeps_the_padding_and_undoes_itself() -> None:
    x = torch.arange(10).view(2, 5)
    lengths = torch.tensor([3, 0])
    assert reversed_in_time(x, lengths).tolist() == [[2, 1, 0, 3, 4], [5, 6, 7, 8, 9]]
    assert reversed_in_time(x).tolist() == [[4, 3, 2, 1, 0], [9, 8, 7, 6, 5]]
    y = drawn()
    assert torch.equal(reversed_in_time(reversed_in_time(y, LENGTHS), LENGTHS), y)


def test_what_is_read_of_the_outputs() -> None:
    outputs = torch.arange(1.0, 13.0).view(2, 3, 2)
    lengths = torch.tensor([2, 0])
    assert last(outputs, lengths).tolist() == [[3.0, 4.0], [0.0, 0.0]]
    assert last(outputs).tolist() == [[5.0, 6.0], [11.0, 12.0]]
    assert mean(outputs, lengths).tolist() == [[2.0, 3.0], [0.0, 0.0]]
    assert mean(outputs).tolist() == [[3.0, 4.0], [9.0, 10.0]]
    assert mean(outputs[:, :0]).tolist() == [[0.0, 0.0]] * 2
    assert valid(lengths, 3).tolist() == [[True, True, False], [False] * 3]


def test_an_unrolled_step_may_have_no_parameter_and_any_width() -> None:
    """A running sum: its outputs are torch's cumsum, its state the total of each example's own steps."""
    x = drawn()

    def add(x_t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        total = state[0] + x_t
        return total[:, :2], (total,)

    outputs, (total,) = unrolled(add, x, LENGTHS, (torch.zeros(5, 3, dtype=torch.float64),))
    masked = torch.where(valid(LENGTHS, 7)[:, :, None], x, 0.0)
    torch.testing.assert_close(total, masked.sum(1))
    expected = torch.where(valid(LENGTHS, 7)[:, :, None], x.cumsum(1), 0.0)[..., :2]
    torch.testing.assert_close(outputs, expected)
    assert unrolled(add, x[:, :0], None, (total,))[0].shape == (5, 0, 2)


def test_its_backward_pass_is_linear_in_time() -> None:
    """The sequence is cut by one unbind: a slice for each step would fill a tensor of its size for each."""
    x = torch.randn(4, 50, 3, requires_grad=True)
    y, _ = unrolled(lambda x_t, s: (x_t * s[0], s), x, None, (torch.ones(4, 3),))
    seen, waiting, names = set(), [y.grad_fn], []
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.append(node.name())
            waiting += [parent for parent, _ in node.next_functions]
    assert sum(name.startswith("Unbind") for name in names) == 1
    assert not [name for name in names if name.startswith(("Select", "Slice", "Index"))]


def test_every_recurrence_is_a_module_of_its_sizes() -> None:
    for name in MAKERS:
        model = made(name)
        assert isinstance(model, Recurrence)
        assert isinstance(model, nn.Module)
        assert (model.input_size, model(drawn())[0].shape[-1]) == (3, model.output_size)


def test_biases_of_a_memory() -> None:
    """s = u / (1 + u) with u uniform in [1, memory - 1]: no share is below 1/2 or above 1 - 1/memory."""
    torch.manual_seed(0)
    shares = gate_bias(50, 20_000).sigmoid()
    assert 0.5 <= shares.min() < 0.52
    assert 1 - 1 / 49 < shares.max() <= 1 - 1 / 50 + 1e-6
    u = (shares / (1 - shares)).double()
    # the mean of 20,000 uniform numbers is within 4 standard errors but once in 16,000
    assert abs(float(u.mean()) - 25.0) < 4 * 48 / (12 * 20_000) ** 0.5
    assert torch.equal(gate_bias(2, 3), torch.zeros(3))
    for memory in (1, 0, -3):
        with pytest.raises(
            ValueError, match=f"^memory must be 0, for none, or at least 2 steps: got {memory}$"
        ):
            gate_bias(memory, 3)
