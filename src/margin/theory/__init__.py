"""Questions put to any module: risk, confusion, ranking, residuals, margins, calibration, curvature."""

from margin.catalog import LABELS, PARAMETERS, PROBABILITIES, TARGETS, TRAINING, Claim, Cost, Need, Part

TWO_CLASSES = Need(
    "the probabilities of exactly two classes", "margin.theory.calibration_claims:has_two_classes"
)
MANY_CLASSES = Need("three classes or more", "margin.theory.ranking_claims:has_many_classes")
REAL_VALUES = Need("predictions of real values", "margin.theory.residuals:has_values")

WILSON = "Wilson 1927 (Brown, Cai and DasGupta 2001, Section 3.1.1)"
DELONG = (
    "DeLong, DeLong and Clarke-Pearson 1988; Newcombe 2006; "
    "van der Vaart 1998, Section 12.2 (two-sample U-statistics)"
)
RATIO = "Cochran 1977, Section 2.11 (error of a ratio); van der Vaart 1998, Theorem 3.1 (delta method)"

CLAIMS = (
    Claim(
        name="theory/risk.accuracy",
        summary="How often is the prediction right?",
        ask="margin.theory.risk:accuracy",
        demo="margin.theory.risk:accuracy_demo",
        reference="Clopper and Pearson 1934 (Brown, Cai and DasGupta 2001, Section 4.2.1)",
        needs=(LABELS,),
    ),
    Claim(
        name="theory/risk.loss",
        summary="What is the mean loss on examples not seen in training?",
        ask="margin.theory.risk:loss",
        demo="margin.theory.risk:loss_demo",
        reference="Vapnik 1998, Section 1.2",
        needs=(TARGETS,),
        covers=("risk.expected", "risk.empirical"),
    ),
    Claim(
        name="theory/risk.gap",
        summary="By how much does the held-out loss exceed the training loss?",
        ask="margin.theory.risk:gap",
        demo="margin.theory.risk:gap_demo",
        reference="Shalev-Shwartz and Ben-David 2014, Equations 3.3 and 3.4",
        needs=(TARGETS, TRAINING),
        cost=Cost(1.2, "train"),
    ),
    Claim(
        name="theory/inequality.chebyshev",
        summary="How many losses lie k standard deviations or more from their mean?",
        ask="margin.theory.inequality_claims:chebyshev",
        demo="margin.theory.inequality_claims:demo",
        reference="Casella and Berger 2002, Theorem 3.6.1",
        needs=(TARGETS,),
        covers=("prob.chebyshev",),
    ),
    Claim(
        name="theory/inequality.jensen",
        summary="By how much does the mean probability of the true class exceed exp(-log loss)?",
        ask="margin.theory.inequality_claims:jensen",
        demo="margin.theory.inequality_claims:demo",
        reference="Cover and Thomas 2006, Theorem 2.6.2",
        needs=(LABELS, PROBABILITIES),
        covers=("ineq.jensen",),
    ),
    Claim(
        name="theory/inequality.label_information",
        summary="How many bits does the predicted class tell of the true one?",
        ask="margin.theory.inequality_claims:label_information",
        demo="margin.theory.inequality_claims:demo",
        reference="Cover and Thomas 2006, Theorem 2.4.1",
        needs=(LABELS,),
        covers=("info.mutual_information",),
    ),
    Claim(
        name="theory/confusion.balanced_accuracy",
        summary="How often is the prediction right, were every class as frequent?",
        ask="margin.theory.confusion_claims:balanced",
        demo="margin.theory.confusion_claims:demo",
        reference=f"Zou and Donner 2008 (limits of a sum); {WILSON}",
        needs=(LABELS,),
    ),
    Claim(
        name="theory/confusion.macro_f1",
        summary="What is the mean over classes of the harmonic mean of precision and recall?",
        ask="margin.theory.confusion_claims:f1",
        demo="margin.theory.confusion_claims:demo",
        reference="van Rijsbergen 1979, Chapter 7; Zou and Donner 2008 (limits of a sum)",
        needs=(LABELS,),
    ),
    Claim(
        name="theory/confusion.recall",
        summary="How much of each class is found, and what is the rest taken for?",
        ask="margin.theory.confusion_claims:recall",
        demo="margin.theory.confusion_claims:demo",
        reference=f"van Rijsbergen 1979, Chapter 7; {WILSON}",
        needs=(LABELS,),
    ),
    Claim(
        name="theory/confusion.precision",
        summary="How much of what is called a class is of it?",
        ask="margin.theory.confusion_claims:precision",
        demo="margin.theory.confusion_claims:demo",
        reference=f"van Rijsbergen 1979, Chapter 7; {WILSON}",
        needs=(LABELS,),
    ),
    Claim(
        name="theory/ranking.auroc",
        summary="How often does an example of a class score above one of another (area under the ROC curve)?",
        ask="margin.theory.ranking_claims:area",
        demo="margin.theory.ranking_claims:demo",
        reference=DELONG,
        needs=(LABELS,),
    ),
    Claim(
        name="theory/ranking.auroc_by_class",
        summary="How often does an example of each class score above one of the rest?",
        ask="margin.theory.ranking_claims:area_by_class",
        demo="margin.theory.ranking_claims:many_demo",
        reference=DELONG,
        needs=(LABELS, MANY_CLASSES),
    ),
    Claim(
        name="theory/residuals.mae",
        summary="How far do predicted values lie from the observed ones, in the mean?",
        ask="margin.theory.residuals:mae",
        demo="margin.theory.residuals:demo",
        reference="Cochran 1977, Section 2.11 (error of a ratio)",
        needs=(REAL_VALUES,),
    ),
    Claim(
        name="theory/residuals.rmse",
        summary="How far do predicted values lie from the observed ones, in the root of the mean square?",
        ask="margin.theory.residuals:rmse",
        demo="margin.theory.residuals:demo",
        reference=RATIO,
        needs=(REAL_VALUES,),
    ),
    Claim(
        name="theory/residuals.r2",
        summary="What share of the targets' variance do the predictions take away?",
        ask="margin.theory.residuals:r2",
        demo="margin.theory.residuals:demo",
        reference=RATIO,
        needs=(REAL_VALUES,),
    ),
    Claim(
        name="theory/margins.distribution",
        summary="By how much does the right class's score exceed the best of the others?",
        ask="margin.theory.margins:distribution",
        demo="margin.theory.margins:demo",
        reference="Mohri, Rostamizadeh and Talwalkar 2018, Section 9.2",
        needs=(LABELS,),
    ),
    Claim(
        name="theory/calibration.ece",
        summary="Is a prediction made with confidence p right with frequency p?",
        ask="margin.theory.calibration_claims:ece",
        demo="margin.theory.calibration_claims:demo",
        reference="Guo, Pleiss, Sun and Weinberger 2017, Equation 3",
        needs=(LABELS, PROBABILITIES),
    ),
    Claim(
        name="theory/calibration.binary_ece",
        summary="Of two classes: is the confidence, and is the probability of class 1, met by frequency?",
        ask="margin.theory.calibration_claims:binary_ece",
        demo="margin.theory.calibration_claims:binary_demo",
        reference="Guo, Pleiss, Sun and Weinberger 2017, Equation 3",
        needs=(LABELS, PROBABILITIES, TWO_CLASSES),
    ),
    Claim(
        name="theory/calibration.brier",
        summary="What is the mean squared distance between forecast and outcome?",
        ask="margin.theory.calibration_claims:brier",
        demo="margin.theory.calibration_claims:demo",
        reference="Brier 1950, Equation 2",
        needs=(LABELS, PROBABILITIES),
    ),
    Claim(
        name="theory/calibration.nll",
        summary="How many nats of surprise does what happened hold, on average (the log loss)?",
        ask="margin.theory.calibration_claims:nll",
        demo="margin.theory.calibration_claims:demo",
        reference="Good 1952, Section 8",
        needs=(LABELS, PROBABILITIES),
    ),
    Claim(
        name="theory/curvature.sharpness",
        summary="What are the largest and smallest eigenvalues of the training loss's Hessian?",
        ask="margin.theory.curvature:sharpness",
        demo="margin.theory.curvature:demo",
        reference="Parlett 1980, Theorem 4.5.1; Lanczos 1950",
        needs=(TARGETS, PARAMETERS),
        cost=Cost(150, "train", 1024),
    ),
    Claim(
        name="theory/curvature.trace",
        summary="What is the trace of the training loss's Hessian?",
        ask="margin.theory.curvature:trace",
        demo="margin.theory.curvature:demo",
        reference="Hutchinson 1990, Proposition 1",
        needs=(TARGETS, PARAMETERS),
        cost=Cost(120, "train", 1024),
    ),
)

