"""Objectives of smoothed labels and of importance sampling, through the descent that uses them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn

from margin.core.tasks import BINARY, CLASSES, VALUES
from margin.core.types import Batch
from margin.data.examples import Arrays
from margin.data.sampling.importance import Sampled
from margin.engine.evaluation import weighted_mean
from margin.engine.loop import GradientUpdate, State, descent, fit, risk
from margin.engine.objectives import importance_weighted, same_noise, smoothed


def data(n=12, d=3, k=4, seed=0):
    generator = Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, k, (n,), generator=generator)


def linear(d=3, k=4):
    torch.manual_seed(0)
    return nn.Linear(d, k).double()


def test_the_mean_over_the_weights_of_the_examples_is_torchs():
    x, y = data()
    model = linear()
    losses = smoothed(CLASSES, smoothing=0.1)(model, Batch((x,), y), Generator())
    expected = F.cross_entropy(model(x), y, label_smoothing=0.1)
    torch.testing.assert_close(weighted_mean(losses, None), expected)
    weight = torch.arange(12, dtype=torch.float64)
    twice = F.cross_entropy(
        model(x).repeat_interleave(weight.long(), 0), y.repeat_interleave(weight.long()), label_smoothing=0.1
    )
    torch.testing.assert_close(weighted_mean(losses, weight), twice)


def test_class_weights_multiply_the_losses_of_examples_whose_number_divides():
    x, y = data()
    model, weight = linear(), torch.tensor([2.0, 1.0, 0.5, 0.0], dtype=torch.float64)
    losses = smoothed(CLASSES, class_weight=weight)(model, Batch((x,), y), Generator())
    torch.testing.assert_close(losses, weight[y] * F.cross_entropy(model(x), y, reduction="none"))


def test_a_step_on_it_is_a_step_on_torchs_loss():
    x, y = data()
    ours, theirs = linear(), linear()
    state = State({"model": ours}, {"": torch.optim.SGD(ours.parameters(), lr=0.5)})
    fit(
        state,
        lambda _: Batch((x,), y),
        descent(smoothed(CLASSES, smoothing=0.2), GradientUpdate()),
        max_steps=1,
    )
    F.cross_entropy(theirs(x), y, label_smoothing=0.2).backward()
    torch.testing.assert_close(ours.weight, theirs.weight - 0.5 * theirs.weight.grad)


def test_other_tasks_and_bad_options_are_refused():
    for task in (VALUES, BINARY):
        with pytest.raises(ValueError, match=r"one logit a class \(the task 'classes'\): got"):
            smoothed(task, smoothing=0.1)
    with pytest.raises(ValueError, match=r"smoothing must be in \[0, 1\): got 1"):
        smoothed(CLASSES, smoothing=1.0)
    with pytest.raises(ValueError, match="got row 1 with sum 2"):
        smoothed(CLASSES, confusion=torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    for weight in ([-1.0, 1.0], [0.0, 0.0], [float("nan"), 1.0]):
        with pytest.raises(ValueError, match="class_weight must be finite numbers >= 0"):
            smoothed(CLASSES, class_weight=torch.tensor(weight))
    x, y = data()
    with pytest.raises(ValueError, match="one weight a class: got 3 for 4"):
        smoothed(CLASSES, class_weight=torch.ones(3))(linear(), Batch((x,), y), Generator())
    with pytest.raises(ValueError, match="needs targets"):
        smoothed(CLASSES, smoothing=0.1)(linear(), Batch((x,)), Generator())


P = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05], dtype=torch.float64)


def gradient(objective, model, batch):
    loss = weighted_mean(objective(model, batch, Generator()), batch.weight)
    return torch.autograd.grad(loss, model.weight)[0]


def expectation(gradient_of_pair):
    """Exact: over all pairs that a batch of two can be, each with its probability."""
    return sum(P[i] * P[j] * gradient_of_pair(torch.tensor([i, j])) for i in range(5) for j in range(5))


def test_importance_sampling_keeps_the_gradient_unbiased_exactly():
    x, y = data(5)
    model = linear()
    rated = Sampled(Arrays((x,), y), P, 2, seed=0).examples
    full = gradient(risk(CLASSES), model, Batch((x,), y))
    ours = expectation(
        lambda pair: gradient(importance_weighted(risk(CLASSES)), model, rated.take(pair, Generator()))
    )
    torch.testing.assert_close(ours, full, rtol=0, atol=1e-14)

    def without_ratio(pair):
        return gradient(risk(CLASSES), model, Batch((x[pair],), y[pair]))

    def ratio_as_weight(pair):
        return gradient(risk(CLASSES), model, Batch((x[pair],), y[pair], rated.ratio[pair]))

    assert (expectation(without_ratio) - full).abs().max() > 0.02
    assert (expectation(ratio_as_weight) - full).abs().max() > 0.01


def test_a_training_takes_the_ratio_off_and_learns():
    x, y = data(60)
    model = linear()
    batches = Sampled(Arrays((x,), y), torch.rand(60, generator=Generator().manual_seed(0)) + 0.5, 8, seed=0)
    before = F.cross_entropy(model(x), y).item()
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.3)})
    step = descent(importance_weighted(risk(CLASSES)), GradientUpdate(pieces=2))
    fit(state, lambda t: batches(t).to(dtype=torch.float64, device="cpu"), step, max_steps=60)
    assert F.cross_entropy(model(x), y).item() < before - 0.1


def test_held_noise_is_one_function_of_the_batch():
    def noisy(model, batch, generator):
        return torch.randn(len(batch.inputs[0]), generator=generator)

    x, _ = data()
    generator = Generator().manual_seed(5)
    before = generator.get_state()
    held = same_noise(noisy)
    first, second = (held(linear(), Batch((x,)), generator) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert torch.equal(generator.get_state(), before)
    assert noisy(None, Batch((x,)), generator).tolist() != noisy(None, Batch((x,)), generator).tolist()
