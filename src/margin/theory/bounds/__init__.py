"""Bounds of a risk from a sample: for one classifier, for many, for a law over them."""

from margin.core.catalog import (
    CERTIFIED,
    KNOWN,
    LABELS,
    LONG,
    ONE_LABEL,
    PROBABILITIES,
    TRAINING,
    TWO_EXAMPLES,
    Claim,
    Cost,
    Part,
    Rule,
)

# fmt: off

LANGFORD_2005 = "Langford 2005, Theorem 3.3 and Corollary 4.2"
MAURER_2004 = "Maurer 2004, Theorem 5"
DEVROYE_1996 = "Devroye, Gyorfi and Lugosi 1996, Theorem 12.5"
PEREZ_ORTIZ_2021 = "Perez-Ortiz, Rivasplata, Shawe-Taylor and Szepesvari 2021"
DONSKER_1975 = "Donsker and Varadhan 1975; Boucheron, Lugosi and Massart 2013, Corollary 4.15"

PARTS: tuple[Part, ...] = (
    Part("theory/kl_inverse", "function", ".binary_kl:kl_upper",
        "The largest bias of a coin whose divergence from an observed share is at most c.",
        "Langford 2005, Section 3.2"),
    Part("theory/binomial_bound", "function", ".samples:binomial_bound",
        "The exact upper bound of the risk of one classifier that the sample did not choose.",
        "Langford 2005, Theorem 3.3", covers=("slt.pac",)),
    Part("theory/hoeffding_bound", "function", ".samples:hoeffding_bound",
        "Hoeffding's bound of the risk, with a union over a finite class or a code length.",
        "Hoeffding 1963, Theorem 1; Shalev-Shwartz and Ben-David 2014, Theorem 7.7",
        covers=("slt.pac", "slt.generalisation_gap")),
    Part("theory/occam_bound", "function", ".samples:occam_bound",
        "Occam's bound of the risk: Chernoff's, with a union over a finite class or a code length.",
        LANGFORD_2005, covers=("slt.pac",)),
    Part("theory/vc_bound", "function", ".samples:vc_bound",
        "The bound of the risk by the growth function of a class.", DEVROYE_1996,
        covers=("slt.vc_inequality",)),
    Part("theory/rademacher_bound", "function", ".samples:rademacher_bound",
        "The bound of the risk by the Rademacher complexity of the losses.",
        "Mohri, Rostamizadeh and Talwalkar 2018, Theorem 3.3", covers=("slt.rademacher_bound",)),
    Part("theory/spectral_bound", "function", ".spectral:spectral_bound",
        "The margin bound of a network by the spectral norms of its layers.",
        "Bartlett, Foster and Telgarsky 2017, Theorem 3.3", covers=("slt.rademacher_bound",)),
    Part("theory/perturbation_bound", "function", ".spectral:perturbation_bound",
        "The margin bound of a network by what its answers change when its weights do.",
        "Neyshabur, Bhojanapalli and Srebro 2018, Theorem 1", covers=("slt.pac_bayes",)),
    Part("theory/pac_bayes_kl", "function", ".pac_bayes:pac_bayes_kl",
        "PAC-Bayes: the risk of a law over classifiers, by the inverse of the divergence.",
        MAURER_2004, covers=("slt.pac_bayes",)),
    Part("theory/pac_bayes_root", "function", ".pac_bayes:pac_bayes_root",
        "PAC-Bayes in McAllester's form: a root beside the empirical risk.",
        f"McAllester 1999, Theorem 1; {MAURER_2004}", covers=("slt.pac_bayes",)),
    Part("theory/pac_bayes_quadratic", "function", ".pac_bayes:pac_bayes_quadratic",
        "PAC-Bayes solved for the root of the risk: smooth, and tight at small risks.",
        f"{PEREZ_ORTIZ_2021}, Section 4", covers=("slt.pac_bayes",)),
    Part("theory/catoni_bound", "function", ".pac_bayes:catoni",
        "PAC-Bayes in the linear form, with a slope that was fixed beforehand.",
        "Catoni 2007, Theorem 1.2.6", covers=("slt.pac_bayes",)),
    Part("theory/drawn_bound", "function", ".pac_bayes:drawn_bound",
        "PAC-Bayes of one classifier that is drawn once, by its density ratio.",
        "Rivasplata, Kuzborskij, Szepesvari and Shawe-Taylor 2020, Theorem 1", covers=("slt.pac_bayes",)),
    Part("theory/change_of_measure", "function", ".pac_bayes:change_of_measure",
        "How far the bound of Donsker and Varadhan lies above the mean that it bounds.",
        DONSKER_1975, covers=("slt.change_of_measure",)),
)

