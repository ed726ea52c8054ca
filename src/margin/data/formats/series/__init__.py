"""Series by time."""
