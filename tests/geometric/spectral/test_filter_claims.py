"""Promises of graph filters: kept by ours, broken by layers that are wrong on purpose."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, Verdict
from margin.core.types import Batch
from margin.geometric.spectral import chebnet as chebnet_module
from margin.geometric.spectral import filter_claims
from margin.geometric.spectral.chebnet import ChebConv, chebnet
from margin.geometric.spectral.filter_calls import has_chebyshev, has_filters
from margin.geometric.spectral.filter_claims import demo, heat, passed, reach, rescaling, spectral_form
from margin.geometric.spectral.filters import spectral_network
from margin.geometric.spectral.laplacian import Symmetric, cycle, path, weighted_random
from margin.geometric.spectral.polynomial_filter import polynomial_network

CLAIMS = (spectral_form, reach, rescaling, heat, passed)


def subject(model: nn.Module, edges: Tensor, size: int, weight: Tensor | None = None) -> Subject:
    x = torch.randn(size, 3, generator=Generator().manual_seed(0))
    attr = torch.zeros(edges.shape[1], 0) if weight is None else weight[:, None].float()
    batch = Batch((x, edges, attr, torch.tensor([size])), torch.arange(size) % 2, torch.ones(size))
    return replace(demo(), model=model.eval(), test=[batch])


def value(finding: Finding) -> list[float]:
    return finding.value.flatten().tolist()


@pytest.mark.parametrize("largest", ["bound", "lanczos"])
@pytest.mark.parametrize("how", ["symmetric", "none"])
def test_every_promise_of_chebnet_holds(largest: str, how: str) -> None:
    torch.manual_seed(0)
    edges, weight = weighted_random(20, 0.2, 0)
    model = chebnet(3, 1, 2, order=3, largest=largest, normalization=how, edge_weight="first")
    asked = subject(model, edges, 20, weight)
    for claim in CLAIMS:
        finding = claim(asked)
        assert finding.verdict in (Verdict.HOLDS, Verdict.MEASURED), (claim, finding.value)
    assert has_filters(asked)
    assert has_chebyshev(asked)


def test_polynomials_and_splines_have_their_spectral_form() -> None:
    torch.manual_seed(0)
    edges, _ = weighted_random(20, 0.2, 0)
    for model in (polynomial_network(3, 0, 2, degree=4), spectral_network(3, 0, 2)):
        asked = subject(model, edges, 20)
        assert spectral_form(asked).verdict == Verdict.HOLDS
        assert passed(asked).verdict == Verdict.MEASURED
        assert not has_chebyshev(asked)


@pytest.mark.parametrize("order", [0, 1, 3])
def test_the_reach_is_attained_and_a_spline_has_none(order: int) -> None:
    torch.manual_seed(0)
    finding = reach(subject(chebnet(3, 0, 2, order=order), path(20), 20))
    assert finding.verdict == Verdict.HOLDS
    assert value(finding) == [order, order]
    spline = reach(subject(spectral_network(3, 0, 2), path(20), 20))
    assert spline.verdict == Verdict.UNFOUNDED
    assert "layers.0 is a spline" in next(p.evidence for p in spline.premises if p.status == "refuted")


def test_a_filter_that_reads_further_than_it_says_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = chebnet(3, 0, 2, order=2)
    monkeypatch.setattr(ChebConv, "hops", property(lambda self: 1))
    finding = reach(subject(model, path(20), 20))
    assert finding.verdict == Verdict.VIOLATED
    assert value(finding) == [2.0, 2.0]


def test_a_wrong_recurrence_has_not_the_spectral_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """T_k = 2 L T_{k-1} - T_{k-2} without its second term."""
    torch.manual_seed(0)
    asked = subject(chebnet(3, 0, 2, order=2), path(6), 6)

    def wrong(L_hat: Symmetric, terms: Tensor) -> Tensor:
        return terms[0] + L_hat @ terms[1] + 2 * (L_hat @ (L_hat @ terms[2]))

    assert spectral_form(asked).verdict == Verdict.HOLDS
    monkeypatch.setattr(chebnet_module, "clenshaw", wrong)
    assert spectral_form(asked).verdict == Verdict.VIOLATED


@pytest.mark.parametrize("size", [8, 600])
def test_a_spectrum_that_is_not_rescaled_is_seen(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With lambda_max taken as half of what it is, L^ reaches to 3; below and above the dense limit."""
    torch.manual_seed(0)
    asked = subject(chebnet(3, 0, 2), cycle(size), size)
    finding = rescaling(asked)
    assert finding.verdict == Verdict.HOLDS
    assert value(finding)[:2] == pytest.approx([-1.0, 1.0], abs=1e-3)
    original = filter_claims.rescaled_of

    def halved(*given: object, **options: object) -> Symmetric:
        S = original(*given, **options)
        values = torch.where(S.where.row == S.where.column, S.values, 2 * S.values)
        return Symmetric(S.where, values)

    monkeypatch.setattr(filter_claims, "rescaled_of", halved)
    assert rescaling(asked).verdict == Verdict.VIOLATED


def test_what_a_filter_lets_through() -> None:
    """Of T_1 alone with lambda_max = 2 the gain at lambda is |lambda - 1| times a constant."""
    torch.manual_seed(0)
    model = chebnet(3, 0, 2, layers=1, order=1)
    with torch.no_grad():
        model.layers[0].theta[0].zero_()
    finding = passed(subject(model, cycle(8), 8))
    values = finding.curves["graph eigenvalue"]
    own = finding.curves["response of layers.0"]
    torch.testing.assert_close(own / own.max(), (values - 1).abs(), rtol=0, atol=1e-6)
    expected = ((values - 1) ** 2 @ values) / ((values - 1) ** 2).sum()
    assert value(finding) == pytest.approx([float(expected)], abs=1e-6)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_directed_graph_is_none_of_theirs(claim: object) -> None:
    torch.manual_seed(0)
    finding = claim(subject(chebnet(3, 0, 2), torch.tensor([[0, 1, 1], [1, 0, 2]]), 3))
    assert finding.verdict == Verdict.UNFOUNDED
    assert "none 2 -> 1" in finding.premises[0].evidence


def test_weights_that_are_no_numbers_fail() -> None:
    torch.manual_seed(0)
    model = chebnet(3, 0, 2)
    with torch.no_grad():
        model.layers[0].linear.weight[:] = torch.nan
    for claim in (spectral_form, reach, passed):
        assert claim(subject(model, path(6), 6)).verdict == Verdict.FAILED, claim


def test_the_demonstration_holds_and_leaves_no_trace() -> None:
    before, asked = torch.get_rng_state(), demo()
    weights = [p.detach().clone() for p in asked.model.parameters()]
    for claim in CLAIMS:
        assert claim(asked).verdict in (Verdict.HOLDS, Verdict.MEASURED)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(p, q) for p, q in zip(asked.model.parameters(), weights, strict=True))
    assert all(p.grad is None for p in asked.model.parameters())
