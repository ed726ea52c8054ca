"""Gauss-Newton and Fisher matrices against closed forms and Jacobians written down."""

import dataclasses
import math
import time

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn
from torch.func import functional_call, jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel

from margin.core.deadline import deadline
from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import BINARY, CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.gauss_newton import (
    curvature_map,
    definite,
    demo,
    fisher,
    gauss_newton,
    has_output_loss,
    has_output_probabilities,
)
from margin.theory.curvature.hessian import risk_hessian
from margin.theory.curvature.hutchinson import as_matrix
from margin.theory.curvature.trained_weights import demo as quadratic

EXACT = {"rtol": 0, "atol": 1e-12}


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1, 6)
        self.out = nn.Linear(2, 3)

    def forward(self, x):
        q, k, v = self.qkv(x[:, None, :, None]).split(2, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v)[:, 0].mean(1))


def tanh():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def normalized():
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Softplus(), nn.Dropout(0.5), nn.Linear(5, 3))
    net(torch.randn(50, 4, generator=Generator().manual_seed(0)))
    return net


def frozen():
    net = tanh()
    net[0].weight.requires_grad_(False)
    return net


def subject_of(net, task=CLASSES, weight=None, n=20):
    torch.manual_seed(1)
    model = net().double()
    generator = Generator().manual_seed(2)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (n,), generator=generator)
    if task is VALUES:
        y = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    batch = [Batch((x,), y, weight)]
    return Subject(model=model, test=batch, train=batch, task=task, objective=risk(task))


def columns(subject, kind, **options):
    if kind == "hessian":
        with risk_hessian(subject.model, subject.train, subject.objective, **options) as H:
            return as_matrix(H, H.dim)
    with curvature_map(subject.model, subject.train, subject.objective, kind, **options) as G:
        return as_matrix(G, G.dim)


@pytest.mark.parametrize("kind", ["hessian", "gauss_newton"])
def test_a_product_through_a_graph_that_is_kept_is_refused_when_time_is_up(kind):
    """It passes nothing of the model, whose passes are refused elsewhere: audits would go on."""
    subject = subject_of(tanh)
    asked = subject.model, subject.train, subject.objective
    with risk_hessian(*asked) if kind == "hessian" else curvature_map(*asked, kind) as matrix:
        v = torch.ones(matrix.dim, dtype=matrix.dtype)
        matrix(v)
        with pytest.raises(NotAsked, match="its time is up"), deadline(time.perf_counter() - 1):
            matrix(2 * v)


def jacobian(subject):
    """The outputs' Jacobian, (n, outputs, parameters), in evaluation mode, and the outputs."""
    (batch,), model = subject.train, subject.model.eval()
    named = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    with sdpa_kernel(SDPBackend.MATH):
        J = jacrev(lambda ps: functional_call(model, ps, batch.inputs))(named)
        outputs = model(*batch.inputs).detach()
    return torch.cat([J[name].reshape(*outputs.shape, -1) for name in named], -1).detach(), outputs


@pytest.mark.parametrize("net", [tanh, normalized, frozen, Attends])
@pytest.mark.parametrize("chunk", [None, 7])
def test_they_are_the_jacobians_products(net, chunk):
    weight = torch.rand(20, generator=Generator().manual_seed(3), dtype=torch.float64)
    weight[4] = 0
    subject = subject_of(net, weight=weight)
    J, z = jacobian(subject)
    w, p = weight / weight.sum(), z.softmax(-1)
    M = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    G = torch.einsum("n,nki,nkl,nlj->ij", w, J, M, J)
    torch.testing.assert_close(columns(subject, "gauss_newton", chunk=chunk), G, **EXACT)
    g = torch.einsum("nk,nki->ni", p - F.one_hot(subject.train[0].targets, 3), J)
    torch.testing.assert_close(columns(subject, "empirical_fisher", chunk=chunk), (w * g.T) @ g, **EXACT)


@pytest.mark.parametrize("kind", ["hessian", "gauss_newton"])
def test_linear_regression_is_twice_the_covariance(kind):
    subject = subject_of(lambda: nn.Linear(4, 3, bias=False), VALUES)
    X = subject.train[0].inputs[0]
    # Every one of the 3 outputs of the 20 examples is a term of the mean: 2 / (20 * 3).
    expected = 2 / 60 * torch.kron(torch.eye(3).double(), X.T @ X)
    torch.testing.assert_close(columns(subject, kind), expected, **EXACT)


