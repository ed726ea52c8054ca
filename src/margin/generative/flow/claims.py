"""What a flow promises (Dinh et al. 2017): an inverse, the volume it reports, noise that is normal."""

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, in_double, sample_examples
from margin.engine.objectives import negative_log_density
from margin.generative.flow.realnvp import realnvp
from margin.nn.preprocessed import core_of, features_of

EXAMPLES = 1024
"""Held-out examples that are asked, at most."""

FEW = 3
"""Examples whose Jacobian is computed."""

WIDEST = 128
"""Numbers of an input whose Jacobian is computed, at most."""

CLOSE = {torch.float64: 1e-10, torch.float32: 1e-5}
"""How near an inverse comes back, for numbers of size 1; in 16 bits, to 1/20."""

ITERATIONS = 10
"""Of the power method for the stretch of the inverse."""

STEP = 1e-5
"""By which the power method moves the noise, in float64."""

FAILURE = 1e-4
"""Probability with which an interval misses the truth."""


def is_flow(subject: Subject) -> bool:
    """Whether the model maps its inputs to noise and back, and says by how much it changes volume."""
    core = core_of(subject.model)
    return callable(getattr(core, "transform", None)) and callable(getattr(core, "inverse", None))


def is_small(subject: Subject) -> bool:
    """Whether an input has few numbers."""
    return bool(subject.test) and subject.test[0].inputs[0][0].numel() <= WIDEST


def rows_of(subject: Subject, count: int) -> Tensor:
    """At most so many held-out inputs, drawn at random, as the core sees them."""
    few = sample_examples(subject.test, count).batches
    return torch.cat([features_of(subject.model, batch.inputs[0]) for batch in few]).detach()


def stretch(core: Any, z: Tensor, generator: Generator) -> float:
    """The largest factor by which the inverse stretches a small error at z: a power method, from below."""
    flow: Any = in_double(core)
    inverse = flow.inverse
    z = z.detach().double()
    v, found = torch.randn(z.shape, generator=generator, dtype=torch.float64).to(z), 0.0
    with torch.enable_grad():
        at = z.clone().requires_grad_()
        x = inverse(at)
    for _ in range(ITERATIONS):
        v = v / v.norm()
        with torch.no_grad():  # central differences: forward derivatives load seconds of torch's own code
            pushed = (inverse(z + STEP * v) - inverse(z - STEP * v)) / (2 * STEP)
        found = max(found, float(pushed.norm()))
        (v,) = torch.autograd.grad(x, at, pushed, retain_graph=True)
    return found


