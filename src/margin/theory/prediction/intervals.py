"""What a stated law of each value is worth: its log-likelihood, and how often its intervals hold the value.

A model that states a law and not a value alone (a Gaussian process, an ensemble, a posterior) is judged by
the probability integral transform: F(y) of held-out values y is uniform on [0, 1] where the laws are right.
Gneiting, Balabdaoui and Raftery (2007), Sections 2 and 3; Massart (1990), the band of an empirical law.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, has_targets
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.math.evenly import evenly, in_order
from margin.math.probability.mixtures import Mixture
from margin.nn.predictive import predictive_of, states_law
from margin.theory.prediction.held_out import (
    Terms,
    described,
    held_out_terms,
    independent_draws,
    kept,
    mean_limits,
    share_of,
    unanswered,
    weighted_mean,
)

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""The central intervals whose coverage is counted."""

COLUMNS = ("log density", "transform", "observed", "mean", "low", "high", "input")
"""What is kept of each held-out value and its law."""

MOST_POINTS = 400
"""Intervals of a picture at most."""


class Laws(NamedTuple):
    """The held-out values and their laws.

    Args:
        columns: The numbers of :data:`COLUMNS`, by name.
        terms: Weight and example of each.
    """

    columns: dict[str, Float[Tensor, " terms"]]
    terms: Terms


def states_laws(subject: Subject) -> bool:
    """Whether the model states the law of each of the real values it predicts, one an example."""
    if not (subject.task.name == VALUES.name and has_targets(subject) and states_law(subject.model)):
        return False
    targets = subject.test[0].targets
    return targets is not None and targets.ndim == 1


def _columns(model: nn.Module, batch: Batch, generator: Generator) -> Float[Tensor, "rows columns"]:
    """The numbers of :data:`COLUMNS` of each value of a batch."""
    if batch.targets is None:
        raise ValueError("the held-out examples have no targets")
    y, x = batch.targets.double(), batch.inputs[0].flatten(1).double()
    law = predictive_of(model, batch.inputs[0])
    found = (law.log_density(y), law.cdf(y), y, law.mean, law.quantile(0.025), law.quantile(0.975), x[:, 0])
    return torch.stack(found, 1)


def laws_of(subject: Subject) -> Laws:
    """The held-out values and their laws, computed once for all claims of the subject."""
    width = len(COLUMNS)

    def compute() -> Terms:
        return held_out_terms(subject.model, subject.test, _columns)

    found = kept(subject, "predictive laws", compute, lambda t: t.values.numel() * 24)
    columns = dict(zip(COLUMNS, found.values.reshape(-1, width).unbind(1), strict=True))
    terms = Terms(columns["observed"], found.weight[::width], found.example[::width])
    return Laws(columns, terms)


def log_likelihood(subject: Subject) -> Finding:
    """The mean log-density of held-out values under their laws, in nats.

    Args:
        subject: A model that states the law of each real value.
    """
    laws = laws_of(subject)
    terms = laws.terms._replace(values=laws.columns["log density"])
    failure = unanswered(terms.values, "the log-density") or _few(terms)
    low, high = (math.nan, math.nan) if failure else mean_limits(terms, level=0.95)
    mean = weighted_mean(terms)
    return Finding(
        statement="The mean log-density of the held-out value under the law that the model states, on "
        f"{described(terms, mean)}, with a 95% interval; it rewards laws that are right and narrow.",
        value=mean.mean,
        unit="nat",
        range=(-math.inf, math.inf),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(torch.tensor(low).double(), torch.tensor(high).double()),
        failure=failure,
    )


