"""Models that generate: autoencoders, adversarial networks, flows, diffusion, latent variables."""

from margin.core.catalog import Part

FAMILIES = ("autoencoder", "gan", "flow", "diffusion", "latent", "quality")

UNDECAYED = {"epochs": 100, "lr": 1e-3, "optimizer_options": {"weight_decay": 0.0}}
"""Weights of a likelihood are not drawn to 0: that would be another objective."""

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("generative/unet", "layer", "margin.nn.unet.network:UNet",
        "U-Net of diffusion: images of any size, conditioned on time and class",
        "Ho, Jain and Abbeel 2020, Appendix B; Ronneberger, Fischer and Brox 2015, Section 2"),
    Part("generative/sliced_wasserstein",
        "measure", "margin.math.two_samples.sliced_wasserstein:sliced_wasserstein",
        "Sliced Wasserstein distance: optimal transport along random lines, exact on each",
        "Bonneel, Rabin, Peyre and Pfister 2015; Kolouri et al. 2019, Section 2"),
    Part("generative/mmd", "measure", "margin.math.two_samples.mmd:squared_mmd",
        "Squared maximum mean discrepancy (MMD) without bias, its error, a permutation test",
        "Gretton, Borgwardt, Rasch, Schoelkopf and Smola 2012, Lemma 6"),
    Part("generative/precision_recall", "measure", "margin.math.two_samples.precision_recall:overlap",
        "Precision, recall, density and coverage of a generated sample against a real one",
        "Kynkaanniemi et al. 2019, Equations 1 and 2; Naeem, Oh, Uh, Choi and Yoo 2020, Section 3"),
    Part("generative/lle", "model", "sklearn.manifold:LocallyLinearEmbedding",
        "Locally linear embedding: codes that keep how each row is a mean of its neighbors",
        "Roweis and Saul 2000, Section 1; scikit-learn", covers=("latent.manifold",)),
    Part("generative/isomap", "model", "sklearn.manifold:Isomap",
        "Isomap: codes that keep distances along a graph of neighbors",
        "Tenenbaum, de Silva and Langford 2000, Table 1; scikit-learn", covers=("latent.manifold",)),
    Part("generative/dirichlet_mixture", "model", "sklearn.mixture:BayesianGaussianMixture",
        "A mixture of Gaussians under a truncated Dirichlet process",
        "Blei and Jordan 2006, Section 3; scikit-learn", covers=("latent.family",)),
)
# fmt: on
