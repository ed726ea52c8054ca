"""What the networks share: forms for small and large images, normalized convolutions, first weights."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

Images = Float[Tensor, "batch channels height width"]
Maps = Float[Tensor, "batch maps rows columns"]
Stem = Literal["auto", "large", "small"]

SMALL = 64
"""Pixels of the shorter side up to which an image is small: its first layers keep more of its size."""


def is_small(stem: Stem, image_size: tuple[int, int]) -> bool:
    """Whether a network has its form for small images: as it is named, or by the shorter side.

    Args:
        stem: The form, or ``auto``.
        image_size: Rows and columns.
    """
    return stem == "small" or (stem == "auto" and min(image_size) <= SMALL)


def check_size(image_size: tuple[int, int], least: int, remedy: str) -> None:
    """Refuse images that a network would pool away.

    Args:
        image_size: Rows and columns.
        least: Those that it needs.
        remedy: What takes smaller ones.

    Raises:
        ValueError: They are fewer.
    """
    if min(image_size) < least:
        rows, columns = image_size
        more = f"; {remedy}" if remedy else ""
        raise ValueError(f"images must have {least} x {least} pixels or more: got {rows} x {columns}{more}")


def check_least(*counts: tuple[str, int | None]) -> None:
    """Refuse options that count maps or units where one is less than 1; None is the form's own.

    Raises:
        ValueError: One is; the message names it.
    """
    for name, count in counts:
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1: got {count}")


def conv(fan_in: int, fan_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, which a normalization follows; padded so that stride 1 keeps the size."""
    return nn.Conv2d(fan_in, fan_out, size, stride, size // 2, bias=False)


def normalized(fan_in: int, fan_out: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution, batch normalization and ReLU."""
    return nn.Sequential(conv(fan_in, fan_out, size, stride), nn.BatchNorm2d(fan_out, eps=1e-3), nn.ReLU())


def he_initialize(model: nn.Module) -> None:
    """Draw convolutions with variance 2 / (k^2 fan_out), so that ReLU keeps the mean square of gradients.

    Reference: He, Zhang, Ren and Sun 2015, "Delving deep into rectifiers", Equation 14.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
