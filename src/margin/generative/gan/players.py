r"""The two players of an adversarial game: implicit models (Mohamed and Lakshminarayanan 2016) and critics.

An implicit model x = F(z), z ~ N(0, I), is known by its samples alone: it states no density. Where F is
affine, x = A z + b, the law is N(b, A A^T). A critic gives each example one number, by which an adversary
tells real ones from generated ones. Minibatch discrimination (Salimans et al. 2016) appends how close an
example is to the others of its batch, so that a critic sees a collapse:

.. math:: o_{ib} = \sum_j \exp(-\|M_{ib} - M_{jb}\|_1), \qquad M_i = T f(x_i)

with B kernels b of C numbers each. Identical examples have the largest o, the batch's size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.types import PerExample
from margin.generative.autoencoder.coders import Downsampling, Upsampling
from margin.generative.autoencoder.distributions import noise_path
from margin.nn.activations import Activation
from margin.nn.dense import dense


def given(noise: int, num_classes: int = 0) -> int:
    """How many numbers the network of an :class:`Implicit` is given: the noise, then one for each class.

    Raises:
        ValueError: There is no noise.
    """
    if noise < 1:
        raise ValueError(f"noise must be at least 1 number: got {noise}")
    return noise + num_classes


class Implicit(nn.Module):
    """The law of F(z), z ~ N(0, I): noise pushed through a network, given the class where there are classes.

    Args:
        network: F, of ``noise + num_classes`` numbers: the noise, then a 1 at the class and 0 elsewhere.
        noise: Numbers of z, at least 1.
        num_classes: Classes that it reads; 0 for none.
        bounds: Between which numbers its samples lie by construction; None for any.

    Raises:
        ValueError: There is no noise.

    Reference:
        Mohamed and Lakshminarayanan 2016, Section 2; Mirza and Osindero 2014, Section 3.2 (the class).
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        noise: int,
        num_classes: int = 0,
        bounds: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        given(noise, num_classes)
        self.network = network
        self.noise = noise
        self.num_classes = num_classes
        self.bounds = bounds

    def forward(
        self, z: Float[Tensor, "batch noise"], labels: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, " batch *features"]:
        """F(z), of the classes ``labels`` where there are classes.

        Raises:
            ValueError: Labels are missing, or there are no classes for them.
        """
        if (labels is None) != (self.num_classes == 0):
            raise ValueError(f"labels are for models with classes: got {self.num_classes} classes, {labels}")
        if labels is not None:
            z = torch.cat((z, F.one_hot(labels.long(), self.num_classes).to(z)), 1)
        return self.network(z)

    def draw(self, count: int, generator: Generator) -> Float[Tensor, "count noise"]:
        """``count`` draws of z."""
        return torch.randn(count, self.noise, generator=generator).to(next(self.parameters()))

    def path(self, count: int, generator: Generator) -> Float[Tensor, "count noise"]:
        """``count`` points of the noise on the great circle from one draw to another."""
        first, second = self.draw(2, generator)
        return noise_path(first, second, count)


MOMENTUM = 0.01
"""Share of the newest batch in what the layer remembers of batches."""


def closeness(M: Float[Tensor, "batch kernels numbers"]) -> Float[Tensor, "batch kernels"]:
    """o_ib = sum_j exp(-||M_ib - M_jb||_1), from 1 (alone) to the size of the batch (all the same).

    The example itself is one of the j, which adds 1 to each.

    Reference: Salimans et al. 2016, Section 3.2.
    """
    return torch.exp(-(M[:, None] - M[None]).abs().sum(-1)).sum(1)


class MinibatchDiscrimination(nn.Module):
    """Features followed by their closeness to the batch's, o / n in (0, 1].

    Divided by the size n of the batch, unlike the source, so that a short last batch is like the others.

    In evaluation mode an example has no batch: its closeness is the mean of those in training, a buffer, and
    what the layer says of it depends on it alone.

    Args:
        features: Numbers of an example.
        kernels: B, numbers that are appended, at least 1.
        numbers: C, numbers that a kernel compares, at least 1.

    Raises:
        ValueError: A size is not positive.

    Reference: Salimans et al. 2016, Section 3.2.
    """

    def __init__(self, features: int, kernels: int, *, numbers: int = 5) -> None:
        super().__init__()
        if min(features, kernels, numbers) < 1:
            raise ValueError(
                f"features, kernels and numbers must be at least 1: got {features}, {kernels}, {numbers}"
            )
        self.shape = (kernels, numbers)
        self.T = nn.Linear(features, kernels * numbers, bias=False)
        self.usual: Tensor
        self.register_buffer("usual", torch.ones(kernels))

    def forward(self, f: Float[Tensor, "batch features"]) -> Float[Tensor, "batch more"]:
        """The features and, after them, their closeness."""
        if self.training:
            o = closeness(self.T(f).unflatten(1, self.shape)) / len(f)
            self.usual.lerp_(o.detach().mean(0).to(self.usual), MOMENTUM)
        else:
            o = self.usual.to(f).expand(len(f), -1)
        return torch.cat((f, o), 1)


