"""Diffusion of points: the network is a residual perceptron that reads a whole row."""

from margin.generative.diffusion.denoiser import Denoiser
from margin.generative.diffusion.model import Diffusion, Weighting
from margin.generative.diffusion.parametrizations import Parametrization
from margin.generative.diffusion.schedules import Beta, Terminal, Variance, schedule_of


# a constructor's parameters: they are the model's options
def points(
    in_features: int,
    *,
    hidden: int = 128,
    depth: int = 3,
    embedding: int = 64,
    steps: int = 1000,
    beta: Beta = "linear",
    terminal: Terminal = "kept",
    parametrization: Parametrization = "v",
    variance: Variance = "large",
    weighting: Weighting = "simple",
) -> Diffusion:
    """A chain that turns rows into noise, and a network that learns to turn them back.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        hidden: Width of the network's layers.
        depth: Number of its residual layers.
        embedding: Numbers that tell a layer the time, even.
        steps: T, steps of the chain.
        beta: Whether the chain's variances rise evenly, or with a squared cosine.
        terminal: Whether at T the schedule's little of the data is kept, or nothing (zero; not with eps).
        parametrization: What the network predicts: the noise, the data, or the velocity between them. An
            error of the noise counts 157-fold at T, where few noiseless steps then leave outliers.
        variance: Variance of a step back: that of the step forth (large), or the posterior's (small).
        weighting: What training minimizes: the prediction's squared error, or the evidence bound.
    """
    return Diffusion(
        Denoiser(in_features, hidden=hidden, depth=depth, embedding=embedding),
        schedule_of(steps, beta, terminal),
        (in_features,),
        parametrization=parametrization,
        variance=variance,
        weighting=weighting,
    )


# a constructor's parameters: they are the model's options
def conditional_points(
    in_features: int,
    num_classes: int,
    *,
    hidden: int = 128,
    depth: int = 3,
    embedding: int = 64,
    steps: int = 1000,
    beta: Beta = "linear",
    terminal: Terminal = "kept",
    parametrization: Parametrization = "v",
    variance: Variance = "large",
    weighting: Weighting = "simple",
    drop: float = 0.1,
) -> Diffusion:
    """The chain of rows whose network is told the class, and sometimes that there is none.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of classes.
        hidden: Width of the network's layers.
        depth: Number of its residual layers.
        embedding: Numbers that tell a layer the time and the class, even.
        steps: T, steps of the chain.
        beta: Whether the chain's variances rise evenly, or with a squared cosine.
        terminal: Whether at T the schedule's little of the data is kept, or nothing (zero; not with eps).
        parametrization: What the network predicts: the noise, the data, or the velocity between them. An
            error of the noise counts 157-fold at T, where few noiseless steps then leave outliers.
        variance: Variance of a step back: that of the step forth (large), or the posterior's (small).
        weighting: What training minimizes: the prediction's squared error, or the evidence bound.
        drop: Probability with which a class is kept from the network in training.
    """
    return Diffusion(
        Denoiser(in_features, num_classes=num_classes, hidden=hidden, depth=depth, embedding=embedding),
        schedule_of(steps, beta, terminal),
        (in_features,),
        num_classes=num_classes,
        parametrization=parametrization,
        variance=variance,
        weighting=weighting,
        drop=drop,
    )
