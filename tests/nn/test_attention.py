"""Attention and the encoder block are torch's, head by head, masked and causal; weights are those used."""

import math

import pytest
import torch
from torch import nn

from margin.nn.attention import (
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    KeysValues,
    SelfAttention,
    attention_weights,
    bilinear_scores,
    feed_forward,
    in_heads,
    multi_head,
)


def same_attention(theirs: nn.MultiheadAttention, ours: SelfAttention | CrossAttention) -> None:
    """Give torch's layer the weights of ours."""
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    layers = (
        [ours.queries_keys_values] if isinstance(ours, SelfAttention) else [ours.queries, ours.keys_values]
    )
    theirs.in_proj_bias.data = torch.cat([layer.bias for layer in layers]).detach()
    if theirs.in_proj_weight is not None:
        theirs.in_proj_weight.data = torch.cat([layer.weight for layer in layers]).detach()
    else:
        keys, values = ours.keys_values.weight.chunk(2)
        for name, weight in (("q", ours.queries.weight), ("k", keys), ("v", values)):
            getattr(theirs, f"{name}_proj_weight").data = weight.detach()


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


def test_unit_queries_and_keys_have_products_of_variance_d() -> None:
    """100,000 products, d = 7: the variance of the sample variance is about 2 d^2 / n; 5 errors."""
    q, k = draw(100_000, 7), draw(100_000, 7, seed=1)
    assert abs(float((q * k).sum(1).var()) - 7) < 5 * 7 * (2.9 / 100_000) ** 0.5


@pytest.mark.parametrize("masked", ["rows", "all"])
def test_a_query_that_may_read_nothing_gets_zero_and_a_finite_gradient(masked: str) -> None:
    layer = SelfAttention(8, 2).double()
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[0, :, 1:3] = False
    if masked == "all":
        mask[0] = False
    x = draw(2, 5, 8).requires_grad_()
    y, weights = layer(x, mask), layer.weights(x, mask)
    torch.testing.assert_close(y[0, 1], layer.output.bias)
    assert bool((weights[0, :, 1] == 0).all())
    (y.sum() + weights.square().sum()).backward()
    assert bool(x.grad.isfinite().all())
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).double()
    bad, _ = theirs(x, x, x, attn_mask=~mask[:, 0].repeat_interleave(2, 0))
    assert bool(bad[0, 1].isnan().all())  # torch's own layer


@pytest.mark.parametrize("source_width", [0, 6])
def test_cross_attention_is_torchs(source_width: int) -> None:
    ours = CrossAttention(8, 2, source_width=source_width).double()
    other = source_width or None
    theirs = nn.MultiheadAttention(8, 2, batch_first=True, kdim=other, vdim=other).double()
    same_attention(theirs, ours)
    x, source = draw(3, 5, 8), draw(3, 7, source_width or 8, seed=1)
    here = torch.arange(7) < torch.tensor([[7], [3], [1]])
    expected, weights = theirs(x, source, source, key_padding_mask=~here, average_attn_weights=False)
    torch.testing.assert_close(ours(x, source, here[:, None, None]), expected)
    torch.testing.assert_close(ours.weights(x, source, here[:, None, None]), weights)


def test_cross_attention_does_not_know_the_order_of_what_it_reads() -> None:
    layer, x, source = CrossAttention(8, 2).double(), draw(2, 5, 8), draw(2, 7, 8, seed=1)
    mask, order = draw(2, 1, 5, 7, seed=2) > -0.5, torch.tensor([3, 0, 6, 1, 5, 2, 4])
    mixed = layer(x, source, mask)
    torch.testing.assert_close(layer(x, source[:, order], mask[..., order]), mixed)
    assert not torch.allclose(layer(x, source[:, order], mask), mixed)
    turned = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(layer(x[:, turned], source, mask[:, :, turned]), mixed[:, turned])


@pytest.mark.parametrize("norm", ["before", "after"])
def test_it_is_torchs_decoder_layer(norm: str) -> None:
    ours = DecoderBlock(8, 2, hidden=12, norm=norm, eps=1e-3).double()
    theirs = nn.TransformerDecoderLayer(
        8, 2, 12, 0.0, "relu", 1e-3, batch_first=True, norm_first=norm == "before"
    ).double()
    for k, layer in enumerate((ours.norm1, ours.norm2, ours.norm3)):
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
        getattr(theirs, f"norm{k + 1}").load_state_dict(layer.state_dict())
    theirs.linear1.load_state_dict(ours.mlp[0].state_dict())
    theirs.linear2.load_state_dict(ours.mlp[3].state_dict())
    same_attention(theirs.self_attn, ours.attention)
    same_attention(theirs.multihead_attn, ours.cross)
    x, source, here = draw(3, 5, 8), draw(3, 7, 8, seed=1), torch.arange(7) < torch.tensor([[7], [3], [1]])
    expected = theirs(
        x,
        source,
        tgt_mask=torch.full((5, 5), -math.inf, dtype=torch.float64).triu(1),
        memory_key_padding_mask=~here,
    )
    torch.testing.assert_close(ours(x, source, here[:, None, None]), expected)


