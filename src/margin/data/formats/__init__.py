"""A folder a format: how its files and objects become data."""
