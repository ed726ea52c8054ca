"""Sizes of activations and gradients by hand and by autograd, dead units, and what a track leaves."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.auditing.asking.side_effects import Snapshot
from margin.core.catalog import parts, resolve
from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import State, risk
from margin.feedforward.mlp.model import MLP
from margin.theory.prediction.held_out import Terms, mean_limits
from margin.theory.signal.backpropagation import is_affine_chain, recursion
from margin.theory.signal.mean_field import gradient_growth, is_random_net, lengths
from margin.theory.signal.propagation import activation_track as track
from margin.theory.signal.propagation import (
    activations,
    dead,
    dead_demo,
    dead_units,
    doubling_demo,
    first_batches,
    first_examples,
    gradients,
    has_layers,
    has_rectifiers,
    signal,
)
from margin.theory.signal.symmetry_claims import has_hidden_units, permutation
from margin.vision.convnets.lenet5 import LeNet5


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def subject_of(model, x, targets, task=CLASSES, weight=None, **more):
    return Subject(model=model, test=[Batch((x,), targets, weight)], task=task, objective=risk(task), **more)


# sizes


def test_a_doubling_network_doubles_and_halves():
    found = activations(doubling_demo())
    assert found.value.tolist() == [2, 4, 8, 16]
    assert found.verdict == Verdict.MEASURED
    assert "changes by a factor of 8." in found.statement
    found = gradients(doubling_demo())
    # d(y^2)/dy = 2 y = 32 at the end, twice as much a layer before
    assert found.value.tolist() == [256, 128, 64, 32]
    assert found.curves["depth"].tolist() == [1, 2, 3, 4]


def test_sizes_are_those_of_tensors_and_gradients_taken_by_hand():
    torch.manual_seed(0)
    model = MLP(4, 3, hidden=(6, 5), activation="tanh")
    x, y = randn(7, 4), torch.arange(7) % 3
    found = signal(model, [Batch((x,), y)], risk(CLASSES))
    h, outputs = x, []
    for layer in model.layers:
        h = layer(h)
        outputs.append(h)
    losses = CLASSES.loss(h, y)
    for level, i in zip(found.levels.values(), (1, 3, 5), strict=True):
        torch.testing.assert_close(
            level.activation, outputs[i].detach().double().square().mean(1), rtol=1e-5, atol=0
        )
        for k in range(7):  # each example's own gradient, one at a time
            (g,) = torch.autograd.grad(losses[k], outputs[i], retain_graph=True)
            assert float(level.gradient[k]) == pytest.approx(float(g[k].double().square().mean()), rel=1e-4)
    assert list(found.levels) == ["layers.1", "layers.3", "layers.5"]


def test_the_size_and_its_error_do_not_depend_on_batches():
    torch.manual_seed(0)
    model, x, y = MLP(4, 3), randn(40, 4), torch.arange(40) % 3
    whole = subject_of(model, x, y)
    cut = replace(whole, test=[Batch((x[:33],), y[:33]), Batch((x[33:],), y[33:])])
    for ask in (activations, gradients):
        one, two = ask(whole), ask(cut)
        torch.testing.assert_close(one.value, two.value, rtol=1e-6, atol=0)
        torch.testing.assert_close(one.stderr, two.stderr, rtol=1e-5, atol=0)
        few = ask(whole, examples=10)
        assert "over 10 held-out examples" in few.statement
        torch.testing.assert_close(few.value, ask(cut, examples=10).value)
        assert not torch.equal(few.value, one.value)


def test_of_a_file_sorted_by_class_every_class_wakes_its_units():
    # Unit k answers class k alone: of the first 64 examples all units but one would be dead. Of 64 drawn
    # from 4 equal classes one is missing with probability 4 (3/4)^64 = 4e-8.
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4))
    labels = torch.arange(4).repeat_interleave(250)
    found = dead(subject_of(model, nn.functional.one_hot(labels).float(), labels), examples=64)
    assert found.value.tolist() == [0.0] and "all of 64 held-out examples" in found.statement


def test_the_error_is_that_of_a_root_of_a_mean():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 5), randn(30, 4)
    found = activations(subject_of(model, x, torch.zeros(30).long()))
    squares = model(x).detach().double().square().mean(1)
    root = squares.mean().sqrt()
    assert float(found.value) == pytest.approx(float(root), rel=1e-6)
    assert float(found.stderr) == pytest.approx(float(squares.std() / 30**0.5 / (2 * root)), rel=1e-5)


def test_an_example_counts_by_its_weight_and_not_its_gradient():
    torch.manual_seed(0)
    model, x, y = MLP(4, 3), randn(4, 4), torch.arange(4) % 3
    weight = torch.tensor([2.0, 0.0, 1.0, 1.0])
    weighted = subject_of(model, x, y, weight=weight)
    index = torch.tensor([0, 0, 2, 3])
    for ask in (activations, gradients):
        copied = ask(subject_of(model, x[index], y[index]))
        torch.testing.assert_close(ask(weighted).value, copied.value, rtol=1e-6, atol=0)
    broken = x.clone()
    broken[1] = math.nan  # padding says nothing
    assert bool(activations(subject_of(model, broken, y, weight=weight)).value.isfinite().all())


def test_what_was_at_the_start_is_drawn_beside():
    subject = doubling_demo()
    start = copy.deepcopy(subject.model)
    with torch.no_grad():
        for parameter in start.parameters():
            parameter.div_(4)
    found = activations(replace(subject, initial=start))
    assert found.curves["at the start"].tolist() == [0.5, 0.25, 0.125, 0.0625]
    assert "(when training began: 0.125)" in found.statement
    assert "at the start" not in activations(subject).curves


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.lstm, self.out = nn.Linear(4, 4), nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        x = self.cell(self.cell(x).tanh())
        return self.out(self.lstm(x)[0][:, -1])


def test_any_module_has_a_signal():
    torch.manual_seed(0)
    found = activations(subject_of(Recurrent(), randn(5, 6, 4), torch.arange(5) % 2))
    assert found.labels == ("cell", "cell (2)", "lstm", "out")
    images = subject_of(LeNet5(1, 10), torch.rand(4, 1, 8, 8), torch.arange(4))
    assert len(gradients(images).value) == 5
    encoder = nn.Sequential(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten(), nn.Linear(12, 2)
    )
    found = gradients(subject_of(encoder, randn(5, 3, 4), torch.arange(5) % 2))
    assert "0.self_attn" in found.labels
    assert bool((found.value > 0).all())


def test_an_activation_in_place_does_not_change_what_was_seen():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    other = nn.Sequential(model[0], nn.ReLU(inplace=True), model[2])
    x, y = randn(7, 4), torch.arange(7) % 3
    for ask in (activations, gradients):
        one, two = (ask(subject_of(each, x, y)).value for each in (model, other))
        assert torch.equal(one, two)


def test_frozen_layers_have_a_gradient_too_and_no_trace_is_left():
    model = MLP(4, 3, hidden=(6,), dropout=0.5).train().requires_grad_(False)
    subject = subject_of(model, randn(5, 4), torch.arange(5) % 3)
    before = Snapshot.of(subject)
    assert bool((gradients(subject).value > 0).all())
    dead(subject)
    assert not before.difference(subject)


def test_what_is_not_finite_or_has_no_error_fails_by_name():
    torch.manual_seed(0)
    model = MLP(4, 3, hidden=(6,))
    with torch.no_grad():
        model.layers[1].weight[0, 0] = math.nan
    finding = activations(subject_of(model, randn(5, 4), torch.arange(5) % 3))
    assert finding.verdict == Verdict.FAILED
    assert finding.failure == "the activation of layer 'layers.1' is not finite"
    alone = activations(subject_of(MLP(4, 3), randn(1, 4), torch.zeros(1).long()))
    assert alone.verdict == Verdict.FAILED
    assert alone.failure == "fewer than two examples have a weight above 0: there is no error"
    with pytest.raises(ValueError, match="examples must be at least 2, or there is no error: got 1"):
        gradients(doubling_demo(), examples=1)
    assert not has_layers(subject_of(nn.ReLU(), randn(2, 4), torch.zeros(2).long()))


# dead units


def test_a_unit_is_dead_that_is_0_for_every_example():
    found = dead(dead_demo())
    assert found.value.tolist() == [0.5]
    assert found.labels == ("1: 4 units",)
    assert found.kind == "upper"
    assert found.verdict == Verdict.MEASURED
    assert "2 of 4 rectified units give 0 for all of 4 held-out examples." in found.statement
    # one example more wakes the sleeping unit; the one without weights stays dead
    (batch,) = dead_demo().test
    more = Batch(
        (torch.cat((batch.inputs[0], torch.tensor([[9.0]]).double())),), torch.tensor([0, 0, 1, 1, 1])
    )
    assert dead(replace(dead_demo(), test=[more])).value.tolist() == [0.25]
    # in batches: a unit must be silent in all of them
    halves = [Batch((batch.inputs[0][i : i + 1],), batch.targets[i : i + 1]) for i in range(4)]
    assert dead_units(dead_demo().model, halves)["1"].tolist() == [False, False, True, True]


def test_padding_wakes_nobody_and_nan_is_not_0():
    (batch,) = dead_demo().test
    weight = torch.tensor([1.0, 1.0, 0.0, 0.0])
    silent = dead_units(dead_demo().model, [batch._replace(weight=weight)])["1"]
    assert silent.tolist() == [True, False, True, True]
    x = batch.inputs[0].clone()
    x[0] = math.nan
    assert not bool(dead_units(dead_demo().model, [Batch((x,), batch.targets)])["1"].any())


def test_a_channel_is_dead_where_it_is_0_at_every_place():
    model = nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, -1.0, 1.0]).reshape(3, 1, 1, 1))
        model[0].bias.copy_(torch.tensor([0.0, 0.0, -0.95]))
        model[3].weight.zero_()
        model[3].bias.copy_(torch.tensor([1.0, -1.0]))
    x = torch.tensor([0.0, 0.1, 0.2, 0.3]).reshape(1, 1, 2, 2)
    found = dead_units(model, [Batch((x,))])
    assert found["1"].tolist() == [False, True, True]
    assert found["4"].tolist() == [False, True]
    assert dead_units(model, [Batch((x + 0.7,))])["1"].tolist() == [False, True, False]


def test_units_of_a_sequence_stand_last():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.copy_(torch.tensor([1.0, -1.0, 1.0]))
    assert dead_units(model, [Batch((torch.zeros(4, 5, 2),))])["1"].tolist() == [False, True, False]


def test_without_rectifiers_it_is_not_asked():
    smooth = subject_of(MLP(4, 3, activation="tanh"), randn(2, 4), torch.zeros(2).long())
    assert not has_rectifiers(smooth)
    assert has_rectifiers(dead_demo())
    with pytest.raises(NotAsked, match="no rectifier is run"):
        dead(smooth)


# the track


def test_the_track_follows_a_training_and_leaves_no_trace():
    (batch,) = doubling_demo().test
    state = State({"model": doubling_demo().model.train()})
    subject = doubling_demo()
    before = Snapshot.of(replace(subject, model=state.model))
    rows = track(state, risk(VALUES), [batch])
    assert rows == {"activation_gain": 8, "gradient_gain": 8}
    assert not before.difference(replace(subject, model=state.model))
    (batch,) = dead_demo().test
    rows = track(State({"model": dead_demo().model}), risk(CLASSES), [batch])
    assert rows["dead_share"] == 0.5
    assert resolve(parts()["theory/activations"].target) is track


def test_the_first_examples_are_taken_in_order_across_batches():
    batches = [
        Batch((torch.arange(3.0),), torch.arange(3)),
        Batch((torch.arange(3.0, 6),), torch.arange(3, 6)),
    ]
    taken = first_examples(batches, 4)
    assert torch.cat([batch.inputs[0] for batch in taken]).tolist() == [0, 1, 2, 3]
    assert torch.cat([batch.targets for batch in taken]).tolist() == [0, 1, 2, 3]
    assert len(first_examples(batches, 3)) == 1
    assert [len(batch.targets) for batch in first_batches(batches, 4)] == [3, 3]
    assert [len(batch.targets) for batch in first_batches(batches, 3)] == [3]


class Neighbors(nn.Module):
    """A map of nodes that reads the whole graph."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, adjacency):
        return self.last((adjacency @ self.first(x)).relu())


