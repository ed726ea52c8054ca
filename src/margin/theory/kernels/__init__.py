"""Kernels of wide networks: the tangent kernel, of any network and in the limit, and the Gaussian process."""

from margin.core.catalog import Part

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("theory/empirical_ntk", "measure", ".empirical:empirical_ntk",
        "The neural tangent kernel of any network between examples: inner products of output gradients.",
        "Novak, Sohl-Dickstein and Schoenholz 2022, Sections 3.1 to 3.3", covers=("ntk.kernel",)),
    Part("theory/linearized_network", "function", ".regression:Linearized",
        "The first-order Taylor polynomial of a network in its weights, as a module.",
        "Lee et al. 2019, Section 2.2", covers=("ntk.linearised",)),
    Part("theory/kernel_regression", "algorithm", ".regression:kernel_regression",
        "Kernel regression from a network's own start, with or without ridge.",
        "Jacot, Gabriel and Hongler 2018, Section 5", covers=("ntk.kernel_regression",)),
    Part("theory/gradient_flow", "function", ".regression:gradient_flow",
        "The outputs of a linearized network at any time of gradient flow on the squared error.",
        "Lee et al. 2019, Section 2.2", covers=("ntk.dynamics",)),
    Part("theory/kernel_alignment", "measure", ".regression:kernel_alignment",
        "The centered alignment of a kernel with that of the targets.",
        "Cortes, Mohri and Rostamizadeh 2012, Section 2"),
    Part("theory/ntk", "function", ".wide:ntk",
        "The tangent kernel of an infinitely wide fully connected network; ReLU, erf, GELU in closed form.",
        "Jacot, Gabriel and Hongler 2018, Theorem 1", covers=("ntk.infinite_width",)),
    Part("theory/conv_ntk", "function", ".wide:conv_ntk",
        "The tangent kernel of a convolutional network of infinitely many channels.",
        "Arora et al. 2019, Section 4", covers=("ntk.infinite_width",)),
    Part("theory/nngp", "function", ".wide:nngp",
        "The covariance of the outputs of an infinitely wide fully connected network, as it is drawn.",
        "Lee et al. 2018, Section 2.3", covers=("gp.nngp",)),
    Part("theory/conv_nngp", "function", ".wide:conv_nngp",
        "The covariance of the outputs of a convolutional network of infinitely many channels.",
        "Novak et al. 2019, Section 2.2", covers=("gp.nngp",)),
    Part("theory/wide_network", "layer", ".networks:WideNetwork",
        "A fully connected network in the parametrization whose tangent kernel has a limit.",
        "Jacot, Gabriel and Hongler 2018, Section 2", covers=("ntk.infinite_width",)),
)
# fmt: on
