"""Gradient predictiveness: exact on quadratics, batch statistics as in training, no trace."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.auditing.asking.side_effects import Snapshot
from margin.core.findings import NotAsked, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.mlp.model import MLP
from margin.nn.initialization import initialize
from margin.theory.dynamics.predictiveness import RATES, demo, gradient_predictiveness, predictiveness
from margin.theory.prediction.held_out import stated


def f64(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def quadratic():
    """The Hessian and the gradient of the demonstration's loss, by hand."""
    subject = demo()
    (batch,) = subject.train
    X = torch.cat((batch.inputs[0], torch.ones(32, 1).double()), 1)
    weight, bias = (p.detach() for p in subject.model[0].parameters())
    residual = X @ torch.cat((weight[0], bias)) - batch.targets
    return subject, 2 * X.T @ X / 32, 2 * X.T @ residual / 32


def test_a_quadratic_changes_its_gradient_by_eta_h_g():
    subject, H, g = quadratic()
    found = gradient_predictiveness(subject.model, subject.objective, subject.train[0], RATES)
    assert found.norm == pytest.approx(float(g.norm()))
    expected = torch.stack([rate * (H @ g).norm() for rate in RATES])
    torch.testing.assert_close(found.change, expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.smoothness, ((H @ g).norm() / g.norm()).expand(5))
    assert float(found.smoothness.max()) <= float(torch.linalg.eigvalsh(H).max()) * (1 + 1e-9)


def test_the_smoothness_is_tight_for_a_gradient_along_the_steepest_curvature():
    subject, H, _ = quadratic()
    X = torch.cat((subject.train[0].inputs[0], torch.ones(32, 1).double()), 1)
    eigenvalues, basis = torch.linalg.eigh(H)
    # targets for which the gradient at the weights is the last eigenvector
    weight, bias = (p.detach() for p in subject.model[0].parameters())
    theta = torch.cat((weight[0], bias)) - torch.linalg.solve(H, basis[:, -1])
    batch = subject.train[0]._replace(targets=X @ theta)
    found = gradient_predictiveness(subject.model, subject.objective, batch, (0.01,))
    assert float(found.smoothness[0]) == pytest.approx(float(eigenvalues[-1]), rel=1e-9)


def classifier(**given):
    torch.manual_seed(0)
    x = f64(30, 5)
    subject = stated(x, torch.arange(30) % 3, task=CLASSES)
    return replace(subject, model=MLP(5, 3, hidden=(8, 8), **given).double().train())


def test_batch_statistics_are_the_batch_s_and_dropout_is_off():
    subject = classifier(norm="batch", dropout=0.5)
    for module in subject.model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.fill_(50.0)  # in evaluation the net would answer something else
    before = Snapshot.of(subject)
    found = gradient_predictiveness(subject.model, subject.objective, subject.test[0], RATES)
    assert not before.difference(subject)
    other = classifier(norm="batch")
    plain = gradient_predictiveness(other.model, other.objective, other.test[0], RATES)
    assert found.norm == pytest.approx(plain.norm, rel=1e-12)
    torch.testing.assert_close(found.change, plain.change)


def test_the_step_goes_downhill_and_starts_again_for_every_rate():
    subject = classifier()
    many = gradient_predictiveness(subject.model, subject.objective, subject.test[0], RATES)
    for rate, change in zip(RATES, many.change, strict=True):
        alone = gradient_predictiveness(subject.model, subject.objective, subject.test[0], (rate,))
        assert float(alone.change[0]) == pytest.approx(float(change), rel=1e-12)
    model, batch, rate = subject.model.eval(), subject.test[0], 0.1
    parameters = list(model.parameters())

    def gradient():
        loss = nn.functional.cross_entropy(model(*batch.inputs), batch.targets)
        return torch.autograd.grad(loss, parameters)

    here = gradient()
    with torch.no_grad():
        for p, slope in zip(parameters, here, strict=True):
            p -= rate * slope
    gap = math.hypot(*(float((a - b).norm()) for a, b in zip(gradient(), here, strict=True)))
    assert float(many.change[-1]) == pytest.approx(gap, rel=1e-10)


