"""Variance gains of known weights; the mean square through chains; models that are no chains."""

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
from margin.feedforward.mlp.model import MLP
from margin.nn.initialization import initialize
from margin.theory.prediction.held_out import stated
from margin.theory.signal.initialization_claims import (
    demo,
    is_relu_chain,
    mean_square,
    promised_gain,
    relu_chain,
    variance,
    variance_gains,
)


def asked(model, *, inputs=12, rows=40, dtype=torch.float64, seed=0):
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return replace(stated(x, torch.zeros(rows).long(), task=CLASSES), model=model.to(dtype))


def chain(*widths, **given):
    torch.manual_seed(0)
    return MLP(widths[0], widths[-1], hidden=tuple(widths[1:-1]), **given)


def test_gains_are_exact_for_weights_known_by_hand():
    net = nn.Sequential(nn.Linear(2, 3), nn.Conv2d(3, 2, 2)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, -2.0], [0.0, 3.0], [1.0, 1.0]]))
        net[1].weight.fill_(0.5)
    first, second = variance_gains(net)
    assert (first.name, first.fan_in, first.fan_out) == ("0.weight", 2, 3)
    assert first.value == pytest.approx(2 * 16 / 6)
    squares = torch.tensor([1.0, 4, 0, 9, 1, 1])
    assert first.stderr == pytest.approx(2 * float(squares.std()) / math.sqrt(6))
    assert (second.fan_in, second.fan_out, second.value, second.stderr) == (12, 8, 3.0, 0.0)


def test_the_gain_is_what_white_inputs_gain():
    layer = nn.Linear(6, 4, bias=False).double()
    outputs = layer(torch.eye(6).double() * math.sqrt(6)).detach()  # uncorrelated, of mean square 1
    assert variance_gains(layer)[0].value == pytest.approx(float(outputs.square().mean()), rel=1e-12)


@pytest.mark.parametrize(
    ("scheme", "gain"), [("lecun_uniform", 1.0), ("he_normal", 2.0), ("glorot_normal", 2 * 40 / 90)]
)
def test_the_interval_of_a_fresh_draw_holds_its_scheme(scheme, gain):
    net = nn.Linear(40, 50).double()
    initialize(net, scheme, generator=torch.Generator().manual_seed(1))
    found = variance(asked(net, inputs=40))
    below, above = found.verdict_interval
    assert float(below) <= gain <= float(above)  # 4 standard errors: fails with 6e-5
    assert float(above - below) < 0.3 * gain
    assert found.verdict == Verdict.MEASURED


def test_the_interval_tells_schemes_apart():
    net = nn.Linear(40, 50).double()
    initialize(net, "he_normal", generator=torch.Generator().manual_seed(1))
    below, _ = variance(asked(net, inputs=40)).verdict_interval
    assert float(below) > 1.5


def test_the_weights_that_training_began_with_are_measured_where_they_are_known():
    first, now = chain(12, 30, 3), chain(12, 30, 3)
    initialize(first, "he_normal", generator=torch.Generator().manual_seed(1))
    subject = replace(asked(now), initial=first.double())
    found = variance(subject)
    assert found.value.tolist() == [gain.value for gain in variance_gains(first)]
    assert found.curves["now"].tolist() == [gain.value for gain in variance_gains(now)]
    assert "when training began" in found.statement
    assert "are not known" in variance(asked(now)).statement
    glorot = [2 * 12 / 42, 2 * 30 / 33]
    assert found.curves["Glorot"].tolist() == pytest.approx(glorot)


def test_weights_that_are_no_numbers_fail():
    net = chain(12, 100, 3)
    with torch.no_grad():
        net.layers[1].weight[0, 0] = math.nan
    found = variance(asked(net))
    assert found.verdict == Verdict.FAILED
    assert found.failure == "the weights of layers.1.weight are not finite"
    assert mean_square(asked(net)).verdict == Verdict.HOLDS  # its own draws are finite
    broken = asked(chain(12, 8, 3))
    broken.test[0].inputs[0][0, 0] = math.nan
    assert mean_square(broken).verdict == Verdict.FAILED


@pytest.mark.parametrize("widths", [(12, 100, 3), (12, 64, 128, 64, 3), (12, 100, 100, 100, 3)])
def test_the_mean_square_is_what_is_promised_at_every_width_and_depth(widths):
    found = mean_square(asked(chain(*widths)))
    assert found.verdict == Verdict.HOLDS
    promised = [1.0, 0.5 ** (len(widths) - 2)]
    assert found.labels[:2] == (f"He ({promised[0]:.3g})", f"LeCun ({promised[1]:.3g})")


