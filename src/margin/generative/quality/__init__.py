"""What samples are worth: distances, coverage, memorization."""
