"""Regions of a subject: counts, bounds, premises, and where the question makes no sense or has no answer."""

import dataclasses
import math
import time

import pytest
import torch
from torch import nn

from margin.auditing.asking.side_effects import Snapshot
from margin.core.catalog import claims
from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import BINARY, CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.mlp.model import MLP
from margin.theory.regions.arrangements import product_bound
from margin.theory.regions.claims import (
    can_be_followed,
    demo,
    in_plane,
    is_piecewise_linear,
    on_segments,
    possible,
    segments_demo,
)
from margin.theory.regions.followed import follow
from margin.theory.regions.plane import ROOM, square_through

ASKED = [in_plane, possible, on_segments]


def subject_of(model=None, n=20, dim=5, task=CLASSES, targets=None, seed=0, **more):
    torch.manual_seed(seed)
    model = MLP(dim, 3, hidden=(8, 6)) if model is None else model
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, dim, generator=generator)
    y = torch.randint(3, (n,), generator=generator) if targets is None else targets
    return Subject(model=model, test=[Batch((x,), y)], task=task, objective=risk(task), **more)


def test_the_demonstration_has_44_regions_as_montufar_says():
    found = in_plane(demo())
    assert found.value.tolist() == [44, 44] and float(found.high) == 121
    assert found.verdict == Verdict.HOLDS
    some = possible(demo())
    assert float(some.value) == float(some.low) == 44 and some.scope == "exists"
    assert some.verdict == Verdict.HOLDS


def test_four_kinks_between_0_and_1_are_four_breakpoints():
    found = on_segments(segments_demo())
    assert found.value.tolist() == [4, 4] and float(found.high) == 4
    assert found.verdict == Verdict.HOLDS


def test_any_classifier_is_counted_beneath_its_bound():
    found = in_plane(subject_of())
    assert found.verdict == Verdict.HOLDS
    assert 1 < found.value[1] <= found.value[0] <= float(found.high) == product_bound(2, [8, 6])
    assert [p.status for p in found.premises] == ["proved", "proved"]
    assert "layers.layers.2" in found.premises[0].evidence or "layers.2" in found.premises[0].evidence
    # An existence statement is never violated: a small network lies far below.
    some = possible(subject_of())
    assert float(some.value) < float(some.low) and some.verdict == Verdict.MEASURED


def test_a_bound_that_is_too_low_would_be_violated():
    found = in_plane(subject_of())
    wrong = dataclasses.replace(found, high=found.value[0] - 1)
    assert wrong.verdict == Verdict.VIOLATED
    equal = dataclasses.replace(found, high=found.value[0])
    assert equal.verdict == Verdict.HOLDS


@pytest.mark.parametrize("ask", ASKED)
def test_a_smooth_layer_refutes_the_premise_by_name(ask):
    found = ask(subject_of(MLP(5, 3, activation="tanh")))
    assert found.verdict == Verdict.UNFOUNDED
    (refuted,) = [p for p in found.premises if p.status == "refuted"]
    assert "layer 'layers.2' (Tanh) is not piecewise linear" in refuted.evidence
    found.as_json()


@pytest.mark.parametrize("ask", ASKED)
def test_what_cannot_be_followed_or_is_not_finite_fails_with_words(ask):
    class Odd(nn.Linear):
        def forward(self, x):
            return torch.einsum("bi,oi->bo", x, self.weight)

    found = ask(subject_of(Odd(5, 3)))
    assert found.verdict == Verdict.FAILED and "cannot be followed: einsum" in found.failure
    broken = MLP(5, 3)
    with torch.no_grad():
        broken.layers[1].weight[0, 0] = math.nan
    found = ask(subject_of(broken))
    assert found.verdict == Verdict.FAILED and "not finite" in found.failure
    found.as_json()


