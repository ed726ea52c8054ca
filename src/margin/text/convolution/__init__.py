"""Whole texts as classes and values: n-gram filters with a maximum over the text, and a bag of words."""

from margin.core.catalog import Claim, Cost, Entry, Need, Part
from margin.text import TEXT_TRAINING

KIM_2014 = "Kim 2014, Section 2"
JOULIN_2017 = "Joulin, Grave, Bojanowski and Mikolov 2017, Section 2"

FILTERS = Need("a text CNN", "margin.text.convolution.claims:has_filters", of="model")

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("text/text_cnn",
        ".text_cnn:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.texts:classes",
        "Filters over runs of words, the largest answer of each over the text, to class logits", KIM_2014,
        takes="texts", defaults=TEXT_TRAINING, covers=("conv1d.text",)),
    Entry("text/text_cnn:values",
        ".text_cnn:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.texts:values",
        "Filters over runs of words, the largest answer of each over the text, to one real number", KIM_2014,
        takes="texts", defaults=TEXT_TRAINING),
    Entry("text/bag_of_words",
        ".text_cnn:bag_classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.texts:classes",
        "The mean of the vectors of a text's words, to class logits: the baseline without order", JOULIN_2017,
        takes="texts", defaults={**TEXT_TRAINING, "lr": 0.01}),
    Entry("text/bag_of_words:values",
        ".text_cnn:bag_regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.texts:values",
        "The mean of the vectors of a text's words, to one real number", JOULIN_2017,
        takes="texts", defaults={**TEXT_TRAINING, "lr": 0.01}),
)

PARTS: tuple[Part, ...] = (
    Part("text/ngram_filters", "layer", ".text_cnn:NgramFilters",
        "The largest answer of filters over runs of words, of each of several widths", KIM_2014,
        covers=("conv1d.text",)),
    Part("text/wordpiece", "algorithm", ".subwords:wordpiece",
        "A word cut into the longest pieces of a vocabulary from its beginning on, or unknown",
        "Schuster and Nakajima 2012; Wu et al. 2016, Section 4.1", covers=("tokenizer.wordpiece",)),
    Part("text/train_wordpiece", "algorithm", ".subwords:train_wordpiece",
        "WordPieces by joining the pair of the largest count(ab) / (count(a) count(b))",
        "Schuster and Nakajima 2012, Section 3", covers=("tokenizer.wordpiece",)),
    Part("text/byte_pairs", "algorithm", ".subwords:merged",
        "A word's pieces joined pair by pair in the order in which the pairs were learned",
        "Sennrich, Haddow and Birch 2016, Section 3.2"),
    Part("text/tokenizer", "algorithm", "margin.data.formats.text.tokenizers:Tokenizer",
        "Texts as numbered characters, words, WordPieces or byte pairs, and back",
        "Wu et al. 2016, Section 4.1; Radford et al. 2019, Section 2.2", covers=("tokenizer.wordpiece",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("text/filters.ngrams", ".claims:ngrams", ".claims:demo",
        "Which runs of words do the filters answer to most, and for which class does that count?", KIM_2014,
        needs=(FILTERS,), cost=Cost(1, limit=8), question="rests", figure=".figures:ngrams",
        covers=("conv1d.text",)),
)
# fmt: on
