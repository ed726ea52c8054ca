"""The convolutional variational autoencoder: a VAE of images of any size (Kingma and Welling 2014)."""

from margin.generative.autoencoder.convolutional import Downsampling, Upsampling
from margin.generative.autoencoder.likelihoods import Decoder, likelihood_of
from margin.generative.autoencoder.vae import VAE


def conv_vae(
    channels: int,
    image_size: tuple[int, int],
    *,
    code: int = 16,
    width: int = 16,
    depth: int = 2,
    decoder: Decoder = "gaussian",
    beta: float = 1.0,
) -> VAE:
    """A VAE of convolutions, for images of any size.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        code: Numbers m of a code.
        width: Channels at the image's full size; doubled at each halving.
        depth: Halvings of the image.
        decoder: Normal values of one learned noise, or bits (inputs in [0, 1]: train with --scale unit).
        beta: Weight of the divergence in the objective.

    Raises:
        ValueError: A number is not positive, or the depth is too large for the image.

    Reference:
        Kingma and Welling 2014, Equation 10; Radford, Metz and Chintala 2016, Section 3 (the convolutions).
    """
    if code < 1:
        raise ValueError(f"code must be at least 1: got {code}")
    return VAE(
        Downsampling(channels, image_size, 2 * code, width=width, depth=depth),
        Upsampling(code, channels, image_size, width=width, depth=depth),
        likelihood_of(decoder),
        code=code,
        beta=beta,
    )
