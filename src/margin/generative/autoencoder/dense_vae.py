"""Variational autoencoders of affine maps, for rows of any kind, with or without a label (Kingma 2014)."""

from torch import nn

from margin.generative.autoencoder.likelihoods import Decoder, likelihood_of
from margin.generative.autoencoder.vae import VAE
from margin.nn.activations import Activation
from margin.nn.dense import dense


def dense_vae(
    in_features: int,
    *,
    code: int = 8,
    hidden: tuple[int, ...] = (256,),
    activation: Activation = "relu",
    decoder: Decoder = "gaussian",
    beta: float = 1.0,
) -> VAE:
    """A VAE of affine maps; with a Gaussian decoder and no hidden layer it is probabilistic PCA.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        code: Numbers m of a code.
        hidden: Widths of the encoder's hidden layers; the decoder has them in reverse.
        activation: The pointwise function between two maps.
        decoder: Normal values of one learned noise, or bits (inputs in [0, 1]: train with --scale unit).
        beta: Weight of the divergence in the objective.

    Raises:
        ValueError: A width is not positive, or beta is negative.

    Reference:
        Kingma and Welling 2014, Appendix C; Higgins et al. 2017, Equation 4.
    """
    return conditional_vae(
        in_features, 0, code=code, hidden=hidden, activation=activation, decoder=decoder, beta=beta
    )


def conditional_vae(
    in_features: int,
    num_classes: int,
    *,
    code: int = 8,
    hidden: tuple[int, ...] = (256,),
    activation: Activation = "relu",
    decoder: Decoder = "gaussian",
    beta: float = 1.0,
) -> VAE:
    """A VAE of affine maps whose decoder also reads the class, so that a code says what the class does not.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        num_classes: Number of classes.
        code: Numbers m of a code.
        hidden: Widths of the encoder's hidden layers; the decoder has them in reverse.
        activation: The pointwise function between two maps.
        decoder: Normal values of one learned noise, or bits (inputs in [0, 1]: train with --scale unit).
        beta: Weight of the divergence in the objective.

    Raises:
        ValueError: A width is not positive, or beta is negative.

    Reference:
        Kingma, Rezende, Mohamed and Welling 2014, Section 2.2, the decoder of model M2.
    """
    if code < 1:
        raise ValueError(f"code must be at least 1: got {code}")
    return VAE(
        nn.Sequential(nn.Flatten(), dense(in_features, hidden, 2 * code, activation)),
        dense(code + num_classes, hidden[::-1], in_features, activation),
        likelihood_of(decoder),
        code=code,
        beta=beta,
        num_classes=num_classes,
    )