def test_more_regions_than_the_budget_are_not_asked_for(monkeypatch):
    for ask in (in_plane, possible):
        with pytest.raises(NotAsked, match=r"^there are more than 5 regions: no more are counted$"):
            ask(subject_of(), budget=5)
    monkeypatch.setattr("margin.theory.regions.plane.MEMORY", 8 * 20)
    with pytest.raises(NotAsked, match="than fit in memory"):
        in_plane(subject_of())


def test_a_convolutional_net_of_many_regions_costs_little_and_is_no_failure():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, padding=1),
        torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 5),
    ).eval()  # fmt: skip
    x = torch.rand(9, 1, 8, 8)
    batch = Batch((x,), torch.arange(9) % 5)
    subject = Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
    start = time.process_time()
    with pytest.raises(NotAsked):
        in_plane(subject)
    assert time.process_time() - start < 20  # a minute and 5 GB, were there no cap


def test_breakpoints_now_and_at_initialization():
    torch.manual_seed(5)
    initial = MLP(5, 3, hidden=(8, 6))
    found = on_segments(subject_of(initial=initial))
    assert found.labels == ("mean, now", "most, now", "mean, at initialization", "most, at initialization")
    alone, before = on_segments(subject_of()), on_segments(subject_of(initial))
    assert found.value.tolist() == [*alone.value.tolist(), *before.value.tolist()]
    assert float(found.high) == 9 * 7 - 1 and found.verdict == Verdict.HOLDS
    assert [p.status for p in found.premises] == ["proved"]
    assert set(found.curves) == {"share of segments", "breakpoints now", "breakpoints at initialization"}
    with pytest.raises(ValueError, match="at least 1: got 0"):
        on_segments(subject_of(), segments=0)


def test_an_affine_model_is_one_region():
    found = in_plane(subject_of(nn.Linear(5, 3)))
    assert found.value.tolist() == [1, 1] and float(found.high) == 1 and found.verdict == Verdict.HOLDS
    assert on_segments(subject_of(nn.Linear(5, 3))).value.tolist() == [0, 0]
    assert possible(subject_of(nn.Linear(5, 3))).verdict == Verdict.MEASURED


def test_the_square_holds_its_three_examples_and_they_differ_in_class():
    # The first examples are of one class: others are looked for.
    subject = subject_of(targets=torch.tensor([0, 0, 0, 0, 2, 2, 2, 1, 1, 0] * 2))
    square = square_through(subject)
    assert square.examples == (0, 4, 7)
    (batch,) = subject.test
    chosen = list(square.examples)
    assert len(set(batch.targets[chosen].tolist())) == 3
    u, v = square.points.T[:, :, None]
    placed = square.origin + u * square.first + v * square.second
    torch.testing.assert_close(placed, batch.inputs[0][chosen].double(), rtol=0, atol=1e-6)
    assert float(square.points.abs().max()) == pytest.approx(1 / ROOM, abs=1e-12)
    assert float(square.first.norm()) == pytest.approx(float(square.second.norm()), abs=1e-12)
    assert abs(float(square.first @ square.second)) < 1e-9


