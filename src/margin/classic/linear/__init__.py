"""Affine maps, by a solve or by descent."""
