"""Optimizers and schedules that torch lacks, and rows for those that it has."""

from margin.core.catalog import Part

POLYAK_1964 = "Polyak (1964)"

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("optim/sgd", "optimizer", "torch.optim:SGD",
        "Gradient descent: theta - eta g, the Euler discretization of the gradient flow",
        "Cauchy (1847); Robbins & Monro (1951) for noisy gradients", covers=("opt.gd",)),
    Part("optim/heavy_ball", "optimizer", "margin.optim.momentum:HeavyBall",
        "The heavy ball: gradient descent that carries on a share of its last move", POLYAK_1964,
        covers=("opt.heavy_ball",)),
    Part("optim/momentum_gain", "fact", "margin.optim.momentum:gain",
        "How far momentum carries under a constant gradient: sum of beta^k, towards 1 / (1 - beta)",
        POLYAK_1964, covers=("opt.momentum_gain",)),
    Part("optim/nesterov", "optimizer", "margin.optim.momentum:Nesterov",
        "Nesterov's accelerated gradient in two sequences, with constant or growing momentum",
        "Nesterov (1983); Nesterov (2018), Section 2.2", covers=("opt.nesterov",)),
    Part("optim/sign_descent", "optimizer", "margin.optim.sign:SignDescent",
        "Descent along the sign of the gradient or of its moving average: signSGD and Signum",
        "Bernstein et al. (2018), Algorithms 1 and 2"),
    Part("optim/lion", "optimizer", "margin.optim.sign:Lion",
        "The sign of one moving average of the gradient, another one remembered: Lion",
        "Chen et al. (2023), Algorithm 2"),
    Part("optim/adagrad", "optimizer", "torch.optim:Adagrad",
        "Each coordinate's step divided by the root of the sum of its squared gradients",
        "Duchi, Hazan & Singer (2011), Figure 1", covers=("opt.adagrad",)),
    Part("optim/rmsprop", "optimizer", "torch.optim:RMSprop",
        "Each coordinate's step divided by the root of the moving average of its squared gradients",
        "Tieleman & Hinton (2012), Lecture 6.5", covers=("opt.rmsprop",)),
    Part("optim/adam", "optimizer", "torch.optim:Adam",
        "Moving averages of the gradient and its square, freed of their bias to 0",
        "Kingma & Ba (2015), Algorithm 1", covers=("opt.adam",)),
    Part("optim/adamw", "optimizer", "torch.optim:AdamW",
        "Adam with a weight decay that is not rescaled by the gradient's size",
        "Loshchilov & Hutter (2019), Algorithm 2"),
    Part("optim/nadam", "optimizer", "torch.optim:NAdam",
        "Adam with Nesterov's look ahead in its first moment", "Dozat (2016)"),
    Part("optim/lbfgs", "optimizer", "torch.optim:LBFGS",
        "A quasi-Newton step from the last few changes of the gradient, one move a step",
        "Liu & Nocedal (1989)"),
    Part("optim/schedule", "schedule", "margin.optim.schedules:schedule_of",
        "The learning rate as a function of the step: a rise, then one of seven shapes",
        "Loshchilov & Hutter (2017), Equation 5; Vaswani et al. (2017), Equation 3",
        covers=("opt.lr_decay",)),
    Part("optim/plateau", "schedule", "margin.optim.schedules:plateau",
        "The learning rate as a function of the history: a drop where nothing gets better",
        "torch.optim.lr_scheduler.ReduceLROnPlateau", covers=("opt.lr_decay",)),
    Part("optim/robbins_monro", "fact", "margin.optim.robbins_monro:robbins_monro",
        "Whether the rates of a schedule sum to infinity and their squares do not", "Robbins & Monro (1951)",
        covers=("opt.robbins_monro",)),
)
# fmt: on
