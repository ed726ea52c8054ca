"""Robustness from both sides: threat models, projections, attacks, interval bounds, robust training."""

from margin.core.catalog import DOMAIN, INDEPENDENT, LABELS, MOVABLE, Claim, Cost, Part, Rule

_DUCHI = "Duchi, Shalev-Shwartz, Singer & Chandra (2008), Figure 1"

CLAIMS = (
    Claim(
        name="robust/linf.sandwich",
        summary="How many examples stay right when every coordinate may move by eps: certificate and attack",
        ask="margin.robust.sandwich:linf_sandwich",
        demo="margin.robust.sandwich:demo",
        reference="Gowal et al. (2018), Equations 6-8; Madry et al. (2018), Equation 2.1",
        needs=(LABELS, MOVABLE, DOMAIN, INDEPENDENT),
        cost=Cost(400, limit=512),
        covers=("adv.ibp", "adv.pgd"),
    ),
    Claim(
        name="robust/linf.fgsm",
        summary="How many examples stay right after one signed gradient step of length eps",
        ask="margin.robust.sandwich:linf_fgsm",
        demo="margin.robust.sandwich:demo",
        reference="Goodfellow, Shlens & Szegedy (2015), Section 4",
        needs=(LABELS, MOVABLE, DOMAIN, INDEPENDENT),
        cost=Cost(25, limit=512),
        covers=("adv.fgsm",),
    ),
    Claim(
        name="robust/l2.attack",
        summary="How many examples stay right when an input may move by a Euclidean length of eps",
        ask="margin.robust.sandwich:l2_attack",
        demo="margin.robust.sandwich:demo",
        reference="Madry et al. (2018), Section 2.1",
        needs=(LABELS, MOVABLE, DOMAIN, INDEPENDENT),
        cost=Cost(350, limit=512),
        covers=("adv.pgd",),
    ),
)

RULES = (
    Rule(
        name="robust/adversarial_training",
        summary="Descent on the loss at inputs that projected ascent has moved to raise it",
        step="margin.robust.training.adversarial:adversarial_training",
        reference="Madry et al. (2018), Equation 2.1",
    ),
)

PARTS = (
    Part(
        name="robust/threat_model",
        summary="The ball around an input, cut by the domain, in which an adversary may move it",
        kind="attack",
        target="margin.robust.attacks.threat_models:Threat",
        reference="Madry et al. (2018), Equation 2.1",
        covers=("adv.threat_model",),
    ),
    Part(
        name="robust/fgsm",
        summary="The maximizer of the linearized loss over the ball, by one signed step",
        kind="attack",
        target="margin.robust.attacks.gradient:fgsm",
        reference="Goodfellow, Shlens & Szegedy (2015), Section 4",
        covers=("adv.fgsm",),
    ),
    Part(
        name="robust/pgd",
        summary="The best point met by projected gradient ascent on the loss in the ball",
        kind="attack",
        target="margin.robust.attacks.gradient:pgd",
        reference="Madry et al. (2018), Section 2.1",
        covers=("adv.pgd",),
    ),
    Part(
        name="robust/project_linf",
        summary="The nearest point of an l-infinity ball: each coordinate clamped",
        kind="projection",
        target="margin.robust.attacks.projections:project_linf",
        reference=_DUCHI.replace("Figure 1", "Section 1"),
        covers=("proj.linf",),
    ),
    Part(
        name="robust/project_l2",
        summary="The nearest point of a Euclidean ball: scaled to its length",
        kind="projection",
        target="margin.robust.attacks.projections:project_l2",
        reference="Madry et al. (2018), Section 2.1",
        covers=("proj.l2",),
    ),
    Part(
        name="robust/project_l1",
        summary="The nearest point of an l1 ball, by sorting and thresholding",
        kind="projection",
        target="margin.robust.attacks.projections:project_l1",
        reference="Duchi, Shalev-Shwartz, Singer & Chandra (2008), Section 4",
        covers=("proj.l1",),
    ),
    Part(
        name="robust/project_simplex",
        summary="The nearest point of a simplex, by sorting and thresholding",
        kind="projection",
        target="margin.robust.attacks.projections:project_simplex",
        reference=_DUCHI,
        covers=("proj.simplex",),
    ),
    Part(
        name="robust/interval_bounds",
        summary="Bounds on a model's outputs over a box of inputs, rounding included",
        kind="certificate",
        target="margin.robust.certificates.intervals:bounds",
        reference="Gowal et al. (2018), Equations 6-7",
        covers=("adv.ibp",),
    ),
    Part(
        name="robust/margin_bounds",
        summary="Lower bounds on every margin over a box of inputs, the last linear layer merged",
        kind="certificate",
        target="margin.robust.certificates.intervals:margin_bounds",
        reference="Gowal et al. (2018), Equation 8",
        covers=("adv.ibp",),
    ),
)
