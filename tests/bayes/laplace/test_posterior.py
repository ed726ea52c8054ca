"""Laplace's approximation: exact where the posterior is Gaussian, and the structures' own exact cases."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, jacrev, vmap

from margin.bayes.laplace.curvature import bytes_of
from margin.bayes.laplace.evidence import Fit, log_evidence, most_evident
from margin.bayes.laplace.factors import affine_layers, class_root, factors
from margin.bayes.laplace.learning import fitted, laplace
from margin.bayes.laplace.posterior import LaplaceClassifier, LaplaceRegressor
from margin.math.probability.mixtures import Mixture

DOUBLE = torch.float64
STRUCTURES = ("full", "kron", "diag", "last")


def rows(count: int = 12) -> torch.Tensor:
    i = torch.arange(float(count), dtype=DOUBLE)
    return torch.stack((i.sin(), (2 * i).cos(), i / 12), 1)


def network(outputs: int, bias: bool = True) -> nn.Sequential:
    """Weights that any other library can be given."""
    net = nn.Sequential(nn.Linear(3, 4, bias), nn.Tanh(), nn.Linear(4, outputs, bias)).double()
    for k, p in enumerate(net.parameters()):
        p.data = (torch.arange(p.numel(), dtype=DOUBLE) * 1.3 + k).sin().reshape(p.shape)
    return net


def images(outputs: int = 3) -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, outputs)
    ).double()
    return net, torch.randn(5, 1, 4, 4, dtype=DOUBLE)


def by_hand(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The Jacobian by every parameter of each layer, a unit's weights and then its bias."""

    def one(p, row):
        return functional_call(net, p, (row[None],))[0]

    found = vmap(jacrev(one), in_dims=(None, 0))(dict(net.named_parameters()), x)
    parts = []
    for name in affine_layers(net):
        each = [found[f"{name}.weight"].flatten(3)]
        each += [found[f"{name}.bias"][..., None]] if f"{name}.bias" in found else []
        parts.append(torch.cat(each, 3).flatten(2))
    return torch.cat(parts, 2).detach()


@pytest.mark.parametrize("made", [lambda: (network(2), rows()), lambda: (network(3, False), rows()), images])
def test_factors_are_the_jacobian(made) -> None:
    net, x = made()
    out, parts = factors(net, list(affine_layers(net).values()), x)
    assert torch.allclose(out, net(x))
    assert torch.allclose(torch.cat([p.jacobian() for p in parts], 2), by_hand(net, x), atol=1e-12)


def test_the_root_is_that_of_the_cross_entropys_hessian() -> None:
    z = torch.tensor([[0.3, -1.2, 2.0], [0.0, 0.0, 0.5]], dtype=DOUBLE)
    root = class_root(z)
    for row, s in zip(z, root, strict=True):
        expected = torch.autograd.functional.hessian(
            lambda v: F.cross_entropy(v[None], torch.tensor([1])), row
        )
        assert torch.allclose(s @ s.T, expected)


def hand_curvature(net: nn.Module, x: torch.Tensor, classes: bool) -> torch.Tensor:
    J = by_hand(net, x)
    p = net(x).detach().softmax(1)
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    M = inner if classes else torch.eye(J.shape[1], dtype=DOUBLE).expand(len(x), -1, -1)
    return torch.einsum("bcp,bcd,bdq->pq", J, M, J)


