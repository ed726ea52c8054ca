r"""Margin bounds of networks by the norms of their layers, and by the VC dimension of their class.

Bartlett, Foster and Telgarsky (2017) cover a network x -> A_L s(... s(A_1 x)) by its layers' norms: of margin
gamma on n examples X,

.. math:: R \le \hat R_\gamma + \frac{8}{n^{3/2}}
    + \frac{72 \ln n \sqrt{\ln(2 W^2)}\, \|X\|_F}{\gamma n}
      \prod_i s_i \Big(\sum_i (b_i / s_i)^{2/3}\Big)^{3/2}
    + 3 \sqrt{\frac{\ln(2/\delta)}{2 n}}

with s_i the spectral norms, b_i the sums of the lengths of the rows, W the largest width. Neyshabur,
Bhojanapalli and Srebro (2018) perturb the weights. Both are far above 1 on networks of any use. Where each
constant comes from stands at the functions; Theorem 1.1 of the one and Theorem 1 of the other hide them.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.tasks import class_margins
from margin.math.linear_algebra.convolution_norms import circular_norm_bound
from margin.nn.preprocessed import features_of
from margin.theory.bounds.pac_bayes import check_sample, pac_bayes_kl
from margin.theory.bounds.samples import vc_bound
from margin.theory.capacity.growth import log_growth_bound, network_dimension_bound
from margin.theory.prediction.confusion import class_scores
from margin.theory.signal.chain import NotAChainError, Stage, chain_of

MOST_ENTRIES = 2_000_000
"""Entries of a matrix whose singular values are computed."""

SPECTRAL = "training examples, by spectral norms"
PERTURBED = "training examples, by spectral norms and PAC-Bayes"
VC = "training examples, by the VC dimension"

PIECES: dict[type[nn.Module], int] = {nn.ReLU: 2, nn.LeakyReLU: 2, nn.Hardtanh: 3, nn.ReLU6: 3}
"""Linear pieces of a unit."""

STILL = (nn.Identity, nn.Dropout, nn.Flatten)
"""Layers that leave all entries as they are, in evaluation."""


class Norms(NamedTuple):
    """The norms of a layer as a matrix, its bias a column and the constant 1 carried on in a row of its own.

    Args:
        spectral: Its largest singular value, or a bound of it.
        rows: The sum of the lengths of its rows.
        frobenius: The root of the sum of its squares.
    """

    spectral: float
    rows: float
    frobenius: float


def norms_of(layer: nn.Linear | nn.Conv2d, sizes: Sequence[int], places: int, *, last: bool = False) -> Norms:
    """The norms of an affine layer as a matrix on its input and a constant.

    Those of a linear layer are exact; the spectral norm of a convolution is bounded by the periodic one on
    the padded image.

    Args:
        layer: Linear, or a convolution of one group without dilation.
        sizes: Height and width of a convolution's padded input; () of a linear layer.
        places: Of a convolution's output; 1 of a linear layer.
        last: Whether the constant ends here.

    Raises:
        NotAChainError: It is another convolution, or too large.
    """
    W = layer.weight.detach().double()
    b = torch.zeros(len(W), dtype=torch.float64) if layer.bias is None else layer.bias.detach().double().cpu()
    kernels = torch.cat((W.cpu().flatten(1), b.unsqueeze(1)), 1)
    kept = 0.0 if last else 1.0
    rows = places * float(kernels.norm(dim=1).sum()) + kept
    square = places * float(kernels.square().sum()) + kept
    if isinstance(layer, nn.Conv2d):
        if layer.groups != 1 or layer.dilation != (1, 1):
            raise NotAChainError("a convolution of groups or with dilation has no norm here")
        spectral = circular_norm_bound(W, tuple(sizes)) ** 2 + places * float(b.square().sum()) + kept
        return Norms(math.sqrt(min(spectral, square)), rows, math.sqrt(square))
    if kernels.numel() > MOST_ENTRIES:
        raise NotAChainError(f"a matrix of {kernels.numel():,} entries is too large")
    if not last:
        kernels = torch.cat((kernels, torch.eye(kernels.shape[1], dtype=torch.float64)[-1:]))
    return Norms(float(torch.linalg.matrix_norm(kernels, 2)), rows, math.sqrt(square))


def grid_nats(k: int) -> float:
    """What it costs to have chosen the integer k after the data: these lengths are a code of all integers."""
    return math.log(2 * (abs(k) + 1) * (abs(k) + 2))


def spectral_bound(
    share: float, norms: Sequence[Norms], *, width: int, length: float, margin: float, n: int, delta: float
) -> float:
    r"""The bound of Bartlett, Foster and Telgarsky; margin and norms are powers of 2, which are paid for.

    Its constant is 72 = 2 * 12 * 3/2 * 2, with the numbers of steps 5, 4, 4 and 3. Covers are of the outputs
    on all n examples, their centers anywhere:

    1. *A layer.* The matrices A Z with sum of row lengths at most b are convex combinations of 2 W^2 matrices
       of length b ||Z||. The mean of k of them that are drawn, times c = sqrt(k)/(1 + sqrt(k)), is on average
       within b ||Z||/(1 + sqrt(k)): the squared error is at most (1 - c)^2 t + c^2 (1 - t)/k in units of
       (b ||Z||)^2, which is the same for all t. So ln N(eps) is at most the least such k times ln(2 W^2),
       and k < (x - 1)^2 + 1 <= x^2 at x = b ||Z||/eps >= 1: no rounding is left.
    2. *All layers.* The centers of a layer are projected to the ball of radius s_i ||Z||, which moves them
       farther from no output; so ||Z|| at layer i is at most ||X|| prod_{j<i} s_j. Errors eps_i grow by the
       later s_j; the best split of eps among them has the power 2/3 (Theorem 3.3).
    3. *The loss* falls from 1 at margin 0 to 0 at gamma, and a margin changes by at most twice the change of
       the outputs: eps becomes gamma eps/2. (sqrt(2) times would do.)
    4. *Dudley*: 4 alpha/sqrt(n) + (12/n) times the integral of sqrt(ln N) from alpha = 1/n to sqrt(n)
       (Lemma A.5). Radii are halved; the steps of the chain are 3 eps long, of at most N^2 kinds: by
       Massart's lemma 3 eps sqrt(2 ln N^2) = 6 eps sqrt(ln N), and eps is twice the way to the next radius.
       The integral of 1/eps is ln n^(3/2).
    5. *The sample*: risk <= mean + 2 Rademacher + 3 sqrt(ln(2/delta)/(2n)), McDiarmid's inequality once for
       the mean and once, doubled, for the complexity, each with delta/2: not ln(1/delta).

    Args:
        share: Of the examples whose margin is at most ``margin``.
        norms: Of each layer; the functions between them have slopes of at most 1 and map 0 to 0.
        width: The largest width of a layer, inputs and constant among them.
        length: The Frobenius norm of all inputs.
        margin: gamma > 0, rounded downwards.
        n: Examples.
        delta: Probability that the bound fails, in (0, 1).

    Raises:
        ValueError: A number is out of range.

    Reference: Bartlett, Foster and Telgarsky 2017, Theorem 3.3 with Lemmas 3.1, 3.2 and A.5; Mohri,
    Rostamizadeh and Talwalkar 2018, Theorem 3.3, of step 5. Step 1 differs from their Lemma 3.2 by the factor
    c, which spares a rounding, step 2 by the projection: centers of this kind need be no outputs.
    """
    check_sample(n, delta)
    if not margin > 0:
        raise ValueError(f"margin must be above 0: got {margin}")
    below = math.floor(math.log2(margin))
    spectral = [math.ceil(math.log2(max(one.spectral, 2.0**-60))) for one in norms]
    rows = [math.ceil(math.log2(max(one.rows, 2.0**-60))) for one in norms]
    paid = sum(map(grid_nats, (below, *spectral, *rows)))
    # in logarithms: the product of the norms of a deep network is no number
    sums = math.log(sum(2 ** ((b - s) * 2 / 3) for s, b in zip(spectral, rows, strict=True)))
    log_term = math.log(72 * length * math.sqrt(math.log(2 * width**2)) / n) + math.log(
        max(math.log(n), 1e-300)
    )
    log_term += (sum(spectral) - below) * math.log(2) + 1.5 * sums
    if log_term > 0:
        return 1.0
    chance = 3 * math.sqrt((paid + math.log(2 / delta)) / (2 * n))
    return min(1.0, share + 8 / n**1.5 + math.exp(log_term) + chance)


def perturbation_bound(
    share: float, norms: Sequence[Norms], *, width: int, radius: float, margin: float, n: int, delta: float
) -> float:
    r"""The bound of Neyshabur, Bhojanapalli and Srebro, with the constants that its steps have.

    .. math:: R \le \mathrm{kl}^{-1}\Big(\hat R_\gamma,
        \frac{2 (\mathrm{KL} + \ln 2) + \ln(4 \sqrt n/\delta)}{n}\Big) + \frac{\ln(2/\delta)}{n}, \quad
        \mathrm{KL} = \frac{(4 e\, d\, B \tilde\beta^{d-1})^2\, h \ln(4 h d)}{\gamma^2}
        \sum_i \frac{\beta^2 f_i^2}{s_i^2}

    with beta^d the product of the spectral norms, rounded upwards to tilde beta^d, a power of e:

    1. *The layers* are scaled to the spectral norm beta, which leaves a network of ReLUs as it is.
    2. *The perturbation* U_i has entries N(0, sigma^2). P(||U|| > t sigma) <= 2 h exp(-t^2/(2 h)) (Tropp),
       so that with probability 1/2 all d are at most sigma t at t^2 = 2 h ln(4 h d).
    3. *Outputs* change by at most (1 + 1/d)^d <= e times B beta^(d-1) sum_i ||U_i|| where ||U_i|| <= beta/d
       (Lemma 2): by gamma/4 at sigma = gamma/(4 e d B tilde beta^(d-1) t). Where that norm is exceeded,
       gamma is above 4 e B beta^d, and so above every margin: the share is 1.
    4. *KL* of N(w, sigma^2) from N(0, sigma^2) is ||w||^2/(2 sigma^2), and that of the perturbations of step
       3 alone, half of all at least, at most 2 (KL + ln 2).
    5. *PAC-Bayes* (Maurer) of the loss 1[margin <= gamma/2] with delta/2: margins of the perturbed network
       are within gamma/2 of those of the network, on both sides.
    6. *B* is the largest length met, rounded upwards to a power of 2. Longer inputs count as errors: no more
       than ln(2/delta)/n of all are longer than all n, or that had been improbable, (1 - p)^n <= delta/2.

    The powers are paid for. The paper has 42 = 4 e^2 sqrt(2), rounded, in place of 4 e sqrt(2) since its grid
    is rounded to both sides, 4 sqrt((KL + ln(6 n/delta))/(n - 1)) of McAllester's form, and B of all inputs
    that there may be, which no sample tells.

    Args:
        share: Of the examples whose margin is at most ``margin``.
        norms: Of each of d layers, between which stand ReLUs.
        width: h, the largest width of a layer.
        radius: The largest length of an input of the sample, above 0.
        margin: gamma > 0, rounded downwards to a power of 2.
        n: Examples.
        delta: Probability that the bound fails.

    Raises:
        ValueError: A number is out of range.

    Reference: Neyshabur, Bhojanapalli and Srebro 2018, Theorem 1 with Lemmas 1 and 2; Tropp 2012, Theorem
    1.5; Maurer 2004, Theorem 5.
    """
    check_sample(n, delta)
    if not (margin > 0 and radius > 0):
        raise ValueError(f"margin must be above 0, as the radius: got {margin} and {radius}")
    d, below, beyond = len(norms), math.floor(math.log2(margin)), math.ceil(math.log2(radius))
    log_beta = sum(math.log(max(one.spectral, 1e-300)) for one in norms) / d
    place = math.ceil(log_beta * d)
    ratios = sum((one.frobenius / max(one.spectral, 1e-300)) ** 2 for one in norms)
    # in logarithms: the product of the norms of a deep network is no number
    log_kl = 2 * math.log(4 * math.e * d) + math.log(width * math.log(4 * width * d))
    log_kl += 2 * (beyond - below) * math.log(2)
    log_kl += 2 * place * (d - 1) / d + 2 * log_beta + math.log(ratios)
    kl = math.exp(min(log_kl, 50.0))
    paid = grid_nats(below) + grid_nats(beyond) + grid_nats(place)
    held = float(pac_bayes_kl(share, 2 * (kl + math.log(2)) + paid, n, delta / 2))
    return min(1.0, held + math.log(2 / delta) / n)


class Network(NamedTuple):
    """A chain of layers as the theorems see it.

    Args:
        norms: Of each layer.
        widths: Of each, the input's first.
        weights: Numbers of each layer.
        pieces: The most linear pieces of a unit; 0 where one is not piecewise linear.
    """

    norms: tuple[Norms, ...]
    widths: tuple[int, ...]
    weights: tuple[int, ...]
    pieces: int


def network_of(stages: Sequence[Stage]) -> Network:
    """The norms and widths of a chain.

    Raises:
        NotAChainError: Another layer stands between the affine ones than the theorems allow.
    """
    norms, widths, weights, pieces = [], [math.prod(stages[0].taken[1:])], [], 2
    for number, stage in enumerate(stages):
        layer, last = stage.layer, number == len(stages) - 1
        sizes, places = _places(stage)
        norms.append(norms_of(layer, sizes, places, last=last))
        widths.append(math.prod(stage.given[1:]))
        weights.append(sum(parameter.numel() for parameter in layer.parameters()))
        for name, module in stage.after:
            pieces = _pieces(name, module, pieces, last=last)
    return Network(tuple(norms), tuple(widths), tuple(weights), pieces)


def _places(stage: Stage) -> tuple[tuple[int, ...], int]:
    """The padded sizes of a convolution's input, and the places of its output."""
    layer = stage.layer
    if isinstance(layer, nn.Linear):
        if len(stage.taken) != 2:
            raise NotAChainError(f"layer {stage.name!r} is applied at several places")
        return (), 1
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        raise NotAChainError(f"layer {stage.name!r} pads otherwise than by zeros")
    sizes = tuple(n + 2 * p for n, p in zip(stage.taken[2:], layer.padding, strict=True))
    return sizes, math.prod(stage.given[2:])


