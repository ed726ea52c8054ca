"""What is asked of any recurrence: contraction, spectrum, gradients by lag, padding."""

from margin.core.catalog import KNOWN, Claim, Cost, Need, Part
from margin.sequence import FEEDBACK, GATED

LENGTHS = Need(
    "models that take the lengths of their sequences",
    "margin.sequence.dynamics.padding_claims:takes_lengths",
    of="model",
)

TRANSITION = Need(
    "models with a recurrent matrix", "margin.sequence.dynamics.spectral_claims:has_transition", of="model"
)

DENSE_TRANSITION = Need(
    "models with a recurrent matrix that is not diagonal",
    "margin.sequence.dynamics.spectral_claims:has_dense_transition",
    of="model",
)

LINEAR_SYSTEM = Need(
    "models with a dense linear system",
    "margin.sequence.dynamics.spectral_claims:has_linear_system",
    of="model",
)

BOUNDED = Need(
    "models with simple recurrent layers, linear systems or linear recurrent units",
    "margin.sequence.dynamics.gradient_claims:has_bound",
    of="model",
)

AVERAGED = Need(
    "models that average over time by gates", "margin.sequence.linear.scan_claims:has_average", of="model"
)

PASCANU_2013 = "Pascanu, Mikolov and Bengio 2013, Section 2.1"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("sequence/gradient_by_lag", "measure", ".gradients:by_lag",
        "The spectral norms of the derivatives of a recurrence's last state by its earlier ones",
        PASCANU_2013, covers=("rnn.gradient_norm_bound",)),
    Part("sequence/stretch", "measure", ".gradients:stretch",
        "The most by which a step phi(U z + c) can stretch, alpha sigma_1(U)", PASCANU_2013,
        covers=("rnn.gradient_norm_bound", "linalg.spectral_norm")),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("sequence/gate.range", ".gradient_claims:in_range", "margin.sequence.linear.scan_claims:demo",
        "Does each coordinate of a gated average stay in the range of what it averages?",
        "Feng, Tung, Ahmed, Bengio and Hajimirsadeghi 2024, Section 3.1", needs=(AVERAGED,),
        cost=Cost(2, limit=8), by_name=KNOWN, covers=("rnn.mingru",)),
    Claim("sequence/gate.product", ".gradient_claims:product", "margin.sequence.linear.scan_claims:demo",
        "Is the derivative of a state by an earlier one the product of the gates between?",
        "Hochreiter and Schmidhuber 1997, Section 3.1; Feng et al. 2024, Section 3.1", needs=(GATED,),
        cost=Cost(64, limit=8), by_name=KNOWN, covers=("gate",)),
    Claim("sequence/gate.memory", ".gradient_claims:memory", "margin.sequence.linear.scan_claims:demo",
        "For how many steps do the gates keep a state until 1/e of it is left?",
        "Tallec and Ollivier 2018, Section 2", needs=(GATED,), cost=Cost(2, limit=8), covers=("gate",)),
    Claim("sequence/padding.invariance", ".padding_claims:invariance", ".padding_claims:demo",
        "Does anything change with what stands behind the end of a sequence?",
        "Goodfellow, Bengio and Courville 2016, Section 10.1", needs=(LENGTHS,), cost=Cost(2, limit=16)),
    Claim("sequence/gradient.by_lag", ".gradient_claims:decay", ".gradient_claims:demo",
        "How far does the last state still move with the state so many steps before?", PASCANU_2013,
        needs=(FEEDBACK,), cost=Cost(500, limit=4), covers=("rnn.gradient_norm_bound",),
        figure=".figures:by_lag"),
    Claim("sequence/gradient.bound", ".gradient_claims:bound", ".gradient_claims:demo",
        "Do gradients over time stay below (alpha sigma_1(U))^lag, which below 1 makes them vanish?",
        PASCANU_2013, needs=(BOUNDED,), cost=Cost(500, limit=4),
        covers=("rnn.gradient_norm_bound", "linalg.spectral_norm"), figure=".figures:by_lag"),
    Claim("sequence/eigenvalues", ".spectral_claims:eigenvalues", ".spectral_claims:demo",
        "Where do the eigenvalues of the recurrent matrices lie, and where did they begin?", PASCANU_2013,
        needs=(TRANSITION,), covers=("rnn.linear_system",), figure=".figures:eigenvalues"),
    Claim("sequence/spectral_radius", ".spectral_claims:radius", ".spectral_claims:demo",
        "Is the spectral radius of each recurrent matrix at most its spectral norm?",
        "Horn and Johnson 2013, Theorem 5.6.9", needs=(DENSE_TRANSITION,), by_name=KNOWN,
        covers=("linalg.spectral_norm",)),
    Claim("sequence/linear_system.powers", ".spectral_claims:powers", ".spectral_claims:demo",
        "Do the powers of each transition stay below the bound by its eigenvalues and their basis?",
        "Horn and Johnson 2013, Section 5.6", needs=(LINEAR_SYSTEM,), by_name=KNOWN,
        covers=("rnn.linear_system",)),
)
# fmt: on
