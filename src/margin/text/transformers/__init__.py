"""Transformers of texts."""

from margin.core.catalog import Entry

DEVLIN_2019 = "Devlin, Chang, Lee and Toutanova 2019, Section 3"
RADFORD_2019 = "Radford, Wu, Child, Luan, Amodei and Sutskever 2019, Section 2.3"

GPT_TRAINING = {
    "max_steps": 2000,
    "batch_size": 12,
    "lr": 1e-3,
    "schedule": "cosine",
    "warmup": 100,
    "clip": 1.0,
}

PAIR_TRAINING = {
    "epochs": 30,
    "batch_size": 64,
    "lr": 1e-3,
    "schedule": "cosine",
    "warmup": 200,
    "patience": 5,
    "clip": 1.0,
}

BERT_TRAINING = {
    "epochs": 20,
    "batch_size": 32,
    "lr": 5e-4,
    "schedule": "cosine",
    "warmup": 100,
    "patience": 5,
    "clip": 1.0,
}

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("text/gpt",
        ".gpt:GPT", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:tokens",
        "A transformer that reads the past, to the distribution of the next token", RADFORD_2019,
        defaults=GPT_TRAINING, weights=".weights:gpt_weights", covers=("lm.gpt", "attn.causal")),
    Entry("text/transformer",
        ".encoder_decoder:Transformer", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:pairs",
        "An encoder-decoder of attention alone", "Vaswani et al. 2017, Section 3", defaults=PAIR_TRAINING,
        weights=".weights:marian_weights", covers=("transformer.seq2seq", "attn.cross")),
    Entry("text/bert",
        ".bert:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.texts:classes",
        "An encoder that reads a text from both sides, to class logits", DEVLIN_2019, takes="texts",
        defaults=BERT_TRAINING, weights=".weights:text_weights", covers=("lm.bert", "lm.finetune_heads")),
    Entry("text/bert:values",
        ".bert:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.texts:values",
        "An encoder that reads a text from both sides, to one real number", DEVLIN_2019, takes="texts",
        defaults=BERT_TRAINING, weights=".weights:text_weights"),
    Entry("text/bert:tags",
        ".bert:tagger", "margin.core.tasks:TAGS", "margin.data.sets.tiny.texts:tags",
        "An encoder that reads a text from both sides, to the class of each token", DEVLIN_2019,
        takes="tagged", defaults=BERT_TRAINING, weights=".weights:token_weights",
        covers=("lm.finetune_heads",)),
    Entry("text/bert:spans",
        ".bert:reader", "margin.core.tasks:SPANS", "margin.data.sets.tiny.texts:questions",
        "An encoder that reads a question and a text, to the ends of the answer", DEVLIN_2019,
        takes="questions", defaults=BERT_TRAINING, weights=".weights:token_weights",
        covers=("lm.finetune_heads",)),
    Entry("text/bert:masked",
        ".bert:masked", ".masking:MASKED", "margin.data.sets.tiny.sequences:corpus",
        "An encoder of texts that learns from hidden tokens and from which sentence follows which",
        DEVLIN_2019, takes="corpus", objective=".masking:masked_loss", examples=".masking:masked_pairs",
        defaults=BERT_TRAINING, weights=".weights:masked_weights", covers=("lm.bert", "lm.mlm", "lm.nsp")),
)
# fmt: on
