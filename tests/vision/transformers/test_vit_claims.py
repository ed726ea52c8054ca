"""Claims of vision transformers: shift equivariance, the order of patches, attention rollout by hand."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.figures.svg import drawing
from margin.nn.preprocessed import Preprocessed, core_of
from margin.vision.transformers.claims import attention, demo, permutation, rollout, shift, shift_errors
from margin.vision.transformers.figures import attention_maps, brightness
from margin.vision.transformers.vit import ViT


def of_mean() -> Subject:
    torch.manual_seed(1)
    model = ViT(2, (8, 8), 3, patch=(2, 4), width=12, depth=2, heads=3, pool="mean")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return replace(demo(), model=Preprocessed(nn.Identity(), model.eval()))


@pytest.mark.parametrize("subject", [demo, of_mean])
def test_the_order_of_patches_plays_no_part_without_positions(subject) -> None:
    before = subject().model.state_dict()
    one = subject()
    assert permutation(one).verdict is Verdict.HOLDS
    assert core_of(one.model).positions is not None
    assert all(torch.equal(before[name], tensor) for name, tensor in one.model.state_dict().items())


def test_causal_attention_sees_the_order() -> None:
    subject = demo()
    for block in subject.model.blocks:
        block.attention.causal = True  # each patch reads earlier ones alone; the class token only itself
    subject.model.pool = "mean"
    assert permutation(subject).verdict is Verdict.VIOLATED


def test_a_convolution_shifts_along_and_a_vision_transformer_does_not() -> None:
    found = shift(demo())
    assert found.labels == ("patches", "with positions", "block 1", "block 2")
    assert found.value[0] < 1e-12
    assert (found.value[1:] > 0.1).all()


def test_without_positions_a_vision_transformer_shifts_along() -> None:
    # a cyclic shift by whole patches is a permutation of them
    model = core_of(of_mean().model).double()
    model.positions = None
    errors = shift_errors(model, torch.rand(3, 2, 8, 8, dtype=torch.float64))
    assert errors.max() < 1e-12
    assert errors.shape == (4, 3)


@pytest.mark.parametrize("subject", [demo, of_mean])
def test_rollout_is_the_product_of_halved_weights(subject) -> None:
    core = core_of(subject().model)
    x = subject().test[0].inputs[0]
    z, product = core.embed(x), torch.eye(core.positions.shape[1])
    for block in core.blocks:
        q, k, _ = block.attention.queries_keys_values(block.norm1(z)).chunk(3, 2)
        q, k = (part.unflatten(2, (3, 4)) for part in (q, k))
        weights = (torch.einsum("bthd,bshd->bhts", q, k) / 2).softmax(3).mean(1)
        product = (0.5 * weights + 0.5 * torch.eye(len(product[0]))) @ product
        z = block(z)
    rows = product[:, 0, 1:] if core.pool == "class" else product.mean(1)
    expected = rows / rows.sum(1, keepdim=True)
    found = rollout(core, x)
    torch.testing.assert_close(found.flatten(1), expected)
    assert found.shape[1:] == core.grid


def test_attention_to_one_patch_is_spread_over_one() -> None:
    # positions alone decide the keys: every query reads the patch in row 1, column 2 of 4 x 4
    model = ViT(1, (8, 8), 2, patch=2, width=17, depth=1, heads=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.positions[0].copy_(torch.eye(17))
        block = model.blocks[0]
        block.norm1.weight.fill_(1)
        block.attention.queries_keys_values.bias[0] = 100.0  # the first coordinate of every query
        block.attention.queries_keys_values.weight[17, 1 + 6] = 100.0  # and of the key of one patch
    subject = replace(
        demo(), model=model.eval(), test=[demo().test[0]._replace(inputs=(torch.rand(8, 1, 8, 8),))]
    )
    found = attention(subject)
    assert found.curves["attention"][0].argmax() == 6
    assert found.value.item() == pytest.approx(1 / 16, abs=1e-6)


def test_the_figure_dims_what_counts_less(tmp_path) -> None:
    maps = torch.tensor([[[0.1, 0.4], [0.2, 0.3]]], dtype=torch.float64)
    lit = brightness(torch.ones(1, 1, 5, 4, dtype=torch.float64), maps)
    assert lit.shape == (1, 1, 5, 4)
    assert lit[0, 0, 0].tolist() == pytest.approx([0.4375, 0.4375, 1.0, 1.0])  # .25 + .75 / 4, .25 + .75
    assert lit[0, 0, 3, 0] == pytest.approx(0.625)
    for channels in (1, 2, 3):
        x = torch.rand(8, channels, 8, 8)
        model = ViT(channels, (8, 8), 3, patch=4, width=12, depth=1, heads=3)
        found = attention(replace(demo(), model=model, test=[demo().test[0]._replace(inputs=(x,))]))
        with drawing() as (_, axes):
            said = attention_maps(axes, found)
        assert (
            said == "6 held-out images, and the same with patches as bright as attention rollout counts them"
        )
    with drawing() as (_, axes):
        assert attention_maps(axes, replace(found, curves={})) == ""


def test_each_image_has_its_own_largest_patch_as_it_is() -> None:
    """Kills a scale that all images share: the second's largest share is half of the first's."""
    maps = torch.tensor([[[0.8, 0.2]], [[0.4, 0.1]]], dtype=torch.float64)
    lit = brightness(torch.ones(2, 1, 1, 2, dtype=torch.float64), maps)
    assert lit.flatten().tolist() == pytest.approx([1, 0.25 + 0.75 / 4] * 2)
