"""Posteriors: Gaussian processes, Laplace's approximation, Markov chains, ensembles."""

FAMILIES = ("gp", "linear", "ensembles", "laplace", "mcmc")
