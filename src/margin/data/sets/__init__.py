"""The sets by name."""
