import pytest
import torch
from torch import nn

import margin
from margin.auditing.asking.answers import ask
from margin.core.catalog import claims
from margin.core.findings import Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.theory.behavior import label_order as order_of
from margin.theory.behavior.claims import demo, watched
from margin.theory.prediction.held_out import stated

NAMES = ("random", "mates", "buffers", "overwrites", "mode", "finite")
X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def behavior(model, data=(X, Y), **options):
    """The findings by name, or why there is none; the whole audit beside them."""
    audit = margin.audit(model, data, claims=[f"behavior.{n}" for n in NAMES], **options)
    assert not [a.broken for a in audit.answers if a.broken]
    return {a.claim.name.partition(".")[2]: a.finding or a.absence for a in audit.answers}


def net(*between):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), *between, nn.Linear(8, 2)).eval()


class Around(nn.Module):
    def __init__(self, change=None):
        super().__init__()
        self.inner, self.change = net(), change
        self.register_buffer("calls", torch.zeros(()))
        self.eval()

    def forward(self, x):
        return self.inner(self.change(x))


class Dropping(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


class Batched(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Shifting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.zeros(8))

    def forward(self, x):
        y = x + self.shift
        self.shift += 0.1
        return y


class Counting(Shifting):
    def forward(self, x):
        self.shift += 1
        return x


class Recalling(nn.Module):
    last = None

    def forward(self, x):
        before, self.last = self.last, x.detach()
        return x if before is None else x + before.mean()


class Breaking(nn.Module):
    def forward(self, x):
        return torch.where(x[:, :1] > 0.8, x.log(), x)


def first(model, name, data=(X, Y)):
    found = behavior(model, data)
    for other in NAMES:
        if other not in (name, "mode") and not isinstance(found[other], str):
            assert found[other].verdict is not Verdict.VIOLATED, other
    return found[name]


def test_a_sound_network_holds_them_all():
    for found in (behavior(net(nn.BatchNorm1d(8), nn.Dropout())), behavior(net(), (X.double(), Y))):
        assert {n: str(f.verdict) for n, f in found.items() if n != "mode"} == dict.fromkeys(
            ("random", "mates", "buffers", "overwrites", "finite"), "holds"
        )
        assert found["mode"].value == 0
    answers = ask(demo(), [claims()[f"theory/behavior.{n}"] for n in NAMES]).answers
    assert all(a.finding is not None for a in answers)


def test_dropout_that_is_always_on_is_named_and_every_number_says_so():
    found = first(net(Dropping()), "random")
    assert found.verdict is Verdict.VIOLATED and found.value > 0.5
    assert "layer '2' (Dropping)" in found.statement
    audit = margin.audit(net(Dropping()), (X, Y), claims="risk.accuracy")
    (accuracy,) = audit.findings.values()
    assert any("draws at random" in line for line in accuracy.remarks)
    assert not margin.audit(net(), (X, Y), claims="risk.accuracy").findings["theory/risk.accuracy"].remarks


def test_noise_in_the_models_own_forward_is_its_own():
    found = first(Around(lambda x: x + torch.randn_like(x)), "random")
    assert found.verdict is Verdict.VIOLATED and "the model's own forward (Around)" in found.statement


def test_a_layer_that_reads_the_batch_is_named():
    for layer, name in (
        (Batched(), "Batched"),
        (nn.BatchNorm1d(8, track_running_stats=False), "BatchNorm1d"),
    ):
        found = first(net(layer), "mates")
        assert found.verdict is Verdict.VIOLATED and f"layer '2' ({name})" in found.statement


def test_a_buffer_on_which_answers_depend_is_named_and_a_counter_is_not_blamed():
    found = first(net(Shifting()), "buffers")
    assert found.verdict is Verdict.VIOLATED and "layer '2' (Shifting)" in found.statement
    assert found.remarks == ("forward writes buffer '2.shift', on which its answers depend",)
    found = first(net(Counting()), "buffers")
    assert found.verdict is Verdict.HOLDS
    assert found.remarks == ("forward writes buffer '2.shift', on which its answers do not depend",)
    found = first(net(Recalling()), "buffers")
    assert found.verdict is Verdict.VIOLATED and "layer '2' (Recalling)" in found.statement


def test_a_model_that_draws_is_not_blamed_for_its_batch_or_memory():
    found = behavior(net(Dropping()))
    for name in ("mates", "buffers"):
        assert found[name].startswith("not asked: the model draws at random")


def test_an_input_that_is_overwritten_is_told_with_the_layer_that_does():
    kept = X.clone()
    found = first(nn.Sequential(nn.ReLU(inplace=True), net()), "overwrites")
    assert found.verdict is Verdict.VIOLATED
    assert found.value.item() == (X[:16] < 0).any(1).double().mean().item()
    assert "layer '0' (ReLU)" in found.statement and torch.equal(X, kept)
    own = first(Around(lambda x: x.mul_(2)), "overwrites")
    assert own.verdict is Verdict.VIOLATED and "the model's own forward (Around)" in own.statement
    assert first(net(nn.ReLU(inplace=True)), "overwrites").verdict is Verdict.HOLDS
    positive = first(nn.Sequential(nn.ReLU(inplace=True), net()), "overwrites", (X.abs(), Y))
    assert positive.value == 0


def test_a_model_left_in_training_mode_is_said_with_the_layer():
    for layer in (nn.Dropout(0.5), nn.BatchNorm1d(8)):
        found = behavior(net(layer).train())["mode"]
        assert found.value == 1 and f"layer '2' ({type(layer).__name__})" in found.statement
        assert any("eval()" in line for line in found.remarks)
    assert behavior(net().train())["mode"].value == 0


class Pixels(nn.Module):
    """65,536 numbers and more a row, of which the second half are dropped at random."""

    def __init__(self, size):
        super().__init__()
        self.wide, self.drop, self.narrow = nn.Linear(4, size), Dropping(), nn.Linear(size, 2)

    def forward(self, x):
        return self.narrow(self.drop(self.wide(x).relu()))


@pytest.mark.parametrize("size", [2**16, 2**18])
def test_of_a_layer_of_a_large_image_65536_numbers_of_a_row_are_watched(size):
    """The layer is named all the same, and no copy of what a layer returns is larger."""
    torch.manual_seed(0)
    model = Pixels(size).eval()
    with torch.no_grad():
        seen = watched(model, (X[:4],))
    assert max(x[0].numel() for call in seen for x in call.outputs) == 2**16
    assert [call.path for call in seen] == ["wide", "drop", "narrow", ""]
    found = behavior(model)["random"]
    assert found.value == 1
    assert "layer 'drop' (Dropping)" in found.statement


def test_rows_that_are_no_numbers_are_counted_and_named_with_the_layer():
    model = nn.Sequential(nn.Linear(4, 8), Breaking(), nn.Linear(8, 2)).eval()
    bad = (~model(X).isfinite()).any(1)
    found = first(model, "finite")
    assert found.verdict is Verdict.VIOLATED and 0 < int(bad.sum()) < 40
    assert found.value.item() == pytest.approx(bad.double().mean().item())
    rows = ", ".join(map(str, bad.nonzero().flatten()[:5].tolist()))
    assert f"the first of index {rows}, by layer '1' (Breaking)" in found.statement


def test_a_class_that_is_ruled_out_is_a_number_and_an_infinite_value_is_none():
    z = torch.tensor([[0.0, -torch.inf], [1.0, 2.0], [3.0, torch.inf], [-torch.inf, -torch.inf]])
    find = claims()["theory/behavior.finite"]
    (found,) = ask(stated(z, torch.tensor([0, 1, 1, 0]), task=CLASSES), [find]).findings.values()
    assert found.value == 0.5
    (found,) = ask(stated(z[:, 1], torch.zeros(4), task=VALUES), [find]).findings.values()
    assert found.value == 0.75


def test_parts_of_an_output_and_several_inputs_are_watched():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net(Dropping())

        def forward(self, a, b):
            z = self.inner(a + b)
            return {"hidden": z.mean(), "logits": z}

    found = behavior(Two().eval(), ((X, X), Y))
    assert "layer 'inner.2' (Dropping)" in found["random"].statement


def test_predictions_alone_have_no_behavior_but_may_be_no_numbers():
    p = torch.rand(20, 2).softmax(1)
    audit = margin.audit(predictions=p, targets=torch.arange(20) % 2, claims="behavior.*")
    lines = {a.claim.name.partition(".")[2]: a.absence for a in audit.answers}
    assert lines["random"] == "does not apply: needs a model: predictions alone are given"
    assert lines["finite"] == ""


def ordered(scores, labels):
    (found,) = ask(stated(scores, labels), [claims()["theory/behavior.label_order"]]).findings.values()
    return found


@pytest.mark.parametrize("count", [2, 3])
def test_an_order_is_not_judged_on_so_few_that_they_have_no_standard_error(count):
    labels = torch.arange(4)
    few = stated(nn.functional.one_hot(labels[:count], 4).double(), labels[:count])
    audit = ask(few, [claims()["theory/behavior.label_order"]])
    assert f"half of at least 4 examples: there are {count}" in audit.answers[0].absence
    assert ordered(nn.functional.one_hot(labels, 4).double(), labels).verdict is Verdict.HOLDS


def test_labels_in_another_order_are_named():
    labels = torch.randint(4, (400,), generator=torch.Generator().manual_seed(1))
    cycle = torch.tensor([1, 2, 3, 0])  # the model's class k is called k + 1 in the data
    scores = nn.functional.one_hot(labels, 4).double()
    found = ordered(scores, cycle[labels])
    assert found.verdict is Verdict.VIOLATED and found.value == 1
    assert "it is 0; in that order the model's 0 for 1, 1 for 2, 2 for 3, 3 for 0" in found.statement
    assert ordered(scores, labels).verdict is Verdict.HOLDS
    weak = scores + torch.randn(400, 4, generator=torch.Generator().manual_seed(2)).double()
    assert ordered(weak, labels).value == 0 and ordered(weak, labels).verdict is Verdict.HOLDS


def test_the_best_order_is_the_best_of_all_orders():
    from itertools import permutations

    matrix = torch.rand(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    best = max(permutations(range(5)), key=lambda p: sum(matrix[p[k], k].item() for k in range(5)))
    assert order_of.best_order(matrix).tolist() == list(best)


def test_chance_is_not_taken_for_another_order():
    """Of 60 random models violated is one in 16,000 at most: 4 standard errors."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        scores, labels = torch.randn(60, 5, generator=generator), torch.randint(5, (60,), generator=generator)
        assert ordered(scores, labels).verdict is not Verdict.VIOLATED


def test_alternating_labels_do_not_hide_a_class_from_the_choice():
    labels = torch.arange(80) % 4  # every second example shows two classes alone
    swapped = torch.tensor([0, 3, 2, 1])[labels]
    found = ordered(nn.functional.one_hot(swapped, 4).double(), labels)
    assert found.verdict is Verdict.VIOLATED and "the model's 1 for 3, 3 for 1" in found.statement
