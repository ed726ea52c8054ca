"""Recurrences linear in the state, by a parallel scan."""

from margin.core.catalog import INITIAL, KNOWN, Claim, Cost, Entry, Need, Part
from margin.sequence import GATED, SEQUENCE_TRAINING, TOKEN_TRAINING

RECURRENT_UNIT = Need(
    "models with linear recurrent units", "margin.sequence.linear.lru_claims:has_lru", of="model"
)

BLOCK_TRAINING = {"epochs": 50, "batch_size": 32, "lr": 0.002, "clip": 1.0}
ORVIETO_2024 = "Orvieto, De, Gulcehre, Pascanu and Smith 2024, Section 3"
FENG_2024 = "Feng, Tung, Ahmed, Bengio and Hajimirsadeghi 2024, Section 3.1"
ORVIETO_2023 = "Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu and De 2023, Sections 3.2 to 3.4"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("sequence/mingru",
        ".mingru:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.sequences:ragged_classes",
        "Minimal gated recurrent units, whose time is one scan, to class logits", FENG_2024,
        defaults=SEQUENCE_TRAINING, covers=("rnn.mingru", "gate")),
    Entry("sequence/mingru:values",
        ".mingru:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.sequences:values",
        "Minimal gated recurrent units, whose time is one scan, to one real number", FENG_2024,
        defaults=SEQUENCE_TRAINING, formerly=("sequence/mingru_regressor",)),
    Entry("sequence/mingru:tokens",
        ".mingru:language", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:tokens",
        "Minimal gated recurrent units to the distribution of the next token", FENG_2024,
        defaults=TOKEN_TRAINING, formerly=("sequence/mingru_language",)),
    Entry("sequence/minlstm",
        ".minlstm:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.sequences:ragged_classes",
        "Minimal LSTMs, of two gates normalized, to class logits",
        "Feng, Tung, Ahmed, Bengio and Hajimirsadeghi 2024, Section 3.2", defaults=SEQUENCE_TRAINING),
    Entry("sequence/lru",
        ".lru:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.sequences:ragged_classes",
        "Linear recurrent units: a stable diagonal complex recurrence, then gates, to classes", ORVIETO_2023,
        defaults=BLOCK_TRAINING, covers=("rnn.lru",)),
    Entry("sequence/lru:values",
        ".lru:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.sequences:values",
        "Linear recurrent units, to one real number of a sequence", ORVIETO_2023, defaults=BLOCK_TRAINING,
        formerly=("sequence/lru_regressor",)),
    Entry("sequence/lru:tokens",
        ".lru:language", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:tokens",
        "Linear recurrent units over token vectors, to the logits of the next token", ORVIETO_2023,
        defaults={"epochs": 20, "batch_size": 32, "lr": 2e-3, "clip": 1.0},
        formerly=("sequence/lru_language",)),
    Entry("sequence/linear_system",
        ".linear_system:classifier", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.sequences:ragged_classes",
        "Linear recurrences of dense transition z_t = A z_{t-1} + B x_t, then gates, to classes",
        "Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu and De 2023, Section 3.1", defaults=BLOCK_TRAINING,
        covers=("rnn.linear_system",)),
)

PARTS: tuple[Part, ...] = (
    Part("sequence/linear_stability", "test", ".linear_system:stability",
        "Whether the powers of a matrix vanish, stay bounded or grow, by its eigenvalues",
        "Antsaklis and Michel 2006, Section 4.8", covers=("rnn.linear_system",)),
    Part("sequence/diagonalized", "function", ".linear_system:diagonalized",
        "A linear system in the basis of its eigenvectors, where each state goes its own way",
        "Horn and Johnson 2013, Theorem 1.3.7", covers=("rnn.linear_system",)),
    Part("sequence/impulse_response", "function", ".linear_system:impulse_response",
        "The outputs C A^k B that an impulse leaves k steps later", "Antsaklis and Michel 2006, Section 2.7",
        covers=("rnn.linear_system",)),
    Part("sequence/reconstructed", "function", ".lru:reconstructed",
        "A sequence read back from a linear recurrence's last state, and the condition of it", ORVIETO_2024,
        covers=("rnn.linear_universality",)),
    Part("sequence/gated_average", "layer", ".mingru:gated_average",
        "The states of z_t = s_t z_{t-1} + (1 - s_t) v_t, gates and scan in one pass", FENG_2024,
        covers=("gate",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("sequence/scan.is_loop", ".scan_claims:is_loop", ".scan_claims:demo",
        "Is the parallel scan of a model's own gates the loop, but for rounding?",
        "Blelloch 1990, Section 1.4; Higham 2002, Section 3.1", needs=(GATED,), cost=Cost(4, limit=8),
        by_name=KNOWN, covers=("rnn.prefix_scan", "rnn.mingru")),
    Claim("sequence/scan.associative", ".scan_claims:associative", ".scan_claims:demo",
        "Does it matter, beyond rounding, which of a model's own steps are composed first?",
        "Blelloch 1990, Section 1.4", needs=(GATED,), cost=Cost(2, limit=8), by_name=KNOWN,
        covers=("rnn.prefix_scan", "rnn.mingru")),
    Claim("sequence/scan.depth", ".scan_claims:depth", ".scan_claims:demo",
        "After how many doublings, at most ceil(log2 T), are all states of a layer right?",
        "Hillis and Steele 1986, Section All Partial Sums of an Array", needs=(GATED,), cost=Cost(4, limit=8),
        by_name=KNOWN, covers=("rnn.prefix_scan",)),
    Claim("sequence/lru.stability", ".lru_claims:stability", ".lru_claims:demo",
        "Is the modulus of every eigenvalue below 1, and how long is the longest memory?",
        "Orvieto et al. 2023, Section 3.3", needs=(RECURRENT_UNIT,), covers=("rnn.lru",)),
    Claim("sequence/lru.variance", ".lru_claims:variance", ".lru_claims:demo",
        "Does white input leave each state with the variance ||B_i||^2?", "Orvieto et al. 2023, Section 3.4",
        needs=(RECURRENT_UNIT,), covers=("rnn.lru",)),
    Claim("sequence/lru.ring", ".lru_claims:ring", ".lru_claims:demo",
        "Did the eigenvalues begin evenly in the area of their ring?",
        "Orvieto et al. 2023, Lemma 3.2; Massart 1990, Corollary 1", needs=(RECURRENT_UNIT, INITIAL),
        covers=("rnn.lru",)),
    Claim("sequence/lru.reading", ".lru_claims:reading", ".lru_claims:reading_demo",
        "Is a signal read back from the last state within condition times rounding?", ORVIETO_2024,
        needs=(RECURRENT_UNIT,), covers=("rnn.linear_universality",)),
)
# fmt: on
