"""Claims of densities: a flow's inverse, volume and noise (Dinh et al. 2017), the mass and gain of a density.

Of a masked network of bits (Germain et al. 2015): no look ahead, and probabilities that sum to 1.
"""

import math
from typing import Any

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import DENSITY, PROBABILITY
from margin.core.types import Batch
from margin.engine.evaluation import capture, drawn_rows, eval_mode, in_double, sample_examples
from margin.engine.objectives import negative_log_density
from margin.generative.flow.made import MADE, GaussianMADE
from margin.generative.flow.objectives import negative_log_probability
from margin.generative.flow.realnvp import neural_spline_flow, realnvp
from margin.nn.preprocessed import Preprocessed, core_of, features_of
from margin.theory.prediction.held_out import (
    Terms,
    independent_draws,
    limits_of,
    unanswered,
    weighted_mean,
)
from margin.theory.prediction.risk import clopper_pearson

EXAMPLES = 1024
"""Held-out examples that are evaluated, at most."""

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
        equals=0.0,
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
    names = {id(m): name for name, m in core.named_modules() if name and not list(m.children())}
    with capture(m for m in core.modules() if id(m) in names) as calls:
        core.transform(x)
    sizes: dict[str, float] = {}
    for call in calls:
        if isinstance(call.output, Tensor):
            name, size = names[id(call.module)], float(call.output.detach().abs().max())
            sizes[name] = max(sizes.get(name, 0.0), size)
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
        equals=0.0,
        tolerance=1e-10 * numbers,
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
        range=(0.0, 1.0),
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


CELLS = 400
"""Cells of a side of the grid; its error is estimated from half as many."""

DRAWN = 20_000
"""Samples by which the mass outside of the grid is estimated."""

LEVEL = 1 - 1e-4
"""Probability with which an interval is to hold the truth."""

MOST_FEATURES = 1000
"""Features whose covariance is inverted, at most."""

SHOWN = 100
"""Cells of a side of the grid that a report draws."""


def is_density(subject: Subject) -> bool:
    """Whether the model states an exact density of its inputs."""
    has = callable(getattr(core_of(subject.model), "log_prob", None))
    return has and subject.task.name == DENSITY.name


def is_plane(subject: Subject) -> bool:
    """Whether the model states a density of the plane and can be sampled."""
    sampled = callable(getattr(core_of(subject.model), "sample", None))
    return is_density(subject) and sampled and bool(subject.test) and _features(subject) == 2


def is_narrow(subject: Subject) -> bool:
    """Whether there are few enough features, and training rows enough, for a covariance."""
    rows = sum(len(batch.inputs[0]) for batch in subject.train)
    return bool(subject.test) and _features(subject) <= MOST_FEATURES and rows > _features(subject)


def _features(subject: Subject) -> int:
    return int(subject.test[0].inputs[0][0].numel())


def _rows(subject: Subject, part: str) -> Tensor:
    batches = subject.test if part == "test" else subject.train
    return torch.cat([features_of(subject.model, batch.inputs[0]).flatten(1) for batch in batches]).detach()


def _weighed(subject: Subject, part: str) -> tuple[Tensor, Tensor]:
    """The rows of a part that count, and what each weighs."""
    batches = subject.test if part == "test" else subject.train
    weights = [torch.ones(len(b.inputs[0])) if b.weight is None else b.weight.cpu() for b in batches]
    weight = torch.cat(weights).double()
    kept = weight > 0
    rows = _rows(subject, part)
    return rows[kept.to(rows.device)], weight[kept]


