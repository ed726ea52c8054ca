"""Claims about examples look at all held-out batches: each is given two, of which the second alone is bad.

A claim that reads the first batch only passes by every one of these models.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from margin.classic.memory import associative_memory_claims, hopfield_claims
from margin.core.findings import Finding, Subject, Verdict
from margin.core.types import Batch
from margin.generative.flow import claims as made_claims
from margin.geometric.graphs import claims as homophily_claims
from margin.geometric.sets import equivariance_claims
from margin.sequence.convolution import claims as convolution_claims
from margin.sequence.convolution.wavenet import CachedSteps
from margin.sequence.dynamics import gradient_claims, padding_claims
from margin.sequence.linear import scan_claims
from margin.sequence.recurrent.captured import captured
from margin.sequence.seq2seq import claims as seq2seq_claims
from margin.sequence.seq2seq.model import AttentionSeq2Seq
from margin.theory.dynamics import predictiveness as predictiveness_claims

Ask = Callable[[Subject], Finding]
BAD = -7.0
"""The first number of an example that a broken model treats wrongly."""


class Broken(nn.Module):
    """A module that is right but for inputs whose first number is :data:`BAD`, to which it adds ``error``."""

    def __init__(self, right: nn.Module, error: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.right, self.error = right, error

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        out = self.right(x) if lengths is None else self.right(x, lengths)
        bad = x.flatten(1)[:, 0] == BAD
        return out + torch.where(bad, self.error(x), 0).reshape(-1, *(1,) * (out.ndim - 1))


def behind_the_end(x: Tensor) -> Tensor:
    return x[:, -1].flatten(1).sum(1)


def causality() -> tuple[Ask, Subject, Subject]:
    subject = convolution_claims.replacement_demo()
    (batch,) = subject.test
    tokens = batch.inputs[0].clone()
    good = Batch((tokens,), batch.targets)
    # tokens are indices: the mark is the token 4 in front, which no good sequence begins with
    tokens[:, 0] = 0
    marked = tokens.clone()
    marked[:, 0] = 4

    class Leaks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            logits = torch.nn.functional.one_hot(x, 5).double()
            return logits + (x[:, 0] == 4)[:, None, None] * x[:, -1, None, None]

    def of(*batches: Batch) -> Subject:
        return replace(subject, model=Leaks(), test=list(batches))

    return convolution_claims.replacement, of(good), of(good, Batch((marked,), batch.targets))


def padding() -> tuple[Ask, Subject, Subject]:
    subject = padding_claims.demo()
    (batch,) = subject.test
    x, lengths = batch.inputs
    marked = x.clone()
    marked[:, 0, 0] = BAD
    model = Broken(subject.model, behind_the_end)
    bad = batch._replace(inputs=(marked, lengths))
    return (
        padding_claims.invariance,
        replace(subject, model=model),
        replace(subject, model=model, test=[batch, bad]),
    )


def made() -> tuple[Ask, Subject, Subject]:
    subject = made_claims.bits_demo()
    (batch,) = subject.test
    marked = batch.inputs[0].clone()
    marked[:, 0] = BAD

    core: Any = subject.model
    right = core.network

    class Ahead(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            ahead = torch.where(x[..., :1] == BAD, x.sum(-1, keepdim=True), 0)
            out: Tensor = right(x) + ahead
            return out

    core.network = Ahead()
    return made_claims.causality, subject, replace(subject, test=[batch, Batch((marked,))])


def hopfield(patch: pytest.MonkeyPatch) -> tuple[Ask, Subject, Subject]:
    """A trajectory that goes uphill, from a stored pattern back to the probe, where the first unit is -1."""
    subject = hopfield_claims.demo()
    right = hopfield_claims.trajectory

    def wrong(W: Tensor, b: Tensor, x: Tensor, **given: Any) -> Tensor:
        path = right(W, b, x, **given)
        return path.flip(0) if x[0] < 0 else path

    patch.setattr(hopfield_claims, "trajectory", wrong)
    x = subject.model.patterns[: int(subject.model.stored)].clone().float()
    x[:, 3:9] *= -1
    good, bad = x.clone(), x.clone()
    good[:, 0], bad[:, 0] = 1, -1
    one, two = Batch((good[:2],)), Batch((bad[:2],))
    return hopfield_claims.falling_energy, replace(subject, test=[one]), replace(subject, test=[one, two])


def dense() -> tuple[Ask, Subject, Subject]:
    subject = associative_memory_claims.demo_dense()
    memory: Any = subject.model
    right, patterns = memory.sweep, memory.patterns[: int(memory.stored)]
    memory.sweep = lambda x: torch.where(x[:, :1] < 0, x.roll(1, 1), right(x))
    one, two = (Batch((patterns[patterns[:, 0] == sign][:4].clone(),)) for sign in (1, -1))
    ask = associative_memory_claims.falling_dense_energy
    return ask, replace(subject, test=[one]), replace(subject, test=[one, two])


def wavenet(patch: pytest.MonkeyPatch) -> tuple[Ask, Subject, Subject]:
    """Kept inputs that are wrong once the token 4 has come."""
    subject = convolution_claims.wavenet_demo()
    (batch,) = subject.test
    right = CachedSteps.__call__
    four = subject.model.double().embedding.weight[4].detach().clone()

    def wrong(self: CachedSteps, x: Tensor) -> Tensor:
        return right(self, x) + (x == four).all(1)[:, None].to(x)

    patch.setattr(CachedSteps, "__call__", wrong)
    tokens = batch.inputs[0].clone().clamp_max(3)
    marked = tokens.clone()
    marked[:, 0] = 4
    one, two = Batch((tokens[:1],), batch.targets[:1]), Batch((marked[:1],), batch.targets[:1])  # type: ignore[index]
    return convolution_claims.cached, replace(subject, test=[one]), replace(subject, test=[one, two])


def attention_rows(patch: pytest.MonkeyPatch) -> tuple[Ask, Subject, Subject]:
    """Weights that sum to less than 1 where a source begins with the token 4."""
    subject = seq2seq_claims.demo()
    (batch,) = subject.test
    source, lengths, shown = batch.inputs
    right = AttentionSeq2Seq.alignment

    def wrong(self: AttentionSeq2Seq, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        return right(self, source, lengths, target) * (1 - 1e-3 * (source[:, 0] == 4).float())[:, None, None]

    patch.setattr(AttentionSeq2Seq, "alignment", wrong)
    first = lengths > 1
    parts = [
        Batch((source[k], lengths[k], shown[k]), batch.targets[k], batch.weight[k])  # type: ignore[index]
        for k in (first & (source[:, 0] == 3), first & (source[:, 0] == 4))
    ]
    return seq2seq_claims.rows, replace(subject, test=parts[:1]), replace(subject, test=parts)


def equivariance() -> tuple[Ask, Subject, Subject]:
    """A model of sets that reads the place of an element where the first number is the mark."""
    subject = equivariance_claims.demo()
    (batch,) = subject.test
    x, mask = batch.inputs

    class Placed(nn.Module):
        reads_sets = True

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            marked = (x == BAD).flatten(1).any(1).to(x)
            return x.sum(1) + marked[:, None] * x[:, 0]

    marked = x.clone()
    marked[:, 0, 0] = BAD
    subject = replace(subject, model=Placed())
    bad = batch._replace(inputs=(marked, mask))
    return equivariance_claims.equivariance, subject, replace(subject, test=[batch, bad])


def test_the_worst_case_is_over_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each claim: holds on the first batch alone, violated once the second is there, however it is cut."""
    cases = [
        causality(),
        padding(),
        made(),
        dense(),
        equivariance(),
        hopfield(monkeypatch),
        wavenet(monkeypatch),
        attention_rows(monkeypatch),
    ]
    for ask, first, both in cases:
        assert ask(first).verdict is Verdict.HOLDS, ask
        assert ask(both).verdict is Verdict.VIOLATED, ask
        assert ask(replace(both, test=list(both.test)[::-1])).verdict is Verdict.VIOLATED, ask


