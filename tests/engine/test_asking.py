"""Asking leaves no trace, and every mean is sum(w v) / sum(w)."""

import math

import pytest
import torch
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.examples import Arrays, InOrder
from margin.engine.evaluation import Kept, eval_mode, evaluate, weighted_sum
from margin.engine.loop import risk


def model_with_flags() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    model[1].eval()  # a frozen layer inside a model in training mode
    return model


def test_every_flag_gradient_and_generator_comes_back() -> None:
    model = model_with_flags()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = torch.get_rng_state()
    running = model[1].running_mean.clone()
    with eval_mode(model) as generator:
        assert not any(module.training for module in model.modules())
        model(torch.randn(5, 4)).sum().backward()
        torch.rand(3, generator=generator)
        model[3].weight.requires_grad_(False)
    assert [m.training for m in model] == [True, False, True, True]
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[3].weight.grad is None
    assert model[3].weight.requires_grad
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model[1].running_mean, running)


class Writing(nn.Module):
    """Counts, averages, fills and caches, each in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("mask", None)
        self.register_buffer("untouched", torch.tensor([math.nan, 1.0]))
        self.seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.average = self.average + x.mean(0)
        self.mask = torch.ones(4)
        self.seen += 1
        self.last = x * self.mask
        return self.last + self.calls


def test_what_a_forward_pass_writes_comes_back() -> None:
    model = nn.Sequential(Writing())
    names = ("calls", "average", "untouched")
    own = {name: getattr(model[0], name) for name in names}
    version = own["untouched"]._version
    answers = []
    for _ in range(2):
        with eval_mode(model):
            kept = Kept(model)
            assert kept.written(model) == []
            answers.append(model(torch.ones(2, 4)))
            assert kept.written(model) == ["0.average", "0.calls", "0.mask"]
    assert torch.equal(*answers)  # the second question starts where the first did
    assert all(getattr(model[0], name) is tensor for name, tensor in own.items())
    assert int(own["calls"]) == 0 and bool((own["average"] == 0).all())
    assert model[0].mask is None and model[0].seen == 0 and not hasattr(model[0], "last")
    assert own["untouched"]._version == version


def test_the_state_comes_back_after_an_error() -> None:
    model = model_with_flags()
    with pytest.raises(ZeroDivisionError), eval_mode(model):
        raise ZeroDivisionError
    assert model.training


@pytest.mark.parametrize("size", [1, 7, 100])
def test_an_evaluation_does_not_depend_on_the_batches(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    part = Arrays((torch.randn(30, 4, generator=generator),), torch.randint(0, 3, (30,), generator=generator))
    model = model_with_flags()
    found = evaluate(model, InOrder(part, size), CLASSES, risk(CLASSES))
    model.eval()
    logits = model(part.inputs[0])
    expected = nn.functional.cross_entropy(logits, part.targets).item()
    assert abs(found["loss"] - expected) <= 1e-6
    assert abs(found["accuracy"] - (logits.argmax(1) == part.targets).double().mean().item()) <= 1e-12


def test_a_term_of_weight_zero_counts_for_nothing() -> None:
    total, count = weighted_sum(torch.tensor([1.0, math.nan, 3.0]), torch.tensor([1.0, 0.0, 2.0]))
    assert (float(total), float(count)) == (7.0, 3.0)


def test_a_weight_per_example_covers_its_terms() -> None:
    values = torch.arange(6.0).reshape(2, 3)
    total, count = weighted_sum(values, torch.tensor([0.0, 2.0]))
    assert (float(total), float(count)) == (24.0, 6.0)


def test_a_model_is_asked_once_for_its_loss_and_its_scores() -> None:
    calls = []

    class Counting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(len(x))
            return super().forward(x)

    part = Arrays((torch.randn(10, 4),), torch.arange(10) % 3)
    once = evaluate(Counting(4, 3), InOrder(part, 10), CLASSES, risk(CLASSES))
    assert calls == [10]
    assert set(once) == {"loss", "accuracy"}


def test_an_objective_of_its_own_is_averaged_as_it_is() -> None:
    part = Arrays((torch.randn(10, 4),), torch.arange(10) % 3)
    found = evaluate(nn.Linear(4, 3), InOrder(part, 4), CLASSES, lambda m, batch, g: batch.targets.double())
    assert abs(found["loss"] - (torch.arange(10) % 3).double().mean().item()) <= 1e-12


def test_an_evaluation_is_weighted_over_all_terms() -> None:
    model = nn.Linear(1, 2)
    weights = [torch.tensor([1.0, 0.0, 3.0]), torch.tensor([2.0, 2.0])]
    targets = [torch.tensor([0, 1, 1]), torch.tensor([1, 0])]
    batches = [Batch((torch.zeros(len(w), 1),), t, w) for w, t in zip(weights, targets, strict=True)]
    found = evaluate(model, batches, CLASSES, lambda m, b, g: b.targets + 1.0)
    # (1 1 + 3 2 + 2 2 + 2 1) / (1 + 3 + 2 + 2)
    assert abs(found["loss"] - 13 / 8) <= 1e-12
