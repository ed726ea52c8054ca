"""The sandwich: certified accuracy <= accuracy in the ball <= attacked accuracy.

Certificates prove a share of the examples right everywhere in the ball (Gowal et al., 2018; Zhang et al.,
2018); attacks prove a share wrong somewhere in it (Madry et al., 2018). The two are compared example by
example: one that is both certified and broken is an error of ours.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust.accuracy_curves import Curves, measure
from margin.robust.attacks.ensemble import Budget
from margin.robust.attacks.threat_models import Threat

SHARES = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1)
LIMIT = 512
STEPS = 8
TARGETS, BOUNDARY, QUERIES = 2, 3, 20
"""Rivals that APGD goes towards, steps of FAB, queries of Square."""

RANGE = (0.0, 1.0)
TOLERANCE = 1e-9
"""Rounding of a share of at most a million examples."""


def linf_sandwich(
    subject: Subject,
    *,
    shares: tuple[float, ...] = SHARES,
    limit: int = LIMIT,
    steps: int = STEPS,
    restarts: int = 1,
    units: int = 0,
    ascents: int = 0,
) -> Finding:
    """The accuracy under l-infinity attacks, with the certified accuracy as its promised lower bound.

    Attacks are one signed step on the training objective, one on the margin loss, and a short ensemble:
    APGD on the cross-entropy and towards the nearest rivals by the ratio of logits, FAB, Square. What
    survives an attack in a ball is not tried by it in the smaller ones; what is broken is tried no more.
    Where an input gradient is 0, a stand-in that leaks and a longer Square follow. Where a layer has no
    interval rule nothing is certified, and a remark names it: what the attacks show stands by itself.

    The two are compared on the examples taken. What they say of the population is the bracket: from the
    lower end of the certified share's exact 95 % interval to the upper end of the attacked one's.

    Args:
        subject: A classifier with labels and a domain.
        shares: Radii as shares of the domain's longest side, growing, >= 0.
        limit: Examples at most, drawn at random from a fixed seed.
        steps: Steps of one ascent of APGD.
        restarts: Ascents of APGD on the cross-entropy of an example in a ball.
        units: Units of a layer at most whose bounds the certificate tightens one by one; 0 for none.
        ascents: Examples at most, of those that this leaves open, whose bounds gradients raise (alpha-CROWN).

    Returns:
        The share still right, one element for each radius.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Gowal et al. (2018), Equations 6-8; Zhang et al. (2018), Theorem 3.2; Madry et al. (2018),
    Equation 2.1.
    """
    curves = measure(
        subject,
        "linf",
        shares,
        limit,
        budget=light(steps, restarts),
        certify=True,
        units=units,
        ascents=ascents,
    )
    statement = (
        f"Of {curves.note}, the share still classified right when every coordinate may move by eps: "
        "attacks show at most this share, interval and linear bounds (IBP, CROWN) certify the promised one"
    )
    return between(curves, shares, statement)


def light(steps: int = STEPS, restarts: int = 1) -> Budget:
    """The budget of an audit: a tenth of that of a published evaluation."""
    return Budget(steps=steps, restarts=restarts, targets=TARGETS, boundary=BOUNDARY, queries=QUERIES)


def between(curves: Curves, shares: tuple[float, ...], statement: str) -> Finding:
    """The finding that attacks and certificates of the same examples make, compared example by example."""
    failure = curves.failure or contradiction(curves)
    low = None if curves.certified is None else curves.share(curves.certified)
    return _finding(curves, curves.attacked, shares, statement, low=low, failure=failure)


def linf_fgsm(subject: Subject, *, shares: tuple[float, ...] = SHARES, limit: int = LIMIT) -> Finding:
    """The accuracy after one signed gradient step of length eps, the cheapest attack.

    The step follows the gradient of the training objective, then that of the margin loss; either may
    break an example.

    Args:
        subject: A classifier with labels and a domain.
        shares: Step lengths as shares of the domain's longest side, growing, >= 0.
        limit: Examples at most, drawn at random from a fixed seed.

    Returns:
        The share still right, one element for each length.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Goodfellow, Shlens & Szegedy (2015), Section 4.
    """
    curves = measure(subject, "linf", shares, limit)
    statement = f"Of {curves.note}, the share still classified right after one signed step of at most eps"
    found = _finding(curves, curves.stepped, shares, statement, failure=curves.failure)
    if not curves.shown:
        return found
    before, after = (torch.stack(side) for side in zip(*curves.shown, strict=True))
    return replace(found, curves={**found.curves, "original": before, "attacked input": after})


def l2_attack(
    subject: Subject,
    *,
    shares: tuple[float, ...] = SHARES,
    limit: int = LIMIT,
    steps: int = STEPS,
    restarts: int = 1,
) -> Finding:
    """The accuracy under attacks of Euclidean length at most eps.

    Args:
        subject: A classifier with labels and a domain.
        shares: Radii as shares of the domain's diagonal, growing, >= 0.
        limit: Examples at most, drawn at random from a fixed seed.
        steps: Steps of one ascent of APGD.
        restarts: Ascents of APGD on the cross-entropy of an example in a ball.

    Returns:
        The share still right, one element for each radius.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Madry et al. (2018), Section 2.1.
    """
    curves = measure(subject, "l2", shares, limit, budget=light(steps, restarts))
    statement = (
        f"Of {curves.note}, the share still classified right when an input may move by a Euclidean length of "
        "eps: attacks show at most this share"
    )
    return _finding(curves, curves.attacked, shares, statement, failure=curves.failure)


def contradiction(curves: Curves) -> str:
    """The examples that are both certified and broken, or "" where there are none."""
    if curves.certified is None:
        return ""
    both = curves.certified & ~curves.attacked
    if not bool(both.any()):
        return ""
    ball = int(both.any(1).nonzero()[0])
    names = ", ".join(str(i) for i in both[ball].nonzero().flatten().tolist()[:10])
    eps = curves.threats[ball].eps
    return f"a bound or an attack is wrong: at eps {eps:g} examples {names} are certified and broken"


def demo() -> Subject:
    """A linear classifier of the plane, whose accuracy in every ball is known.

    With f_1 - f_0 = 2 x_1 - x_2 an example of margin m = y (2 x_1 - x_2) survives in the l-infinity ball if
    and only if m > 3 eps, and in the Euclidean one if and only if m > sqrt(5) eps: attack and
    certificate meet.
    """
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [2.0, -1.0]]))
    x = torch.tensor([[0.1, 0.0], [0.0, 0.4], [0.7, -0.3], [-1.0, 1.0], [1.0, 1.5], [-0.02, 0.0]])
    y = torch.tensor([1, 0, 1, 0, 0, 0])
    corner = torch.tensor([4.0, 4.0])
    return Subject(
        model=model,
        test=(Batch((x,), y),),
        task=CLASSES,
        objective=risk(CLASSES),
        domain=Domain(-corner, corner),
    )


def _finding(
    curves: Curves,
    right: Tensor,
    shares: tuple[float, ...],
    statement: str,
    *,
    failure: str,
    low: Tensor | None = None,
) -> Finding:
    value = torch.full((len(shares),), torch.nan, dtype=torch.float64)
    interval, bracket = None, None
    if not curves.failure:
        value, interval = curves.share(right), curves.ends(right)
        nothing = torch.zeros_like(value)
        below = nothing if low is None or curves.certified is None else curves.ends(curves.certified)[0]
        # A ball of radius 0 holds the input alone: its accuracy is the plain one, which is measured.
        alone = torch.tensor([threat.eps == 0 for threat in curves.threats])
        below = torch.where(alone, interval[0], below)
        # The accuracy after one signed step is measured itself; that in a ball is only bounded.
        bracket = None if right is curves.stepped else (below, interval[1])
    return Finding(
        statement=statement,
        value=value,
        range=RANGE,
        premises=curves.premises,
        # Certificate and attack are of the same examples: between them there is no error of a sample.
        kind="estimate" if interval is not None and low is None else "exact",
        interval=interval if low is None else None,
        failure=failure,
        low=low,
        tolerance=TOLERANCE,
        labels=tuple(_label(*pair) for pair in zip(curves.threats, shares, strict=True)),
        sandwich=bracket,
        curves={} if curves.failure else _drawn(curves, shares),
        remarks=(
            *([f"not certified: {curves.uncertified}"] if curves.uncertified else []),
            *curves.remarks,
            *_undecided(curves, right),
            *_by_attack(curves, right),
        ),
    )


def _undecided(curves: Curves, right: Tensor) -> list[str]:
    """How many examples neither an attack breaks nor a bound certifies, where there are any."""
    if curves.certified is None or right is not curves.attacked:
        return []
    counts = (curves.attacked & ~curves.certified).sum(1)
    told = "/".join(str(int(n)) for n in counts)
    return [f"examples neither broken nor certified in each ball: {told}"] if bool(counts.any()) else []


def _by_attack(curves: Curves, right: Tensor) -> list[str]:
    """What each attack broke beyond those before it, where there were several."""
    if right is curves.stepped or len(curves.struck) < 2:
        return []
    told = (f"{name} {'/'.join(str(int(n)) for n in counts)}" for name, counts in curves.struck.items())
    return [f"examples broken in each ball, by each attack beyond those before it: {', '.join(told)}"]


def _label(threat: Threat, share: float) -> str:
    size = {"linf": "range", "l2": "diagonal", "l1": "sum of the ranges"}[threat.norm]
    if threat.unit is None:
        return f"eps {threat.eps:.4g} ({100 * share:.4g}% of the {size})"
    times = {"linf": "", "l2": " times sqrt(d)", "l1": " times d"}[threat.norm]
    return f"{100 * share:.4g}% of each coordinate's range{times}"


def _drawn(curves: Curves, shares: tuple[float, ...]) -> dict[str, Tensor]:
    drawn = {
        "eps": torch.tensor([threat.eps for threat in curves.threats], dtype=torch.float64),
        "share": torch.tensor(shares, dtype=torch.float64),
        "clean": curves.share(curves.clean).expand(len(shares)),
        "fgsm": curves.share(curves.stepped),
        "attacked": curves.share(curves.attacked),
    }
    if curves.certified is None:
        return drawn
    drawn["certified"] = curves.share(curves.certified)
    if curves.undecided is not None:
        eps, inputs = curves.undecided
        drawn |= {"undecided": inputs, "undecided eps": torch.tensor([eps], dtype=torch.float64)}
    return drawn
