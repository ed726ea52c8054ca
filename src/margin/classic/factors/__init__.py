"""Gaussian factors of the features: principal components, probabilistic ones, factor analysis."""

from margin.classic import SOLVE
from margin.core.catalog import KNOWN, TRAINING, Claim, Entry, Need

CODER = Need(
    "a PCA or a linear autoencoder", "margin.classic.factors.pca_claims:has_linear_codes", of="model"
)

AUTOENCODER = Need("a linear autoencoder", model="margin.classic.factors.pca:LinearAutoencoder")

PPCA = Need("a probabilistic PCA", model="margin.classic.factors.ppca:PPCA")
AT_ONCE = {"epochs": 1, "batch_size": "all"}

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("classic/pca", ".pca:PCA", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "The projection onto the directions of largest variance, by an exact solve",
        "Pearson 1901; Hotelling 1933, Section 4",
        objective="margin.engine.objectives:reconstruction_error", step=".pca:principal_components",
        optimizers=(), parallel=False, whole=True, defaults=AT_ONCE, covers=("pca",)),
    Entry("classic/linear_autoencoder",
        ".pca:LinearAutoencoder", "margin.core.tasks:CODES",
        "margin.data.sets.tiny.tables:values",
        "Linear codes and reconstructions of least squared error, by descent",
        "Bourlard and Kamp 1988, Section 3; Baldi and Hornik 1989, Section 2",
        objective="margin.engine.objectives:reconstruction_error",
        defaults={"epochs": 300, "lr": 0.01, "schedule": "cosine",
                  "optimizer_options": {"weight_decay": 0.0}},
        covers=("linear_autoencoder",)),
    Entry("classic/ppca", ".ppca:PPCA", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "A Gaussian of a few directions and even noise, of largest likelihood in closed form",
        "Tipping and Bishop 1999, Equations 7 and 8",
        objective="margin.engine.objectives:negative_log_density", step=".ppca_learning:maximum_likelihood",
        optimizers=(), parallel=False, whole=True, defaults=AT_ONCE, covers=("ppca",)),
    Entry("classic/ppca_em", ".ppca:PPCA", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "A Gaussian of a few directions and even noise, by iterations of EM",
        "Tipping and Bishop 1999, Equations 29 and 30",
        objective="margin.engine.objectives:negative_log_density",
        step=".ppca_learning:expectation_maximization", optimizers=(), parallel=False, whole=True,
        defaults={"epochs": 1000, "batch_size": "all", "until": {"gain": 1e-9}}, covers=("ppca",)),
    Entry("classic/factor_analysis",
        ".factor_analysis:FactorAnalysis", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "A Gaussian of a few directions and a noise of its own in each feature",
        "Lawley 1940, Equation 1; Bishop 2006, Equation 12.64",
        objective="margin.engine.objectives:negative_log_density", step=".factor_analysis:factors",
        optimizers=(), parallel=False, whole=True, weighted=False, defaults=AT_ONCE,
        covers=("factor_analysis",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("classic/pca.eckart_young", ".pca_claims:eckart_young", ".pca_claims:pca_demo",
        "Is no map of the codes' rank better at reconstructing the training examples?",
        "Eckart and Young 1936; Mirsky 1960, Theorem 2", needs=(CODER, TRAINING), cost=SOLVE,
        covers=("eckart_young", "pca"), figure=".figures:components"),
    Claim("classic/linear_autoencoder.subspace", ".pca_claims:subspace", ".pca_claims:autoencoder_demo",
        "How far is the decoder's subspace from that of PCA, where training tends?",
        "Baldi and Hornik 1989, Section 2", needs=(AUTOENCODER, TRAINING), cost=SOLVE,
        covers=("linear_autoencoder",), figure=".figures:components"),
    Claim("classic/ppca.likelihood", ".pca_claims:likelihood", ".pca_claims:ppca_demo",
        "Is no probabilistic PCA of as many components more likely?",
        "Tipping and Bishop 1999, Equations 7 and 8, Appendix A", by_name=KNOWN,
        needs=(PPCA, TRAINING), cost=SOLVE,
        covers=("ppca",), figure=".figures:components"),
)
# fmt: on
