"""What moves it, has it memorized, was the training finished: sentences about the trained network."""

import math
import re

from torch import Tensor

from margin.auditing.asking.budget import LONG
from margin.auditing.report.evidence import (
    Evidence,
    Level,
    Number,
    Sentence,
    asserted,
    capital,
    difference,
    rounded,
)
from margin.auditing.report.performance import HALF, LINEAR, LOSS, MEMORIZED, right, terms_of
from margin.auditing.report.rivals import copied
from margin.auditing.report.table import elements
from margin.auditing.subject.trained import CHOSE_NOTHING
from margin.core.deadline import STOPPED
from margin.figures.digits import figures

SANDWICH = "robust/linf.sandwich"
PIXEL_SHIFT = "vision/shift.classes"
LADDER = "theory/bounds.ladder"
GAP = "theory/risk.gap"
FALLING, GRADIENT = "theory/finished.falling", "theory/finished.gradient"
ALONG = "theory/curvature.along_gradient"
STEP_RATIO, EDGE = "theory/curvature.step_ratio", "theory/edge_of_stability.ratio"

COPIES = {"quantized": "a copy of few values a weight", "drawn": "one network drawn from its law"}
"""Of whom a bound speaks that is not of the very weights, by a word of its name."""

TEN_POINTS = 0.1
"""A fall of the accuracy, or a gap between training and held-out part, that anybody notices."""

SLIGHT = 0.01
"""Share of the mean loss by which it may change at the end of a finished training."""

NEARLY = 0.05
"""Share of a constant's loss by which a model must be below it that has learned anything to speak of."""

TINY = 0.001
"""Share of a constant's loss that no training needs to take away."""

SIDE = 16
"""Pixels of the shorter side from which on shifts are advised: on digits of 8 x 8 they cost accuracy."""

NEAR, FAR = 0.01, 0.05
"""Shares of an input's range: a change that nobody sees, and one that is noise."""


def moves(evidence: Evidence) -> list[Sentence]:
    """What changes its answers: an attack, and of images a shift by a pixel."""
    return [*_attacked(evidence), *_shifted(evidence)]


def _shifted(evidence: Evidence) -> list[Sentence]:
    """Whether a shift by one pixel changes the class of more images than anybody would let pass."""
    changed = evidence.number(PIXEL_SHIFT)
    if changed is None or changed.below <= TEN_POINTS:
        return []
    text = f"Moved by one pixel, {changed.text} of its images get another class in one of four directions"
    side = evidence.curve(PIXEL_SHIFT, "shorter side")
    if side is not None and float(side) < SIDE:
        text += f"; a pixel is 1/{int(side)} of their side"
        return [Sentence("moves", "warn", f"{text}.", "", (PIXEL_SHIFT,))]
    shift = "--augment shift:1" if evidence.is_run else "shifted images (margin train --augment shift:1)"
    return [Sentence("moves", "warn", f"{text}.", f"Train longer, with {shift}.", (PIXEL_SHIFT,))]


def _attacked(evidence: Evidence) -> list[Sentence]:
    """The smallest change of the inputs that breaks it, and the certificate below it."""
    if SANDWICH in evidence.findings:
        return [*_fallen(evidence), *_masked(evidence)]
    refusal = evidence.refusal(SANDWICH)
    if not refusal or "class label" in refusal:
        return []
    todo = ""
    if "a domain" in refusal:
        refusal = "no domain is known, in which its inputs could be moved"
        todo = (
            "" if evidence.is_run else "Give the least and the largest input: --domain [0,1], domain=(0, 1)."
        )
    elif refusal.startswith((LONG, STOPPED)):
        refusal, todo = f"finding it out {refusal}", "Give it more time: --minutes."
    elif refusal.startswith("has "):
        refusal = f"it {refusal}"
    return [Sentence("moves", "unknown", f"What moves it is not known: {refusal}.", todo, ())]


