"""Dropout: its mean, every mask enumerated, what Monte Carlo converges to; no trace is left."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.auditing.asking.side_effects import Snapshot
from margin.core.catalog import claims
from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import BINARY, CLASSES, VALUES
from margin.feedforward.mlp.model import MLP, MLPRegressor
from margin.theory.prediction.held_out import stated
from margin.theory.signal.dropout import (
    dropping,
    masks,
    monte_carlo_prediction,
    softmax_ensemble,
    weight_scaled,
)
from margin.theory.signal.dropout_claims import affine_in_masks, demo, ensemble, weight_scaling


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def f64(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def asked(model, task=CLASSES, *, inputs=5, rows=40, weight=None):
    x = f64(rows, inputs, seed=3)
    return replace(stated(x, torch.zeros(rows).long(), weight, task=task), model=model.double())


def test_dropout_keeps_the_mean_drops_at_its_rate_and_is_the_identity_in_evaluation():
    layer, x = nn.Dropout(0.3), torch.full((100_000,), 2.0)
    torch.manual_seed(0)
    dropped = layer(x)
    # the share of zeros has stderr 0.0015: 4.5 of them are exceeded with 7e-6
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=4.5 * 0.00145)
    assert float(dropped.mean()) == pytest.approx(2, abs=4.5 * 2 * math.sqrt(0.3 / 0.7 / 1e5))
    assert dropped.unique().tolist() == pytest.approx([0, 2 / 0.7])
    assert torch.equal(layer.eval()(x), x)


def test_masks_have_the_probabilities_of_independent_units_by_hand():
    keep = torch.tensor([0.9, 0.25]).double()
    b, p = masks(keep)
    table = {tuple(row): float(q) for row, q in zip(b.tolist(), p, strict=True)}
    assert table == {
        (0.0, 0.0): pytest.approx(0.1 * 0.75),
        (0.0, 1.0): pytest.approx(0.1 * 0.25),
        (1.0, 0.0): pytest.approx(0.9 * 0.75),
        (1.0, 1.0): pytest.approx(0.9 * 0.25),
    }
    assert float(masks(torch.rand(7, generator=seeded()).double())[1].sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_geometric_mean_over_all_masks_is_the_scaled_net_and_the_arithmetic_is_not(seed):
    x, weight, bias = f64(6, 4, seed=seed), f64(3, 4, seed=seed + 10), f64(3, seed=seed + 20)
    keep = torch.tensor([0.5, 0.8, 0.3, 0.9]).double()
    found, scaled = softmax_ensemble(x, weight, bias, keep), weight_scaled(x, weight, bias, keep)
    torch.testing.assert_close(found.geometric, scaled, rtol=0, atol=1e-12)
    assert float((found.arithmetic - scaled).abs().max()) > 1e-2
    torch.testing.assert_close(found.arithmetic.sum(1), torch.ones(6).double())
    # scaling by the probability of dropping, as printed, is another net
    printed = weight_scaled(x, weight, bias, 1 - keep)
    assert float((found.geometric - printed).abs().max()) > 1e-2


def test_the_ensemble_equals_a_loop_over_masks():
    x, weight, bias = f64(1, 2), f64(2, 2, seed=1), f64(2, seed=2)
    keep = torch.tensor([0.7, 0.4]).double()
    arithmetic, geometric = torch.zeros(2).double(), torch.ones(2).double()
    for first in (0, 1):
        for second in (0, 1):
            p = (0.7 if first else 0.3) * (0.4 if second else 0.6)
            y = torch.softmax(weight @ (torch.tensor([first, second]).double() * x[0]) + bias, 0)
            arithmetic += p * y
            geometric *= y**p
    found = softmax_ensemble(x, weight, bias, keep)
    torch.testing.assert_close(found.arithmetic[0], arithmetic)
    torch.testing.assert_close(found.geometric[0], geometric / geometric.sum())


def softmax_linear(keep=0.6):
    """A model whose dropout is torch's, divided by keep: that of the ensemble with inputs over keep."""
    model = nn.Sequential(nn.Dropout(1 - keep), nn.Linear(4, 3)).double().requires_grad_(False)
    with torch.no_grad():
        model[1].weight.copy_(f64(3, 4, seed=1))
        model[1].bias.copy_(f64(3, seed=2))
    return model


def test_monte_carlo_converges_to_the_arithmetic_mean_within_its_error():
    model, x = softmax_linear(), f64(5, 4, seed=4)
    found = monte_carlo_prediction(model, (x,), 2000, seeded(), lambda z: z.softmax(-1))
    exact = softmax_ensemble(x / 0.6, model[1].weight, model[1].bias, torch.full((4,), 0.6).double())
    z = (found.mean - exact.arithmetic) / found.stderr
    assert float(z.abs().max()) < 4.5  # 15 values, each beyond with 7e-6
    assert float(((found.mean - exact.geometric) / found.stderr).abs().max()) > 10
    assert float(found.stderr.max()) < 0.01


