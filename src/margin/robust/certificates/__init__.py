"""Perturbations that are excluded: what a model keeps at least."""

from margin.core.catalog import Part

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
)
# fmt: on
