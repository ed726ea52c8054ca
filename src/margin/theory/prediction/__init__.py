"""What predictions are worth: risk, margins, calibration, confusion, ranking, residuals."""

from margin.core.catalog import (
    LABELS,
    PROBABILITIES,
    TARGETS,
    TRAINING,
    TWO_EXAMPLES,
    TWO_LABELS,
    Claim,
    Cost,
    Need,
    Part,
)

# fmt: off

TWO_CLASSES = Need("the probabilities of exactly two classes",
    "margin.theory.prediction.calibration:has_two_classes")
MANY_CLASSES = Need("three classes or more", "margin.theory.prediction.ranking:has_many_classes")
SEVERAL_LABELS = Need("several labels an example",
    "margin.theory.prediction.multilabel:has_several_labels")
REAL_VALUES = Need("predictions of real values", "margin.theory.prediction.residuals:has_values")
WILSON = "Wilson 1927 (Brown, Cai and DasGupta 2001, Section 3.1.1)"
DELONG = (
    "DeLong, DeLong and Clarke-Pearson 1988; Newcombe 2006; "
    "van der Vaart 1998, Section 12.2 (two-sample U-statistics)"
)
RATIO = "Cochran 1977, Section 2.11 (error of a ratio); van der Vaart 1998, Theorem 3.1 (delta method)"
CLOPPER_1934 = "Clopper and Pearson 1934 (Brown, Cai and DasGupta 2001, Section 4.2.1)"
GUO_2017 = "Guo, Pleiss, Sun and Weinberger 2017, Equation 3"