def test_mean_and_error_are_those_of_the_draws_and_a_seed_repeats_them():
    model, x = softmax_linear(), f64(5, 4, seed=4)
    read = []
    found = monte_carlo_prediction(model, (x,), 7, seeded(1), lambda z: read.append(z) or z)
    draws = torch.stack(read)
    assert float((draws[0] - draws[1]).abs().max()) > 0  # a new mask for every draw
    torch.testing.assert_close(found.mean, draws.mean(0))
    torch.testing.assert_close(found.stderr, draws.std(0) / math.sqrt(7))
    again = monte_carlo_prediction(model, (x,), 7, seeded(1))
    assert torch.equal(found.mean, again.mean) and torch.equal(found.stderr, again.stderr)
    assert not torch.equal(found.mean, monte_carlo_prediction(model, (x,), 7, seeded(2)).mean)


def test_batch_norm_stays_in_evaluation_and_nothing_is_left_behind():
    model = (
        nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2)).double().train()
    )
    model[1].running_mean.fill_(3.0)
    subject = asked(model, inputs=4)
    before = Snapshot.of(subject)
    x = subject.test[0].inputs[0]
    alone = monte_carlo_prediction(model, (x[:1],), 300, seeded())
    together = monte_carlo_prediction(model, (x,), 300, seeded())
    assert not before.difference(subject)
    # of batch statistics the answer to one example alone would be another, or an error
    gap = (alone.mean[0] - together.mean[0]).abs() / (alone.stderr[0] + together.stderr[0])
    assert float(gap.max()) < 5
    model.eval()
    exact = model(x).detach()
    z = (together.mean - exact) / together.stderr
    assert float(z.abs().max()) < 5


def test_what_drops_is_known_attention_and_recurrence_too():
    attention, gru = nn.MultiheadAttention(4, 2, dropout=0.1), nn.GRU(4, 4, 2, dropout=0.1)
    assert dropping(nn.Sequential(nn.Dropout(0.0), nn.Linear(2, 2))) == []
    assert dropping(nn.ModuleList([attention, gru, nn.GRU(4, 4)])) == [attention, gru]
    assert len(dropping(nn.ModuleList([nn.Dropout2d(), nn.AlphaDropout(), nn.Dropout(0.2)]))) == 3


def test_the_fast_path_of_a_transformer_layer_does_not_leave_dropout_out():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True).double()
    found = monte_carlo_prediction(layer, (f64(2, 3, 8),), 5, seeded())
    assert float(found.stderr.min()) > 0
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(
    ("model", "samples", "message"),
    [
        (nn.Linear(4, 2), 5, "the model must have a dropout layer with p > 0: Linear has none"),
        (nn.Dropout(0.5), 1, "a mean with an error needs at least 2 samples: got 1"),
    ],
)
def test_a_model_without_dropout_or_a_single_draw_is_refused(model, samples, message):
    with pytest.raises(ValueError, match=message):
        monte_carlo_prediction(model, (torch.zeros(1, 4),), samples, seeded())


def test_probabilities_outside_of_their_range_and_too_many_units_are_refused():
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\]: got \[0.0, 0.5\]"):
        masks(torch.tensor([0.0, 0.5]).double())
    with pytest.raises(ValueError, match="at most 16 units have their masks enumerated: got 17"):
        masks(torch.full((17,), 0.5))


# claims


def test_weight_scaling_is_exact_where_only_linear_maps_follow_the_dropout():
    model = MLP(5, 4, hidden=(30,), dropout=0.5)
    found = weight_scaling(asked(model))
    assert found.verdict == Verdict.HOLDS
    assert affine_in_masks(asked(model))
    regressor = MLPRegressor(5, hidden=(30,), dropout=0.3)
    assert weight_scaling(asked(regressor, VALUES)).verdict == Verdict.HOLDS


@pytest.mark.parametrize(
    "model",
    [
        MLP(5, 4, hidden=(30, 30), dropout=0.5),
        nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 4)),
        nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 4), nn.Softmax(-1)),
    ],
)
def test_nothing_is_promised_where_a_nonlinearity_follows(model):
    found = weight_scaling(asked(model))
    assert not affine_in_masks(asked(model))
    assert found.verdict == Verdict.MEASURED
    assert found.low is None


class Squared(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(5, 4)

    def forward(self, x):
        return self.last(self.drop(x) ** 2)


def test_a_nonlinearity_that_is_no_module_is_seen_too():
    assert not affine_in_masks(asked(Squared()))
    found = weight_scaling(asked(Squared()))
    # E[(b x / q)^2] = x^2 / q: the mean over masks is not the answer without
    assert abs(float(found.value)) > 4 * float(found.stderr)


def test_a_wrong_scaling_is_caught():
    assert weight_scaling(asked(nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 4)))).verdict == Verdict.HOLDS

    class Doubled(nn.Dropout):
        """Weights that are not scaled when all units are kept."""

        def forward(self, x):
            return super().forward(x) if self.training else 2 * x

    wrong = weight_scaling(asked(nn.Sequential(Doubled(0.5), nn.Linear(5, 4))))
    assert wrong.verdict == Verdict.VIOLATED


