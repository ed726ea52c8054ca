"""All claims about outputs read one pass over the held-out examples and one over those of training."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.auditing.asking.answers import ask
from margin.auditing.asking.named import claims_named
from margin.auditing.asking.worst_examples import worst_examples
from margin.core.findings import NotAsked, Subject
from margin.core.tasks import CLASSES, MULTILABEL, PIXEL_CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.prediction.held_out import held_out_terms, losses_of, outputs_of

HELD, TRAINED = 60, 100


class Counting(nn.Linear):
    """It counts the rows that it is asked, in a list: a number would be put back as all attributes are."""

    def __init__(self, inner: int, out: int) -> None:
        super().__init__(inner, out)
        self.seen: list[int] = []

    @property
    def rows(self) -> int:
        return sum(self.seen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        return super().forward(x)


def batches_of(n: int, seed: int, weighted: bool = False) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    y = torch.randint(3, (n,), generator=generator)
    weight = (torch.rand(n, generator=generator) > 0.3).float() if weighted else None
    cut = [slice(0, 25), slice(25, n)]
    return [Batch((x[c],), y[c], None if weight is None else weight[c]) for c in cut]


def classifier(weighted: bool = False) -> Subject:
    torch.manual_seed(0)
    held, trained = batches_of(HELD, 1, weighted), batches_of(TRAINED, 2)
    return Subject(
        model=Counting(4, 3).eval(), test=held, train=trained, task=CLASSES, objective=risk(CLASSES)
    )


def test_every_claim_of_prediction_and_the_worst_examples_share_two_passes():
    subject = classifier()
    audit = ask(subject, claims_named(["theory/risk.*", "theory/[cimr]*.*"]), minutes=2)
    asked = [name for name in audit.findings if name.startswith("theory/r") or "calibration" in name]
    assert len(asked) >= 8
    assert audit.worst_examples is not None
    subject.kept.clear()
    subject.model.seen.clear()
    names = [
        "theory/risk.*",
        "theory/confusion.*",
        "theory/ranking.*",
        "theory/margins.*",
        "theory/calibration.*",
    ]
    audit = ask(subject, claims_named(names))
    assert len(audit.findings) >= 12
    # whether it has two classes, or many, is asked of one example
    assert subject.model.rows <= HELD + TRAINED + 2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("part", ["test", "train"])
def test_losses_from_outputs_are_the_objectives(part, weighted):
    subject = classifier(weighted)
    batches = subject.test if part == "test" else subject.train
    own = held_out_terms(subject.model, batches, subject.objective)
    found = losses_of(subject, part)
    torch.testing.assert_close(found.values, own.values, rtol=1e-6, atol=1e-7)
    assert torch.equal(found.weight, own.weight)
    assert torch.equal(found.example, own.example)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_worst_examples_from_outputs_are_those_of_another_pass(weighted):
    subject = classifier(weighted)
    found = worst_examples(subject, 5)

    def own(model: nn.Module, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        return subject.objective(model, batch, generator)

    apart = worst_examples(replace(subject, objective=own), 5)
    for name in ("index", "targets"):
        assert torch.equal(getattr(found, name), getattr(apart, name))
    for name in ("inputs", "losses", "margins"):
        torch.testing.assert_close(getattr(found, name), getattr(apart, name), rtol=1e-6, atol=1e-6)
    assert found.predictions.keys() == apart.predictions.keys()


def test_a_loss_of_several_values_an_example_is_asked_of_the_objective():
    torch.manual_seed(0)
    x, y = torch.randn(7, 4), torch.randn(7, 3)
    subject = Subject(model=Counting(4, 3).eval(), test=[Batch((x,), y)], task=VALUES, objective=risk(VALUES))
    own = held_out_terms(subject.model, subject.test, subject.objective)
    assert torch.equal(losses_of(subject, "test").values, own.values)
    assert len(own.values) == 21


@pytest.mark.parametrize("task", [PIXEL_CLASSES, MULTILABEL], ids=lambda task: task.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_terms_come_of_the_outputs_without_another_pass(task, weighted):
    """Against the objective, batch by batch; a term of weight 0 is left out of both."""
    torch.manual_seed(0)
    x, y = torch.randn(8, 5, 4), torch.randint(3 if task is PIXEL_CLASSES else 2, (8, 5))
    model = Counting(4, 3) if task is PIXEL_CLASSES else nn.Sequential(Counting(4, 1), nn.Flatten())
    weight = torch.arange(40.0).reshape(8, 5) % 3 if weighted else None
    batches = [Batch((x[c],), y[c], None if weight is None else weight[c]) for c in (slice(3), slice(3, 8))]
    subject = Subject(model=model.eval(), test=batches, task=task, objective=risk(task))
    own = held_out_terms(subject.model, subject.test, subject.objective)
    outputs_of(subject, "test")
    counting = next(module for module in model.modules() if isinstance(module, Counting))
    asked = counting.rows
    found = losses_of(subject, "test")
    assert counting.rows == asked
    torch.testing.assert_close(found.values, own.values, rtol=1e-6, atol=1e-7)
    assert torch.equal(found.weight, own.weight)
    assert torch.equal(found.example, own.example)


def test_a_pass_that_was_stopped_goes_on_where_it_was():
    """The second claim of six batches of ten runs the four that the first one had no time for."""
    subject = classifier()
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    subject = replace(subject, test=[Batch(((x[i : i + 10]),), y[i : i + 10]) for i in range(0, 60, 10)])
    whole = outputs_of(replace(subject), "test").answers
    subject.model.seen.clear()
    handle = subject.model.register_forward_pre_hook(refuse_after(20))
    with pytest.raises(NotAsked, match="stopped"):
        outputs_of(subject, "test")
    handle.remove()
    found = outputs_of(subject, "test").answers
    assert subject.model.rows == 60
    assert all(map(torch.equal, found, whole))
    with torch.no_grad():
        subject.model.bias += 1  # of other weights nothing goes on
    outputs_of(subject, "test")
    assert subject.model.rows == 120


def test_a_pass_that_was_stopped_begins_anew_with_other_weights():
    subject = classifier()
    handle = subject.model.register_forward_pre_hook(refuse_after(25))
    with pytest.raises(NotAsked):
        outputs_of(subject, "test")
    handle.remove()
    with torch.no_grad():
        subject.model.bias += 1
    expected = subject.model(torch.cat([batch.inputs[0] for batch in subject.test]))
    torch.testing.assert_close(outputs_of(subject, "test").answers.outputs, expected)


def refuse_after(rows: int):
    def refuse(module, args):
        if module.rows == rows:
            raise NotAsked("stopped")

    return refuse