def halves(batch: Batch, at: int) -> list[Batch]:
    """The batch in two, of ``at`` examples and the others."""

    def cut(x: Tensor | None, part: slice) -> Tensor | None:
        return None if x is None else x[part]

    return [
        Batch(tuple(x[part] for x in batch.inputs), cut(batch.targets, part), cut(batch.weight, part))
        for part in (slice(None, at), slice(at, None))
    ]


@pytest.mark.parametrize(
    ("ask", "subject", "at"),
    [
        (seq2seq_claims.alignment, seq2seq_claims.demo, 5),
        (gradient_claims.memory, scan_claims.demo, 2),
        (gradient_claims.in_range, scan_claims.demo, 2),
    ],
)
def test_a_mean_is_that_of_all_batches(ask: Ask, subject: Callable[[], Subject], at: int) -> None:
    """How examples are cut into batches changes neither value nor error; leaving some out does."""
    whole = subject()
    batch = next(iter(whole.test))
    parts = halves(batch, at)
    found, cut = ask(whole), ask(replace(whole, test=parts))
    torch.testing.assert_close(cut.value, found.value, rtol=1e-5, atol=1e-7)
    if found.stderr is not None:
        torch.testing.assert_close(cut.stderr, found.stderr, rtol=1e-5, atol=1e-7)
    assert cut.labels == found.labels
    first = ask(replace(whole, test=parts[:1]))
    assert not torch.allclose(first.value.double(), found.value.double(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("ask", "subject", "words"),
    [
        (seq2seq_claims.search, seq2seq_claims.demo, "all 12 held-out examples"),
        (
            associative_memory_claims.falling_continuous_energy,
            associative_memory_claims.demo_continuous,
            "all 20 held-out examples",
        ),
        (associative_memory_claims.attention, associative_memory_claims.demo_continuous, "all 20 held-out"),
    ],
)
def test_a_statement_counts_the_examples_of_all_batches(
    ask: Ask, subject: Callable[[], Subject], words: str
) -> None:
    whole = subject()
    found = ask(replace(whole, test=halves(next(iter(whole.test)), 5)))
    assert words in found.statement


def test_homophily_counts_the_edges_of_every_graph() -> None:
    """A graph whose edges join like labels in 1 of 3 cases, and one of 6 of 6: 7 of 9 together."""
    subject = homophily_claims.demo()
    (batch,) = subject.test
    x, _, attr, sizes = batch.inputs
    labels = torch.arange(12) // 6
    few = torch.tensor([[0, 0, 1], [1, 6, 7]])
    many = torch.tensor([[0, 1, 2, 6, 7, 8], [1, 2, 3, 7, 8, 9]])
    graphs = [Batch((x, edges, attr[: edges.shape[1]], sizes), labels) for edges in (few, many)]
    found = homophily_claims.share(replace(subject, test=graphs))
    at = found.labels.index("as labeled, between held-out nodes")
    assert float(found.value[at]) == pytest.approx(7 / 9)
    assert "as labeled, between held-out nodes: 9 edges" in found.statement


def test_predictiveness_is_the_mean_over_batches_with_its_error() -> None:
    """Of linear regression by hand: |H g| eta / |g| of each of 10 batches, 8 of which are drawn."""
    subject = predictiveness_claims.demo()
    (batch,) = subject.train
    g = torch.Generator().manual_seed(4)
    batches = [
        Batch((batch.inputs[0] * (1 + i),), torch.randn(32, generator=g, dtype=torch.float64))
        for i in range(10)
    ]
    weight, bias = (p.detach() for p in subject.model.parameters())
    ratios = []
    for one in batches:
        X = torch.cat((one.inputs[0], torch.ones(32, 1).double()), 1)
        slope = 2 * X.T @ (X @ torch.cat((weight[0], bias)) - one.targets) / 32
        ratios.append((2 * X.T @ X / 32 @ slope).norm() / slope.norm() * 0.01)
    ratio = torch.stack(ratios)
    eight = predictiveness_claims.predictiveness(replace(subject, train=batches[:8]))
    at = predictiveness_claims.RATES.index(1e-2)
    assert float(eight.value[at]) == pytest.approx(float(ratio[:8].mean()), rel=1e-9)
    assert eight.stderr is None  # all batches were taken
    ten = predictiveness_claims.predictiveness(replace(subject, train=batches))
    drawn = next(
        c
        for c in combinations(ratio.tolist(), 8)
        if abs(sum(c) / 8 - float(ten.value[at])) < 1e-9 * float(ten.value[at])
    )
    # simple random sampling without replacement: Cochran 1977, Equation 2.20
    expected = torch.tensor(drawn).double().var() / 8 * (1 - 8 / 10)
    assert float(ten.stderr[at]) == pytest.approx(float(expected.sqrt()), rel=1e-5)


def test_recurrences_are_given_rows_of_every_batch() -> None:
    """Two batches of one shape are put together; of two lengths each is asked by itself."""
    subject = convolution_claims.derivative_demo()
    (batch,) = subject.test
    x = batch.inputs[0]
    parts = [Batch((x[:2] + 10 * k,), batch.targets[:2]) for k in (0, 1)]  # type: ignore[index]
    (one,) = captured(replace(subject, test=parts))
    assert [bool(row.mean() > 5) for row in one.x] == [False, False, True, True]
    ragged = [Batch((x[:2],), batch.targets[:2]), Batch((x[2:, :7],), batch.targets[2:])]  # type: ignore[index]
    names = [(one.name, one.x.shape[1]) for one in captured(replace(subject, test=ragged))]
    assert names == [("recurrence, batch 1", 20), ("recurrence, batch 2", 7)]