def inverse(subject: Subject) -> Finding:
    """Whether the inverse undoes the map on held-out examples, in the model's own precision.

    Args:
        subject: A flow.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model) as generator, torch.no_grad():
        x = rows_of(subject, EXAMPLES)
        z, _ = core.transform(x)
        error = (core.inverse(z).reshape(x.shape) - x).abs().flatten(1).amax(1).double()
        size = max(1.0, float(x.abs().max()))
        tolerance = CLOSE.get(x.dtype, 0.05) * size
        worst = int(error.nan_to_num(math.inf).argmax())
        factor = stretch(core, z[worst : worst + 1], generator)
        rounding = float(torch.finfo(x.dtype).eps) * max(1.0, float(z[worst].abs().max())) * factor
    tame = rounding <= tolerance
    return Finding(
        statement=f"f^-1(f(x)) = x: the largest difference of a number, over {len(x):,} held-out examples.",
        value=error.max(),
        unit="the model's units",
        range=(0.0, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.zeros((), dtype=torch.float64),
        tolerance=tolerance,
        premises=(
            Premise(
                f"the inverse does not stretch rounding beyond {tolerance:.2g}",
                "sampled" if tame else "refuted",
                f"at the worst example it stretches an error {factor:.3g} times"
                + ("" if tame else f", most in {steepest(core, x[worst : worst + 1])}"),
            ),
        ),
        reference="Dinh, Sohl-Dickstein and Bengio 2017, Equation 8; Behrmann et al. 2021, Section 3",
    )


def steepest(core: Any, x: Tensor) -> str:
    """The submodule in which one input's numbers become largest: where a flow loses its digits."""
    sizes: dict[str, float] = {}
    hooks = []
    for name, module in core.named_modules():
        if name and not list(module.children()):

            def look(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
                if isinstance(output, Tensor):
                    sizes[name] = max(sizes.get(name, 0.0), float(output.detach().abs().max()))

            hooks.append(module.register_forward_hook(look))
    try:
        core.transform(x)
    finally:
        for hook in hooks:
            hook.remove()
    return max(sizes, key=lambda name: sizes[name], default="the model")


def log_det(subject: Subject) -> Finding:
    """Whether the log-determinant that the flow reports is that of its Jacobian by autograd, in float64.

    Args:
        subject: A flow of few numbers.
    """
    core: Any = in_double(core_of(subject.model))
    with eval_mode(core), torch.no_grad():
        x = rows_of(subject, FEW).double()
        _, reported = core.transform(x)
        jacobians = [torch.func.jacrev(lambda one: core.transform(one[None])[0][0])(row) for row in x]
        exact = [torch.linalg.slogdet(J.reshape(len(J), -1)).logabsdet for J in jacobians]
    numbers = x[0].numel()
    return Finding(
        statement=f"The reported log |det f'(x)| less that of the Jacobian by autograd, at {len(x)} held-out "
        f"examples of {numbers} numbers, in float64.",
        value=reported - torch.stack(exact),
        unit="nats",
        range=(-math.inf, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.zeros((), dtype=torch.float64),
        tolerance=1e-10 * numbers,
        premises=(),
        reference="Dinh, Sohl-Dickstein and Bengio 2017, Equations 3, 6 and 7",
    )


def radius(subject: Subject) -> Finding:
    r"""How far the noise of held-out examples is from normal: its squared radius against chi-squared.

    If the density were the data's, ||f(x)||^2 would have the chi-squared law of D degrees, and
    F(||f(x)||^2) the uniform one. An overfitted flow sends held-out examples too far out.

    Args:
        subject: A flow.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model) as generator, torch.no_grad():
        x = rows_of(subject, 10 * EXAMPLES)
        if hasattr(core, "cell"):  # levels are points; it is the cells about them that have a density
            x = core.cell(x, torch.rand(x.shape, generator=generator).to(x))
        z, _ = core.transform(x)
    half, squares = z.shape[1] / 2, z.double().square().sum(1)
    u = torch.special.gammainc(torch.full_like(squares, half), squares / 2).sort().values
    n = len(u)
    steps = torch.arange(1, n + 1, dtype=torch.float64, device=u.device) / n
    value = torch.maximum(steps - u, u - steps + 1 / n).max()
    error = math.sqrt(math.log(2 / FAILURE) / (2 * n))
    outside = float((u > 0.99).double().mean())
    return Finding(
        statement=f"The Kolmogorov-Smirnov distance between the squared radius of the noise of {n:,} "
        f"held-out examples and chi-squared of {z.shape[1]} degrees: 0 if the density is the data's, and "
        f"then above {error:.3g} with probability {FAILURE:g}. Beyond the radius of 1% of the noise lie "
        f"{outside:.1%}.",
        value=value,
        interval=((value - error).clamp(0, 1), (value + error).clamp(0, 1)),
        kind="estimate",
        unit="1",
        range=(0.0, 1.0),
        premises=(),
        reference="Papamakarios et al. 2021, Section 2.1; Massart 1990, Corollary 1",
        failure="" if bool(squares.isfinite().all()) else "the noise of a held-out example is not finite",
        curves={"radius quantile if right": steps[:: max(1, n // 200)], "held-out": u[:: max(1, n // 200)]},
    )


def demo() -> Subject:
    """A flow of four numbers as it begins, and rows that it has drawn: its density is theirs."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = realnvp(4, layers=4, hidden=(16,))
    with torch.no_grad():
        x = core.sample(400, generator=Generator().manual_seed(0))
    return Subject(model=core, test=[Batch((x,))], task=DENSITY, objective=negative_log_density)
