"""Is it right, where answers are no labels: sentences that set a model beside the simplest of its kind.

A forecast stands beside the last value and that of a season ago, a language model beside the frequencies of
its tokens, a code beside principal components of its width, a density beside a Gaussian, and samples beside
the held-out examples themselves. A stated probability stands beside the frequency with which it came true.
"""

from margin.auditing.report.evidence import (
    Evidence,
    Level,
    Number,
    Sentence,
    asserted,
    difference,
    enumerated,
    rounded,
)

SKILL, ERRORS, COVERAGE = "sequence/forecast.skill", "sequence/forecast.errors", "sequence/forecast.coverage"
CODES, GAIN = "generative/codes.baselines", "generative/density.gain"
TOLD_APART, COPIES = "generative/samples.two_sample", "generative/samples.memorization"

INTERVALS, STATED = "theory/predictive.coverage", "95% interval"

MISSED = 0.8
"""Share of values within intervals of 95 % below which these say next to nothing."""

MUCH = 0.1
"""Share of an error, or a difference of probabilities, that is worth more examples to be sure of."""

SAME = 1e-3
"""Share of an error below which two models are one."""

HALF = 0.5
"""Total variation from which samples are mostly not of the data's law; chance, of a sample's rank."""

MOST_COLUMNS = 2
"""Columns of a series whose errors are written out."""

SHARE = "share of its squared error taken away"

BROKEN = "Check the loss, the learning rate, the scale of the inputs."

PERPLEXITY, UNIGRAM = "text/language.perplexity", "perplexity of the training frequencies"

ECE, BINARY_ECE = "theory/calibration.ece", "theory/calibration.binary_ece"

TEMPERATURE = "theory/calibration.temperature"

FOREIGN = "theory/predictive.out_of_distribution"

UNSURE = ("predictive entropy", "predictive variance")

TELLS = 0.9
"""Share of pairs from which an uncertainty tells another source from its own."""

NOTICED = 0.01
"""Calibration error that matters to nobody."""

MISLEADING = 0.05
"""Calibration error from which a stated probability misleads."""

VAGUE = 0.1
"""Calibration error that too few examples cannot rule out."""

FAR_FROM_ONE = 1.2
"""Factor between a temperature and 1 from which the probabilities are not those that fit."""


def beside_rivals(evidence: Evidence) -> list[Sentence]:
    """Whether it is right, of forecasts, codes, densities, samples and language models; [] of others."""
    of_each = (forecasts, codes, density, samples, language)
    return [sentence for one in of_each for sentence in one(evidence)]


def forecasts(evidence: Evidence) -> list[Sentence]:
    """A forecast beside the better of the naive ones, with its errors in the units of the columns."""
    known = evidence.numbers(SKILL)
    if not known:
        return []
    hardest = min(known, key=lambda number: number.value)
    last = hardest.label == "last value"
    rival = "repeating the last value" if last else f"repeating the values of {hardest.label}"
    errors = _errors(evidence, hardest.label)
    claims = (SKILL, ERRORS) if errors else (SKILL,)
    level, word, todo = _compared(hardest, "Use that, or train this one further.", "That needs no training.")
    text = f"{word} {rival} ({SHARE}: {hardest.text}){errors}."
    return [Sentence("right", asserted(level, [hardest]), text, todo, claims)]


def _errors(evidence: Evidence, rival: str) -> str:
    """The mean absolute error of the first columns, each beside that of a naive forecast."""
    said = []
    for number in evidence.numbers(ERRORS):
        naive = evidence.curve(ERRORS, f"{number.label}, {rival}")
        beside = "" if naive is None else f", against {rounded(float(naive.mean()))}"
        said.append(f"{number.text}{beside} for {number.label!r}")
    return f"; mean absolute error {enumerated(said, MOST_COLUMNS)}" if said else ""


