"""The vision transformer against the paper's counts, a convolution, flattened patches and transformers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import margin
from margin.data.open import open_data
from margin.vision.transformers.vit import ViT, interpolated, patch_of
from margin.vision.transformers.weights import vit_weights

FOLDER = Path(__file__).parent / "vit_tiny"


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def small(**options) -> ViT:
    made = {"patch": 4, "width": 12, "depth": 2, "heads": 3} | options
    model = ViT(2, (8, 12), 5, **made)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


# published: Dosovitskiy et al. 2021 (B/16, B/32, L/16) and Touvron et al. 2021 (tiny, small), 1000 classes
@pytest.mark.parametrize(
    ("width", "depth", "heads", "patch", "count"),
    [
        (192, 12, 3, 16, 5_717_416),
        (384, 12, 6, 16, 22_050_664),
        (768, 12, 12, 16, 86_567_656),
        (768, 12, 12, 32, 88_224_232),
        (1024, 24, 16, 16, 304_326_632),
    ],
)
def test_published_numbers_of_parameters(width: int, depth: int, heads: int, patch: int, count: int) -> None:
    with torch.device("meta"):
        model = ViT(3, (224, 224), 1000, patch=patch, width=width, depth=depth, heads=heads)
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize("patch", [4, (2, 3), (8, 12)])
def test_a_patch_is_flattened_and_mapped_by_one_matrix(patch: int | tuple[int, int]) -> None:
    model, x = small(patch=patch, positions="none", pool="mean"), draw(3, 2, 8, 12)
    flat = F.unfold(x, model.patch, stride=model.patch).transpose(1, 2)  # channels, rows, columns of a patch
    expected = flat @ model.patches.weight.reshape(12, -1).T + model.patches.bias
    torch.testing.assert_close(model.embed(x), expected)
    torch.testing.assert_close(flat[0, 0], x[0, :, : model.patch[0], : model.patch[1]].flatten())


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_the_logits_are_the_papers_equations(pool: str) -> None:
    model, x = small(pool=pool), draw(3, 2, 8, 12)
    z = model.patches(x).flatten(2).transpose(1, 2)
    if pool == "class":
        z = torch.cat((model.class_token.expand(3, 1, 12), z), 1)
    z = z + model.positions
    for block in model.blocks:
        z = z + block.attention(block.norm1(z))
        z = z + block.mlp(block.norm2(z))
    z = model.norm(z)
    read = z[:, 0] if pool == "class" else z.mean(1)
    torch.testing.assert_close(model(x), model.head(read))
    assert model.positions.shape[1] == 6 + (pool == "class")


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_without_positions_the_order_of_patches_plays_no_part(pool: str) -> None:
    x = draw(2, 2, 8, 12)
    patches = x.unflatten(3, (3, 4)).unflatten(2, (2, 4)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = patches[:, [4, 0, 3, 5, 2, 1]].unflatten(1, (2, 3)).permute(0, 3, 1, 4, 2, 5)
    moved = order.flatten(4, 5).flatten(2, 3)
    blind, seeing = small(positions="none", pool=pool), small(pool=pool)
    torch.testing.assert_close(blind(moved), blind(x))
    assert not torch.allclose(seeing(moved), seeing(x), atol=1e-3)


def test_positions_are_interpolated_for_another_size() -> None:
    model = small()
    assert interpolated(model.positions, (2, 3), (2, 3)) is model.positions
    # what depends on the row alone does so afterwards; the values are those of transformers, below
    rows = torch.arange(6.0).repeat_interleave(4)
    grid = torch.cat((torch.full((1, 1, 1), 9.0), rows.reshape(1, 24, 1)), 1)
    found = interpolated(grid, (6, 4), (12, 7))
    assert found[0, 0, 0] == 9
    maps = found[0, 1:, 0].reshape(12, 7)
    torch.testing.assert_close(maps, maps[:, :1].expand(12, 7))
    assert (maps[1:, 0] > maps[:-1, 0])[2:-2].all()
    assert model(draw(2, 2, 16, 20)).shape == (2, 5)


def test_a_patch_that_does_not_divide_is_refused_or_padded() -> None:
    message = (
        r"patch must divide the image: got 5 x 5, the image is 8 x 12; sides that work: 1, 2, 4; "
        r"or pad its lower and right border with --model.border pad"
    )
    with pytest.raises(ValueError, match=message):
        small(patch=5)
    with pytest.raises(ValueError, match="got 4 x 4, the image is 8 x 10; sides that work: 1, 2"):
        small()(draw(1, 2, 8, 10))
    with pytest.raises(ValueError, match="patch must fit the image: got 16 x 16, the image is 8 x 12"):
        small(patch=16)
    model, x = small(patch=5, border="pad"), draw(2, 2, 8, 12)
    assert model.grid == (2, 3)
    torch.testing.assert_close(model(x), model(F.pad(x, (0, 3, 0, 2))))
    assert not torch.allclose(model(x), model(F.pad(x, (3, 0, 2, 0))), atol=1e-3)


@pytest.mark.parametrize(
    ("size", "side"), [((224, 224), 28), ((32, 32), 4), ((28, 28), 4), ((8, 8), 1), ((48, 64), 8)]
)
def test_the_default_patch_leaves_at_most_64(size: tuple[int, int], side: int) -> None:
    assert patch_of(size, None, pad=False) == (side, side)
    smaller = [s for s in range(1, side) if math.gcd(*size) % s == 0]
    assert all(size[0] * size[1] // s**2 > 64 for s in smaller)


def test_an_image_that_no_square_divides_needs_a_choice() -> None:
    message = "no square divides 227 x 227 into 4 to 64 patches; set --model.patch HEIGHT,WIDTH, or"
    with pytest.raises(ValueError, match=message):
        patch_of((227, 227), None, pad=False)
    assert patch_of((227, 227), None, pad=True) == (29, 29)  # 8 x 8; of 28 pixels it were 9 x 9


def test_it_has_second_derivatives_under_the_math_kernel() -> None:
    model, x = small().double(), draw(2, 2, 8, 12).double()
    weight = model.patches.weight

    def loss(w: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, {"patches.weight": w}, (x,)).square().sum()

    direction = draw(*weight.shape, seed=1).double()
    with sdpa_kernel(SDPBackend.MATH):
        product = torch.autograd.functional.hvp(loss, weight.detach(), direction)[1]
    step = 1e-5
    ahead, behind = (torch.func.grad(loss)(weight.detach() + sign * step * direction) for sign in (1.0, -1.0))
    torch.testing.assert_close(product, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-6)


# weights of transformers


def ours(tensors: dict, config: dict, size: tuple[int, int] = (8, 8)) -> ViT:
    found = vit_weights(tensors, config)
    assert found.spec == {"channels": 2}
    model = ViT(2, size, 5, **found.options)
    model.load_state_dict(found.adapted(model, found.tensors))
    return model.eval()


def given() -> tuple[dict, dict]:
    config = json.loads((FOLDER / "config.json").read_text())
    return load_file(FOLDER / "model.safetensors"), config


def test_weights_of_transformers_give_its_logits() -> None:
    answers = load_file(FOLDER / "answers.safetensors")
    assert answers["logits"].std(0).min() > 1e-2  # they differ between images
    model = ours(*given())
    for x, logits in (("x", "logits"), ("large", "large_logits")):
        torch.testing.assert_close(model(answers[x]), answers[logits], atol=1e-5, rtol=0)
    for config in (given()[1], {"num_attention_heads": 3, "layer_norm_eps": 1e-3}):
        other = ours(given()[0], config, (12, 16))  # positions are interpolated once, when they are loaded
        torch.testing.assert_close(other(answers["large"]), answers["large_logits"], atol=1e-5, rtol=0)


def test_a_module_of_transformers_names_its_tensors_otherwise() -> None:
    transformers = pytest.importorskip("transformers")
    config = given()[1] | {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 30,
        "image_size": 8,
        "patch_size": 2,
        "num_channels": 2,
        "num_labels": 5,
    }
    theirs = transformers.ViTForImageClassification(transformers.ViTConfig(**config)).eval()
    x = draw(3, 2, 8, 8)
    torch.testing.assert_close(ours(theirs.state_dict(), config)(x), theirs(x).logits, atol=1e-5, rtol=0)


def test_weights_that_are_no_vits_are_named() -> None:
    tensors, config = given()
    assert vit_weights({"conv1.weight": torch.zeros(1)}, {}) is None
    with pytest.raises(ValueError, match=r"every tensor must be one of a ViT of transformers: 1 .* bert\.x"):
        vit_weights({**tensors, "bert.x": torch.zeros(1)}, config)
    lost = {name: t for name, t in tensors.items() if "layer.1.attention.attention.key.bias" not in name}
    with pytest.raises(ValueError, match=r"must all be given: got no blocks\.1\.attention\.key\.bias"):
        vit_weights(lost, config)
    with pytest.raises(ValueError, match="hidden_act of a ViT must be 'gelu': got 'relu'"):
        vit_weights(tensors, {"hidden_act": "relu"})
    more = {"vit.pooler.dense.weight": torch.zeros(1), "vit.embeddings.mask_token": torch.zeros(1)}
    assert (
        vit_weights({**tensors, **more}, config).tensors.keys() == vit_weights(tensors, config).tensors.keys()
    )
    assert vit_weights(tensors, {}).options["eps"] == 1e-12  # that library's default
    assert vit_weights(tensors, {}).options["heads"] == 1  # of 64 numbers each, where nothing says otherwise


def test_a_training_begins_with_weights_of_transformers(tmp_path: Path) -> None:
    x = draw(12, 2, 12, 16).numpy()
    data = open_data((x, np.arange(12) % 3), {})
    training = margin.Training(init_from=str(FOLDER), max_steps=0, seed=1)
    run = margin.train("vit", data, training=training, out=tmp_path / "run")
    core = margin.load(run).model
    assert (core.patch, core.grid, len(core.blocks)) == ((4, 4), (3, 4), 2)
    assert torch.equal(core.patches.weight, given()[0]["vit.embeddings.patch_embeddings.projection.weight"])
    expected = interpolated(given()[0]["vit.embeddings.position_embeddings"], (2, 2), (3, 4))
    torch.testing.assert_close(core.positions, expected)
    assert core.head.weight.shape == (3, 12)


@pytest.mark.parametrize(("size", "pads"), [((1, 1), False), ((1, 3), False), ((67, 71), True)])
def test_padding_is_a_remedy_only_where_it_leaves_four_patches(size: tuple[int, int], pads: bool) -> None:
    with pytest.raises(ValueError, match=r"set --model.patch HEIGHT,WIDTH") as refused:
        patch_of(size, None, pad=False)
    assert str(refused.value).endswith("border pad") == pads
    if pads:
        assert patch_of(size, None, pad=True) == (9, 9)
    else:
        with pytest.raises(ValueError, match=r"set --model.patch HEIGHT,WIDTH$"):
            patch_of(size, None, pad=True)


@pytest.mark.parametrize("option", [{"width": 0}, {"depth": 0}, {"hidden": -1}])
def test_numbers_of_which_there_is_no_network_are_refused(option: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="width and depth must be at least 1, hidden at least 0: got width="):
        small(**option)


def test_a_patch_that_leaves_four_is_taken_where_no_other_divides() -> None:
    """Of 22 x 22 pixels sides 1 and 2 leave 484 and 121 patches, 11 leaves 4. Kills "more than four"."""
    assert patch_of((22, 22), None, pad=False) == (11, 11)
    assert patch_of((2, 2), None, pad=False) == (1, 1)


@pytest.mark.parametrize(("size", "whole"), [((8, 10), (8, 12)), ((9, 8), (12, 8)), ((9, 9), (12, 12))])
def test_one_axis_alone_is_padded_where_the_other_divides(size: tuple, whole: tuple) -> None:
    model = ViT(1, size, 2, patch=4, width=8, depth=1, heads=2, border="pad").eval()
    x = torch.randn(2, 1, *size)
    around = torch.zeros(2, 1, *whole)
    around[:, :, : size[0], : size[1]] = x
    assert torch.equal(model.padded(x), around)
    assert model(x).shape == (2, 2)
