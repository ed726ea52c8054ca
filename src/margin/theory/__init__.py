"""Questions put to any module: risk, confusion, ranking, residuals, margins, calibration, curvature."""

from margin.core.catalog import Need, Part

FAMILIES = (
    "evidence",
    "behavior",
    "prediction",
    "curvature",
    "dynamics",
    "signal",
    "regions",
    "kernels",
    "capacity",
    "bounds",
)

# fmt: off

HIDDEN_UNITS = Need("chains of layers with hidden units that can change places",
    "margin.theory.signal.symmetry_claims:has_hidden_units", of="model")
ALIKE = Need("a reference model of the same layers (--reference RUN)",
    "margin.theory.signal.symmetry_claims:has_alike_reference")

PARTS: tuple[Part, ...] = (
    Part("theory/weight_decay", "fact", "torch.optim:SGD",
        "Gradient descent with decay, (1 - eta mu) theta - eta g: the penalty mu/2 |theta|^2.",
        "Krogh and Hertz 1992, Equation 4; Goodfellow, Bengio and Courville 2016, Equation 7.5",
        covers=("reg.l2", "reg.weight_decay")),
    Part("theory/early_stopping", "hook", "margin.engine.hooks:patience",
        "Stop when the best evaluation is so many evaluations old; a run keeps the best weights.",
        "Prechelt 1998, Section 2; Goodfellow, Bengio and Courville 2016, Algorithm 7.1",
        covers=("reg.early_stopping",)),
    Part("theory/dropout", "layer", "torch.nn:Dropout",
        "Units kept with probability 1 - p and divided by it; the identity in evaluation.",
        "Srivastava et al. 2014, Section 4", covers=("reg.dropout",)),
)
# fmt: on
