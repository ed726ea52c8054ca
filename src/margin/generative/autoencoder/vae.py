"""The variational autoencoder (Kingma and Welling 2014): a decoder of normal codes, and a guess of them."""

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.composition import headed
from margin.generative.autoencoder.coders import Coder, conv_coder, dense_coder
from margin.generative.autoencoder.distributions import (
    BernoulliPixels,
    Decoder,
    Likelihood,
    divergence,
    likelihood_of,
    noise_path,
    reparametrized,
)

Inputs = Float[Tensor, "batch *shape"]
Codes = Float[Tensor, "batch code"]
PerExample = Float[Tensor, " batch"]
Labels = Int[Tensor, " batch"]
Shown = Literal["drawn", "mean"]


class VAE(nn.Module):
    r"""A latent-variable model with z ~ N(0, I), x ~ p(x|z), and the guess q(z|x) = N(mu(x), diag s(x)^2).

    .. math:: \log p(x) = \underbrace{\mathbb{E}_q[\log p(x|z)] - KL(q(z|x) \| p(z))}_{\text{ELBO}}
        + KL(q(z|x) \| p(z|x))

    Trained on the ELBO, or on E_q[log p(x|z)] - beta KL. With classes the decoder also reads the label, and
    p(x|z) is the mean over all labels where none is given; the encoder does not read it, so that an input
    has a code whatever is known of it. The bound holds for any q.

    Args:
        encoder: Maps inputs to mu and log s, one after the other.
        decoder: Maps codes, with the label's indicators behind them, to the likelihood's numbers.
        likelihood: p(x|z).
        code: Numbers m of a code.
        beta: Weight of the divergence in the objective, at least 0.
        num_classes: Labels that the decoder reads; 0 for none.

    Raises:
        ValueError: The code has no coordinate, or beta is negative.

    Reference:
        Kingma and Welling 2014, Equations 3 and 10; Higgins et al. 2017, Equation 4 (beta); Kingma, Rezende,
        Mohamed and Welling 2014, Equation 6 (labels; there q reads them too).
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        likelihood: Likelihood,
        *,
        code: int,
        beta: float = 1.0,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        if not 0 <= beta < math.inf:
            raise ValueError(f"beta must be at least 0: got {beta}")
        self.encoder = encoder
        self.decoder = decoder
        self.likelihood = likelihood
        self.code = code
        self.beta = beta
        self.num_classes = num_classes

    def posterior(self, x: Inputs) -> tuple[Codes, Codes]:
        """Mean mu and log s of q(z|x) for each input."""
        mean, log_scale = self.encoder(x).chunk(2, 1)
        return mean, log_scale

    def encode(self, x: Inputs) -> Codes:
        """The mean of q(z|x) for each input."""
        return self.posterior(x)[0]

    def outputs(self, z: Codes, label: Labels | None = None) -> Inputs:
        """The decoder's numbers for each code.

        Raises:
            ValueError: Labels are missing, out of range, or given to a decoder that reads none.
        """
        if not self.num_classes:
            if label is not None:
                raise ValueError("a label needs a conditional model (conditional_vae): got one for another")
            return self.decoder(z)
        if label is None or not bool(((label >= 0) & (label < self.num_classes)).all()):
            got = "none" if label is None else f"from {int(label.min())} to {int(label.max())}"
            raise ValueError(f"labels must be from 0 to {self.num_classes - 1}: got {got}")
        return self.decoder(torch.cat((z, F.one_hot(label, self.num_classes).to(z)), 1))

    def decode(self, z: Codes, label: Labels | None = None) -> Inputs:
        """The mean of x given each code, and its label where the decoder reads one."""
        return self.likelihood.mean(self.outputs(z, label))

    def log_likelihood(self, x: Inputs, z: Codes, label: Labels | None = None) -> PerExample:
        """Log p(x|z), or log p(x|z, label), of each pair of an observed input and a code, in nats."""
        if self.num_classes and label is None:
            return self.by_class(x, z).logsumexp(1) - math.log(self.num_classes)
        output = self.outputs(z, label)
        return self.likelihood.log_prob(output, x.reshape(output.shape))

    def by_class(self, x: Inputs, z: Codes) -> Float[Tensor, "batch classes"]:
        """Log p(x|z, label) for each label."""
        labels = torch.arange(self.num_classes, device=z.device)
        return torch.stack([self.log_likelihood(x, z, label.expand(len(z))) for label in labels], 1)

    def reconstruct(self, x: Inputs, label: Labels | None = None) -> Inputs:
        """The mean of x given its code's mean; of the likeliest label where the decoder reads one."""
        z = self.encode(x)
        if self.num_classes and label is None:
            label = self.by_class(x, z).argmax(1)
        return self.decode(z, label).reshape(x.shape)

    @property
    def discrete(self) -> bool:
        """Whether a bound is one of a probability, of bits, and not of a density."""
        return isinstance(self.likelihood, BernoulliPixels)

    def bound(
        self, x: Inputs, *, generator: Generator, label: Labels | None = None, draws: int = 16
    ) -> PerExample:
        """The ELBO of each input, its expectation by some draws of the code, in nats in the model's units.

        Args:
            x: Inputs; grey pixels of a Bernoulli decoder are drawn to bits first.
            generator: Where bits and codes are drawn from.
            label: Labels, for log p(x|label).
            draws: How many codes, at least 1.
        """
        return self.objective_of(x, 1.0, generator, label, draws)

    def objective_of(
        self, x: Inputs, beta: float, generator: Generator, label: Labels | None = None, draws: int = 1
    ) -> PerExample:
        """E_q[log p(x|z)] - beta KL(q||p) of each input, the expectation by so many draws.

        Raises:
            ValueError: The number of draws is not positive, or a pixel is out of a Bernoulli decoder's range.
        """
        if draws < 1:
            raise ValueError(f"the number of draws must be at least 1: got {draws}")
        x = self.likelihood.observed(x, generator)
        mean, log_scale = self.posterior(x)
        codes = [reparametrized(mean, log_scale, generator) for _ in range(draws)]
        likelihood = torch.stack([self.log_likelihood(x, z, label) for z in codes]).mean(0)
        return likelihood - beta * divergence(mean, log_scale)

    def sample(
        self, count: int, *, generator: Generator, values: Shown = "drawn", label: int | None = None
    ) -> Inputs:
        """Inputs drawn from the model.

        Args:
            count: How many.
            generator: Where codes and inputs are drawn from.
            values: Inputs drawn given their codes, the model's law, or only the mean of each.
            label: The class of all; each class in turn where the decoder reads one and none is given.
        """
        weight = next(self.parameters())
        z = torch.randn(count, self.code, generator=generator, device=generator.device, dtype=weight.dtype)
        return self._shown(z.to(weight.device), values, generator, label)

    def interpolate(
        self, count: int, *, generator: Generator, values: Shown = "mean", label: int | None = None
    ) -> Inputs:
        """Inputs along the great circle between two drawn codes, or the segment where a code is one number.

        Args:
            count: How many, the two ends included.
            generator: Where codes and inputs are drawn from.
            values: The mean of each input given its code, or inputs drawn.
            label: The class of all; the first where the decoder reads one and none is given.
        """
        weight = next(self.parameters())
        ends = torch.randn(2, self.code, generator=generator, device=generator.device, dtype=weight.dtype)
        first, last = ends.to(weight.device)
        z = noise_path(first, last, count)
        return self._shown(z, values, generator, 0 if self.num_classes and label is None else label)

    def _shown(self, z: Codes, values: Shown, generator: Generator, label: int | None) -> Inputs:
        labels = None if label is None else torch.full((len(z),), label, device=z.device)
        if self.num_classes and labels is None:
            labels = torch.arange(len(z), device=z.device) % self.num_classes
        output = self.outputs(z, labels)
        show: Callable[[Tensor], Tensor] = self.likelihood.mean
        return show(output) if values == "mean" else self.likelihood.draw(output, generator)

    def forward(self, x: Inputs) -> Codes:
        """The code of each input: the mean of q(z|x)."""
        return self.encode(x)


