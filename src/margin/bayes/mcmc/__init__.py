"""Markov chain Monte Carlo: kernels that leave a law as it is."""

from margin.core.catalog import KNOWN, TRAINING, Claim, Cost, Entry, Need, Part

CHAINS = {"epochs": 400, "batch_size": "all", "precision": "float64", "evaluate_every": 100}
NEAL = "Neal 1996, Chapter 3; Hoffman and Gelman 2014, Section 3.2"
WELLING = "Welling and Teh 2011, Equation 4; Chen, Fox and Guestrin 2014, Equation 15"
CHAIN = Need(
    "a network whose weights were sampled by chains", model="margin.bayes.mcmc.posterior:SampledPosterior"
)
FEW = Need("at most 64 weights", "margin.bayes.mcmc.stationary:is_small")
DRAWS = Need("four draws of each chain", "margin.bayes.mcmc.claims:has_draws")

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("bayes/hmc", ".posterior:ChainClassifier", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:moons",
        "Hamiltonian Monte Carlo (HMC, NUTS): class probabilities averaged over chains of weights", NEAL,
        step=".learning:hamiltonian_sampling", optimizers=(), parallel=False, whole=True, last=True,
        defaults=CHAINS, covers=("mcmc.hmc",)),
    Entry("bayes/hmc:values", ".posterior:ChainRegressor", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:values",
        "Hamiltonian Monte Carlo (HMC, NUTS): the law of a value, averaged over chains of weights", NEAL,
        step=".learning:hamiltonian_sampling", optimizers=(), parallel=False, whole=True, last=True,
        defaults=CHAINS),
    Entry("bayes/sgld", ".posterior:ChainClassifier", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.tables:moons",
        "Stochastic gradient Langevin dynamics: chains of weights by noisy steps on batches (SGLD, SGHMC)",
        WELLING, step=".learning:langevin_sampling", optimizers=(), parallel=False, whole=True, last=True,
        defaults=CHAINS, covers=("mcmc.sgld", "mcmc.langevin")),
    Entry("bayes/sgld:values", ".posterior:ChainRegressor", "margin.core.tasks:VALUES",
        "margin.data.sets.tiny.tables:values",
        "Stochastic gradient Langevin dynamics of a regression network: the law of a value (SGLD, SGHMC)",
        WELLING, step=".learning:langevin_sampling", optimizers=(), parallel=False, whole=True, last=True,
        defaults=CHAINS),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("bayes/hmc.r_hat", ".claims:agreement", ".claims:demo",
        "R-hat: do the chains of weights agree in what they predict?", "Vehtari et al. 2021, Section 4",
        needs=(CHAIN, DRAWS), cost=Cost(100), question="trained", figure=".figures:chains"),
    Claim("bayes/hmc.effective_sample_size", ".claims:worth", ".claims:demo",
        "Effective sample size: how many independent draws are those of the chains worth?",
        "Vehtari et al. 2021, Section 4.3", needs=(CHAIN, DRAWS), cost=Cost(100), question="trained"),
    Claim("bayes/hmc.divergences", ".claims:divergences", ".claims:demo",
        "Divergences: how many Hamiltonian trajectories lost their energy?",
        "Betancourt 2017, Section 6.2", needs=(CHAIN, DRAWS), question="trained"),
    Claim("bayes/hmc.reversibility", ".claims:reversed_trajectory", ".claims:demo",
        "Is a leapfrog trajectory on this posterior reversible?", "Neal 2011, Section 2.3",
        needs=(CHAIN, TRAINING, DRAWS), by_name=KNOWN, cost=Cost(100, "train"), covers=("mcmc.hmc",)),
    Claim("bayes/hmc.volume", ".stationary:volume", ".claims:demo",
        "Does a leapfrog trajectory on this posterior keep the volume of phase space?",
        "Neal 2011, Section 2.3", needs=(CHAIN, TRAINING, FEW), by_name=KNOWN, cost=Cost(2000, "train"),
        covers=("mcmc.hmc",)),
    Claim("bayes/sgld.stationary_variance", ".stationary:overdamped", ".claims:demo",
        "SGLD: is its variance that of the posterior times 1 / (1 - step x curvature / 4)?",
        "Welling and Teh 2011, Equation 4", needs=(CHAIN, DRAWS), by_name=KNOWN, cost=Cost(0),
        covers=("mcmc.sgld",)),
    Claim("bayes/langevin.stationary_variance", ".stationary:underdamped", ".claims:demo",
        "Underdamped Langevin dynamics: is its variance that of the recursion of its moments?",
        "Chen, Fox and Guestrin 2014, Equation 15", needs=(CHAIN, DRAWS), by_name=KNOWN, cost=Cost(0),
        covers=("mcmc.langevin",)),
    Claim("bayes/hmc.detailed_balance", ".claims:balance", ".claims:demo",
        "Is the rule of Metropolis and Hastings in detailed balance, and the inverted ratio not?",
        "Hastings 1970, Section 2; Levin and Peres 2017, Proposition 1.20",
        needs=(CHAIN, TRAINING, DRAWS), by_name=KNOWN, cost=Cost(100, "train"),
        covers=("mcmc.detailed_balance", "mcmc.metropolis_hastings")),
)

PARTS: tuple[Part, ...] = (
    Part("bayes/detailed_balance", "test", ".chains:imbalance",
        "How far a finite chain is from detailed balance with a law: max |q(a) P(b|a) - q(b) P(a|b)|",
        "Levin and Peres 2017, Proposition 1.20", covers=("mcmc.detailed_balance",)),
    Part("bayes/metropolis_hastings", "algorithm", ".chains:metropolis_hastings",
        "The transition matrix of Metropolis and Hastings on a finite state space, rejections included",
        "Hastings 1970, Section 2", covers=("mcmc.metropolis_hastings",)),
    Part("bayes/hamiltonian", "algorithm", ".chains:hamiltonian",
        "Hamiltonian Monte Carlo: leapfrog trajectories, accepted by the change of energy",
        "Neal 2011, Section 3"),
    Part("bayes/no_u_turn", "algorithm", ".no_u_turn:no_u_turn",
        "The no-U-turn sampler (NUTS): Hamiltonian trajectories that double until they turn back",
        "Hoffman and Gelman 2014, Algorithm 3; Betancourt 2017, Appendix A"),
    Part("bayes/r_hat", "measure", ".diagnostics:r_hat",
        "Rank-normalized split R-hat: whether chains agree in place, spread and along themselves",
        "Vehtari et al. 2021, Sections 4.1 and 4.2"),
    Part("bayes/effective_sample_size", "measure", ".diagnostics:effective_sample_size",
        "Effective sample size: how many independent draws give a mean as precisely as the chains do",
        "Vehtari et al. 2021, Section 4.3"),
    Part("bayes/langevin", "algorithm", ".chains:underdamped_langevin",
        "Underdamped Langevin dynamics (SGHMC): momentum with friction and its noise",
        "Chen, Fox and Guestrin 2014, Equation 15"),
    Part("bayes/sgld", "algorithm", ".chains:overdamped_langevin",
        "Overdamped Langevin dynamics (SGLD): gradient steps with noise of variance the step size",
        "Welling and Teh 2011, Equation 4"),
)
# fmt: on
