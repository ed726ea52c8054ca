"""Halfspaces and their margins."""

from margin.core.catalog import KNOWN, LABELS, TRAINING, Claim, Cost, Entry, Need, Part

PERCEPTRON = Need("a perceptron", model="margin.classic.perceptron.model:Perceptron")

HALFSPACE = Need(
    "a perceptron or a maximum-margin separator", "margin.classic.perceptron.claims:is_halfspace", of="model"
)

ROWS = Need("one real input and one label an example", "margin.classic.perceptron.claims:has_rows")
UNTIL_RIGHT = {"epochs": 100, "batch_size": "all", "until": {"mistakes": 0}}
COVER_1965 = "Cover 1965, Theorem 1"
COVER_1965_A = "Cover 1965, Section III"
NOVIKOFF_1962 = "Novikoff 1962; Freund and Schapire 1999, Theorem 1"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("classic/perceptron",
        ".model:Perceptron", "margin.core.tasks:HALFSPACE", "margin.data.sets.tiny.tables:sides",
        "A halfspace, learned by Rosenblatt's mistake rule until a pass makes no mistake",
        "Rosenblatt 1958; Novikoff 1962, Section 1", step=".model:mistake_rule", optimizers=(),
        parallel=False, whole=True, defaults={"epochs": 1000, "batch_size": "all", "until": {"mistakes": 0}},
        covers=("perceptron.model", "perceptron.margin", "perceptron.algorithm")),
    Entry("classic/averaged_perceptron",
        ".averaged_perceptron:AveragedPerceptron", "margin.core.tasks:HALFSPACE",
        "margin.data.sets.tiny.tables:sides",
        "The halfspace of the mean of all weights that the mistake rule passes through",
        "Freund and Schapire 1999, Section 2; Collins 2002, Section 2.3",
        step=".averaged_perceptron:averaged_mistake_rule", optimizers=(), parallel=False, whole=True,
        defaults=UNTIL_RIGHT),
    Entry("classic/multiclass_perceptron",
        ".multiclass_perceptron:MulticlassPerceptron", "margin.core.tasks:SCORES",
        "margin.data.sets.tiny.tables:classes",
        "One row of weights a class: at a mistake the label's gains what its rival's loses (Kesler)",
        "Nilsson 1965; Duda, Hart and Stork 2001, Section 5.12; Crammer and Singer 2003",
        step=".multiclass_perceptron:multiclass_mistake_rule", optimizers=(), parallel=False, whole=True,
        defaults=UNTIL_RIGHT),
    Entry("classic/kernel_perceptron",
        ".kernel_perceptron:KernelPerceptron", "margin.core.tasks:HALFSPACE",
        "margin.data.sets.tiny.tables:moons",
        "The mistake rule in its dual form, with a polynomial or Gaussian kernel",
        "Aizerman, Braverman and Rozonoer 1964; Freund and Schapire 1999, Section 3",
        step=".kernel_perceptron:dual_mistake_rule", optimizers=(), parallel=False, whole=True,
        defaults=UNTIL_RIGHT, covers=("perceptron.span",)),
    Entry("classic/max_margin",
        ".max_margin:MaximumMargin", "margin.core.tasks:HALFSPACE", "margin.data.sets.tiny.tables:sides",
        "The halfspace of largest margin, by an exact solve; the classes must be separable",
        "Vapnik and Lerner 1963; Cortes and Vapnik 1995, Section 2", step=".max_margin:widest_margin",
        optimizers=(), parallel=False, whole=True, defaults={"epochs": 1, "batch_size": "all"},
        covers=("perceptron.max_margin",)),
)