def _fallen(evidence: Evidence) -> list[Sentence]:
    found = evidence.findings[SANDWICH]
    parts, shares = elements(found), evidence.curve(SANDWICH, "share")
    eps = evidence.curve(SANDWICH, "eps")
    if shares is None or eps is None or len(parts) != len(shares) or len(parts) < 2:
        return []
    clean = parts[0].value
    fallen = [i for i in range(1, len(parts)) if parts[i].value <= clean - TEN_POINTS]
    last = len(parts) - 1
    place = fallen[0] if fallen else last
    radius = _radius(evidence, place)
    if found.labels[place].startswith("eps"):
        radius += f" ({rounded(100 * float(shares[place]))} % of the range)"
    certified = _certified(evidence, clean)
    which = re.match(r"Of ([\d,]+ of [\d,]+[^,]*),", found.statement)  # some of the examples, not all
    from_clean = f"of {rounded(clean, 3)}" + (f" ({which[1]})" if which else "")
    if not fallen:
        if parts[last].value == clean and float(shares[last]) >= FAR:
            text = f"No change of its inputs up to {radius} moves one right answer"
            return [Sentence("moves", "warn", f"{text}{certified}.", "Does it read its input?", (SANDWICH,))]
        left = _at_most(evidence, last)
        proved: Level = "good" if _is_proved(evidence, clean, shares) else "unknown"
        text = f"A change of every input by {radius} leaves at most {left} right, {from_clean}"
        text += f"{certified}."
        return [Sentence("moves", proved, text, "", (SANDWICH,))]
    level: Level = "good" if _is_proved(evidence, clean, shares) else "unknown"
    if float(shares[place]) <= FAR:
        level = "bad" if float(shares[place]) <= NEAR else "warn"
    text = (
        f"A change of every input by {radius} leaves at most {_at_most(evidence, place)} right, {from_clean}"
    )
    below_half = next((i for i in range(1, len(parts)) if parts[i].value < 0.5 <= clean), None)
    if below_half is not None and below_half != place:
        text += f", by {_radius(evidence, below_half)} under half"
    if clean < HALF:  # it is wrong without an attack
        return [Sentence("moves", "unknown", f"{text}{certified}.", "", (SANDWICH,))]
    how = "Train with --rule pgd" if evidence.is_run else "Train on attacked inputs (margin train --rule pgd)"
    todo = f"{how}, or keep its inputs from who may change them." if level in ("bad", "warn") else ""
    return [Sentence("moves", level, f"{text}{certified}.", todo, (SANDWICH,))]


def _radius(evidence: Evidence, place: int) -> str:
    """The radius in the inputs' own unit, or, where each has its own, as a share of its range."""
    eps, share = evidence.curve(SANDWICH, "eps"), evidence.curve(SANDWICH, "share")
    if share is not None and not evidence.findings[SANDWICH].labels[place].startswith("eps"):
        return f"{rounded(100 * float(share[place]))} % of its range"
    return "" if eps is None else str(rounded(float(eps[place]), 3))


def _masked(evidence: Evidence) -> list[Sentence]:
    """That the gradients lead attacks astray, so that what these leave right says little."""
    found = evidence.findings[SANDWICH]
    masks = [p for p in found.premises if p.status == "refuted" and p.text.endswith("are not masked")]
    if not masks:
        return []
    text = f"Gradient masking: attacks that follow its gradients are led astray ({masks[0].evidence})"
    text += "; how much they leave right is no sign of robustness."
    todo = "Attack the model without what is flat, rounded or not differentiable in it."
    return [Sentence("moves", "warn", text, todo, (SANDWICH,))]


def _at_most(evidence: Evidence, place: int) -> str:
    """The share that survives the attacks, with the upper end of its interval: ".87 [<= .90]"."""
    part = elements(evidence.findings[SANDWICH])[place]
    value, above = figures([part.value, part.above], part.above - part.value)
    return f"{value} [<= {above}]"


def _is_proved(evidence: Evidence, clean: float, shares: Tensor) -> bool:
    """Whether changes that nobody sees are proved to cost less than ten points, not only not seen to."""
    certified = evidence.curve(SANDWICH, "certified")
    if certified is None:
        return False
    return bool((certified[shares >= NEAR] > clean - TEN_POINTS).any())


