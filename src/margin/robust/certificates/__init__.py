"""Perturbations that are excluded: what a model keeps at least."""

from margin.core.catalog import DOMAIN, INDEPENDENT, KNOWN, LONG, MOVABLE, ONE_LABEL, Claim, Cost, Need, Part

STATED = "margin.robust.smoothing_claims"
LINEAR = Need(
    "linear classifiers of two classes",
    f"{STATED}:is_linear",
    of="model",
)

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("robust/interval_bounds", "certificate", ".intervals:bounds",
        "Bounds on a model's outputs over a box of inputs, rounding included",
        "Gowal et al. (2018), Equations 6-7", covers=("adv.ibp",)),
    Part("robust/margin_bounds", "certificate", ".intervals:margin_bounds",
        "Lower bounds on every margin over a box of inputs, the last linear layer merged",
        "Gowal et al. (2018), Equation 8", covers=("adv.ibp",)),
    Part("robust/crown", "certificate", ".linear_bounds:crown_margins",
        "Lower bounds on every margin over a ball, by linear functions carried back to the input",
        "Zhang, Weng, Chen, Hsieh & Daniel (2018), Theorem 3.2; Xu et al. (2020)"),
    Part("robust/alpha_crown", "certificate", ".linear_bounds:alpha_crown_margins",
        "Lower bounds on every margin over a ball, by linear bounds whose slopes gradients have moved",
        "Xu, Zhang, Wang, Wang, Jana, Lin & Hsieh (2021), Section 3.1"),
    Part("robust/lipschitz_bounds", "certificate", ".lipschitz:lipschitz_margins",
        "Lower bounds on every margin over a ball, by the Lipschitz constants of all layers",
        "Szegedy et al. (2014), Section 4.3; Tsuzuku, Sato & Sugiyama (2018), Proposition 1"),
    Part("robust/certify", "certificate", ".smoothing:certify",
        "Class and l2 radius of a classifier smoothed by noise, or an abstention",
        "Cohen, Rosenfeld & Kolter (2019), Theorem 1 (CERTIFY)", covers=("adv.smoothing",)),
    Part("robust/predict", "algorithm", ".smoothing:predict",
        "Class of a classifier smoothed by noise, wrong with a probability of alpha at most",
        "Cohen, Rosenfeld & Kolter (2019), Proposition 1 (PREDICT)", covers=("adv.smoothing",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("robust/l2.smoothing", f"{STATED}:l2_smoothing", f"{STATED}:demo",
        "Certified accuracy in an l2 ball of radius eps, of the model smoothed by Gaussian noise",
        "Cohen, Rosenfeld & Kolter (2019), Theorem 1", needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT),
        cost=Cost(1250, limit=100, drawn=True), by_name=LONG, covers=("adv.smoothing",),
        figure="margin.robust.figures:radii", question="moves"),
    Claim("robust/smoothing.linear", f"{STATED}:linear_radius", f"{STATED}:demo",
        "On a linear classifier the smoothed radius is the distance to the boundary",
        "Cohen, Rosenfeld & Kolter (2019), Section 3.1 and Appendix B", needs=(LINEAR,),
        cost=Cost(10_000, limit=8), by_name=KNOWN, covers=("adv.smoothing",)),
    Claim("robust/smoothing.coverage", f"{STATED}:coverage", f"{STATED}:demo",
        "How often a certified radius is at most the distance to a linear classifier's boundary",
        "Cohen, Rosenfeld & Kolter (2019), Proposition 2", needs=(LINEAR,), cost=Cost(70, limit=1000),
        by_name=KNOWN, covers=("adv.smoothing",)),
)
# fmt: on
