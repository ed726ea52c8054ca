r"""What is proved of wide networks, on the subject's own inputs: the limit, its rate, and training near it.

Nothing here depends on the subject's weights: random networks are drawn for its examples. Jacot, Gabriel and
Hongler (2018), Lee et al. (2019); Cho and Saul (2009) for the arc-cosine kernels.
"""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import drawn_rows
from margin.engine.loop import risk
from margin.theory.kernels.duals import relu_dual
from margin.theory.kernels.empirical import empirical_ntk
from margin.theory.kernels.networks import WideNetwork
from margin.theory.kernels.regression import gradient_flow, kernel_regression
from margin.theory.kernels.wide import nngp, ntk

SEED = 2018
DRAWN = 50_000
"""Random features, and networks whose kurtosis is taken."""

CLOSE = 0.03
SLOPE = 0.2
"""Within which an exponent is that of the theorem."""


def _rows(subject: Subject, count: int) -> Float[Tensor, "n features"]:
    """Some of the subject's inputs, flattened, of unit length, no two of them alike."""
    batches = drawn_rows(subject.test, count).batches
    x = batches[0].inputs[0].detach().cpu().double().flatten(1)[:count]
    size = x.norm(dim=1)
    x = x[(size > 0) & size.isfinite()].unique(dim=0)
    if len(x) < 2:
        raise NotAsked("two different inputs other than 0 are needed")
    return x / x.norm(dim=1, keepdim=True)


def arc_cosine(subject: Subject, *, features: int = DRAWN) -> Finding:
    """The mean product of random ReLU features, and of their slopes, less the arc-cosine kernels.

    Args:
        subject: Its inputs are taken, at unit length; not its weights.
        features: Random features.
    """
    x = _rows(subject, 4)
    W = torch.randn(features, x.shape[1], generator=Generator().manual_seed(SEED), dtype=torch.float64)
    u = x @ W.T
    differences, errors, labels = [], [], []
    for i, j in pairwise(range(len(x))):
        one = torch.ones((), dtype=torch.float64)
        kernel = relu_dual(one, one, x[i] @ x[j])
        for order, a, promised in ((1, u.relu(), kernel.value), (0, (u > 0).double(), kernel.slope)):
            products = a[i] * a[j]
            differences.append(products.mean() - promised)
            errors.append(products.std() / math.sqrt(features))
            angle = float((x[i] @ x[j]).clamp(-1, 1).arccos().rad2deg())
            labels.append(f"order {order}, inputs {i + 1} and {j + 1}, {angle:.0f} degrees")
    return Finding(
        statement=f"The mean of {features:,} products of random ReLU features, and of their slopes, less the "
        "arc-cosine kernels of orders 1 and 0, between inputs of the subject at unit length.",
        value=torch.stack(differences),
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=torch.stack(errors),
        equals=0.0,
        tolerance=CLOSE,
        labels=tuple(labels),
    )


def _slope(widths: tuple[int, ...], logs: Float[Tensor, "seeds widths"]) -> tuple[Tensor, Tensor]:
    """The slope of a mean logarithm over that of the width by least squares, with its error over seeds."""
    t = torch.tensor(widths, dtype=torch.float64).log()
    t = t - t.mean()
    each = logs @ t / t.square().sum()
    return each.mean(), each.std() / math.sqrt(len(each))


def rate(subject: Subject, *, seeds: int = 40) -> Finding:
    r"""The exponent of width with which the tangent kernel of random networks nears its limit.

    Args:
        subject: Its inputs are taken; not its weights.
        seeds: Networks a width.
    """
    x, widths = _rows(subject, 4), (64, 256, 1024)
    x = x * math.sqrt(x.shape[1])
    theta = ntk(x)
    gaps = torch.empty(seeds, len(widths), dtype=torch.float64)
    for i, width in enumerate(widths):
        for seed in range(seeds):
            generator = Generator().manual_seed(SEED + 1000 * i + seed)
            net = WideNetwork(x.shape[1], width=width, generator=generator).double()
            K = empirical_ntk(net, x, outputs="mean", method="structured")
            gaps[seed, i] = (K - theta).norm() / theta.norm()
    value, error = _slope(widths, gaps.log())
    return Finding(
        statement="The slope of the logarithm of the distance between the tangent kernel of random "
        f"ReLU networks and its limit over that of the width, {widths[0]} to {widths[-1]:,}, {seeds} each.",
        value=value,
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=error,
        equals=-0.5,
        tolerance=SLOPE,
        scope="limit",
        curves={"width": torch.tensor(widths).double(), "distance from the limit": gaps.log().mean(0).exp()},
    )


