"""Hidden classes, factors, features and units."""

from margin.core.catalog import KNOWN, TRAINING, Claim, Cost, Entry, Need, Part
from margin.generative import UNDECAYED

MIXTURE = Need("a mixture learned by EM", model="margin.generative.latent.mixture:GaussianMixture")
NMF = Need("a nonnegative factorization", model="margin.generative.latent.nmf:NMF")

SMALL_RBM = Need(
    "a Boltzmann machine with a layer of at most 20 bits",
    "margin.generative.latent.claims:is_small_rbm",
    of="model",
)

TINY_RBM = Need(
    "a Boltzmann machine of at most 14 visible bits",
    "margin.generative.latent.claims:is_tiny_rbm",
    of="model",
)

LINEAR_GPLVM = Need(
    "a trained GPLVM with the linear kernel", "margin.generative.latent.claims:is_linear_gplvm", of="model"
)

LEE_2001 = "Lee and Seung 2001, Theorems 1 and 2"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("generative/mixture",
        ".mixture:GaussianMixture", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:moons",
        "Gaussian mixture by expectation-maximization, with a variance floor",
        "Dempster, Laird and Rubin 1977, Section 4.3; Bishop 2006, Section 9.2.2",
        objective="margin.engine.objectives:negative_log_density",
        step=".mixture:expectation_maximization", optimizers=(), parallel=False, whole=True,
        defaults={"epochs": 100, "batch_size": "all", "until": {"gain": 1e-6}}),
    Entry("generative/nmf", ".nmf:NMF", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:images",
        "Nonnegative matrix factorization by multiplicative updates", LEE_2001,
        objective=".nmf:divergence_of", step=".nmf:multiplicative_updates", optimizers=(), parallel=False,
        whole=True, defaults={"epochs": 40, "batch_size": "all", "scale": "none", "until": {"gain": 1e-5}},
        covers=("latent.nmf",)),
    Entry("generative/rbm", ".rbm:RBM", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:images",
        "Restricted Boltzmann machine of bits, by contrastive divergence",
        "Hinton 2002, Section 5; Tieleman 2008, Section 2",
        objective=".rbm:pseudo_likelihood",
        step=".rbm:contrastive_divergence",
        defaults={**UNDECAYED, "lr": 1e-2, "scale": "unit"}, covers=("latent.rbm",)),
    Entry("generative/gplvm",
        ".gplvm:GPLVM", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "Gaussian-process latent-variable model: maximum-likelihood codes",
        "Lawrence 2005, Section 3", objective="margin.engine.objectives:negative_log_density",
        step=".gplvm:codes_by_descent", parallel=False, whole=True, weighted=False,
        defaults={**UNDECAYED, "epochs": 300, "batch_size": "all", "lr": 2e-2}, covers=("latent.gplvm",)),
)

PARTS: tuple[Part, ...] = (
    Part("generative/nonnegative_update", "function", ".nmf:updated",
        "One multiplicative update of codes, or of parts: no row's divergence grows", LEE_2001,
        covers=("latent.nmf",)),
    Part("generative/taxonomy", "function", ".families:taxonomy",
        "Taxonomy of generative models: density explicit and tractable, by a bound, or implicit",
        "Goodfellow 2016, Section 2.3 and Figure 9", covers=("gen.taxonomy",)),
    Part("generative/family", "function", ".families:fit",
        "Nine latent-variable models by name, each fitted as X = f(Z B)", "Murphy 2023, Chapter 28",
        covers=("latent.family",)),
    Part("generative/bp_means", "function", ".exchangeable:bp_means",
        "BP-means: binary features of rows, as many as a penalty allows",
        "Broderick, Kulis and Jordan 2013, Algorithm 1", covers=("latent.family",)),
    Part("generative/chinese_restaurant", "function", ".exchangeable:seats",
        "Chinese restaurant process: random partitions of any number of parts", "Aldous 1985, Section 11",
        covers=("latent.crp",)),
    Part("generative/chinese_restaurant.probability", "function", ".exchangeable:partition_log_prob",
        "Chinese restaurant process: the probability of a partition, a function of its sizes",
        "Antoniak 1974, Proposition 3",
        covers=("latent.crp",)),
    Part("generative/indian_buffet", "function", ".exchangeable:dishes",
        "Indian buffet process: random binary matrices of any number of columns",
        "Griffiths and Ghahramani 2011, Section 4.4", covers=("latent.ibp",)),
    Part("generative/indian_buffet.probability", "function", ".exchangeable:matrix_log_prob",
        "Indian buffet process: the probability of a binary matrix, exchangeable in its rows",
        "Griffiths and Ghahramani 2011, Equation 14", covers=("latent.ibp",)),
    Part("generative/polya_urn", "fact", ".exchangeable:urn_log_prob",
        "Polya urn: exchangeable bits, a mixture of coins (de Finetti)",
        "Blackwell and MacQueen 1973, Section 2",
        covers=("latent.marginal",)),
    Part("generative/without_replacement", "fact", ".exchangeable:without_replacement",
        "Draws without replacement: exchangeable, of negative covariance, so no mixture of coins",
        "Diaconis and Freedman 1980, Section 1", covers=("latent.marginal",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/mixture.ascent", ".claims:ascent", ".claims:mixture_demo",
        "EM ascent: does one more iteration leave the training examples no less likely?",
        "Dempster, Laird and Rubin 1977, Theorem 1", by_name=KNOWN, needs=(MIXTURE, TRAINING),
        cost=Cost(3, "train")),
    Claim("generative/nmf.descent", ".claims:descent", ".claims:nmf_demo",
        "Does one more update of codes or parts never raise the divergence?", LEE_2001, needs=(NMF, TRAINING),
        cost=Cost(2, "train"), by_name=KNOWN, covers=("latent.nmf",)),
    Claim("generative/rbm.total", ".claims:total", ".claims:rbm_demo",
        "Do the probabilities of all rows of bits sum to 1?", "Smolensky 1986, Section 2", needs=(TINY_RBM,),
        cost=Cost(limit=1), by_name=KNOWN, covers=("latent.rbm",)),
    Claim("generative/rbm.likelihood", ".claims:likelihood", ".claims:rbm_demo",
        "Exact log-likelihood of held-out bits", "Salakhutdinov and Murray 2008, Section 5",
        needs=(SMALL_RBM,), cost=Cost(3), covers=("latent.rbm",)),
    Claim("generative/gplvm.closed_form", ".claims:closed_form", ".claims:gplvm_demo",
        "Are no codes more likely than those of dual probabilistic PCA?", "Lawrence 2005, Section 2.2",
        by_name=KNOWN, needs=(LINEAR_GPLVM,), cost=Cost(limit=1), covers=("latent.gplvm",)),
)
# fmt: on