@pytest.mark.parametrize("positions", ["none", "rotary"])
@pytest.mark.parametrize("cuts", [(1, 1, 1, 1, 1, 1), (3, 1, 2), (2, 4)])
def test_place_by_place_with_kept_keys_is_all_at_once(positions: str, cuts: tuple[int, ...]) -> None:
    block = EncoderBlock(8, 2, causal=True, positions=positions).double().eval()
    x = draw(2, 6, 8)
    past = KeysValues(*(x.new_empty(2, 2, 0, 4),) * 2, room=6)
    with torch.no_grad():
        pieces = [block(part, past=past) for part in x.split(cuts, 1)]
    torch.testing.assert_close(torch.cat(pieces, 1), block(x))


@pytest.mark.parametrize("mask", [False, True])
def test_a_causal_output_has_no_derivative_by_a_later_input(mask: bool) -> None:
    block = EncoderBlock(8, 2, causal=True).double()
    given = torch.ones(1, 1, 1, 5, dtype=torch.bool) if mask else None
    rows = torch.autograd.functional.jacobian(lambda x: block(x, given)[0], draw(1, 5, 8))
    for t in range(5):
        assert bool((rows[t, :, 0, t + 1 :] == 0).all())
        assert bool((rows[t, :, 0, t] != 0).any())
    torch.testing.assert_close(block(draw(1, 5, 8)[:, :3]), block(draw(1, 5, 8))[:, :3])


def test_the_bilinear_score_has_the_rank_of_its_queries_and_knows_their_product_alone() -> None:
    x, queries, keys = draw(9, 7), draw(3, 7, seed=1), draw(3, 7, seed=2)
    scores = bilinear_scores(x, queries, keys)
    by_hand = torch.stack([torch.stack([(queries @ a) @ (keys @ b) for b in x]) for a in x])
    torch.testing.assert_close(scores, by_hand)
    assert int(torch.linalg.matrix_rank(scores)) == 3
    change = draw(3, 3, seed=3)
    torch.testing.assert_close(bilinear_scores(x, change.inverse().T @ queries, change @ keys), scores)
    torch.testing.assert_close(
        attention_weights(x[None] @ queries.T, x[None] @ keys.T, 1)[0, 0], (scores / 3**0.5).softmax(1)
    )


def test_several_heads_are_one_layer_for_each_part_of_the_weights() -> None:
    layer, x = SelfAttention(8, 4).double(), draw(3, 5, 8)
    w, b = layer.queries_keys_values.weight, layer.queries_keys_values.bias
    total = layer.output.bias
    for h in range(4):
        q, k, v = (x @ w[s : s + 2].T + b[s : s + 2] for s in (2 * h, 8 + 2 * h, 16 + 2 * h))
        mixed = (q @ k.transpose(1, 2) / 2**0.5).softmax(2) @ v
        total = total + mixed @ layer.output.weight[:, 2 * h : 2 * h + 2].T
    torch.testing.assert_close(layer(x), total)


def test_the_perceptron_of_each_place_is_a_convolution_of_one_tap() -> None:
    mlp, x = feed_forward(6, 10, "gelu", 0.0).double(), draw(2, 5, 6)
    first, last = nn.Conv1d(6, 10, 1).double(), nn.Conv1d(10, 6, 1).double()
    for conv, linear in ((first, mlp[0]), (last, mlp[3])):
        conv.weight.data, conv.bias.data = linear.weight.data[:, :, None], linear.bias.data
    by_taps = last(nn.functional.gelu(first(x.transpose(1, 2)))).transpose(1, 2)
    torch.testing.assert_close(mlp(x), by_taps)
    order = torch.tensor([4, 1, 0, 3, 2])
    torch.testing.assert_close(mlp(x[:, order]), mlp(x)[:, order])


def test_the_weights_of_a_causal_layer_are_those_that_it_reads_with() -> None:
    """Weights times values through the output map give its output; nothing later is read."""
    torch.manual_seed(0)
    layer, x = SelfAttention(8, 2, causal=True, positions="rotary").double(), torch.randn(2, 5, 8).double()
    weights, values = layer.weights(x), in_heads(layer.queries_keys_values(x).chunk(3, 2)[2], 2)
    torch.testing.assert_close(layer.output((weights @ values).transpose(1, 2).flatten(2)), layer(x))
    assert bool((weights.triu(1) == 0).all())


@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize("positions", ["none", "rotary"])
@pytest.mark.parametrize("masked", ["no", "sources", "pairs"])
def test_the_first_places_alone_are_those_of_all(norm: str, positions: str, masked: str) -> None:
    x, pairs = draw(2, 6, 8), draw(2, 1, 6, 6, seed=3) > 0
    mask = {"no": None, "sources": pairs[:, :, :1], "pairs": pairs}[masked]
    block = EncoderBlock(8, 2, norm=norm, positions=positions).double()
    sizes = []
    block.mlp.register_forward_hook(lambda _, args, out: sizes.append(args[0].shape[1]))
    torch.testing.assert_close(block(x, mask, first=2), block(x, mask)[:, :2])
    assert sizes == [2, 6]  # the others are not computed


def test_the_first_places_of_a_causal_layer_are_refused() -> None:
    with pytest.raises(ValueError, match="first must be None where attention is causal: got 1"):
        EncoderBlock(8, 2, causal=True).double()(draw(2, 6, 8), first=1)
