"""What predictions are worth: risk, margins, calibration, confusion, ranking, residuals."""

from margin.core.catalog import (
    KNOWN,
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

COLUMNS = Need("one input of real numbers, or tokens", "margin.theory.evidence.words:has_columns",
    why="margin.theory.evidence.words:why_no_columns")
TWO_CLASSES = Need("the probabilities of exactly two classes",
    "margin.theory.prediction.calibration:has_two_classes")
MANY_CLASSES = Need("three classes or more", "margin.theory.prediction.ranking:has_many_classes")
SEVERAL_LABELS = Need("several labels an example",
    "margin.theory.prediction.multilabel:has_several_labels")
LAWS = Need("a model that states the law of each real value",
    "margin.theory.prediction.intervals:states_laws", of="model")
SOURCES = "margin.theory.behavior.other_source"
OTHER_SOURCE = Need("examples of another source (--ood FILE, in Python ood=) that are answered one by one",
    f"{SOURCES}:has_other_source")
UNSURE = Need("class probabilities of each example, or a model that states the law of a value",
    f"{SOURCES}:is_unsure", of="model")
GNEITING_2007 = "Gneiting, Balabdaoui and Raftery 2007, Sections 2 and 3"
REAL_VALUES = Need("predictions of real values", "margin.theory.prediction.residuals:has_values")
FEATURES = Need("one row of at most 200 real features an example",
    "margin.theory.prediction.failures:has_features")
RIGHT_ANSWERS = Need("class labels, or predictions of real values",
    "margin.theory.prediction.baselines:has_right_answers")
WILSON = "Wilson 1927 (Brown, Cai and DasGupta 2001, Section 3.1.1)"
DELONG = (
    "DeLong, DeLong and Clarke-Pearson 1988; Newcombe 2006; "
    "van der Vaart 1998, Section 12.2 (two-sample U-statistics)"
)
RATIO = "Cochran 1977, Section 2.11 (error of a ratio); van der Vaart 1998, Theorem 3.1 (delta method)"
CLOPPER_1934 = "Clopper and Pearson 1934 (Brown, Cai and DasGupta 2001, Section 4.2.1)"
PRICE_2004 = "Price and Bonett 2004, Section 2 (limits of a mean of proportions)"
RESAMPLED = Cost(beside=1.5e-5)
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
        needs=(TARGETS, TRAINING, TWO_EXAMPLES), cost=Cost(part="answered"), question="memorized"),
    Claim("theory/baseline.constant", ".baselines:constant", ".baselines:constant_demo",
        "Constant baseline: by how much is the model better than always answering the same?",
        "Tango 1998, Section 2 (paired proportions); Cochran 1977, Section 2.11 (a ratio of means)",
        needs=(RIGHT_ANSWERS, TWO_EXAMPLES), question="right"),
    Claim("theory/baseline.linear", ".baselines:linear", ".baselines:linear_demo",
        "Linear baseline: by how much is the model better than a linear model of the same inputs?",
        "Hastie, Tibshirani and Friedman 2009, Sections 3.4.1 and 4.4; Tango 1998, Section 2 (the interval)",
        needs=(RIGHT_ANSWERS, TRAINING, COLUMNS, TWO_EXAMPLES), cost=Cost(0, "train", 20_000, beside=5e-4),
        question="right"),
    Claim("theory/memorization.accuracy", ".memorization:accuracy", ".memorization:demo",
        "Memorization: by how much is the accuracy on the training examples above that on held-out ones?",
        "Newcombe 1998, Section 2 (Method 10: its interval); Zhang, Bengio, Hardt, Recht and Vinyals 2017",
        needs=(RIGHT_ANSWERS, TRAINING, TWO_EXAMPLES), cost=Cost(part="answered"),
        question="memorized"),
    Claim("theory/inequality.chebyshev", ".risk:chebyshev", ".risk:inequality_demo",
        "Chebyshev's inequality: how many losses lie k standard deviations or more from their mean?",
        "Casella and Berger 2002, Theorem 3.6.1 and Example 3.6.2", by_name=KNOWN,
        needs=(TARGETS, TWO_EXAMPLES),
        covers=("prob.chebyshev",)),
    Claim("theory/inequality.jensen", ".risk:jensen", ".risk:inequality_demo",
        "Jensen's inequality: by how much does the mean probability of the true class exceed exp(-log loss)?",
        "Cover and Thomas 2006, Theorem 2.6.2", by_name=KNOWN,
        needs=(LABELS, PROBABILITIES), covers=("ineq.jensen",)),
    Claim("theory/inequality.label_information",
        ".risk:label_information", ".risk:inequality_demo",
        "Mutual information: how many bits does the predicted class tell of the true one?",
        "Cover and Thomas 2006, Theorem 2.4.1", by_name=KNOWN,
        needs=(LABELS,), covers=("info.mutual_information",)),
    Claim("theory/confusion.balanced_accuracy", ".confusion:balanced", ".confusion:demo",
        "Balanced accuracy: how often is the prediction right, were every class as frequent?",
        PRICE_2004, needs=(LABELS,), question="right"),
    Claim("theory/confusion.macro_f1", ".confusion:f1", ".confusion:demo",
        "Macro F1: what is the mean over classes of the harmonic mean of precision and recall?",
        f"van Rijsbergen 1979, Chapter 7 (F1); {PRICE_2004}",
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
        needs=(LABELS, TWO_LABELS), figure=".figures:roc", cost=Cost(beside=2e-6), question="right"),
    Claim("theory/ranking.auroc_by_class", ".ranking:area_by_class", ".ranking:many_demo",
        "Area under the ROC curve by class: how often does a class's example score above one of the rest?",
        DELONG, needs=(LABELS, MANY_CLASSES, TWO_LABELS), cost=Cost(beside=2e-6), question="fails"),
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
    Claim("theory/predictive.log_likelihood", ".intervals:log_likelihood", ".intervals:demo",
        "Predictive log-likelihood: how dense is the stated law at the held-out values?",
        "Gneiting and Raftery 2007, Section 4.1 (the logarithmic score); Hall 1992, Section 3.9.2",
        needs=(LAWS, TWO_EXAMPLES), cost=Cost(20), question="probabilities"),
    Claim("theory/predictive.coverage", ".intervals:coverage", ".intervals:demo",
        "Coverage: do prediction intervals hold the value as often as they say?",
        f"{GNEITING_2007}; {WILSON}", needs=(LAWS, TWO_EXAMPLES), figure=".figures:bands",
        cost=Cost(20), question="probabilities"),
    Claim("theory/predictive.quantiles", ".intervals:calibration", ".intervals:demo",
        "Calibration of quantiles: do values lie below a quantile as often as its level says?",
        f"{GNEITING_2007}; Massart 1990, Corollary 1", needs=(LAWS, TWO_EXAMPLES),
        figure=".figures:quantiles", cost=Cost(20), question="probabilities"),
    Claim("theory/predictive.out_of_distribution",
        f"{SOURCES}:out_of_distribution", f"{SOURCES}:demo",
        "Out of distribution: is the model less sure of another source's examples than of held-out ones?",
        f"Hendrycks and Gimpel 2017, Section 2; {DELONG}", needs=(OTHER_SOURCE, UNSURE, TWO_EXAMPLES),
        figure=".figures:sources", cost=Cost(2), question="probabilities"),
    Claim("theory/failures.segments", ".failures:segments", ".failures:segments_demo",
        "Segments: in which range of a feature does the model err most, and by how much more than elsewhere?",
        "Newcombe 1998, Section 2 (a difference of proportions); Cox 1975, Section 2 (one half chooses)",
        needs=(RIGHT_ANSWERS, FEATURES), cost=Cost(beside=4e-6), question="fails"),
    Claim("theory/failures.mislabeled", ".failures:mislabeled", ".failures:mislabeled_demo",
        "Label noise: which held-out labels are likely wrong, however sure the model is of its answers?",
        "Lawrence and Schoelkopf 2001, Section 2 (flips); Guo et al. 2017, Section 4.2 (temperature)",
        needs=(LABELS, PROBABILITIES), figure=".figures:suspects", cost=Cost(beside=1e-6), question="fails"),
    Claim("theory/margins.distribution", ".margins:distribution", ".margins:demo",
        "Margins: by how much does the right class's score exceed the best of the others?",
        "Mohri, Rostamizadeh and Talwalkar 2018, Section 9.2 (margin); David and Nagaraja 2003, Section 7.1 "
        "(interval of a quantile)", needs=(LABELS,), figure=".figures:margins", question="fails"),
    Claim("theory/calibration.ece", ".calibration:ece", ".calibration:demo",
        "Expected calibration error: is a prediction of confidence p right with frequency p?", GUO_2017,
        needs=(LABELS, PROBABILITIES), figure=".figures:reliability", cost=RESAMPLED,
        question="probabilities"),
    Claim("theory/calibration.binary_ece",
        ".calibration:binary_ece", ".calibration:binary_demo",
        "Binary calibration error: do confidence, and probability of class 1, match frequencies?", GUO_2017,
        needs=(LABELS, PROBABILITIES, TWO_CLASSES), figure=".figures:reliability", cost=RESAMPLED,
        question="probabilities"),
    Claim("theory/calibration.brier", ".calibration:brier", ".calibration:demo",
        "Brier score: what is the mean squared distance between forecast and outcome?",
        "Brier 1950, Equation 2 (Gneiting and Raftery 2007, Section 3.1, example 1)",
        needs=(LABELS, PROBABILITIES, TWO_EXAMPLES), question="probabilities"),
    Claim("theory/calibration.nll", ".calibration:nll", ".calibration:demo",
        "Log loss: how many nats of surprise does the true class hold, in the mean?",
        "Good 1952, Section 8 (Gneiting and Raftery 2007, Section 3.1, example 3)",
        needs=(LABELS, PROBABILITIES, TWO_EXAMPLES), question="probabilities"),
    Claim("theory/calibration.temperature", ".temperature:temperature", ".temperature:demo",
        "Temperature scaling: by what number should the logits be divided, and what does that repair?",
        "Guo, Pleiss, Sun and Weinberger 2017, Section 4.2", needs=(LABELS, PROBABILITIES, TWO_EXAMPLES),
        figure=".figures:reliability", cost=RESAMPLED, question="probabilities"),
)
# fmt: on
