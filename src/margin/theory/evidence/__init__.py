"""What the numbers rest on: copies, shift, giveaways, classes and groups of the data's two parts."""

from margin.core.catalog import LABELS, MOVABLE, TARGETS, TRAINING, Claim, Cost, Need

# fmt: off

ROWS = Need("a row of inputs for each example", "margin.theory.evidence.rows:has_rows")
REAL_TARGETS = Need("one label or one value for each example", "margin.theory.evidence.rows:has_one_target")

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/evidence.duplicates", ".duplicates:duplicates", ".duplicates:demo",
        "Duplicates: which held-out examples stand in the training part, or twice?",
        "Barz and Denzler 2020, Section 3 (duplicates of test images); Facco, d'Errico, Rodriguez and Laio "
        "2017, Section Methods (ratio of two nearest distances)", needs=(ROWS,),
        cost=Cost(0, "train", beside=3e-5), question="rests"),
    Claim("theory/evidence.shift", ".shift:shift", ".shift:demo",
        "Shift: are training and held-out inputs of one distribution, each feature and all together?",
        "Gretton, Borgwardt, Rasch, Schoelkopf and Smola 2012, Lemma 6; Holm 1979, Section 3; Rabanser, "
        "Guennemann and Lipton 2019, Section 3 (univariate and joint tests)",
        needs=(ROWS, MOVABLE, TRAINING), cost=Cost(0, "train", 5000, beside=5e-4), question="rests"),
    Claim("theory/evidence.giveaway", ".targets:giveaway", ".targets:demo",
        "Giveaway: does one feature alone tell the target?",
        "Kaufman, Rosset, Perlich and Stitelman 2012, Section 5 (leakage by one feature); Holte 1993, "
        "Section 2 (rules of one feature)", needs=(ROWS, MOVABLE, TRAINING, TARGETS, REAL_TARGETS),
        cost=Cost(0, "train", 5000, beside=1e-4), question="rests"),
    Claim("theory/evidence.classes", ".targets:classes", ".targets:classes_demo",
        "Classes: which have no example in a part, or too few to judge by?",
        "Brown, Cai and DasGupta 2001, Section 2 (a proportion of few)", needs=(LABELS, REAL_TARGETS),
        cost=Cost(0, "train", beside=1e-7), question="rests"),
    Claim("theory/evidence.groups", ".groups:groups", ".groups:demo",
        "Groups and time: does a group, a window or an ordered column lie across training and held-out part?",
        "Kapoor and Narayanan 2023, Table 1 (leakage by groups and time); Kaufman, Rosset, Perlich and "
        "Stitelman 2012, Section 3", needs=(ROWS, TRAINING), cost=Cost(0, "train", beside=4e-6),
        question="rests"),
)
# fmt: on