def band(evidence: Evidence) -> list[Sentence]:
    """Whether what followed lies between a forecast's quantiles as often as they promise."""
    share = evidence.number(COVERAGE)
    low = None if share is None else evidence.findings[COVERAGE].low
    if share is None or low is None:
        return _intervals(evidence)
    promised = float(low)
    text = f"What followed lies between the outer quantiles in {share.text} of all cases; {promised:.2g} is "
    text += "promised."
    if share.below <= promised <= share.above:
        wide = share.above - share.below > 2 * MUCH
        return [Sentence("probabilities", "unknown" if wide else "good", text, "", (COVERAGE,))]
    narrow = share.above < promised
    todo = f"The band is too {'narrow' if narrow else 'wide'}: scale it on examples not used here."
    return [Sentence("probabilities", "warn", text, todo, (COVERAGE,))]


def _intervals(evidence: Evidence) -> list[Sentence]:
    """Whether the intervals that a model states hold the held-out value as often as they say."""
    share = evidence.number(INTERVALS, STATED)
    if share is None:
        return []
    text = f"The stated 95 % intervals hold the value of {share.text} of {evidence.held_out}"
    if share.below <= 0.95 <= share.above:
        wide = share.above - share.below > 2 * MUCH
        return [Sentence("probabilities", "unknown" if wide else "good", f"{text}.", "", (INTERVALS,))]
    narrow = share.above < 0.95
    todo = f"They are too {'narrow' if narrow else 'wide'}: scale them on examples not used here."
    level: Level = "bad" if share.above < MISSED else "warn"
    return [Sentence("probabilities", level, f"{text}, not 0.95.", todo, (INTERVALS,))]


def foreign(evidence: Evidence) -> list[Sentence]:
    """Whether the model is less sure of another source's examples than of its own."""
    area = evidence.number(FOREIGN, *UNSURE)
    if area is None:
        return []
    text = f"in {area.text} of all pairs an example of the other source has the larger {area.label}."
    todo, level = "", asserted("good", [area])
    if area.above < HALF:
        level, text = "bad", f"Surer of the other source than of its own: {text}"
        todo = "Do not take its confidence for a sign that an input is like its own."
    elif area.below > TELLS:
        text = f"Less sure of the other source than of its own: {text}"
    else:
        part = "Only in part less" if area.below > HALF else "Not known to be less"
        level, text = "warn", f"{part} sure of the other source than of its own: {text}"
        todo = "Test for foreign inputs before it is asked."
    return [Sentence("probabilities", level, text, todo, (FOREIGN,))]


def _compared(gain: Number, worse: str, simpler: str, unit: float = MUCH) -> tuple[Level, str, str]:
    """Level, first words and advice of a gain over a rival: of its share of an error, or in a unit."""
    if gain.above < 0:
        return "bad", "Worse than", worse
    if gain.below > 0:
        return "good", "Better than", ""
    if gain.above > unit:
        return "unknown", "Not told apart from", "More held-out examples."
    return "warn", "No better, as far as is known, than", simpler


def codes(evidence: Evidence) -> list[Sentence]:
    """What a code keeps, beside principal components of the same width and beside the mean."""
    constant = evidence.number(CODES, "a constant")
    if constant is None:
        return []
    components = next((n for n in evidence.numbers(CODES) if n.label.startswith("PCA")), None)
    if constant.below <= 0:
        level, word, todo = _compared(constant, BROKEN, BROKEN)
        text = f"{word} a constant, the mean of the training inputs ({SHARE}: {constant.text})."
        return [Sentence("right", "bad" if level == "warn" else level, text, todo, (CODES,))]
    restored = f"{constant.text} of the inputs' variance is restored"
    remarks = evidence.findings[CODES].remarks
    if components is None:
        text = f"{restored[:1].upper()}{restored[1:]}. {' '.join(remarks)}".strip()
        return [Sentence("right", "unknown", text, "", (CODES,))]
    if remarks:  # it is PCA itself
        level, word, todo = _compared(components, BROKEN, f"{components.label} is simpler.")
        text = f"{word} {components.label} ({SHARE}: {components.text}); {restored}. {remarks[0]}"
        return [Sentence("right", asserted(level, [components, constant]), text, todo, (CODES,))]
    if max(abs(components.below), abs(components.above)) < SAME:
        text = f"As good as {components.label} ({SHARE}: {components.text}); {restored}."
        return [Sentence("right", asserted("good", [constant]), text, "", (CODES,))]
    level, word, todo = _compared(components, "Use PCA, or train this one further.", "PCA is simpler.")
    text = f"{word} {components.label}, as wide as its code ({SHARE}: {components.text}); {restored}."
    return [Sentence("right", asserted(level, [components, constant]), text, todo, (CODES,))]


