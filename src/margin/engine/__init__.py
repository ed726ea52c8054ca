"""What every training shares: its state, its steps and wrappers, its runs; and rules for any loss."""

from margin.core.catalog import Part

FAMILIES = ("methods",)

YOSINSKI_2014 = "Yosinski et al. (2014), Section 2"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("engine/averaging", "algorithm", "margin.engine.loop:averaged",
        "The mean of the weights since a step, or their moving average, kept beside the model",
        "Polyak & Juditsky (1992); Izmailov et al. (2018), Algorithm 1",
        covers=("opt.polyak_averaging", "loss.flat_minima_search")),
    Part("engine/clipping", "algorithm", "torch.nn.utils:clip_grad_norm_",
        "A gradient scaled down to a largest norm, its direction kept",
        "Pascanu, Mikolov & Bengio (2013), Algorithm 1", covers=("opt.clipping",)),
    Part("engine/smoothed", "algorithm", "margin.engine.objectives:smoothed",
        "Cross-entropy to labels smoothed or confused by a matrix, its classes weighted",
        "Szegedy et al. (2016), Section 7", covers=("reg.label_smoothing",)),
    Part("engine/importance_weighted", "algorithm", "margin.engine.objectives:importance_weighted",
        "An objective of examples drawn unevenly whose gradient stays unbiased",
        "Zhao & Zhang (2015), Section 2", covers=("train.curriculum",)),
    Part("engine/mixed", "algorithm", "margin.engine.objectives:mixed",
        "Training on two examples mixed into one: all of them, or a box of one in the other",
        "Zhang et al. (2018), Equation 1; Yun et al. (2019), Equations 1 and 2",
        covers=("data.augmentation",)),
    Part("engine/transfer", "algorithm", "margin.engine.transfer:transfer",
        "A model that begins with another's weights, wherever name and shape are the same", YOSINSKI_2014,
        covers=("train.transfer_bootstrap",)),
    Part("engine/freeze", "algorithm", "margin.engine.transfer:freeze",
        "Parts of a model that keep their weights and statistics while the rest is trained", YOSINSKI_2014,
        covers=("train.transfer_bootstrap",)),
    Part("engine/layer_rates", "algorithm", "margin.engine.transfer:layer_rates",
        "Learning rates that fall by a factor from each layer to the one before it",
        "Howard & Ruder (2018), Section 3.2", covers=("train.transfer_bootstrap",)),
)
# fmt: on
