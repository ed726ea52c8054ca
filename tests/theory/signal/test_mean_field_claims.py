"""Predicted lengths and gradients of wide random networks against measured ones, and what is refused."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.mlp.model import MLP
from margin.theory.signal.mean_field import chi, next_length
from margin.theory.signal.mean_field_claims import (
    demo,
    deviations,
    gradient_growth,
    is_random_net,
    lengths,
    predict,
)
from margin.theory.signal.path import chain_of
from margin.vision.convnets.lenet5 import LeNet5


def drawn(widths, activation, sigma_w, sigma_b, seed):
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for taken, given in pairwise(widths):
        layer = nn.Linear(taken, given)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(given, taken, generator=generator) * sigma_w / taken**0.5)
            layer.bias.copy_(torch.randn(given, generator=generator) * sigma_b)
        layers += [layer, activation]
    return nn.Sequential(*layers[:-1])


def subject_of(model, features=20, examples=32, seed=5, **more):
    x = torch.randn(examples, features, generator=torch.Generator().manual_seed(seed))
    batch = Batch((x,), torch.arange(examples) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES), **more)


@pytest.mark.parametrize("ask", [lengths, gradient_growth])
def test_the_demonstration_holds(ask):
    finding = ask(demo())
    assert finding.verdict == Verdict.HOLDS
    assert len(finding.value) == 4
    assert float((finding.value - 1).abs().max()) < 0.05


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("activation", "sigma_w", "sigma_b"),
    [(nn.Tanh(), 0.8, 0.1), (nn.Tanh(), 2.5, 0.0), (nn.ReLU(), math.sqrt(2), 0.0), (nn.GELU(), 1.5, 0.5)],
)
def test_wide_networks_follow_the_prediction_whatever_the_widths(activation, sigma_w, sigma_b, seed):
    model = drawn((20, 600, 400, 600, 3), activation, sigma_w, sigma_b, seed)
    # fluctuations of the mean square over 400 units at a depth of 3 are about 0.1 at one deviation for ReLU
    for ask in (lengths, gradient_growth):
        assert float((ask(subject_of(model)).value - 1).abs().max()) < 0.45
    wide = drawn((20, 3000, 2000, 3), activation, sigma_w, sigma_b, seed)
    assert float((lengths(subject_of(wide)).value - 1).abs().max()) < 0.15


def test_the_prediction_reads_weights_alone_and_is_the_map():
    model = drawn((4, 7, 5, 3), nn.Tanh(), 1.3, 0.2, 0)
    stages = chain_of(model, (torch.zeros(2, 4),))
    first = torch.tensor([0.5, 2.0], dtype=torch.float64)
    found = predict(stages, first)
    (w1, b1), (w2, b2), (w3, _) = (deviations(stage.layer) for stage in stages)
    assert w1 == pytest.approx(math.sqrt(4 * float(model[0].weight.detach().double().square().mean())))
    q1 = w1**2 * first + b1**2
    q2 = next_length(torch.tanh, q1, w2, b2)
    torch.testing.assert_close(found.lengths, torch.stack((q1, q2)))
    factors = torch.stack((chi(torch.tanh, q1, w2), chi(torch.tanh, q2, w3)))
    torch.testing.assert_close(found.factors, factors)


def test_a_linear_network_of_orthogonal_weights_is_exact():
    # lengths and gradients pass an orthogonal map unchanged: both predictions are equalities
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16, bias=False).double() for _ in range(4)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
    subject = subject_of(nn.Sequential(*layers), 16)
    subject = replace(subject, test=[subject.test[0].to(dtype=torch.float64, device="cpu")])
    for ask in (lengths, gradient_growth):
        torch.testing.assert_close(ask(subject).value, torch.ones(3).double(), rtol=1e-12, atol=0)
        assert ask(subject).verdict == Verdict.HOLDS


def test_the_start_is_asked_where_it_is_known_and_the_end_drawn_beside():
    start, end = (drawn((20, 300, 300, 3), nn.Tanh(), s, 0.1, 1) for s in (1.0, 3.0))
    finding = lengths(subject_of(end, initial=start))
    assert "the network that training began with" in finding.statement
    torch.testing.assert_close(finding.value, lengths(subject_of(start)).value)
    after = finding.curves["after training"] / finding.curves["measured"]
    assert bool((after > 3).all())
    assert finding.premises[0].status == "sampled"
    assert lengths(subject_of(end)).premises[0].status == "assumed"


def test_weights_of_another_mean_are_no_such_draws():
    start = drawn((20, 300, 300, 3), nn.Tanh(), 1.0, 0.1, 1)
    with torch.no_grad():
        start[2].weight.add_(0.01)
    finding = lengths(subject_of(start, initial=start.eval()))
    assert finding.premises[0].status == "assumed"  # the same object: nothing tells start from end
    other = drawn((20, 300, 300, 3), nn.Tanh(), 1.0, 0.1, 2)
    finding = lengths(subject_of(other, initial=start))
    assert finding.verdict == Verdict.UNFOUNDED
    assert "layer '2' lies" in finding.premises[0].evidence


def test_a_narrow_network_is_measured_not_violated():
    found = [lengths(subject_of(drawn((20, 3, 3, 3), nn.Tanh(), 2.0, 0.0, seed))) for seed in range(5)]
    assert {finding.scope for finding in found} == {"limit"}
    assert Verdict.MEASURED in {finding.verdict for finding in found} <= {Verdict.MEASURED, Verdict.HOLDS}


def test_nothing_that_passes_and_what_is_not_finite_fail():
    model = drawn((20, 30, 30, 3), nn.ReLU(), 1.0, 0.0, 0)
    with torch.no_grad():
        model[2].weight.zero_()
    assert lengths(subject_of(model)).failure == "a prediction is 0: nothing passes"
    with torch.no_grad():
        model[2].weight[0, 0] = math.inf
    for ask in (lengths, gradient_growth):
        assert ask(subject_of(model)).verdict == Verdict.FAILED
        assert ask(subject_of(model)).failure == "a length or a gradient is not finite"
    with pytest.raises(ValueError, match="examples must be at least 1: got 0"):
        lengths(demo(), examples=0)


@pytest.mark.parametrize(
    ("model", "shape", "is_one"),
    [
        (MLP(4, 3), (2, 4), True),
        (MLP(4, 3, dropout=0.5), (2, 4), True),
        (MLP(4, 3, norm="batch"), (2, 4), False),
        (nn.Linear(4, 3), (2, 4), False),
        (MLP(12, 3), (2, 3, 4), True),
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), (2, 3, 4), False),
        (LeNet5(1, 10), (2, 1, 8, 8), False),
    ],
)
def test_it_is_asked_only_of_chains_on_rows(model, shape, is_one):
    subject = replace(subject_of(model), test=[Batch((torch.zeros(shape),))])
    assert is_random_net(subject) == is_one


@pytest.mark.parametrize("ask", [lengths, gradient_growth])
def test_an_objective_that_asks_twice_fails_with_words(ask):
    def twice(model, batch, generator):
        return model(*batch.inputs).square().sum(1) + (2 * model(*batch.inputs)).sum(1)

    subject = replace(subject_of(drawn((20, 30, 30, 3), nn.Tanh(), 1.5, 0.3, 0)), objective=twice)
    found = ask(subject)
    assert found.verdict == Verdict.FAILED
    assert found.failure == "the objective must run the model once: it ran it 2 times"
