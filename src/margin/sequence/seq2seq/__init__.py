"""From a sequence to another."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part

SEQ2SEQ = Need("an encoder-decoder", model="margin.nn.seq2seq:Seq2Seq")

ALIGNING = Need("an encoder-decoder with attention", model="margin.nn.seq2seq:AligningSeq2Seq")

PAIR_TRAINING = {"epochs": 30, "batch_size": 64, "patience": 5, "clip": 1.0}

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("sequence/encoder_decoder",
        ".model:EncoderDecoder", "margin.core.tasks:TOKENS",
        "margin.data.sets.tiny.sequences:pairs",
        "A recurrence that reads a source into one vector, and one that writes the target from it",
        "Sutskever, Vinyals and Le 2014, Section 2; Cho et al. 2014, Section 2.2", defaults=PAIR_TRAINING,
        covers=("seq2seq.encoder_decoder",)),
    Entry("sequence/attention_seq2seq",
        ".model:AttentionSeq2Seq", "margin.core.tasks:TOKENS",
        "margin.data.sets.tiny.sequences:pairs",
        "An encoder-decoder that reads the whole source anew before each token of the target",
        "Bahdanau, Cho and Bengio 2015, Section 3", defaults=PAIR_TRAINING, covers=("seq2seq.attention",)),
)

PARTS: tuple[Part, ...] = (
    Part("sequence/additive_attention", "layer", ".model:AdditiveAttention",
        "Weights softmax(v . tanh(W z + U zeta_j)) over annotations zeta, and their mean under them",
        "Bahdanau, Cho and Bengio 2015, Equations 5 and 6", covers=("seq2seq.attention",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("sequence/attention_seq2seq.rows", ".claims:rows", ".claims:demo",
        "Does each row of the attention sum to 1, and does padding have exactly the weight 0?",
        "Bahdanau, Cho and Bengio 2015, Equation 6", needs=(ALIGNING,), cost=Cost(limit=200), by_name=KNOWN,
        covers=("seq2seq.attention",)),
    Claim("sequence/attention_seq2seq.alignment", ".claims:alignment", ".claims:reversal_demo",
        "How often is the source token that is read most at the target token's own place?",
        "Bahdanau, Cho and Bengio 2015, Section 5.2.1 and Figure 3", needs=(ALIGNING,), cost=Cost(limit=200),
        covers=("seq2seq.attention",), figure=".figures:alignment"),
    Claim("sequence/seq2seq.normalization", ".claims:normalization", ".claims:demo",
        "Do the probabilities of all targets of a source sum to 1?",
        "Sutskever, Vinyals and Le 2014, Section 2, Equation 1", needs=(SEQ2SEQ,), cost=Cost(limit=1),
        by_name=KNOWN, covers=("seq2seq.encoder_decoder",)),
    Claim("sequence/seq2seq.search", ".claims:search", ".claims:smallest",
        "How much more probable are the translations of a beam than greedy ones?",
        "Sutskever, Vinyals and Le 2014, Section 3.2", needs=(SEQ2SEQ,), cost=Cost(passes=20, limit=200),
        covers=("seq.sampling_modes",)),
    Claim("sequence/seq2seq.by_length", ".claims:by_length", ".claims:reversal_demo",
        "How much less often is the next token right where the source is long?",
        "Bahdanau, Cho and Bengio 2015, Section 5.1 and Figure 2", needs=(SEQ2SEQ,),
        covers=("seq2seq.encoder_decoder",)),
)
# fmt: on