PARTS: tuple[Part, ...] = (
    Part("theory/clopper_pearson", "measure", ".risk:clopper_pearson",
        "Clopper-Pearson interval: exact binomial confidence limits.", CLOPPER_1934),
    Part("theory/wilson", "measure", ".held_out:wilson",
        "Wilson's score interval of a proportion.", WILSON),
    Part("theory/confusion_matrix", "measure", ".confusion:confusion_matrix",
        "Confusion matrix: how often each class is predicted as each.", "van Rijsbergen 1979, Chapter 7"),
    Part("theory/auroc", "measure", ".ranking:auroc",
        "The area under the ROC curve with DeLong's variance, ties counting half.", DELONG),
    Part("theory/output_margins", "measure", ".margins:output_margins",
        "The score of the right class less the best of the others.",
        "Mohri, Rostamizadeh and Talwalkar 2018, Section 9.2"),
    Part("theory/expected_calibration_error", "measure", ".calibration:expected_calibration_error",
        "The mean distance of frequency and probability over bins.", GUO_2017),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/risk.accuracy", ".risk:accuracy", ".risk:accuracy_demo",
        "Accuracy: how often is the prediction right?", CLOPPER_1934, needs=(LABELS,), question="right"),
    Claim("theory/risk.loss", ".risk:loss", ".risk:loss_demo",
        "Risk: what is the mean loss on examples not seen in training?",
        "Vapnik 1998, Section 1.2 (the risk functional); Cochran 1977, Section 2.11 (its error); Hall 1992, "
        "Section 3.9.2 (the interval)", needs=(TARGETS, TWO_EXAMPLES),
        covers=("risk.expected", "risk.empirical"), question="right"),
    Claim("theory/risk.gap", ".risk:gap", ".risk:gap_demo",
        "Generalization gap: by how much does the held-out loss exceed the training loss?",
        "Shalev-Shwartz and Ben-David 2014, Equations 3.3 and 3.4 (risk, empirical risk)",
        needs=(TARGETS, TRAINING, TWO_EXAMPLES), cost=Cost(1.2, "train"), question="memorized"),
    Claim("theory/inequality.chebyshev", ".risk:chebyshev", ".risk:inequality_demo",
        "Chebyshev's inequality: how many losses lie k standard deviations or more from their mean?",
        "Casella and Berger 2002, Theorem 3.6.1 and Example 3.6.2", needs=(TARGETS, TWO_EXAMPLES),
        covers=("prob.chebyshev",)),
    Claim("theory/inequality.jensen", ".risk:jensen", ".risk:inequality_demo",
        "Jensen's inequality: by how much does the mean probability of the true class exceed exp(-log loss)?",
        "Cover and Thomas 2006, Theorem 2.6.2", needs=(LABELS, PROBABILITIES), covers=("ineq.jensen",)),
    Claim("theory/inequality.label_information",
        ".risk:label_information", ".risk:inequality_demo",
        "Mutual information: how many bits does the predicted class tell of the true one?",
        "Cover and Thomas 2006, Theorem 2.4.1", needs=(LABELS,), covers=("info.mutual_information",)),
    Claim("theory/confusion.balanced_accuracy", ".confusion:balanced", ".confusion:demo",
        "Balanced accuracy: how often is the prediction right, were every class as frequent?",
        f"Zou and Donner 2008 (limits of a sum); {WILSON}", needs=(LABELS,), question="right"),
    Claim("theory/confusion.macro_f1", ".confusion:f1", ".confusion:demo",
        "Macro F1: what is the mean over classes of the harmonic mean of precision and recall?",
        f"van Rijsbergen 1979, Chapter 7 (F1); Zou and Donner 2008 (limits of a sum); {WILSON}",
        needs=(LABELS,), question="right"),
    Claim("theory/confusion.recall", ".confusion:recall", ".confusion:demo",
        "Recall by class, and the confusion matrix: how much of each class is found?",
        f"van Rijsbergen 1979, Chapter 7; {WILSON}", needs=(LABELS,), figure=".figures:confusion",
        question="fails"),
    Claim("theory/confusion.precision", ".confusion:precision", ".confusion:demo",
        "Precision by class: how much of what is predicted as a class is of it?",
        f"van Rijsbergen 1979, Chapter 7; {WILSON}", needs=(LABELS,), question="fails"),
    Claim("theory/ranking.auroc", ".ranking:area", ".ranking:demo",
        "Area under the ROC curve: how often does an example of a class score above one of another?", DELONG,
        needs=(LABELS, TWO_LABELS), figure=".figures:roc", question="right"),
    Claim("theory/ranking.auroc_by_class", ".ranking:area_by_class", ".ranking:many_demo",
        "Area under the ROC curve by class: how often does a class's example score above one of the rest?",
        DELONG, needs=(LABELS, MANY_CLASSES, TWO_LABELS), question="fails"),
    Claim("theory/multilabel.by_label", ".multilabel:by_label", ".multilabel:demo",
        "Accuracy by label: how often is each of several labels told rightly?", WILSON,
        needs=(SEVERAL_LABELS,), question="fails"),
    Claim("theory/multilabel.subset", ".multilabel:subset", ".multilabel:demo",
        "Subset accuracy: how often are all labels of an example told rightly?",
        f"Zhang and Zhou 2014, Section 2.2.2; {CLOPPER_1934}", needs=(SEVERAL_LABELS,), question="right"),
    Claim("theory/residuals.mae", ".residuals:mae", ".residuals:demo",
        "Mean absolute error: how far do predictions lie from the targets, in the mean?",
        RATIO, needs=(REAL_VALUES, TWO_EXAMPLES), question="right"),
    Claim("theory/residuals.rmse", ".residuals:rmse", ".residuals:demo",
        "Root mean square error: how far do predictions lie from the targets?", RATIO,
        needs=(REAL_VALUES, TWO_EXAMPLES), question="right"),
    Claim("theory/residuals.r2", ".residuals:r2", ".residuals:demo",
        "R^2: what share of the targets' variance do the predictions explain?", RATIO,
        needs=(REAL_VALUES, TWO_EXAMPLES), figure=".figures:agreement", question="right"),
    Claim("theory/margins.distribution", ".margins:distribution", ".margins:demo",
        "Margins: by how much does the right class's score exceed the best of the others?",
        "Mohri, Rostamizadeh and Talwalkar 2018, Section 9.2 (margin); David and Nagaraja 2003, Section 7.1 "
        "(interval of a quantile)", needs=(LABELS,), figure=".figures:margins", question="fails"),
    Claim("theory/calibration.ece", ".calibration:ece", ".calibration:demo",
        "Expected calibration error: is a prediction of confidence p right with frequency p?", GUO_2017,
        needs=(LABELS, PROBABILITIES), figure=".figures:reliability", question="probabilities"),
    Claim("theory/calibration.binary_ece",
        ".calibration:binary_ece", ".calibration:binary_demo",
        "Binary calibration error: do confidence, and probability of class 1, match frequencies?", GUO_2017,
        needs=(LABELS, PROBABILITIES, TWO_CLASSES), figure=".figures:reliability", question="probabilities"),
    Claim("theory/calibration.brier", ".calibration:brier", ".calibration:demo",
        "Brier score: what is the mean squared distance between forecast and outcome?",
        "Brier 1950, Equation 2 (Gneiting and Raftery 2007, Section 3.1, example 1)",
        needs=(LABELS, PROBABILITIES, TWO_EXAMPLES), question="probabilities"),
    Claim("theory/calibration.nll", ".calibration:nll", ".calibration:demo",
        "Log loss: how many nats of surprise does the true class hold, in the mean?",
        "Good 1952, Section 8 (Gneiting and Raftery 2007, Section 3.1, example 3)",
        needs=(LABELS, PROBABILITIES, TWO_EXAMPLES), question="probabilities"),
)
# fmt: on