@pytest.mark.parametrize("kind", ["hessian", "gauss_newton"])
def test_logistic_regression_is_the_weighted_covariance(kind):
    generator = Generator().manual_seed(6)
    X = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (40,), generator=generator)
    model = nn.Sequential(nn.Linear(6, 1, bias=False), nn.Flatten(0)).double()
    batch = [Batch((X,), y)]
    subject = Subject(model=model, test=batch, train=batch, task=BINARY, objective=risk(BINARY))
    s = model(X).sigmoid().detach()
    torch.testing.assert_close(columns(subject, kind), X.T @ torch.diag(s * (1 - s)) @ X / 40, **EXACT)


@pytest.mark.parametrize("kind", ["hessian", "gauss_newton"])
def test_softmax_regression_is_a_mean_of_kronecker_products(kind):
    subject = demo()
    (batch,) = subject.train
    X = torch.cat((batch.inputs[0], torch.ones(40, 1).double()), 1)  # the bias is a fifth input
    p = subject.model(*batch.inputs).softmax(-1).detach()
    M = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = torch.stack([torch.kron(M[n], torch.outer(X[n], X[n])) for n in range(40)]).mean(0)
    order = [5 * k + i for k in range(3) for i in range(4)] + [5 * k + 4 for k in range(3)]
    torch.testing.assert_close(columns(subject, kind), expected[order][:, order], **EXACT)


def test_no_factor_of_two_is_lost():
    # curvlinops once had twice BackPACK's: with one weight and the loss (w x - y)^2 all is by hand.
    batch = [Batch((torch.tensor([[3.0]]).double(),), torch.tensor([[1.0]]).double())]
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(2.0)
    subject = Subject(model=model, test=batch, train=batch, task=VALUES, objective=risk(VALUES))
    assert columns(subject, "gauss_newton").item() == pytest.approx(18)  # 2 x^2
    assert columns(subject, "empirical_fisher").item() == pytest.approx(900)  # (2 (6 - 1) 3)^2


def test_the_sampled_fisher_is_one_matrix_and_has_the_gauss_newton_matrix_for_its_mean():
    subject = subject_of(tanh, n=4000)
    once, again = (columns(subject, "sampled_fisher", chunk=1500) for _ in range(2))
    assert torch.equal(once, again)
    G = columns(subject, "gauss_newton")
    assert torch.linalg.eigvalsh(once)[0] > -1e-12
    # Each entry is a mean over 4,000 drawn targets of products of at most about 10 in size.
    assert (once - G).norm() < 0.15 * G.norm()
    assert (columns(subject, "empirical_fisher") - G).norm() > 2 * (once - G).norm()


def test_the_targets_drawn_follow_the_probabilities():
    # With one logit per class as the only parameters, the Fisher matrix is diag(p) - p p'.
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = nn.Parameter(torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64))

        def forward(self, x):
            return self.logits.expand(len(x), 3)

    subject = subject_of(tanh, n=20_000)
    subject = dataclasses.replace(subject, model=Constant())
    p = subject.model.logits.softmax(0).detach()
    drawn = columns(subject, "sampled_fisher")
    # A diagonal entry is a mean of variables in [0, 1]: Hoeffding's 0.0184 is missed with probability 2.6e-6.
    assert bool(((drawn - torch.diag(p) + torch.outer(p, p)).abs() < 0.02).all())


@pytest.mark.parametrize("kind", ["gauss_newton", "empirical_fisher"])
def test_they_are_positive_semidefinite_where_the_hessian_is_not(kind):
    subject = subject_of(tanh)
    assert torch.linalg.eigvalsh(columns(subject, "hessian"))[0] < -1e-3
    assert torch.linalg.eigvalsh(columns(subject, kind))[0] > -1e-12


def test_a_linear_models_hessian_is_its_gauss_newton_matrix():
    found = gauss_newton(demo())
    assert found.verdict == Verdict.MEASURED
    assert found.value[0].item() == pytest.approx(found.value[1].item(), rel=1e-9)
    assert found.value[2].item() < 1e-12
    H = columns(demo(), "hessian")
    assert found.value[0].item() == pytest.approx(torch.linalg.eigvalsh(H)[-1].item(), rel=1e-3)


