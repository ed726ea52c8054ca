"""minLSTM: its normalized gates are the published ones, its scan is its steps, padding changes nothing."""

import pytest
import torch
from torch import Generator, Tensor

from margin.nn.recurrence import valid
from margin.sequence.linear import minlstm
from margin.sequence.linear.minlstm import MinLSTM, kept_logit

LENGTHS = torch.tensor([4, 0, 7, 1, 6])


def made(layers: int = 1) -> minlstm.Stacked:
    torch.manual_seed(0)
    return minlstm.recurrence(3, hidden=5, layers=layers).double()


def drawn(steps: int = 7) -> Tensor:
    return torch.randn(5, steps, 3, dtype=torch.float64, generator=Generator().manual_seed(1))


def test_the_normalized_gate_is_the_published_one() -> None:
    g = Generator().manual_seed(0)
    forget, write = 4 * torch.randn(2, 1000, dtype=torch.float64, generator=g)
    f, i = forget.sigmoid(), write.sigmoid()
    torch.testing.assert_close(kept_logit(forget, write).sigmoid(), f / (f + i), atol=1e-12, rtol=0)
    both_off = torch.full((1,), -800.0, dtype=torch.float64)  # f = i = 0: the quotient would be NaN
    assert kept_logit(both_off, both_off + 1).sigmoid().item() == pytest.approx(1 / (1 + 2.718281828459045))


def test_it_is_the_published_recurrence() -> None:
    torch.manual_seed(0)
    model = MinLSTM(3, hidden=5, memory=20).double()
    x = drawn(40)
    z, states = torch.ones(5, 5, dtype=torch.float64), []
    for x_t in x.unbind(1):
        f = (x_t @ model.forget.weight.T + model.forget.bias).sigmoid()
        i = (x_t @ model.write.weight.T + model.write.bias).sigmoid()
        z = f / (f + i) * z + i / (f + i) * (x_t @ model.candidate.weight.T + model.candidate.bias)
        states.append(z)
    start = (torch.ones(5, 5, dtype=torch.float64),)
    torch.testing.assert_close(model(x, None, start)[0], torch.stack(states, 1), atol=1e-10, rtol=0)


@pytest.mark.parametrize("layers", [1, 3])
def test_the_whole_is_its_steps(layers: int) -> None:
    model, x = made(layers), drawn(40)
    whole, after = model(x)
    outputs, state = [], model.initial(x)
    for x_t in x.unbind(1):
        y, state = model.step(x_t, state)
        outputs.append(y)
    torch.testing.assert_close(whole, torch.stack(outputs, 1), atol=1e-10, rtol=0)
    torch.testing.assert_close(after, state, atol=1e-10, rtol=0)


@pytest.mark.parametrize("padding", [0.0, 1e3, float("nan")])
def test_padding_changes_nothing(padding: float) -> None:
    model = made(2)
    x = torch.where(valid(LENGTHS, 7)[:, :, None], drawn(), torch.tensor(padding, dtype=torch.float64))
    whole, after = model(x, LENGTHS)
    whole.square().sum().backward()
    together = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    for i, length in enumerate(LENGTHS.tolist()):
        alone, end = model(x[i : i + 1, :length])
        torch.testing.assert_close(whole[i, :length], alone[0])
        assert not whole[i, length:].any()
        torch.testing.assert_close(tuple(a[i : i + 1] for a in after), end)
        if length:
            alone.square().sum().backward()
    for n, p in model.named_parameters():
        torch.testing.assert_close(together[n], p.grad, atol=1e-9, rtol=1e-7)


def test_an_output_reads_every_step_to_its_own_and_no_later_one() -> None:
    model, x = made(), drawn()[:1].requires_grad_()
    outputs, _ = model(x)
    for t in range(7):
        (grad,) = torch.autograd.grad(outputs[0, t].sum(), x, retain_graph=True)
        assert not grad[0, t + 1 :].any()
        assert grad[0, : t + 1].any(1).all()


def test_memory_sets_how_long_the_first_states_last() -> None:
    torch.manual_seed(0)
    shares = MinLSTM(3, hidden=4000, memory=100).logits(torch.zeros(1, 3)).sigmoid()
    assert shares.min() >= 0.5
    assert shares.max() <= 0.99
    assert shares.median().item() == pytest.approx(50 / 51, abs=2e-3)


def test_builder_and_bad_options() -> None:
    assert minlstm.classifier(3, 4, hidden=5, layers=2)(drawn().float(), LENGTHS).shape == (5, 4)
    for options, message in (
        ({"hidden": 0}, "at least 1: got 3 and 0"),
        ({"memory": 1}, "at least 2 steps: got 1"),
        ({"layers": -1}, "layers must be at least 1: got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            minlstm.recurrence(3, **options)
    empty, state = made()(drawn(0))
    assert empty.shape == (5, 0, 5)
    assert not state[0].any()
