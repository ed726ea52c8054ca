"""Questions put to any module: risk, margins, calibration, curvature."""

from margin.catalog import LABELS, PARAMETERS, PROBABILITIES, TARGETS, TRAINING, Claim, Need, Part

TWO_CLASSES = Need(
    "the probabilities of exactly two classes", "margin.theory.calibration_claims:has_two_classes"
)

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
        summary="How many nats of surprise does what happened hold, on average?",
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
    ),
    Claim(
        name="theory/curvature.trace",
        summary="What is the trace of the training loss's Hessian?",
        ask="margin.theory.curvature:trace",
        demo="margin.theory.curvature:demo",
        reference="Hutchinson 1990, Proposition 1",
        needs=(TARGETS, PARAMETERS),
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
