"""Robustness from both sides: threat models, projections, attacks, interval bounds, robust training."""

from margin.core.catalog import DOMAIN, INDEPENDENT, KNOWN, LONG, MOVABLE, ONE_LABEL, Claim, Cost

FAMILIES = ("training", "attacks", "certificates")

# fmt: off

CLAIMS: tuple[Claim, ...] = (
    Claim("robust/linf.sandwich", "margin.robust.sandwich:linf_sandwich", "margin.robust.sandwich:demo",
        "Robust accuracy in an l-infinity ball, between certificate (IBP, CROWN) and attack (PGD)",
        "Gowal et al. (2018), Equations 6-8; Zhang et al. (2018); Madry et al. (2018), Equation 2.1",
        needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT), cost=Cost(800, limit=256, drawn=True),
        covers=("adv.ibp", "adv.pgd"), figure="margin.robust.figures:sandwich", question="moves"),
    Claim("robust/linf.fgsm", "margin.robust.sandwich:linf_fgsm", "margin.robust.sandwich:demo",
        "Accuracy under FGSM: one signed gradient step of length eps",
        "Goodfellow, Shlens & Szegedy (2015), Section 4", needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT),
        cost=Cost(25, limit=512, drawn=True), covers=("adv.fgsm",), figure="margin.robust.figures:sandwich",
        question="moves"),
    Claim("robust/l2.attack", "margin.robust.sandwich:l2_attack", "margin.robust.sandwich:demo",
        "Accuracy under PGD in a Euclidean ball of radius eps",
        "Madry et al. (2018), Section 2.1", needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT),
        cost=Cost(350, limit=512, drawn=True), covers=("adv.pgd",), figure="margin.robust.figures:sandwich",
        question="moves"),
    Claim("robust/linf.certificate", "margin.robust.certified_accuracy:linf_certificate",
        "margin.robust.sandwich:demo",
        "Certified accuracy in an l-infinity ball, by linear bounds with tightened layers (CROWN)",
        "Zhang et al. (2018), Theorem 3.2; Madry et al. (2018), Equation 2.1",
        needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT), cost=Cost(3000, limit=32), by_name=LONG,
        covers=("adv.ibp",), figure="margin.robust.figures:sandwich", question="moves"),
    Claim("robust/l2.certificate", "margin.robust.certified_accuracy:l2_certificate",
        "margin.robust.sandwich:demo",
        "Certified accuracy in a Euclidean ball, by linear bounds with tightened layers (CROWN)",
        "Zhang et al. (2018), Theorem 3.2; Madry et al. (2018), Section 2.1",
        needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT), cost=Cost(3000, limit=32), by_name=LONG,
        covers=("adv.ibp",), figure="margin.robust.figures:sandwich", question="moves"),
    Claim("robust/linf.radius", "margin.robust.certified_accuracy:linf_radius",
        "margin.robust.sandwich:demo",
        "Certified l-infinity radius of each example, by intervals, linear bounds, Lipschitz constants",
        "Zhang et al. (2018), Theorem 3.2; Croce & Hein (2020), Algorithm 1",
        needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT), cost=Cost(9000, limit=16), by_name=LONG,
        covers=("adv.ibp",), figure="margin.robust.figures:radii", question="moves"),
    Claim("robust/l2.radius", "margin.robust.certified_accuracy:l2_radius",
        "margin.robust.sandwich:demo",
        "Certified Euclidean radius of each example, by intervals, linear bounds, Lipschitz constants",
        "Tsuzuku, Sato & Sugiyama (2018), Proposition 1; Croce & Hein (2020), Algorithm 1",
        needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT), cost=Cost(9000, limit=16), by_name=LONG,
        covers=("adv.ibp",), figure="margin.robust.figures:radii", question="moves"),
    Claim("robust/certificates.sound", "margin.robust.certified_accuracy:sound",
        "margin.robust.sandwich:demo",
        "No sampled point of a ball has a margin below its interval and linear bounds",
        "Gowal et al. (2018), Equation 8; Zhang et al. (2018), Theorem 3.2",
        needs=(ONE_LABEL, MOVABLE, DOMAIN), cost=Cost(550, limit=8), by_name=KNOWN,
        covers=("adv.ibp",), question="moves"),
)
# fmt: on
