"""Which examples come when."""
