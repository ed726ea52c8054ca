"""Hidden classes, factors, features and units."""

from margin.core.catalog import KNOWN, TRAINING, Claim, Cost, Entry, Need, Part
from margin.generative import UNDECAYED

MIXTURE = Need("a mixture learned by EM", model="margin.generative.latent.mixture:GaussianMixture")
NMF = Need("a nonnegative factorization", model="margin.generative.latent.nmf:NMF")

SMALL_RBM = Need(
    "a Boltzmann machine with a layer of 20 bits at most",
    "margin.generative.latent.claims:is_small_rbm",
    of="model",
)

TINY_RBM = Need(
    "a Boltzmann machine of 14 seen bits at most", "margin.generative.latent.claims:is_tiny_rbm", of="model"
)

LINEAR_GPLVM = Need(
    "a trained GPLVM with the linear kernel", "margin.generative.latent.claims:is_linear_gplvm", of="model"
)

LEE_2001 = "Lee and Seung 2001, Theorems 1 and 2"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("generative/mixture",
        ".mixture:GaussianMixture", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:moons",
        "A mixture of Gaussians by EM, no variance below a floor",
        "Dempster, Laird and Rubin 1977, Section 4.3; Bishop 2006, Section 9.2.2",
        objective="margin.engine.objectives:negative_log_density",
        step=".mixture_learning:expectation_maximization", optimizers=(), parallel=False, whole=True,
        defaults={"epochs": 100, "batch_size": "all", "until": {"gain": 1e-6}}),
    Entry("generative/nmf", ".nmf:NMF", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:images",
        "Rows as sums of nonnegative parts, by multiplicative updates", LEE_2001,
        objective=".nmf:divergence_of", step=".nmf:multiplicative_updates", optimizers=(), parallel=False,
        whole=True, defaults={"epochs": 40, "batch_size": "all", "scale": "none", "until": {"gain": 1e-5}},
        covers=("latent.nmf",)),
    Entry("generative/rbm", ".rbm:RBM", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:images",
        "A restricted Boltzmann machine of bits, by contrastive divergence",
        "Hinton 2002, Section 5; Tieleman 2008, Section 2",
        objective=".contrastive_divergence:pseudo_likelihood",
        step=".contrastive_divergence:contrastive_divergence",
        defaults={**UNDECAYED, "lr": 1e-2, "scale": "unit"}, covers=("latent.rbm",)),
    Entry("generative/gplvm",
        ".gplvm:GPLVM", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "Features that are Gaussian processes of unseen codes, the codes of largest likelihood",
        "Lawrence 2005, Section 3", objective="margin.engine.objectives:negative_log_density",
        step=".gplvm:codes_by_descent", parallel=False, whole=True, weighted=False,
        defaults={**UNDECAYED, "epochs": 300, "batch_size": "all", "lr": 2e-2}, covers=("latent.gplvm",)),
)

PARTS: tuple[Part, ...] = (
    Part("generative/nonnegative_update", "function", ".nmf:updated",
        "One multiplicative update of codes, or of parts: no row's divergence grows", LEE_2001,
        covers=("latent.nmf",)),
    Part("generative/taxonomy", "function", ".taxonomy:taxonomy",
        "Where each model stands: density explicit and tractable, by a bound, or implicit",
        "Goodfellow 2016, Section 2.3 and Figure 9", covers=("gen.taxonomy",)),
    Part("generative/family", "function", ".families:fit",
        "Nine latent-variable models by name, each fitted as X = f(Z B)", "Murphy 2023, Chapter 28",
        covers=("latent.family",)),
    Part("generative/bp_means", "function", ".bp_means:bp_means",
        "Binary features of rows, as many as a penalty allows",
        "Broderick, Kulis and Jordan 2013, Algorithm 1", covers=("latent.family",)),
    Part("generative/chinese_restaurant", "function", ".crp:seats",
        "Draws of partitions without a bound on their number of parts", "Aldous 1985, Section 11",
        covers=("latent.crp",)),
    Part("generative/chinese_restaurant.probability", "function", ".crp:partition_log_prob",
        "The probability of a partition: of its sizes alone", "Antoniak 1974, Proposition 3",
        covers=("latent.crp",)),
    Part("generative/indian_buffet", "function", ".ibp:dishes",
        "Draws of binary matrices without a bound on their columns",
        "Griffiths and Ghahramani 2011, Section 4.4", covers=("latent.ibp",)),
    Part("generative/indian_buffet.probability", "function", ".ibp:matrix_log_prob",
        "The probability of a binary matrix, whatever the order of its rows",
        "Griffiths and Ghahramani 2011, Equation 14", covers=("latent.ibp",)),
    Part("generative/polya_urn", "fact", ".exchangeable:urn_log_prob",
        "Exchangeable bits: an urn that is a mixture of coins", "Blackwell and MacQueen 1973, Section 2",
        covers=("latent.marginal",)),
    Part("generative/without_replacement", "fact", ".exchangeable:without_replacement",
        "Two exchangeable draws that are no mixture: their covariance is below 0",
        "Diaconis and Freedman 1980, Section 1", covers=("latent.marginal",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/mixture.ascent", ".claims:ascent", ".claims:mixture_demo",
        "Does one more iteration of EM leave the training examples no less likely?",
        "Dempster, Laird and Rubin 1977, Theorem 1", needs=(MIXTURE, TRAINING), cost=Cost(3, "train")),
    Claim("generative/nmf.descent", ".claims:descent", ".claims:nmf_demo",
        "Does one more update of codes or parts never raise the divergence?", LEE_2001, needs=(NMF, TRAINING),
        cost=Cost(2, "train"), by_name=KNOWN, covers=("latent.nmf",)),
    Claim("generative/rbm.total", ".claims:total", ".claims:rbm_demo",
        "Do the probabilities of all rows of bits sum to 1?", "Smolensky 1986, Section 2", needs=(TINY_RBM,),
        cost=Cost(limit=1), by_name=KNOWN, covers=("latent.rbm",)),
    Claim("generative/rbm.likelihood", ".claims:likelihood", ".claims:rbm_demo",
        "How likely are held-out bits, exactly?", "Salakhutdinov and Murray 2008, Section 5",
        needs=(SMALL_RBM,), cost=Cost(3), covers=("latent.rbm",)),
    Claim("generative/gplvm.closed_form", ".claims:closed_form", ".claims:gplvm_demo",
        "Are no codes more likely than those of dual probabilistic PCA?", "Lawrence 2005, Section 2.2",
        needs=(LINEAR_GPLVM,), cost=Cost(limit=1), covers=("latent.gplvm",)),
)
# fmt: on
