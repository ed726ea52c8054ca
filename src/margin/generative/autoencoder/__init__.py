"""Codes and what is restored from them, variational ones too."""

from margin.core.catalog import TRAINING, TWO_EXAMPLES, Claim, Cost, Entry, Need, Part
from margin.generative import UNDECAYED

VAE = Need("a variational autoencoder", model="margin.generative.autoencoder.vae:VAE")

LINEAR_VAE = Need(
    "a variational autoencoder with an affine Gaussian decoder",
    "margin.generative.autoencoder.claims:is_linear_vae",
    of="model",
)

CODED = Need("codes from which inputs are restored", "margin.generative.autoencoder.claims:has_codes")
RESTORES = Need(
    "a model that restores inputs from codes",
    "margin.generative.autoencoder.claims:reconstructs",
    of="model",
)

CODER = Need("an autoencoder of this area", "margin.generative.autoencoder.claims:is_coder", of="model")

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("generative/autoencoder",
        ".model:dense_autoencoder", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "Autoencoder: codes from which a decoder reconstructs the inputs, by squared error",
        "Hinton and Salakhutdinov 2006, Figure 1", objective=".model:restoration_error", defaults=UNDECAYED,
        covers=("ae.autoencoder",)),
    Entry("generative/denoising_autoencoder",
        ".model:denoising_autoencoder", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "Denoising autoencoder: codes of corrupted inputs, decoded to the clean ones",
        "Vincent, Larochelle, Lajoie, Bengio and Manzagol 2010, Section 3",
        objective=".model:restoration_error", defaults=UNDECAYED, covers=("ae.autoencoder",)),
    Entry("generative/conv_autoencoder",
        ".model:conv_autoencoder", "margin.core.tasks:CODES",
        "margin.data.sets.tiny.tables:images",
        "Convolutional autoencoder of images of any size",
        "Masci, Meier, Ciresan and Schmidhuber 2011, Section 3", objective=".model:restoration_error",
        defaults=UNDECAYED, covers=("ae.autoencoder",)),
    Entry("generative/vae",
        ".vae:dense_vae", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "Variational autoencoder: a decoder of normal codes, trained on the ELBO with an encoder",
        "Kingma and Welling 2014, Equation 10; Higgins et al. 2017, Equation 4",
        objective=".vae_bounds:negative_elbo", defaults=UNDECAYED,
        covers=("vae.model", "vae.elbo", "vae.beta")),
    Entry("generative/conv_vae",
        ".vae:conv_vae", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:images",
        "Convolutional variational autoencoder of images of any size",
        "Kingma and Welling 2014, Equation 10", objective=".vae_bounds:negative_elbo", defaults=UNDECAYED,
        covers=("vae.model", "vae.beta")),
    Entry("generative/conditional_vae",
        ".vae:conditional_vae", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:moons",
        "Conditional variational autoencoder: the decoder reads the class and the code",
        "Kingma, Rezende, Mohamed and Welling 2014, Section 2.2", objective=".vae_bounds:negative_elbo",
        defaults=UNDECAYED, covers=("vae.model",)),
)

PARTS: tuple[Part, ...] = (
    Part("generative/gaussian_kl", "loss", ".distributions:full_divergence",
        "KL divergence of a Gaussian code from the standard normal, diagonal or full",
        "Kingma and Welling 2014, Appendix B", covers=("vae.gaussian_kl",)),
    Part("generative/reparametrization", "function", ".distributions:reparametrized",
        "Reparametrization trick: a draw of a Gaussian code, differentiable by its mean and scale",
        "Kingma and Welling 2014, Section 2.4", covers=("vae.reparam",)),
    Part("generative/importance_bound", "measure", ".vae_bounds:importance_bound",
        "Importance-weighted bound (IWAE) of log p(x) by k draws of an encoder, rising with k",
        "Burda, Grosse and Salakhutdinov 2016, Equation 8", covers=("vae.elbo",)),
    Part("generative/linear_gaussian_bound", "fact", ".vae_bounds:expected_bound",
        "The ELBO of a linear Gaussian decoder and of any normal guess, in closed form",
        "Tipping and Bishop 1999, Equations 3 to 6", covers=("vae.elbo",)),
    Part("generative/slerp", "function", ".distributions:slerp",
        "Spherical linear interpolation (slerp) between two points of a latent space",
        "Shoemake 1985, Section 3.3"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/vae.gap", ".claims:gap", ".claims:vae_demo",
        "ELBO gap: how far is the ELBO below the log-likelihood, by importance weights?",
        "Burda, Grosse and Salakhutdinov 2016, Equation 8 and Theorem 1", needs=(VAE,),
        cost=Cost(passes=256, limit=100), covers=("vae.elbo",)),
    Claim("generative/vae.linear", ".claims:linear_gap", ".claims:linear_demo",
        "Where the decoder is affine: does the ELBO lack just the guess's divergence?",
        "Burda et al. 2016, Theorem 1; Tipping and Bishop 1999, Equations 3 to 6", needs=(LINEAR_VAE,),
        cost=Cost(passes=256, limit=100), covers=("vae.elbo", "vae.model")),
    Claim("generative/vae.rate_distortion", ".claims:rate_distortion", ".claims:vae_demo",
        "Rate and distortion: what does the code cost, and what is left to the decoder?",
        "Alemi et al. 2018, Section 3; Higgins et al. 2017, Equation 4", needs=(VAE,),
        cost=Cost(passes=9, limit=1000), covers=("vae.beta",)),
    Claim("generative/vae.collapse", ".claims:collapse", ".claims:vae_demo",
        "Posterior collapse: which share of the code's coordinates depends on the input?",
        "Burda, Grosse and Salakhutdinov 2016, Section 5.2", needs=(VAE,), cost=Cost(limit=1000),
        covers=("vae.model",)),
    Claim("generative/codes.reconstruction", ".claims:reconstruction", ".claims:learned_demo",
        "Reconstruction error: which share of the variance is lost in the code, compared with PCA?",
        "Hinton and Salakhutdinov 2006, Figure 2; Eckart and Young 1936, Section 3", needs=(RESTORES,),
        cost=Cost(passes=2, limit=1000), covers=("ae.autoencoder",), figure=".figures:reconstructions"),
    Claim("generative/codes.baselines", ".baselines:baselines", ".baselines:demo",
        "Baselines: how much of the error of PCA of the same width, and of a constant, does it take away?",
        "Hinton and Salakhutdinov 2006, Figure 2; Eckart and Young 1936, Section 3",
        needs=(CODED, TRAINING, TWO_EXAMPLES), cost=Cost(passes=3, limit=1000, beside=1e-6),
        covers=("ae.autoencoder",), question="right"),
    Claim("generative/codes.traversal", ".claims:traversal", ".claims:bent_demo",
        "Latent traversal: how far does each coordinate of the code move the decoded input?",
        "Kingma and Welling 2014, Figure 4; Higgins et al. 2017, Figure 1", needs=(CODER,),
        cost=Cost(passes=2, limit=1000), covers=("ae.autoencoder", "vae.model"),
        figure=".figures:traversals"),
)
# fmt: on