def _certified(evidence: Evidence, clean: float) -> str:
    """Up to which radius all but ten points are proved right."""
    certified, eps = evidence.curve(SANDWICH, "certified"), evidence.curve(SANDWICH, "eps")
    if certified is None or eps is None or not bool((certified[1:] > 0).any()):
        return "; nothing is certified"
    held = [i for i in range(1, len(eps)) if float(certified[i]) > max(clean - TEN_POINTS, 0.0)]
    place = held[-1] if held else max(i for i in range(1, len(eps)) if float(certified[i]) > 0)
    return f"; certified: {rounded(float(certified[place]), 3)} up to {_radius(evidence, place)}"


def memorized(evidence: Evidence) -> list[Sentence]:
    """By how much it is better on what it was trained on than on what it was not; its risk at most."""
    training = evidence.number(MEMORIZED, "training")
    held = evidence.number(MEMORIZED, "held-out")
    gap = evidence.number(MEMORIZED, "gap")
    if training and held and gap:
        return [_compared(evidence, training, held, gap), *_bounded(evidence)]
    if told := copied(evidence):
        return told
    if loss_gap := evidence.number(GAP):
        return [_lost(evidence, loss_gap), *_bounded(evidence)]
    refusal = evidence.refusal(GAP)
    if "the training examples" not in refusal:
        return _bounded(evidence)
    todo = "" if evidence.is_run else "Give them: --train FILE, train=(x, y)."
    text = "Whether it has memorized is not known without the training examples."
    return [Sentence("memorized", "unknown", text, todo, ()), *_bounded(evidence)]


def _compared(evidence: Evidence, training: Number, held: Number, gap: Number) -> Sentence:
    classes = evidence.findings[MEMORIZED].range[0] == -1  # a gap of shares, not of R^2
    parts = (
        f"right for {training.text} of the training {terms_of(evidence)}, {held.text} of the held-out ones"
    )
    if not classes:
        parts = f"explains {training.text} of the training targets' variance, {held.text} held out"
    parts += f": a gap of {gap.text}."
    if gap.above < -TEN_POINTS:
        todo = "The held-out examples are easier, or of another kind: how were they chosen?"
        return Sentence("memorized", "unknown", capital(parts), todo, (MEMORIZED,))
    if gap.below > TEN_POINTS:
        if any(said.level == "bad" and LINEAR not in said.claims for said in right(evidence)):
            # labels in another order, inputs that lie elsewhere: a gap without a thing learned by heart
            todo = "Are held-out labels and inputs as in training? If they are, it has memorized."
            return Sentence("memorized", "bad", capital(parts), todo, (MEMORIZED,))
        todo = "More data, weight decay, augmentation, or an earlier stop."
        return Sentence("memorized", "bad", f"Memorized: {parts}", todo, (MEMORIZED,))
    if gap.below > 0 and gap.above > TEN_POINTS:
        return Sentence("memorized", "warn", capital(parts), "More data or an earlier stop.", (MEMORIZED,))
    if gap.above > TEN_POINTS:
        text = f"Not told whether it has memorized: {parts}"
        return Sentence("memorized", "unknown", text, "More held-out examples.", (MEMORIZED,))
    return Sentence("memorized", asserted("good", [gap]), capital(parts), "", (MEMORIZED,))


def _bounded(evidence: Evidence) -> list[Sentence]:
    """At most how often it is wrong on new examples, by the tightest bound; of a broken premise nothing."""
    known = sorted(evidence.numbers(LADDER), key=lambda number: number.value)
    if not known or known[0].doubted or known[0].value >= 1:
        return []
    from margin.theory.bounds.ladder import CONSTANT

    tightest, by_training = known[0], [n for n in known if "training" in n.label]
    curve = evidence.curve(LADDER, CONSTANT)
    constant = 1.0 if curve is None else float(curve)
    most = rounded(math.ceil(1000 * tightest.value) / 1000, 3)
    whose = next((f"{text} is " for word, text in COPIES.items() if word in tightest.label), "")
    text = f"With 95% confidence {whose}wrong for at most {most} of new examples, by "
    text += (
        "its training examples alone"
        if tightest in by_training
        else f"{evidence.held_out}{_chosen(evidence)}"
    )
    if by_training and all(n.value >= constant for n in by_training):
        text += "; its training examples alone promise nothing"
    level: Level = "good" if tightest.value < min(HALF, constant) else "unknown"
    todo = "" if level == "good" else "More held-out examples."
    return [Sentence("memorized", level, f"{text}.", todo, (LADDER,))]


