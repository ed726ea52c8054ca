"""What is left of differences and energies, against the rate; graphs for which nothing is promised."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from margin.core.findings import Verdict
from margin.geometric.graphs import oversmoothing as c
from margin.geometric.graphs.claims import small_gcn
from margin.geometric.graphs.oversmoothing import smoothing_of
from margin.geometric.graphs.weisfeiler_leman import both_ways, ring

SMALL = small_gcn()


def with_inputs(x: Tensor | None = None, edges: Tensor | None = None):
    batch = SMALL.test[0]
    x = batch.inputs[0] if x is None else x
    edges = batch.inputs[1] if edges is None else edges
    inputs = (x, edges, torch.zeros(edges.shape[1], 0), torch.tensor([len(x)]))
    return replace(SMALL, test=[batch._replace(inputs=inputs, targets=batch.targets[: len(x)])])


def test_the_rate_bounds_what_is_left_and_is_reached_in_the_end() -> None:
    """A ring of 9 has the second eigenvalue (1 + 2 cos 40 degrees) / 3, the path of 3 a smaller one."""
    found = c.contraction(SMALL)
    assert found.verdict is Verdict.HOLDS
    known = (1 + 2 * math.cos(2 * math.pi / 9)) / 3
    assert float(found.high) == pytest.approx(known, abs=1e-12)
    assert float(found.value[-1]) > 0.98 * known
    assert bool((found.curves["left of the differences"] <= found.curves["rate to that power"] + 1e-12).all())


def test_it_is_tight_for_the_slowest_signal() -> None:
    k = torch.arange(9)
    slow = torch.cos(2 * math.pi * k / 9)
    x = torch.cat((slow, torch.zeros(3)))[:, None] * torch.ones(1, 4)
    found = c.contraction(with_inputs(x=x))
    assert found.verdict is Verdict.HOLDS
    torch.testing.assert_close(found.value, found.high.expand(len(found.value)), rtol=1e-6, atol=0)
    left = c.energy(with_inputs(x=x))
    assert float(left.value[0]) == pytest.approx(float(left.high), rel=1e-6)


def test_a_rate_that_is_too_small_would_be_violated(monkeypatch) -> None:
    true = c.rate
    monkeypatch.setattr(c, "rate", lambda s: true(s)._replace(value=true(s).value - 0.05))
    assert c.contraction(SMALL).verdict is Verdict.VIOLATED


def test_a_directed_graph_is_refused() -> None:
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    for ask in (c.contraction, c.energy):
        found = ask(with_inputs(edges=edges))
        assert found.verdict is Verdict.UNFOUNDED
        assert "undirected" in found.premises[0].evidence


def test_features_at_their_limit_tell_nothing() -> None:
    edges = both_ways(ring(12))
    found = c.contraction(with_inputs(x=torch.ones(12, 4), edges=edges))
    assert found.verdict is Verdict.FAILED
    assert "limit already" in found.failure


def test_energies_of_every_layer_hold_and_are_counted_by_hand() -> None:
    found = c.energy(SMALL)
    assert found.verdict is Verdict.HOLDS
    assert found.labels == ("read by layers.0", "read by layers.1", "given by layers.1")
    x, edges = SMALL.test[0].inputs[:2]
    x = x.double()
    d = 1 + edges[1].bincount(minlength=12).double()
    scaled = x / d.sqrt()[:, None]
    by_edges = 0.5 * (scaled[edges[0]] - scaled[edges[1]]).square().sum()
    share = found.curves["energy in parts of the square"][0]
    assert float(share) == pytest.approx(float(by_edges / x.square().sum()), rel=1e-12)


def test_an_oversmoothed_layer_counts_as_zero_and_a_nan_fails() -> None:
    smoothing = smoothing_of(both_ways(ring(5)), 5)
    assert c._left(smoothing, torch.ones(5, 2, dtype=torch.float64)) == 0.0
    assert math.isnan(c._left(smoothing, torch.full((5, 2), math.nan, dtype=torch.float64)))


def test_colors_go_grey() -> None:
    found = c.contraction(SMALL)
    colors = found.curves["smoothing colors"]
    assert colors.shape == (8, 12, 3)
    assert bool(((colors >= 0) & (colors <= 1)).all())
    strength = (colors - 0.5).abs().mean((1, 2))
    assert float(strength[0]) > 0.1
    assert float(strength[-1]) < 1e-4
    assert found.curves["smoothing depths"].tolist() == [0, *c.DEPTHS]
