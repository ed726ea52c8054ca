"""Are its probabilities right: a sentence about the calibration error, and what one temperature repairs."""

from margin.auditing.report.evidence import Evidence, Level, Sentence, asserted, difference
from margin.auditing.report.rivals import HALF, band

ECE, BINARY_ECE = "theory/calibration.ece", "theory/calibration.binary_ece"

TEMPERATURE = "theory/calibration.temperature"

NOTICED = 0.01
"""Calibration error that matters to nobody."""

MISLEADING = 0.05
"""Calibration error from which a stated probability misleads."""

VAGUE = 0.1
"""Calibration error that too few examples cannot rule out."""

FAR_FROM_ONE = 1.2
"""Factor between a temperature and 1 from which the probabilities are not those that fit."""


def probabilities(evidence: Evidence) -> list[Sentence]:
    """Whether a stated probability is met by the frequency, and what one temperature would repair."""
    name = ECE if evidence.numbers(ECE) else BINARY_ECE
    known = evidence.numbers(name)
    if not known:
        return band(evidence)
    error = max(known, key=lambda number: number.below)
    claims: tuple[str, ...] = (name,)
    temperature = evidence.number(TEMPERATURE, "temperature")
    factor = 1.0 if temperature is None else max(temperature.below, 1 / max(temperature.above, 1e-9))
    fits = factor <= FAR_FROM_ONE
    if error.below < NOTICED and error.above > VAGUE and fits:
        text = f"Probabilities may be off by {error.text}: {evidence.held_out} cannot tell."
        return [Sentence("probabilities", "unknown", text, "More held-out examples.", claims)]
    if error.below < NOTICED and fits:
        text = f"Probabilities are off by {error.text} in the mean (ECE)."
        return [Sentence("probabilities", asserted("good", [error]), text, "", claims)]
    level: Level = "bad" if error.below > MISLEADING else "warn"
    text = f"{_direction(evidence, name)}robabilities are off by {error.text} in the mean (ECE)."
    gained = evidence.number(TEMPERATURE, "NLL gained")
    if temperature is None or gained is None:
        return [Sentence("probabilities", level, text, "Calibrate them on examples not used here.", claims)]
    claims = (name, TEMPERATURE)
    if gained.below <= 0:
        todo = "No one temperature is known to repair that: calibrate class by class, or train further."
        if not fits:
            todo = f"Divide the logits by {temperature.text}; what that gains is not known here."
        return [Sentence("probabilities", level, text, todo, claims)]
    after = evidence.number(TEMPERATURE, "ECE after")
    left = f", the error to {difference(after.value, after)}" if after else ""
    todo = f"Divide the logits by {temperature.text}: the log loss falls by {gained.text}{left}."
    return [Sentence("probabilities", level, text, todo, claims)]


def _direction(evidence: Evidence, name: str) -> str:
    """How a sentence begins: over- or underconfident by the bins' confidence less accuracy, or neither."""
    curves = [evidence.curve(name, curve) for curve in ("confidence", "accuracy", "count")]
    if any(curve is None for curve in curves):
        return "P"
    confidence, accuracy, count = (curve for curve in curves if curve is not None)
    filled = count > 0
    gaps = (confidence - accuracy)[filled] * count[filled] / count.sum()
    excess, size = float(gaps.sum()), float(gaps.abs().sum())
    if abs(excess) < HALF * size:
        return "P"
    if name == BINARY_ECE:  # of one class, whatever is answered: no confidence in an answer
        return f"Too {'high' if excess > 0 else 'low'}: p"
    return "Overconfident: p" if excess > 0 else "Underconfident: p"
