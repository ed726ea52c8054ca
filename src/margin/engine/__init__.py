"""What every training shares: its state, its steps and wrappers, its runs; and rules for any loss."""

from margin.core.catalog import Part, Rule

_RATE = ("lr", "schedule", "schedule_options", "warmup")
_MOVES = ("optimizer", "optimizer_options", "decay_norms", "layer_decay")

RULES = (
    Rule(
        name="engine/newton",
        summary="Newton's step on the batch's loss, damped, with a line search; dense or Hessian-free",
        step="margin.engine.methods.newton:newton",
        reference="Nocedal & Wright (2006), Algorithms 3.1, 3.3 and 7.1",
        unused=(*_MOVES, *_RATE),
        covers=("opt.newton",),
    ),
    Rule(
        name="engine/gradient_flow",
        summary="The curve of steepest descent, followed for a while with its error controlled",
        step="margin.engine.methods.gradient_flow:gradient_flow",
        reference="Hairer, Nørsett & Wanner (1993), Section II.5, Table 5.2",
        unused=_MOVES,
        replaced={"time": _RATE},
        covers=("opt.gd",),
    ),
    Rule(
        name="engine/sam",
        summary="Descent along the gradient where the loss is worst near the weights",
        step="margin.engine.methods.sharpness_aware:sam",
        reference="Foret et al. (2021), Algorithm 1",
    ),
    Rule(
        name="engine/entropy_sgd",
        summary="Descent on the local entropy, by Langevin chains around the weights",
        step="margin.engine.methods.entropy_sgd:entropy_sgd",
        reference="Chaudhari et al. (2017), Algorithm 1",
        covers=("loss.flat_minima_search",),
    ),
    Rule(
        name="engine/continuation",
        summary="Descent on the loss smoothed over the weights, less and less towards the end",
        step="margin.engine.methods.continuation:continuation",
        reference="Goodfellow, Bengio & Courville (2016), Section 8.7.6",
        covers=("opt.continuation",),
    ),
    Rule(
        name="engine/distillation",
        summary="Descent on a trained model's tempered class probabilities and on the labels",
        step="margin.engine.methods.distillation:distillation",
        reference="Hinton, Vinyals & Dean (2015), Section 2",
        covers=("distill.loss",),
    ),
    Rule(
        name="engine/lottery_ticket",
        summary="Descent on fewer and fewer weights: the smallest pruned, the others rewound, in rounds",
        step="margin.engine.methods.lottery:lottery_ticket",
        reference="Frankle & Carbin (2019), Section 1; Frankle et al. (2020), Section 4",
        last=True,
        unused=("patience",),
        covers=("prune.lottery_ticket",),
    ),
)

PARTS = (
    Part(
        name="engine/averaging",
        summary="The mean of the weights since a step, or their moving average, kept with the model",
        kind="algorithm",
        target="margin.engine.wrappers:averaged",
        reference="Polyak & Juditsky (1992); Izmailov et al. (2018), Algorithm 1",
        covers=("opt.polyak_averaging", "loss.flat_minima_search"),
    ),
    Part(
        name="engine/clipping",
        summary="A gradient scaled down to a largest norm, its direction kept",
        kind="algorithm",
        target="torch.nn.utils:clip_grad_norm_",
        reference="Pascanu, Mikolov & Bengio (2013), Algorithm 1",
        covers=("opt.clipping",),
    ),
    Part(
        name="engine/continued",
        summary="The path of minimizers from a smooth objective to the true one, each begun at the last",
        kind="algorithm",
        target="margin.engine.methods.continuation:continued",
        reference="Goodfellow, Bengio & Courville (2016), Section 8.7.6",
        covers=("opt.continuation",),
    ),
    Part(
        name="engine/smoothed",
        summary="Cross-entropy to labels smoothed or confused by a matrix, its classes weighted",
        kind="algorithm",
        target="margin.engine.objectives:smoothed",
        reference="Szegedy et al. (2016), Section 7",
        covers=("reg.label_smoothing",),
    ),
    Part(
        name="engine/importance_weighted",
        summary="An objective of examples drawn unevenly whose gradient stays unbiased",
        kind="algorithm",
        target="margin.engine.objectives:importance_weighted",
        reference="Zhao & Zhang (2015), Section 2",
        covers=("train.curriculum",),
    ),
    Part(
        name="engine/mixed",
        summary="Training on two examples mixed into one: all of them, or a box of one in the other",
        kind="algorithm",
        target="margin.engine.mixing:mixed",
        reference="Zhang et al. (2018), Equation 1; Yun et al. (2019), Equations 1 and 2",
        covers=("data.augmentation",),
    ),
    Part(
        name="engine/transfer",
        summary="A model that begins with another's weights, wherever name and shape are the same",
        kind="algorithm",
        target="margin.engine.transfer:transfer",
        reference="Yosinski et al. (2014), Section 2",
        covers=("train.transfer_bootstrap",),
    ),
    Part(
        name="engine/freeze",
        summary="Parts of a model that keep their weights and statistics while the rest is trained",
        kind="algorithm",
        target="margin.engine.transfer:freeze",
        reference="Yosinski et al. (2014), Section 2",
        covers=("train.transfer_bootstrap",),
    ),
    Part(
        name="engine/layer_rates",
        summary="Learning rates that fall by a factor from each layer to the one before it",
        kind="algorithm",
        target="margin.engine.transfer:layer_rates",
        reference="Howard & Ruder (2018), Section 3.2",
        covers=("train.transfer_bootstrap",),
    ),
)
