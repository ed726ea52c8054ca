"""Sequences: recurrent networks, linear recurrences and their scan, causal convolutions, encoder-decoders."""

from margin.core.catalog import Need, Part

FAMILIES = ("recurrent", "dynamics", "linear", "seq2seq", "convolution", "forecast")

FEEDBACK = Need(
    "models with a recurrence that feeds a state back",
    "margin.sequence.dynamics.gradient_claims:has_feedback",
    of="model",
)

SEQUENCE_TRAINING = {"epochs": 100, "batch_size": 32, "patience": 15, "clip": 1.0}
"""Defaults of the training of whole sequences."""

TEXT_TRAINING = {"epochs": 20, "batch_size": 50, "patience": 4, "lr": 0.002, "clip": 1.0}
"""Defaults of the training of texts with a class each, or a class at each token."""

TOKEN_TRAINING = {"max_steps": 3000, "batch_size": 32, "lr": 0.003, "schedule": "cosine", "clip": 1.0}
"""Defaults of the training of language models of gated cells."""

STREAMED = Need("models with a causal recurrence", "margin.sequence.recurrent.claims:streams", of="model")

GATED = Need(
    "models with a linear recurrence of gates", "margin.sequence.linear.scan_claims:has_gated", of="model"
)

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("sequence/greedy_decoding", "algorithm", "margin.nn.decoding:greedy",
        "The sequence whose every token is the most probable one after those before it",
        "Sutskever, Vinyals and Le 2014, Section 3.2", covers=("seq.sampling_modes",)),
    Part("sequence/beam_search", "algorithm", "margin.nn.decoding:beam",
        "The best sequence that a search finds which keeps so many at a time",
        "Sutskever, Vinyals and Le 2014, Section 3.2; Wu et al. 2016, Equation 14",
        covers=("seq.sampling_modes",)),
    Part("sequence/ancestral_sampling", "algorithm", "margin.nn.decoding:ancestral",
        "A draw from a model of the next token: each token from its distribution given those before",
        "Bishop 2006, Section 8.1.2; Graves 2013, Section 2", covers=("seq.sampling_modes",)),
    Part("sequence/scan", "algorithm", "margin.nn.scan:scan",
        "The states of z_t = a_t z_{t-1} + b_t in O(T) work and O(log T) depth, real or complex",
        "Blelloch 1990, Section 1.4; Martin and Cundy 2018, Section 2", covers=("rnn.prefix_scan",)),
    Part("sequence/doubling", "algorithm", "margin.nn.scan:doubling",
        "All partial compositions of z_t = a_t z_{t-1} + b_t in ceil(log2 T) steps on all of time",
        "Hillis and Steele 1986, Section All Partial Sums of an Array", covers=("rnn.prefix_scan",)),
)
# fmt: on
