"""Attention and the encoder block are torch's, head by head, masked and causal; weights are those used."""

import math

import pytest
import torch
from torch import nn

from margin.nn.attention import EncoderBlock, SelfAttention, attention_weights, multi_head


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_one_head_by_hand() -> None:
    q, k, v = draw(1, 3, 4), draw(1, 5, 4, seed=1), draw(1, 5, 2, seed=2)
    scores = q[0] @ k[0].T / 2  # sqrt(4)
    expected = (scores.exp() / scores.exp().sum(1, keepdim=True)) @ v[0]
    torch.testing.assert_close(multi_head(q, k, v, 1)[0], expected)


@pytest.mark.parametrize("kind", ["all", "causal", "mask"])
def test_the_weights_are_those_that_mix_the_values(kind: str) -> None:
    q, k, v = draw(2, 6, 8), draw(2, 6, 8, seed=1), draw(2, 6, 12, seed=2)
    mask = (draw(2, 1, 6, 6, seed=3) > 0) | torch.eye(6, dtype=torch.bool) if kind == "mask" else None
    mixed = multi_head(q, k, v, 4, mask=mask, causal=kind == "causal")
    weights = attention_weights(q, k, 4, mask=mask, causal=kind == "causal")
    torch.testing.assert_close(weights.sum(3), torch.ones(2, 4, 6, dtype=torch.float64))
    again = (weights @ v.unflatten(2, (4, 3)).transpose(1, 2)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(mixed, again)
    assert (mixed.abs() <= v.abs().amax((1, 2))[:, None, None]).all()  # in the hull of the values


@pytest.mark.parametrize("heads", [1, 4])
def test_it_is_torchs_multi_head_attention(heads: int) -> None:
    ours, theirs = (
        SelfAttention(8, heads).double(),
        nn.MultiheadAttention(8, heads, batch_first=True).double(),
    )
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.queries_keys_values.weight,
            "in_proj_bias": ours.queries_keys_values.bias,
            "out_proj.weight": ours.output.weight,
            "out_proj.bias": ours.output.bias,
        }
    )
    x = draw(3, 5, 8)
    expected, weights = theirs(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(ours(x), expected)
    torch.testing.assert_close(ours.weights(x), weights)


@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_torchs_encoder_layer(norm: str, activation: str, causal: bool) -> None:
    ours = EncoderBlock(8, 2, hidden=12, norm=norm, activation=activation, causal=causal, eps=1e-3).double()
    theirs = nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, activation, 1e-3, batch_first=True, norm_first=norm == "before"
    ).double()
    for k, layer in enumerate((ours.norm1, ours.norm2)):
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
        getattr(theirs, f"norm{k + 1}").load_state_dict(layer.state_dict())
    theirs.linear1.load_state_dict(ours.mlp[0].state_dict())
    theirs.linear2.load_state_dict(ours.mlp[3].state_dict())
    theirs.self_attn.out_proj.load_state_dict(ours.attention.output.state_dict())
    theirs.self_attn.in_proj_weight.data = ours.attention.queries_keys_values.weight.data
    theirs.self_attn.in_proj_bias.data = ours.attention.queries_keys_values.bias.data
    x = draw(3, 5, 8)
    mask = torch.full((5, 5), -math.inf, dtype=torch.float64).triu(1) if causal else None
    torch.testing.assert_close(ours(x), theirs.train()(x, src_mask=mask))


def test_a_masked_place_is_not_read() -> None:
    block, x = EncoderBlock(8, 2).double(), draw(2, 5, 8)
    kept = torch.tensor([True, True, True, False, False])
    short = block(x[:, :3])
    torch.testing.assert_close(block(x, kept[None, None, None])[:, :3], short)
    assert not torch.allclose(block(x)[:, :3], short)


def test_dropout_is_on_in_training_alone() -> None:
    x = draw(2, 5, 8)
    for options in ({"dropout": 0.5}, {"attention_dropout": 0.5}):
        block = EncoderBlock(8, 2, **options).double()
        assert not torch.equal(block(x), block(x))
        block.eval()
        assert torch.equal(block(x), block(x))


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="heads must divide the width: got width=6, heads=4"):
        SelfAttention(6, 4)
