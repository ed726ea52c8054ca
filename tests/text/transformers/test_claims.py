"""The claims of attention and masking, on models whose answer is known, and on ones that break them."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from margin.core.findings import Subject
from margin.nn.attention import SelfAttention
from margin.text.transformers import claims
from margin.text.transformers.figures import attention_map
from margin.text.transformers.masking import asked_of


def layers(subject: Subject) -> list[SelfAttention]:
    return list(claims.attentions(subject.model).values())


def test_ranks_are_those_of_the_product() -> None:
    subject = claims.demo()
    assert claims.rank(subject).verdict == "holds"
    for layer in layers(subject):
        q, k, _ = layer.queries_keys_values.weight.double().chunk(3)
        for h in (0, 4):
            assert int(torch.linalg.matrix_rank(q[h : h + 4].T @ k[h : h + 4])) == 4


def test_rows_are_convex_unless_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = claims.demo()
    assert claims.mixture(subject).verdict == "holds"
    right = SelfAttention.weights
    for wrong in (lambda w: 1.001 * w, lambda w: torch.cat((w[..., :1] - 2, w[..., 1:2] + 2, w[..., 2:]), 3)):
        monkeypatch.setattr(SelfAttention, "weights", lambda *given, wrong=wrong: wrong(right(*given)))
        assert claims.mixture(subject).verdict == "violated"


def test_a_layer_that_knows_places_is_no_equivariant_one(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = claims.demo()
    assert claims.permutation(subject).verdict == "holds"
    right = SelfAttention.forward

    def wrong(self: SelfAttention, x: torch.Tensor, *rest: object) -> torch.Tensor:
        return right(self, x + 1e-3 * torch.arange(x.shape[1], dtype=x.dtype)[:, None], *rest)

    monkeypatch.setattr(SelfAttention, "forward", wrong)
    assert claims.permutation(subject).verdict == "violated"
    for layer in layers(subject):
        layer.causal = True
    assert "causal" in claims.permutation(subject).failure


def test_positions_of_zero_move_nothing() -> None:
    subject = claims.demo()
    assert float(claims.positions(subject).value) > 0
    nn.init.zeros_(subject.model.body.positions.weight)
    found = claims.positions(subject)
    assert float(found.value) == 0
    assert "does not use them" in found.statement  # a causal model may know the order without


def test_attention_costs_four_times_as_much_at_twice_the_length() -> None:
    finding = claims.cost(claims.demo())
    assert finding.value.tolist() == [4, 4] and finding.verdict == "holds"


def test_even_attention_is_spread_over_the_tokens_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of texts of 7, 3, 5, 7, 4 and 6 tokens in a batch: 32 / 6."""
    subject = dataclasses.replace(claims.demo(), vocabulary=tuple("abcdefghijk"))
    for layer in layers(subject):
        nn.init.zeros_(layer.queries_keys_values.weight)
        nn.init.zeros_(layer.queries_keys_values.bias)
    finding = claims.maps(subject)
    torch.testing.assert_close(finding.value, torch.full((2,), 32 / 6, dtype=torch.float64))
    assert len(finding.remarks[0].removeprefix("tokens: ").split(" ")) == 7
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    assert attention_map(axes, finding).startswith("attention of 7 tokens")
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert shown == ["abcdefghijk"[k] for k in subject.test[0].inputs[0][0].tolist()]
    assert attention_map(axes, dataclasses.replace(finding, curves={})) == ""


def test_the_masking_rule_and_another() -> None:
    subject = claims.masked_demo()
    finding = claims.rule(subject)
    assert finding.verdict == "holds"
    batches = []
    for batch in subject.test:
        shown, *rest = batch.inputs
        batches.append(batch._replace(inputs=(shown.masked_fill(asked_of(batch.targets), 4), *rest)))
    assert claims.rule(dataclasses.replace(subject, test=batches)).verdict == "violated"  # all as [MASK]


def test_needs() -> None:
    subject, masked = claims.demo(), claims.masked_demo()
    assert claims.attends(subject) and claims.reads_tokens(subject) and claims.placed(subject)
    assert not claims.masks(subject) and claims.masks(masked)
    plain = dataclasses.replace(subject, model=nn.Linear(2, 2))
    assert not claims.attends(plain)
    assert math.isfinite(float(claims.maps(masked).value[0]))
