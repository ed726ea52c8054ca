"""Recurrences with a nonlinear step, and their training through time."""

from margin.core.catalog import KNOWN, TARGETS, Claim, Cost, Entry, Need, Part, Rule
from margin.sequence import FEEDBACK, SEQUENCE_TRAINING, STREAMED, TEXT_TRAINING, TOKEN_TRAINING

ELMAN = Need(
    "models with a simple recurrent network", "margin.sequence.recurrent.claims:has_elman", of="model"
)

WILLIAMS_1990 = "Williams and Peng 1990, Section 3"
WERBOS_1990 = "Werbos 1990, Section III; Goodfellow, Bengio and Courville 2016, Section 10.2.2"
CHO_2014 = "Cho, van Merrienboer, Gulcehre, Bahdanau, Bougares, Schwenk and Bengio 2014, Eq. 5-8"
GOODFELLOW_2016 = "Goodfellow, Bengio and Courville 2016, Equations 10.8 and 10.9"
GERS_2000 = "Gers, Schmidhuber and Cummins 2000, Section 3"
JOULIN_2015 = "Joulin and Mikolov 2015, Section 3.2"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("sequence/elman",
        ".elman:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.sequences:ragged_classes",
        "An Elman network to class logits", GOODFELLOW_2016, defaults=SEQUENCE_TRAINING,
        covers=("rnn.elman", "rnn.recurrence")),
    Entry("sequence/elman:values",
        ".elman:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.sequences:values",
        "An Elman network to one real number", GOODFELLOW_2016, defaults=SEQUENCE_TRAINING,
        formerly=("sequence/elman_regressor",)),
    Entry("sequence/elman:texts",
        ".elman:texts", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.texts:classes",
        "An Elman network that reads a text, to class logits", GOODFELLOW_2016, takes="texts",
        defaults=TEXT_TRAINING),
    Entry("sequence/elman:tags",
        ".elman:tagger", "margin.core.tasks:TAGS", "margin.data.sets.tiny.texts:tags",
        "An Elman network to the class of each token", GOODFELLOW_2016, takes="tagged",
        defaults=TEXT_TRAINING),
    Entry("sequence/elman:tokens",
        ".elman:language", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:tokens",
        "An Elman network to the distribution of the next token", GOODFELLOW_2016, defaults=TOKEN_TRAINING,
        formerly=("sequence/elman_language",)),
    Entry("sequence/lstm",
        ".lstm:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.sequences:ragged_classes",
        "An LSTM to class logits", GERS_2000, defaults=SEQUENCE_TRAINING, covers=("rnn.lstm",)),
    Entry("sequence/lstm:values",
        ".lstm:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.sequences:values",
        "An LSTM to one real number", GERS_2000, defaults=SEQUENCE_TRAINING,
        formerly=("sequence/lstm_regressor",)),
    Entry("sequence/lstm:texts",
        ".lstm:texts", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.texts:classes",
        "An LSTM that reads a text, to class logits", GERS_2000, takes="texts",
        defaults=TEXT_TRAINING),
    Entry("sequence/lstm:tags",
        ".lstm:tagger", "margin.core.tasks:TAGS", "margin.data.sets.tiny.texts:tags",
        "An LSTM to the class of each token", GERS_2000, takes="tagged",
        defaults=TEXT_TRAINING),
    Entry("sequence/lstm:tokens",
        ".lstm:language", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:tokens",
        "An LSTM to the distribution of the next token", GERS_2000, defaults=TOKEN_TRAINING,
        formerly=("sequence/lstm_language",)),
    Entry("sequence/gru",
        ".gru:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.sequences:ragged_classes",
        "A GRU to class logits", CHO_2014, defaults=SEQUENCE_TRAINING, covers=("rnn.gru",)),
    Entry("sequence/gru:values",
        ".gru:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.sequences:values",
        "A GRU to one real number", CHO_2014, defaults=SEQUENCE_TRAINING,
        formerly=("sequence/gru_regressor",)),
    Entry("sequence/gru:texts",
        ".gru:texts", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.texts:classes",
        "A GRU that reads a text, to class logits", CHO_2014, takes="texts",
        defaults=TEXT_TRAINING),
    Entry("sequence/gru:tags",
        ".gru:tagger", "margin.core.tasks:TAGS", "margin.data.sets.tiny.texts:tags",
        "A GRU to the class of each token", CHO_2014, takes="tagged",
        defaults=TEXT_TRAINING),
    Entry("sequence/gru:tokens",
        ".gru:language", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:tokens",
        "A GRU to the distribution of the next token", CHO_2014, defaults=TOKEN_TRAINING,
        formerly=("sequence/gru_language",)),
    Entry("sequence/bidirectional",
        ".bidirectional:classifier", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.sequences:ragged_classes",
        "Recurrences that read a sequence from both ends, to class logits",
        "Schuster and Paliwal 1997, Section II", defaults=SEQUENCE_TRAINING, covers=("rnn.bidirectional",)),
    Entry("sequence/bidirectional:texts",
        ".bidirectional:texts", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.texts:classes",
        "Recurrences that read a text from both ends, to class logits",
        "Schuster and Paliwal 1997, Section II", takes="texts",
        defaults=TEXT_TRAINING),
    Entry("sequence/bidirectional:tags",
        ".bidirectional:tagger", "margin.core.tasks:TAGS", "margin.data.sets.tiny.texts:tags",
        "Recurrences that read a text from both ends, to the class of each token",
        "Graves and Schmidhuber 2005, Section 2", takes="tagged",
        defaults=TEXT_TRAINING),
    Entry("sequence/deep_transition",
        ".elman:deep_transition", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.sequences:ragged_classes",
        "A recurrence whose next state is an MLP of state and input, to class logits",
        "Pascanu, Gulcehre, Cho and Bengio 2014, Section 3.3.1", defaults=SEQUENCE_TRAINING,
        covers=("rnn.deep_transition",)),
    Entry("sequence/stack_memory",
        ".stack_memory:classifier", "margin.core.tasks:CLASSES",
        "margin.data.sets.tiny.sequences:ragged_classes",
        "A recurrence that pushes on and pops differentiable stacks, to class logits", JOULIN_2015,
        defaults=SEQUENCE_TRAINING, covers=("rnn.stack_memory",)),
    Entry("sequence/stack_memory:tokens",
        ".stack_memory:language", "margin.core.tasks:TOKENS",
        "margin.data.sets.tiny.sequences:ragged_tokens",
        "A recurrence with differentiable stacks to the distribution of the next token", JOULIN_2015,
        defaults=TOKEN_TRAINING, formerly=("sequence/stack_memory_language",)),
)