def _chosen(evidence: Evidence) -> str:
    """What the held-out examples have chosen, by the user's word or the record of the training."""
    models = evidence.audit.facts.get("models compared by the held-out examples")
    if not isinstance(models, int):
        known = {p.text: p.status for p in evidence.findings[LADDER].premises}
        if known.get(CHOSE_NOTHING) != "proved":
            return ", if they chose nothing"
        return " unseen in training"
    return f" that chose it among {models:,} models" if models > 1 else " that chose nothing"


def _lost(evidence: Evidence, gap: Number) -> Sentence:
    """The same by the loss, where no shares are known."""
    loss = evidence.number(LOSS)
    apart = ""
    if loss:
        apart = f": {difference(loss.value, loss)} against {rounded(loss.value - gap.value, 3)}"
    if gap.below > 0 and gap.doubted:  # by a shift, of which another sentence speaks
        text = f"The held-out loss exceeds the training loss by {gap.text}{apart}, of unlike examples."
        return Sentence("memorized", "unknown", text, "", (GAP,))
    if gap.below > 0:
        half = loss is not None and gap.below > loss.value / 2
        level: Level = "bad" if half else "warn"
        text = f"The held-out loss exceeds the training loss by {gap.text}{apart}."
        return Sentence("memorized", level, text, "More data, weight decay, or an earlier stop.", (GAP,))
    text = f"The held-out loss is not told apart from the training loss: they differ by {gap.text}{apart}."
    return Sentence("memorized", asserted("good", [gap]), text, "", (GAP,))


def trained(evidence: Evidence) -> list[Sentence]:
    """Whether the loss still falls, and whether the learning rate fits the curvature.

    One sentence says whether it falls: that of the training's history where it moved at the end, or stood and
    the gradient has nothing to warn of; else the gradient's.
    """
    falling, step = _falling(evidence), _step(evidence)
    told = {sentence.level for sentence in falling}
    warned = any(sentence.level == "warn" for sentence in step)
    history = "warn" in told or ("good" in told and not warned)
    return [*(falling if history else step or falling), *_rate(evidence)]


def _step(evidence: Evidence) -> list[Sentence]:
    """By how much one gradient step would lower the training loss, on examples left out of it too."""
    gain, losses = evidence.number(GRADIENT), evidence.curve(GRADIENT, "loss: the same examples")
    if gain is None or losses is None:
        return []
    height = float(losses[0])
    best = height - float(losses[losses.isfinite()].min())
    known = evidence.curve(GRADIENT, "loss: a constant")
    constant = None if known is None else float(known[0])
    # of a density or a bound nobody knows how much of the loss can be taken away
    worth = TINY * abs(height) if constant is None else max(SLIGHT * abs(height), TINY * constant)
    drawn = evidence.findings[GRADIENT].sample
    alone = f"the training loss{f' of {drawn}' if drawn else ''}, {rounded(height, 3)}"
    loss = alone if constant is None else f"{alone} (a constant's: {rounded(constant, 3)})"
    if gain.below > 0 and gain.value > worth:
        text = f"One gradient step still lowers {loss}, by {gain.text} on examples left out of the step"
        limit, named = _limit_of_rate(evidence)
        text += f"{limit}."
        if any(sentence.level == "bad" for sentence in memorized(evidence)):
            return [Sentence("trained", "unknown", text, "", (GRADIENT, *named))]
        todo = "Train longer, or let the learning rate fall at the end."
        return [Sentence("trained", "warn", text, todo, (GRADIENT, *named))]
    others = f"by {rounded(best)}, on examples left out of the step by {gain.text}."
    if best > worth:
        text = f"One gradient step lowers {loss}, {others}"
        todo = "More training may only memorize: let held-out examples decide."
        return [Sentence("trained", "unknown", text, todo, (GRADIENT,))]
    if constant is not None and height > (1 - NEARLY) * constant:
        how = "not" if height > constant else "hardly"
        text = (
            f"{capital(alone)}, is {how} below a constant's, {rounded(constant, 3)}, and one gradient step "
        )
        text += f"does not mend it: {others}"
        todo = "Check the learning rate and the scale of the inputs."
        return [Sentence("trained", "warn", text, todo, (GRADIENT,))]
    text = f"One gradient step hardly lowers {loss}: by {gain.text} on examples left out of the step."
    if constant is not None and height < TINY * constant:  # a step may take away most of next to nothing
        text = f"{capital(alone)}, is next to nothing beside a constant's, {rounded(constant, 3)}."
    text = text if height else "The training loss is 0."
    return [Sentence("trained", asserted("good", [gain]), text, "", (GRADIENT,))]


