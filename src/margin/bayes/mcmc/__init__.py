"""Markov chain Monte Carlo: kernels that leave a law as it is."""

from margin.core.catalog import Part

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("bayes/detailed_balance", "test", ".chains:imbalance",
        "How far a finite chain is from detailed balance with a law: max |q(a) P(b|a) - q(b) P(a|b)|",
        "Levin and Peres 2017, Proposition 1.20", covers=("mcmc.detailed_balance",)),
    Part("bayes/metropolis_hastings", "algorithm", ".chains:metropolis_hastings",
        "The transition matrix of Metropolis and Hastings on a finite state space, rejections included",
        "Hastings 1970, Section 2", covers=("mcmc.metropolis_hastings",)),
    Part("bayes/hamiltonian", "algorithm", ".chains:hamiltonian",
        "Hamiltonian Monte Carlo: leapfrog trajectories, accepted by the change of energy",
        "Neal 2011, Section 3", covers=("mcmc.hmc",)),
    Part("bayes/langevin", "algorithm", ".chains:underdamped_langevin",
        "Underdamped Langevin dynamics (SGHMC): momentum with friction and its noise",
        "Chen, Fox and Guestrin 2014, Equation 15", covers=("mcmc.langevin",)),
    Part("bayes/sgld", "algorithm", ".chains:overdamped_langevin",
        "Overdamped Langevin dynamics (SGLD): gradient steps with noise of variance the step size",
        "Welling and Teh 2011, Equation 4", covers=("mcmc.sgld",)),
)
# fmt: on