def test_norms_are_the_dense_ones():
    subject = subject_of(tanh)
    H, G = columns(subject, "hessian"), columns(subject, "gauss_newton")
    found = gauss_newton(subject, tol=1e-9)
    exact = [torch.linalg.matrix_norm(A, 2).item() for A in (H, G, H - G)]
    assert found.value.tolist() == pytest.approx(exact, abs=1e-8)
    assert gauss_newton(subject, tol=1e-12, max_iterations=3).verdict == Verdict.FAILED


def test_the_gauss_newton_matrix_has_no_negative_eigenvalue():
    for subject in (demo(), subject_of(tanh)):
        found = definite(subject)
        assert found.verdict == Verdict.HOLDS
        assert found.premises[0].status == "proved"
    # tight: a matrix of rank below its order has the eigenvalue 0
    assert abs(definite(subject_of(tanh), tol=1e-9).value.item()) < 1e-10


def test_where_the_loss_is_not_convex_the_promise_can_break_and_is_only_assumed():
    cosine = dataclasses.replace(VALUES, name="cosine", loss=lambda z, y: (z - y).cos())
    subject = subject_of(tanh, VALUES)
    subject = dataclasses.replace(subject, task=cosine, objective=risk(cosine))
    found = definite(subject)
    assert found.premises[0].status == "assumed"
    assert found.verdict == Verdict.VIOLATED and found.value.item() < -0.1


@pytest.mark.parametrize("net", [tanh, lambda: nn.Sequential(nn.Linear(4, 60), nn.Tanh(), nn.Linear(60, 3))])
def test_traces_of_the_fisher_matrices(net):
    subject = subject_of(net)
    kinds = ("gauss_newton", "sampled_fisher", "empirical_fisher")
    exact = torch.stack([columns(subject, kind).trace() for kind in kinds])
    found = fisher(subject)
    low, high = found.verdict_interval
    assert bool((low - 1e-12 <= exact).all() and (exact <= high + 1e-12).all())  # 3 x 6e-5
    J, z = jacobian(subject)
    g = torch.einsum("nk,nki->ni", z.softmax(-1) - F.one_hot(subject.train[0].targets, 3), J)
    assert exact[2].item() == pytest.approx(g.square().sum(1).mean().item(), rel=1e-9)


def test_needs_and_refusals():
    assert has_output_loss(demo()) and has_output_probabilities(demo())
    assert not has_output_loss(quadratic())
    assert has_output_loss(subject_of(tanh, VALUES)) and not has_output_probabilities(
        subject_of(tanh, VALUES)
    )
    with pytest.raises(ValueError, match="needs the loss of a task"):
        columns(quadratic(), "gauss_newton")
    with pytest.raises(ValueError, match="states no probabilities"):
        columns(subject_of(tanh, VALUES), "sampled_fisher")
    empty = dataclasses.replace(demo(), model=nn.Identity())
    with pytest.raises(ValueError, match="parameters that require a gradient"):
        columns(empty, "empirical_fisher", chunk=5)


def test_a_loss_linear_in_the_outputs_has_none():
    linear = dataclasses.replace(VALUES, name="linear", loss=lambda z, y: z - y)
    subject = subject_of(tanh, VALUES)
    subject = dataclasses.replace(subject, task=linear, objective=risk(linear))
    assert not bool(columns(subject, "gauss_newton").any())


@pytest.mark.parametrize("claim", [gauss_newton, definite, fisher])
def test_nan_fails_and_nothing_is_left_behind(claim):
    subject = subject_of(normalized)
    subject.model.train()
    state = {name: x.clone() for name, x in subject.model.state_dict().items()}
    rng = torch.get_rng_state()
    first, second = claim(subject), claim(subject)
    assert first.as_json() == second.as_json()
    assert subject.model.training and torch.equal(torch.get_rng_state(), rng)
    assert all(torch.equal(x, state[name]) for name, x in subject.model.state_dict().items())
    assert all(p.grad is None for p in subject.model.parameters())
    with torch.no_grad():
        subject.model[0].bias[0] = math.nan
    assert claim(subject).verdict == Verdict.FAILED
