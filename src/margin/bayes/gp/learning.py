"""Learning a Gaussian process: hyper-parameters of the largest evidence, by L-BFGS from several beginnings.

Rasmussen and Williams (2006), Section 5.4.1; Byrd, Lu, Nocedal and Zhu (1995), the optimizer, SciPy's.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.bayes.gp import classification as classifier
from margin.bayes.gp.kernels import Hyperparameters
from margin.bayes.gp.regression import Evidence, GaussianProcess, log_evidence
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step
from margin.engine.weighted_rows import batch_rows

RANGE = {"scales": (1e-2, 1e3), "signal": (1e-4, 1e4), "noise": (1e-6, 1e1)}
"""Where hyper-parameters are looked for: inputs and values are standardized."""

Objective = Callable[[Hyperparameters], tuple[float, Tensor]]
"""The evidence and its gradient in the logarithms."""


def most_evident(
    begin: Hyperparameters, evidence: Objective, *, restarts: int, generator: Generator, noise: bool = True
) -> Hyperparameters:
    """The hyper-parameters of largest evidence that a search finds, in the range of :data:`RANGE`.

    Args:
        begin: Where the first search begins.
        evidence: What is maximized.
        restarts: Further beginnings, uniform in the logarithms within a factor 10 of the first.
        generator: Draws them.
        noise: Whether the noise is among what is learned; else it stays.

    Raises:
        ValueError: No beginning has an evidence that is finite.
    """
    from scipy.optimize import minimize

    log = begin.log()
    free = len(log) if noise else len(log) - 1
    bounds = [RANGE["scales"]] * (len(log) - 2) + [RANGE["signal"], RANGE["noise"]][: free - len(log) + 2]
    ends = [(math.log(low), math.log(high)) for low, high in bounds]

    def loss(values: Any) -> tuple[float, Any]:
        found = torch.cat((torch.from_numpy(values).double(), log[free:]))
        value, slopes = evidence(Hyperparameters.of_log(found))
        return -value, -slopes[:free].numpy()

    draws = torch.rand(restarts, free, generator=generator, dtype=torch.float64)
    starts = [log[:free], *(log[:free] + (2 * draw - 1) * math.log(10) for draw in draws)]
    low, high = (torch.tensor([end[i] for end in ends], dtype=torch.float64) for i in (0, 1))
    results = [
        minimize(loss, s.clamp(low, high).numpy(), jac=True, method="L-BFGS-B", bounds=ends) for s in starts
    ]
    finite = [result for result in results if math.isfinite(result.fun)]
    if not finite:
        raise ValueError("no hyper-parameters have a finite evidence: are inputs and values finite?")
    best = torch.from_numpy(min(finite, key=lambda result: result.fun).x)
    return Hyperparameters.of_log(torch.cat((best, log[free:])))


def regression() -> Step:
    """One exact inference on all training examples, which the model then holds.

    It reports the log evidence and the standard deviation of the noise in the unit of the targets, and
    the jitter as a share of their variance.
    """

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, y, weight, _ = batch_rows(state, batch, learner="a Gaussian process").double()
        model: Any = state.core
        z, shift, unit = standardized(y, weight)

        def evidence(found: Hyperparameters, *, slopes: bool = True) -> Evidence:
            return log_evidence(x, z, weight, found, model.kernel, slopes=slopes)

        found = model.hyperparameters
        if model.learn == "evidence":
            found = most_evident(
                found, lambda h: evidence(h)[:2], restarts=model.restarts, generator=state.generator
            )
        posterior = evidence(found, slopes=False)
        written(model, x, weight, found, shift, unit, posterior)
        model.keep(posterior.factor)
        residual = unit * (found.noise / weight + posterior.factor.jitter) * posterior.coefficients
        return {
            "loss": (weight * residual.square()).sum() / weight.sum(),
            "evidence": posterior.value - len(y) * float(unit.log()),
            "noise": float(unit * found.noise.sqrt()),
            "jitter": posterior.factor.jitter,
        }

    return step


def standardized(
    y: Float[Tensor, " rows"], weight: Float[Tensor, " rows"]
) -> tuple[Float[Tensor, " rows"], Tensor, Tensor]:
    """Values of mean 0 and variance 1, their mean and their standard deviation; of a constant 1."""
    shift = y[0] + weight @ (y - y[0]) / weight.sum()  # of a constant exactly that
    spread = ((weight @ (y - shift).square()) / weight.sum()).sqrt()
    unit = spread if float(spread) > 0 else torch.ones_like(spread)
    return (y - shift) / unit, shift, unit


def written(  # more than 7 parameters: all that a posterior rests on
    model: GaussianProcess,
    x: Tensor,
    weight: Tensor,
    found: Hyperparameters,
    shift: Tensor,
    unit: Tensor,
    posterior: Evidence,
) -> None:
    """Put a posterior into the model; the place of an example of weight 0 stays empty."""
    new = {
        "examples": torch.zeros_like(model.examples, dtype=torch.float64),
        "weight": torch.ones_like(model.weight, dtype=torch.float64),
        "coefficients": torch.zeros_like(model.coefficients, dtype=torch.float64),
    }
    for name, rows in (("examples", x), ("weight", weight), ("coefficients", posterior.coefficients)):
        new[name][: len(x)] = rows
    new |= {"scales": found.scales, "signal": found.signal, "noise": found.noise}
    new |= {"shift": shift, "unit": unit, "jitter": torch.tensor(posterior.factor.jitter)}
    for name, value in new.items():
        getattr(model, name).copy_(value)
    model.count.fill_(len(x))


def classification() -> Step:
    """One Laplace approximation on all training examples, of each class against the rest.

    The loss that it reports is the mean cross-entropy of the training labels, the evidence the sum over the
    processes.
    """

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, labels, weight, _ = batch_rows(state, batch, learner="a Gaussian process").double()
        model: Any = state.core
        total = 0.0
        model.examples.zero_()[: len(x)] = x
        model.count.fill_(len(x))
        model.root.zero_()
        model.coefficients.zero_()
        for process in range(len(model.signal)):
            own = labels == (1 if len(model.signal) == 1 else process)
            sign = 2 * own.double() - 1

            def slopes(found: Hyperparameters, sign: Tensor = sign) -> tuple[float, Tensor]:
                return classifier.log_evidence(x, sign, weight, found, model.kernel)[:2]

            found = model.hyperparameters(process)
            if model.learn == "evidence":
                found = most_evident(
                    found, slopes, restarts=model.restarts, generator=state.generator, noise=False
                )
            value, _, mode = classifier.log_evidence(x, sign, weight, found, model.kernel)
            total += value
            model.scales[process].copy_(found.scales)
            model.signal[process].copy_(found.signal)
            model.root[process, : len(x)] = mode.root
            model.coefficients[process, : len(x)] = mode.slope
        outputs = model(x.to(model.examples.dtype)).double()
        losses = -outputs.gather(1, labels.long()[:, None])[:, 0]
        return {"loss": (weight * losses).sum() / weight.sum(), "evidence": total}

    return step