def test_examples_that_read_each_other_are_not_cut_apart():
    torch.manual_seed(0)
    batch = Batch((randn(6, 3), torch.eye(6)), torch.arange(6) % 2)
    subject = Subject(
        model=Neighbors(), test=[batch], task=CLASSES, objective=risk(CLASSES), independent=False
    )
    assert len(gradients(subject, examples=2).value) == 2
    assert gradients(subject, examples=2).verdict == Verdict.UNFOUNDED  # no error without independence
    for met in (is_affine_chain, is_random_net, has_hidden_units):
        assert not met(subject)


class Reusing(nn.Module):
    """One ReLU that serves behind a layer of 2 units and behind one of 3."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(1, 2), nn.Linear(2, 3), nn.Linear(3, 2)
        self.relu = nn.ReLU()
        with torch.no_grad():
            self.one.weight.copy_(torch.tensor([[1.0], [0.0]]))
            self.one.bias.copy_(torch.tensor([0.0, -1.0]))
            self.two.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))
            self.two.bias.zero_()

    def forward(self, x):
        return self.three(self.relu(self.two(self.relu(self.one(x)))))


def test_a_rectifier_that_serves_twice_has_units_in_each_place():
    model = Reusing()
    batches = [Batch((torch.tensor([[x]]),)) for x in (1.0, -1.0, 2.0)]
    found = dead_units(model, batches)
    assert {name: each.tolist() for name, each in found.items()} == {
        "relu": [False, True],
        "relu (2)": [False, True, True],
    }
    subject = subject_of(model, torch.tensor([[1.0], [2.0]]), torch.arange(2))
    assert dead(subject).statement.startswith("3 of 5 rectified units")


def test_fillers_are_no_examples_even_where_they_are_no_numbers():
    torch.manual_seed(0)
    model, x, labels = MLP(4, 3, hidden=(6,)), randn(8, 4), torch.arange(8) % 3
    x[5:] = math.nan
    weight = (torch.arange(8) < 5).float()
    padded = subject_of(model, x, labels, weight=weight)
    alone = subject_of(model, x[:5], labels[:5], weight=weight[:5])
    for ask in (activations, gradients, lengths, gradient_growth, recursion, permutation):
        assert ask(padded).as_json() == ask(alone).as_json()
    assert "over 5 held-out examples" in activations(padded).statement


def test_weights_that_no_layer_is_asked_for_give_no_signal() -> None:
    """An objective may use a parameter without calling the module that holds it, as PCA's does."""
    from margin.theory.signal.propagation import has_layers

    model = nn.Linear(2, 2)
    x = torch.randn(4, 2)
    batch = Batch((x,), x)

    def reading(model: nn.Module, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        return (batch.inputs[0] @ model.weight - batch.inputs[0]).square().sum(1)

    subject = Subject(model=model, test=[batch], task=VALUES, objective=reading)
    assert not has_layers(subject)
    assert has_layers(replace(subject, objective=lambda m, b, g: m(b.inputs[0]).square().sum(1)))


def test_few_examples_are_looked_at_where_no_more_are_allowed():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    batch = Batch((x,), torch.arange(40) % 2)
    subject = Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES)).drawing(16)
    assert "over 16 held-out examples" in activations(subject).statement
    assert "over 16 held-out examples" in gradients(subject).statement
    assert "for all of 16 held-out examples" in dead(subject).statement


def test_the_limits_of_a_size_are_the_roots_of_those_of_its_square():
    """Of few examples normal limits of the root are too narrow: of 500 samples 91.6 % hold but for 1e-4."""
    model = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 4.0]]))
    generator, held = torch.Generator().manual_seed(0), 0
    for _ in range(500):
        x = torch.randn(10, 2, generator=generator, dtype=torch.float64)
        batch = Batch((x,), torch.zeros(10, 1, dtype=torch.float64))
        found = signal(model, [batch], risk(VALUES))
        low, high = (float(end) for end in found.limits("activation"))
        held += low <= 5 <= high
    squares = (x @ model.weight.detach().T)[:, 0].square()
    ends = mean_limits(Terms(squares, torch.ones(10).double(), torch.arange(10)))
    assert (low, high) == pytest.approx((math.sqrt(ends[0]), math.sqrt(ends[1])))
    assert held / 500 >= 0.916
