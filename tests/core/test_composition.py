"""A body and a head make one constructor whose options are those of both."""

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import nn

from margin.core.composition import headed


def body(width: int, *, hidden: int = 8, dropout: float = 0.25) -> nn.Module:
    """Layers.

    Args:
        width: Numbers of an input.
        hidden: Units, at least 1;
            each is a rectifier.
        dropout: Share that is dropped within.
    """
    return nn.Sequential(nn.Linear(width, hidden), nn.Dropout(dropout))


def head(inner: nn.Module, num_classes: int, *, bias: bool = True, dropout: float = 0.0) -> nn.Module:
    """A readout.

    Args:
        inner: What is read.
        num_classes: Number of logits.
        bias: Whether logits have a bias.
        dropout: Share that is dropped of what is read.
    """
    return nn.Sequential(inner, nn.Dropout(dropout), nn.Linear(inner[0].out_features, num_classes, bias=bias))


def parameters_of(build: Callable[..., object]) -> str:
    """A constructor's parameters as text; what it makes is what its head makes."""
    signature = inspect.signature(build)
    assert signature.return_annotation is nn.Module
    return str(signature).partition(" -> ")[0]


def test_what_is_dictated_and_chosen_is_that_of_both() -> None:
    build = headed(body, head, "A network to logits.", defaults={"hidden": 5})
    assert parameters_of(build) == (
        "(width: int, num_classes: int, *, hidden: int = 5, dropout: float = 0.0, bias: bool = True)"
    )
    model = build(3, 2, dropout=0.5, bias=False)
    inner, outer, last = model
    assert (inner[0].in_features, inner[0].out_features, inner[1].p, outer.p) == (3, 5, 0.5, 0.5)
    assert last.out_features == 2
    assert last.bias is None
    assert model(torch.ones(4, 3)).shape == (4, 2)


def test_the_sentences_are_those_of_body_and_head() -> None:
    text = inspect.getdoc(headed(body, head, "A network to logits.")) or ""
    assert text.splitlines()[0] == "A network to logits."
    assert "    hidden: Units, at least 1; each is a rectifier." in text
    assert "    dropout: Share that is dropped within." in text
    assert "inner" not in text


def test_the_size_of_the_body_may_be_an_option() -> None:
    build = headed(body, head, "Tokens.", body_size="embedding", defaults={"embedding": 7})
    assert parameters_of(build).startswith("(num_classes: int, *, embedding: int = 7, hidden: int = 8")
    assert build(2)[0][0].in_features == 7
    with pytest.raises(TypeError):
        build(2, width=3)


def test_a_default_of_no_option_is_refused() -> None:
    with pytest.raises(ValueError, match="options of body or head: got nothing"):
        headed(body, head, "A network.", defaults={"nothing": 1})


def images(channels: int, image_size: tuple[int, int], *, num_classes: int = 0, width: int = 4) -> nn.Module:
    """Layers of images.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        num_classes: Classes that are read; 0 for none.
        width: Maps.
    """
    height, breadth = image_size
    flat = nn.Sequential(nn.Flatten(), nn.Linear(channels * height * breadth, width))
    return nn.Sequential(flat, nn.Embedding(num_classes + 1, width))


def gated(inner: nn.Module, *, num_classes: int = 0, drop: float = 0.1) -> nn.Module:
    """A model that may know classes.

    Args:
        inner: The layers.
        num_classes: Number of classes.
        drop: Probability.
    """
    inner.count, inner.drop = num_classes, drop
    return inner


def test_an_option_may_be_dictated_to_both() -> None:
    build = headed(images, gated, "Images of classes.", dictated=("num_classes",))
    assert parameters_of(build) == (
        "(channels: int, image_size: tuple[int, int], num_classes: int, *, width: int = 4, drop: float = 0.1)"
    )
    model = build(1, (2, 3), 7, drop=0.5)
    assert (model.count, model.drop, model[1].num_embeddings, model[0][1].in_features) == (7, 0.5, 8, 6)


def test_an_option_may_be_left_out_and_keeps_its_default() -> None:
    build = headed(images, gated, "Images.", without=("num_classes", "drop"))
    assert parameters_of(build) == "(channels: int, image_size: tuple[int, int], *, width: int = 4)"
    model = build(1, (2, 3), width=5)
    assert (model.count, model.drop, model[1].num_embeddings, model[1].embedding_dim) == (0, 0.1, 1, 5)
    with pytest.raises(TypeError):
        build(1, (2, 3), drop=0.5)
    assert "num_classes" not in (inspect.getdoc(build) or "")


def test_what_is_no_option_keeps_its_default_or_the_value_given() -> None:
    build = headed(body, head, "Fixed.", defaults={"hidden": 9}, without=("hidden", "bias"))
    assert parameters_of(build) == "(width: int, num_classes: int, *, dropout: float = 0.0)"
    inner, _, last = build(3, 2)
    assert (inner[0].out_features, last.bias is not None) == (9, True)


def test_an_option_of_the_head_alone_may_be_left_out() -> None:
    build = headed(body, head, "Fixed.", without=("head.dropout",))
    assert parameters_of(build).endswith("hidden: int = 8, dropout: float = 0.25, bias: bool = True)")
    inner, outer, _ = build(3, 2, dropout=0.5)
    assert (inner[1].p, outer.p) == (0.5, 0.0)


def test_what_is_dictated_or_left_out_must_be_an_option() -> None:
    for wrong in ({"dictated": ("nothing",)}, {"without": ("nothing",)}):
        with pytest.raises(ValueError, match="options of body or head: got nothing"):
            headed(images, gated, "Images.", **wrong)
