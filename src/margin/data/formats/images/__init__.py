"""Images in folders and in IDX files."""

from typing import Literal

from margin.core.catalog import Format

IMAGES = ("images", "image", "imgs", "img")
MASKS = ("masks", "mask", "labels", "label", "annotations")
"""What the folders of images and of masks are called."""

FORMATS = (
    Format(
        name="idx",
        reader="margin.data.formats.arrays.idx:read_images",
        encoder="margin.data.formats.arrays.idx:encode_idx",
        endings=(".idx",),
        holds=("*ubyte*",),
    ),
    Format(
        name="masks",
        reader="margin.data.formats.images.masks:read_masks",
        encoder="margin.data.formats.images.masks:encode_masks",
        prefix=True,
        holds=tuple(
            f"{place}{images} + {place}{masks}"
            for place in ("", "train/")
            for images in IMAGES
            for masks in MASKS
        ),
        files="margin.data.formats.images.masks:mask_images",
        real=True,
        numbers=True,
        record={
            "pixels": Literal["bytes"],
            "resize": int | list[int] | None,
            "crop": list[int] | None,
            "depth?": int,
            "values": list[list[int]],
            "ignored": list[list[int]],
        },
    ),
    Format(
        name="image",
        encoder="margin.data.formats.images.folders:encode_images",
        refusal="training needs a folder of images: got one image",
        endings=(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"),
        files="margin.data.formats.images.folders:image_files",
    ),
    Format(
        name="folder",
        reader="margin.data.formats.images.folders:read_folder",
        encoder="margin.data.formats.images.folders:encode_images",
        files="margin.data.formats.images.folders:image_files",
    ),
    Format(
        name="images",
        gives={"in_features": "vectors", "channels": "images"},
        real=True,
        numbers=True,
        labeled="put its images into class folders, FOLDER/<class>/<image>",
        record={
            "pixels": Literal["bytes"],
            "resize?": list[int] | None,
            "crop?": list[int] | None,
            "depth?": int,
        },
    ),
)
