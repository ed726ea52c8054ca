"""The checks themselves: a row that breaks a contract is refused, and the message says which."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from margin import testing
from margin.core import catalog
from margin.core.catalog import Claim, Entry, Part
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.sets.tiny.tables import classes
from margin.engine.loop import risk
from margin.engine.runs import Run

CROOKED = '''
import torch
from torch import nn

from margin.core.findings import Finding
from margin.theory.prediction.risk import accuracy_demo

CALLS = []


class Straight(nn.Module):
    def __init__(self, in_features, num_classes):
        super().__init__()
        self.linear = nn.Linear(in_features, num_classes)

    def forward(self, x):
        return self.linear(x)


class Idle(Straight):
    def __init__(self, in_features, num_classes):
        super().__init__(in_features, num_classes)
        self.scale = nn.Parameter(torch.ones(3))


class Dead(Idle):
    def forward(self, x):
        return self.linear(x) * self.scale.clamp(max=0.5)


class Mixing(Straight):
    def forward(self, x):
        return self.linear(x - x.mean(0))


class Single(Straight):
    def forward(self, x):
        return self.linear(x).float()


class Bare(Straight):
    def __init__(self, in_features, num_classes, *, width):
        super().__init__(in_features, num_classes)


class Keyed(Straight):
    def __init__(self, in_features, num_classes, *, widths={1: 2}):
        super().__init__(in_features, num_classes)


class Wanting(Straight):
    def __init__(self, in_features, num_classes, moons):
        super().__init__(in_features, num_classes)


class Drifting(Straight):
    """Writes its weights when it is asked: buffers that it would write are put back."""

    def forward(self, x):
        if not self.training:
            self.linear.weight.data += 0.01
        return self.linear(x)


class Masked(torch.nn.Module):
    """Reads the mean over each sequence's own steps."""

    def __init__(self, input_size, num_classes):
        super().__init__()
        self.linear = torch.nn.Linear(input_size, num_classes)

    def mean(self, x, lengths):
        here = torch.arange(x.shape[1]) < lengths[:, None]
        return (x * here[..., None]).sum(1) / lengths.clamp(min=1)[:, None]

    def forward(self, x, lengths):
        return self.linear(self.mean(x, lengths))


class Padded(Masked):
    """Reads what pads a sequence, too."""

    def mean(self, x, lengths):
        return x.sum(1) / lengths.clamp(min=1)[:, None]


def forgetful():
    """A step that remembers outside the state how often it was called."""
    calls = []

    def step(state, batch):
        calls.append(1)
        with torch.no_grad():
            state.core.linear.weight += len(calls)
        return {"loss": 0.0}

    return step


def answer(value):
    return Finding(
        statement="The value is at most 1.",
        value=torch.tensor(value),
        unit="1",
        range=(0.0, 10.0),
        high=torch.tensor(1.0),
        premises=(),
        reference="Nobody 1900, Section 1",
    )


def right(subject):
    return answer(0.5)


def wrong(subject):
    return answer(2.0)


def fickle(subject):
    CALLS.append(1)
    return answer(0.5 / len(CALLS))


def careless(subject):
    subject.model.train()
    return answer(0.5)


def grasping(subject):
    (batch,) = subject.test
    subject.model(*batch.inputs).sum().backward()
    return answer(0.5)


def never(subject):
    return False