def vae_with(coder: Coder, *, num_classes: int = 0, decoder: Decoder = "gaussian", beta: float = 1.0) -> VAE:
    """The variational autoencoder of an encoder and a decoder.

    Args:
        coder: The two.
        num_classes: Number of classes.
        decoder: Normal values of one learned noise, or bits (inputs in [0, 1]: train with --scale unit).
        beta: Weight of the divergence in the objective.

    Reference:
        Kingma and Welling 2014, Appendix C; Higgins et al. 2017, Equation 4 (beta); Kingma, Rezende, Mohamed
        and Welling 2014, Section 2.2 (the decoder of model M2, which reads the class).
    """
    encoder = coder.encoder(2 * coder.code)
    return VAE(
        encoder,
        coder.decoder(coder.code + num_classes),
        likelihood_of(decoder),
        code=coder.code,
        beta=beta,
        num_classes=num_classes,
    )


DENSE = {"code": 8, "hidden": (256,)}
"""Sizes of a dense variational autoencoder."""

dense_vae = headed(
    dense_coder,
    vae_with,
    "A VAE of affine maps; with a Gaussian decoder and no hidden layer it is probabilistic PCA.",
    defaults=DENSE,
    without=("num_classes",),
)
conditional_vae = headed(
    dense_coder,
    vae_with,
    "A VAE of affine maps whose decoder also reads the class: a code says what the class does not.",
    defaults=DENSE,
    dictated=("num_classes",),
)
conv_vae = headed(
    conv_coder, vae_with, "A VAE of convolutions, for images of any size.", without=("num_classes",)
)
