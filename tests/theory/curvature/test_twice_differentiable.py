"""Autograd's derivatives beside finite differences: of nets with kinks, and of backwards that are none."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature import twice_differentiable as module
from margin.theory.curvature.hessian import risk_hessian
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


def brute_force(model, x, y):
    """The Hessian of the mean cross-entropy by central differences of autograd's gradient, in float64."""
    parameters = list(model.parameters())
    start = nn.utils.parameters_to_vector(parameters).detach().clone()

    def gradient(weights):
        with torch.no_grad():
            nn.utils.vector_to_parameters(weights, parameters)
        loss = nn.functional.cross_entropy(model(x), y)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])

    h = 1e-5
    rows = [
        (gradient(start + h * e) - gradient(start - h * e)) / (2 * h)
        for e in torch.eye(len(start), dtype=start.dtype)
    ]
    with torch.no_grad():
        nn.utils.vector_to_parameters(start, parameters)
    return torch.stack(rows)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
def test_the_hessian_of_normalized_weights_is_the_change_of_their_gradient(old):
    """torch's fused kernel has a wrong second derivative: off by a tenth, and asymmetric by a fifth."""
    torch.manual_seed(0)
    x, y = torch.rand(40, 5).double(), torch.randint(3, (40,))
    normalized = nn.utils.parametrizations.weight_norm
    layers = [normalized(nn.Linear(5, 4)), nn.Tanh(), normalized(nn.Linear(4, 3), dim=1)]
    model = nn.Sequential(*layers).double()
    H = brute_force(model, x, y)
    torch.testing.assert_close(H, H.T, rtol=0, atol=1e-7)
    if old:
        weights = nn.utils.parameters_to_vector(model.parameters()).detach()
        older = nn.utils.weight_norm
        layers = [older(nn.Linear(5, 4)), nn.Tanh(), older(nn.Linear(4, 3), dim=1)]
        model = nn.Sequential(*layers).double()
        with torch.no_grad():  # bias, length, direction: the order is the same
            nn.utils.vector_to_parameters(weights, model.parameters())
        torch.testing.assert_close(brute_force(model, x, y), H, rtol=1e-5, atol=1e-6)
    batch = Batch((x,), y)
    subject = Subject(model=model, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))
    if not old:  # of the older form torch makes no copies: the Hessian is asked of the model itself
        assert twice_differentiable(subject).status == "sampled"
        assert sharpness(subject).value.tolist() == pytest.approx(
            [float(end) for end in torch.linalg.eigvalsh(H)[[-1, 0]]], rel=1e-4, abs=1e-6
        )
    with risk_hessian(model, [batch], risk(CLASSES)) as hessian:
        v = torch.randn(len(H), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(hessian(v), H @ v, rtol=1e-6, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*The .grad attribute")
def test_a_scripts_curvature_is_that_of_what_was_scripted():
    """Of a script's copy torch makes weights functions of the script's: their gradients were rounded."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    batch = Batch((torch.rand(40, 5),), torch.randint(3, (40,)))
    plain = Subject(model=model, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))
    for scripted in (torch.jit.script(model), torch.jit.trace(model, batch.inputs[0][:4])):
        subject = replace(plain, model=scripted)
        premise = twice_differentiable(subject)
        assert premise.status == "sampled", premise.evidence
        assert sharpness(subject).verdict is Verdict.MEASURED
        torch.testing.assert_close(sharpness(subject).value, sharpness(plain).value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("bad", "status"), [((), "assumed"), ((0,), "assumed"), ((1,), "assumed"), ((0, 1), "refuted")]
)
def test_derivatives_are_refuted_where_they_differ_at_every_place(monkeypatch, bad, status):
    """At the weights and at one place beside them a kink may lie; at both places it does not by chance."""
    asked = []

    def differs(H, *, moved=0.0, seed=0):
        asked.append((moved > 0, seed))
        return "they differ" if not moved or seed in bad else ""

    monkeypatch.setattr(module, "_disagreement", differs)
    x, y = torch.rand(20, 3), torch.arange(20) % 2
    batch = Batch((x,), y)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    subject = Subject(model=model, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))
    premise = twice_differentiable(subject)
    assert premise.status == status
    assert asked == [(False, 0), (True, 0), (True, 1)]
    assert ("kink at the weights" in premise.evidence) == (status == "assumed")


def test_of_a_large_model_derivatives_by_the_first_weights_are_compared(monkeypatch):
    """Vectors of all weights would fill the memory; a gradient by the first goes through all layers."""
    monkeypatch.setattr("margin.theory.curvature.twice_differentiable.MOST_WEIGHTS", 20)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    batch = Batch((torch.randn(6, 4),), torch.arange(6) % 3)
    subject = Subject(model=net, test=[batch], task=CLASSES, objective=risk(CLASSES))
    premise = twice_differentiable(subject)
    assert premise.status == "sampled"
    assert "by 20 of 35 weights" in premise.evidence
    assert all(p.requires_grad for p in net.parameters())


def test_a_refusal_is_no_finding_about_derivatives():
    """A pass that is refused, as one that would end late, is no model that cannot be run in float64."""

    class Refuses(nn.Linear):
        def forward(self, x):
            if x.dtype == torch.float64:
                raise NotAsked("stopped after 1 s")
            return super().forward(x)

    x = torch.randn(8, 3)
    subject = Subject(
        model=Refuses(3, 2), test=[Batch((x,), torch.arange(8) % 2)], task=CLASSES, objective=risk(CLASSES)
    )
    with pytest.raises(NotAsked, match="stopped after 1 s"):
        twice_differentiable(subject)
    assert not subject.kept


@pytest.mark.parametrize(("most", "examples"), [(None, 32), (1024, 32), (512, 16), (32, 1), (8, 1)])
def test_a_question_of_few_examples_compares_derivatives_on_fewer(most, examples):
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    subject = Subject(
        model=nn.Linear(3, 2),
        test=[Batch((x,), torch.arange(100) % 2)],
        task=CLASSES,
        objective=risk(CLASSES),
    )
    found = twice_differentiable(subject.drawing(most))
    assert f"finite differences on {examples} examples" in found.evidence
