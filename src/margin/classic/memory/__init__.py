"""Associative memories."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part

HOPFIELD = Need(
    "a Hopfield network with a pattern stored",
    "margin.classic.memory.hopfield_claims:is_hopfield",
    of="model",
)

CONTINUOUS = Need(
    "a continuous Hopfield network with a pattern stored",
    "margin.classic.memory.associative_memory_claims:is_continuous",
    of="model",
)

STORED = {"epochs": 1, "batch_size": "all", "until": {"room": 0}}
RAMSAUER_2021 = "Ramsauer et al. 2021, Section 2"
HERTZ_1991 = "Hertz, Krogh and Palmer 1991, Section 2.2"
HOPFIELD_1982 = "Hopfield 1982, Section 'Studies of the collective behaviors of the model'"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("classic/hopfield",
        ".hopfield:Hopfield", "margin.core.tasks:MEMORY", "margin.data.sets.tiny.tables:images",
        "Threshold units with Hebbian weights that come to rest in a stored pattern",
        "Hopfield 1982, Section 'The model system'", objective=".associative_memory:wrong_units",
        step=".associative_memory:store", examples=".associative_memory:WithoutTargets", optimizers=(),
        parallel=False, defaults=STORED,
        covers=("hopfield.energy", "hopfield.dynamics", "hopfield.hebbian")),
    Entry("classic/dense_associative_memory",
        ".dense_associative_memory:DenseAssociativeMemory", "margin.core.tasks:MEMORY",
        "margin.data.sets.tiny.tables:images",
        "Threshold units whose energy rewards overlaps with stored patterns by a steep function",
        "Krotov and Hopfield 2016, Section 2; Demircigil et al. 2017, Section 2",
        objective=".associative_memory:wrong_units", step=".associative_memory:store",
        examples=".associative_memory:WithoutTargets", optimizers=(), parallel=False, defaults=STORED,
        covers=("hopfield.dense",)),
    Entry("classic/modern_hopfield",
        ".dense_associative_memory:ModernHopfield", "margin.core.tasks:MEMORY",
        "margin.data.sets.tiny.tables:images",
        "A continuous state that moves to stored patterns by softmax attention", RAMSAUER_2021,
        objective=".associative_memory:squared_distance", step=".associative_memory:store",
        examples=".associative_memory:WithoutTargets", optimizers=(), parallel=False, defaults=STORED,
        covers=("hopfield.modern",)),
)

PARTS: tuple[Part, ...] = (
    Part("classic/threshold_unit", "layer", ".threshold_units:threshold_unit",
        "Fires when its active inputs, inhibition taken off or vetoing, reach a threshold",
        "McCulloch and Pitts 1943, Section 2", covers=("mp_neuron",)),
    Part("classic/pdp", "fact", ".pdp:PDPModel",
        "A network as units, output, connectivity, propagation, activation, learning and environment",
        "Rumelhart, Hinton and McClelland 1986, Chapter 2", covers=("pdp.framework",)),
    Part("classic/generalized_delta", "fact", ".pdp:generalized_delta",
        "The gradient in every layer's weights, by deltas passed back from the outputs",
        "Rumelhart, Hinton and Williams 1986, Section 'The generalized delta rule'",
        covers=("pdp.generalized_delta",)),
    Part("classic/hopfield_crosstalk", "measure", ".hopfield_theory:crosstalk",
        "What the other stored patterns add to each unit's field in a stored pattern", HERTZ_1991,
        covers=("hopfield.crosstalk",)),
    Part("classic/hopfield_flip_probability", "fact", ".hopfield_theory:flip_probability",
        "The probability that a bit of a random stored pattern is not aligned with its field", HERTZ_1991,
        covers=("hopfield.error_rate",)),
    Part("classic/hopfield_overlap", "fact", ".hopfield_theory:retrieval_overlap",
        "The overlap of the stable state near a stored pattern, for many units: 0 above load 0.138",
        "Amit, Gutfreund and Sompolinsky 1985; Hertz, Krogh and Palmer 1991, Section 2.5",
        covers=("hopfield.capacity",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("classic/hopfield.energy", ".hopfield_claims:falling_energy", ".hopfield_claims:demo",
        "Does no asynchronous update raise the energy?", HOPFIELD_1982, by_name=KNOWN, needs=(HOPFIELD,),
        cost=Cost(20, limit=4), covers=("hopfield.energy", "hopfield.dynamics"), figure=".figures:recall"),
    Claim("classic/hopfield.crosstalk", ".hopfield_claims:crosstalk_criterion", ".hopfield_claims:demo",
        "Are the stored patterns that last those that the cross-talk does not outweigh?", HERTZ_1991,
        by_name=KNOWN, needs=(HOPFIELD,), covers=("hopfield.crosstalk",)),
    Claim("classic/hopfield.capacity", ".hopfield_claims:exact_recall_limit", ".hopfield_claims:demo",
        "What share of the stored patterns are fixed points, against the limit for many units?",
        "McEliece, Posner, Rodemich and Venkatesh 1987, Section V", needs=(HOPFIELD,),
        covers=("hopfield.capacity",)),
    Claim("classic/hopfield.unstable_bits", ".hopfield_claims:unstable_bits", ".hopfield_claims:loaded_demo",
        "How many bits of the stored patterns would flip, against the limit for many units?", HERTZ_1991,
        needs=(HOPFIELD,), covers=("hopfield.error_rate",)),
    Claim("classic/hopfield.flip_probability",
        ".hopfield_claims:unstable_bits_of_random_patterns", ".hopfield_claims:loaded_demo",
        "Do bits of random patterns flip as often, at this size and load, as the exact law says?", HERTZ_1991,
        by_name=KNOWN, needs=(HOPFIELD,), cost=Cost(5), covers=("hopfield.error_rate",)),
    Claim("classic/associative_memory.lost",
        ".associative_memory_claims:lost", ".hopfield_claims:crowded_demo",
        "What share of the stored patterns does the memory no longer retrieve?", HOPFIELD_1982,
        needs=(
            Need("an associative memory",
                 "margin.classic.memory.associative_memory_claims:is_memory", of="model"),),
        covers=("hopfield.capacity", "hopfield.dense")),
    Claim("classic/dense_associative_memory.energy",
        ".associative_memory_claims:falling_dense_energy", ".associative_memory_claims:demo_dense",
        "Does no sweep raise the energy?", "Krotov and Hopfield 2016, Section 2",
        needs=(
            Need("a dense associative memory",
                 "margin.classic.memory.associative_memory_claims:is_dense", of="model"),),
        cost=Cost(5, limit=16), covers=("hopfield.dense",)),
    Claim("classic/modern_hopfield.attention",
        ".associative_memory_claims:attention", ".associative_memory_claims:demo_continuous",
        "Is an update of the network softmax attention to the stored patterns?", RAMSAUER_2021,
        by_name=KNOWN, needs=(CONTINUOUS,), cost=Cost(2, limit=64), covers=("hopfield.modern",)),
    Claim("classic/modern_hopfield.energy",
        ".associative_memory_claims:falling_continuous_energy", ".associative_memory_claims:demo_continuous",
        "Does no update raise the energy?", "Ramsauer et al. 2021, Theorem 1", by_name=KNOWN,
        needs=(CONTINUOUS,),
        cost=Cost(20, limit=64), covers=("hopfield.modern",), figure=".figures:recall"),
    Claim("classic/modern_hopfield.retrieval",
        ".associative_memory_claims:retrieval_error", ".associative_memory_claims:demo_continuous",
        "Does one update leave a stored pattern where it is, to within an exponentially small error?",
        "Ramsauer et al. 2021, Theorem 5", by_name=KNOWN, needs=(CONTINUOUS,), cost=Cost(2, limit=64),
        covers=("hopfield.modern",)),
)
# fmt: on
