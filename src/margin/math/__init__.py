"""Functions that all may use: probability, information, inequalities, linear algebra, calculus, seeds."""

from margin.core.catalog import Part

FAMILIES = ("probability", "linear_algebra", "calculus", "convexity")

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("foundations/gaussian.density", "distribution", "torch.distributions:MultivariateNormal",
        "The Gaussian law of a vector, with its density", "Bishop 2006, Equation 2.43",
        covers=("gauss.density",)),
    Part("foundations/gaussian.entropy", "function", "torch.distributions:MultivariateNormal.entropy",
        "The differential entropy of a Gaussian vector, the most for its covariance",
        "Cover and Thomas 2006, Theorems 8.4.1 and 8.6.5", covers=("gauss.entropy",)),
    Part("foundations/gaussian.divergence", "function", "torch.distributions:kl_divergence",
        "The Kullback-Leibler divergence of two Gaussian vectors",
        "Rasmussen and Williams 2006, Equation A.23", covers=("gauss.kl",)),
    Part("foundations/cosine", "function", "torch.nn.functional:cosine_similarity",
        "The cosine of the angle of two vectors", "Horn and Johnson 2013, Section 5.1",
        covers=("geom.cosine",)),
    Part("foundations/trace", "function", "torch:trace",
        "The sum of the diagonal: linear, and the same for every cyclic order of a product",
        "Petersen and Pedersen 2012, Section 1.1", covers=("alg.trace",)),
    Part("foundations/frobenius_norm", "function", "torch.linalg:matrix_norm",
        "The root of the sum of squared entries, or of squared singular values",
        "Golub and Van Loan 2013, Section 2.3", covers=("alg.frobenius",)),
    Part("foundations/rank", "function", "torch.linalg:matrix_rank",
        "The number of singular values above rounding; of a product at most the least rank",
        "Horn and Johnson 2013, Section 0.4", covers=("alg.rank",)),
    Part("foundations/polar", "function", "torch:polar",
        "The complex number of a given length and phase, r e^(i phi)", "Rudin 1976, Chapter 8",
        covers=("alg.polar",)),
    Part("foundations/tensordot", "function", "torch:tensordot",
        "The contraction of two tensors over axes that they share", "Golub and Van Loan 2013, Section 12.4",
        covers=("tensor.contraction",)),
    *(
        Part(
            name=f"foundations/mgf.{law}",
            summary=f"The moment generating function of a {law.replace('_', ' ')} law",
            kind="function",
            target=f"margin.math.probability.generating_functions:{law}",
            reference="Casella and Berger 2002, Section 2.3",
            covers=("prob.mgf",),
        )
        for law in ("bernoulli", "binomial", "normal", "multivariate_normal", "gamma", "poisson")
    ),
)
# fmt: on
