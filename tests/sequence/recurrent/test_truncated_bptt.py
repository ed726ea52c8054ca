"""Truncated BPTT: the same answers, the gradient of the graph cut by hand, and a step that descends on it."""

from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.catalog import models, resolve
from margin.core.options import Training
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.hooks import INTERRUPTED
from margin.engine.loop import GradientUpdate, State, descent, fit, risk
from margin.nn.preprocessed import Preprocessed
from margin.runs.training import finish, prepare, reopen
from margin.sequence.convolution import tcn
from margin.sequence.linear import linear_system, lru, mingru, minlstm
from margin.sequence.recurrent import bidirectional, deep_transition, elman, gru, lstm, stack_memory
from margin.sequence.recurrent.bptt import bptt, states
from margin.sequence.recurrent.heard import causal_ones
from margin.sequence.recurrent.truncated_bptt import Windowed, truncated, truncated_bptt
from margin.testing import check_same_run

T = 11
MODELS = {
    "elman": lambda: elman.classifier(3, 2, hidden=4, layers=2),
    "lstm": lambda: lstm.classifier(3, 2, hidden=4),
    "gru": lambda: gru.classifier(3, 2, hidden=4, reset="before"),
    "mingru": lambda: mingru.classifier(3, 2, hidden=4, layers=2),
    "minlstm": lambda: minlstm.classifier(3, 2, hidden=4),
    "lru": lambda: lru.classifier(3, 2, width=4, states=4),
    "linear": lambda: linear_system.classifier(3, 2, width=4, states=4),
    "deep": lambda: deep_transition.classifier(3, 2, hidden=4),
    "stack": lambda: stack_memory.classifier(3, 2, hidden=4, capacity=5),
    "bidirectional": lambda: bidirectional.classifier(3, 2, hidden=4, layers=2),
    "tcn": lambda: tcn.classifier(3, 2, hidden=4, layers=2),
}


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().double().eval()


def batch_of(time: int = T, *more: Tensor) -> Batch:
    x = torch.randn(5, time, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    return Batch((x, *more), torch.arange(5) % 2)


def gradients(model: nn.Module, batch: Batch, window: int = 0) -> list[Tensor]:
    objective = Windowed(risk(CLASSES), window) if window else risk(CLASSES)
    loss = objective(model, batch, Generator()).mean()
    # a push is read a step later only: a window of 1 leaves its weights out of the graph
    return list(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))


def apart(one: list[Tensor], other: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("window", [1, 4, 10, 11, 12])
def test_answers_are_the_same_and_a_window_of_all_steps_cuts_no_derivative(name: str, window: int) -> None:
    model = made(name)
    for batch in (batch_of(), batch_of(T, torch.tensor([T, 0, 4, 5, 1]))):
        with torch.no_grad():
            whole = model(*batch.inputs)
            with truncated(model, window):
                cut = model(*batch.inputs)
        torch.testing.assert_close(cut, whole, rtol=0, atol=1e-12)
        gap = apart(gradients(model, batch, window), gradients(model, batch))
        assert gap <= 1e-12 if window >= T else gap > 1e-9


@pytest.mark.parametrize("window", [1, 2, 3, 5, 10])
def test_it_is_the_explicit_recursion_cut_at_the_same_steps(window: int) -> None:
    """For an Elman network by the formula, from the logits' derivative by the last state alone."""
    torch.manual_seed(0)
    model = elman.classifier(3, 2, hidden=4).double().eval()
    layer, head = model.recurrence.layer, model.head  # type: ignore[union-attr]
    V, U, b, c = (p.detach() for p in layer.parameters())  # type: ignore[union-attr,operator]
    batch = batch_of()
    x = batch.inputs[0]
    z = states(U, V, b + c, x, x.new_zeros(5, 4), "tanh")
    p = (z[:, -1] @ head.weight.T + head.bias).softmax(1).detach()
    error = (p - torch.nn.functional.one_hot(batch.targets, 2)) / 5  # type: ignore[arg-type]
    partial = torch.zeros(5, T, 4, dtype=torch.float64)
    partial[:, -1] = error @ head.weight.detach()
    found = bptt(U, V, x, z, partial, "tanh", window)
    grads = gradients(model, batch, window)
    assert apart(grads[:4], [found.V, found.U, found.bias, found.bias]) <= 1e-12


def test_the_lost_part_shrinks_where_states_forget() -> None:
    """With z_t = a z_(t-1) + 1 and loss z_T, dL/da = sum of a^(T-t) z_(t-1) over t of the last window."""
    layer = linear_system.LinearSystem(1, states=1).double()
    with torch.no_grad():
        for p, value in zip(layer.parameters(), (0.5, 1.0, 1.0, 0.0), strict=True):
            p.fill_(value)
    x = torch.ones(1, 6, 1, dtype=torch.float64)
    z = [2 * (1 - 0.5**t) for t in range(7)]
    for window, first in ((1, 6), (2, 5), (4, 3), (5, 2), (6, 1), (9, 1)):
        with truncated(layer, window):
            loss = layer(x)[0][0, -1, 0]
        (grad,) = torch.autograd.grad(loss, layer.A)
        expected = sum(0.5 ** (6 - t) * z[t - 1] for t in range(first, 7))
        assert float(grad) == pytest.approx(expected, rel=1e-12)


def test_the_graph_of_the_state_that_it_goes_on_from_is_kept() -> None:
    torch.manual_seed(0)
    layer = gru.ResetBeforeGRU(3, hidden=4).double()
    start = torch.zeros(5, 4, dtype=torch.float64, requires_grad=True)
    with truncated(layer, 4):
        y, _ = layer(batch_of().inputs[0], None, (start,))
    (first,) = torch.autograd.grad(y[:, :3].sum(), start, retain_graph=True)  # 11 = 3 + 4 + 4
    (later,) = torch.autograd.grad(y[:, 3:].sum(), start)
    assert first.any() and not later.any()


def test_recurrences_are_found_at_any_depth_and_put_back() -> None:
    model = Preprocessed(nn.Identity(), made("bidirectional"))
    names = ["model.recurrence.layers.0.ahead", "model.recurrence.layers.0.back"]
    assert [name for name, _ in causal_ones(model)][:2] == names
    before = gradients(model, batch_of())
    with truncated(model, 2) as found:
        assert found[:2] == names
    with pytest.raises(ValueError, match="lengths"), truncated(model, 2):
        model(batch_of().inputs[0], torch.tensor([12, 1, 1, 1, 1]))
    assert apart(gradients(model, batch_of()), before) == 0
    assert all("forward" not in vars(module) for module in model.modules())


def state_of(model: nn.Module) -> State:
    return State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.1)})


