"""Word vectors: counts and PMI, skip-gram with negative sampling, GloVe, ELMo."""

from margin.core.catalog import Entry, Part

MIKOLOV_2013 = "Mikolov, Sutskever, Chen, Corrado and Dean 2013, Equation 4"
PENNINGTON_2014 = "Pennington, Socher and Manning 2014, Equations 8 and 9"
CHURCH_1990 = "Church and Hanks 1990, Section 2"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("text/skipgram",
        ".skipgram:SkipGram", "margin.core.tasks:CODES", "margin.data.sets.tiny.sequences:words",
        "Skip-gram: two vectors a word, whose product tells words of a window from noise", MIKOLOV_2013,
        objective=".skipgram:negative_sampling", step=".skipgram:skip_gram", examples=".skipgram:windows",
        optimizers=(), parallel=False, defaults={"epochs": 5, "batch_size": 16},
        covers=("embed.skipgram", "embed.negative_sampling")),
    Entry("text/log_bilinear",
        ".models:LogBilinear", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:words",
        "Log-bilinear model: the distribution of a context word by a product of two vectors",
        "Mnih and Hinton 2007, Section 4", examples=".counts:context_counts",
        defaults={"epochs": 20, "batch_size": 1024, "lr": 0.01}, covers=("embed.log_bilinear",)),
    Entry("text/glove",
        ".models:GloVe", "margin.core.tasks:CODES", "margin.data.sets.tiny.sequences:words",
        "GloVe: products of word vectors as logarithms of counts, by weighted least squares",
        PENNINGTON_2014, step=".models:weighted_least_squares", examples=".counts:harmonic_entries",
        defaults={"epochs": 25, "batch_size": 4096, "lr": 0.05, "optimizer": "Adagrad"},
        covers=("embed.pretrained",)),
    Entry("text/pmi_svd",
        ".models:SpectralWords", "margin.core.tasks:CODES", "margin.data.sets.tiny.sequences:words",
        "Word vectors as singular vectors of positive pointwise mutual information, or of counts",
        "Levy and Goldberg 2014, Section 4", step=".models:truncated_svd", examples=".counts:entries",
        optimizers=(), parallel=False, whole=True, weighted=False,
        defaults={"epochs": 1, "batch_size": "all"},
        covers=("embed.svd", "embed.cooccurrence", "embed.pmi")),
    Entry("text/elmo:tokens",
        ".elmo:language", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:words",
        "ELMo: LSTMs in both directions on words from their characters, to the next word",
        "Peters et al. 2018, Section 3.1", objective=".elmo:both_directions",
        defaults={"epochs": 5, "batch_size": 32, "lr": 2e-3, "schedule": "cosine", "clip": 1.0},
        covers=("lm.elmo",)),
)

PARTS: tuple[Part, ...] = (
    Part("text/cooccurrence", "measure", ".counts:cooccurrences",
        "How often each two words stand within a window of each other", CHURCH_1990,
        covers=("embed.cooccurrence",)),
    Part("text/pmi", "measure", ".counts:pmi",
        "Pointwise mutual information of two words, log p(a, b) / (p(a) p(b))", CHURCH_1990,
        covers=("embed.pmi",)),
    Part("text/mutual_information", "measure", ".counts:mutual_information",
        "Mutual information of a table of counts, the expected pointwise one",
        "Cover and Thomas 2006, Equation 2.28", covers=("embed.pmi",)),
)
# fmt: on
