"""Word vectors: counts and PMI, skip-gram with negative sampling, GloVe, ELMo."""

from margin.core.catalog import KNOWN, TRAINING, Claim, Cost, Entry, Need, Part

MIKOLOV_2013 = "Mikolov, Sutskever, Chen, Corrado and Dean 2013, Equation 4"
PENNINGTON_2014 = "Pennington, Socher and Manning 2014, Equations 8 and 9"
CHURCH_1990 = "Church and Hanks 1990, Section 2"
WORDS = Need(
    "models with a vector for each of some known words", "margin.text.embeddings.claims:has_words", of="model"
)
LEARNS = Need("vectors of words", "margin.text.embeddings.analogy_claims:learns_words", of="model")
SKIPGRAM = Need("a skip-gram model", model="margin.text.embeddings.skipgram:SkipGram")
SPECTRAL = Need("singular vectors of words", model="margin.text.embeddings.spectral:SpectralWords")

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("text/skipgram",
        ".skipgram:SkipGram", "margin.core.tasks:CODES", "margin.data.sets.tiny.sequences:words",
        "Skip-gram: two vectors a word, whose product tells words of a window from noise", MIKOLOV_2013,
        reads="corpus", objective=".skipgram:negative_sampling", step=".skipgram:skip_gram",
        examples=".skipgram:windows",
        optimizers=(), parallel=False, defaults={"epochs": 5, "batch_size": 16},
        covers=("embed.skipgram", "embed.negative_sampling")),
    Entry("text/log_bilinear",
        ".models:LogBilinear", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:words",
        "Log-bilinear model: the distribution of a context word by a product of two vectors",
        "Mnih and Hinton 2007, Section 4", reads="corpus", examples=".counts:context_counts",
        defaults={"epochs": 20, "batch_size": 1024, "lr": 0.01}, covers=("embed.log_bilinear",)),
    Entry("text/glove",
        ".models:GloVe", "margin.core.tasks:CODES", "margin.data.sets.tiny.sequences:words",
        "GloVe: products of word vectors as logarithms of counts, by weighted least squares",
        PENNINGTON_2014, reads="corpus", step=".models:weighted_least_squares",
        examples=".counts:harmonic_entries",
        defaults={"epochs": 25, "batch_size": 4096, "lr": 0.05, "optimizer": "Adagrad"},
        covers=("embed.pretrained",)),
    Entry("text/pmi_svd",
        ".spectral:SpectralWords", "margin.core.tasks:CODES", "margin.data.sets.tiny.sequences:words",
        "Word vectors as singular vectors of positive pointwise mutual information, or of counts",
        "Levy and Goldberg 2014, Section 4", reads="corpus", step=".spectral:truncated_svd",
        examples=".counts:entries",
        optimizers=(), parallel=False, whole=True, weighted=False,
        defaults={"epochs": 1, "batch_size": "all"},
        covers=("embed.svd", "embed.cooccurrence", "embed.pmi")),
    Entry("text/elmo",
        ".elmo_heads:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.sequences:reviews",
        "ELMo: a learned mixture of the layers of two language models, to class logits",
        "Peters et al. 2018, Sections 3.2 and 3.3",
        defaults={"epochs": 20, "batch_size": 32, "lr": 1e-3, "patience": 3, "clip": 1.0},
        covers=("lm.elmo",)),
    Entry("text/elmo:tokens",
        ".elmo_heads:language", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:text",
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
    Part("text/preference_loss", "loss", "margin.nn.losses:preference_loss",
        "The loss of a reward model on two answers, of which one was preferred",
        "Bradley and Terry 1952; Ouyang et al. 2022, Equation 1", covers=("lm.alignment",)),
    Part("text/tilted", "fact", "margin.nn.losses:tilted",
        "The distribution of largest expected reward less a divergence from the one before",
        "Rafailov et al. 2023, Equation 4", covers=("lm.alignment",)),
    Part("text/word_vectors", "measure", ".vectors:read_vectors",
        "Vectors of words from files of word2vec, GloVe and NumPy: neighbors, analogies, similarity",
        "Mikolov, Yih and Zweig 2013, Section 4", covers=("embed.pretrained",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("text/vectors.neighbors", ".claims:neighbors", ".claims:words_demo",
        "Which words are the nearest neighbors of frequent words?", "Mikolov, Yih and Zweig 2013, Section 4",
        needs=(WORDS,), cost=Cost(0, beside=1e-4), question="right", figure=".figures:word_map",
        covers=("embed.skipgram",)),
    Claim("text/vectors.analogies", ".analogy_claims:by_section", ".analogy_claims:demo",
        "Which share of analogies is answered with the fourth word, by section?",
        "Mikolov, Chen, Corrado and Dean 2013, Section 4.1", needs=(WORDS, LEARNS),
        cost=Cost(0, beside=1e-4), question="right", covers=("embed.pretrained",)),
    Claim("text/skipgram.shifted_pmi", ".claims:shifted_pmi", ".claims:optimum_demo",
        "Do the scores rise with pointwise mutual information, as they do at the optimum?",
        "Levy and Goldberg 2014, Equations 6 to 8", needs=(SKIPGRAM, TRAINING),
        cost=Cost(0, "train", beside=1e-3), question="trained", covers=("embed.negative_sampling",)),
    Claim("text/pmi_svd.best_rank", ".claims:best_rank", ".claims:counts_demo",
        "Is no product of that rank nearer to the matrix of counts?", "Eckart and Young 1936, Theorem 1",
        needs=(SPECTRAL, TRAINING), by_name=KNOWN, cost=Cost(0, "train", beside=1e-5), covers=("embed.svd",)),
)
# fmt: on