def test_a_single_score_counts_on_its_predicted_side():
    class Doubled(nn.Dropout):
        def forward(self, x):
            return super().forward(x) if self.training else 2 * x

    subject = asked(nn.Sequential(Doubled(0.5), nn.Linear(5, 1, bias=False), nn.Flatten(0)), BINARY)
    scores = subject.model.eval()(subject.test[0].inputs[0]).detach()
    assert bool((scores > 0).any() and (scores < 0).any())
    found = weight_scaling(subject)  # the mean over masks is half of each score
    assert float(found.value) == pytest.approx(-float(scores.abs().mean()) / 2, abs=4.5 * float(found.stderr))
    assert found.verdict == Verdict.VIOLATED


def test_the_confidence_gap_is_the_enumerated_one():
    model, x = softmax_linear(), f64(40, 4, seed=5)
    subject = replace(stated(x, torch.zeros(40).long()), model=model)
    exact = softmax_ensemble(x / 0.6, model[1].weight, model[1].bias, torch.full((4,), 0.6).double())
    scaled = model.eval()(x).softmax(-1).detach()
    label = scaled.argmax(1, keepdim=True)
    gap = float((scaled - exact.arithmetic).gather(1, label).mean())
    found = ensemble(subject)
    assert gap > 0.01
    assert float(found.value) == pytest.approx(gap, abs=4.5 * float(found.stderr))
    assert found.verdict == Verdict.MEASURED


def test_one_score_and_weights_of_zero_are_read_right():
    model = nn.Sequential(nn.Dropout(0.4), nn.Linear(5, 1), nn.Flatten(0))
    weight = torch.ones(40).double()
    weight[20:] = 0
    subject = asked(model, BINARY, weight=weight)
    subject.test[0].inputs[0][30] = math.nan  # of weight 0: counts for nothing
    assert weight_scaling(subject).verdict == Verdict.HOLDS
    assert "20 held-out examples" in weight_scaling(subject).statement
    assert 0 < float(ensemble(subject).value) < 0.2
    subject.test[0].inputs[0][3] = math.nan
    assert weight_scaling(subject).verdict == Verdict.FAILED
    assert ensemble(subject).failure == "an answer is not finite"


def test_models_without_dropout_are_not_asked():
    row = claims()["theory/dropout.weight_scaling"]
    assert row.refusal(asked(nn.Linear(5, 4))) == "is asked only of models with dropout"
    subject: Subject = demo()
    assert row.refusal(subject) == ""


def test_a_layer_that_drops_every_unit_breaks_the_premise():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(1.0), nn.Linear(8, 3))
    found = weight_scaling(asked(model))
    assert found.verdict == Verdict.UNFOUNDED
    (refuted,) = [premise for premise in found.premises if premise.status == "refuted"]
    assert refuted.text == "a unit is kept with a probability above 0"
    assert refuted.evidence == "the dropout layer drops a unit with probability 1"


def test_a_single_example_is_not_asked_without_end():
    calls = []
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    model.register_forward_hook(lambda *_: calls.append(1))
    weight_scaling(asked(model, rows=1))
    assert len(calls) < 2_100


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.4), nn.FeatureAlphaDropout(0.4)])
def test_a_layer_whose_mean_over_masks_is_not_its_input_breaks_the_premise(layer):
    # Its mean over masks is an affine map of the input (Klambauer et al. 2017, Section 2): by draws.
    torch.manual_seed(0)
    x = torch.full((1, 3, 4), 2.0)
    layer.train()
    mean = torch.stack([layer(x) for _ in range(4000)]).mean((0, 1, 2, 3))
    assert abs(float(mean) - 2) > 0.3
    model = nn.Sequential(nn.Linear(6, 12), nn.SELU(), layer, nn.Linear(12, 3))
    subject = stated(torch.randn(64, 6), torch.arange(64) % 3)
    found = weight_scaling(replace(subject, model=model))
    assert found.verdict == Verdict.UNFOUNDED
    (refuted,) = [premise for premise in found.premises if premise.status == "refuted"]
    assert type(layer).__name__ in refuted.evidence


class Functional(nn.Module):
    """Drops by the function, with the p of a layer that is never called."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(6, 12), nn.Dropout(0.5), nn.Linear(12, 3)

    def forward(self, x):
        h = self.first(x).tanh()
        return self.last(nn.functional.dropout(h, self.drop.p, self.training))


def test_draws_that_do_not_differ_are_named():
    torch.manual_seed(0)
    subject = replace(stated(torch.randn(64, 6), torch.arange(64) % 3), model=Functional())
    for claim in (weight_scaling, ensemble):
        with pytest.raises(NotAsked, match=r"give the same answers.*functional\.dropout"):
            claim(subject)