@pytest.mark.parametrize("classes", [True, False])
def test_full_curvature_spread_and_evidence_are_those_of_dense_matrices(classes) -> None:
    net, x, q = network(3 if classes else 1), rows(), rows(4) + 0.3
    y = torch.arange(12) % 3 if classes else (3 * x[:, 0]).sin()
    task = "classes" if classes else "values"
    options = {} if classes else {"noise": 0.25}
    model = laplace(net, x, y, task=task, structure="full", prior_precision=0.7, learn="none", **options)
    H = hand_curvature(net, x, classes)
    noise = 1.0 if classes else 0.25
    precision = H / noise + 0.7 * torch.eye(len(H), dtype=DOUBLE)
    J = by_hand(net, q)
    mean, covariance = model.linearized(q)
    assert torch.allclose(covariance, J @ torch.linalg.inv(precision) @ J.mT, rtol=1e-9)
    theta = model.weights().detach()
    out = net(x).detach()
    if classes:
        likelihood = -F.cross_entropy(out, y, reduction="sum")
    else:
        likelihood = torch.distributions.Normal(out[:, 0], 0.5 + 0 * y).log_prob(y).sum()
    prior = torch.distributions.Normal(0 * theta, 0.7**-0.5).log_prob(theta).sum()
    volume = (len(H) * math.log(2 * math.pi) - torch.logdet(precision)) / 2
    assert float(model.evidence) == pytest.approx(float(likelihood + prior + volume), rel=1e-10)
    if classes:
        v = covariance.diagonal(dim1=1, dim2=2)
        assert torch.allclose(model(q).exp(), (mean / (1 + math.pi * v / 8).sqrt()).softmax(1))
    else:
        assert torch.allclose(model.predictive(q).variance, covariance[:, 0, 0] + 0.25)


PEER = {
    (True, "full", "classes"): (
        -24.358517162506033,
        [0.6017267479158601, 0.25235602968865367, 0.14591722239548613],
    ),
    (True, "full", "values"): (-67.79890444105985, [0.28813310616640053, 0.31417540306259034]),
    (True, "diag", "classes"): (
        -30.104503984841507,
        [0.6227239154278131, 0.2377719089885714, 0.13950417558361541],
    ),
    (True, "diag", "values"): (-81.47753461688004, [0.3805037837283002, 0.3341880299542238]),
    (False, "kron", "classes"): (
        -23.62918208788389,
        [0.3240738123787074, 0.25735869470472483, 0.41856749291656775],
    ),
    (False, "kron", "values"): (-32.03187313620129, [0.324600553356705, 0.17736653805356214]),
    (True, "last", "classes"): (
        -19.694969884236897,
        [0.6580288370445234, 0.22197931342456462, 0.11999184953091198],
    ),
    (True, "last", "values"): (-61.04986217813202, [0.15397169573183228, 0.09725862189344313]),
}
"""By bias, structure and task what laplace-torch 0.3 gives: the log evidence; of classes the probabilities of
the first input by the probit rule, of values the variances of the function at the first two."""


@pytest.mark.parametrize("case", PEER, ids=str)
def test_evidence_and_predictives_are_those_of_laplace_torch(case) -> None:
    bias, structure, task = case
    evidence, expected = PEER[case]
    x, q = rows(), rows()[:3] + 0.3
    if task == "classes":
        model = laplace(
            network(3, bias), x, torch.arange(12) % 3, structure=structure, prior_precision=0.7, learn="none"
        )
        found = model(q)[0].exp()
    else:
        options = {"structure": structure, "prior_precision": 0.7, "noise": 0.25, "learn": "none"}
        model = laplace(network(1, bias), x, (3 * x[:, 0]).sin(), task="values", **options)
        found = model.linearized(q)[1][:2, 0, 0]
    assert torch.allclose(found, torch.tensor(expected, dtype=DOUBLE), rtol=1e-6)
    assert float(model.evidence) == pytest.approx(evidence, rel=1e-9)


class Scale(nn.Module):
    """A linear model, of no intercept."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.only = nn.Linear(d, 1, bias=False)

    def forward(self, x):
        return self.only(x)[:, 0]


@pytest.mark.parametrize("structure", ["full", "kron", "last"])
def test_on_linear_gaussian_data_it_is_the_exact_posterior(structure) -> None:
    """Mean, covariance and evidence: the evidence is the density of y under N(0, noise I + X X' / prior)."""
    x = rows(20)
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE) + 0.3 * (7 * torch.arange(20.0, dtype=DOUBLE)).sin()
    noise, prior = 0.2, 0.6
    V = torch.linalg.inv(x.T @ x / noise + prior * torch.eye(3, dtype=DOUBLE))
    net = Scale(3).double()
    net.only.weight.data = (V @ x.T @ y / noise)[None]
    model = laplace(
        net, x, y, task="values", structure=structure, prior_precision=prior, noise=noise, learn="none"
    )
    law = model.predictive(rows(5) + 1)
    q = rows(5) + 1
    assert torch.allclose(law.variance, (q @ V * q).sum(1) + noise, rtol=1e-10)
    exact = torch.distributions.MultivariateNormal(
        torch.zeros(20, dtype=DOUBLE), noise * torch.eye(20, dtype=DOUBLE) + x @ x.T / prior
    ).log_prob(y)
    assert float(model.evidence) == pytest.approx(float(exact), rel=1e-10)
    drawn = model.curvature.draw(
        200_000, model.noise, model.prior, torch.Generator().manual_seed(0)
    )  # each entry within 5 of its deviations of at most V sqrt(2 / 200,000): it fails with 1e-5
    limit = 5 * (2 / 200_000) ** 0.5 * torch.outer(V.diagonal().sqrt(), V.diagonal().sqrt())
    assert bool((drawn.T @ drawn / 200_000 - V).abs().le(limit).all())


