"""A U-Net conditioned on time."""
