"""Codes and what is restored from them, variational ones too."""

from margin.core.catalog import Claim, Cost, Entry, Need, Part
from margin.generative import UNDECAYED

VAE = Need("a variational autoencoder", model="margin.generative.autoencoder.vae:VAE")

LINEAR_VAE = Need(
    "a variational autoencoder with an affine Gaussian decoder",
    "margin.generative.autoencoder.claims:is_linear_vae",
    of="model",
)

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
        "Codes from which a decoder restores the inputs with least squared error",
        "Hinton and Salakhutdinov 2006, Figure 1", objective=".model:restoration_error", defaults=UNDECAYED,
        covers=("ae.autoencoder",)),
    Entry("generative/denoising_autoencoder",
        ".model:denoising_autoencoder", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "Codes of corrupted inputs from which a decoder restores the whole ones",
        "Vincent, Larochelle, Lajoie, Bengio and Manzagol 2010, Section 3",
        objective=".model:restoration_error", defaults=UNDECAYED, covers=("ae.autoencoder",)),
    Entry("generative/conv_autoencoder",
        ".model:conv_autoencoder", "margin.core.tasks:CODES",
        "margin.data.sets.tiny.tables:images",
        "Codes of images of any size, by convolutions, and back",
        "Masci, Meier, Ciresan and Schmidhuber 2011, Section 3", objective=".model:restoration_error",
        defaults=UNDECAYED, covers=("ae.autoencoder",)),
    Entry("generative/vae",
        ".vae:dense_vae", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:values",
        "A decoder of normal codes, trained with its posterior's guess on a bound of log p(x)",
        "Kingma and Welling 2014, Equation 10; Higgins et al. 2017, Equation 4",
        objective=".vae_bounds:negative_elbo", defaults=UNDECAYED,
        covers=("vae.model", "vae.elbo", "vae.beta")),
    Entry("generative/conv_vae",
        ".vae:conv_vae", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:images",
        "A variational autoencoder of images of any size, by convolutions",
        "Kingma and Welling 2014, Equation 10", objective=".vae_bounds:negative_elbo", defaults=UNDECAYED,
        covers=("vae.model", "vae.beta")),
    Entry("generative/conditional_vae",
        ".vae:conditional_vae", "margin.core.tasks:CODES", "margin.data.sets.tiny.tables:moons",
        "A variational autoencoder whose decoder reads the class beside the code",
        "Kingma, Rezende, Mohamed and Welling 2014, Section 2.2", objective=".vae_bounds:negative_elbo",
        defaults=UNDECAYED, covers=("vae.model",)),
)

PARTS: tuple[Part, ...] = (
    Part("generative/gaussian_kl", "loss", ".distributions:full_divergence",
        "The divergence of a normal code from the standard normal, diagonal or full",
        "Kingma and Welling 2014, Appendix B", covers=("vae.gaussian_kl",)),
    Part("generative/reparametrization", "function", ".distributions:reparametrized",
        "A draw of a normal code through which a gradient passes to its mean and scale",
        "Kingma and Welling 2014, Section 2.4", covers=("vae.reparam",)),
    Part("generative/importance_bound", "measure", ".vae_bounds:importance_bound",
        "A bound of log p(x) by k weighted draws of an encoder, which rises with k",
        "Burda, Grosse and Salakhutdinov 2016, Equation 8", covers=("vae.elbo",)),
    Part("generative/linear_gaussian_bound", "fact", ".vae_bounds:expected_bound",
        "The ELBO of a linear Gaussian decoder and of any normal guess, in closed form",
        "Tipping and Bishop 1999, Equations 3 to 6", covers=("vae.elbo",)),
    Part("generative/slerp", "function", ".distributions:slerp",
        "The great circle from one point of a latent space to another", "Shoemake 1985, Section 3.3"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/vae.gap", ".claims:gap", ".claims:vae_demo",
        "How far below the log-likelihood is the ELBO, as importance weights tell?",
        "Burda, Grosse and Salakhutdinov 2016, Equation 8 and Theorem 1", needs=(VAE,),
        cost=Cost(passes=256, limit=100), covers=("vae.elbo",)),
    Claim("generative/vae.linear", ".claims:linear_gap", ".claims:linear_demo",
        "Where the decoder is affine: does the ELBO lack just the guess's divergence?",
        "Burda et al. 2016, Theorem 1; Tipping and Bishop 1999, Equations 3 to 6", needs=(LINEAR_VAE,),
        cost=Cost(passes=256, limit=100), covers=("vae.elbo", "vae.model")),
    Claim("generative/vae.rate_distortion", ".claims:rate_distortion", ".claims:vae_demo",
        "What does the code cost, and what does the decoder still have to say?",
        "Alemi et al. 2018, Section 3; Higgins et al. 2017, Equation 4", needs=(VAE,),
        cost=Cost(passes=9, limit=1000), covers=("vae.beta",)),
    Claim("generative/vae.collapse", ".claims:collapse", ".claims:vae_demo",
        "Which share of the code's coordinates says anything of the input?",
        "Burda, Grosse and Salakhutdinov 2016, Section 5.2", needs=(VAE,), cost=Cost(limit=1000),
        covers=("vae.model",)),
    Claim("generative/codes.reconstruction", ".claims:reconstruction", ".claims:demo",
        "Which share of the variance is lost on the way through the code, beside PCA's?",
        "Hinton and Salakhutdinov 2006, Figure 2; Eckart and Young 1936, Section 3", needs=(RESTORES,),
        cost=Cost(passes=2, limit=1000), covers=("ae.autoencoder",), figure=".figures:reconstructions"),
    Claim("generative/codes.traversal", ".claims:traversal", ".claims:bent_demo",
        "How far does each coordinate of the code move what is decoded?",
        "Kingma and Welling 2014, Figure 4; Higgins et al. 2017, Figure 1", needs=(CODER,),
        cost=Cost(passes=2, limit=1000), covers=("ae.autoencoder", "vae.model"),
        figure=".figures:traversals"),
)
# fmt: on
