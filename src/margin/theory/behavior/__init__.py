"""What a model does besides answering: it draws, reads its batch, remembers, overwrites, fails."""

from margin.core.catalog import ONE_LABEL, ROWS_OF_TARGETS, TWO_LABELS, Claim, Cost, Need

# fmt: off

MODEL = Need("a model whose outputs a loss judges", "margin.theory.behavior.claims:has_model",
    why="margin.core.findings:why_no_model")
ROWS = Need("a batch of two examples or more, a row each", "margin.theory.behavior.claims:has_rows")
PASZKE_2019 = "Paszke et al. 2019, Section 4 (a layer is a function of its inputs, written as a program)"

CLAIMS: tuple[Claim, ...] = (
    Claim("theory/behavior.random", ".claims:random", ".claims:demo",
        "Determinism: does the model answer the same when it is asked again?",
        "Srivastava et al. 2014, Section 4 (no unit is dropped at test time)", needs=(MODEL,),
        cost=Cost(2, limit=16, first=True), question="rests"),
    Claim("theory/behavior.mates", ".claims:mates", ".claims:demo",
        "Batch independence: is an example answered the same without the rest of its batch?",
        "Ioffe and Szegedy 2015, Section 3.1 (at inference an output depends on its input alone)",
        needs=(MODEL, ROWS), cost=Cost(2, limit=16, first=True), question="rests"),
    Claim("theory/behavior.buffers", ".claims:buffers", ".claims:demo",
        "State: is an example answered the same after other calls, whatever buffers they wrote?",
        PASZKE_2019, needs=(MODEL,), cost=Cost(4, limit=16, first=True), question="rests"),
    Claim("theory/behavior.overwrites", ".claims:overwrites", ".claims:demo",
        "Side effects: does the model leave the inputs as they are that it is given?", PASZKE_2019,
        needs=(MODEL,), cost=Cost(1, limit=16, first=True), question="rests"),
    Claim("theory/behavior.mode", ".claims:mode", ".claims:demo",
        "Training mode: does the model answer in the mode that it came in as in evaluation mode?",
        "Srivastava et al. 2014, Section 4; Ioffe and Szegedy 2015, Section 3.1", needs=(MODEL,),
        cost=Cost(2, limit=16, first=True), question="rests"),
    Claim("theory/behavior.finite", ".claims:finite", ".claims:demo",
        "Finite outputs: for how many examples is an output no number?",
        "Goldberg 1991, Section 2.2 (what is no number stays none)", needs=(ROWS_OF_TARGETS,),
        question="rests"),
    Claim("theory/behavior.label_order", ".label_order:label_order", ".label_order:demo",
        "Label order: would the classes in another order fit the labels better, beyond doubt?",
        "Kuhn 1955 (the best order); Cochran 1977, Section 2.11 (the error)",
        needs=(ONE_LABEL, TWO_LABELS), question="rests"),
)
# fmt: on
