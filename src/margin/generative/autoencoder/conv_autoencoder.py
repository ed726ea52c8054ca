"""The convolutional autoencoder (Masci et al. 2011): images of any size to short codes and back."""

from margin.generative.autoencoder.convolutional import Downsampling, Upsampling
from margin.generative.autoencoder.model import Autoencoder, Noise


def conv_autoencoder(
    channels: int,
    image_size: tuple[int, int],
    *,
    code: int = 16,
    width: int = 16,
    depth: int = 2,
    corruption: float = 0.0,
    noise: Noise = "masking",
) -> Autoencoder:
    """An autoencoder of convolutions, for images of any size.

    Args:
        channels: Channels of an image.
        image_size: Its height and width.
        code: Numbers of a code.
        width: Channels at the image's full size; doubled at each halving.
        depth: Halvings of the image.
        corruption: How much an image is corrupted before it is encoded in training; 0 for not at all.
        noise: Masking sets a share ``corruption`` of the pixels to 0; Gaussian adds noise of that standard
            deviation.

    Raises:
        ValueError: A number is not positive, or the depth is too large for the image.

    Reference:
        Masci, Meier, Ciresan and Schmidhuber 2011, Section 3; here strides stand in place of pooling.
    """
    if code < 1:
        raise ValueError(f"code must be at least 1: got {code}")
    encoder = Downsampling(channels, image_size, code, width=width, depth=depth)
    decoder = Upsampling(code, channels, image_size, width=width, depth=depth)
    return Autoencoder(encoder, decoder, corruption=corruption, noise=noise)
