"""Accuracy against the size of the ball, from both sides: examples that survive attacks, examples certified.

What is broken in a ball is broken in every larger one, because its adversarial input lies in that too,
so the attacked accuracy never rises.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from margin.core.findings import Premise, Subject
from margin.core.types import Batch, Domain
from margin.engine.evaluation import counts, eval_mode, sample_examples
from margin.engine.loop import NonFiniteError
from margin.robust.attacks.ensemble import (
    FEW,
    NOT_DIFFERENTIABLE,
    Attacker,
    Budget,
    as_they_stand,
    attackers_of,
    in_logits,
    wrong,
)
from margin.robust.attacks.features import Features
from margin.robust.attacks.gradient import Search, labels_of, margin_loss, missed, pgd, stepped
from margin.robust.attacks.masking import Leaky, gradients_of
from margin.robust.attacks.square import square
from margin.robust.attacks.threat_models import ORDER, Norm, Threat
from margin.robust.certificates.certify import Certificates, certified
from margin.robust.certificates.interval_arithmetic import NoIntervalRule
from margin.robust.certificates.intervals import check_copy
from margin.theory.prediction.held_out import independent_draws
from margin.theory.prediction.risk import share_interval

CHUNK = 128
"""Examples attacked and bounded at once."""

BLIND_QUERIES = 200
"""Points that Square asks for where an input gradient is exactly 0."""

TABLE = (
    "of a table each column's range is that of the rows known; categories change as a whole, 0/1 columns and "
    "whole numbers stay such; dates and marks of missing cells stay as they are"
)
"""What is said of the attacks of a table."""

SHOWN = 6
"""Inputs that a figure shows."""

ONE_STEP, STAND_IN = "FGSM", "a stand-in that is nowhere flat"
"""Names of attacks beside those of the ensemble."""


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Which examples are right, under which ball, by which measure; the first axis is the ball.

    Args:
        threats: The balls, growing.
        clean: Right as they are.
        stepped: Still right after one gradient step.
        attacked: Still right after that and the ensemble of attacks; as ``stepped`` where it was not asked
            for and the gradients are not masked.
        certified: Right everywhere in the ball by the best bound; None where that was not asked for or
            a layer has no rule.
        weight: Weight of each example in the means.
        premises: What was checked on the way.
        note: Which examples were taken.
        failure: Why there is no number.
        uncertified: Why nothing is certified, where that was asked for; "" else.
        struck: How many examples each attack broke in each ball, beyond those before it.
        remarks: What else a reader must know of the attacks.
        shown: Some inputs that one step broke in the smallest of its balls, each with what it became.
        undecided: The smallest ball with examples that no attack broke and no bound proved, and some of
            their inputs; None where there are none.
    """

    threats: tuple[Threat, ...]
    clean: Bool[Tensor, " n"]
    stepped: Bool[Tensor, "balls n"]
    attacked: Bool[Tensor, "balls n"]
    certified: Bool[Tensor, "balls n"] | None
    weight: Float[Tensor, " n"]
    premises: tuple[Premise, ...]
    note: str
    failure: str = ""
    uncertified: str = ""
    struck: Mapping[str, Int[Tensor, " balls"]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    shown: tuple[tuple[Tensor, Tensor], ...] = ()
    undecided: tuple[float, Tensor] | None = None

    def share(self, right: Bool[Tensor, "*balls n"]) -> Float[Tensor, "*balls"]:
        """The weighted share of the examples that are right."""
        return (right.double() @ self.weight) / self.weight.sum()

    def ends(
        self, right: Bool[Tensor, "*balls n"]
    ) -> tuple[Float[Tensor, "*balls"], Float[Tensor, "*balls"]]:
        """The exact 95 % interval of each share in the population, as that of the accuracy.

        With unequal weights the counts are effective ones (Kish, 1965, Section 11.7).
        """
        worth = self.weight.sum().square() / self.weight.square().sum()
        return share_interval(self.share(right), float(worth))


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The examples that are attacked.

    Args:
        chunks: Batches of labeled examples of positive weight inside the domain; the weight has one axis.
        note: Which examples these are, in words.
    """

    chunks: tuple[Batch, ...]
    note: str


def take(subject: Subject, domain: Domain, limit: int) -> Sample:
    """At most ``limit`` of the test examples of positive weight inside the domain, drawn at random."""
    outside = 0

    def admits(batch: Batch) -> Tensor:
        x = batch.inputs[0]
        return ((x >= domain.low.to(x)) & (x <= domain.high.to(x))).flatten(1).all(1)

    for batch in subject.test:
        outside += int((counts(batch) & ~admits(batch).cpu()).sum())
    found = sample_examples(subject.test, subject.at_most(limit), admits=admits)
    chunks: list[Batch] = []
    for batch in found.batches:
        x, labels = batch.inputs[0], labels_of(batch)
        weight = torch.ones(len(x)) if batch.weight is None else batch.weight.reshape(len(x), -1).amax(1)
        parts = (x.split(CHUNK), labels.split(CHUNK), weight.to(x.device).split(CHUNK))
        chunks += [Batch((a,), b, w) for a, b, w in zip(*parts, strict=True)]
    note = found.words("test")
    return Sample(tuple(chunks), note + (f" inside the domain ({outside} lie outside it)" if outside else ""))


def balls(
    domain: Domain, x: Tensor, norm: Norm, shares: Sequence[float], features: Features | None = None
) -> tuple[Threat, ...]:
    """The growing balls whose radii are shares of the domain's size.

    The size is the distance of two opposite corners: for linf the domain's longest side, for l2 its diagonal,
    for l1 the sum of its sides. Where the sides differ, each coordinate is measured in its own, so that a
    share means the same for every feature.

    Args:
        domain: The box of one input.
        x: Inputs, for their shape.
        norm: linf, l2 or l1.
        shares: Radii as shares of the size, >= 0, growing.
        features: What the coordinates may be besides numbers of the box; None: nothing else.

    Raises:
        ValueError: The shares do not grow, or the domain is unbounded.
    """
    if not shares or not shares[0] >= 0 or not all(a < b for a, b in pairwise(shares)):
        raise ValueError(f"shares must be >= 0 and grow: got {tuple(shares)}")
    sides = (domain.high - domain.low).double().expand(x.shape[1:])
    if not math.isfinite(domain.width):
        raise ValueError("epsilons are shares of the domain's sides: got an unbounded domain")
    unit = None if bool((sides == sides.max()).all()) else sides / sides.max()
    size = domain.width * sides.numel() ** (1 / ORDER[norm])
    return tuple(Threat(domain, share * size, norm, unit, features) for share in shares)


def box_of(subject: Subject) -> tuple[Domain, Features | None]:
    """Where an input may lie, and what its features may be besides numbers.

    Of a table the box is cut to the range that each column has in the rows that are known, for one box of all
    columns says nothing of any; a column of one value is fixed.

    Raises:
        ValueError: The subject has no domain.
    """
    if subject.domain is None:
        raise ValueError("an attack needs a domain")
    if not subject.encoding:
        return subject.domain, None
    known = (*subject.test, *subject.train)
    rows = torch.cat([batch.inputs[0][counts(batch).to(batch.inputs[0].device)] for batch in known])
    rows = rows[((rows >= subject.domain.low.to(rows)) & (rows <= subject.domain.high.to(rows))).all(1)]
    found = Features.of_table(subject.encoding, rows)
    if not len(rows) or found.fixed is None or found.marks is None or found.problem(rows):
        return subject.domain, None
    marks, low, high = found.marks.to(rows.device), rows.amin(0), rows.amax(0)
    low, high = torch.where(marks, 0, low), torch.where(marks, 1, high)
    alone = low == high
    return Domain(low, high + alone), replace(found, fixed=found.fixed | alone.cpu())


# Eight parameters: what is measured, and what it may cost.
def measure(
    subject: Subject,
    norm: Norm,
    shares: Sequence[float],
    limit: int,
    *,
    budget: Budget | None = None,
    certify: bool = False,
    units: int = 0,
    ascents: int = 0,
) -> Curves:
    """Attack and certify the test examples over growing balls; leaves no trace in the model.

    Args:
        subject: Its labels and its domain are needed.
        norm: Norm of the balls.
        shares: Their radii as shares of the domain's size.
        limit: Examples at most.
        budget: Of the ensemble of attacks, beside the one step; None leaves it out.
        certify: Whether certificates are asked for.
        units: Units of a layer at most that these tighten one by one, of examples that no attack broke.
        ascents: Of these examples, at most so many whose linear bounds gradients move; see :func:`certified`.

    Raises:
        ValueError: The subject has no domain, the shares do not grow, or limit is not positive.
    """
    if subject.domain is None or limit < 1:
        raise ValueError(f"an attack needs a domain and a limit of at least 1: got limit={limit}")
    domain, features = box_of(subject)
    threats = balls(domain, subject.test[0].inputs[0], norm, shares, features)
    sample = take(subject, subject.domain, limit)
    failure, parts = "", []
    try:
        parts = [_attacked(subject, chunk, threats, budget) for chunk in sample.chunks]
    except NonFiniteError as error:
        failure = str(error)
    if failure or not parts:
        return _failed(threats, failure or "no test example lies inside the domain", sample.note)
    proved, refusal, words, undecided = None, "", None, None
    if certify:
        try:
            pairs = zip(sample.chunks, parts, strict=True)
            work = {"units": units, "ascents": ascents}
            found = [_certified(subject, chunk, threats, part.attacked, work) for chunk, part in pairs]
            proved = torch.cat([part.proved for part in found], 1).cpu()
            undecided = _undecided(threats, sample, torch.cat([part.attacked for part in parts], 1) & ~proved)
            words = Certificates(proved, torch.cat([part.method for part in found], 1).cpu()).words()
        except NoIntervalRule as error:
            refusal = str(error)
    weight = torch.cat([chunk.weight for chunk in sample.chunks if chunk.weight is not None])
    return Curves(
        threats=threats,
        clean=torch.cat([part.clean for part in parts]),
        stepped=torch.cat([part.stepped for part in parts], 1),
        attacked=torch.cat([part.attacked for part in parts], 1),
        certified=proved,
        weight=weight.double().cpu(),
        premises=_premises(subject, parts, words),
        note=sample.note,
        uncertified=refusal,
        struck=_summed(parts),
        shown=tuple(pair for part in parts for pair in part.shown)[:SHOWN],
        undecided=undecided,
        remarks=tuple(dict.fromkeys(remark for part in parts for remark in part.remarks))
        + ((TABLE,) if features is not None else ()),
    )


def _undecided(
    threats: Sequence[Threat], sample: Sample, left: Bool[Tensor, "balls n"]
) -> tuple[float, Tensor] | None:
    """The first ball that leaves examples undecided, and their first inputs."""
    inputs = torch.cat([chunk.inputs[0].detach().cpu() for chunk in sample.chunks])
    for threat, row in zip(threats, left, strict=True):
        if bool(row.any()):
            return threat.eps, inputs[row][:SHOWN]
    return None


class _Part(NamedTuple):
    """What was found in one chunk; ``missed`` counts what attacks broke that read no gradient, at last."""

    clean: Tensor
    stepped: Tensor
    attacked: Tensor
    steady: bool
    blind: Tensor
    missed: Tensor
    broken: int = 0
    struck: Mapping[str, Tensor] = {}
    remarks: tuple[str, ...] = ()
    shown: tuple[tuple[Tensor, Tensor], ...] = ()


def _attacked(subject: Subject, batch: Batch, threats: Sequence[Threat], budget: Budget | None) -> _Part:
    x, model, struck = batch.inputs[0], subject.model, {}
    shown: list[tuple[Tensor, Tensor]] = []
    with eval_mode(model) as generator, torch.no_grad():
        outputs, again = model(x), model(x)
        clean = ~_wrong(subject, outputs, batch)
        task, remarks = in_logits(subject.task, outputs)
        found = gradients_of(model, batch, (subject.objective, margin_loss(task)), generator)
        alive, rows = clean, []
        for threat in threats:
            for slope in found.slopes if threat.eps > 0 else ():
                moved = stepped(x, slope, threat)
                fallen = alive & _wrong(subject, model(moved), batch)
                shown += [
                    (x[i].cpu(), moved[i].cpu()) for i in fallen.nonzero().flatten()[: SHOWN - len(shown)]
                ]
                alive = alive & ~fallen
            rows.append(alive)
        steps = left = torch.stack(rows)
        struck[ONE_STEP] = (clean & ~steps).sum(1).cpu()
        missed = torch.zeros_like(struck[ONE_STEP])
        asked = () if budget is None else attackers_of(found.model, task, outputs, budget, generator)
        for attacker in (*asked, *_blindly(subject, outputs, generator, slope=not found.lacking)):
            seen = left & (~found.blind if attacker in asked else found.blind)
            after = _downwards(seen, subject, batch, threats, attacker.move) | (left & ~seen)
            fallen = (left & ~after).sum(1).cpu()
            struck[attacker.name] = struck.get(attacker.name, 0) + fallen
            missed = missed + fallen * (not attacker.reads_gradients)
            left = after
    if found.lacking:
        remarks = (*remarks, NOT_DIFFERENTIABLE.format(found.lacking))
    steady = torch.allclose(outputs, again, rtol=1e-5)
    parts = clean.cpu(), steps.cpu(), left.cpu(), steady, (found.blind & clean).cpu(), missed
    return _Part(*parts, int((found.broken & clean).sum()), struck, remarks, tuple(shown))


def _blindly(subject: Subject, outputs: Tensor, generator: Generator, *, slope: bool) -> tuple[Attacker, ...]:
    """The attacks where the gradient is 0: along one that leaks, where one has a slope, and along none."""
    loss, stand_in, goal = margin_loss(subject.task), Leaky(subject.model), missed(subject.task)
    leaking = margin_loss(as_they_stand(subject.task, outputs))  # what leaks is no probability any more

    def climb(threat: Threat, batch: Batch) -> Tensor:
        return pgd(stand_in, batch, leaking, threat, generator, search=Search()).inputs

    def search(threat: Threat, batch: Batch) -> Tensor:
        queries = BLIND_QUERIES
        return square(subject.model, batch, loss, threat, generator, queries=queries, goal=goal).inputs

    made = [Attacker(STAND_IN, climb, reads_gradients=False)] if slope else []
    return (*made, Attacker("Square", search, reads_gradients=False))


def _summed(parts: Sequence[_Part]) -> dict[str, Tensor]:
    """How many examples of all chunks each attack broke; without the stand-in, where it broke none."""
    names = dict.fromkeys(name for part in parts for name in part.struck)
    total = {
        name: torch.stack([part.struck[name] for part in parts if name in part.struck]).sum(0)
        for name in names
    }
    return {name: counts for name, counts in total.items() if name != STAND_IN or bool(counts.any())}


def _downwards(
    alive: Tensor,
    subject: Subject,
    batch: Batch,
    threats: Sequence[Threat],
    move: Callable[[Threat, Batch], Tensor],
) -> Tensor:
    """The examples that stay alive in each ball, the largest attacked first.

    What survives in a ball is not tried in the smaller ones, which saves most of the work and keeps
    the accuracy from rising with the ball.
    """
    rows, tried = [], torch.ones_like(alive[0])
    for row, threat in zip(alive.flip(0), reversed(threats), strict=True):
        left = _left(row & tried, subject, batch, threat, move)
        rows.append(left | (row & ~tried))
        tried = ~rows[-1]
    return torch.stack(rows[::-1])


def _left(
    alive: Tensor, subject: Subject, batch: Batch, threat: Threat, move: Callable[[Threat, Batch], Tensor]
) -> Tensor:
    """The examples that are alive and stay so when their inputs are moved."""
    index = alive.nonzero().flatten()
    if threat.eps == 0 or len(index) == 0:
        return alive
    part = Batch((batch.inputs[0][index],), labels_of(batch)[index])
    return alive.index_put((index,), ~_wrong(subject, subject.model(move(threat, part)), part))


def _wrong(subject: Subject, outputs: Tensor, batch: Batch) -> Tensor:
    return wrong(missed(subject.task), outputs, labels_of(batch))


def _certified(
    subject: Subject, batch: Batch, threats: Sequence[Threat], attacked: Tensor, work: Mapping[str, int]
) -> Certificates:
    """Whether each example is right everywhere in each ball, and by which bound."""
    labels, classes = labels_of(batch), subject.task.classes
    if classes is None:
        raise NoIntervalRule(f"the task {subject.task.name!r} has no classes")
    x = batch.inputs[0]
    corner = stepped(x, torch.ones_like(x), threats[-1])
    for points in (x, corner):
        check_copy(subject.model, points, classes)
    return certified(subject.model, x, labels, threats, classes, hopeful=attacked, **work)


def _premises(subject: Subject, parts: Sequence[_Part], methods: str | None) -> tuple[Premise, ...]:
    steady = all(part.steady for part in parts)
    found = [
        Premise(
            "the model is a function of its input in evaluation mode",
            "sampled" if steady else "refuted",
            "two evaluations of every example agree"
            if steady
            else "two evaluations of the same examples differ: it draws at random",
        ),
        _unmasked(parts),
        independent_draws(subject),
    ]
    if methods is not None:
        evidence = "every function called has one; bounds widened by the model's rounding and by their own"
        evidence += f"; proofs, all balls together, by {methods}" if methods else ""
        found.append(Premise("every layer has a sound interval rule", "proved", evidence))
    return tuple(found)


def _unmasked(parts: Sequence[_Part]) -> Premise:
    """Whether the input gradients lead somewhere: few are 0, and attacks without them find little beyond."""
    right = max(sum(int(part.clean.sum()) for part in parts), 1)
    blind, broken = sum(int(part.blind.sum()) for part in parts), sum(part.broken for part in parts)
    missed = int(torch.stack([part.missed for part in parts]).sum(0).max())
    evidence = (
        f"the input gradient is exactly 0 at {blind} of the {right} right examples ({blind / right:.1%})"
        + (f", and not finite at {broken} ({broken / right:.1%})" if broken else "")
        + f"; in one ball random search (Square), or {STAND_IN}, broke {missed} more"
    )
    few = blind <= FEW * right and broken <= FEW * right and missed <= max(1, FEW * right)
    text = "the gradients that the attacks follow are not masked"
    return Premise(text, "sampled" if few else "refuted", evidence)


def _failed(threats: tuple[Threat, ...], failure: str, note: str) -> Curves:
    none = torch.zeros(0, dtype=torch.bool)
    rows = torch.zeros(len(threats), 0, dtype=torch.bool)
    return Curves(threats, none, rows, rows, None, torch.zeros(0, dtype=torch.float64), (), note, failure)
