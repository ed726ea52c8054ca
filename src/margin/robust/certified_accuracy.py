"""Certified accuracy by linear bounds with tightened layers (Zhang et al., 2018); soundness of bounds.

The tightened bounds cost about as much as a thousand forward passes an example, so they are asked of few.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject, odd_parameter
from margin.core.types import Batch
from margin.engine.evaluation import capture, copied, eval_mode
from margin.math.evenly import evenly
from margin.robust.accuracy_curves import balls, box_of, measure, take
from margin.robust.attacks.gradient import labels_of
from margin.robust.attacks.minimal import boundary_attack
from margin.robust.attacks.threat_models import Norm, Threat
from margin.robust.certificates.affine_forms import Ball
from margin.robust.certificates.certify import COLUMNS, UNITS, ball_of, bisected
from margin.robust.certificates.interval_arithmetic import NoIntervalRule
from margin.robust.certificates.intervals import all_beaten, bounds, margin_bounds
from margin.robust.certificates.linear_bounds import crown_margins
from margin.robust.certificates.lipschitz import lipschitz_margins
from margin.robust.sandwich import SHARES, between, light, linf_sandwich

FEW = 32
ASCENTS = 4
"""Examples at most whose linear bounds gradients raise: each costs as much as the others together."""

L1_LIMIT = 128
L1_SHARES = (0.0, 0.0005, 0.001, 0.005, 0.01, 0.05)
"""Of the sum of all sides, of which one side is 1.6 % in an image of 8 x 8."""

SAMPLES = 500

MOST = 0.1
"""The largest radius that is asked, as a share of the domain's size."""

HALVINGS = 7
"""Steps in which a radius is found: to a hundredth of the largest."""

Bound = Callable[[nn.Module, Ball, Tensor, Any], Tensor]

BOUNDS: dict[str, Bound] = {
    "intervals": lambda model, ball, y, read: margin_bounds(model, ball.low, ball.high, y, read),
    "linear bounds": lambda model, ball, y, read: crown_margins(model, ball, y, read, columns=COLUMNS),
    "Lipschitz constants": lipschitz_margins,
}
"""Lower bounds of the margins over a ball, by name."""


def linf_certificate(
    subject: Subject,
    *,
    shares: tuple[float, ...] = SHARES,
    limit: int = FEW,
    units: int = UNITS,
    ascents: int = ASCENTS,
) -> Finding:
    """The accuracy under l-infinity attacks, with the best certified accuracy as its promised lower bound.

    Args:
        subject: A classifier with labels and a domain.
        shares: Radii as shares of the domain's longest side, growing, >= 0.
        limit: Examples at most, drawn at random from a fixed seed.
        units: Units of a layer at most whose bounds are tightened one by one.
        ascents: Examples at most, of those that this leaves open, whose bounds gradients raise (alpha-CROWN).

    Returns:
        The share still right, one element for each radius.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Zhang et al. (2018), Theorem 3.2; Madry et al. (2018), Equation 2.1.
    """
    return linf_sandwich(subject, shares=shares, limit=limit, units=units, ascents=ascents)


def l2_certificate(
    subject: Subject,
    *,
    shares: tuple[float, ...] = SHARES,
    limit: int = FEW,
    units: int = UNITS,
    ascents: int = ASCENTS,
) -> Finding:
    """The accuracy under attacks of Euclidean length eps, with the best certified accuracy below it.

    Args:
        subject: A classifier with labels and a domain.
        shares: Radii as shares of the domain's diagonal, growing, >= 0.
        limit: Examples at most, drawn at random from a fixed seed.
        units: Units of a layer at most whose bounds are tightened one by one.
        ascents: Examples at most, of those that this leaves open, whose bounds gradients raise (alpha-CROWN).

    Returns:
        The share still right, one element for each radius.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Zhang et al. (2018), Theorem 3.2; Madry et al. (2018), Section 2.1.
    """
    return _bracketed(subject, "l2", "a Euclidean length of eps", shares, limit, units, ascents)


def l1_sandwich(
    subject: Subject, *, shares: tuple[float, ...] = L1_SHARES, limit: int = L1_LIMIT, units: int = 0
) -> Finding:
    """The accuracy under attacks whose changes sum to eps, with the certified accuracy below it.

    Few coordinates may change much, or many a little: what scratches, dead pixels and wrong cells do.

    Args:
        subject: A classifier with labels and a domain.
        shares: Radii as shares of the sum of the domain's sides, growing, >= 0.
        limit: Examples at most, drawn at random from a fixed seed.
        units: Units of a layer at most whose bounds are tightened one by one; 0 for none.

    Returns:
        The share still right, one element for each radius.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Croce & Hein (2021), "Mind the box: l1-APGD for sparse adversarial attacks on image
    classifiers", Section 3; Zhang et al. (2018), Theorem 3.2.
    """
    return _bracketed(subject, "l1", "changes that sum to eps", shares, limit, units)