def coverage(subject: Subject) -> Finding:
    """How often the central intervals of 50, 80, 90 and 95 % hold the held-out value.

    Args:
        subject: A model that states the law of each real value.
    """
    laws = laws_of(subject)
    transform, terms = laws.columns["transform"], laws.terms
    failure = unanswered(transform, "the law")
    count = int(terms.example.max()) + 1 if len(terms.example) else 0
    inside = [(2 * transform - 1).abs() <= level for level in LEVELS]
    found = [] if failure else [share_of(each, terms, count) for each in inside]
    nothing = torch.full((len(LEVELS),), math.nan, dtype=torch.float64)
    value, low, high = (
        torch.tensor([getattr(one, name) for one in found], dtype=torch.float64) if found else nothing
        for name in ("value", "low", "high")
    )
    width = weighted_mean(terms._replace(values=laws.columns["high"] - laws.columns["low"]))
    return Finding(
        statement="The central intervals of the law that the model states hold the held-out value of "
        f"{described(terms, width)} so often (their mean width at 95% is {float(width.mean):.3g}); laws that "
        "are right hold it as often as they say.",
        value=value,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(low, high),
        labels=tuple(f"{level:.0%} interval" for level in LEVELS),
        failure=failure,
        curves={} if failure else _bands(subject, laws),
    )


def _bands(subject: Subject, laws: Laws) -> dict[str, Tensor]:
    """The 95 % interval of some examples in order: of the input where it is one number, else of the mean."""
    single = subject.test[0].inputs[0].flatten(1).shape[1] == 1
    along = laws.columns["input" if single else "mean"]
    order = along.argsort()
    keep = order[evenly(len(order), MOST_POINTS)]
    names = ("observed", "mean", "low", "high")
    curves = {name: laws.columns[name][keep] for name in names}
    return curves | ({"input": along[keep]} if single else {})


def calibration(subject: Subject) -> Finding:
    r"""The largest distance of the empirical law of the transforms F(y) from the uniform law.

    .. math:: D = \sup_p |\hat F_n(p) - p|, \quad P(|D - D_\infty| > e) \le 2 \exp(-2 n e^2)

    Args:
        subject: A model that states the law of each real value.

    Reference: Kuleshov, Fenner and Ermon 2018, Section 3; Massart 1990, Corollary 1 (the interval).
    """
    laws = laws_of(subject)
    transform, terms = laws.columns["transform"], laws.terms
    failure = unanswered(transform, "the law") or _few(terms)
    order = transform.argsort()
    p, weight = transform[order], terms.weight[order] / terms.weight.sum()
    after = weight.cumsum(0)
    distance = torch.maximum((after - p).abs(), (p - (after - weight)).abs()).max() if len(p) else p.sum()
    size = weighted_mean(terms)
    reach = math.sqrt(math.log(2 / 0.05) / (2 * size.examples)) if size.examples else math.inf
    return Finding(
        statement="The largest distance between how often held-out values lie below a quantile of their law "
        f"and its level, on {described(terms, size)}, with a 95% interval; 0 where the laws are right.",
        value=distance,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=((distance - reach).clamp_min(0), (distance + reach).clamp_max(1)),
        failure=failure,
        curves={} if failure else {"level": p, "frequency": after, "width": _widths(laws)},
    )


def _widths(laws: Laws) -> Tensor:
    """The widths of the 95 % intervals in order: how sharp the laws are."""
    return in_order(laws.columns["high"] - laws.columns["low"], MOST_POINTS)


def _few(terms: Terms) -> str:
    return "" if len(terms.example.unique()) > 1 else "an interval needs two examples"


class StatedLaw(nn.Module):
    """A model whose input is the mean of its law, of variance 1."""

    def forward(self, x: Float[Tensor, "rows 1"]) -> Float[Tensor, " rows"]:
        """The mean of each row."""
        return x[:, 0]

    def predictive(self, x: Float[Tensor, "rows 1"]) -> Mixture:
        """The law N(x, 1) of each row."""
        return Mixture(x[None, :, 0].double(), torch.ones(1, len(x), dtype=torch.float64))


def demo() -> Subject:
    """The quantiles (i - 1/2) / 400 of N(0, 1) as values of that law: a transform as even as 400 can be."""
    levels = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
    batch = Batch((torch.zeros(400, 1, dtype=torch.float64),), torch.special.ndtri(levels))
    return Subject(model=StatedLaw(), test=[batch], task=VALUES, objective=risk(VALUES))