class Critic(nn.Module):
    r"""Features of an example, and an affine map of them to one number; with classes, one for each class.

    .. math:: D(x, y) = w^\top f(x) + b + v_y^\top f(x)

    Without labels, where there are classes, it is the largest over the classes: the class that suits x best.

    Args:
        network: f, to ``features`` numbers; the last activation is applied here.
        features: Numbers of f.
        num_classes: Classes; 0 for none.
        minibatch: Kernels of minibatch discrimination that are appended to the features; 0 for none.

    Raises:
        ValueError: A number is negative.

    Reference:
        Goodfellow et al. 2014, Section 3; Miyato and Koyama 2018, Equation 3 (classes: the projection).
    """

    def __init__(
        self, network: nn.Module, features: int, *, num_classes: int = 0, minibatch: int = 0
    ) -> None:
        super().__init__()
        if minibatch < 0:
            raise ValueError(f"minibatch must be at least 0: got {minibatch}")
        self.network = network
        self.batchwise = MinibatchDiscrimination(features, minibatch) if minibatch else None
        self.head = nn.Linear(features + minibatch, 1)
        self.classes = nn.Linear(features, num_classes, bias=False) if num_classes else None

    def features(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch numbers"]:
        """f(x), which feature matching compares."""
        return nn.functional.leaky_relu(self.network(x), 0.2)

    def judge(
        self, f: Float[Tensor, "batch numbers"], labels: Int[Tensor, " batch"] | None = None
    ) -> PerExample:
        """The number of each row of features, of the class of each label where there are classes."""
        score: Tensor = self.head(f if self.batchwise is None else self.batchwise(f))[:, 0]
        if self.classes is None:
            return score
        own = self.classes(f)
        return score + (own.amax(1) if labels is None else own.gather(1, labels.long()[:, None])[:, 0])

    def forward(
        self, x: Float[Tensor, " batch *features"], labels: Int[Tensor, " batch"] | None = None
    ) -> PerExample:
        """The number of each example."""
        return self.judge(self.features(x), labels)


def classes_in_turn(count: int, num_classes: int, label: int | None, device: torch.device) -> Tensor:
    """The labels of ``count`` samples: all ``label``, or 0, 1, 2, ... in turn.

    Raises:
        ValueError: There is no such class.
    """
    if label is None:
        return torch.arange(count, device=device) % num_classes
    if not 0 <= label < num_classes:
        raise ValueError(f"label must be from 0 to {num_classes - 1}: got {label}")
    return torch.full((count,), label, device=device)


RANGE = (-1.0, 1.0)
"""What the hyperbolic tangent at the end of a generator of images can give."""


@dataclass(frozen=True, slots=True)
class Players:
    """The networks of both players, to be made once it is known what the generator is given.

    Args:
        generator: ``(inputs) -> module``, from so many numbers to an example.
        critic: ``() -> module``, from an example to its features.
        features: How many these are.
        noise: Numbers of the noise z.
        bounds: Between which numbers samples lie by construction; None for any.
    """

    generator: Callable[[int], nn.Module]
    critic: Callable[[], nn.Module]
    features: int
    noise: int
    bounds: tuple[float, float] | None = None


def dense_players(
    in_features: int,
    *,
    noise: int = 2,
    hidden: tuple[int, ...] = (128, 128),
    activation: Activation = "relu",
) -> Players:
    """Perceptrons.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        noise: Numbers of the noise z.
        hidden: Widths of the layers of either player; for the generator, none makes it affine.
        activation: The pointwise function of the generator; the critic's is a leaky ReLU of slope 0.2.
    """
    *before, last = hidden or (in_features,)
    return Players(
        lambda inputs: dense(inputs, hidden, in_features, activation),
        lambda: nn.Sequential(nn.Flatten(), dense(in_features, tuple(before), last, "leaky_relu")),
        last,
        noise,
    )


def conv_players(
    channels: int,
    image_size: tuple[int, int],
    *,
    noise: int = 32,
    width: int = 32,
    depth: int = 2,
    features: int = 128,
) -> Players:
    """Convolutions, of images of any size, without batch statistics.

    The critic does not normalize: a penalty on its slope is for each example alone. The generator normalizes
    groups of channels of each image, not the batch.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        noise: Numbers of the noise z.
        width: Channels at the image's own size; twice as many at each halving.
        depth: Halvings of the image.
        features: Numbers by which the critic describes an image.

    Raises:
        ValueError: A number is out of range, or the depth is too large for the image.

    Reference:
        Radford, Metz and Chintala 2016, Section 3; upsampling by repeated pixels (Odena, Dumoulin and Olah
        2016) and group normalization in place of transposed convolutions and batch normalization.
    """
    return Players(
        lambda inputs: nn.Sequential(
            Upsampling(inputs, channels, image_size, width=width, depth=depth), nn.Tanh()
        ),
        lambda: Downsampling(channels, image_size, features, width=width, depth=depth, normalize=False),
        features,
        noise,
        RANGE,
    )
