"""Claims of randomized smoothing: how far classes are certified, exactness on linear models, coverage.

On a linear classifier of two classes P(f(x + noise) = c) = Phi(d / sigma), d the signed distance to the
boundary, so the radius sigma Phi^-1(p) is that distance (Cohen et al., 2019, Section 3.1 and Appendix B).
"""

import math
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.evaluation import eval_mode, in_double
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of
from margin.robust.accuracy_curves import take
from margin.robust.attacks.gradient import input_gradient, labels_of, margin_loss
from margin.robust.certificates.smoothing import Smoothed, ceiling, certify, class_counts
from margin.theory.prediction.held_out import independent_draws
from margin.theory.prediction.risk import clopper_pearson, share_interval

MULTIPLES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
"""Radii at which the certified share is stated, in units of sigma."""

LIMIT = 100
SELECT, DRAWS = 100, 1000
SLOPES = 16
"""Noisy copies over which the gradient of an attack on the smoothed classifier is averaged."""

SURE = 1e-6
"""Level at which an attacked point's class is believed: one in a million."""

BEYOND = 0.9999
"""Level of the intervals on which the verdicts of the two facts rest."""


OF_WHOM = "the certificate is of the smoothed classifier, not of the model"


class Scaled(nn.Module):
    """A model in coordinates of which each is measured in its own side of the domain.

    Args:
        model: Takes the user's units.
        unit: Length of each coordinate's unit.
    """

    def __init__(self, model: nn.Module, unit: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("unit", unit)

    def forward(self, x: Tensor) -> Tensor:
        """The model's outputs at x times the unit."""
        outputs: Tensor = self.model(x * self.get_buffer("unit").to(x))
        return outputs


def l2_smoothing(
    subject: Subject,
    *,
    noise: float = 0.1,
    limit: int = LIMIT,
    select: int = SELECT,
    draws: int = DRAWS,
    alpha: float = 0.001,
) -> Finding:
    """The share of examples that the smoothed classifier gets right everywhere in a Euclidean ball.

    It is the model smoothed by noise of ``noise`` times the domain's longest side; where the sides differ,
    each coordinate is measured in its own. Each certificate is then attacked: along the mean gradient over
    noisy copies, at its radius, the smoothed classifier is asked again.

    Args:
        subject: A classifier with labels and a domain.
        noise: sigma as a share of the domain's longest side, > 0.
        limit: Examples at most, drawn at random from a fixed seed.
        select: Draws that choose an example's class.
        draws: Draws that bound its probability.
        alpha: Probability with which one radius may be too large.

    Returns:
        The share certified right, one element for each of several multiples of sigma.

    Raises:
        ValueError: An option is out of range, or the domain is unbounded.

    Reference: Cohen, Rosenfeld & Kolter (2019), Theorem 1.
    """
    domain, classes = subject.domain, subject.task.classes
    if domain is None or classes is None or not math.isfinite(domain.width):
        raise ValueError("smoothing needs classes and a bounded domain")
    sample, sigma, generator = take(subject, domain, limit), noise * domain.width, Generator().manual_seed(0)
    if not sample.chunks:
        raise NotAsked("no test example lies inside the domain")
    unit = ((domain.high - domain.low) / domain.width).to(sample.chunks[0].inputs[0])
    model = Scaled(subject.model, unit)
    batches = [batch._replace(inputs=(batch.inputs[0] / unit,)) for batch in sample.chunks]
    found, failure = [], ""
    for batch in batches:
        part = certify(
            model, batch.inputs[0], sigma, generator, select=select, draws=draws, alpha=alpha, classes=classes
        )
        found.append(part)
        failure = failure or contradiction(subject, model, batch, part, sigma, generator)
    stated = Smoothed(*(torch.cat(parts) for parts in zip(*found, strict=True)))
    labels, weight = _labels_and_shares(batches)
    right = torch.where(stated.classes == labels, stated.radius, -1.0)
    radii = sigma * torch.tensor(MULTIPLES, dtype=torch.float64)
    value = (right > radii[:, None]).double() @ weight
    most, abstained = ceiling(draws, sigma, alpha), float(weight[stated.classes < 0].sum())
    return Finding(
        statement=f"Of {sample.note}, the share that the model smoothed by noise of {sigma:.4g} classifies "
        "right everywhere in a Euclidean ball around it: at least this, each with probability "
        f"{1 - alpha:.4g}",
        value=value,
        range=(0.0, 1.0),
        kind="lower",
        interval=share_interval(value, float(1 / weight.square().sum())),
        failure=failure,
        premises=(_steady(subject, sample.chunks[0]), independent_draws(subject)),
        labels=tuple(
            f"radius {radius:.4g} ({m:g} sigma)" for radius, m in zip(radii, MULTIPLES, strict=True)
        ),
        curves={"eps": radii, "certified": value, "radius": right, "sigma": torch.tensor(sigma)},
        remarks=(f"{OF_WHOM}; {draws:,} draws certify at most {most:.4g}; it abstains on {abstained:.1%}",),
    )


def _labels_and_shares(batches: list[Batch]) -> tuple[Tensor, Tensor]:
    """The labels, and the share of the whole weight of each example."""
    labels = torch.cat([labels_of(batch).cpu() for batch in batches])
    weight = torch.cat([torch.ones(len(b.inputs[0])) if b.weight is None else b.weight for b in batches])
    weight = weight.double().cpu()
    return labels, weight / weight.sum()


# Six things are needed to ask an attacked example again.
def contradiction(
    subject: Subject, model: nn.Module, batch: Batch, stated: Smoothed, sigma: float, generator: Generator
) -> str:
    """The example whose smoothed class changes within its certified radius, or "" where none was found."""
    from scipy.stats import binomtest

    x, loss, classes = batch.inputs[0], margin_loss(subject.task), subject.task.classes
    index = (stated.radius > 0).nonzero().flatten()
    with eval_mode(model):
        for i in index.tolist():
            copies = x[i] + sigma * torch.randn((SLOPES, *x[i].shape), generator=generator).to(x)
            asked = Batch((copies,), stated.classes[i].to(x.device).expand(SLOPES))
            slope = input_gradient(model, asked, loss, generator).gradient.mean(0)
            norm = slope.double().norm()
            if norm == 0:
                continue
            at = (x[i].double() + 0.999 * stated.radius[i].to(norm) * slope.double() / norm).to(x)
            counts = class_counts(model, at, sigma, SELECT, generator, classes or (lambda outputs: outputs))
            own, other = int(counts[stated.classes[i]]), int(counts.max())
            if other > own and binomtest(other, own + other).pvalue <= SURE:
                return f"a certificate is wrong: within its radius the smoothed class of example {i} changes"
    return ""


def _steady(subject: Subject, batch: Batch) -> Premise:
    with eval_mode(subject.model), torch.no_grad():
        first, again = subject.model(*batch.inputs), subject.model(*batch.inputs)
    steady = torch.allclose(first, again, rtol=1e-5, equal_nan=True)
    return Premise(
        "the model is a function of its input in evaluation mode",
        "sampled" if steady else "refuted",
        "two evaluations of the first examples agree"
        if steady
        else "two evaluations differ: it draws at random",
    )


def is_linear(subject: Subject) -> bool:
    """Whether the model is one affine map to two scores, behind what only reshapes."""
    leaves = [module for module in core_of(subject.model).modules() if not list(module.children())]
    maps = [module for module in leaves if isinstance(module, nn.Linear)]
    others = [module for module in leaves if not isinstance(module, nn.Linear | nn.Flatten | nn.Identity)]
    return len(maps) == 1 and not others and maps[0].out_features == 2


def distances(subject: Subject, x: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
    """The signed Euclidean distance of each input to the boundary, positive on the side of class 1."""
    with torch.enable_grad():
        y = x.detach().double().requires_grad_()
        scores = in_double(subject.model)(y)
        gap = scores[:, 1] - scores[:, 0]
        (slope,) = torch.autograd.grad(gap.sum(), y)
    return (gap.detach() / slope.flatten(1).norm(dim=1)).cpu()


def _near(subject: Subject, most: int) -> tuple[Tensor, Tensor, float]:
    """Examples near the boundary, their signed distances, and a sigma on which these depend: their median."""
    x = torch.cat([batch.inputs[0] for batch in subject.test])
    d = distances(subject, x)
    sigma = float(d.abs().median())
    near = ((d.abs() <= 1.5 * sigma) & (d.abs() > 0.1 * sigma)).nonzero().flatten()[:most]
    if not len(near):
        raise NotAsked("no example lies near the boundary")
    return x[near.to(x.device)], d[near], sigma


def linear_radius(subject: Subject, *, limit: int = 8, draws: int = 10_000) -> Finding:
    """The radius that the probability under noise gives is the distance to a linear classifier's boundary.

    Args:
        subject: A linear classifier of two classes.
        limit: Examples at most, near the boundary.
        draws: Draws an example.

    Reference: Cohen, Rosenfeld & Kolter (2019), Appendix B.
    """
    x, d, sigma = _near(subject, limit)
    generator, normal = Generator().manual_seed(0), NormalDist()
    with eval_mode(subject.model):
        hits = [int(class_counts(subject.model, point, sigma, draws, generator)[1]) for point in x]
    ends = [clopper_pearson(count, draws, level=BEYOND) for count in hits]
    if any(low == 0 or high == 1 for low, high in ends):
        raise NotAsked("an example is too far from the boundary for so many draws")

    def radius(shares: list[float]) -> Tensor:
        return torch.tensor([sigma * normal.inv_cdf(share) for share in shares], dtype=torch.float64)

    return Finding(
        statement=f"sigma Phi^-1(p) is the signed distance to the boundary: of {len(x)} examples, p the "
        f"share of {draws:,} draws with noise of {sigma:.4g} on the side of class 1",
        value=radius([count / draws for count in hits]),
        range=(-math.inf, math.inf),
        kind="estimate",
        interval=(radius([low for low, _ in ends]), radius([high for _, high in ends])),
        equals=d,
        tolerance=0.1 * sigma,
    )


def coverage(
    subject: Subject, *, runs: int = 1000, select: int = 20, draws: int = 24, alpha: float = 0.1
) -> Finding:
    """How often the radius that CERTIFY states is at most the distance to a linear classifier's boundary.

    Args:
        subject: A linear classifier of two classes.
        runs: How often it is asked, going through the examples near the boundary.
        select: Draws that choose the class.
        draws: Draws that bound its probability.
        alpha: Probability with which one radius may be too large.

    Reference: Cohen, Rosenfeld & Kolter (2019), Proposition 2.
    """
    x, d, sigma = _near(subject, LIMIT)
    asked = torch.arange(runs) % len(x)
    stated = certify(
        subject.model,
        x[asked.to(x.device)],
        sigma,
        Generator().manual_seed(0),
        select=select,
        draws=draws,
        alpha=alpha,
    )
    truth = d[asked] * (2.0 * stated.classes - 1)
    right = (stated.radius <= truth) | (stated.radius == 0)
    count = int(right.sum())
    low, high = (torch.tensor(end) for end in clopper_pearson(count, runs, level=BEYOND))
    return Finding(
        statement=f"Of {runs:,} radii that {draws} draws state at level {1 - alpha:g}, the share that is at "
        "most the distance to the boundary",
        value=torch.tensor(count / runs, dtype=torch.float64),
        range=(0.0, 1.0),
        kind="estimate",
        interval=(low.double(), high.double()),
        low=torch.tensor(1 - alpha, dtype=torch.float64),
    )


def demo() -> Subject:
    """A linear classifier of the plane, 3 x_1 + 4 x_2 > 0, and points at known distances of its boundary."""
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    d = torch.tensor([1.1, -1.1, 0.9, -1.0, 1.0, 1.2])
    along = torch.tensor([[0.8, -0.6]]) * torch.linspace(-2, 2, 6)[:, None]
    x = d[:, None] * torch.tensor([0.6, 0.8]) + along
    y = torch.tensor([1, 0, 1, 0, 1, 0])  # the last is wrong
    corner = torch.tensor([5.0, 5.0])
    return Subject(
        model=model,
        test=(Batch((x,), y),),
        task=CLASSES,
        objective=risk(CLASSES),
        domain=Domain(-corner, corner),
    )
