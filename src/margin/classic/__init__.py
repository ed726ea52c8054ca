"""Threshold units, associative memories, linear models."""

from margin.core.catalog import Cost, Part

FAMILIES = ("perceptron", "memory", "linear", "factors")

SOLVE = Cost(30, "train")
"""A factorization of the training rows, in forward passes of an affine map."""

# fmt: off

PARTS: tuple[Part, ...] = (
    Part("classic/sigmoid", "function", "torch:sigmoid",
        "The logistic function 1 / (1 + exp(-z)), from a logit to a probability", "Cox 1958, Section 2",
        covers=("logistic.sigmoid",)),
    Part("classic/softmax", "function", "torch:softmax",
        "The map exp(z_i) / sum_j exp(z_j), from logits to probabilities", "Bridle 1990, Equation 2",
        covers=("softmax",)),
    Part("classic/squared_error", "loss", "torch.nn.functional:mse_loss",
        "The squared difference of output and target; the reduction decides the factor of a penalty",
        "Gauss 1809", covers=("loss.mse",)),
    Part("classic/binary_cross_entropy", "loss", "torch.nn.functional:binary_cross_entropy_with_logits",
        "-log sigmoid((2 y - 1) z), computed from the logit", "Cox 1958, Section 3",
        covers=("logistic.loss",)),
    Part("classic/cross_entropy", "loss", "torch.nn.functional:cross_entropy",
        "-log softmax(z)_y, computed from the logits, in nats", "Bridle 1990, Section 3",
        covers=("loss.cross_entropy",)),
)
# fmt: on
