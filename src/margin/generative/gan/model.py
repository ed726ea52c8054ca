"""Generative adversarial networks (Goodfellow et al. 2014): a generator and a critic to be deceived."""

from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.generative.gan.critic import Critic, classes_in_turn
from margin.generative.gan.implicit import Implicit, given
from margin.nn.activations import Activation
from margin.nn.dense import dense


class GAN(nn.Module):
    """A law known by its samples, G(z) with z ~ N(0, I), and a critic D of real and generated examples.

    Nothing in it says how the two are trained: see :mod:`margin.generative.gan.steps`.

    Args:
        generator: G.
        critic: D.

    Reference: Goodfellow et al. 2014, Section 3.
    """

    def __init__(self, generator: Implicit, critic: Critic) -> None:
        super().__init__()
        self.generator = generator
        self.critic = critic

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The critic's number of each example: of a discriminator its logit, near log p(x) / p_G(x)."""
        return self.critic(x)

    def sample(self, count: int, *, generator: Generator) -> Float[Tensor, " count *features"]:
        """``count`` samples, in the model's units."""
        return self.generator(self.generator.draw(count, generator))

    def interpolate(self, count: int, *, generator: Generator) -> Float[Tensor, " count *features"]:
        """``count`` samples on the path from one sample to another: a great circle of their noise."""
        return self.generator(self.generator.path(count, generator))


class ConditionalGAN(nn.Module):
    """A law for each class, known by its samples, and a critic that is told the class of what it judges.

    Args:
        generator: G(z, y), with classes.
        critic: D(x, y), with as many.

    Reference: Mirza and Osindero 2014, Section 3.2; Miyato and Koyama 2018, Equation 3 (the critic).
    """

    def __init__(self, generator: Implicit, critic: Critic) -> None:
        super().__init__()
        self.generator = generator
        self.critic = critic

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The critic's number of each example under the class that suits it best."""
        return self.critic(x)

    def sample(
        self, count: int, *, generator: Generator, label: int | None = None
    ) -> Float[Tensor, " count *features"]:
        """``count`` samples, in the model's units.

        Args:
            count: How many.
            generator: Where the noise comes from.
            label: Their class; None for all classes in turn.
        """
        return self._of(self.generator.draw(count, generator), label)

    def interpolate(
        self, count: int, *, generator: Generator, label: int | None = None
    ) -> Float[Tensor, " count *features"]:
        """``count`` samples on the path between two of one class, the first if none is given."""
        return self._of(self.generator.path(count, generator), 0 if label is None else label)

    def _of(self, z: Tensor, label: int | None) -> Tensor:
        labels = classes_in_turn(len(z), self.generator.num_classes, label, z.device)
        samples: Tensor = self.generator(z, labels)
        return samples


def points(
    in_features: int,
    *,
    noise: int = 2,
    hidden: tuple[int, ...] = (128, 128),
    activation: Activation = "relu",
    minibatch: int = 0,
) -> GAN:
    """A GAN of vectors: both players are perceptrons.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        noise: Numbers of the noise z.
        hidden: Widths of the layers of either player; for the generator, none makes it affine.
        activation: The pointwise function of the generator; the critic's is a leaky ReLU of slope 0.2.
        minibatch: Kernels of minibatch discrimination in the critic; 0 for none.

    Raises:
        ValueError: A number is out of range.
    """
    network = dense(given(noise), hidden, in_features, activation)
    critic, features = _judging(in_features, hidden)
    return GAN(Implicit(network, noise=noise), Critic(critic, features, minibatch=minibatch))


def conditional_points(
    in_features: int,
    num_classes: int,
    *,
    noise: int = 2,
    hidden: tuple[int, ...] = (128, 128),
    activation: Activation = "relu",
    minibatch: int = 0,
) -> ConditionalGAN:
    """A GAN of vectors whose players are told the class.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of classes.
        noise: Numbers of the noise z.
        hidden: Widths of the layers of either player.
        activation: The pointwise function of the generator.
        minibatch: Kernels of minibatch discrimination in the critic; 0 for none.

    Raises:
        ValueError: A number is out of range.
    """
    network = dense(given(noise, num_classes), hidden, in_features, activation)
    critic, features = _judging(in_features, hidden)
    return ConditionalGAN(
        Implicit(network, noise=noise, num_classes=num_classes),
        Critic(critic, features, num_classes=num_classes, minibatch=minibatch),
    )


def _judging(in_features: int, hidden: tuple[int, ...]) -> tuple[nn.Module, int]:
    """A perceptron to the features of a critic, and how many they are."""
    *before, last = hidden or (in_features,)
    return nn.Sequential(nn.Flatten(), dense(in_features, tuple(before), last, "leaky_relu")), last
