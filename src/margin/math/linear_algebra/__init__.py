"""Matrices, norms, contractions, layouts of arrays."""

from margin.core.catalog import Part

MAGNUS_2019 = "Magnus and Neudecker 2019, Chapter 5"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("foundations/norm_chain", "fact", ".norms:norm_chain",
        "Five norms of a vector, each at most the next", "Golub and Van Loan 2013, Section 2.2.2",
        covers=("norms.chain",)),
    Part("foundations/complete_square", "fact", ".matrices:complete_square",
        "Center and constant of a quadratic function with a symmetric invertible matrix",
        "Bishop 2006, Equation 2.71", covers=("alg.complete_square",)),
    Part("foundations/solve_low_rank", "function", ".matrices:solve_low_rank",
        "The solution of a diagonal plus low-rank system, by Woodbury's identity",
        "Woodbury 1950; Golub and Van Loan 2013, Section 2.1.4", covers=("alg.woodbury",)),
    Part("foundations/definiteness", "test", ".matrices:definiteness",
        "Which sign a symmetric quadratic form has: (semi)definite either way, indefinite or 0",
        "Horn and Johnson 2013, Theorems 7.2.1 and 7.2.5", covers=("alg.psd",)),
    Part("foundations/least_gram_eigenvalue", "test", ".matrices:least_gram_eigenvalue",
        "A function is a kernel where no Gram matrix has a negative eigenvalue",
        "Shawe-Taylor and Cristianini 2004, Theorem 3.11", covers=("alg.kernel_psd",)),
    Part("foundations/spectral_norm", "function", ".norms:power_iteration",
        "The largest stretch of a matrix, by power iteration with a bound of its error",
        "Golub and Van Loan 2013, Section 8.2.1", covers=("linalg.spectral_norm",)),
    Part("foundations/hyperplane", "fact", ".hyperplanes:Hyperplane",
        "The set of points with one inner product, its normal form and the distance to it",
        "Hastie, Tibshirani and Friedman 2009, Section 4.5", covers=("linear.hyperplane",)),
    Part("foundations/linearity_defect", "test", ".hyperplanes:linearity_defect",
        "A map is linear where it commutes with every linear combination", "Horn and Johnson 2013, Chapter 0",
        covers=("linear.function",)),
    Part("foundations/derivative_layout", "function", ".layouts:converted",
        "A derivative in numerator layout (the Jacobian) or denominator layout (its transpose)",
        "Magnus and Neudecker 2019, Chapter 9", covers=("matcalc.layouts",)),
    Part("foundations/derivative_chain", "fact", ".layouts:chain",
        "The product of the derivatives of a chain of maps, in the order of its layout", MAGNUS_2019,
        covers=("matcalc.layouts",)),
    Part("foundations/accumulation_passes", "fact", ".layouts:accumulation_passes",
        "A full Jacobian takes a forward pass for each input or a reverse pass for each output",
        "Griewank and Walther 2008, Chapter 3", covers=("autodiff.cost",)),
    Part("foundations/contraction", "fact", ".contractions:contract",
        "A contraction over shared axes is a product of matrices after reshaping",
        "Golub and Van Loan 2013, Section 12.4", covers=("tensor.contraction",)),
    Part("foundations/tensor_chain_rule", "fact", ".contractions:chain_rule",
        "The gradient in a matrix through another: dL/dy contracted with the derivative of y", MAGNUS_2019,
        covers=("tensor.chain_rule",)),
)
# fmt: on