def density(evidence: Evidence) -> list[Sentence]:
    """A density beside the Gaussian of the training examples' mean and covariance, in nats an example."""
    gain = evidence.number(GAIN)
    if gain is None:
        return []
    worse = "Use that, or train this one further, or stop earlier."
    level, word, todo = _compared(gain, worse, "A Gaussian is simpler.")
    text = f"{word} a Gaussian of the training data as a density: held-out examples are given {gain.text} "
    text += "nats more each, in the mean."
    return [Sentence("right", asserted(level, [gain]), text, todo, (GAIN,))]


def samples(evidence: Evidence) -> list[Sentence]:
    """Whether a classifier tells what is drawn from held-out examples."""
    apart = evidence.number(TOLD_APART)
    if apart is None:
        return []
    shown = rounded((1 + apart.value) / 2, 3)
    if apart.below <= 0:
        text = f"No classifier was found that tells its samples from held-out examples: {shown} are told "
        return [Sentence("right", "unknown", f"{text}rightly, 1/2 by chance.", "", (TOLD_APART,))]
    lower = rounded((1 + apart.below) / 2, 3)
    text = (
        f"Its samples are told from held-out examples: a classifier is right for {shown} [>= {lower}], 1/2 "
    )
    level: Level = "bad" if apart.below > HALF else "warn"
    todo = "Train longer or with more capacity, and look at samples beside data."
    return [Sentence("right", level, f"{text}by chance.", todo, (TOLD_APART,))]


def language(evidence: Evidence) -> list[Sentence]:
    """The perplexity of a language model beside that of the frequencies of the training tokens."""
    own, unigram = (evidence.number(PERPLEXITY, label) for label in ("perplexity per token", UNIGRAM))
    if own is None:
        return []
    bits = evidence.number(PERPLEXITY, "bits per byte", "bits per token")
    text = f"Perplexity {own.text} per token" + (f", {bits.text} {bits.label}" if bits else "")
    if unigram is None:
        text = f"{text}; nothing simpler was compared with it."
        return [Sentence("right", "unknown", text, "", (PERPLEXITY,))]
    text = f"{text}; the frequencies of the training tokens alone give {rounded(unigram.value)}."
    if own.above < (1 - SAME) * unigram.value:
        return [Sentence("right", asserted("good", [own]), text, "", (PERPLEXITY,))]
    level: Level = "bad" if own.below > (1 + SAME) * unigram.value else "unknown"
    todo = BROKEN if level == "bad" else "Train longer, or more held-out examples."
    return [Sentence("right", level, text, todo, (PERPLEXITY,))]


def copied(evidence: Evidence) -> list[Sentence]:
    """Whether samples lie nearer to training rows than held-out examples do."""
    farther = evidence.number(COPIES)
    if farther is None:
        return []
    text = "A sample lies farther from the nearest training row than a held-out example with probability "
    text += f"{farther.text}, 1/2 where nothing is copied."
    if farther.above < HALF:
        level: Level = "bad" if farther.above < HALF - MUCH else "warn"
        todo = "It copies training rows: more data, a smaller model, or an earlier stop."
        return [Sentence("memorized", level, text, todo, (COPIES,))]
    # samples that are far from all data are no copies, and no merit either
    level = "good" if farther.below <= HALF and farther.above < HALF + MUCH else "unknown"
    return [Sentence("memorized", asserted(level, [farther]), text, "", (COPIES,))]


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
