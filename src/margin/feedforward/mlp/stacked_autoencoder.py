"""Stacked autoencoders (Bengio et al. 2007): layer by layer learns to reconstruct, then all to classify."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import WARMING, Batch, ClassScores, Metrics, Objective, PerExample
from margin.engine.loop import GradientUpdate, State, Step, descent
from margin.nn.activations import Activation, activation_of
from margin.nn.preprocessed import core_of, features_of


class StackedAutoencoder(nn.Module):
    r"""Layers x^l = phi(W_l x^{l-1} + b_l) and an affine map to class logits.

    Each layer is an autoencoder with tied weights: from its code it reconstructs its input as W_l^T x^l + c.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of logits.
        hidden: Widths of the layers, at least one.
        activation: phi, the pointwise function after each of them.

    Raises:
        ValueError: There is no layer, or a width is not positive.

    Reference:
        Bengio, Lamblin, Popovici and Larochelle 2007; tied weights as in Vincent, Larochelle, Bengio and
        Manzagol 2008, Section 2.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        hidden: tuple[int, ...] = (64, 32),
        activation: Activation = "sigmoid",
    ) -> None:
        super().__init__()
        widths = (in_features, *hidden)
        if not hidden or any(width < 1 for width in widths):
            raise ValueError(f"hidden must be one width or more, each at least 1: got {hidden}")
        self.encoder = nn.ModuleList(
            nn.Linear(fan_in, fan_out) for fan_in, fan_out in zip(widths, hidden, strict=False)
        )
        self.activation = activation_of(activation)
        self.head = nn.Linear(hidden[-1], num_classes)

    def encode(self, x: Float[Tensor, " batch *features"], depth: int | None = None) -> Tensor:
        """x^l of each row, l = ``depth``; None: of the last layer."""
        x = x.flatten(1)
        for layer in self.encoder[:depth]:
            x = self.activation(layer(x))
        return x

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The logits of each row."""
        return self.head(self.encode(x))


def reconstruction_of_layer(layer: int, corruption: float) -> Objective:
    r"""The squared error \|x^{l-1} - W_l^T phi(W_l x~ + b_l) - c\|^2 of each example, summed over units.

    x~ is x^{l-1} with a share of its units set to 0, drawn anew each time. c is the bias that is best for
    the batch, so it is no parameter. x^{l-1} is a constant: layers below are not moved.

    Args:
        layer: l - 1, counted from 0.
        corruption: Share of units set to 0.
    """

    def objective(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
        core, x = core_of(model), features_of(model, batch.inputs[0])
        with torch.no_grad():
            x = core.encode(x, layer)
        kept = torch.rand(x.shape, generator=generator).to(x) >= corruption
        affine = core.encoder[layer]
        code = core.activation(affine(x * kept))
        residue = x - code @ affine.weight
        return (residue - residue.mean(0)).square().sum(1)

    return objective


def moves(layer: nn.Module) -> bool:
    """Whether a parameter of the layer is trained."""
    return any(parameter.requires_grad for parameter in layer.parameters())


def on_labels(objective: Objective, descend: GradientUpdate) -> Step:
    """One step on the mean over the batch of weight times loss: 0 where an example has no label.

    It is defined where no example of a batch has a label, and its expected gradient is proportional to that
    of the mean over those that have one.
    """
    plain = descent(objective, descend)

    def step(state: State, batch: Batch) -> Metrics:
        if batch.weight is None:
            return plain(state, batch)
        if descend.pieces > 1:
            raise ValueError(f"accumulate must be 1 where examples have weights: got {descend.pieces}")
        losses = objective(state.model, batch, state.generator)
        return descend(state, torch.where(batch.weight != 0, batch.weight * losses, 0).mean())

    return step


def greedy_pretraining(
    objective: Objective,
    descend: GradientUpdate,
    total_steps: int,
    *,
    pretraining: float = 0.5,
    corruption: float = 0.0,
) -> Step:
    """Layers learn one after another to reconstruct their inputs; then all learn the labels.

    The first ``pretraining`` of all steps are divided evenly among the layers, the first layer first. An
    example of weight 0 has no label: it is reconstructed like any other, and left out of what follows.

    Args:
        objective: The loss of the labels.
        descend: How a loss moves the optimizer.
        total_steps: Steps of the whole training.
        pretraining: Share of the steps that reconstruct, in [0, 1]; 0 learns the labels alone. While it
            lasts no weights are the best and no patience runs out.
        corruption: Share of a layer's inputs set to 0 before it reconstructs all of them, in [0, 1).

    Raises:
        ValueError: A share is out of range; later, a batch that is to be reconstructed has one example, or a
            layer is frozen.

    Reference:
        Bengio, Lamblin, Popovici and Larochelle 2007 (greedy layer-wise training of autoencoders); Vincent
        et al. 2010, Section 3 (reconstruction from a corrupted input).
    """
    if not 0 <= pretraining <= 1:
        raise ValueError(f"pretraining must be in [0, 1]: got {pretraining}")
    if not 0 <= corruption < 1:
        raise ValueError(f"corruption must be in [0, 1): got {corruption}")
    first = round(pretraining * total_steps)
    supervised = on_labels(objective, descend)
    reconstructing: dict[tuple[int, int], Step] = {}

    def step(state: State, batch: Batch) -> Metrics:
        if state.step >= first:
            return {**supervised(state, batch), "layer": 0.0, WARMING: 0.0}
        core: Any = state.core
        layer, examples = state.step * len(core.encoder) // first, len(batch.inputs[0])
        if frozen := [i for i, one in enumerate(core.encoder) if not moves(one)]:
            raise ValueError(
                "layers that reconstruct must not be frozen: got encoder."
                f"{', encoder.'.join(map(str, frozen))} frozen; set pretraining to 0"
            )
        if examples < 2:
            raise ValueError(
                f"reconstruction needs batches of two examples or more: got {examples}; "
                "set pretraining to 0 or a larger batch_size"
            )
        pieces = min(descend.pieces, examples // 2)  # of one example nothing is left to reconstruct
        if (layer, pieces) not in reconstructing:
            objective = reconstruction_of_layer(layer, corruption)
            reconstructing[layer, pieces] = descent(objective, replace(descend, pieces=pieces))
        return {
            **reconstructing[layer, pieces](state, batch._replace(weight=None)),
            "layer": layer + 1.0,
            WARMING: 1.0,
        }

    return step
