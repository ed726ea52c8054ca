r"""Dropout as an ensemble: every mask is a network, and a prediction the mean of 2^d of them.

Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov (2014): a unit is kept with probability q and then
divided by q; at test time all are kept. For softmax of an affine map this weight scaling is exactly the
normalized geometric mean of the ensemble; the arithmetic mean is another, which Monte Carlo estimates (Gal
and Ghahramani 2016).
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from margin.engine.evaluation import eval_mode
from margin.nn.preprocessed import device_of

MOST_UNITS = 16
"""Units whose masks are enumerated: 65,536 of them."""


TOGETHER = 32
"""Draws that are held at once."""


class Ensemble(NamedTuple):
    """Class probabilities of an ensemble over masks, by both means."""

    arithmetic: Float[Tensor, "batch classes"]
    geometric: Float[Tensor, "batch classes"]


class MonteCarlo(NamedTuple):
    """The mean of draws, and its standard error."""

    mean: Tensor
    stderr: Tensor


def masks(keep: Float[Tensor, " units"]) -> tuple[Float[Tensor, "masks units"], Float[Tensor, " masks"]]:
    r"""Every mask b of some units and its probability :math:`\prod_i q_i^{b_i} (1 - q_i)^{1 - b_i}`.

    Args:
        keep: q_i, the probability that a unit is kept, in (0, 1].

    Raises:
        ValueError: A probability is outside of (0, 1], or there are too many units to enumerate.

    Reference: Srivastava et al. 2014, Section 4.
    """
    if not bool(((keep > 0) & (keep <= 1)).all()):
        raise ValueError(f"a probability of keeping must lie in (0, 1]: got {keep.tolist()}")
    if len(keep) > MOST_UNITS:
        raise ValueError(f"at most {MOST_UNITS} units have their masks enumerated: got {len(keep)}")
    every = list(itertools.product((0.0, 1.0), repeat=len(keep)))
    b = torch.tensor(every, dtype=keep.dtype, device=keep.device).reshape(2 ** len(keep), len(keep))
    return b, torch.where(b > 0, keep, 1 - keep).prod(1)


def softmax_ensemble(
    x: Float[Tensor, "batch units"],
    weight: Float[Tensor, "classes units"],
    bias: Float[Tensor, " classes"],
    keep: Float[Tensor, " units"],
) -> Ensemble:
    r"""The means over every mask of softmax(W (b x) + c), units not divided by q.

    .. math:: \sum_b p(b)\, p(y \mid x; b), \qquad
        \frac{\prod_b p(y \mid x; b)^{p(b)}}{\sum_{y'} \prod_b p(y' \mid x; b)^{p(b)}}

    Args:
        x: Inputs.
        weight: W.
        bias: c.
        keep: The probability that each unit is kept.

    Reference: Srivastava et al. 2014, Section 4; Goodfellow, Bengio and Courville 2016, Section 7.12.
    """
    b, p = masks(keep)
    logs = ((b[:, None] * x) @ weight.T + bias).log_softmax(-1)
    arithmetic = (p[:, None, None] * logs.exp()).sum(0)
    return Ensemble(arithmetic, (p[:, None, None] * logs).sum(0).softmax(-1))


def weight_scaled(
    x: Float[Tensor, "batch units"],
    weight: Float[Tensor, "classes units"],
    bias: Float[Tensor, " classes"],
    keep: Float[Tensor, " units"],
) -> Float[Tensor, "batch classes"]:
    r"""The class probabilities softmax(W (q x) + c) of the network whose weights are scaled by q.

    Args:
        x: Inputs.
        weight: W.
        bias: c.
        keep: q, the probability that each unit is kept.

    Reference: Goodfellow, Bengio and Courville 2016, Section 7.12.
    """
    return ((keep * x) @ weight.T + bias).softmax(-1)


def dropping(model: nn.Module) -> list[nn.Module]:
    """The submodules that drop units while they train: torch's dropout layers, attention, recurrent layers.

    A module that calls ``torch.nn.functional.dropout`` on its own is not known.

    Args:
        model: Any module.
    """
    kinds = (nn.MultiheadAttention, nn.RNNBase)
    return [
        m
        for m in model.modules()
        if (isinstance(m, _DropoutNd) and m.p > 0) or (isinstance(m, kinds) and m.dropout > 0)
    ]


@contextmanager
def dropping_units(model: nn.Module, generator: Generator) -> Iterator[None]:
    """Evaluation mode, but units are dropped; on leaving, every trace is undone.

    Batch normalization keeps its running statistics and does not write them.

    Args:
        model: Any module.
        generator: What the masks are drawn from.
    """
    seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
    device = device_of(model)
    fast = torch.backends.mha.get_fastpath_enabled()
    with torch.random.fork_rng([device] if device.type == "cuda" else []), eval_mode(model):
        torch.default_generator.manual_seed(seed)  # nn.Dropout knows no other
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        for module in dropping(model):
            module.training = True  # its own flag alone
        torch.backends.mha.set_fastpath_enabled(False)  # it would leave dropout out
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


def monte_carlo_draws(
    model: nn.Module,
    inputs: tuple[Any, ...],
    samples: int,
    generator: Generator,
    read: Callable[[Any], Tensor] = lambda outputs: outputs,
) -> Iterator[Tensor]:
    """What a model answers under one draw of masks after the other, in float64 on the CPU; leaves no trace.

    Args:
        model: A module with dropout; only its dropout is active, batch normalization is as in evaluation.
        inputs: ``model(*inputs)``.
        samples: Number of draws, at least 2.
        generator: What the masks are drawn from.
        read: Reads a tensor from the outputs, probabilities for instance.

    Raises:
        ValueError: There are fewer than two draws, or nothing is dropped.
    """
    if samples < 2:
        raise ValueError(f"a mean with an error needs at least 2 samples: got {samples}")
    if not dropping(model):
        raise ValueError(f"the model must have a dropout layer with p > 0: {type(model).__name__} has none")
    for first in range(0, samples, TOGETHER):
        count = min(TOGETHER, samples - first)
        with torch.no_grad(), dropping_units(model, generator):  # left before a draw is handed out
            drawn = [read(model(*inputs)).double().cpu() for _ in range(count)]
        yield from drawn


def monte_carlo_prediction(
    model: nn.Module,
    inputs: tuple[Any, ...],
    samples: int,
    generator: Generator,
    read: Callable[[Any], Tensor] = lambda outputs: outputs,
) -> MonteCarlo:
    """The arithmetic mean of a model's answers over masks, with its standard error; leaves no trace.

    Args:
        model: A module with dropout; only its dropout is active, batch normalization is as in evaluation.
        inputs: ``model(*inputs)``.
        samples: Number of draws, at least 2.
        generator: What the masks are drawn from.
        read: Reads a tensor from the outputs; the mean is that of what it returns.

    Raises:
        ValueError: There are fewer than two draws, or nothing is dropped.

    Reference: Gal and Ghahramani 2016, Equation 6; Welford 1962 (running mean and squares).
    """
    draws = monte_carlo_draws(model, inputs, samples, generator, read)
    mean = next(draws)
    squares = torch.zeros_like(mean)
    for count, draw in enumerate(draws, 2):
        change = draw - mean
        mean = mean + change / count
        squares = squares + change * (draw - mean)
    return MonteCarlo(mean, (squares / (samples - 1) / samples).sqrt())