# Seven parameters: the norm in letters and in words, and the options of the claims.
def _bracketed(
    subject: Subject,
    norm: Norm,
    moved: str,
    shares: tuple[float, ...],
    limit: int,
    units: int,
    ascents: int = 0,
) -> Finding:
    curves = measure(subject, norm, shares, limit, budget=light(), certify=True, units=units, ascents=ascents)
    statement = (
        f"Of {curves.note}, the share still classified right when an input may move by {moved}: "
        "attacks show at most this share, linear bounds (CROWN) certify the promised one"
    )
    return between(curves, shares, statement)


@torch.no_grad()
def sound(subject: Subject, *, share: float = 0.02, limit: int = 8, samples: int = SAMPLES) -> Finding:
    """The least of: a sampled margin less its linear bound, and that bound less the interval bound.

    It is at least 0 for every model, if the bounds are right: CROWN lies between intervals and the truth.

    Args:
        subject: A classifier with labels and a domain.
        share: Radius as a share of the domain's longest side.
        limit: Examples at most, drawn at random from a fixed seed.
        samples: Points drawn in each ball, half of them corners.

    Returns:
        The least difference over samples, examples and rivals.

    Raises:
        ValueError: An option is out of range, or the subject has no domain or no classes.
        NoIntervalRule: A layer or function has no interval rule.
    """
    classes = subject.task.classes
    if subject.domain is None or classes is None:
        raise ValueError("bounds of margins need a domain and classes")
    domain, features = box_of(subject)
    threat = balls(domain, subject.test[0].inputs[0], "linf", (share,), features)[0]
    worst = torch.tensor(torch.inf, dtype=torch.float64)
    sample = take(subject, subject.domain, limit)
    for chunk in sample.chunks:
        x, labels = chunk.inputs[0], labels_of(chunk)
        ball = ball_of(x, threat)
        interval = margin_bounds(subject.model, ball.low, ball.high, labels, classes)
        linear = crown_margins(subject.model, ball, labels, classes)
        worst = torch.minimum(worst, (linear - interval).amin().cpu())
        with eval_mode(subject.model) as generator:
            for number in range(samples):
                point = threat.random_point(x, generator)
                if number % 2:  # a corner of the box
                    point = threat.project(x + 2 * threat.eps * threat.steepest(point - x), x)
                out = classes(subject.model(point)).double()
                gaps = out.gather(1, labels[:, None]) - out - linear
                worst = torch.minimum(worst, gaps.amin().cpu())
    return Finding(
        statement=(
            f"Of {sample.note}, at {samples:,} points of each ball of {100 * share:g}% of the range, the "
            "least excess of a margin over its linear bound, and of that over the interval bound"
        ),
        value=worst,
        range=(-torch.inf, torch.inf),
        low=torch.zeros((), dtype=torch.float64),
        reference="Gowal et al. (2018), Equation 8; Zhang et al. (2018), Theorem 3.2",
    )


PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
PLACES = 16
"""Outputs of an example whose ends are compared."""


def one_layer(subject: Subject, *, share: float = 0.02, limit: int = 8) -> Finding:
    r"""How far the interval of an output of the first dense or convolution layer lies beyond what it attains.

    .. math:: \underline y_j = w_j^\top \mu + b_j - |w_j|^\top r = y_j(\mu - r \odot \operatorname{sign} w_j)

    Args:
        subject: A model of one moved input, whose first layer is one of those.
        share: Half-width of the box around what enters the layer, as a share of its largest entry.
        limit: Examples at most.

    Raises:
        NotAsked: No such layer was called.

    Reference: Gowal et al. (2018), Equation 6.
    """
    layer, z = _entered(subject, limit)
    eps = share * max(float(z.abs().max()), 1e-6)
    box = bounds(layer, z - eps, z + eps)
    low, high = box.low.flatten(1), box.high.flatten(1)
    off = []
    with torch.enable_grad():
        for place in evenly(low.shape[1], PLACES).tolist():
            at = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(layer(at).flatten(1)[:, place].sum(), at)
            for sign, end in ((-1, low), (1, high)):
                corner = layer(z + sign * eps * slope.sign()).flatten(1)[:, place].detach()
                off.append(sign * (end[:, place] - corner))
    return Finding(
        statement=f"The largest excess of an end of an interval over what a corner of a box of {share:.0%} "
        f"attains, of {len(z)} examples and the first {type(layer).__name__}, by the largest of the ends.",
        value=torch.stack(off).abs().max() / torch.maximum(high.abs().max(), low.abs().max()),
        range=(0.0, torch.inf),
        equals=0.0,
        tolerance=1e-9,
    )