def test_promises_are_products_of_single_maps():
    net = nn.Sequential(nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 6), nn.ReLU())
    assert promised_gain(net, "He") == 1
    assert promised_gain(net, "LeCun") == 1 / 4
    assert promised_gain(net, "Glorot") == pytest.approx((8 * 2 / 10 / 2) * (2 * 2 / 8 / 2))
    assert promised_gain(net, "orthogonal") == pytest.approx((8 / 8 / 2) * (2 / 6 / 2))


def test_narrow_nets_scatter_too_much_and_say_so():
    found = mean_square(asked(chain(12, *[3] * 6, 3)))
    assert found.verdict == Verdict.INCONCLUSIVE


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.act = nn.Linear(12, 12), nn.Linear(12, 12), nn.ReLU()

    def forward(self, x):
        return self.two(self.act(self.one(x))) + x


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.act, self.two = nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)

    def forward(self, x):
        return self.two(self.act(torch.sin(self.one(x))))


shared = nn.Linear(12, 12)


@pytest.mark.parametrize(
    "model",
    [
        Residual(),
        Functional(),
        MLP(12, 3, norm="batch"),
        MLP(12, 3, activation="tanh"),
        MLP(12, 3, hidden=()),
        nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)),
        nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(12, 3)),
        nn.Sequential(parametrizations.weight_norm(nn.Linear(12, 8)), nn.ReLU(), nn.Linear(8, 3)),
    ],
)
def test_what_is_no_chain_is_refused(model):
    subject = asked(model)
    assert not is_relu_chain(subject)
    row = claims()["theory/initialization.mean_square"]
    assert row.refusal(subject) == "is asked only of chains of linear maps with ReLUs between them"
    with pytest.raises(ValueError, match="the model must be a chain of linear maps with ReLUs"):
        mean_square(subject)


def test_a_chain_is_found_behind_preprocessing_dropout_and_ravelled_outputs():
    from margin.feedforward.mlp.model import MLPRegressor
    from margin.nn.preprocessed import Preprocessed

    class Halved(nn.Module):
        def forward(self, x):
            return x / 2

    model = Preprocessed(Halved(), MLPRegressor(12, hidden=(30, 20), dropout=0.5)).train()
    subject = asked(model)
    net, x = relu_chain(subject)
    assert [type(m).__name__ for m in net] == ["Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout"]
    torch.testing.assert_close(x, subject.test[0].inputs[0][:128] / 2)
    assert not any(m.training for m in net)  # dropout would add to the mean square


def test_both_leave_no_trace_in_a_model_that_trains():
    subject = asked(chain(12, 30, 3, dropout=0.5).train())
    before = Snapshot.of(subject)
    mean_square(subject), variance(subject)
    assert not before.difference(subject)


def test_the_demonstration_holds_its_scheme():
    below, above = variance(demo()).verdict_interval
    assert bool(((below <= 2) & (above >= 2)).all())


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_no_weights_make_a_residual_net_a_chain(value):
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.act, self.two = nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)

        def forward(self, x):
            return self.two(x + self.act(self.one(x)))

    model = Skipping()
    for parameter in model.parameters():
        nn.init.constant_(parameter, value)
    assert not is_relu_chain(asked(model))
    plain = chain(12, 30, 3)
    for parameter in plain.parameters():
        nn.init.constant_(parameter, value)
    assert mean_square(asked(plain)).verdict == Verdict.HOLDS


def test_a_filler_that_is_no_number_is_not_shown():
    subject = asked(chain(12, 60, 3))
    (batch,) = subject.test
    x = batch.inputs[0].clone()
    x[3] = math.nan
    weight = torch.ones(40).double()
    weight[3] = 0
    padded = replace(subject, test=[batch._replace(inputs=(x,), weight=weight)])
    assert mean_square(padded).verdict == Verdict.HOLDS


def test_a_spectral_norm_in_training_mode_is_read_without_a_trace():
    subject = asked(nn.Sequential(parametrizations.spectral_norm(nn.Linear(12, 8)), nn.Linear(8, 3)))
    subject.model.train()
    before = Snapshot.of(subject)
    variance(subject)
    assert not before.difference(subject)