PARTS = (
    Part(
        name="theory/clopper_pearson",
        summary="The exact binomial interval.",
        kind="measure",
        target="margin.theory.risk:clopper_pearson",
        reference="Clopper and Pearson 1934 (Brown, Cai and DasGupta 2001, Section 4.2.1)",
    ),
    Part(
        name="theory/wilson",
        summary="The score interval of a proportion.",
        kind="measure",
        target="margin.theory.limits:wilson",
        reference=WILSON,
    ),
    Part(
        name="theory/confusion_matrix",
        summary="How often each class is taken for each.",
        kind="measure",
        target="margin.theory.confusion:confusion_matrix",
        reference="van Rijsbergen 1979, Chapter 7",
    ),
    Part(
        name="theory/auroc",
        summary="The area under the ROC curve with DeLong's variance, ties counting half.",
        kind="measure",
        target="margin.theory.ranking:auroc",
        reference=DELONG,
    ),
    Part(
        name="theory/output_margins",
        summary="The score of the right class less the best of the others.",
        kind="measure",
        target="margin.theory.margins:output_margins",
        reference="Mohri, Rostamizadeh and Talwalkar 2018, Section 9.2",
    ),
    Part(
        name="theory/expected_calibration_error",
        summary="The mean distance of frequency and probability over bins.",
        kind="measure",
        target="margin.theory.calibration:expected_calibration_error",
        reference="Guo, Pleiss, Sun and Weinberger 2017, Equation 3",
    ),
    Part(
        name="theory/extreme_eigenvalues",
        summary="Both ends of a symmetric matrix's spectrum with residuals, by the Lanczos process.",
        kind="measure",
        target="margin.theory.lanczos:extreme_eigenvalues",
        reference="Parlett 1980, Theorem 4.5.1 and Chapter 13",
    ),
    Part(
        name="theory/risk_hessian",
        summary="The Hessian of the empirical risk as a linear map.",
        kind="measure",
        target="margin.theory.hessian:risk_hessian",
        reference="Pearlmutter 1994, Section 2",
    ),
    Part(
        name="theory/hutchinson_trace",
        summary="The trace of a matrix from products with random signs, with its error.",
        kind="measure",
        target="margin.theory.trace:hutchinson_trace",
        reference="Hutchinson 1990, Proposition 1",
    ),
)