def test_the_mode_at_the_learned_variances_is_a_maximum_of_the_evidence() -> None:
    """bayes/linear finds the same maximum where the mode follows the variances, by another iteration."""
    x = rows(40) - rows(40).mean(0)
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE) + 0.3 * (7 * torch.arange(40.0, dtype=DOUBLE)).sin()
    net, noise, prior = Scale(3).double(), 1.0, 1.0
    for _ in range(100):
        V = torch.linalg.inv(x.T @ x / noise + prior * torch.eye(3, dtype=DOUBLE))
        net.only.weight.data = (V @ x.T @ y / noise)[None]
        model = laplace(net, x, y, task="values", structure="full")
        noise, prior = float(model.noise), float(model.prior)

    def density(n: float, d: float) -> float:
        covariance = n * torch.eye(40, dtype=DOUBLE) + x @ x.T / d
        zero = torch.zeros(40, dtype=DOUBLE)
        return float(torch.distributions.MultivariateNormal(zero, covariance).log_prob(y))

    best = density(noise, prior)
    assert best == pytest.approx(float(model.evidence), rel=1e-9)
    for factor in (0.97, 1.03):
        assert density(noise * factor, prior) < best and density(noise, prior * factor) < best


@pytest.mark.parametrize("values", [True, False])
def test_most_evident_is_a_maximum_of_the_evidence_at_fixed_weights(values) -> None:
    eigenvalues = torch.tensor([0.0, 0.5, 3.0, 40.0, 900.0], dtype=DOUBLE)
    squares, loss, total = (torch.tensor(v, dtype=DOUBLE) for v in (2.5, 6.0, 30.0))
    fit = Fit(eigenvalues, squares, loss, total, values)
    noise, prior = most_evident(fit)
    best = log_evidence(fit, noise, prior)
    assert log_evidence(fit, noise, prior * 1.02) < best > log_evidence(fit, noise, prior / 1.02)
    if values:
        assert log_evidence(fit, noise * 1.02, prior) < best > log_evidence(fit, noise / 1.02, prior)
    else:
        assert float(noise) == 1


def test_kronecker_factors_are_exact_for_one_example_and_not_for_two() -> None:
    for count, exact in ((1, True), (2, False)):
        x = rows(count + 3)[3:]
        net = nn.Sequential(nn.Linear(3, 3)).double()
        y = torch.arange(count)
        full, kron = (laplace(net, x, y, structure=s, learn="none") for s in ("full", "kron"))
        same = torch.allclose(full.curvature.eigenvalues().sort()[0], kron.curvature.eigenvalues().sort()[0])
        assert same == exact
        q = rows(3) + 0.5
        assert torch.allclose(full.linearized(q)[1], kron.linearized(q)[1], rtol=1e-9) == exact