def box_of(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The corners of a box that holds all but a few of the samples, with a tenth to spare."""
    low, high = (rows.quantile(q, 0) for q in (0.0005, 0.9995))
    return low - 0.1 * (high - low), high + 0.1 * (high - low)


def grid(low: Tensor, high: Tensor, cells: int) -> tuple[Tensor, Tensor, float]:
    """The middles of the cells along each side (2, cells), all their points, and the area of one."""
    middle = (torch.arange(cells, dtype=low.dtype, device=low.device) + 0.5) / cells
    sides = low[:, None] + (high - low)[:, None] * middle
    return sides, torch.cartesian_prod(*sides), float((high - low).prod()) / cells**2


def mass(subject: Subject) -> Finding:
    """Whether the density of the plane integrates to 1: a box by a grid, and the rest by samples.

    Args:
        subject: A density of the plane that can be sampled.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model) as generator, torch.no_grad():
        rows = core.sample(DRAWN, generator=generator).flatten(1)
        low, high = box_of(rows)
        count = int(((rows < low) | (rows > high)).any(1).sum())
        sides, points, area = grid(low, high, CELLS)
        log_density = core.log_prob(points).double()
        inside = float(log_density.exp().sum()) * area
        _, coarse, wide = grid(low, high, CELLS // 2)
        error = abs(float(core.log_prob(coarse).double().exp().sum()) * wide - inside)
        curves = _drawn(subject, sides, log_density.reshape(CELLS, CELLS))
    below, above = clopper_pearson(count, DRAWN, level=LEVEL)
    ends = [torch.tensor(inside + end, dtype=torch.float64) for end in (below - error, above + error)]
    return Finding(
        statement=f"The density integrates to 1: {inside:.5f} on a box by {CELLS:,} x {CELLS:,} cells (half "
        f"as many differ by {error:.1g}), and outside of it {count / DRAWN:.5f}, as {DRAWN:,} samples tell.",
        value=torch.tensor(inside + count / DRAWN, dtype=torch.float64),
        interval=(ends[0], ends[1]),
        kind="estimate",
        range=(0.0, math.inf),
        equals=1.0,
        scope="probability",
        tolerance=0.01,
        reference="Dinh, Sohl-Dickstein and Bengio 2017, Equation 2 (the change of variables)",
        failure="" if math.isfinite(inside) else "the density of a cell is not finite",
        curves=curves,
    )


def _drawn(subject: Subject, sides: Tensor, log_density: Tensor) -> dict[str, Tensor]:
    """What the report draws: every few cells, in the user's units where the way back is known."""
    x, y = sides[:, :: CELLS // SHOWN]
    shown = log_density[:: CELLS // SHOWN, :: CELLS // SHOWN].T  # a row for each y
    points = torch.cat([batch.inputs[0] for batch in subject.test]).flatten(1)[:1000]
    undo = (
        getattr(subject.model.preprocess, "inverse", None)
        if isinstance(subject.model, Preprocessed)
        else None
    )
    if undo is not None:
        x, y = undo(torch.stack((x, y), 1)).unbind(1)
    elif isinstance(subject.model, Preprocessed):
        points = features_of(subject.model, points)
    return {"density x": x, "density y": y, "log density": shown, "density points": points.detach()}


MANY = 300
"""Examples from which Hall's interval of a heavy-tailed gain begins to hold."""

HEAVY_TAILS = (
    f"Of fewer than {MANY} examples the interval may be too narrow where the data have heavy tails, which so "
    "few do not show: it held the gain in 86 % of samples of 30 lognormal numbers, in 90 % of 100."
)


def gain(subject: Subject) -> Finding:
    """How many nats more the density gives held-out examples than the Gaussian of the training examples.

    The interval is Hall's; where the Gaussian finds few examples very unlikely, as of lognormal ones, it held
    the gain in .86 of 400 simulated samples of 30, in .90 of 100 and in .93 of 300.

    Args:
        subject: A density whose training examples are known.

    Raises:
        NotAsked: The training examples lie in a plane of fewer dimensions, as images with a blank border do.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model), torch.no_grad():
        (train, counted), (test, weight) = (_weighed(subject, part) for part in ("train", "test"))
        ours, of_train = core.log_prob(test).double().cpu(), core.log_prob(train).double().cpu()
        share = (counted / counted.sum())[:, None]
        rows, test = train.double().cpu(), test.double().cpu()
        mean = (share * rows).sum(0)
        factor, info = torch.linalg.cholesky_ex((share * (rows - mean)).T @ (rows - mean))
        if int(info):
            raise NotAsked("the covariance of the training examples is singular: no Gaussian has a density")
        theirs = torch.distributions.MultivariateNormal(mean, scale_tril=factor).log_prob(test)
    terms = Terms(ours - theirs, weight, torch.arange(len(ours)))
    estimate = weighted_mean(terms)
    held, gaussian = (float(weighted_mean(terms._replace(values=x)).mean) for x in (ours, theirs))
    return Finding(
        statement=f"The mean log-density of {len(test):,} held-out examples, {held:.4g} nats "
        "in the model's units, less that of the Gaussian with the training examples' mean and covariance, "
        f"{gaussian:.4g}. Of the training examples it is {float(share[:, 0] @ of_train):.4g}.",
        value=estimate.mean,
        stderr=estimate.stderr,
        printed=limits_of(terms),
        kind="estimate",
        unit="nats",
        range=(-math.inf, math.inf),
        premises=(independent_draws(subject),),
        remarks=(HEAVY_TAILS,) if len(test) < MANY else (),
        failure=unanswered(terms.values, "a log-density"),
    )


def plane_demo() -> Subject:
    """A flow of splines in the plane as it begins, and rows that it has drawn."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = neural_spline_flow(2, layers=2, hidden=(16,))
    with torch.no_grad():
        drawn = core.sample(600, generator=Generator().manual_seed(0))
    test, train = ([Batch((part,))] for part in drawn.split(300))
    return Subject(model=core, test=test, train=train, task=DENSITY, objective=negative_log_density)


MOST_BITS = 14
"""Bits of a row up to which all rows are enumerated."""

ROWS_OF_BITS = 16
"""Held-out examples whose Jacobian is computed."""


def is_autoregressive(subject: Subject) -> bool:
    """Whether the model is a masked network of the catalog."""
    return isinstance(core_of(subject.model), MADE | GaussianMADE)


def is_few_bits(subject: Subject) -> bool:
    """Whether the model is one of bits, so few that all rows can be enumerated."""
    core = core_of(subject.model)
    return isinstance(core, MADE) and core.in_features <= MOST_BITS


def causality(subject: Subject) -> Finding:
    """Whether no output depends on its own number or a later one: the Jacobian there, on held-out examples.

    Args:
        subject: A masked network.
    """
    core, drawn = core_of(subject.model), drawn_rows(subject.test, ROWS_OF_BITS)
    with eval_mode(subject.model), torch.no_grad():
        x = torch.cat([features_of(subject.model, batch.inputs[0]).flatten(1) for batch in drawn.batches])
        J = torch.func.vmap(torch.func.jacrev(core.network))(x).unflatten(1, (-1, core.in_features))
        ahead, behind = J.triu().abs().amax(), J.tril(-1).abs().amax()
    return Finding(
        statement=f"What is said of number i of {core.in_features} depends on those before it only: the "
        f"largest derivative by itself or a later one, over {drawn.words()}. By an earlier one it is up to "
        f"{float(behind):.3g}.",
        value=ahead.double(),
        range=(0.0, math.inf),
        equals=0.0,
    )


def total(subject: Subject) -> Finding:
    """Whether the probabilities of all rows of bits sum to 1.

    Args:
        subject: A masked network of few bits.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model), torch.no_grad():
        index = torch.arange(2**core.in_features)[:, None]
        bits = (index >> torch.arange(core.in_features)) & 1
        weight = next(core.parameters())
        p = core.of_bits(bits.to(weight)).double().exp()
    return Finding(
        statement=f"The probabilities of all {len(p):,} rows of {core.in_features} bits sum to 1; the "
        f"likeliest has {float(p.max()):.3g}.",
        value=p.sum(),
        range=(0.0, math.inf),
        equals=1.0,
        tolerance=1e-5 if weight.dtype == torch.float32 else 1e-10,
    )


def bits_demo() -> Subject:
    """A masked network of eight bits as it begins, and rows of bits."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = MADE(8, hidden=(16, 16))
    x = (torch.rand(12, 8, generator=Generator().manual_seed(0)) < 0.5).float()
    return Subject(model=core, test=[Batch((x,))], task=PROBABILITY, objective=negative_log_probability)
