"""Derivatives of maps of several variables, and what they approximate."""

from margin.core.catalog import Part

PETERSEN_2012 = "Petersen and Pedersen 2012, Section 2.4"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("foundations/integrate_by_parts", "fact", ".derivatives:integrate_by_parts",
        "The integral of u v' from the boundary terms and the integral of v u'", "Rudin 1976, Theorem 6.22",
        covers=("calc.identities",)),
    Part("foundations/derivatives.elementary", "table", ".derivatives:ELEMENTARY",
        "Gradient rules of affine maps, quadratic forms, softmax and pointwise functions",
        "Petersen and Pedersen 2012, Chapter 2", covers=("grad.table",)),
    Part("foundations/derivatives.vector", "table", ".derivatives:VECTOR",
        "Derivatives of vectors and scalars by a vector, in denominator layout", PETERSEN_2012,
        covers=("matcalc.vector",)),
    Part("foundations/derivatives.scalar_by_matrix", "table", ".derivatives:SCALAR_BY_MATRIX",
        "Derivatives of bilinear forms by the matrix between", PETERSEN_2012,
        covers=("matcalc.scalar_by_matrix",)),
    Part("foundations/derivatives.trace_determinant", "table", ".derivatives:TRACE_DETERMINANT",
        "Derivatives of traces and of the logarithm of a determinant",
        "Petersen and Pedersen 2012, Sections 2.1 and 2.5", covers=("matcalc.trace_det",)),
    Part("foundations/taylor", "fact", ".taylor:taylor",
        "Taylor's polynomial and its remainder as an integral", "Apostol 1967, Chapter 7",
        covers=("taylor",)),
    Part("foundations/continuous_laplacian", "function", ".taylor:laplacian",
        "The Laplacian of calculus: the sum of second derivatives, and the mean over a ball",
        "Evans 2010, Partial Differential Equations, Section 2.2", covers=("graph.laplacian_operator",)),
)
# fmt: on
