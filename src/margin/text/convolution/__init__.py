"""Whole texts as classes and values: n-gram filters with a maximum over the text, and a bag of words."""

from margin.core.catalog import Entry
from margin.text import TEXT_TRAINING

KIM_2014 = "Kim 2014, Section 2"
JOULIN_2017 = "Joulin, Grave, Bojanowski and Mikolov 2017, Section 2"

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
# fmt: on
