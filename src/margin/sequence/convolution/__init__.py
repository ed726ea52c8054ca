"""Causal convolutions."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part
from margin.sequence import SEQUENCE_TRAINING, STREAMED

NEXT_TOKEN = Need("predictions of the next token", "margin.sequence.convolution.claims:predicts_next")

FINITE_FIELD = Need(
    "models whose recurrence states its receptive field",
    "margin.sequence.convolution.claims:has_receptive_field",
    of="model",
)

WAVENET = Need("a WaveNet", "margin.sequence.convolution.claims:is_wavenet", of="model")
OORD_2016 = "van den Oord et al. 2016, Section 2.1"
PAINE_2016 = "Paine et al. 2016, Section 2"
BAI_2018 = "Bai, Kolter and Koltun 2018, Section 3"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("sequence/tcn",
        ".tcn:classifier", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.sequences:ragged_classes",
        "Residual dilated causal convolutions over a sequence, to class logits", BAI_2018,
        defaults=SEQUENCE_TRAINING, covers=("conv1d.causal",)),
    Entry("sequence/tcn:values",
        ".tcn:regressor", "margin.core.tasks:VALUES", "margin.data.sets.tiny.sequences:values",
        "Residual dilated causal convolutions over a sequence, to one real number", BAI_2018,
        defaults=SEQUENCE_TRAINING, formerly=("sequence/tcn_regressor",)),
    Entry("sequence/tcn:tokens",
        ".tcn:language", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:tokens",
        "Residual dilated causal convolutions over tokens, to the distribution of the next", BAI_2018,
        defaults={"epochs": 20, "batch_size": 32, "patience": 5, "clip": 1.0},
        formerly=("sequence/tcn_language",)),
    Entry("sequence/wavenet",
        ".wavenet:WaveNet", "margin.core.tasks:TOKENS", "margin.data.sets.tiny.sequences:tokens",
        "Gated dilated causal convolutions to the distribution of the next sample of a sound",
        "van den Oord et al. 2016, Section 2",
        defaults={"epochs": 20, "batch_size": 8, "patience": 5, "lr": 2e-3},
        covers=("wavenet", "conv1d.causal")),
)

PARTS: tuple[Part, ...] = (
    Part("sequence/causal_convolution", "layer", ".causal:CausalConv1d",
        "y_t = b + sum_j W_j x_{t-(k-1-j)d}: a dilated convolution that reads no later step", OORD_2016,
        covers=("conv1d.causal",)),
    Part("sequence/gated_convolutions", "layer", ".causal:GatedConvolutions",
        "WaveNet's trunk: gated dilated causal convolutions with residual and skip paths",
        "van den Oord et al. 2016, Equation 2 and Section 2.4", covers=("wavenet",)),
    Part("sequence/fast_generation", "algorithm", ".wavenet:CachedSteps",
        "Gated convolutions a step at a time, each layer's earlier inputs kept in a ring", PAINE_2016,
        covers=("wavenet",)),
    Part("sequence/spectrogram", "function", ".figures:spectrogram",
        "A picture of sound: its amplitude over time, and its power by frequency over time",
        "Oppenheim and Schafer 2010, Section 10.3"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("sequence/causality.derivative",
        ".claims:derivative", ".claims:derivative_demo",
        "Does an output of a recurrent layer depend on a later input?", OORD_2016, needs=(STREAMED,),
        cost=Cost(40, limit=4), covers=("conv1d.causal", "wavenet")),
    Claim("sequence/causality.replacement",
        ".claims:replacement", ".claims:replacement_demo",
        "Do predictions of the next token change where later tokens are replaced?",
        "van den Oord et al. 2016, Equation 1", needs=(NEXT_TOKEN,), cost=Cost(9, limit=4),
        covers=("conv1d.causal", "wavenet")),
    Claim("sequence/receptive_field.support",
        ".claims:support", ".claims:receptive_field_demo",
        "How many steps back is the oldest input that an output depends on?",
        "van den Oord et al. 2016, Section 2.1; Bai, Kolter and Koltun 2018, Section 3.2",
        needs=(FINITE_FIELD,), cost=Cost(10, limit=4), covers=("wavenet", "conv1d.causal")),
    Claim("sequence/wavenet.cached_generation", ".claims:cached", ".claims:wavenet_demo",
        "Does generation from kept inputs give the logits of the whole network?", PAINE_2016,
        needs=(WAVENET,), cost=Cost(20, limit=2), by_name=KNOWN, covers=("wavenet",)),
)
# fmt: on
