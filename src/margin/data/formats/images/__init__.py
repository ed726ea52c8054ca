"""Images in folders and in IDX files."""
