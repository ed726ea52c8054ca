"""Arrays, in memory and in files of numpy."""

from margin.core.catalog import Format

FORMATS = (
    Format(
        name="arrays",
        reader="margin.data.formats.arrays.sources:read_arrays",
        encoder="margin.data.formats.arrays.sources:encode_file",
        endings=(".npz", ".npy"),
        gives={"in_features": "vectors", "channels": "images"},
        real=True,
        numbers=True,
        record={"values?": list[list[int]], "ignored?": list[list[int]]},
        labeled="give (x, y), an array 'y' in the .npz, or NAME_y.npy beside NAME.npy",
    ),
    Format(
        name="pair",
        reader="margin.data.formats.arrays.sources:from_arrays",
        encoder="margin.data.formats.arrays.sources:encode_pair",
        known="margin.data.source:is_pair",
    ),
    Format(
        name="array",
        reader="margin.data.formats.arrays.sources:from_inputs",
        encoder="margin.data.formats.arrays.sources:encode_pair",
        known="margin.data.source:is_array",
    ),
)