def test_the_square_of_a_file_sorted_by_class_has_three_classes():
    # 700 of each of three classes: the first 512 of the file are of one.
    x = torch.randn(2100, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(2100) // 700
    test = [Batch((a,), b) for a, b in zip(x.split(300), labels.split(300), strict=True)]
    square = square_through(dataclasses.replace(subject_of(), test=test))
    assert sorted(square.labels.tolist()) == [0, 1, 2]
    assert labels[list(square.examples)].tolist() == square.labels.tolist()
    u, v = square.points.T[:, :, None]
    placed = square.origin + u * square.first + v * square.second
    torch.testing.assert_close(placed, x[list(square.examples)].double(), rtol=0, atol=1e-6)


def test_examples_that_span_no_plane_fail_with_words():
    line = torch.arange(4.0)[:, None] * torch.ones(5)
    for x, words in ((line, "lie on a line"), (torch.ones(4, 5), "the same point")):
        subject = subject_of()
        subject = dataclasses.replace(subject, test=[Batch((x,), torch.arange(4) % 3)])
        found = in_plane(subject)
        assert found.verdict == Verdict.FAILED and words in found.failure
    assert "the same point" in on_segments(subject).failure


def test_a_filler_is_no_example():
    (batch,) = subject_of().test
    weight = torch.ones(20)
    weight[3:] = 0
    x = batch.inputs[0].clone()
    x[3:] = math.nan
    padded = dataclasses.replace(subject_of(), test=[Batch((x,), batch.targets, weight)])
    alone = dataclasses.replace(subject_of(), test=[Batch((x[:3],), batch.targets[:3])])
    assert in_plane(padded).value.tolist() == in_plane(alone).value.tolist()
    assert on_segments(padded).value.tolist() == on_segments(alone).value.tolist()


@pytest.mark.parametrize("task", [BINARY, VALUES])
def test_a_single_output_and_real_values_are_pictured(task):
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = MLP(5, 1, hidden=(8,))

        def forward(self, x):
            return self.layers(x)[:, 0]

    targets = torch.arange(20) % 2 if task is BINARY else torch.randn(20)
    found = in_plane(subject_of(Single(), task=task, targets=targets))
    assert found.verdict == Verdict.HOLDS
    kinds = set(found.curves["region classes"].tolist())
    assert kinds <= ({0, 1} if task is BINARY else {-1})


@pytest.mark.parametrize("ask", ASKED)
def test_asking_leaves_no_trace_and_says_the_same_again(ask):
    subject = subject_of(initial=MLP(5, 3, hidden=(8, 6)))
    subject.model.train()
    before = Snapshot.of(subject)
    first, second = ask(subject), ask(subject)
    assert before.difference(subject) == "" or not before.difference(subject)
    assert first.as_json() == second.as_json()
    assert subject.model.training and not any(m._forward_hooks for m in subject.model.modules())


def test_it_is_asked_of_models_of_one_real_input():
    row = claims()["theory/regions.in_plane"]
    assert row.refusal(subject_of()) == ""
    ids = dataclasses.replace(subject_of(), test=[Batch((torch.zeros(3, 4, dtype=torch.long),), None)])
    for name in ("theory/regions.in_plane", "theory/regions.on_segments"):
        assert claims()[name].refusal(ids) == "inputs are tokens"
    two = dataclasses.replace(subject_of(), test=[Batch((torch.zeros(3, 4), torch.zeros(3, 4)), None)])
    assert row.refusal(two) == "has 2 inputs: it needs one input of real numbers"
    tanh = subject_of(MLP(5, 3, activation="tanh"))
    assert row.refusal(tanh) == "layer 'layers.2' (Tanh) is not piecewise linear: tanh"


@pytest.mark.parametrize("name", ["theory/regions.in_plane", "theory/regions.possible"])
def test_inputs_of_one_number_have_no_plane_and_what_is_no_number_is_told(name):
    row = claims()[name]
    narrow = dataclasses.replace(subject_of(), test=[Batch((torch.randn(9, 1),), torch.arange(9) % 3)])
    few = dataclasses.replace(subject_of(), test=[Batch((torch.randn(2, 5),), torch.arange(2))])
    for subject in (narrow, few):
        assert row.refusal(subject) == "needs three held-out examples that span a plane of real inputs"
    (batch,) = subject_of().test
    x = batch.inputs[0].clone()
    x[3, 1] = math.nan
    broken = dataclasses.replace(subject_of(), test=[batch._replace(inputs=(x,))])
    assert row.refusal(broken) == ""
    for ask in (in_plane, possible):
        assert ask(broken).failure == "a held-out input is not finite"


def test_a_single_class_is_pictured():
    found = in_plane(subject_of(MLP(5, 1, hidden=(8,)), targets=torch.zeros(20).long()))
    assert found.verdict == Verdict.HOLDS
    assert set(found.curves["region classes"].tolist()) == {0}


class Reading(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(6, 3)

    def forward(self, x):
        found = self.layer(x)
        return self.out((found[0] if isinstance(found, tuple) else found).mean(1))


@pytest.mark.parametrize("ask", ASKED)
@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (nn.LSTM(6, 6, batch_first=True), "LSTM"),
        (nn.GRU(6, 6, batch_first=True), "GRU"),
        (nn.TransformerEncoderLayer(6, 2, 12, batch_first=True), "MultiheadAttention"),
    ],
)
def test_recurrence_and_attention_refute_the_premise(ask, layer, kind):
    x = torch.randn(9, 4, 6, generator=torch.Generator().manual_seed(0))
    subject = dataclasses.replace(subject_of(Reading(layer)), test=[Batch((x,), torch.arange(9) % 3)])
    found = ask(subject)
    assert found.verdict == Verdict.UNFOUNDED
    assert f"({kind}) is not piecewise linear" in found.premises[0].evidence