def _entered(subject: Subject, limit: int) -> tuple[nn.Module, Tensor]:
    """A copy in float64 of the first dense or convolution layer that is called, and what enters it."""
    layers = [module for module in subject.model.modules() if isinstance(module, PRODUCTS)]
    with torch.no_grad(), eval_mode(subject.model), capture(layers) as calls:
        subject.model(*(part[:limit] for part in subject.test[0].inputs))
    call = next((call for call in calls if call.args and isinstance(call.args[0], Tensor)), None)
    if call is None:
        raise NotAsked("no dense or convolution layer was called")
    layer, z = call.module, call.args[0].detach().double()
    twin = copied(layer).double().eval()
    twin._forward_pre_hooks.clear()
    return twin.requires_grad_(False), z


def linf_radius(subject: Subject, *, limit: int = 16, share: float = MOST) -> Finding:
    """The mean l-infinity radius in which examples are proved right, by each bound, and up to which attacks.

    Args:
        subject: A classifier with labels and a domain.
        limit: Examples at most, drawn at random from a fixed seed.
        share: The largest radius that is asked, as a share of the domain's longest side, > 0.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Zhang et al. (2018), Theorem 3.2; Croce & Hein (2020), Algorithm 1.
    """
    return _radius(subject, "linf", limit, share)


def l2_radius(subject: Subject, *, limit: int = 16, share: float = MOST) -> Finding:
    """The mean Euclidean radius in which examples are proved right, by each bound, and up to which attacks.

    Args:
        subject: A classifier with labels and a domain.
        limit: Examples at most, drawn at random from a fixed seed.
        share: The largest radius that is asked, as a share of the domain's diagonal, > 0.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Tsuzuku, Sato & Sugiyama (2018), Proposition 1; Croce & Hein (2020), Algorithm 1.
    """
    return _radius(subject, "l2", limit, share)


def _radius(subject: Subject, norm: Norm, limit: int, share: float) -> Finding:
    if subject.domain is None or not share > 0:
        raise ValueError(f"radii need a domain and a share above 0: got share={share}")
    domain, features = box_of(subject)
    threat = balls(domain, subject.test[0].inputs[0], norm, (share,), features)[0]
    sample, parts = take(subject, subject.domain, limit), []
    refused: dict[str, str] = {}
    if not sample.chunks:
        raise NotAsked("no test example lies inside the domain")
    for chunk in sample.chunks:
        parts.append(_radii(subject, chunk, threat, refused))
    names, columns = (*BOUNDS, "the best"), [torch.cat(rows) for rows in zip(*parts, strict=True)]
    *proved, distance, weight = columns
    best = torch.stack(proved).amax(0)
    both = (best > distance * (1 + 1e-6)).nonzero().flatten().tolist()
    shares = weight / weight.sum()
    value = torch.stack([*proved, best]) @ shares
    none = float(shares[best == 0].sum())
    wins = ", ".join(
        f"{name}: {int((one == best)[best > 0].sum())}" for name, one in zip(BOUNDS, proved, strict=True)
    )
    remarks = [f"no radius was proved for {none:.1%}; largest by {wins} of {len(best)}"]
    remarks += [f"not bounded by {name}: {reason}" for name, reason in refused.items()]
    return Finding(
        statement=f"Of {sample.note}, the mean radius, {threat.eps:.4g} at most, in which an example is "
        "proved right everywhere; the nearest adversarial inputs that an attack met lie at the promised mean",
        value=value,
        unit="input units",
        range=(0.0, threat.eps),
        high=(distance @ shares).expand(len(value)),
        tolerance=1e-9,
        labels=tuple(f"by {name}" for name in names),
        failure=f"a bound or an attack is wrong: example {both[0]} is proved right and broken"
        if both
        else odd_parameter(subject.model),
        curves={"radius": best, "eps": torch.tensor([threat.eps])},
        remarks=tuple(remarks),
    )


@torch.no_grad()
def _radii(subject: Subject, chunk: Batch, threat: Threat, refused: dict[str, str]) -> list[Tensor]:
    """The radius of each example by each bound, its distance to an attack's point, and its weight."""
    x, labels, read = chunk.inputs[0], labels_of(chunk), subject.task.classes
    if read is None or chunk.weight is None:
        raise NoIntervalRule(f"the task {subject.task.name!r} has no classes")
    found = []
    for name, bound in BOUNDS.items():

        def held(eps: float, at: Tensor, bound: Bound = bound) -> Tensor:
            ball = ball_of(x[at], replace(threat, eps=eps))
            return all_beaten(bound(subject.model, ball, labels[at], read), labels[at])

        try:
            found.append(bisected(held, threat.eps, len(x), HALVINGS))
        except NoIntervalRule as error:
            refused[name] = str(error)
            found.append(torch.zeros(len(x), dtype=torch.float64))
    with torch.enable_grad():
        moved = boundary_attack(subject.model, Batch((x,), labels), subject.task, threat)
    distance = torch.where(moved.broken, moved.distance, threat.eps).clamp(max=threat.eps)
    return [*found, distance.double().cpu(), chunk.weight.double().cpu()]
