"""What recurrences inside a model are given, and that asking leaves the model as it was."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import in_double
from margin.engine.loop import risk
from margin.nn.preprocessed import Preprocessed
from margin.sequence.convolution.tcn import TCN, classifier
from margin.sequence.recurrent import gru
from margin.sequence.recurrent.heard import (
    EXAMPLES,
    STEPS,
    arguments,
    has_recurrence,
    heard,
    listening,
    outermost,
    some,
)
from margin.sequence.recurrent.readouts import SequenceClassifier


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def made() -> SequenceClassifier:
    torch.manual_seed(0)
    return classifier(2, 3, hidden=4, layers=2)


def asked(model: nn.Module, *inputs: Tensor) -> Subject:
    batch = Batch(inputs, torch.zeros(len(inputs[0]), dtype=torch.long))
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


def test_the_outermost_recurrences_are_found_by_name() -> None:
    model = nn.ModuleDict({"one": made(), "two": nn.ModuleList([TCN(2, layers=1)]), "no": nn.Linear(2, 2)})
    assert [name for name, _ in outermost(model)] == ["one.recurrence", "two.0"]  # no convolution of theirs
    assert [name for name, _ in outermost(TCN(2, layers=1))] == ["TCN"]
    assert outermost(nn.Linear(2, 2)) == []


def test_what_a_recurrence_is_given_stands_behind_the_preprocessing() -> None:
    x = torch.randn(6, 9, 2, generator=Generator().manual_seed(0))
    model, lengths = Preprocessed(Twice(), made()), torch.tensor([9, 0, 3, 1, 2, 2])
    (one,) = heard(asked(model, x, lengths))
    assert one.name == "model.recurrence"
    torch.testing.assert_close(one.x, 2 * x[:EXAMPLES].double(), rtol=0, atol=0)
    assert one.lengths is not None
    assert one.lengths.tolist() == [9, 0, 3, 1]
    long = torch.randn(1, STEPS + 9, 2)
    (one,) = heard(asked(model, long, torch.tensor([STEPS + 2])))
    assert one.x.shape[1] == STEPS
    assert one.lengths is not None
    assert one.lengths.tolist() == [STEPS]
    (one,) = heard(asked(model, x))
    assert one.lengths is None


def test_asking_leaves_the_model_as_it_was() -> None:
    model = made().train()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    subject = asked(model, torch.randn(3, 5, 2))
    assert has_recurrence(subject)
    heard(subject)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert model.training
    assert model.head.weight.dtype == torch.float32
    assert not model.recurrence._forward_hooks and not model.recurrence._forward_pre_hooks
    assert not has_recurrence(asked(nn.Linear(2, 3), torch.randn(3, 2)))


class Twofold(nn.Module):
    """A recurrence that reads a sequence, and then its negative from the state of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrence = gru.recurrence(2, hidden=4)

    def forward(self, x: Tensor) -> Tensor:
        y, state = self.recurrence(x)
        return y + self.recurrence(-x, state=state)[0]


def test_of_two_calls_the_first_is_kept() -> None:
    x = torch.randn(3, 5, 2)
    subject = asked(Twofold(), x)
    (one,) = heard(subject)
    torch.testing.assert_close(one.x, x.double(), rtol=0, atol=0)
    assert one.state is None


def test_calls_are_heard_in_their_order_with_what_was_given_back() -> None:
    x, model = torch.randn(3, 5, 2), Twofold()
    with listening(outermost(model)) as calls:
        y = model(x)
    first, second = calls["recurrence"]
    assert torch.equal(second.x, -x)
    assert second.lengths is None and second.state is not None and first.state is None
    assert torch.equal(second.state[0], first.output[1][0])
    assert torch.equal(first.output[0] + second.output[0], y)
    assert not model.recurrence._forward_hooks


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ("xls", ""),
        ("xl", "s"),
        ("x", "sl"),
        ("", "slx"),
        ("x", "s"),
        ("x", ""),
        ("", "lx"),
    ],
)
def test_arguments_are_bound_by_the_signature(args: str, named: str) -> None:
    values = {"x": torch.zeros(1, 2, 2), "l": torch.tensor([2]), "s": (torch.zeros(1, 1, 4),)}
    names = {"x": "x", "l": "lengths", "s": "state"}
    module = gru.recurrence(2, hidden=4)
    found = arguments(module, [values[k] for k in args], {names[k]: values[k] for k in named})
    for key, got in zip("xls", found, strict=True):
        assert got is (values[key] if key in args + named else None)
    with pytest.raises(TypeError):
        arguments(module, [], {"y": values["x"]})


def test_a_forward_of_fewer_arguments_is_heard_with_none_for_the_others() -> None:
    x = torch.zeros(1, 2)
    found = arguments(Twice(), [], {"x": x})
    assert found[0] is x and found[1:] == (None, None)


def test_a_copy_in_double_and_inputs_in_double() -> None:
    copy = in_double(made())
    assert all(p.dtype == torch.float64 for p in copy.parameters())
    assert not copy.training
    x, tokens = some(Batch((torch.randn(3, 2), torch.arange(3))), 2)
    assert x.dtype == torch.float64
    assert tokens.tolist() == [0, 1]