def test_of_a_network_of_many_kinks_fewer_segments_are_followed_and_it_is_said(monkeypatch):
    monkeypatch.setattr("margin.theory.regions.claims.MOST_VALUES", 1)
    few, four = on_segments(subject_of()), on_segments(subject_of(), segments=4)
    assert few.sample == "4 segments" and "between 4 pairs" in few.statement
    assert not four.sample
    counts = few.curves["breakpoints now"]
    assert len(counts) == 4 and few.value.tolist() == [counts.mean().item(), counts.max().item()]


def test_whether_it_applies_is_found_out_once_of_one_example_in_the_models_own_type(monkeypatch):
    """Two in float64 took 2 GiB of a segmentation of 512 x 512 pixels."""
    seen = []

    def noted(model, points, mesh):
        seen.append((points.dtype, len(points), next(model.parameters()).dtype))
        return follow(model, points, mesh)

    monkeypatch.setattr("margin.theory.regions.claims.follow", noted)
    asked = subject_of(nn.Sequential(nn.ReLU(), nn.Linear(5, 2)).float())
    (batch,) = asked.test
    asked = dataclasses.replace(asked, test=[Batch((batch.inputs[0].float(),), batch.targets)])
    x = asked.test[0].inputs[0]
    before = x.clone()
    assert is_piecewise_linear(asked) and can_be_followed(asked)
    assert seen == [(torch.float32, 1, torch.float32)]  # once for both
    with torch.no_grad():
        asked.model[1].weight += 1
    assert can_be_followed(asked) and len(seen) == 2  # of other weights anew
    assert torch.equal(x, before)  # a rectifier that is first overwrites nothing


def test_a_forward_that_divides_by_zero_is_asked_and_told_by_the_finding():
    class Divides(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (1 // 0 if type(x) is not torch.Tensor else 1)

    asked = subject_of(Divides(5, 2).double())
    assert is_piecewise_linear(asked) and can_be_followed(asked)
    assert "by zero" in on_segments(asked).failure


def test_a_segment_that_does_not_fit_in_memory_is_not_asked(monkeypatch):
    monkeypatch.setattr("margin.theory.regions.segments.MEMORY", 8)
    with pytest.raises(NotAsked, match="do not fit in memory"):
        on_segments(subject_of())


def test_the_layer_that_cannot_be_followed_is_named_where_the_question_does_not_apply():
    model = nn.Sequential(nn.Unflatten(1, (1, 1, 5)), nn.MaxPool2d((1, 2), dilation=(1, 2)), nn.Flatten())
    asked = subject_of(nn.Sequential(*model, nn.Linear(2, 3)))
    for name in ("theory/regions.in_plane", "theory/regions.possible", "theory/regions.on_segments"):
        refusal = claims()[name].refusal(asked)
        assert refusal == "layer '1' (MaxPool2d) cannot be followed: max_pool2d with dilation or indices"
    assert not claims()[name].refusal(subject_of(MLP(5, 3)))
