"""Convolutional GANs (Radford, Metz and Chintala 2016), of images of any size; without batch statistics."""

from torch import nn

from margin.generative.autoencoder.coders import Downsampling, Upsampling
from margin.generative.gan.critic import Critic
from margin.generative.gan.implicit import Implicit, given
from margin.generative.gan.model import GAN, ConditionalGAN

RANGE = (-1.0, 1.0)
"""What the hyperbolic tangent at the generator's end can give."""


def images(
    channels: int,
    image_size: tuple[int, int],
    *,
    noise: int = 32,
    width: int = 32,
    depth: int = 2,
    features: int = 128,
    minibatch: int = 0,
) -> GAN:
    """A GAN of images between -1 and 1.

    The critic does not normalize: a penalty on its slope is for each example alone. The generator normalizes
    groups of channels of each image, not the batch.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        noise: Numbers of the noise z.
        width: Channels at the image's own size; twice as many at each halving.
        depth: Halvings of the image.
        features: Numbers by which the critic describes an image.
        minibatch: Kernels of minibatch discrimination in the critic; 0 for none.

    Raises:
        ValueError: A number is out of range, or the depth is too large for the image.

    Reference:
        Radford, Metz and Chintala 2016, Section 3; upsampling by repeated pixels (Odena, Dumoulin and Olah
        2016) and group normalization in place of transposed convolutions and batch normalization.
    """
    network = nn.Sequential(
        Upsampling(given(noise), channels, image_size, width=width, depth=depth), nn.Tanh()
    )
    critic = Downsampling(channels, image_size, features, width=width, depth=depth, normalize=False)
    return GAN(Implicit(network, noise=noise, bounds=RANGE), Critic(critic, features, minibatch=minibatch))


def conditional_images(  # one parameter for each size, as in images, and the classes
    channels: int,
    image_size: tuple[int, int],
    num_classes: int,
    *,
    noise: int = 32,
    width: int = 32,
    depth: int = 2,
    features: int = 128,
    minibatch: int = 0,
) -> ConditionalGAN:
    """A GAN of images between -1 and 1 whose players are told the class.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        num_classes: Number of classes.
        noise: Numbers of the noise z.
        width: Channels at the image's own size; twice as many at each halving.
        depth: Halvings of the image.
        features: Numbers by which the critic describes an image.
        minibatch: Kernels of minibatch discrimination in the critic; 0 for none.

    Raises:
        ValueError: A number is out of range, or the depth is too large for the image.
    """
    network = nn.Sequential(
        Upsampling(given(noise, num_classes), channels, image_size, width=width, depth=depth), nn.Tanh()
    )
    critic = Downsampling(channels, image_size, features, width=width, depth=depth, normalize=False)
    return ConditionalGAN(
        Implicit(network, noise=noise, num_classes=num_classes, bounds=RANGE),
        Critic(critic, features, num_classes=num_classes, minibatch=minibatch),
    )