def test_a_step_with_a_window_of_all_steps_is_descent_and_a_smaller_one_is_not() -> None:
    ends = []
    for step in (
        descent(risk(CLASSES), GradientUpdate()),
        truncated_bptt(risk(CLASSES), GradientUpdate(), made("gru"), window=T),
        truncated_bptt(risk(CLASSES), GradientUpdate(), made("gru"), window=3),
    ):
        state = state_of(made("gru"))
        fit(state, lambda _: batch_of(), step, max_steps=3)
        ends.append([p.detach().clone() for p in state.model.parameters()])
    assert apart(ends[1], ends[0]) <= 1e-14
    assert apart(ends[2], ends[0]) > 1e-6


def test_bad_windows_and_models_without_a_recurrence_are_refused() -> None:
    with pytest.raises(ValueError, match="window must be at least 1: got 0"):
        truncated_bptt(risk(CLASSES), GradientUpdate(), made("gru"), window=0)
    with pytest.raises(ValueError, match="window must be at least 1: got 0"), truncated(made("gru"), 0):
        pass
    with pytest.raises(ValueError, match="needs a model with a causal recurrence: Linear has none"):
        truncated_bptt(risk(CLASSES), GradientUpdate(), nn.Linear(3, 2))
    model, wrong = made("gru"), torch.tensor([12, 1, 1, 1, 1])
    with truncated(model, 4), pytest.raises(ValueError, match=r"lengths must be in 0 \.\. 11"):
        model(batch_of().inputs[0], wrong)


def test_a_training_under_the_rule_is_resumed_to_the_byte(tmp_path: Path) -> None:
    data = resolve(models()["sequence/gru"].tiny)()
    arguments = {"options": {"hidden": 4}, "step": {"window": 3}, "rule": "truncated_bptt"}
    training = Training(max_steps=4, evaluate_every=2, seed=1)
    whole = finish(prepare("sequence/gru", data, arguments, training, tmp_path / "whole"))
    job = prepare("sequence/gru", data, arguments, training, tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        finish(job, hooks=[lambda state, metrics: INTERRUPTED if state.step == 2 else None])
    check_same_run(whole, finish(reopen(job.run.path, data, Training())))


@pytest.mark.parametrize("name", MODELS)
def test_a_recurrence_in_windows_ends_each_sequence_where_it_ends(name: str) -> None:
    """Outputs, 0 at padding, and the state after each example's own last step."""
    layer, lengths = made(name).recurrence, torch.tensor([T, 0, 4, 5, 1])
    x = batch_of().inputs[0]
    with torch.no_grad(), truncated(layer, 3):  # type: ignore[arg-type]
        y, state = layer(x, lengths)  # type: ignore[operator]
    with torch.no_grad():
        whole, after = layer(x, lengths)  # type: ignore[operator]
    for a, b in zip((y, *state), (whole, *after), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    with truncated(layer, 3), pytest.raises(ValueError, match="lengths must be in"):  # type: ignore[arg-type]
        layer(x, lengths + 1)  # type: ignore[operator]


def test_a_norm_over_the_steps_of_a_batch_is_refused() -> None:
    """A window has other steps than the whole, so each would be normalized in its own way."""
    model = lru.classifier(3, 2, width=4, states=3, norm="batch")
    with pytest.raises(ValueError, match="reads one step: got norm='batch'"):
        truncated_bptt(risk(CLASSES), GradientUpdate(), model, window=4)
    with truncated(model.eval(), 4):  # trained, it reads one step
        assert model(torch.zeros(2, 9, 3)).shape == (2, 2)