def _descended(net: nn.Module, x: Tensor, y: Tensor, eta: float, steps: int, seen: Tensor) -> Tensor:
    """Gradient descent on half the sum of squared errors; the outputs at other inputs after each step."""
    path, weights = [], list(net.parameters())
    for _ in range(steps):
        with torch.no_grad():
            path.append(net(seen))
        loss = (net(x) - y).square().sum() / 2
        for p, g in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            p.data -= eta * g
    with torch.no_grad():
        path.append(net(seen))
    return torch.stack(path)


def _task(subject: Subject) -> tuple[Tensor, Tensor, float]:
    """Some inputs, signs that are drawn for them, and half the longest time step that is stable."""
    x = _rows(subject, 8)
    x = x * math.sqrt(x.shape[1])
    y = torch.randint(2, (len(x), 1), generator=Generator().manual_seed(SEED)).double() * 2 - 1
    return x, y, float(1 / torch.linalg.eigvalsh(ntk(x))[-1])


def constancy(subject: Subject, *, seeds: int = 6, steps: int = 40) -> Finding:
    """The exponent of width with which the change of the tangent kernel in training falls.

    Args:
        subject: Its inputs are taken, with random signs as targets; not its weights.
        seeds: Networks a width.
        steps: Of gradient descent.
    """
    (x, y, eta), widths, parts = _task(subject), (64, 256, 1024), 5
    drifts = torch.zeros(seeds, len(widths), parts + 1, dtype=torch.float64)
    for i, width in enumerate(widths):
        for seed in range(seeds):
            generator = Generator().manual_seed(SEED + 1000 * i + seed)
            net = WideNetwork(x.shape[1], width=width, generator=generator).double()
            first = empirical_ntk(net, x, outputs="mean", method="structured")
            for part in range(1, parts + 1):
                _descended(net, x, y, eta, steps // parts, x[:1])
                K = empirical_ntk(net, x, outputs="mean", method="structured")
                drifts[seed, i, part] = (K - first).norm() / first.norm()
    value, error = _slope(widths, drifts[:, :, -1].log())
    return Finding(
        statement=f"The slope of the logarithm of the relative change of the tangent kernel in {steps} steps "
        f"of gradient descent over that of the width, {widths[0]} to {widths[-1]:,}, over {seeds} networks a "
        "width.",
        value=value,
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=error,
        high=torch.tensor(-0.5, dtype=torch.float64),
        tolerance=SLOPE,
        scope="limit",
        curves={
            "step": torch.arange(parts + 1).double() * (steps // parts),
            **{f"width {width:,}": drifts[:, i].mean(0) for i, width in enumerate(widths)},
        },
    )


def dynamics(subject: Subject, *, width: int = 2048, steps: int = 60) -> Finding:
    """How far a wide network's outputs, in training, lie from those of its linearization in closed form.

    Args:
        subject: Its inputs are taken, with random signs as targets; not its weights.
        width: Of the network.
        steps: Of gradient descent.
    """
    x, y, eta = _task(subject)
    eta /= 5  # a step of descent is nearly one of flow
    new = x.roll(1, 0) / 2 + x / 2
    net = WideNetwork(x.shape[1], width=width, generator=Generator().manual_seed(SEED)).double()
    K, cross = (empirical_ntk(net, z, x, outputs="mean", method="structured") for z in (x, new))
    both = torch.cat([x, new])
    with torch.no_grad():
        f0 = net(both)
    flow = gradient_flow(K, cross, y, eta * torch.arange(steps + 1), f0=f0[: len(x)], f0_new=f0[len(x) :])
    predicted = torch.cat([flow.training, flow.new], 1)
    path = _descended(net, x, y, eta, steps, both)
    gap = (path - predicted).flatten(1).norm(dim=1) / (path[-1] - path[0]).norm()
    return Finding(
        statement=f"The largest distance of the outputs of a ReLU network of width {width:,}, over {steps} "
        "steps of gradient descent, from those of its linearization under gradient flow, in units of the "
        "way that they go.",
        value=gap.max(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=0.05,
        scope="limit",
        curves={
            "step": torch.arange(steps + 1).double(),
            "network": path[:, -1, 0],
            "linearized": predicted[:, -1, 0],
        },
    )


def kurtosis(subject: Subject, *, draws: int = 4 * DRAWN) -> Finding:
    """The excess kurtosis of an output of random two-layer linear networks: 6 / width, not a Gaussian's 0.

    Args:
        subject: One of its inputs is taken; not its weights.
        draws: Networks a width.
    """
    x, widths, groups = _rows(subject, 2)[0], (2, 4, 8, 16), 50
    generator = Generator().manual_seed(SEED)
    found = []
    for width in widths:
        # W x of standard normal W and |x| = 1 is standard normal, whatever x
        h = torch.randn(draws, width, generator=generator, dtype=torch.float64) * x.norm()
        y = (h * torch.randn(h.shape, generator=generator, dtype=torch.float64)).sum(1) / math.sqrt(width)
        parts = y.reshape(groups, -1)
        fourth, second = parts.pow(4).mean(1), parts.square().mean(1)
        ratio = fourth.mean() / second.mean() ** 2
        # the delta method: of a ratio of means, from the groups
        each = fourth / second.mean() ** 2 - 2 * ratio * second / second.mean()
        found.append((ratio - 3, each.std() / math.sqrt(groups)))
    value, error = (torch.stack(part) for part in zip(*found, strict=True))
    promised = 6 / torch.tensor(widths, dtype=torch.float64)
    return Finding(
        statement=f"The excess kurtosis of an output of random linear networks of two layers, over {draws:,} "
        "networks a width, in units of 6 / width: it is no Gaussian at any finite width.",
        value=value / promised,
        range=(-math.inf, math.inf),
        unit="6 / width",
        kind="estimate",
        stderr=error / promised,
        equals=1.0,
        tolerance=0.5,
        labels=tuple(f"width {width}" for width in widths),
    )


def posterior_mean(subject: Subject, *, noise: float = 0.1) -> Finding:
    """The posterior mean of wide networks' Gaussian process, less kernel ridge regression with its kernel.

    Args:
        subject: Its inputs are taken, with random signs as targets; not its weights.
        noise: The variance of the noise, which is the ridge.
    """
    x = _rows(subject, 32)
    y = torch.randint(2, (len(x),), generator=Generator().manual_seed(SEED)).double() * 2 - 1
    half = len(x) // 2
    K = nngp(x, depth=2, bias_std=0.1)
    ridge = kernel_regression(K[:half, :half], K[half:, :half], y[:half], ridge=noise)
    # conditioning by the precision of the joint law of noisy targets and new outputs, and by no kernel solve
    joint = K + 1e-9 * torch.eye(len(x), dtype=K.dtype)
    joint[:half, :half] += noise * torch.eye(half, dtype=K.dtype)
    precision = torch.linalg.inv(joint)
    mean = -torch.linalg.solve(precision[half:, half:], precision[half:, :half] @ y[:half])
    return Finding(
        statement=f"The conditional mean of {len(x) - half} outputs given {half} noisy ones under the prior "
        "of infinitely wide ReLU networks, less kernel ridge regression with its kernel, relative.",
        value=(mean - ridge.mean).norm() / ridge.mean.norm(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-5,
        premises=(Premise("the kernel is positive definite", "sampled", f"its jitter is {ridge.jitter:g}"),),
    )


def demo() -> Subject:
    """A linear model of inputs in four dimensions: of it the inputs alone count."""
    x = torch.randn(32, 4, generator=Generator().manual_seed(SEED))
    model = nn.Linear(4, 2)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return Subject(
        model=model, test=[Batch((x,), (x[:, 0] > 0).long())], task=CLASSES, objective=risk(CLASSES)
    )
