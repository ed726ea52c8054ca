"""Autoencoders (Hinton and Salakhutdinov 2006): a code of each input from which a decoder restores it."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.nn.activations import Activation
from margin.nn.dense import dense
from margin.nn.preprocessed import core_of, features_of

Inputs = Float[Tensor, "batch *shape"]
Codes = Float[Tensor, "batch code"]
Noise = Literal["masking", "gaussian"]


class Autoencoder(nn.Module):
    """A code z = E(x) and a reconstruction D(z), trained to least ||x - D(E(x'))||^2, x' = x or corrupted.

    D(E(x)) is x at most where the data lie: a code shorter than the data's dimension cannot restore all x.

    Args:
        encoder: Maps inputs to codes.
        decoder: Maps codes to inputs, or to their rows of features.
        corruption: How much an input is corrupted before it is encoded in training; 0 for not at all.
        noise: Masking sets a share ``corruption`` of the features to 0; Gaussian adds noise of that standard
            deviation.

    Raises:
        ValueError: The corruption is out of range.

    Reference:
        Hinton and Salakhutdinov 2006, Figure 1; Vincent et al. 2010, Section 3 (corrupted inputs).
    """

    def __init__(
        self, encoder: nn.Module, decoder: nn.Module, *, corruption: float = 0.0, noise: Noise = "masking"
    ) -> None:
        super().__init__()
        limit = 1.0 if noise == "masking" else math.inf
        if not 0 <= corruption < limit:
            raise ValueError(f"corruption by {noise} must be in [0, {limit:g}): got {corruption}")
        self.encoder = encoder
        self.decoder = decoder
        self.corruption = corruption
        self.noise = noise

    def encode(self, x: Inputs) -> Codes:
        """The code of each input."""
        return self.encoder(x)

    def decode(self, z: Codes) -> Inputs:
        """The input that each code stands for."""
        return self.decoder(z)

    def reconstruct(self, x: Inputs) -> Inputs:
        """What is left of each input when it passes through its code."""
        return self.decode(self.encode(x)).reshape(x.shape)

    def corrupted(self, x: Inputs, generator: Generator) -> Inputs:
        """The inputs as they are encoded in training."""
        if self.corruption == 0:
            return x
        if self.noise == "masking":
            kept = torch.rand(x.shape, generator=generator, device=generator.device) >= self.corruption
            return x * kept.to(x)
        drawn = torch.randn(x.shape, generator=generator, device=generator.device)
        return x + self.corruption * drawn.to(x)

    def forward(self, x: Inputs) -> Codes:
        """The code of each input."""
        return self.encode(x)


def restoration_error(model: nn.Module, batch: Batch, generator: Generator) -> Float[Tensor, " batch"]:
    """||x - D(E(x'))||^2 of each example, x' its corrupted form, summed over its features in model units."""
    core, x = core_of(model), features_of(model, batch.inputs[0])
    return (x - core.reconstruct(core.corrupted(x, generator))).square().flatten(1).sum(1)


def dense_autoencoder(
    in_features: int, *, code: int = 2, hidden: tuple[int, ...] = (128,), activation: Activation = "relu"
) -> Autoencoder:
    """An autoencoder of affine maps; without hidden layers its codes span PCA's subspace.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        code: Numbers m of a code.
        hidden: Widths of the encoder's hidden layers; the decoder has them in reverse.
        activation: The pointwise function between two maps.

    Raises:
        ValueError: A width is not positive.

    Reference:
        Hinton and Salakhutdinov 2006, Figure 1; Baldi and Hornik 1989, Section 2 (no hidden layer).
    """
    return Autoencoder(*_coder(in_features, code, hidden, activation))


def denoising_autoencoder(
    in_features: int,
    *,
    code: int = 2,
    hidden: tuple[int, ...] = (128,),
    activation: Activation = "relu",
    corruption: float = 0.25,
    noise: Noise = "masking",
) -> Autoencoder:
    """An autoencoder of affine maps that restores what was corrupted.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        code: Numbers m of a code.
        hidden: Widths of the encoder's hidden layers; the decoder has them in reverse.
        activation: The pointwise function between two maps.
        corruption: Share of the features set to 0, in [0, 1), or the noise's standard deviation.
        noise: What corrupts: masking sets features to 0, Gaussian adds noise.

    Raises:
        ValueError: A width is not positive, or the corruption is out of range.

    Reference:
        Vincent, Larochelle, Lajoie, Bengio and Manzagol 2010, Section 3.
    """
    return Autoencoder(*_coder(in_features, code, hidden, activation), corruption=corruption, noise=noise)


def _coder(
    in_features: int, code: int, hidden: tuple[int, ...], activation: Activation
) -> tuple[nn.Module, nn.Module]:
    if code < 1:
        raise ValueError(f"code must be at least 1: got {code}")
    encoder = nn.Sequential(nn.Flatten(), dense(in_features, hidden, code, activation))
    return encoder, dense(code, hidden[::-1], in_features, activation)
