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
GOODFELLOW_2014_A = "Goodfellow et al. 2014, Section 3"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("generative/gan", ".model:gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:moons",
        "A generative adversarial network of vectors", "Goodfellow et al. 2014, Algorithm 1",
        step=".steps:rounds", optimizers=("generator", "critic"), defaults=ADVERSARIAL,
        covers=("gan.objective", "gan.nonsaturating", "gan.training", "gan.extragradient", "implicit.model")),
    Entry("generative/wgan",
        ".model:gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:moons",
        "A Wasserstein GAN of vectors: the critic's slope is penalized, or its weights clipped",
        "Arjovsky, Chintala and Bottou 2017, Algorithm 1; Gulrajani et al. 2017, Algorithm 1",
        step=".steps:wasserstein_rounds", optimizers=("generator", "critic"), defaults=ADVERSARIAL,
        covers=("gan.wasserstein", "gan.wgan_gp")),
    Entry("generative/conditional_gan",
        ".model:conditional_gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:moons",
        "A generative adversarial network of vectors whose players are told the class",
        "Mirza and Osindero 2014, Section 3.2", step=".steps:rounds", optimizers=("generator", "critic"),
        defaults=ADVERSARIAL, covers=("gan.objective", "gan.nonsaturating", "gan.training")),
    Entry("generative/conv_gan",
        ".model:conv_gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:images",
        "A convolutional generative adversarial network of images of any size",
        "Radford, Metz and Chintala 2016, Section 3", step=".steps:rounds",
        optimizers=("generator", "critic"), defaults=ADVERSARIAL_IMAGES,
        covers=("gan.objective", "gan.nonsaturating", "gan.training")),
    Entry("generative/conditional_conv_gan",
        ".model:conditional_conv_gan", "margin.core.tasks:CRITIC", "margin.data.sets.tiny.tables:images",
        "A convolutional generative adversarial network whose players are told the class",
        "Radford, Metz and Chintala 2016, Section 3; Miyato and Koyama 2018, Equation 3",
        step=".steps:rounds", optimizers=("generator", "critic"), defaults=ADVERSARIAL_IMAGES,
        covers=("gan.objective", "gan.nonsaturating", "gan.training")),
)

PARTS: tuple[Part, ...] = (
    Part("generative/gan.value", "function", ".game:optimal_value",
        "The largest value of the adversarial game, -log 4 + 2 JS, and the discriminator that has it",
        GOODFELLOW_2014, covers=("gan.objective", "gan.optimal_discriminator")),
    Part("generative/gan.generator_loss", "loss", ".game:generator_loss",
        "What a generator loses: log(1 - D), -log D, or the critic's number", GOODFELLOW_2014_A,
        covers=("gan.nonsaturating",)),
    Part("generative/gan.gradient_penalty", "loss", ".game:gradient_penalty",
        "The squared excess of a critic's slope, sample by sample, to be differentiated",
        "Gulrajani et al. 2017, Equation 3", covers=("gan.wgan_gp",)),
    Part("generative/extragradient", "function", ".game:extragradient",
        "A step of a game along the gradients at where a step would lead",
        "Gidel, Berard, Vignoud, Vincent and Lacoste-Julien 2019, Section 3", covers=("gan.extragradient",)),
    Part("generative/optimistic", "function", ".game:optimistic",
        "A step of a game along twice the gradients less those of the step before",
        "Daskalakis, Ilyas, Syrgkanis and Zeng 2018, Section 2", covers=("gan.extragradient",)),
    Part("generative/minibatch_discrimination", "layer", ".players:MinibatchDiscrimination",
        "How close an example is to the others of its batch, by which a critic sees a collapse",
        "Salimans et al. 2016, Section 3.2", covers=("gan.mode_collapse",)),
    Part("generative/feature_matching", "loss", ".game:feature_matching",
        "The squared distance of a critic's mean features over data and over samples",
        "Salimans et al. 2016, Section 3.1", covers=("gan.mode_collapse",)),
    Part("generative/implicit", "layer", ".players:Implicit",
        "The law of noise pushed through a network, known by its samples",
        "Mohamed and Lakshminarayanan 2016, Section 2", covers=("implicit.model",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/gan.divergence", ".claims:divergence", ".claims:demo",
        "How far is the generator's law from the data's at least, by what its critic tells apart?",
        GOODFELLOW_2014, needs=(ADVERSARY, ITS_CLASSES), cost=Cost(passes=2, limit=8192),
        covers=("gan.objective", "gan.optimal_discriminator", "gan.js"), figure=".figures:critics"),
    Claim("generative/gan.distance", ".claims:distance", ".claims:demo",
        "Is the critic's gap over its slope below the Wasserstein distance of examples and samples?",
        "Arjovsky, Chintala and Bottou 2017, Equation 2; Gulrajani et al. 2017, Proposition 1",
        needs=(ADVERSARY, ITS_CLASSES), cost=Cost(passes=30, limit=512),
        covers=("gan.wasserstein", "gan.wgan_gp")),
    Claim("generative/gan.saturation", ".claims:saturation", ".claims:demo",
        "Does the minimax objective pull at each sample by the odds D / (1 - D) of the other's pull?",
        GOODFELLOW_2014_A, needs=(ADVERSARY, ITS_CLASSES), cost=Cost(passes=8, limit=64), by_name=KNOWN,
        covers=("gan.nonsaturating",)),
)
# fmt: on
