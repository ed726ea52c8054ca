"""Models in plain torch as people bring them, each with the numbers that must come out of its audit."""
