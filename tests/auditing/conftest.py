import sys
import types

import pytest
import torch
from torch import nn

from margin.core.catalog import Claim
from margin.core.findings import Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch


@pytest.fixture
def claim_of(monkeypatch):
    """A claim that asks a function of the test."""
    module = types.ModuleType("asked_by_a_test")
    monkeypatch.setitem(sys.modules, "asked_by_a_test", module)

    def build(function, name="room/topic.question", needs=(), summary="Is it so?"):
        key = f"ask{len(vars(module))}"
        setattr(module, key, function)
        return Claim(
            name=name, summary=summary, ask=f"asked_by_a_test:{key}", demo="", reference="", needs=needs
        )

    return build


def f64(*values):
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


@pytest.fixture(scope="session")
def every_verdict(finding):
    """A finding for each verdict, by the verdict's name."""
    refuted = Premise("the layers are known", "refuted", "layer 'deep.3' is not")
    assumed = Premise("examples are independent", "assumed", "nothing was checked")
    return {
        "unfounded": finding(premises=(refuted,), high=f64(0.9)),
        "failed": finding(value=f64(float("nan"))),
        "violated": finding(high=f64(0.4)),
        "inconclusive": finding(kind="estimate", stderr=f64(0.1), high=f64(0.6)),
        "vacuous": finding(high=f64(1.5)),
        "measured": finding(),
        "holds": finding(premises=(assumed,), high=f64(0.6)),
    }


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.norm(x))


@pytest.fixture
def subject():
    """A small network in training mode on twenty points of three classes."""
    generator = torch.Generator().manual_seed(5)
    model = Net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    model.train()
    x = torch.randn(20, 4, generator=generator)
    y = torch.arange(20) % 3

    def objective(model, batch, generator):
        return CLASSES.loss(model(*batch.inputs), batch.targets)

    return Subject(
        model=model,
        test=[Batch((x[:12],), y[:12]), Batch((x[12:].clone(),), y[12:])],
        task=CLASSES,
        objective=objective,
    )
