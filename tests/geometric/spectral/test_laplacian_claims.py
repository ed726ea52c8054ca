"""The Laplacian's promises on graphs that keep them, and on graphs that are none of theirs."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, Verdict
from margin.core.types import Batch
from margin.geometric.spectral import graph_fourier, laplacian_claims
from margin.geometric.spectral.laplacian import adjacency, cycle, path, weighted_random
from margin.geometric.spectral.laplacian_claims import (
    bipartite,
    bipartite_components,
    components,
    components_of,
    demo,
    energy,
    frequency,
    interval,
    orthogonality,
)
from margin.geometric.spectral.subjects import is_small_graph

CLAIMS = (components, interval, bipartite, energy, orthogonality, frequency)


class First(nn.Module):
    """The first features of a node as its logits; says how it reads weights where it does."""

    def __init__(self, edge_weight: str = "none") -> None:
        super().__init__()
        self.edge_weight = edge_weight

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        return x[:, :2]


def subject(
    edges: Tensor, size: int, x: Tensor | None = None, weight: Tensor | None = None, way: str = "none"
) -> Subject:
    x = torch.randn(size, 3, generator=Generator().manual_seed(0)) if x is None else x
    attr = torch.zeros(edges.shape[1], 0) if weight is None else weight[:, None].float()
    batch = Batch((x, edges, attr, torch.tensor([size])), torch.arange(size) % 2, torch.ones(size))
    return replace(demo(), model=First(way), test=[batch])


def value(finding: Finding) -> list[float]:
    return finding.value.flatten().tolist()


@pytest.mark.parametrize("seed", range(4))
def test_every_promise_holds_on_random_graphs(seed: int) -> None:
    edges, weight = weighted_random(20, 0.1, seed)  # several components, and node 19 alone
    for way in ("none", "first"):
        asked = subject(edges, 20, weight=weight, way=way)
        for claim in CLAIMS[:-1]:
            assert claim(asked).verdict == Verdict.HOLDS, claim


def test_components_and_halves_are_counted_by_hand() -> None:
    edges = torch.cat((cycle(6), cycle(5) + 6, path(4) + 11), 1)  # 15 is alone
    A = adjacency(edges, 16, dtype=torch.float64)
    count, labels = components_of(A)
    assert count == 4
    assert labels.unique(return_counts=True)[1].sort().values.tolist() == [1, 4, 5, 6]
    assert bipartite_components(A) == 2
    for size in (3, 4, 5, 8):
        assert bipartite_components(adjacency(cycle(size), size)) == (size % 2 == 0)
    assert bipartite_components(adjacency(torch.zeros(2, 0, dtype=torch.int64), 3)) == 0


def test_one_edge_more_or_less_changes_the_counts() -> None:
    assert value(components(subject(path(6), 6))) == [1.0]
    edges = path(6)
    cut = edges[:, ~((edges == 2).any(0) & (edges == 3).any(0))]
    assert value(components(subject(cut, 6))) == [2.0]
    assert value(bipartite(subject(cycle(6), 6))) == [1.0]
    chord = torch.cat((cycle(6), torch.tensor([[0, 2], [2, 0]])), 1)  # a triangle
    assert value(bipartite(subject(chord, 6))) == [0.0]
    assert value(interval(subject(cycle(6), 6)))[1] == pytest.approx(2.0, abs=1e-12)


def test_a_wrong_count_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise comes from a search, so it can be missed."""
    monkeypatch.setattr(laplacian_claims, "components_of", lambda A: (3, torch.zeros(6)))
    monkeypatch.setattr(laplacian_claims, "bipartite_components", lambda A: 0)
    assert components(subject(path(6), 6)).verdict == Verdict.VIOLATED
    assert bipartite(subject(path(6), 6)).verdict == Verdict.VIOLATED


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_directed_graph_is_none_of_theirs(claim: object) -> None:
    finding = claim(subject(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3))
    assert finding.verdict == Verdict.UNFOUNDED
    assert "an edge 1 -> 2, but none 2 -> 1" in finding.premises[0].evidence
    weight = torch.tensor([1.0, 2.0])
    both = torch.tensor([[0, 1], [1, 0]])
    assert claim(subject(both, 2, weight=weight, way="first")).verdict == Verdict.UNFOUNDED
    assert claim(subject(both, 2, weight=weight)).verdict != Verdict.UNFOUNDED


def test_features_that_are_no_numbers_fail() -> None:
    asked = subject(path(4), 4, x=torch.full((4, 3), torch.nan))
    for claim in (energy, frequency):
        assert claim(asked).verdict == Verdict.FAILED
    alike = subject(path(4), 4, x=torch.ones(4, 3))
    constant = frequency(replace(alike, test=[alike.test[0]._replace(weight=None)]))
    assert constant.verdict == Verdict.FAILED
    assert "alike" in constant.failure


def test_a_wave_has_its_own_frequency() -> None:
    """cos(2 pi k n / M) on a cycle: 1 - cos(2 pi k / M), where all its energy is."""
    turns = 2 * torch.pi * torch.arange(12, dtype=torch.float64) / 12
    for k in (1, 4, 6):
        x = torch.cos(k * turns)[:, None].expand(-1, 2).float()
        finding = frequency(subject(cycle(12), 12, x=x))
        expected = 1 - float(torch.cos(k * turns[1]))
        assert finding.labels == ("features", "outputs", "labels")
        assert value(finding)[0] == pytest.approx(expected, abs=1e-6)
        assert value(finding)[1] == pytest.approx(expected, abs=1e-6)
        assert value(finding)[2] == pytest.approx(2.0, abs=1e-12)  # labels alternate
        energy_at = finding.curves["energy of features"]
        at = (finding.curves["graph eigenvalue"] - expected).abs() < 1e-6
        assert float(energy_at[at].sum()) == pytest.approx(1.0, abs=1e-6)


def test_repeated_eigenvalues_are_said() -> None:
    assert "10 of 12 eigenvalues repeat" in orthogonality(subject(cycle(12), 12)).statement
    assert "0 of 6 eigenvalues repeat" in orthogonality(subject(path(6), 6)).statement


def test_large_graphs_are_asked_what_needs_no_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_fourier, "MOST_NODES", 11)
    monkeypatch.setattr(laplacian_claims, "MOST_NODES", 11)
    asked = subject(cycle(12), 12)
    assert not is_small_graph(asked)
    assert is_small_graph(subject(cycle(11), 11))
    assert energy(asked).verdict == Verdict.HOLDS
    finding = frequency(asked)
    assert finding.verdict == Verdict.MEASURED
    assert not finding.curves


def test_the_demonstration_holds_and_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    for claim in CLAIMS:
        assert claim(demo()).verdict in (Verdict.HOLDS, Verdict.MEASURED)
    assert torch.equal(torch.get_rng_state(), before)
