"""Autograd's derivatives beside finite differences: of nets with kinks, and of backwards that are none."""

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.trained_weights import sharpness, trace
from margin.theory.curvature.twice_differentiable import twice_differentiable


class Sign(torch.autograd.Function):
    """sign(x), whose backward says that it is the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        return g


class Rounded(torch.autograd.Function):
    """x on a grid of 1/16, whose backward says that it is the identity."""

    @staticmethod
    def forward(ctx, x):
        return (16 * x).round() / 16

    @staticmethod
    def backward(ctx, g):
        return g


class Reversed(torch.autograd.Function):
    """x, whose backward turns the gradient round."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return -g


class Square(torch.autograd.Function):
    """x^2 with its derivative, which itself has a wrong one: the saved input does not require a gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.kept = x.detach()
        return x.square()

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.kept * g


class Applied(nn.Module):
    """A function of no parameters as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def subject_of(model, seed=0, shape=(8,), n=200, steps=15):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=generator)
    y = torch.randint(3, (n,), generator=generator)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    batch = [Batch((x,), y)]
    return Subject(model=model, test=batch, train=batch, task=CLASSES, objective=risk(CLASSES))


def dense(layer):
    return nn.Sequential(nn.Linear(8, 24), layer, nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3))


@pytest.mark.parametrize("seed", range(20))
def test_honest_nets_agree(seed):
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        if seed % 4 == 3:
            model = nn.Sequential(
                nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3),
            )  # fmt: skip
            subject = subject_of(model, seed, (1, 8, 8), 100)
        else:
            layer = (nn.ReLU(), nn.GELU(), nn.LeakyReLU(0.1))[seed % 4]
            subject = subject_of(dense(layer), seed)
    premise = twice_differentiable(subject)
    assert premise.status == "sampled", premise


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("function", [Sign, Rounded, Reversed, Square])
def test_a_backward_that_is_no_derivative_is_refuted(function, seed):
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        subject = subject_of(dense(Applied(function.apply)), seed)
    before = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    premise = twice_differentiable(subject)
    assert premise.status == "refuted"
    assert ("second derivative is wrong" in premise.evidence) == (function is Square)
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.model.state_dict().items())
    for finding in (sharpness(subject), trace(subject)):
        assert finding.verdict == Verdict.UNFOUNDED


def test_what_cannot_be_run_in_float64_is_assumed():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        single = nn.Sequential(nn.Linear(8, 3), Applied(torch.Tensor.float))
        fixed = torch.randn(8, 8)
    premise = twice_differentiable(subject_of(single))
    assert (premise.status, "a shorter type" in premise.evidence) == ("assumed", True)
    mixed = nn.Sequential(Applied(lambda x: x @ fixed), nn.Linear(8, 3))
    premise = twice_differentiable(subject_of(mixed))
    assert (premise.status, "not checked in float64" in premise.evidence) == ("assumed", True)


class Normed(nn.Module):
    """A root-mean-square norm that computes in float32, as those of language models do."""

    def forward(self, x):
        z = x.float()
        return (z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-6)).type_as(x)


def without_bias(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


@pytest.mark.parametrize("case", ["blank rows", "black images", "all zero"])
def test_weights_on_a_kink_are_assumed_and_a_wrong_backward_there_is_refuted(case):
    # A bias of 0 before a blank input: the unit is on its kink, and half of it is in a central difference.
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        if case == "black images":
            model = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
            model = nn.Sequential(model, nn.Linear(96, 3))
            subject = subject_of(without_bias(model), shape=(1, 8, 8), n=60, steps=0)
            subject.train[0].inputs[0][:, :, :4] = 0
        else:
            subject = subject_of(without_bias(dense(nn.ReLU())), steps=0)
            subject.train[0].inputs[0][::3] = 0
            if case == "all zero":
                with torch.no_grad():
                    _ = [parameter.zero_() for parameter in subject.model.parameters()]
        premise = twice_differentiable(subject)
        assert (premise.status, "on a kink at the weights" in premise.evidence) == ("assumed", True), premise
        wrong = subject_of(without_bias(dense(Applied(Reversed.apply))), steps=0)
    wrong.train[0].inputs[0][::3] = 0
    assert twice_differentiable(wrong).status == "refuted"


def test_a_norm_in_a_shorter_type_inside_is_assumed():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), Normed(), nn.GELU(), nn.Linear(16, 3))
    premise = twice_differentiable(subject_of(model))
    assert (premise.status, "a shorter type" in premise.evidence) == ("assumed", True), premise


def test_a_large_last_layer_does_not_lengthen_the_steps_of_the_first():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = dense(nn.ReLU())
    subject = subject_of(model, steps=0)
    with torch.no_grad():
        model[-1].weight.mul_(1e6)
    assert twice_differentiable(subject).status == "sampled"