def _pieces(name: str, module: nn.Module, pieces: int, *, last: bool) -> int:
    if type(module) in STILL:
        return pieces
    if last:
        raise NotAChainError(f"layer {name!r} stands behind the last affine one")
    if type(module) in PIECES:
        steep = isinstance(module, nn.LeakyReLU) and abs(module.negative_slope) > 1
        low = isinstance(module, nn.Hardtanh) and not module.min_val <= 0 <= module.max_val
        if not steep and not low:
            return max(pieces, PIECES[type(module)]) if pieces else 0
    pooled = isinstance(module, nn.MaxPool2d | nn.AvgPool2d)
    if pooled and module.kernel_size == module.stride and module.padding in (0, (0, 0)):
        return 0
    if type(module) is nn.Tanh:
        return 0
    raise NotAChainError(f"layer {name!r} is none of which the theorems speak")


def by_norms(part: Subject, delta: float) -> dict[str, float]:
    """The bounds of a network that is a chain from training examples, each of a third of delta; {} of others.

    Args:
        part: The model on its training examples, as if they were held out.
        delta: Probability that one of them fails.
    """
    first = part.test[0]
    if len(first.inputs) != 1 or not part.independent:
        return {}  # the theorems speak of maps of one vector
    try:
        network = network_of(chain_of(part.model, (first.inputs[0][:2],)))
    except NotAChainError:
        return {}
    answered, scores = class_scores(part)
    weight = answered.weight
    if len(scores) < 3 or scores.shape[-1] < 2 or bool((weight != weight[0]).any()):
        return {}
    margins, n = class_margins(scores, answered.targets.long()), len(scores)
    inputs = torch.cat(
        [features_of(part.model, b.inputs[0]).detach().double().flatten(1).cpu() for b in part.test]
    )
    lengths = (inputs.square().sum(1) + 1).sqrt()
    width, third = max(network.widths) + 1, delta / 3
    given = [
        (
            spectral_bound(
                share, network.norms, width=width, length=float(lengths.norm()), margin=g, n=n, delta=third
            ),
            perturbation_bound(
                share, network.norms, width=width, radius=float(lengths.max()), margin=g, n=n, delta=third
            )
            if network.pieces == 2
            else 1.0,
        )
        for g, share in margin_shares(margins)
    ]
    found = {SPECTRAL: min((a for a, _ in given), default=1.0)}
    if network.pieces == 2:
        found[PERTURBED] = min((b for _, b in given), default=1.0)
    if network.pieces:
        wrong = float((margins <= 0).double().mean())
        found[VC] = by_dimension(network, scores.shape[-1], wrong, n, third)
    return found


def margin_shares(margins: Float[Tensor, " n"]) -> list[tuple[float, float]]:
    """Powers of 2 among the margins, and the share of the margins at most as large."""
    above = margins[margins > 0]
    if not len(above):
        return []
    ends = [math.floor(math.log2(float(end))) for end in above.aminmax()]
    powers = range(max(ends[0], ends[1] - 60), ends[1] + 1)
    return [(2.0**k, float((margins <= 2.0**k).double().mean())) for k in powers]


def by_dimension(network: Network, classes: int, share: float, n: int, delta: float) -> float:
    """The bound by the growth function: of K classes that of each pair's difference, multiplied."""
    outputs = 1 if classes == 2 else classes * (classes - 1) // 2
    weights = (*network.weights[:-1], network.widths[-2] + 1)
    units = (*network.widths[1:-1], 1)
    dimension = network_dimension_bound(units, weights, pieces=network.pieces)
    return float(vc_bound(share, outputs * log_growth_bound(n, dimension), n, delta))
