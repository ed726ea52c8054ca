"""Claims about tangent kernels, of trained networks and of wide ones."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, nn

from margin import testing
from margin.core.catalog import claims, resolve
from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.kernels import wide_claims
from margin.theory.kernels.claims import alignment, drift, trained
from margin.theory.kernels.regression import Linearized

MINE = [name for name in claims() if name.startswith(("theory/ntk.", "theory/nngp."))]


@pytest.mark.parametrize("name", MINE)
def test_a_claim_keeps_its_contracts(name) -> None:
    testing.check_claim(claims()[name])


@pytest.mark.parametrize("name", [n for n in MINE if n not in ("theory/ntk.alignment", "theory/ntk.drift")])
def test_a_theorem_holds_on_its_demonstration(name) -> None:
    claim = claims()[name]
    assert resolve(claim.ask)(resolve(claim.demo)()).verdict is Verdict.HOLDS


def test_other_formulas_are_found_out(monkeypatch) -> None:
    """The arc-cosine kernels as Cho and Saul print them are twice the means; without the halves they fail."""
    subject, own = wide_claims.demo(), wide_claims.relu_dual
    with monkeypatch.context() as patch:
        patch.setattr(wide_claims, "relu_dual", lambda *abc: own(*abc)._replace(value=2 * own(*abc).value))
        assert wide_claims.arc_cosine(subject).verdict is Verdict.VIOLATED
    with monkeypatch.context() as patch:  # a prior mean's ridge that is not the noise
        found = wide_claims.kernel_regression
        patch.setattr(wide_claims, "kernel_regression", lambda *a, ridge: found(*a, ridge=2 * ridge))
        assert wide_claims.posterior_mean(subject).verdict is Verdict.VIOLATED
    found = wide_claims.kurtosis(subject)
    assert bool(
        (found.value * 6 / torch.tensor([2, 4, 8, 16]) > 10 * found.stderr * 6 / 16).all()
    )  # no Gaussian


def test_the_mean_outputs_of_random_linear_maps_have_the_gram_matrix_of_inputs() -> None:
    """y = X w, w ~ N(0, s2/d): covariance (s2/d) X X' between examples, not X' X (errata 201)."""
    x = torch.randn(3, 5, generator=Generator().manual_seed(0)).double()
    w = torch.randn(5, 200_000, generator=Generator().manual_seed(1)).double() * (2 / 5) ** 0.5
    covariance = (x @ w) @ (x @ w).T / 200_000
    torch.testing.assert_close(covariance, 2 / 5 * x @ x.T, rtol=0, atol=0.1)
    assert (x.T @ x).shape != covariance.shape


def test_a_kernel_moves_less_in_a_wide_network() -> None:
    narrow, wide = (drift(trained(width)).value for width in (16, 1024))
    assert bool((wide < narrow / 2).all())


def test_a_linear_model_is_lazy_and_its_kernel_stays() -> None:
    generator = Generator().manual_seed(0)
    x = torch.randn(20, 3, generator=generator).double()
    first, last = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    subject = Subject(
        model=last,
        initial=first,
        test=[Batch((x,), x[:, :2])],
        task=VALUES,
        objective=risk(VALUES),
    )
    found = drift(subject)
    assert found.value[0] == pytest.approx(0, abs=1e-12)
    assert found.value[2] == pytest.approx(0, abs=1e-12)
    assert found.value[1] > 0.1
    with pytest.raises(NotAsked, match="the weights are those that the training began with"):
        drift(replace(subject, initial=last))


def test_alignment_is_1_where_the_kernel_is_that_of_the_labels() -> None:
    """A linear model of one feature, the label itself: K = x x' + 1."""
    y = torch.tensor([0, 1, 1, 0, 1, 1])
    x = (2.0 * y - 1)[:, None].double()
    model = nn.Linear(1, 2).double()
    subject = Subject(model=model, test=[Batch((x,), y)], task=CLASSES, objective=risk(CLASSES))
    assert float(alignment(subject).value) == pytest.approx(1)
    # of features that have nothing to do with it, balanced over the classes, 0
    other = torch.tensor([1.0, 1, -1, -1, 1, -1])[:, None].double()
    found = alignment(replace(subject, test=[Batch((other,), y)]))
    assert float(found.value) == pytest.approx(0, abs=1e-12)
    assert found.curves["target"].tolist() == [0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": [Batch((torch.randn(1, 2),), torch.tensor([0]))]}, "between two examples or more"),
        (
            {"test": [Batch((torch.randn(4, 2),), torch.ones(4).long())]},
            "of all examples that were drawn are equal",
        ),
        ({"model": nn.Linear(2, 65)}, "has 65 outputs, more than 64"),
        (
            {"model": nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))},
            "Expected more than 1 value",
        ),
    ],
)
def test_what_has_no_kernel_is_not_asked(change, message) -> None:
    subject = Subject(
        model=nn.Linear(2, 2),
        test=[Batch((torch.randn(6, 2),), torch.arange(6) % 2)],
        task=CLASSES,
        objective=risk(CLASSES),
    )
    with pytest.raises(NotAsked, match=message):
        alignment(replace(subject, **change))


def test_a_linearized_network_trains_like_any_module() -> None:
    """Its parameters are those that change; no first-order part is left of its own training."""
    subject = trained(16, steps=0)
    line = Linearized(subject.model)
    batch = subject.train[0]
    loss = nn.functional.cross_entropy(line(*batch.inputs), batch.targets)
    optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
    loss.backward()
    optimizer.step()
    after = nn.functional.cross_entropy(line(*batch.inputs), batch.targets)
    assert bool(after < loss)
    assert all(p.grad is None for p in line.base.parameters())