def test_kronecker_factors_of_a_convolution_are_those_of_its_patches() -> None:
    """Grosse and Martens 2016, Equation 32: sums over places on both sides, one share 1 / T."""
    net, x = images()
    model = laplace(net, x, torch.arange(5) % 3, structure="kron", learn="none")
    conv = net[0]
    sent = conv(x).detach().requires_grad_()
    logits = net[3](net[2](net[1](sent)))
    p = logits.detach().softmax(1)
    u = F.unfold(x, 3, padding=1, stride=2).mT.flatten(0, 1)
    u = torch.cat((u, torch.ones(len(u), 1, dtype=DOUBLE)), 1)
    A, B = u.T @ u, torch.zeros(2, 2, dtype=DOUBLE)
    for k in range(3):  # E over labels drawn from p of g g', which is J' (diag p - p p') J
        g = torch.autograd.grad(-logits.log_softmax(1)[:, k].sum(), sent, retain_graph=True)[0].flatten(2)
        B += torch.einsum("b,but,bvt->uv", p[:, k], g, g)
    expected = torch.outer(torch.linalg.eigvalsh(B), torch.linalg.eigvalsh(A)).flatten() / (5 * 4)
    found = model.curvature.eigenvalues()[: 2 * 10]
    assert torch.allclose(found.sort()[0], expected.sort()[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_draws_of_every_structure_have_its_covariance(structure) -> None:
    """50,000 draws; J w has variance J S J', to five of its deviations sqrt(2 / 50,000)."""
    net, x = network(2), rows()
    model = laplace(net, x, torch.arange(12) % 2, structure=structure, learn="none")
    drawn = model.curvature.draw(50_000, model.noise, model.prior, torch.Generator().manual_seed(1))
    J = by_hand(net, x[:3] + 1)[:, :, -drawn.shape[1] :]
    got = torch.einsum("bcp,sp->sbc", J, drawn).var(0)
    expected = model.linearized(x[:3] + 1)[1].diagonal(dim1=1, dim2=2)
    assert torch.allclose(got, expected, rtol=5 * (2 / 50_000) ** 0.5)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_an_example_of_weight_two_counts_as_two(structure) -> None:
    net, x, y = network(3), rows(), torch.arange(12) % 3
    weight = torch.ones(12, dtype=DOUBLE)
    weight[2], weight[5] = 2, 0
    once = laplace(net, x, y, weight=weight, structure=structure)
    order = [0, 1, 2, 2, 3, 4, *range(6, 12)]
    twice = laplace(net, x[order], y[order], structure=structure)
    assert float(once.evidence) == pytest.approx(float(twice.evidence), rel=1e-9)
    assert torch.allclose(once(x), twice(x), rtol=1e-7)


def test_named_weights_are_the_networks() -> None:
    net, x = network(2), rows()
    model = laplace(net, x, torch.arange(12) % 2, structure="kron", learn="none")
    found = model.named_weights(model.weights())
    for name, p in net.named_parameters():
        assert torch.equal(found[name], p)


@pytest.mark.parametrize("rule", ["linearized", "sampled"])
def test_drawn_probabilities_are_those_of_the_law(rule) -> None:
    """A linear network of two classes: both draw logits of one Gaussian, whose mean is an integral."""
    net, x, y = nn.Sequential(nn.Linear(3, 2)).double(), rows(), torch.arange(12) % 2
    model = laplace(
        net, x, y, structure="full", predictive=rule, samples=20_000, learn="none", prior_precision=0.05
    )
    mean, S = model.linearized(x)
    m, v = mean[:, 1] - mean[:, 0], S[:, 0, 0] + S[:, 1, 1] - 2 * S[:, 0, 1]
    t = torch.linspace(-9, 9, 4001, dtype=DOUBLE)
    weight = torch.exp(-t.square() / 2) / torch.exp(-t.square() / 2).sum()
    expected = (torch.sigmoid(m[:, None] + v.sqrt()[:, None] * t) * weight).sum(1)
    # a deviation of a probability is at most 1/2: five standard errors
    assert (model(x)[:, 1].exp() - expected).abs().max() < 5 * 0.5 / 20_000**0.5
    law = Mixture(m[None], v[None])
    assert bool((law.variance > 0).all())


def test_the_probabilities_can_be_differentiated_by_the_inputs() -> None:
    net, x = network(3), rows(3)
    model = laplace(net, rows(), torch.arange(12) % 3, structure="kron", prior_precision=0.1, learn="none")
    assert torch.autograd.gradcheck(model, x.requires_grad_())


def test_a_network_of_one_output_may_drop_its_axis() -> None:
    x, y = rows(), rows()[:, 0]
    flat, column = Scale(3).double(), nn.Linear(3, 1, bias=False).double()
    column.weight.data = flat.only.weight.data
    a, b = (laplace(net, x, y, task="values") for net in (flat, column))
    assert torch.allclose(a.predictive(x).variance, b.predictive(x).variance)


def test_asking_leaves_no_trace() -> None:
    net = network(3)
    net.train()
    net[1].eval()
    before, state = [p.clone() for p in net.parameters()], torch.get_rng_state()
    laplace(net, rows(), torch.arange(12) % 3)(rows())
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, net.parameters(), strict=True))
    assert not any(m._forward_hooks for m in net.modules()) and torch.equal(state, torch.get_rng_state())