PARTS: tuple[Part, ...] = (
    Part("classic/xor", "fact", ".separation:xor",
        "Four points that no threshold unit separates", "Minsky and Papert 1969, Section 1",
        covers=("perceptron.xor",)),
    Part("classic/xor_network", "fact", ".separation:equality_network",
        "Three threshold units, weights set by hand, that separate what one cannot",
        "Rumelhart, Hinton and Williams 1986, Section The XOR problem", covers=("perceptron.xor",)),
    Part("classic/general_position", "measure", ".separation:dependent_subset",
        "The first subset of at most n points of R^n that is linearly dependent, or none",
        "Cover 1965, Section II", covers=("linsep.general_position",)),
    Part("classic/cover_count", "fact", ".cover:cover_count",
        "How many dichotomies hyperplanes make of s points in general position in R^n", COVER_1965,
        covers=("linsep.cover_count",)),
    Part("classic/separable_share", "fact", ".cover:separable_share",
        "The probability C(s, n) / 2^s that randomly labeled points can be separated: 1/2 at s = 2n",
        COVER_1965_A, covers=("linsep.capacity",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("classic/perceptron.novikoff", ".claims:novikoff", ".claims:long_demo",
        "Does the mistake rule err at most (R / gamma)^2 times on the training examples?", NOVIKOFF_1962,
        by_name=KNOWN, needs=(LABELS, TRAINING, PERCEPTRON), cost=Cost(passes=100, part="train"),
        covers=("perceptron.novikoff",)),
    Claim("classic/perceptron.lemmas", ".claims:lemmas", ".claims:long_demo",
        "Do both halves of Novikoff's proof hold at every mistake of the rule?", NOVIKOFF_1962,
        by_name=KNOWN, needs=(LABELS, TRAINING, PERCEPTRON), cost=Cost(passes=100, part="train")),
    Claim("classic/perceptron.span", ".claims:span", ".claims:wide_demo",
        "Do the weights stay in the span of the examples, with whole mistake counts as coefficients?",
        "Novikoff 1962; Freund and Schapire 1999, Section 3", needs=(LABELS, TRAINING, PERCEPTRON),
        cost=Cost(passes=100, part="train"), covers=("perceptron.span",)),
    Claim("classic/perceptron.margin", ".claims:margin", ".claims:trained_demo",
        "How wide is the margin of the training examples, and how wide could it be?",
        "Cortes and Vapnik 1995, Section 2; Bennett and Bredensteiner 2000, Section 2",
        needs=(LABELS, TRAINING, HALFSPACE), cost=Cost(part="train"),
        covers=("perceptron.margin", "perceptron.max_margin"), figure=".figures:halfspace"),
    Claim("classic/perceptron.scale", ".claims:scale", ".claims:trained_demo",
        "Does a positive factor of (w, b) change a side or a margin?", "Cortes and Vapnik 1995, Section 2",
        by_name=KNOWN,
        needs=(LABELS, TRAINING, HALFSPACE), cost=Cost(part="train"), covers=("perceptron.model",)),
    Claim("classic/perceptron.version_space",
        ".separation_claims:version_space", ".separation_claims:version_space_demo",
        "Does the set of separating (w, b) only shrink as examples are added?",
        "Mitchell 1982, Section 3; Herbrich 2002, Section 2.1", needs=(LABELS, TRAINING, HALFSPACE),
        cost=Cost(part="train"), by_name="true of every training set", covers=("perceptron.version_space",)),
    Claim("classic/max_margin.optimality", ".separation_claims:optimality", ".separation_claims:demo",
        "Does the separator meet the conditions that single out the widest?",
        "Kuhn and Tucker 1951, Theorem 3; Cortes and Vapnik 1995, Appendix A.1, Section 2",
        needs=(LABELS, TRAINING,
            Need("a maximum-margin separator",
                 model="margin.classic.perceptron.max_margin:MaximumMargin")),
        cost=Cost(part="train"), covers=("perceptron.max_margin",), figure=".figures:halfspace"),
    Claim("classic/multiclass_perceptron.mistakes",
        ".mistake_bounds:multiclass", ".mistake_bounds:multiclass_demo",
        "Does the multiclass rule err at most 2 (R / gamma)^2 times on the training examples?",
        "Novikoff 1962; Duda, Hart and Stork 2001, Section 5.12",
        by_name=KNOWN, needs=(LABELS, TRAINING,
            Need("a multiclass perceptron of few examples",
                 "margin.classic.perceptron.mistake_bounds:is_multiclass", of="model")),
        cost=Cost(part="train")),
    Claim("classic/kernel_perceptron.mistakes", ".mistake_bounds:kernel", ".mistake_bounds:kernel_demo",
        "Does the kernel perceptron err at most R^2 / gamma^2 times, both in the kernel's space?",
        NOVIKOFF_1962,
        by_name=KNOWN, needs=(LABELS, TRAINING,
            Need("a kernel perceptron of few examples",
                 "margin.classic.perceptron.mistake_bounds:is_kernel", of="model")),
        cost=Cost(part="train")),
    Claim("classic/separation.separable", ".separation_claims:separable", ".separation_claims:xor_demo",
        "Can a hyperplane separate the training examples of each class from the rest?",
        "Gordan 1873; Minsky and Papert 1969, Section 12.1; Cover 1965, Theorem 1",
        needs=(LABELS, TRAINING, ROWS), cost=Cost(part="train"),
        covers=("perceptron.xor", "perceptron.version_space")),
    Claim("classic/separation.cover_count", ".cover:count", ".cover:demo",
        "Do hyperplanes make as many dichotomies of the training examples as Cover counts?", COVER_1965,
        by_name=KNOWN, needs=(LABELS, TRAINING, HALFSPACE), cost=Cost(part="train"),
        covers=("linsep.cover_count", "linsep.general_position")),
    Claim("classic/separation.capacity", ".cover:transition", ".cover:demo",
        "Can half of all labelings of twice as many examples as weights be separated?", COVER_1965_A,
        by_name=KNOWN,
        needs=(LABELS, TRAINING, HALFSPACE), cost=Cost(part="train"), covers=("linsep.capacity",)),
)
# fmt: on
