"""What samples are worth: distances, coverage, memorization."""

from margin.core.catalog import TRAINING, Claim, Cost, Need, Part

SAMPLED = Need(
    "a model that can be sampled", "margin.generative.quality.sample_comparison:can_be_sampled", of="model"
)

ENOUGH = Need("16 held-out examples", "margin.generative.quality.sample_comparison:has_enough")

COMPONENTS = Need(
    "classes that are round Gaussians apart from each other, as of a known mixture",
    "margin.generative.quality.claims:has_components",
)

SAMPLING = Cost(passes=60, limit=1000)
LOPEZ_PAZ_2017 = "Lopez-Paz and Oquab 2017, Section 3"
MEEHAN_2020 = "Meehan, Chaudhuri and Dasgupta 2020, Section 3"
SRIVASTAVA_2017 = "Srivastava, Valkov, Russell, Gutmann and Sutton 2017, Section 5.1"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("generative/classifier_two_sample", "measure", ".measures:classifier_two_sample",
        "Classifier two-sample test: an accuracy that bounds total variation from below",
        LOPEZ_PAZ_2017),
    Part("generative/copying", "measure", ".measures:copying",
        "Data-copying test: are samples nearer to the training rows than held-out examples, by ranks",
        MEEHAN_2020),
    Part("generative/mode_coverage", "measure", ".measures:mode_coverage",
        "Mode coverage: modes of a known mixture that a sample covers, and its share of good samples",
        SRIVASTAVA_2017, covers=("gan.mode_collapse",)),
    Part("generative/samples_track", "track", ".sample_comparison:track",
        "Sliced Wasserstein distance of samples from the training rows, at every evaluation",
        "Kolouri et al. 2019, Section 2"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/samples.sliced_wasserstein",
        ".claims:sliced", ".claims:ring_subject",
        "Sliced Wasserstein distance of a generator's samples from held-out examples",
        "Bonneel, Rabin, Peyre and Pfister 2015; Kolouri et al. 2019, Section 2", needs=(SAMPLED, ENOUGH),
        cost=SAMPLING, figure=".figures:samples"),
    Claim("generative/samples.mmd", ".claims:mmd", ".claims:ring_subject",
        "Kernel two-sample test (MMD): are samples and held-out examples of one distribution?",
        "Gretton, Borgwardt, Rasch, Schoelkopf and Smola 2012, Lemma 6", needs=(SAMPLED, ENOUGH),
        cost=SAMPLING),
    Claim("generative/samples.two_sample", ".claims:two_sample", ".claims:ring_subject",
        "Classifier two-sample test of samples and held-out examples, and the total variation it implies",
        LOPEZ_PAZ_2017,
        needs=(SAMPLED, ENOUGH), cost=SAMPLING, question="right"),
    Claim("generative/samples.precision_recall",
        ".claims:precision_recall", ".claims:ring_subject",
        "Precision, recall, density and coverage: sample quality and reach",
        "Kynkaanniemi et al. 2019, Equations 1 and 2; Naeem, Oh, Uh, Choi and Yoo 2020, Section 3",
        needs=(SAMPLED, ENOUGH), cost=SAMPLING),
    Claim("generative/samples.memorization",
        ".claims:memorization", ".claims:ring_subject",
        "Memorization: are samples nearer to training rows than unseen examples are?", MEEHAN_2020,
        needs=(SAMPLED, ENOUGH, TRAINING), cost=SAMPLING, figure=".figures:sample_images",
        question="memorized"),
    Claim("generative/samples.modes", ".claims:modes", ".claims:ring_subject",
        "Mode coverage: which components of a mixture are covered, and how many samples are good?",
        SRIVASTAVA_2017,
        needs=(SAMPLED, ENOUGH, COMPONENTS), cost=SAMPLING, covers=("gan.mode_collapse",)),
)
# fmt: on