# bad input


@pytest.mark.parametrize("precision", [0.0, -1.0, math.nan, math.inf])
def test_a_prior_precision_must_be_positive(precision) -> None:
    with pytest.raises(ValueError, match=r"prior_precision must be positive and finite: got"):
        LaplaceClassifier(lambda: network(3), 3, prior_precision=precision)


def test_a_noise_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"noise must be positive and finite: got 0"):
        LaplaceRegressor(lambda: network(1), noise=0.0)


def test_a_curvature_that_does_not_fit_is_refused_with_what_does() -> None:
    net = nn.Sequential(nn.Linear(1000, 1000), nn.Linear(1000, 10))
    with pytest.raises(ValueError, match=r"full of 1,011,010 weights takes .* choose structure kron"):
        LaplaceClassifier(lambda: net, 10, structure="full")
    assert bytes_of([(1000, 1001), (10, 1001)], "diag") == 8 * 1_011_010


def test_auto_is_full_up_to_2048_weights_and_else_kron() -> None:
    """Kron and diag take the noise of few rows for larger than it is: full where it is cheap."""
    for inputs, structure in ((2047, "full"), (2048, "kron")):
        model = LaplaceClassifier(lambda n=inputs: nn.Linear(n, 1), 1)
        assert model.structure == structure and model.notes[0].startswith(f"structure {structure}: ")


def test_what_has_no_known_jacobian_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs a linear or convolutional layer: ReLU has none"):
        LaplaceClassifier(nn.ReLU, 2)
    with pytest.raises(ValueError, match=r"convolutions of one group"):
        LaplaceClassifier(lambda: nn.Conv2d(4, 4, 3, groups=2), 2)
    layer = nn.Linear(3, 3).double()
    with pytest.raises(ValueError, match=r"applied once, in the order"):
        laplace(nn.Sequential(layer, nn.Tanh(), layer), rows(), torch.arange(12) % 3)
    with pytest.raises(ValueError, match=r"values needs a network of one output: got 3"):
        laplace(network(3), rows(), rows()[:, 0], task="values")


def test_it_predicts_once_it_is_fitted() -> None:
    with pytest.raises(ValueError, match=r"predicts once it is fitted"):
        LaplaceRegressor(lambda: network(1)).predictive(rows())
    model = LaplaceClassifier(lambda: network(3), 3).eval()
    assert torch.equal(model(rows()), network(3)(rows()))


def test_duplicate_rows_and_constant_targets_are_handled() -> None:
    x, net = rows(1).expand(12, 3), Scale(3).double()
    model = laplace(net, x, torch.zeros(12, dtype=DOUBLE), task="values", structure="full")
    law = model.predictive(rows())
    assert bool(law.variance.isfinite().all()) and bool((law.variance > 0).all())


def test_a_network_in_half_precision_has_a_curvature_in_double() -> None:
    net, x, y = network(3), rows(), torch.arange(12) % 3
    full = laplace(net, x, y, learn="none")(x)
    half = laplace(network(3).bfloat16(), x.bfloat16(), y, learn="none")
    assert half.curvature.eigenvalues().dtype == DOUBLE
    assert torch.allclose(half(x.bfloat16()).double(), full.double(), atol=0.05)


def test_fitting_again_forgets_the_first() -> None:
    net, x, y = network(3), rows(), torch.arange(12) % 3
    model = laplace(net, x, y, learn="none")
    values = model.curvature.eigenvalues().clone()
    fitted(model, x, y, torch.ones(12, dtype=DOUBLE), learn=False)
    assert torch.allclose(values, model.curvature.eigenvalues())
