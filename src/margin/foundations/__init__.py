"""Functions that all may use: probability, information, algebra, seeds."""