'''

REFERENCE = "Nobody 1900, Section 1"


@pytest.fixture(autouse=True)
def crooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crooked.py").write_text(CROOKED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "crooked", raising=False)


def entry(name: str = "Straight", **given: str) -> Entry:
    return Entry(
        name="feedforward/crooked",
        summary="a model for this test",
        build=f"crooked:{name}",
        task="margin.core.tasks:CLASSES",
        tiny="margin.data.sets.tiny.tables:classes",
        reference=REFERENCE,
        **given,
    )


def claim(ask: str, **given: object) -> Claim:
    return Claim(
        name="theory/crooked.claim",
        summary="a claim for this test",
        ask=f"crooked:{ask}",
        demo="crooked:accuracy_demo",
        reference=REFERENCE,
        **given,
    )


def listed(monkeypatch: pytest.MonkeyPatch, row: Entry) -> Entry:
    monkeypatch.setitem(catalog._table("MODELS"), row.name, row)
    return row


def test_a_straight_entry_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing.check_entry(listed(monkeypatch, entry()), tmp_path / "runs")


@pytest.mark.parametrize(
    ("check", "name", "message"),
    [
        ("check_gradients", "Idle", r"\['scale'\] get no gradient at initialization"),
        ("check_gradients", "Dead", r"\['scale'\] get no gradient at initialization"),
        ("check_batch_independence", "Mixing", "moves by .* with its batch"),
        ("check_float64", "Single", "leaves float64"),
        ("check_constructor", "Bare", r"the options \['width'\] have no default"),
        ("check_constructor", "Keyed", "options change through JSON"),
        ("check_constructor", "Wanting", r"wants \['moons'\]"),
    ],
)
def test_a_model_that_breaks_a_contract_is_refused(check: str, name: str, message: str) -> None:
    getattr(testing, check)(entry())
    with pytest.raises(AssertionError, match=message):
        getattr(testing, check)(entry(name))


def test_a_model_that_reads_padding_is_refused() -> None:
    ragged = {"tiny": "margin.data.sets.tiny.sequences:ragged_classes"}
    testing.check_batch_independence(replace(entry("Masked"), **ragged))
    with pytest.raises(AssertionError, match=r"moves by .* with its batch"):
        testing.check_batch_independence(replace(entry("Padded"), **ragged))


def test_a_step_that_remembers_is_found_on_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = listed(monkeypatch, replace(entry(step="crooked:forgetful"), optimizers=()))
    with pytest.raises(AssertionError, match="differs between"):
        testing.check_resuming(row, tmp_path)


def test_an_evaluation_that_leaves_a_trace_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"an evaluation changed \['model\.linear\.weight'"):
        testing.check_evaluations_leave_no_trace(listed(monkeypatch, entry("Drifting")), tmp_path)


def test_runs_that_differ_are_told_apart(tmp_path: Path) -> None:
    one, other = (Run.create(tmp_path / name, {"recipe": {}}) for name in ("one", "other"))
    for run in (one, other):
        run.append({"step": 1, "loss": 0.5, "seconds": 1.0})
        run.record_metrics({"loss": 0.5})
    testing.check_same_run(one, other)
    other.append({"step": 2, "loss": 0.5, "seconds": 1.0})
    with pytest.raises(AssertionError, match="the histories differ"):
        testing.check_same_run(one, other)
    one.append({"step": 2, "loss": 0.5, "seconds": 3.0})
    testing.check_same_run(one, other)  # time is no part of a run
    other.record_metrics({"loss": 0.6})
    with pytest.raises(AssertionError, match=r"metrics\.json differs"):
        testing.check_same_run(one, other)
    (other.path / "more").write_text("")
    with pytest.raises(AssertionError, match="hold other files"):
        testing.check_same_run(one, other)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "Feedforward/x"}, "a name is area/topic"),
        ({"name": "x"}, "a name is area/topic"),
        ({"summary": "two\nlines"}, "the summary is one line"),
        ({"summary": ""}, "the summary is one line"),
        ({"reference": "Nobody 1900"}, "is no reference"),
        ({"reference": "Nobody, Section 1"}, "is no reference"),
        ({"covers": ("Bad Name",)}, "are no identifiers"),
    ],
)
def test_a_row_that_is_malformed_is_refused(given: dict, message: str) -> None:
    testing.check_row(entry())
    with pytest.raises(AssertionError, match=message):
        testing.check_row(replace(entry(), **given))


def test_a_path_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(AttributeError, match="Gone"):
        testing.check_row(entry("Gone"))
    with pytest.raises(AssertionError, match="a part says where it is from"):
        testing.check_row(Part(name="a/b", summary="?", kind="layer", target="torch.nn:GELU", reference=""))


@pytest.mark.parametrize(
    ("ask", "needs", "message"),
    [
        ("wrong", (), "its demonstration is violated"),
        ("fickle", (), "answers differently when asked again"),
        ("right", (catalog.Need("the moon", "crooked:never"),), "does not apply to its own demonstration"),
    ],
)
def test_a_claim_that_breaks_a_contract_is_refused(ask: str, needs: tuple, message: str) -> None:
    testing.check_claim(claim("right"))
    with pytest.raises(AssertionError, match=message):
        testing.check_claim(claim(ask, needs=needs))


@pytest.mark.parametrize("ask", ["careless", "grasping"])
def test_a_question_that_leaves_a_trace_is_refused(ask: str) -> None:
    subject = Subject(
        model=nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval(),
        test=[Batch((torch.zeros(2, 2),), torch.tensor([0, 1]))],
        task=CLASSES,
        objective=risk(CLASSES),
    )
    testing.check_question(claim("right"), subject)
    with pytest.raises(AssertionError, match="leaves a trace"):
        testing.check_question(claim(ask), subject)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unit": ""}, "no unit"),
        ({"value": torch.tensor(11.0)}, "outside its range"),
        ({"range": (1.0, 1.0)}, "outside its range"),
        ({"reference": "somewhere"}, "no reference"),
        ({"premises": (Premise("draws are independent", "assumed", ""),)}, "premises without evidence"),
    ],
)
def test_a_finding_that_is_incomplete_is_refused(given: dict, message: str) -> None:
    whole = Finding(
        statement="The value.",
        value=torch.tensor(0.5),
        unit="1",
        range=(0.0, 10.0),
        premises=(Premise("draws are independent", "assumed", "as the user says"),),
        reference=REFERENCE,
    )
    testing.check_finding(whole)
    with pytest.raises(AssertionError, match=message):
        testing.check_finding(replace(whole, **given))


def test_batches_of_another_type_are_refused() -> None:
    part = classes().splits["train"]
    batch = Batch((part.inputs[0].double(),), part.targets)
    given = {"test": [batch], "task": CLASSES, "objective": risk(CLASSES)}
    testing.check_subject(Subject(model=nn.Linear(2, 3).double(), **given))
    with pytest.raises(
        AssertionError, match=r"the model is torch\.float32, its inputs are \[torch\.float64\]"
    ):
        testing.check_subject(Subject(model=nn.Linear(2, 3), **given))
