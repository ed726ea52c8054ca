"""From a sequence to another."""
