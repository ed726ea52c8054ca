"""What is known of attacks before they are made: closed forms of linear models, laws of projections.

Of a linear model every attack has an answer on paper (Goodfellow et al., 2015, Section 5; Moosavi-Dezfooli et
al., 2016, Section 2): a check of the attacks more than of the model.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.robust.accuracy_curves import take
from margin.robust.attacks.ensemble import Budget, cross_entropy, ensemble
from margin.robust.attacks.gradient import Search, classes_of, fgsm, labels_of, pgd
from margin.robust.attacks.linear_models import nearest_boundary, other_classes, rival_slopes
from margin.robust.attacks.threat_models import (
    ORDER,
    Norm,
    Threat,
    project_box,
    project_l1,
    project_l1_box,
    project_l2,
    project_linf,
    project_simplex,
)

NORMS: tuple[Norm, ...] = ("linf", "l2", "l1")
EXACT = 1e-9
"""Rounding of a share, or of a projection in float64 relative to its length."""


def linear_exact(subject: Subject, *, limit: int = 64, steps: int = 20) -> Finding:
    """The accuracy of a linear model under attack, against that by its distances from its hyperplanes.

    In each norm the radius lies in the middle of the widest gap between two of the middle distances, so that
    no example stands upon it.

    Args:
        subject: A classifier with labels and a domain, whose scores are affine.
        limit: Examples at most, drawn at random from a fixed seed.
        steps: Steps of APGD.

    Returns:
        The share still right in the l-infinity, l2 and l1 ball.

    Raises:
        ValueError: An option is out of range, or the subject has no domain or no classes.

    Reference: Moosavi-Dezfooli, Fawzi & Frossard (2016), Section 2 and Equation 12 (other norms).
    """
    batch, domain, note = _examples(subject, limit)
    budget, values, promised = Budget(steps=steps, boundary=steps, queries=0), [], []
    with eval_mode(subject.model) as generator:
        affine = _affine(subject, batch, domain)
        for norm in NORMS:
            distance = _distances(subject, batch, domain, norm)
            eps = _between(distance)
            promised.append((distance > eps).double().mean())
            found = ensemble(
                subject.model, batch, subject.task, Threat(domain, eps, norm), generator, budget=budget
            )
            values.append((~found.broken).double().mean())
    shares = torch.stack(promised).cpu()
    return Finding(
        statement=f"Of {note}, the share still right under attack in an l-infinity, an l2 and an l1 ball; by "
        "their distances |f_y - f_j| / ||w_y - w_j||_q from the hyperplanes it is the promised one",
        value=torch.stack(values).cpu(),
        range=(0.0, 1.0),
        low=shares,
        high=shares,
        tolerance=EXACT,
        premises=(affine,),
        labels=NORMS,
        reference="Moosavi-Dezfooli, Fawzi & Frossard (2016), Section 2",
    )


def fgsm_optimal(subject: Subject, *, share: float = 0.02, limit: int = 64) -> Finding:
    r"""The loss of logistic regression after one signed step, against the largest loss in the ball.

    .. math:: \max_{\|d\|_\infty \le \epsilon} \ell(x + d) =
        \mathrm{softplus}\bigl(-(m(x) - \epsilon \|w\|_1)\bigr)

    with the margin m and its slope w; where the domain ends within eps, the coordinate goes that far.

    Args:
        subject: A classifier of two classes with labels and a domain, whose scores are affine.
        share: Length of the step as a share of the domain's longest side, > 0.
        limit: Examples at most, drawn at random from a fixed seed.

    Returns:
        The largest difference of the two over the examples.

    Raises:
        ValueError: An option is out of range, or the subject has no domain or no classes.

    Reference: Goodfellow, Shlens & Szegedy (2015), Section 5.
    """
    batch, domain, note = _examples(subject, limit)
    x, labels, eps = batch.inputs[0], labels_of(batch), share * domain.width
    loss, threat = cross_entropy(subject.task), Threat(domain, eps)
    with eval_mode(subject.model), torch.no_grad():
        affine, scores = _affine(subject, batch, domain), classes_of(subject.task)(subject.model(x))
        rival = other_classes(scores, labels, 1)
        gaps, slopes = rival_slopes(subject.model, batch, subject.task, rival)
        low, high = threat.hull(x)
        rise = slopes[:, 0].double()
        moved = torch.where(rise > 0, (high - x).flatten(1), (low - x).flatten(1))
        worst = F.softplus(gaps[:, 0].double() + (rise * moved).sum(1))
        y = fgsm(subject.model, batch, loss, threat)
        reached = loss.of_outputs(subject.model(y), labels).double()
    count = scores.shape[1]
    two = Premise("there are two classes", "proved" if count == 2 else "refuted", f"{count} scores")
    return Finding(
        statement=f"Of {note}, the largest difference between the loss after one signed step of {eps:.4g} "
        "and the largest loss in the ball, softplus(-(m - eps ||w||_1))",
        value=(reached - worst).abs().amax().cpu(),
        range=(0.0, torch.inf),
        unit="nat",
        low=torch.zeros((), dtype=torch.float64),
        high=torch.zeros((), dtype=torch.float64),
        tolerance=1e-4 * float(worst.amax().clamp(min=1.0)),
        premises=(affine, two),
        reference="Goodfellow, Shlens & Szegedy (2015), Section 5",
    )


def one_step(subject: Subject, *, share: float = 0.02, limit: int = 64) -> Finding:
    """The largest difference between PGD of one step of length eps from the input and FGSM, in three norms.

    Args:
        subject: A classifier with labels and a domain.
        share: Radius as a share of the domain's longest side, > 0.
        limit: Examples at most, drawn at random from a fixed seed.

    Returns:
        The largest difference of a coordinate, for the l-infinity, l2 and l1 ball.

    Raises:
        ValueError: An option is out of range, or the subject has no domain.

    Reference: Madry et al. (2018), Section 2.1.
    """
    batch, domain, note = _examples(subject, limit)
    loss, worst, eps = cross_entropy(subject.task), [], share * domain.width
    search = Search(steps=1, step_size=eps, start="clean")
    for norm in NORMS:
        threat = Threat(domain, eps, norm)
        with eval_mode(subject.model) as generator:
            y = pgd(subject.model, batch, loss, threat, generator, search=search).inputs
            z = fgsm(subject.model, batch, loss, threat)
        worst.append((y - z).abs().amax().double())
    return Finding(
        statement=f"Of {note}, the largest difference between a step of projected ascent and the signed step",
        value=torch.stack(worst).cpu(),
        range=(0.0, torch.inf),
        low=torch.zeros(3, dtype=torch.float64),
        high=torch.zeros(3, dtype=torch.float64),
        tolerance=EXACT,
        labels=NORMS,
        reference="Madry et al. (2018), Section 2.1",
    )


def projection_laws(subject: Subject, *, points: int = 200) -> Finding:
    r"""The laws of a projection P onto a convex set, for each ball, box and simplex that attacks use.

    .. math:: \langle x - P x,\; z - P x\rangle \le 0 \text{ for every z of the set}, \quad P P x = P x

    Args:
        subject: With a domain; its inputs' number of coordinates is taken.
        points: Points drawn, >= 1, each with a radius of its own.

    Returns:
        For each set the larger of the two excesses, relative to the lengths of what is multiplied.

    Raises:
        ValueError: An option is out of range, or the subject has no domain.

    Reference: Duchi, Shalev-Shwartz, Singer & Chandra (2008), Section 3; Croce & Hein (2021),
    Proposition 3.1.
    """
    if points < 1 or subject.domain is None:
        raise ValueError(f"projections need a domain and points of at least 1: got points={points}")
    size, generator = min(subject.test[0].inputs[0][0].numel(), 256), Generator().manual_seed(0)
    x = 3 * torch.randn(points, size, generator=generator, dtype=torch.float64)
    radius = 2 * torch.rand(points, generator=generator, dtype=torch.float64)
    low = -torch.rand(size, generator=generator, dtype=torch.float64)
    high = torch.rand(size, generator=generator, dtype=torch.float64)
    sets = {
        "linf": lambda v: project_linf(v, radius),
        "l2": lambda v: project_l2(v, radius),
        "l1": lambda v: project_l1(v, radius),
        "l1 in a box": lambda v: project_l1_box(v, radius, low, high),
        "box": lambda v: project_box(v, low, high),
        "simplex": lambda v: project_simplex(v, radius),
    }
    worst = []
    for project in sets.values():
        p = project(x)
        # High powers are near an axis: corners of a set tell more than its faces.
        drawn = (torch.randn(x.shape, generator=generator).double() ** k for k in (1, 1, 3, 3, 9, 9, 25, 25))
        others = torch.stack([project(4 * z / z.abs().amax(1, keepdim=True)) for z in drawn])
        turned = ((x - p) * (others - p)).sum(-1)
        length = (x - p).norm(dim=1) * (others - p).norm(dim=2)
        again = (project(p) - p).norm(dim=1) / p.norm(dim=1).clamp(min=1.0)
        worst.append(torch.maximum((turned / length.clamp(min=1.0)).amax(), again.amax()))
    return Finding(
        statement=f"Of {points} points in {size} dimensions, the largest (x - Px).(z - Px) and ||PPx - Px||",
        value=torch.stack(worst),
        range=(-torch.inf, torch.inf),
        high=torch.zeros(len(sets), dtype=torch.float64),
        tolerance=EXACT,
        labels=tuple(sets),
        reference="Duchi, Shalev-Shwartz, Singer & Chandra (2008), Section 3",
    )


def _examples(subject: Subject, limit: int) -> tuple[Batch, Domain, str]:
    if subject.domain is None or limit < 1:
        raise ValueError(f"an attack needs a domain and a limit of at least 1: got limit={limit}")
    sample = take(subject, subject.domain, limit)
    if not sample.chunks:
        raise ValueError("no test example lies inside the domain")
    x = torch.cat([chunk.inputs[0] for chunk in sample.chunks])
    labels = torch.cat([labels_of(chunk) for chunk in sample.chunks])
    return Batch((x,), labels), subject.domain, sample.note


def _affine(subject: Subject, batch: Batch, domain: Domain) -> Premise:
    """Whether the scores are affine: one slope at the examples and at points drawn from the domain."""
    x, labels = batch.inputs[0], labels_of(batch)
    others = other_classes(classes_of(subject.task)(subject.model(x)).detach(), labels, 1_000)
    first = rival_slopes(subject.model, batch, subject.task, others).slopes
    place = torch.rand(x.shape, generator=Generator().manual_seed(0)).to(x)
    low, high = domain.low.to(x), domain.high.to(x)
    there = Batch((torch.lerp(low.expand_as(x), high.expand_as(x), place),), labels)
    second = rival_slopes(subject.model, there, subject.task, others).slopes
    alike = torch.allclose(first, second, rtol=1e-4, atol=1e-6 * float(first.abs().amax()))
    evidence = "slopes at the examples and at points of the domain " + ("agree" if alike else "differ")
    return Premise("the scores are affine in the input", "sampled" if alike else "refuted", evidence)


def _distances(subject: Subject, batch: Batch, domain: Domain, norm: Norm) -> Tensor:
    """The distance of each example from the nearest hyperplane, in the box; 0 of one that is wrong."""
    x, labels = batch.inputs[0], labels_of(batch)
    others = other_classes(classes_of(subject.task)(subject.model(x)).detach(), labels, 1_000)
    gaps, slopes = rival_slopes(subject.model, batch, subject.task, others)
    low, high = ((end.to(x) - x).flatten(1).double() for end in (domain.low, domain.high))
    near = nearest_boundary(gaps, slopes, others, norm, (low.clamp(max=0), high.clamp(min=0)))
    return torch.where((gaps < 0).all(1), torch.linalg.vector_norm(near.delta, ORDER[norm], dim=1), 0.0)


def _between(distance: Tensor) -> float:
    """A radius amid the widest gap between two neighbors of the middle half of the distances."""
    ranked = torch.cat((distance.new_zeros(1), distance.sort().values.clamp(max=1e12)))
    first = len(ranked) // 4
    gaps = ranked.diff()[first : max(3 * len(ranked) // 4, first + 1)]
    at = first + int(gaps.argmax())
    return float((ranked[at] + ranked[at + 1]) / 2)


def uneven_demo() -> Subject:
    """Three affine scores of four features that count unequally, and 40 points, most answered rightly.

    The l1 distance goes by the one feature that counts most, the l-infinity distance by all of them together.
    """
    generator = Generator().manual_seed(10)
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[4.0, 0.3, 0, 0.3], [0, 1, -1, 0.2], [-1, -1, 1, 2]]))
        model.bias.copy_(torch.tensor([0.2, 0.0, -0.1]))
        x = torch.randn(40, 4, generator=generator)
        y = model(x).argmax(1)
    y[:4] = (y[:4] + 1) % 3
    corner = torch.full((4,), 6.0)
    domain = Domain(-corner, corner)
    return Subject(model=model, test=[Batch((x,), y)], task=CLASSES, objective=risk(CLASSES), domain=domain)
