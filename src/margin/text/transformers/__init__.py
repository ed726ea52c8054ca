"""Transformers of texts."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part

NEXT_TOKEN = Need("predictions of the next token", "margin.sequence.convolution.claims:predicts_next")
ALONE = Need("tokens as the only input", "margin.text.transformers.language_claims:reads_alone")
GOES_ON = Need(
    "a model of the next token that goes on step by step",
    "margin.text.transformers.language_claims:goes_on",
)
ATTENTION = Need("models with self-attention", "margin.text.transformers.claims:attends", of="model")
FREE = Need(
    "models with self-attention that is not causal",
    "margin.text.transformers.claims:mixes_freely",
    of="model",
)
READS = Need(
    "models of tokens with self-attention", "margin.text.transformers.claims:reads_tokens", of="model"
)
PLACED = Need("models of tokens with positions", "margin.text.transformers.claims:placed", of="model")
MASKS = Need("texts with hidden tokens", "margin.text.transformers.claims:masks")

VASWANI_2017 = "Vaswani et al. 2017, Section 3.2.1"
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

UNWINDOWED = {"stride": 0}
"""The option of a sliding window, as it was before there was one."""

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
        defaults=BERT_TRAINING, newer=UNWINDOWED, weights=".weights:text_weights",
        covers=("lm.bert", "lm.finetune_heads")),
    Entry("text/bert:values",
        ".bert:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.texts:values",
        "An encoder that reads a text from both sides, to one real number", DEVLIN_2019, takes="texts",
        defaults=BERT_TRAINING, newer=UNWINDOWED, weights=".weights:text_weights"),
    Entry("text/bert:tags",
        ".bert:tagger", "margin.core.tasks:TAGS", "margin.data.sets.tiny.texts:tags",
        "An encoder that reads a text from both sides, to the class of each token", DEVLIN_2019,
        takes="tagged", defaults=BERT_TRAINING, newer=UNWINDOWED, weights=".weights:token_weights",
        covers=("lm.finetune_heads",)),
    Entry("text/bert:spans",
        ".bert:reader", "margin.core.tasks:SPANS", "margin.data.sets.tiny.texts:questions",
        "An encoder that reads a question and a text, to the ends of the answer", DEVLIN_2019,
        takes="questions", defaults=BERT_TRAINING, newer=UNWINDOWED, weights=".weights:token_weights",
        covers=("lm.finetune_heads",)),
    Entry("text/bert:masked",
        ".bert:masked", ".masking:MASKED", "margin.data.sets.tiny.sequences:corpus",
        "An encoder of texts that learns from hidden tokens and from which sentence follows which",
        DEVLIN_2019, takes="corpus", objective=".masking:masked_loss", examples=".masking:masked_pairs",
        defaults=BERT_TRAINING, newer=UNWINDOWED, weights=".weights:masked_weights",
        covers=("lm.bert", "lm.mlm", "lm.nsp")),
)

PARTS: tuple[Part, ...] = (
    Part("text/monolingual_pretraining", "algorithm", "margin.engine.transfer:transfer",
        "A decoder that learns its language behind an empty source first, then from fewer pairs",
        "Ramachandran, Liu and Le 2017, Section 2", covers=("lm.monolingual_pretraining",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("text/language.perplexity",
        ".language_claims:perplexity", ".language_claims:demo",
        "Perplexity: among how many tokens does the model guess, and how many bits has a token?",
        "Goodfellow, Bengio and Courville 2016, Section 12.4", needs=(NEXT_TOKEN,), question="right",
        covers=("lm.perplexity",)),
    Claim("text/language.normalization",
        ".language_claims:normalization", ".language_claims:demo",
        "Do the probabilities of all continuations of a token sum to 1?",
        "Bengio, Ducharme, Vincent and Jauvin 2003, Section 1", needs=(NEXT_TOKEN, ALONE),
        cost=Cost(limit=1), by_name=KNOWN, covers=("lm.factorisation",)),
    Claim("text/language.steps",
        ".language_claims:steps", ".language_claims:demo",
        "Are the logits of a text that is read token by token those of the whole text?",
        "Vaswani et al. 2017, Section 3.1", needs=(GOES_ON,), cost=Cost(20, limit=4), by_name=KNOWN,
        covers=("lm.gpt",)),
    Claim("text/attention.rank",
        ".claims:rank", ".claims:demo",
        "Have the scores of a head no more ranks than its queries have numbers?", VASWANI_2017,
        needs=(ATTENTION,), by_name=KNOWN, covers=("attn.bilinear",)),
    Claim("text/attention.mixture",
        ".claims:mixture", ".claims:demo",
        "Is each row of attention a convex combination?", VASWANI_2017, needs=(ATTENTION,),
        cost=Cost(4, limit=16), by_name=KNOWN, covers=("attn.mixing",)),
    Claim("text/attention.permutation",
        ".claims:permutation", ".claims:demo",
        "Does attention without positions know no order?", "Vaswani et al. 2017, Section 3.5",
        needs=(FREE,), cost=Cost(4, limit=16), by_name=KNOWN,
        covers=("attn.permutation_equivariance",)),
    Claim("text/attention.positions",
        ".claims:positions", ".claims:demo",
        "How far do the outputs move where positions are left out?", "Vaswani et al. 2017, Section 3.5",
        needs=(PLACED,), cost=Cost(4, limit=16), question="moves",
        covers=("attn.permutation_equivariance", "attn.positional_sinusoidal")),
    Claim("text/attention.cost",
        ".claims:cost", ".claims:demo",
        "Do the operations of attention grow as the square of the length?",
        "Vaswani et al. 2017, Table 1", needs=(ATTENTION,), by_name=KNOWN,
        covers=("transformer.complexity",)),
    Claim("text/attention.maps",
        ".claims:maps", ".claims:reading_demo",
        "Over how many tokens is the attention of each layer spread?",
        "Clark, Khandelwal, Levy and Manning 2019, Section 3", needs=(READS,), cost=Cost(4, limit=16),
        question="moves", figure=".figures:attention_map", covers=("attn.mixing",)),
    Claim("text/masking.rule",
        ".claims:rule", ".claims:masked_demo",
        "Are hidden tokens shown as [MASK], as another and as they are in 80, 10 and 10 %?",
        "Devlin et al. 2019, Section 3.1", needs=(MASKS,), by_name=KNOWN, covers=("lm.mlm",)),
)
# fmt: on
