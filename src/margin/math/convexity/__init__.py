"""Convex functions, Lipschitz constants, multipliers, landscapes to descend on."""

from margin.core.catalog import Part

RUDIN_1976 = "Rudin 1976, Theorem 5.10"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("foundations/convexity", "measure", ".functions:worst_segment",
        "The random segment of a box on which Jensen's inequality fails most, if it fails",
        "Boyd and Vandenberghe 2004, Equation 3.1", covers=("opt.convexity",)),
    Part("foundations/first_order_convexity", "measure", ".functions:first_order_gap",
        "The value above the tangent, and above its parabola for strong convexity",
        "Boyd and Vandenberghe 2004, Equations 3.2 and 9.8",
        covers=("opt.convexity", "opt.strong_convexity")),
    Part("foundations/secant_curvature", "measure", ".functions:secant_curvature",
        "The monotonicity of the gradient between two points, from mu to L",
        "Nesterov 2018, Sections 2.1.1 and 2.1.3", covers=("opt.convexity", "opt.strong_convexity")),
    Part("foundations/curvatures", "measure", ".functions:curvatures",
        "The eigenvalues of a function's Hessian at points: none below 0 where it is convex",
        "Boyd and Vandenberghe 2004, Section 3.1.4", covers=("opt.convexity",)),
    Part("foundations/strong_convexity", "measure", ".functions:strong_convexity",
        "The least eigenvalue of the Hessian over points, at least the constant mu",
        "Boyd and Vandenberghe 2004, Equation 9.7", covers=("opt.strong_convexity",)),
    Part("foundations/lipschitz", "measure", ".lipschitz:lipschitz_below",
        "The largest secant over pairs of points: a lower bound of the Lipschitz constant", RUDIN_1976,
        covers=("opt.lipschitz",)),
    Part("foundations/smoothness", "measure", ".lipschitz:smoothness_below",
        "The largest secant of the gradient: a lower bound of the constant of smoothness",
        "Nesterov 2018, Section 1.2.2", covers=("opt.smoothness",)),
    Part("foundations/smoothness_gap", "fact", ".lipschitz:smoothness_gap",
        "The parabola of curvature L on the tangent, less the function: the descent inequality",
        "Nesterov 2018, Lemma 1.2.3", covers=("opt.smoothness",)),
    Part("foundations/lipschitz_constants", "table", ".lipschitz:KNOWN",
        "Functions with their least constants in closed form, infinite where there is none", RUDIN_1976,
        covers=("analysis.lipschitz_facts",)),
    Part("foundations/lagrangian", "function", ".lagrangian:stationary_point",
        "A stationary point under equality constraints, with the constraints' prices",
        "Nocedal and Wright 2006, Theorem 12.1 and Section 18.1", covers=("opt.lagrangian",)),
    Part("foundations/landscapes", "table", ".landscapes:LANDSCAPES",
        "Functions on which optimizers are tried, with their minimizers and constants",
        "Rosenbrock 1960; Karimi, Nutini and Schmidt 2016, Section 2.2", covers=("opt.pl",)),
)
# fmt: on
