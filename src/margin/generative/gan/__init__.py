"""Generators that a critic judges."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part

ADVERSARIAL = {
    "max_steps": 10_000,
    "batch_size": 128,
    "optimizer": "Adam",
    "optimizer_options": {"betas": [0.5, 0.999]},
    "lr": 1e-3,
    "average": 0.99,
    "evaluate_every": 500,
}
"""The players have no common loss that could end a training; little momentum, or they circle; the average is
of the last hundred steps."""

ADVERSARIAL_IMAGES = {**ADVERSARIAL, "batch_size": 64, "lr": 2e-4, "scale": "symmetric"}
"""A generator of images ends in a hyperbolic tangent."""

ADVERSARY = Need("a generator with a critic", "margin.generative.gan.claims:is_adversarial", of="model")

ITS_CLASSES = Need(
    "class labels, as the generator has classes", "margin.generative.gan.claims:has_its_classes"
)

GOODFELLOW_2014 = "Goodfellow et al. 2014, Theorem 1"
GENERATOR_LOSS = "Goodfellow et al. 2014, Section 3"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("generative/gan", ".model:gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:moons",
        "Generative adversarial network (GAN) of vectors", "Goodfellow et al. 2014, Algorithm 1",
        step=".steps:rounds", optimizers=("generator", "critic"), defaults=ADVERSARIAL,
        covers=("gan.objective", "gan.nonsaturating", "gan.training", "gan.extragradient", "implicit.model")),
    Entry("generative/wgan",
        ".model:gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:moons",
        "Wasserstein GAN of vectors, by gradient penalty or weight clipping",
        "Arjovsky, Chintala and Bottou 2017, Algorithm 1; Gulrajani et al. 2017, Algorithm 1",
        step=".steps:wasserstein_rounds", optimizers=("generator", "critic"), defaults=ADVERSARIAL,
        covers=("gan.wasserstein", "gan.wgan_gp")),
    Entry("generative/conditional_gan",
        ".model:conditional_gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:moons",
        "Conditional generative adversarial network of vectors: both players read the class",
        "Mirza and Osindero 2014, Section 3.2", step=".steps:rounds", optimizers=("generator", "critic"),
        defaults=ADVERSARIAL, covers=("gan.objective", "gan.nonsaturating", "gan.training")),
    Entry("generative/conv_gan",
        ".model:conv_gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:images",
        "Convolutional generative adversarial network (DCGAN) of images of any size",
        "Radford, Metz and Chintala 2016, Section 3", step=".steps:rounds",
        optimizers=("generator", "critic"), defaults=ADVERSARIAL_IMAGES,
        covers=("gan.objective", "gan.nonsaturating", "gan.training")),
    Entry("generative/conditional_conv_gan",
        ".model:conditional_conv_gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:images",
        "Conditional convolutional generative adversarial network, with a projection critic",
        "Radford, Metz and Chintala 2016, Section 3; Miyato and Koyama 2018, Equation 3",
        step=".steps:rounds", optimizers=("generator", "critic"), defaults=ADVERSARIAL_IMAGES,
        covers=("gan.objective", "gan.nonsaturating", "gan.training")),
)

PARTS: tuple[Part, ...] = (
    Part("generative/gan.value", "function", ".game:optimal_value",
        "Value of the adversarial game at the optimal discriminator, -log 4 + 2 JS",
        GOODFELLOW_2014, covers=("gan.objective", "gan.optimal_discriminator")),
    Part("generative/gan.generator_loss", "loss", ".game:generator_loss",
        "Generator loss: log(1 - D), -log D (non-saturating), or the Wasserstein critic's", GENERATOR_LOSS,
        covers=("gan.nonsaturating",)),
    Part("generative/gan.gradient_penalty", "loss", ".game:gradient_penalty",
        "Gradient penalty: squared excess of the critic's gradient norm, per sample",
        "Gulrajani et al. 2017, Equation 3", covers=("gan.wgan_gp",)),
    Part("generative/extragradient", "function", ".game:extragradient",
        "Extragradient step of a game: along the gradients at an extrapolated point",
        "Gidel, Berard, Vignoud, Vincent and Lacoste-Julien 2019, Section 3", covers=("gan.extragradient",)),
    Part("generative/optimistic", "function", ".game:optimistic",
        "Optimistic gradient step of a game: twice the gradient less the previous one",
        "Daskalakis, Ilyas, Syrgkanis and Zeng 2018, Section 2", covers=("gan.extragradient",)),
    Part("generative/minibatch_discrimination", "layer", ".players:MinibatchDiscrimination",
        "Minibatch discrimination: closeness to the batch's others, which reveals mode collapse",
        "Salimans et al. 2016, Section 3.2", covers=("gan.mode_collapse",)),
    Part("generative/feature_matching", "loss", ".game:feature_matching",
        "Feature matching: squared distance of a critic's mean features of data and samples",
        "Salimans et al. 2016, Section 3.1", covers=("gan.mode_collapse",)),
    Part("generative/implicit", "layer", ".players:Implicit",
        "Implicit model: noise pushed through a network, known by its samples",
        "Mohamed and Lakshminarayanan 2016, Section 2", covers=("implicit.model",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/gan.divergence", ".claims:divergence", ".claims:demo",
        "Jensen-Shannon divergence of generator and data: the critic's lower bound",
        GOODFELLOW_2014, needs=(ADVERSARY, ITS_CLASSES), cost=Cost(passes=2, limit=8192),
        covers=("gan.objective", "gan.optimal_discriminator", "gan.js"), figure=".figures:critics"),
    Claim("generative/gan.distance", ".claims:distance", ".claims:demo",
        "Wasserstein distance: is the critic's gap over its slope below that of examples and samples?",
        "Arjovsky, Chintala and Bottou 2017, Equation 2; Gulrajani et al. 2017, Proposition 1",
        needs=(ADVERSARY, ITS_CLASSES), cost=Cost(passes=30, limit=512),
        covers=("gan.wasserstein", "gan.wgan_gp")),
    Claim("generative/gan.saturation", ".claims:saturation", ".claims:demo",
        "Does the minimax objective pull at each sample by the odds D / (1 - D) of the other's pull?",
        GENERATOR_LOSS, needs=(ADVERSARY, ITS_CLASSES), cost=Cost(passes=8, limit=64), by_name=KNOWN,
        covers=("gan.nonsaturating",)),
)
# fmt: on