def _limit_of_rate(evidence: Evidence) -> tuple[str, tuple[str, ...]]:
    """Up to which learning rate a plain step lowers the loss to second order, 2 |g|^2 / g'Hg; its claim."""
    curvature = evidence.number(ALONG)
    if curvature is None or curvature.below <= 0:
        return "", ()
    limit = rounded(2 / curvature.value)
    return f" (a plain step lowers it at learning rates below {limit}, to second order)", (ALONG,)


def _falling(evidence: Evidence) -> list[Sentence]:
    """Whether the loss of the last evaluations fell, rose, or neither as far as its noise tells."""
    slope, steps = evidence.number(FALLING), evidence.curve(FALLING, "step")
    if slope is None or steps is None:
        return []
    from margin.theory.dynamics.finished import last_stretch

    words = next(name for name in evidence.findings[FALLING].curves if name != "step")
    losses = evidence.curve(FALLING, words)
    last = slice(-last_stretch(len(steps)), None)
    if losses is None:
        return []
    run = float(steps[last][-1] - steps[last][0]) / 1000
    mean = float(losses[last].mean())
    size = abs(mean)  # of a density it may lie below 0
    over = f"over its last {len(steps[last])} evaluations, of {rounded(mean)} on average"
    if slope.above < 0 and -slope.value * run > SLIGHT * size:
        fall = _with_ends(-slope.value * run, -slope.above * run, -slope.below * run)
        text = f"The {words} still fell when the training ended: by {fall} {over}."
        return [Sentence("trained", "warn", text, "Train longer.", (FALLING,))]
    rise = _with_ends(slope.value * run, slope.below * run, slope.above * run)
    if slope.below > 0 and slope.value * run > SLIGHT * size:
        text = f"The {words} rose when the training ended: by {rise} {over}."
        return [Sentence("trained", "warn", text, "Use an earlier checkpoint.", (FALLING,))]
    level: Level = "unknown" if max(-slope.below, slope.above) * run > TEN_POINTS * size else "good"
    text = f"The {words} neither fell nor rose for sure when the training ended: it changed by {rise} {over}."
    return [Sentence("trained", level, text, "", (FALLING,))]


def _with_ends(value: float, below: float, above: float) -> str:
    """A number with its interval, as measured ones are printed."""
    shown, low, high = figures([value, below, above], above - below)
    return f"{shown} [{low}, {high}]"


def _rate(evidence: Evidence) -> list[Sentence]:
    """The sharpness against what the learning rate allows, and how far a plain step would overshoot."""
    ratio = evidence.number(EDGE)
    if ratio is not None and ratio.below > 1:
        text = f"The sharpness reached {ratio.text} times what the learning rate allows."
        return [Sentence("trained", "warn", text, "End with a smaller learning rate.", (EDGE,))]
    step = evidence.number(STEP_RATIO)
    if step is None or step.below <= 1:
        return []
    times = f"{rounded(step.value)} times"
    text = f"The last learning rate is {times} what lets a plain gradient step lower the loss."
    todo = "Of momentum or Adam that is no proof: see whether a smaller rate ends lower."
    return [Sentence("trained", "unknown", text, todo, (STEP_RATIO,))]
