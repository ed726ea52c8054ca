"""Calls are captured in order, may be changed, and leave no hook, whatever happens."""

import pytest
import torch
from torch import nn

from margin.engine.evaluation import capture, leaves, place_of, running


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.second(scale * self.first(x))


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_calls_come_in_the_order_in_which_they_end() -> None:
    model, x = Scaled(), torch.ones(4, 2)
    with capture([model, model.second, model.first, model.first]) as calls:
        y = model(x, scale=2.0)
    assert [call.module for call in calls] == [model.first, model.second, model]
    assert calls[0].args[0] is x
    assert torch.equal(calls[1].args[0], 2.0 * calls[0].output)
    assert calls[2].kwargs == {"scale": 2.0}
    assert calls[2].output is y
    assert hooks(model) == 0


def test_a_change_takes_the_place_of_the_output() -> None:
    model, x = Scaled(), torch.ones(4, 2)
    with capture([model.first], lambda call: torch.zeros_like(call.output)):
        assert torch.equal(model(x), model.second.bias.expand(4, 1))


def test_no_hook_is_left_where_the_model_fails() -> None:
    model = Scaled()
    with pytest.raises(RuntimeError), capture(model.modules()):
        model(torch.ones(4, 5))
    assert hooks(model) == 0


def test_the_layers_that_run_are_told_from_outside_in_and_left_where_an_error_came() -> None:
    model, seen, layers = Scaled(), [], []
    with running(model, layers, lambda module: seen.append([path for path, _ in layers])):
        model(torch.ones(4, 2))
    assert seen == [[""], ["", "first"], ["", "second"]]
    assert (layers, place_of(layers), hooks(model)) == ([], "the model itself (what reads its outputs)", 0)
    with pytest.raises(RuntimeError), running(model, layers):
        model(torch.ones(4, 5))
    assert layers == [("", "Scaled"), ("first", "Linear")]
    assert place_of(layers) == "layer 'first' (Linear)"
    assert place_of(layers[:1]) == "the model itself (Scaled)"
    assert hooks(model) == 0


def test_the_leaves_of_nested_arguments() -> None:
    assert list(leaves((1, [2, {"a": (3,), "b": None}], "four"))) == [1, 2, 3, None, "four"]
