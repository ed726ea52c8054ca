"""Perturbations that are found: what a model loses at least."""

from margin.core.catalog import Part

DUCHI = "Duchi, Shalev-Shwartz, Singer & Chandra (2008), Figure 1"
MOOSAVI = "Moosavi-Dezfooli, Fawzi & Frossard (2016), Algorithm 2"
MADRY_2018 = "Madry et al. (2018), Section 2.1"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("robust/threat_model", "attack", ".threat_models:Threat",
        "The ball around an input, cut by the domain, in which an adversary may move it",
        "Madry et al. (2018), Equation 2.1", covers=("adv.threat_model",)),
    Part("robust/fgsm", "attack", ".gradient:fgsm",
        "The maximizer of the linearized loss over the ball, by one signed step",
        "Goodfellow, Shlens & Szegedy (2015), Section 4", covers=("adv.fgsm",)),
    Part("robust/pgd", "attack", ".gradient:pgd",
        "The best point met by projected gradient ascent on the loss in the ball", MADRY_2018,
        covers=("adv.pgd",)),
    Part("robust/apgd", "attack", ".apgd:apgd",
        "Projected gradient ascent whose step adapts to each example, with momentum",
        "Croce & Hein (2020), Algorithm 1", covers=("adv.pgd",)),
    Part("robust/deepfool", "attack", ".minimal:deepfool",
        "Steps to the nearest linearized boundary until the class changes", MOOSAVI,
        covers=("adv.deepfool",)),
    Part("robust/boundary_attack", "attack", ".minimal:boundary_attack",
        "The nearest adversarial point of steps onto linearized boundaries, pulled back to the input (FAB)",
        "Croce & Hein (2020), Algorithm 1 (fast adaptive boundary attack)", covers=("adv.threat_model",)),
    Part("robust/square", "attack", ".square:square",
        "Random search that changes squares of an image, and reads scores alone (Square)",
        "Andriushchenko, Croce, Flammarion & Hein (2020), Algorithms 1 to 3", covers=("adv.threat_model",)),
    Part("robust/carlini_wagner", "attack", ".carlini:carlini_wagner",
        "Descent on l2 distance and margin in the space of tanh, their weight by binary search (C&W)",
        "Carlini & Wagner (2017), Section VI.A", covers=("adv.threat_model",)),
    Part("robust/ensemble", "attack", ".ensemble:ensemble",
        "APGD, FAB and Square in turn, the worst case of each example (AutoAttack)",
        "Croce & Hein (2020), Section 5", covers=("adv.threat_model", "adv.pgd")),
    Part("robust/transfer", "measure", ".transfer:transfer",
        "Success of attacks made against each model on each of them, beside noise of the same norm",
        "Szegedy et al. (2014), Section 4.2", covers=("adv.transfer",)),
    Part("robust/linear_distance", "fact", ".linear_models:linear_distance",
        "The distance |f(x)| / ||w||_q of a point from a hyperplane",
        MOOSAVI.replace("Algorithm 2", "Section 2"), covers=("adv.linear_binary",)),
    Part("robust/nearest_boundary", "fact", ".linear_models:nearest_boundary",
        "The least displacement to the nearest of the hyperplanes between two classes, in a box or not",
        MOOSAVI.replace("Algorithm 2", "Section 3.1"), covers=("adv.linear_multiclass",)),
    Part("robust/project_l1_box", "projection", ".threat_models:project_l1_box",
        "The nearest point of an l1 ball cut with a box, by sorting breakpoints",
        "Croce & Hein (2021), Proposition 3.1", covers=("proj.l1",)),
    Part("robust/project_linf", "projection", ".threat_models:project_linf",
        "The nearest point of an l-infinity ball: each coordinate clamped",
        DUCHI.replace("Figure 1", "Section 1"), covers=("proj.linf",)),
    Part("robust/project_l2", "projection", ".threat_models:project_l2",
        "The nearest point of a Euclidean ball: scaled to its length", MADRY_2018, covers=("proj.l2",)),
    Part("robust/project_l1", "projection", ".threat_models:project_l1",
        "The nearest point of an l1 ball, by sorting and thresholding",
        "Duchi, Shalev-Shwartz, Singer & Chandra (2008), Section 4", covers=("proj.l1",)),
    Part("robust/project_simplex", "projection", ".threat_models:project_simplex",
        "The nearest point of a simplex, by sorting and thresholding", DUCHI, covers=("proj.simplex",)),
)
# fmt: on
