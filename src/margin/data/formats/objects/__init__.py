"""Datasets, loaders and streams of PyTorch."""

from margin.core.catalog import Format

FORMATS = (
    Format(
        name="stream",
        reader="margin.data.formats.objects.streams:read_stream",
        known="margin.data.source:is_stream",
    ),
    Format(
        name="dataset",
        reader="margin.data.formats.objects.datasets:read_dataset",
        encoder="margin.data.formats.objects.datasets:encode_dataset",
        known="margin.data.source:is_dataset",
    ),
)
