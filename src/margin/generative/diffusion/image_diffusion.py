"""Diffusion of images (Ho, Jain and Abbeel 2020): the network is a U-Net that is told the time."""

from margin.generative.diffusion.model import Diffusion, Weighting
from margin.generative.diffusion.parametrizations import Parametrization
from margin.generative.diffusion.schedules import Beta, Terminal, Variance, schedule_of
from margin.nn.unet.network import UNet


# a constructor's parameters: they are the model's options
def images(
    channels: int,
    image_size: tuple[int, int],
    *,
    widths: tuple[int, ...] = (16, 32, 32),
    blocks: int = 1,
    attention: tuple[int, ...] = (2,),
    head_width: int = 8,
    groups: int = 8,
    steps: int = 1000,
    beta: Beta = "linear",
    terminal: Terminal = "kept",
    parametrization: Parametrization = "v",
    variance: Variance = "small",
    weighting: Weighting = "simple",
) -> Diffusion:
    """A chain that turns images into noise, and a U-Net that learns to turn them back.

    Args:
        channels: Channels of an image.
        image_size: Its height and width, in pixels; any.
        widths: Maps of each level of the U-Net, from the full size down, each level of half the size.
        blocks: Residual blocks of a level on the way down; on the way up there is one more.
        attention: Levels, from 0, that have attention.
        head_width: Channels of a head of the attention.
        groups: Groups of the normalizations, a divisor of each width.
        steps: T, steps of the chain.
        beta: Whether the chain's variances rise evenly, or with a squared cosine.
        terminal: Whether at T the schedule's little of the data is kept, or nothing (zero; not with eps).
        parametrization: What the network predicts: the noise, the data, or the velocity between them. An
            error of the noise counts 157-fold at T, where few noiseless steps then leave outliers.
        variance: Variance of a step back: the posterior's (small), or that of the step forth (large).
        weighting: What training minimizes: the prediction's squared error, or the evidence bound.
    """
    return Diffusion(
        UNet(
            channels,
            image_size,
            widths=widths,
            blocks=blocks,
            attention=attention,
            head_width=head_width,
            groups=groups,
        ),
        schedule_of(steps, beta, terminal),
        (channels, *image_size),
        parametrization=parametrization,
        variance=variance,
        weighting=weighting,
    )


# a constructor's parameters: they are the model's options
def conditional_images(
    channels: int,
    image_size: tuple[int, int],
    num_classes: int,
    *,
    widths: tuple[int, ...] = (16, 32, 32),
    blocks: int = 1,
    attention: tuple[int, ...] = (2,),
    head_width: int = 8,
    groups: int = 8,
    steps: int = 1000,
    beta: Beta = "linear",
    terminal: Terminal = "kept",
    parametrization: Parametrization = "v",
    variance: Variance = "small",
    weighting: Weighting = "simple",
    drop: float = 0.1,
) -> Diffusion:
    """The chain of images whose U-Net is told the class, and sometimes that there is none.

    Args:
        channels: Channels of an image.
        image_size: Its height and width, in pixels; any.
        num_classes: Number of classes.
        widths: Maps of each level of the U-Net, from the full size down, each level of half the size.
        blocks: Residual blocks of a level on the way down; on the way up there is one more.
        attention: Levels, from 0, that have attention.
        head_width: Channels of a head of the attention.
        groups: Groups of the normalizations, a divisor of each width.
        steps: T, steps of the chain.
        beta: Whether the chain's variances rise evenly, or with a squared cosine.
        terminal: Whether at T the schedule's little of the data is kept, or nothing (zero; not with eps).
        parametrization: What the network predicts: the noise, the data, or the velocity between them. An
            error of the noise counts 157-fold at T, where few noiseless steps then leave outliers.
        variance: Variance of a step back: the posterior's (small), or that of the step forth (large).
        weighting: What training minimizes: the prediction's squared error, or the evidence bound.
        drop: Probability with which a class is kept from the network in training.
    """
    return Diffusion(
        UNet(
            channels,
            image_size,
            num_classes=num_classes,
            widths=widths,
            blocks=blocks,
            attention=attention,
            head_width=head_width,
            groups=groups,
        ),
        schedule_of(steps, beta, terminal),
        (channels, *image_size),
        num_classes=num_classes,
        parametrization=parametrization,
        variance=variance,
        weighting=weighting,
        drop=drop,
    )
