"""Batch normalization as weight normalization: white inputs, correlated ones, torch's two layers."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from margin.auditing.asking.side_effects import Snapshot
from margin.core.catalog import claims
from margin.core.findings import Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.feedforward.mlp.model import MLP
from margin.theory.prediction.held_out import stated
from margin.theory.signal import normalization
from margin.theory.signal.normalization import (
    batch_as_weight_norm,
    demo,
    discrepancy,
    has_pairs,
    pairs_of,
)


def f64(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def white(rows, features):
    """Rows whose mean is 0 and whose covariance is the identity, exactly."""
    columns = torch.cat((torch.ones(rows, 1).double(), f64(rows, features)), 1)
    return torch.linalg.qr(columns).Q[:, 1:] * math.sqrt(rows)


def asked(model, x, weight=None):
    subject = stated(x, torch.zeros(len(x)).long(), weight, task=CLASSES)
    return replace(subject, model=model.double())


def pair(inputs=4, units=6):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(inputs, units), nn.BatchNorm1d(units)).double()
    nn.init.normal_(model[1].weight)
    return model


def test_white_inputs_make_both_normalizations_one():
    model, x = pair(), white(40, 4)
    W = model[0].weight
    torch.testing.assert_close(discrepancy(W, torch.eye(4).double()), torch.ones(6).double())
    weight_norm = parametrizations.weight_norm(nn.Linear(4, 6, bias=False)).double()
    weight_norm.weight = W.detach()
    weight_norm.parametrizations.weight.original0.data = model[1].weight[:, None].detach().clone()
    model[1].eps = 1e-30
    torch.testing.assert_close(model.train()(x), weight_norm(x))
    found = batch_as_weight_norm(asked(model, x))
    assert found.verdict == Verdict.HOLDS
    assert "0 1 to 1" in found.statement


def test_correlated_inputs_make_them_differ_by_the_discrepancy():
    model = pair()
    x = f64(50, 4) @ f64(4, 4, seed=1) + 2
    S = torch.cov(x.T, correction=0)
    model[1].eps = 1e-30
    W, gamma = model[0].weight.detach(), model[1].weight.detach()
    factor = torch.stack([w.norm() / (w @ S @ w).sqrt() for w in W])
    torch.testing.assert_close(discrepancy(W, S), factor)
    normed = gamma * ((x - x.mean(0)) @ (W / W.norm(dim=1, keepdim=True)).T)
    torch.testing.assert_close(model.train()(x).detach(), normed * factor)
    assert float((model(x).detach() - normed).abs().max()) > 0.1  # without the factor: not
    # the printed l1 norm, as the damaged notes have it, is another factor
    assert float((W.abs().sum(1) / W.norm(dim=1)).min()) > 1.1


def test_the_claim_holds_on_a_deep_net_with_its_own_statistics():
    torch.manual_seed(0)
    model = MLP(5, 3, hidden=(16, 12), norm="batch", dropout=0.5).train()
    x = f64(80, 5) @ f64(5, 5, seed=1) * 30 + 100
    subject = asked(model, x)
    before = Snapshot.of(subject)
    found = batch_as_weight_norm(subject)
    assert not before.difference(subject)
    assert found.verdict == Verdict.HOLDS
    assert found.labels == ("layers.1", "layers.5")
    assert found.tolerance < 1e-5


def test_it_reads_the_inputs_of_each_layer_and_leaves_out_weight_0():
    torch.manual_seed(0)
    model = MLP(5, 3, hidden=(16, 12), norm="batch").double()
    x, weight = f64(30, 5), torch.ones(30).double()
    weight[20:] = 0
    first, second = pairs_of(asked(model, x, weight))
    torch.testing.assert_close(first.x, x[:20])
    torch.testing.assert_close(second.x, model.eval().layers[:4](x).detach()[:20])


def test_the_training_examples_are_taken_where_they_are_known():
    x = f64(30, 5)
    model = MLP(5, 3, hidden=(8,), norm="batch")
    subject = replace(asked(model, x), train=[Batch((x[:7],)), Batch((x[7:10],))])
    assert len(pairs_of(subject)[0].x) == 10


def test_a_wrong_factor_violates_it(monkeypatch):
    monkeypatch.setattr(
        normalization, "discrepancy", lambda W, S, eps: W.abs().sum(1) / discrepancy(W, S, eps)
    )
    assert batch_as_weight_norm(demo()).verdict == Verdict.VIOLATED


def test_units_without_weights_or_without_variance_are_finite():
    model = pair()
    with torch.no_grad():
        model[0].weight[2] = 0
    x = f64(20, 4)
    x[:, 1:] = 1.0
    assert batch_as_weight_norm(asked(model, x)).verdict == Verdict.HOLDS


def test_a_norm_without_epsilon_is_asked_too():
    model = pair()
    model[1].eps = 0.0
    assert batch_as_weight_norm(asked(model, f64(20, 4))).verdict == Verdict.HOLDS


def test_inputs_that_are_no_numbers_fail():
    x = f64(20, 4)
    x[3, 0] = math.nan
    found = batch_as_weight_norm(asked(pair(), x))
    assert found.verdict == Verdict.FAILED
    assert found.failure == "an input or a weight is not finite"


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.BatchNorm1d(3)),
        nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)),
        MLP(4, 3, norm="layer"),
    ],
)
def test_models_without_such_a_pair_are_not_asked(model):
    subject = asked(model, f64(10, 4))
    assert not has_pairs(subject)
    refusal = claims()["theory/normalization.batch_as_weight"].refusal(subject)
    assert refusal == "is asked only of models in which batch normalization follows a dense layer"
    with pytest.raises(ValueError, match="the model must have a linear map whose outputs go straight"):
        batch_as_weight_norm(subject)


@pytest.mark.parametrize("weight", [None, torch.zeros(9)])
def test_fewer_than_two_examples_have_no_variance(weight):
    rows = 1 if weight is None else 9
    found = batch_as_weight_norm(asked(pair(), f64(rows, 4), weight))
    assert found.verdict == Verdict.FAILED
    assert (
        found.failure == "fewer than two examples of weight above 0 have a variance: layer '0' was given such"
    )


def test_a_large_mean_hides_nothing_and_a_lost_variance_fails(monkeypatch):
    x = f64(30, 4) + 1e6
    found = batch_as_weight_norm(asked(pair(), x))
    assert found.verdict == Verdict.HOLDS and found.tolerance < 1e-8
    own = normalization.discrepancy
    with monkeypatch.context() as patch:
        patch.setattr(normalization, "discrepancy", lambda *given: 1.001 * own(*given))
        assert batch_as_weight_norm(asked(pair(), x)).verdict == Verdict.VIOLATED
    flat = f64(30, 1) * torch.tensor([1e9, 1e9, 0, 0]).double() + f64(30, 4, seed=1)
    model = pair()
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([1.0, -1, 0, 0])  # of a variance of 2 in one of 1e18
    found = batch_as_weight_norm(asked(model, flat))
    assert found.verdict == Verdict.FAILED
    assert "a unit's variance is lost in rounding" in found.failure
