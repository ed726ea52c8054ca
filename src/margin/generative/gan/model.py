"""Generative adversarial networks (Goodfellow et al. 2014): a generator and a critic to be deceived."""

from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.composition import headed
from margin.generative.gan.players import (
    Critic,
    Implicit,
    Players,
    classes_in_turn,
    conv_players,
    dense_players,
    given,
)


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
    """A law for each class, known by its samples, and a critic that reads the class of an example.

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


def joined(players: Players, *, minibatch: int = 0) -> GAN:
    """The network of two players.

    Args:
        players: The two.
        minibatch: Kernels of minibatch discrimination in the critic; 0 for none.
    """
    return GAN(*_networks(players, 0, minibatch))


def joined_by_class(players: Players, num_classes: int, *, minibatch: int = 0) -> ConditionalGAN:
    """The network of two players that are conditioned on the class.

    Args:
        players: The two.
        num_classes: Number of classes.
        minibatch: Kernels of minibatch discrimination in the critic; 0 for none.
    """
    return ConditionalGAN(*_networks(players, num_classes, minibatch))


def _networks(players: Players, num_classes: int, minibatch: int) -> tuple[Implicit, Critic]:
    network, critic = players.generator(given(players.noise, num_classes)), players.critic()
    generator = Implicit(network, noise=players.noise, num_classes=num_classes, bounds=players.bounds)
    return generator, Critic(critic, players.features, num_classes=num_classes, minibatch=minibatch)


gan = headed(dense_players, joined, "A GAN of vectors: both players are perceptrons.")
conditional_gan = headed(
    dense_players,
    joined_by_class,
    "A GAN of vectors: both players are perceptrons, conditioned on the class.",
)
conv_gan = headed(conv_players, joined, "A convolutional GAN of images between -1 and 1.")
conditional_conv_gan = headed(
    conv_players,
    joined_by_class,
    "A convolutional GAN of images between -1 and 1, conditioned on the class.",
)