def test_a_gradient_of_0_is_not_asked_and_one_without_number_fails():
    subject = demo()
    (batch,) = subject.train
    with torch.no_grad():
        exact = batch._replace(targets=subject.model(batch.inputs[0]))
    with pytest.raises(NotAsked, match="the gradient of the loss is 0"):
        predictiveness(replace(subject, train=[exact]))
    bad = batch._replace(targets=torch.full((32,), math.nan).double())
    assert predictiveness(replace(subject, train=[bad])).failure == "the gradient is not finite"


@pytest.mark.parametrize("rates", [(), (0.1, 0.0), (math.nan,), (math.inf,)])
def test_rates_must_be_positive_and_finite(rates):
    subject = demo()
    with pytest.raises(ValueError, match="rates must be positive and finite: got"):
        gradient_predictiveness(subject.model, subject.objective, subject.train[0], rates)


def test_a_batch_of_one_or_of_fillers_is_passed_over():
    torch.manual_seed(0)
    x, labels = torch.randn(5, 4), torch.arange(5) % 3
    subject = replace(stated(x, labels, task=CLASSES), model=MLP(4, 3, hidden=(6,), norm="batch"))
    whole = Batch((x,), labels)
    one = Batch((x[:1],), labels[:1])
    fillers = Batch((torch.zeros(5, 4),), labels, torch.zeros(5))
    found = predictiveness(replace(subject, train=[one, fillers, whole]))
    assert found.as_json() == predictiveness(replace(subject, train=[whole])).as_json()
    alone = predictiveness(replace(subject, train=[one]))
    assert alone.verdict == Verdict.FAILED
    assert alone.failure == "batch normalization needs a batch of two examples: there is none"


def smoothness_along_training(norm, seed, *, rate=0.2, steps=40):
    """The geometric mean of the smoothness seen along the gradient while a deep net is trained."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(512, 10, generator=generator)
    labels = (x[:, :2].prod(1) > 0).long() + (x[:, 2] > 0).long()
    torch.manual_seed(seed)
    model = MLP(10, 3, hidden=(50,) * 8, norm=norm)
    initialize(model, "he_normal", generator=torch.Generator().manual_seed(seed))
    optimizer, logs = torch.optim.SGD(model.parameters(), lr=rate), []
    for step in range(steps):
        index = torch.randint(512, (128,), generator=generator)
        batch = Batch((x[index],), labels[index])
        if step % 10 == 0:
            found = gradient_predictiveness(model, risk(CLASSES), batch, (rate,))
            logs.append(found.smoothness.log())
        model.train()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(*batch.inputs), batch.targets).backward()
        optimizer.step()
    return float(torch.cat(logs).mean())


# a comparison of two trainings by 5 paired seeds
def test_batch_normalization_makes_a_deep_net_smoother_along_the_gradient():
    gaps = [smoothness_along_training("batch", s) - smoothness_along_training("none", s) for s in range(5)]
    gap = torch.tensor(gaps, dtype=torch.float64)
    half = 2.776 * float(gap.std()) / math.sqrt(5)  # Student's t, 4 degrees of freedom, 95 %
    assert float(gap.mean()) + half < 0


def test_where_few_examples_are_allowed_a_part_of_each_batch_is_taken():
    """Of 30 examples in batches of 10 eight are allowed: four of each of two batches, of weight above 0."""
    x, y = f64(30, 5), torch.arange(30) % 3
    weight = torch.ones(10).index_fill(0, torch.tensor([0, 2]), 0.0)
    batches = [Batch((x[i : i + 10],), y[i : i + 10], weight) for i in (0, 10, 20)]
    subject = replace(classifier(), train=batches)
    found = predictiveness(subject.drawing(8))
    assert found.sample == "4 of each of 2 batches"
    order = torch.randperm(3, generator=torch.Generator().manual_seed(0))[:2].sort().values.tolist()
    kept = torch.tensor([1, 3, 4, 5])
    parts = [Batch((batches[i].inputs[0][kept],), batches[i].targets[kept]) for i in order]
    by_hand = [gradient_predictiveness(subject.model, subject.objective, part, RATES) for part in parts]
    expected = torch.stack([each.change / each.norm for each in by_hand]).mean(0)
    torch.testing.assert_close(found.value, expected)
    assert predictiveness(subject.drawing(1024)).sample == predictiveness(subject).sample == ""
    whole = replace(subject, independent=False)
    assert predictiveness(whole.drawing(8)).sample == ""  # what reads its batch is not cut
