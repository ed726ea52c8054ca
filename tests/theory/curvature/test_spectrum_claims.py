"""Density, condition number and layers of a Hessian against its dense spectrum."""

import dataclasses
import math
import warnings

import pytest
import torch
from torch import Generator, nn
from torch.func import functional_call, hessian

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.lanczos import SpectralDensity
from margin.theory.curvature.spectrum_claims import condition, condition_of, counted, density, layers, shares
from margin.theory.curvature.trained_weights import Quadratic, demo, sharpness


def large(width=40):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)).double()
    generator = Generator().manual_seed(2)
    x = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    batch = [Batch((x,), torch.randint(3, (60,), generator=generator))]
    return Subject(model=model, test=batch, train=batch, task=CLASSES, objective=risk(CLASSES))


def dense(subject):
    (batch,) = subject.train
    named = dict(subject.model.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def loss(flat):
        pieces = {n: x.view_as(named[n]) for n, x in zip(named, flat.split(sizes), strict=True)}
        return CLASSES.loss(functional_call(subject.model, pieces, batch.inputs), batch.targets).mean()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own decompositions use torch.jit
        return hessian(loss)(nn.utils.parameters_to_vector(named.values()).detach()).detach()


def quadratic(spectrum):
    A = torch.diag(torch.as_tensor(spectrum, dtype=torch.float64))
    zeros = torch.zeros(3, dtype=torch.float64)
    batch = [Batch((zeros,), zeros)]
    return dataclasses.replace(demo(), model=Quadratic(A), test=batch, train=batch)


def test_few_eigenvalues_are_counted():
    found = density(quadratic([5.0, 1.0, -2.0, 0.01, 0.0, -0.049]))
    assert found.value.tolist() == pytest.approx([1 / 6, 3 / 6, 2 / 6])
    assert found.verdict_interval[0].tolist() == pytest.approx(found.value.tolist())
    assert found.curves["extreme eigenvalues"].tolist() == [-2, 5]
    grid, curve = found.curves["eigenvalue"], found.curves["density"]
    assert torch.trapezoid(curve, grid).item() == pytest.approx(1, abs=2e-3)
    assert not bool(found.curves["density error"].any())
    assert counted(SpectralDensity(torch.tensor([[1.0, -1, 0]]), torch.ones(1, 3), 3), 0.5).low.sum() == 1


def test_many_are_estimated_within_their_interval():
    subject = large()
    values = torch.linalg.eigvalsh(dense(subject))
    found = density(subject)
    assert "Lanczos quadratures" in found.statement
    width = (values[-1] - values[0]).item() / 40
    near = torch.special.ndtr
    below = near((-3 * width - values) / width).mean()
    upto = near((3 * width - values) / width).mean()
    exact = torch.stack((below, upto - below, 1 - upto))
    low, high = found.verdict_interval
    slack = 2e-3  # the width is that of the nodes' ends, a little less than the spectrum's
    assert bool((low - slack <= exact).all() and (exact <= high + slack).all())  # probability 2e-4 / 3
    assert bool((high - low < 0.35).all())
    assert found.curves["extreme eigenvalues"].tolist() == pytest.approx(
        [values[0].item(), values[-1].item()], rel=1e-4
    )


def test_shares_of_a_smoothed_spectrum_add_up():
    nodes = torch.tensor([[-2.0, 0.0, 1.0], [-2.0, 0.0, 1.0]], dtype=torch.float64)
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.5, 0.1]], dtype=torch.float64)
    found = shares(SpectralDensity(nodes, weights, 100), 0.3, 0.01)
    assert found.value.tolist() == pytest.approx([0.3, 0.5, 0.2], abs=1e-6)
    assert bool((found.low <= found.value).all() and (found.value <= found.high).all())


@pytest.mark.parametrize(
    ("spectrum", "ratio", "says"),
    [
        ([1.0, 100.0], 100, "positive definite: this is its condition number"),
        ([1.0, 0.0, 100.0], 100, r"singular (1 of 3 eigenvalues are 0"),
        ([1.0, -50.0, 100.0], 100, "regular and indefinite"),
        ([-0.5, 0.0, -100.0], 200, "it is indefinite"),
        ([0.0, 0.0], 1, r"singular (2 of 2"),
    ],
)
def test_the_condition_number_and_its_honest_reading(spectrum, ratio, says):
    found = condition(quadratic(spectrum))
    assert found.value.item() == pytest.approx(ratio, rel=1e-9)
    assert says in found.statement
    assert found.verdict == Verdict.MEASURED