RULES: tuple[Rule, ...] = (
    Rule("theory/pac_bayes", ".posterior:pac_bayes",
        "Descent of a law over the weights on a bound of its own risk; ends with a risk certificate",
        f"{PEREZ_ORTIZ_2021}, Sections 5 and 6", last=True,
        unused=("patience",),
        feed=".posterior:feed", conclude=".certificate:certificate",
        remark="predictions are those of the law's mean; its certificate speaks of networks drawn from it",
        renamed={"bound": {"lambda": "quadratic"}},  # the linear one at its best slope
        covers=("slt.pac_bayes",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/bounds.ladder", ".ladder:ladder", ".ladder:demo",
        "Bounds of the risk: at most how often is it wrong on new examples, by each theorem?",
        f"{LANGFORD_2005}; Hoeffding 1963, Theorem 1; Bartlett, Foster and Telgarsky 2017, Theorem 3.3",
        needs=(ONE_LABEL, TWO_EXAMPLES),
        cost=Cost(2, part="answered"), question="memorized", figure=".figures:rungs",
        covers=("slt.generalisation_gap", "slt.pac")),
    Claim("theory/bounds.certificate", ".certificate:held_out_risk", ".certificate:demo",
        "Risk certificate: does a law over the weights err as rarely as it was certified?",
        f"{PEREZ_ORTIZ_2021}, Section 6.1; Langford and Caruana 2002, Theorem 2.5",
        needs=(ONE_LABEL, TWO_EXAMPLES, CERTIFIED), cost=Cost(32), question="memorized",
        covers=("slt.pac_bayes",)),
    Claim("theory/bounds.compression", ".compression:compression", ".compression:demo",
        "Compression bound: how rarely does a copy of few bits err on new examples?",
        "Zhou, Veitch, Austern, Adams and Orbanz 2019, Theorem 4.1; Langford 2005, Corollary 4.2",
        needs=(ONE_LABEL, TWO_EXAMPLES, TRAINING), by_name=LONG, cost=Cost(20, "train"),
        question="memorized", covers=("slt.generalisation_gap",)),
    Claim("theory/bounds.coverage", ".claims:coverage", ".claims:demo",
        "Confidence bounds: do they hold as often as they say, of all samples?",
        f"{LANGFORD_2005}; Hoeffding 1963, Theorem 1", needs=(LABELS,), by_name=KNOWN, covers=("slt.pac",)),
    Claim("theory/bounds.finite_class", ".claims:finite_class", ".claims:demo",
        "Uniform bounds: how often do they hold for every classifier of a class, and every posterior?",
        f"Langford 2005, Corollary 4.2; {MAURER_2004}; Mohri, Rostamizadeh and Talwalkar 2018, Theorem 3.3",
        needs=(ONE_LABEL,), by_name=KNOWN, covers=("slt.pac_bayes", "slt.rademacher_bound", "slt.pac")),
    Claim("theory/bounds.uniform", ".claims:uniform", ".claims:demo",
        "Uniform convergence: how often do errors of some threshold stray from its risk?", DEVROYE_1996,
        needs=(ONE_LABEL,), by_name=KNOWN, covers=("slt.vc_inequality",)),
    Claim("theory/bounds.change_of_measure", ".claims:donsker_varadhan", ".claims:demo",
        "Change of measure: is a mean under one law bounded by a moment under another, tightly?",
        DONSKER_1975,
        needs=(ONE_LABEL, PROBABILITIES), by_name=KNOWN, covers=("slt.change_of_measure",)),
)
# fmt: on
