"""Images in folders and in IDX files."""

from typing import Literal

from margin.core.catalog import Format

FORMATS = (
    Format(
        name="idx",
        reader="margin.data.formats.images.idx:read_images",
        encoder="margin.data.formats.images.idx:encode_idx",
        endings=(".idx",),
        holds=("*ubyte*",),
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
        },
    ),
)
