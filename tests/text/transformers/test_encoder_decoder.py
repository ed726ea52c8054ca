"""The transformer: its size, torch's blocks, its steps, padding; it learns to copy and to reverse."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.nn.attention import in_heads
from margin.nn.positions import sinusoidal
from margin.nn.seq2seq import BEGIN, END
from margin.text.transformers.encoder_decoder import Transformer

SMALL = {"width": 16, "depth": 2, "heads": 2, "hidden": 24}


def build(**options: object) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(11, 9, **{**SMALL, **options}).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def given() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    source, target = torch.randint(11, (3, 7), generator=g), torch.randint(9, (3, 5), generator=g)
    target[:, 0] = BEGIN
    return source, torch.tensor([7, 3, 0]), target


@pytest.mark.parametrize(("norm", "count"), [("before", 44_140_544), ("after", 44_138_496)])
def test_the_base_size_has_the_weights_of_the_paper(norm: str, count: int) -> None:
    """d = 512, f = 2048: an attention 4 (d^2 + d), a perceptron 2 d f + f + d, a normalization 2 d."""
    d, f = 512, 2048
    attention, mlp, ends = 4 * (d * d + d), 2 * d * f + f + d, 2 * d
    assert (attention + mlp + 2 * ends, 2 * attention + mlp + 3 * ends) == (3_152_384, 4_204_032)
    by_formula = 6 * (3 * attention + 2 * mlp + 5 * ends) + (2 * ends if norm == "before" else 0)
    with torch.device("meta"):
        model = Transformer(9, 11, width=d, depth=6, heads=8, norm=norm)
    found = sum(p.numel() for p in model.parameters()) - (9 + 11) * d - 11
    assert found == by_formula == count


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["before", "after"])
def test_it_is_torchs_transformer_between_its_embeddings_and_its_output(norm: str) -> None:
    model, (source, lengths, target) = build(norm=norm), given()
    theirs = nn.Transformer(16, 2, 2, 2, 24, 0.0, batch_first=True, norm_first=norm == "before").double()
    if norm == "after":
        theirs.encoder.norm = theirs.decoder.norm = None
    else:
        theirs.encoder.norm.load_state_dict(model.encoder_norm.state_dict())
        theirs.decoder.norm.load_state_dict(model.decoder_norm.state_dict())
    for ours, layer in (
        *zip(model.encoder, theirs.encoder.layers, strict=True),
        *zip(model.decoder, theirs.decoder.layers, strict=True),
    ):
        self_attention(layer.self_attn, ours.attention.queries_keys_values, ours.attention.output)
        if hasattr(ours, "cross"):
            self_attention(
                layer.multihead_attn, (ours.cross.queries, ours.cross.keys_values), ours.cross.output
            )
        layer.linear1.load_state_dict(ours.mlp[0].state_dict())
        layer.linear2.load_state_dict(ours.mlp[3].state_dict())
        for k in (1, 2, 3)[: 3 if hasattr(ours, "cross") else 2]:
            getattr(layer, f"norm{k}").load_state_dict(getattr(ours, f"norm{k}").state_dict())
    places = sinusoidal(torch.arange(7), 16)  # beside vectors of sqrt(16) times their length (Section 3.4)
    x, y = 4 * model.source_embedding(source) + places, 4 * model.embedding(target) + places[:5]
    padding = torch.arange(7) >= lengths[:, None]
    z = theirs(
        x[:2],
        y[:2],
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64),
        src_key_padding_mask=padding[:2],
        memory_key_padding_mask=padding[:2],
    )
    expected = z @ model.embedding.weight.T + model.bias
    torch.testing.assert_close(model(source, lengths, target)[:2], expected)


def self_attention(theirs: nn.MultiheadAttention, layers: object, output: nn.Linear) -> None:
    parts = layers if isinstance(layers, tuple) else (layers,)
    theirs.in_proj_weight.data = torch.cat([part.weight for part in parts]).detach()
    theirs.in_proj_bias.data = torch.cat([part.bias for part in parts]).detach()
    theirs.out_proj.load_state_dict(output.state_dict())


@pytest.mark.parametrize("norm", ["before", "after"])
def test_step_by_step_is_all_at_once(norm: str) -> None:
    model, (source, lengths, target) = build(norm=norm), given()
    whole, state, rows = model(source, lengths, target), model.initial(source, lengths), []
    for token in target.unbind(1):
        logits, state = model.step(token, state)
        rows.append(logits)
    torch.testing.assert_close(torch.stack(rows, 1), whole)


def test_padding_and_an_empty_source_are_finite_and_change_nothing() -> None:
    model, (source, lengths, target) = build(), given()
    found = model(source, lengths, target)
    torch.testing.assert_close(found[1], model(source[1:2, :3], None, target[1:2])[0])
    other = source.clone()
    other[1, 3:], other[2] = 5, 5
    assert torch.equal(model(other, lengths, target)[1:], found[1:])
    found.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    weights = model.alignment(source, lengths, target)
    torch.testing.assert_close(weights.sum(2)[:2], torch.ones(2, 5, dtype=torch.float64))
    assert bool((weights[1, :, 3:] == 0).all()) and bool((weights[2] == 0).all())


@pytest.mark.parametrize("norm", ["before", "after"])
def test_the_alignment_is_that_of_the_last_block(norm: str) -> None:
    """The weights that its attention to the source is computed with, the mean over heads, in a full pass."""
    model, (source, lengths, target) = build(norm=norm), given()
    last, seen = model.decoder[-1].cross, []
    last.queries.register_forward_hook(lambda _, args, out: seen.append(out))
    model(source, lengths, target)
    memory, mask = model.encode(source, lengths)
    keys = last.read(memory)[0]
    scores = in_heads(seen[0], last.heads) @ keys.transpose(2, 3) / keys.shape[3] ** 0.5
    wanted = scores.masked_fill(~mask, -torch.inf).softmax(3).nan_to_num(0).mean(1)
    torch.testing.assert_close(model.alignment(source, lengths, target), wanted)


def test_the_decoder_reads_the_last_block_of_the_encoder() -> None:
    model, (source, lengths, target) = build(), given()
    seen = []
    for block in model.decoder:
        block.cross.keys_values.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(source, lengths, target)
    assert len(seen) == 2 and all(torch.equal(x, model.encode(source, lengths)[0]) for x in seen)


@pytest.mark.parametrize("answer", ["copy", "reverse"])
def test_it_learns_to_copy_and_to_reverse(answer: str) -> None:
    """Words of 1 to 4 of 6 letters: every one of 200 held-out words is written right, by greedy decoding."""
    torch.manual_seed(0)
    model = Transformer(9, 9, width=32, depth=1, heads=4, dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(0)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        lengths = torch.randint(1, 5, (count,), generator=g)
        source, place = torch.randint(3, 9, (count, 4), generator=g), torch.arange(5).expand(count, 5)
        back = (lengths[:, None] - 1 - place).clamp_min(0) if answer == "reverse" else place.clamp_max(3)
        asked = source.gather(1, back)
        asked = torch.where(place < lengths[:, None], asked, torch.where(place == lengths[:, None], END, 0))
        return source, lengths, asked

    steps = 250
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min((step + 1) / 40, 1, (steps - step) / 100)
        source, lengths, asked = draw(64)
        shown = torch.cat((torch.full((64, 1), BEGIN), asked[:, :-1]), 1)
        loss = F.cross_entropy(model(source, lengths, shown).flatten(0, 1), asked.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, lengths, asked = draw(200)
    found = model.translate(source, lengths, longest=5)
    wrote = F.pad(found.tokens, (0, 5 - found.tokens.shape[1])) * (torch.arange(5) < found.lengths[:, None])
    assert bool((wrote == asked).all())
    assert bool(found.ended.all())
