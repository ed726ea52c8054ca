"""Questions put to any module: risk, confusion, ranking, residuals, margins, calibration, curvature."""

from margin.core.catalog import Need, Part

FAMILIES = ("prediction", "curvature", "dynamics", "signal", "regions")

HIDDEN_UNITS = Need(
    "chains of layers with hidden units that can change places",
    "margin.theory.signal.symmetry_claims:has_hidden_units",
    of="model",
)

ALIKE = Need(
    "a reference model of the same layers (--reference RUN)",
    "margin.theory.signal.symmetry_claims:has_alike_reference",
)

# fmt: off

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
    *(
        Part(
            name=f"theory/mean_field.{name}",
            summary=summary,
            kind="function",
            target=f"margin.theory.signal.mean_field:{name}",
            reference=reference,
        )
        for name, summary, reference in (
            (
                "next_length",
                "The variance of the next layer's pre-activations in a wide random network",
                "Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 3",
            ),
            (
                "chi",
                "The factor by which small differences and squared gradients grow in a layer",
                "Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 4",
            ),
            (
                "critical_point",
                "Where neither vanishes nor explodes: a point of the critical line",
                "Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 3",
            ),
            (
                "depth_scale",
                "The number of layers in which a correlation or gradient changes e-fold",
                "Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Sections 3 and 4",
            ),
        )
    ),
)
# fmt: on
