"""Robustness from both sides: threat models, projections, attacks, interval bounds, robust training."""

from margin.core.catalog import DOMAIN, INDEPENDENT, MOVABLE, ONE_LABEL, Claim, Cost

FAMILIES = ("training", "attacks", "certificates")

# fmt: off

CLAIMS: tuple[Claim, ...] = (
    Claim("robust/linf.sandwich", "margin.robust.sandwich:linf_sandwich", "margin.robust.sandwich:demo",
        "Robust accuracy in an l-infinity ball of radius eps, between certificate (IBP) and attack (PGD)",
        "Gowal et al. (2018), Equations 6-8; Madry et al. (2018), Equation 2.1",
        needs=(ONE_LABEL, MOVABLE, DOMAIN, INDEPENDENT), cost=Cost(400, limit=512, drawn=True),
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
)
# fmt: on
