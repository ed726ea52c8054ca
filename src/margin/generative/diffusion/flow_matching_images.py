"""Flow matching of images: the velocity is a U-Net that is told the time."""

from margin.generative.diffusion.flow_matching import FlowMatching
from margin.nn.unet.network import UNet


def images(
    channels: int,
    image_size: tuple[int, int],
    *,
    widths: tuple[int, ...] = (16, 32, 32),
    blocks: int = 1,
    attention: tuple[int, ...] = (2,),
    head_width: int = 8,
    groups: int = 8,
) -> FlowMatching:
    """A flow from noise to images, whose velocity is learned along straight paths.

    Args:
        channels: Channels of an image.
        image_size: Its height and width, in pixels; any.
        widths: Maps of each level of the U-Net, from the full size down, each level of half the size.
        blocks: Residual blocks of a level on the way down; on the way up there is one more.
        attention: Levels, from 0, that have attention.
        head_width: Channels of a head of the attention.
        groups: Groups of the normalizations, a divisor of each width.
    """
    return FlowMatching(
        UNet(
            channels,
            image_size,
            widths=widths,
            blocks=blocks,
            attention=attention,
            head_width=head_width,
            groups=groups,
        ),
        (channels, *image_size),
    )
