"""How a training moves: rates, noise, stability, shrinkage."""