RULES: tuple[Rule, ...] = (
    Rule("sequence/truncated_bptt", ".bptt:truncated_bptt",
        "Descent on derivatives that leave no window of steps, of any model with a recurrence", WILLIAMS_1990,
        covers=("rnn.bptt",)),
)

PARTS: tuple[Part, ...] = (
    Part("sequence/bptt", "algorithm", ".bptt:bptt",
        "Backpropagation through time of an Elman network, as its recursion, whole or truncated", WERBOS_1990,
        covers=("rnn.bptt",)),
    Part("sequence/stacked", "layer", ".layers:Stacked",
        "Recurrences on top of each other, each reading the outputs of the one below",
        "El Hihi and Bengio 1995; Graves 2013, Section 2", covers=("rnn.stacked",)),
    Part("sequence/reset_before_gru", "layer", ".gru:ResetBeforeGRU",
        "The published GRU, which resets before the matrix, with either gate direction", CHO_2014),
    Part("sequence/cell_matrix_lstm", "layer", ".lstm:CellMatrixLSTM",
        "An LSTM whose output reads its cell through a fifth matrix",
        "Gers, Schmidhuber and Cummins 2000, Section 3, with a matrix added"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("sequence/bptt.equals_autograd", ".claims:equals_autograd", ".claims:demo",
        "Does the recursion of backpropagation through time give autograd's gradient?", WERBOS_1990,
        needs=(ELMAN, TARGETS), cost=Cost(6, limit=8), by_name=KNOWN, covers=("rnn.bptt",)),
    Claim("sequence/bptt.truncation_bias", ".claims:truncation_bias", ".claims:demo",
        "How wrong is the gradient where no derivative leaves a window of so many steps?", WILLIAMS_1990,
        needs=(FEEDBACK, TARGETS), cost=Cost(60, limit=64), covers=("rnn.bptt",)),
    Claim("sequence/recurrence.streaming", ".claims:streaming", ".claims:streaming_demo",
        "Is each recurrence over a whole sequence its own step, one input at a time?",
        "Goodfellow, Bengio and Courville 2016, Section 10.1", needs=(STREAMED,), cost=Cost(20, limit=4),
        covers=("rnn.recurrence",)),
)
# fmt: on
