"""Steps that any entry with a loss can take instead of its own."""

from margin.core.catalog import Part, Rule

RATE = ("lr", "schedule", "schedule_options", "warmup")
MOVES = ("optimizer", "optimizer_options", "decay_norms", "layer_decay")
GOODFELLOW_2016 = "Goodfellow, Bengio & Courville (2016), Section 8.7.6"

# fmt: off

RULES: tuple[Rule, ...] = (
    Rule("engine/newton", ".newton:newton",
        "Newton's step on the batch's loss, damped, with a line search; dense or Hessian-free",
        "Nocedal & Wright (2006), Algorithms 3.1, 3.3 and 7.1", unused=(*MOVES, *RATE),
        covers=("opt.newton",)),
    Rule("engine/gradient_flow", ".gradient_flow:gradient_flow",
        "The curve of steepest descent, followed for a while with its error controlled",
        "Hairer, Nørsett & Wanner (1993), Section II.5, Table 5.2", unused=MOVES, replaced={"time": RATE},
        covers=("opt.gd",)),
    Rule("engine/sam", ".flat_minima:sam",
        "Descent along the gradient where the loss is worst near the weights",
        "Foret et al. (2021), Algorithm 1"),
    Rule("engine/entropy_sgd", ".flat_minima:entropy_sgd",
        "Descent on the local entropy, by Langevin chains around the weights",
        "Chaudhari et al. (2017), Algorithm 1", covers=("loss.flat_minima_search",)),
    Rule("engine/continuation", ".continuation:continuation",
        "Descent on the loss smoothed over the weights, less and less towards the end", GOODFELLOW_2016,
        covers=("opt.continuation",)),
    Rule("engine/distillation", ".distillation:distillation",
        "Descent on a trained model's tempered class probabilities and on the labels",
        "Hinton, Vinyals & Dean (2015), Section 2", covers=("distill.loss",)),
    Rule("engine/lottery_ticket", ".lottery:lottery_ticket",
        "Descent on fewer and fewer weights: the smallest pruned, the others rewound, in rounds",
        "Frankle & Carbin (2019), Section 1; Frankle et al. (2020), Section 4", last=True,
        unused=("patience",), covers=("prune.lottery_ticket",)),
)

PARTS: tuple[Part, ...] = (
    Part("engine/continued", "algorithm", ".continuation:continued",
        "The path of minimizers from a smooth objective to the true one, each begun at the last",
        GOODFELLOW_2016, covers=("opt.continuation",)),
)
# fmt: on