def test_gradient_descent_contracts_by_the_condition_number_and_a_preconditioner_makes_it_one():
    H = torch.diag(torch.tensor([1.0, 100.0], dtype=torch.float64))
    step = 2 / (1 + 100)
    w = torch.ones(2, dtype=torch.float64)
    for _ in range(50):
        after = w - step * H @ w
        assert (after.norm() / w.norm()).item() == pytest.approx(99 / 101, rel=1e-12)
        w = after
    inverse_root = torch.diag(H.diagonal() ** -0.5)
    values = torch.linalg.eigvalsh(inverse_root @ H @ inverse_root)
    found = condition_of(values, torch.full((2,), 1e-12), whole=True)
    assert found.ratio == pytest.approx(1, abs=1e-9) and found.definite


def test_of_many_parameters_the_ratio_is_a_lower_bound():
    subject = large()
    values = torch.linalg.eigvalsh(dense(subject)).abs()
    found = condition(subject)
    assert found.kind == "lower"
    truth = (values.max() / values[values > 1e-12 * values.max()].min()).item()
    assert 10 < found.value.item() <= truth
    assert "the ratio is at least this" in found.statement


def test_errors_decide_which_eigenvalues_are_known():
    values = torch.tensor([10.0, 1.0, 0.05], dtype=torch.float64)
    found = condition_of(values, torch.tensor([0.1, 0.2, 0.1]).double(), whole=True)
    assert found.zeros == 1 and not found.definite
    assert (found.low, found.ratio, found.high) == pytest.approx((9.9 / 1.2, 10, 10.1 / 0.8))
    assert condition_of(values, torch.tensor([0.1, 0.2, 0.1]).double(), whole=False).ratio == pytest.approx(
        9.9 / 1.2
    )


@pytest.mark.parametrize("width", [4, 40])
def test_layers_are_blocks_of_the_trace(width):
    subject = large(width)
    diagonal = dense(subject).diagonal()
    names, parameters = zip(*subject.model.named_parameters(), strict=True)
    exact = torch.stack([part.sum() for part in diagonal.split([p.numel() for p in parameters])])
    found = layers(subject)
    assert found.labels == names
    low, high = found.verdict_interval
    assert bool((low - 1e-12 <= exact).all() and (exact <= high + 1e-12).all())  # 4 x 6e-5
    if width == 4:
        torch.testing.assert_close(found.value, exact, rtol=0, atol=1e-12)
    assert bool(found.remarks) is (width == 40)  # of 30 random signs a parameter it says so


@pytest.mark.parametrize("claim", [density, condition, layers])
@pytest.mark.parametrize("width", [4, 40])
def test_nan_fails(claim, width):
    subject = large(width)
    with torch.no_grad():
        subject.model[0].weight[0, 0] = math.nan
    found = claim(subject)
    assert found.verdict == Verdict.FAILED and "not finite" in found.failure
    found.as_json()


def test_linear_regression_has_the_condition_number_of_its_covariance():
    X = torch.randn(40, 6, generator=Generator().manual_seed(5), dtype=torch.float64)
    batch = [Batch((X,), torch.zeros(40, 1, dtype=torch.float64))]
    subject = Subject(
        model=nn.Linear(6, 1, bias=False).double(),
        test=batch,
        train=batch,
        task=VALUES,
        objective=risk(VALUES),
    )
    assert condition(subject).value.item() == pytest.approx(torch.linalg.cond(X.T @ X).item(), rel=1e-8)


@pytest.mark.parametrize("steps", [3, 5, 9, 21])
def test_a_ritz_value_near_0_is_no_eigenvalue_near_0(steps):
    # Eigenvalues of magnitude 1 to 2, both signs: an odd number of Ritz values has one near 0.
    size = torch.linspace(1, 2, 150)
    found = condition(quadratic(torch.cat((size, -size))), steps=steps)
    assert 1 <= found.value.item() <= 2


@pytest.mark.parametrize("w", [1.0, -1.0])
def test_the_curvature_of_a_single_parameter_is_asked(w):
    """A random direction and the gradient's cancel in one dimension where their signs differ."""
    A = torch.tensor([[3.0]], dtype=torch.float64)
    model = Quadratic(A)
    with torch.no_grad():
        model.w.fill_(w)
    zeros = torch.zeros(3, dtype=torch.float64)
    batch = [Batch((zeros,), zeros)]
    found = sharpness(dataclasses.replace(demo(), model=model, test=batch, train=batch))
    assert found.value.flatten()[0].item() == pytest.approx(3.0)
