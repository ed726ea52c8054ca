"""Is it right, are its probabilities right, where does it fail: sentences about held-out answers."""

import math
from dataclasses import replace

from torch import Tensor

from margin.auditing.asking.worst_examples import RIGHT
from margin.auditing.report.evidence import (
    Evidence,
    Level,
    Number,
    Sentence,
    asserted,
    chance_of,
    difference,
    enumerated,
    relabeled,
    remarked,
    rounded,
)
from margin.auditing.report.plots import examples
from margin.auditing.report.rivals import beside_rivals
from margin.auditing.subject.outputs import TERMS
from margin.core.tasks import CODES, CRITIC, DENSITY, MULTILABEL, PROBABILITY

ACCURACY, RECALL, R2, RMSE = (
    "theory/risk.accuracy",
    "theory/confusion.recall",
    "theory/residuals.r2",
    "theory/residuals.rmse",
)
CONSTANT, LINEAR = "theory/baseline.constant", "theory/baseline.linear"
LOSS = "theory/risk.loss"
MISLABELED, SEGMENTS = "theory/failures.mislabeled", "theory/failures.segments"

HALF = 0.5
"""Share of right answers, or of variance explained, below which more is wrong than right."""

SLIGHT_GAIN = 0.001
"""Gain over a linear model below which it is none to speak of."""

COPYING = 0.99
"""Share of its inputs' variance from which a model that can copy them does."""


RARE = 0.05
"""Probability, of all classes together, of calling one worse that is as good as the others."""

OUTLYING, FEWEST_OUTLYING = 0.9, 30
"""Share of the squared error that a fiftieth of the examples at most makes where they lie apart; of how many
examples at least."""

LARGE = 0.1
"""Difference of two shares that is worth a sentence; an interval that reaches beyond tells nothing apart."""


MOST_SHOWN = 4
"""Targets of one example that are written out beside what was answered."""

WITHOUT_TARGETS = tuple(task.name for task in (CODES, DENSITY, PROBABILITY, CRITIC))
"""Tasks that read no target, though the data may have one."""

LABEL_ORDER = "theory/behavior.label_order"
MEMORIZED, SHIFT = "theory/memorization.accuracy", "theory/evidence.shift"
RANKED = "theory/ranking.auroc"

CONSTANT_TODO = "Does it read its input? Check the loss, the learning rate, the scale of the inputs."

COPY = (
    "A copy takes no learning: give it a code narrower than its inputs, and compare with PCA of that width."
)

RENAMED = "Outputs and labels are in different orders: give the class names in the outputs' order."

LABELS = "Check that labels and inputs are given as in training: the order of the classes, the units."


def right(evidence: Evidence) -> list[Sentence]:
    """Whether answers are right, against a constant and a linear model on the same examples."""
    if accuracy := evidence.number(ACCURACY):
        moved, first = _moved_inputs(evidence), _classes(evidence, accuracy)
        # labels that neither model was fitted to say nothing of which is better
        worse = [s for s in _linear(evidence) if first.level != "bad" or s.level == "bad"]
        if moved and first.level == "good":
            first = replace(first, level="unknown")
        return [first] if first.todo == RENAMED else [*moved, first, *worse]
    if explained := evidence.number(R2):
        outlying = _outlying(evidence)
        return [*_moved_inputs(evidence), _values(evidence, explained), *outlying, *_linear(evidence)]
    if beside := beside_rivals(evidence):
        return [*_moved_inputs(evidence), *beside]
    if loss := evidence.number(LOSS):
        text = f"The mean loss on {evidence.held_out} is {loss.text}; nothing simpler was compared with it."
        return [Sentence("right", "unknown", text, "", (LOSS,))]
    return []


def _classes(evidence: Evidence, accuracy: Number) -> Sentence:
    confusion = evidence.curve(RECALL, "confusion")
    held_out = evidence.held_out
    if has_several_labels(evidence) and confusion is not None:
        held_out = f"{float(confusion.sum()):,.0f} labels in {held_out}"
    share = f"right for {accuracy.text} of {held_out}"
    names = _class_names(evidence, confusion)
    if confusion is not None and (only := _only_answer(confusion)) is not None:
        text = f"Answers {names[only]!r} to all of {held_out}: right for {accuracy.text}"
        ranked = evidence.number(RANKED)
        if ranked is not None and ranked.below > HALF:
            text += f", though its scores tell the classes apart (area under the ROC curve {ranked.text})"
            return Sentence("right", "bad", f"{text}.", "Move the threshold.", (ACCURACY, RECALL, RANKED))
        return Sentence("right", "bad", f"{text}.", CONSTANT_TODO, (ACCURACY, RECALL))
    if confusion is not None and (moved := relabeled(confusion)):
        renamed = sum(float(confusion[i, moved.get(i, i)]) for i in range(len(confusion))) / confusion.sum()
        pairs = enumerated(f"{names[i]!r} is answered {names[j]!r}" for i, j in moved.items())
        text = f"Only {share}; were classes renamed, {rounded(float(renamed), 3)} would be: {pairs}."
        known = tuple(name for name in (CONSTANT, LABEL_ORDER) if name in evidence.findings)
        return Sentence("right", "bad", text, RENAMED, (ACCURACY, RECALL, *known))
    gain = evidence.number(CONSTANT)
    if gain is None:
        level: Level = "warn" if accuracy.above < HALF else "good" if accuracy.below > HALF else "unknown"
        return Sentence("right", asserted(level, [accuracy]), f"R{share[1:]}.", "", (ACCURACY,))
    constant = difference(accuracy.value - gain.value, accuracy)
    claims = (ACCURACY, CONSTANT)
    wrong = (*claims, *(name for name in (LABEL_ORDER,) if name in evidence.findings))
    if gain.above < 0:
        text = f"R{share[1:]}, fewer than one constant answer: {constant} (difference {gain.text})"
        return Sentence("right", "bad", f"{text}{once_right(evidence)}.", LABELS, wrong)
    if gain.below <= 0:
        return _no_better(evidence, gain, f"r{share[1:]}, the constant for {constant}", wrong)
    linear = evidence.number(LINEAR)
    level = "warn" if accuracy.above < HALF or (linear and linear.above < -LARGE) else "good"
    text = f"R{share[1:]}; one constant answer for {constant}."
    said = Sentence("right", asserted(level, [accuracy, gain]), text, "", claims)
    return said if confusion is None else _beside_commonest(said, accuracy, confusion.sum(1), names)


def _beside_commonest(said: Sentence, accuracy: Number, counts: Tensor, names: list[str]) -> Sentence:
    """The same beside the commonest class of the held-out part, which may be another than in training."""
    commonest, most = int(counts.argmax()), float(counts.max() / counts.sum().clamp(min=1))
    if most == 1:
        text = f"{said.text.partition(';')[0]}, which are all of class {names[commonest]!r}: of one class "
        text += "nothing is told apart, and a constant may be as good."
        return replace(said, level="unknown", text=text, todo="Held-out examples of every class.")
    if said.level != "good" or accuracy.below > most:
        return said
    text = f"{said.text} Always {names[commonest]!r}, the commonest held out, would be right for "
    level: Level = "unknown" if accuracy.above > most else "warn"
    return replace(said, level=level, text=f"{text}{rounded(most, 3)}.")


def _no_better(evidence: Evidence, gain: Number, shares: str, claims: tuple[str, ...]) -> Sentence:
    """That it is not known to be better than one constant answer: for lack of examples, or as it is not."""
    shares += f" (difference {gain.text})"
    if gain.value > LARGE or gain.above > 2 * LARGE:
        text = f"Not told apart from one constant answer: {shares}."
        return Sentence("right", "unknown", text, "More held-out examples.", claims)
    text = f"No better than one constant answer: {shares}{once_right(evidence)}"
    ranked = evidence.number(RANKED)
    if ranked is not None and ranked.below > HALF and not ranked.doubted:  # as where a class is rare
        text += f", though its scores tell the classes apart (area under the ROC curve {ranked.text})."
        todo = "Judge it by recall and precision, move the threshold."
        return Sentence("right", "bad", text, todo, (*claims, RANKED))
    text += "."
    unlearned = evidence.number(MEMORIZED, "training") is not None and not once_right(evidence)
    return Sentence("right", "bad", text, CONSTANT_TODO if unlearned else LABELS, claims)


def once_right(evidence: Evidence) -> str:
    """That it is right on the examples that it was trained on, where it is."""
    training, gap = evidence.number(MEMORIZED, "training"), evidence.number(MEMORIZED, "gap")
    if training is None or gap is None or gap.below <= LARGE:
        return ""
    if evidence.number(ACCURACY) is None:
        return f", though {training.text} of the training targets' variance is explained"
    return f", though for {training.text} of the training {terms_of(evidence)}"


def _moved_inputs(evidence: Evidence) -> list[Sentence]:
    """That it is right less often where the inputs lie otherwise than in training."""
    named = ("training", "held-out", "gap")
    training, held, gap = (evidence.number(MEMORIZED, name) for name in named)
    remarks = [s.text for s in remarked(evidence, "right", (SHIFT,)) if s.level == "warn"]
    if not (training and held and gap and remarks) or gap.below <= 0 or gap.value <= LARGE:
        return []
    text = f"Right for {training.text} of the training {terms_of(evidence)}, {held.text} of the held-out ones"
    if evidence.number(ACCURACY) is None:
        text = f"Explains {training.text} of the training targets' variance, {held.text} held out"
    todo = "Train on examples like those that it will meet, or undo the shift."
    return [
        Sentence(
            "right", "bad", f"{text}, and these are unlike those. {remarks[0]}", todo, (MEMORIZED, SHIFT)
        )
    ]


def _values(evidence: Evidence, explained: Number) -> Sentence:
    typical = evidence.number(RMSE)
    off = f"; root mean square error {typical.text}" if typical else ""
    claims = tuple(name for name in (R2, RMSE, CONSTANT) if evidence.number(name))
    predicted = evidence.curve(R2, "predicted")
    if predicted is not None and len(predicted) > 1 and bool((predicted == predicted[0]).all()):
        text = (
            f"Answers {rounded(float(predicted[0]), 4)} to all of {evidence.held_out} (R^2 {explained.text})."
        )
        return Sentence("right", "bad", text, CONSTANT_TODO, claims)
    if explained.above < 0:
        text = f"Worse than always answering the mean: R^2 is {explained.text}{off}{once_right(evidence)}."
        return Sentence("right", "bad", text, "Check the units of inputs and targets.", claims)
    if explained.below <= 0:
        text = f"Not told apart from always answering the mean: R^2 is {explained.text}{off}"
        text += f"{once_right(evidence)}."
        few = explained.value > LARGE or explained.above > HALF
        level: Level = "unknown" if few else "bad"
        return Sentence("right", level, text, "More held-out examples, or a better model.", claims)
    level = "warn" if explained.above < HALF else "good"
    text = f"Explains {explained.text} of the targets' variance (R^2){off}."
    from margin.theory.prediction.baselines import COPIED, NO_BOTTLENECK

    restores, copies = evidence.refusal(LINEAR), False
    if COPIED in restores:
        widths = restores.rpartition("; ")[2]
        copies = NO_BOTTLENECK in widths and explained.below > COPYING
        text = f"{'Copies' if copies else 'Restores'} its inputs, which are its targets: {explained.text} of "
        text += f"their variance (R^2){off}; {widths}."
        level = "warn" if copies else level
    return Sentence("right", asserted(level, [explained, typical]), text, COPY if copies else "", claims)


def _outlying(evidence: Evidence) -> list[Sentence]:
    """The few examples that make nearly all of the squared error, where a few do."""
    hard, loss, rmse = evidence.audit.worst_examples, evidence.number(LOSS), evidence.number(RMSE)
    n = evidence.count
    if hard is None or loss is None or rmse is None or hard.targets is None or n < FEWEST_OUTLYING:
        return []
    if hard.targets[0].numel() != 1 or abs(loss.value - rmse.value**2) > 1e-3 * loss.value:
        return []  # another loss than the squared error of one value
    losses = hard.losses.double()
    held = losses.cumsum(0) / (n * loss.value)
    cuts = [k for k in range(1, min(max(1, n // 50), len(held) - 1) + 1) if float(held[k - 1]) >= OUTLYING]
    if not cuts:
        return []
    few = max(cuts, key=lambda k: float(losses[k - 1] / losses[k]))  # where the rest lies farthest below
    rest = math.sqrt(max(n * loss.value * (1 - float(held[few - 1])), 0.0) / (n - few))
    shown = examples(hard, evidence.audit.class_names, evidence.audit.span)[:few]
    named = enumerated((f"{e.called} (is {e.target}, said {e.prediction})" for e in shown), 3)
    count = "One held-out example makes" if few == 1 else f"{few} of {n:,} held-out examples make"
    text = f"{count} {rounded(float(held[few - 1]), 3)} of the squared error: {named}; without "
    text += f"{'it' if few == 1 else 'them'} its root mean is {rounded(rest, 3)}."
    return [
        Sentence("right", "warn", text, "Are their targets right? Look at units and decimal points.", (RMSE,))
    ]


def _linear(evidence: Evidence) -> list[Sentence]:
    """What the model gains over a linear one, which is told where it is nothing to be glad of."""
    gain = evidence.number(LINEAR)
    if gain is None:
        return []
    from margin.theory.prediction.baselines import ITSELF_LINEAR, OF_WORDS

    what = "gain in accuracy" if evidence.number(ACCURACY) else "share of its squared error taken away"
    itself = ITSELF_LINEAR in evidence.findings[LINEAR].remarks
    inputs = "words, whatever their order" if OF_WORDS in evidence.findings[LINEAR].remarks else "inputs"
    rival = f"{'another' if itself else 'a'} linear model of the {inputs}"
    if gain.above < 0:
        text = f"Worse than {rival} ({what}: {gain.text})."
        todo = (
            "Use it, or regularize this one."
            if once_right(evidence)
            else "Use it, or train this one further."
        )
        return [Sentence("right", "bad", text, todo, (LINEAR,))]
    if gain.below <= 0 or gain.above < SLIGHT_GAIN:
        if gain.above > LARGE:
            text = f"Not told apart from {rival} ({what}: {gain.text})."
            return [Sentence("right", "unknown", text, "More held-out examples.", (LINEAR,))]
        if itself:  # there is none that is simpler
            return []
        text = f"No better than {rival}, as far as is known ({what}: {gain.text})."
        return [Sentence("right", "warn", text, "The linear one is simpler.", (LINEAR,))]
    text = f"Better than {rival} ({what}: {gain.text})."
    return [Sentence("right", asserted("good", [gain]), text, "", (LINEAR,))]


def _only_answer(confusion: Tensor) -> int | None:
    """The class that is predicted for every example, where several classes occur."""
    answered = (confusion.sum(0) > 0).nonzero().flatten().tolist()
    several = int((confusion.sum(1) > 0).sum()) > 1
    return answered[0] if several and len(answered) == 1 else None


def _class_names(evidence: Evidence, confusion: Tensor | None) -> list[str]:
    names = list(evidence.audit.class_names)
    count = 0 if confusion is None else len(confusion)
    return names if len(names) == count else [str(i) for i in range(count)]


def fails(evidence: Evidence) -> list[Sentence]:
    """The class that is worst, the segment, the rows that are likely mislabeled or of largest loss."""
    return [*_class(evidence), *_segment(evidence), *_mislabeled(evidence), *_rows(evidence)]


def _class(evidence: Evidence) -> list[Sentence]:
    """The class of least recall, bad where that is no chance of so many classes."""
    known, accuracy = evidence.numbers(RECALL), evidence.number(ACCURACY)
    confusion = evidence.curve(RECALL, "confusion")
    if len(known) < 2 or accuracy is None or confusion is None or _only_answer(confusion) is not None:
        return []
    counts, hits = confusion.sum(1), confusion.diag()
    occurring = [i for i in range(len(counts)) if counts[i] > 0]
    if len(occurring) != len(known):
        return []
    place = min(range(len(known)), key=lambda i: (known[i].value, known[i].below))
    worst, row = known[place], occurring[place]
    name = worst.label.removeprefix("class ")
    of = (int(hits[row]), int(counts[row]))
    several = has_several_labels(evidence)
    one_of_many = evidence.audit.facts.get("task") == MULTILABEL.name  # its classes are 0 and 1 of any label
    if chance_of(*(_trials(worst) if several else of), accuracy.value) * len(known) > RARE:
        called = f"labels that are {row}" if one_of_many else repr(name)
        text = f"No class is told apart as worse; the lowest recall is {worst.text}, of {called}."
        known_well: Level = "good" if worst.below > HALF else "unknown"
        return [Sentence("fails", asserted(known_well, [worst]), text, "", (RECALL,))]
    names = _class_names(evidence, confusion)
    wrong = confusion[row].clone()
    wrong[row] = 0
    taken = f", mostly as {names[int(wrong.argmax())]!r}" if wrong.max() > HALF * wrong.sum() else ""
    missed = int(counts[row] - hits[row])
    share = f"{missed:,} of {int(counts[row]):,} missed{taken}"
    called = f"A label that is {row}" if one_of_many else f"Class {name!r}"
    text = f"{called} is recognized for {worst.text}: {share}."
    level: Level = "bad" if worst.above < HALF else "warn"
    return [Sentence("fails", level, text, "More examples of it, or a look at its rows.", (RECALL,))]


def has_several_labels(evidence: Evidence) -> bool:
    """Whether an example has several labels: one at each of its places, pixels or tokens, or many at once."""
    hard = evidence.audit.worst_examples
    several = evidence.audit.facts.get("task") in (MULTILABEL.name, TERMS)
    return several or (hard is not None and hard.targets is None)


def terms_of(evidence: Evidence) -> str:
    """What a share of right answers is of: examples, or their labels."""
    return "labels" if has_several_labels(evidence) else "examples"


def _trials(share: Number) -> tuple[int, int]:
    """The hits and trials that a share is worth by its interval, where places of an example are no draws."""
    p, width = share.value, max(share.above - share.below, 1e-12)
    trials = p * (1 - p) * (2 * 1.96 / width) ** 2
    return int(p * trials), int(trials)


def _segment(evidence: Evidence) -> list[Sentence]:
    """The range of a feature in which it errs most, where that is more than elsewhere."""
    known = evidence.numbers(SEGMENTS)
    if len(known) != 3 or known[2].below <= 0:
        return []
    what = "is wrong for" if evidence.number(ACCURACY) else "is off by"
    text = f"Where {known[0].label} it {what} {known[0].text}, elsewhere {known[1].text}."
    return [Sentence("fails", "warn", text, "More training examples there.", (SEGMENTS,))]


def _mislabeled(evidence: Evidence) -> list[Sentence]:
    """The held-out labels that are likely wrong, where not all of them may be right."""
    count, right = evidence.number(MISLABELED), evidence.curve(MISLABELED, "right")
    if count is None or right is None or count.value <= float(right[1]):
        return []
    from margin.theory.prediction.failures import gravest

    curves = evidence.findings[MISLABELED].curves
    called = "example" if "of example" in curves else "row"
    known = dict(enumerate(evidence.audit.class_names))
    named = enumerated(
        (
            f"{called} {s.where} ({known.get(s.given, s.given)}, likelier {known.get(s.likely, s.likely)})"
            for s in gravest(curves)
        ),
        3,
    )
    after_all = f"{float(right[0]):,.0f}"
    text = f"{count.value:,.0f} labels are likely wrong (about {after_all} of them right): {named}."
    todo = "Look at them first: what the model is sure of and wrong looks alike."
    return [Sentence("fails", "warn", text, todo, (MISLABELED,))]


def _rows(evidence: Evidence) -> list[Sentence]:
    """The rows of largest loss, and what is said of them."""
    hard = evidence.audit.worst_examples
    accuracy = evidence.number(ACCURACY)
    if hard is None or not len(hard) or (accuracy is not None and accuracy.value < HALF):
        return []
    if evidence.audit.facts.get("task") in WITHOUT_TARGETS:
        named = enumerated((f"{i:,}" for i in hard.index.tolist()), 3)
        return [
            Sentence("fails", "unknown", f"Of largest loss: rows {named}.", "Are they like the rest?", ())
        ]
    what = "labels" if accuracy else "targets"
    todo = f"Are their {what} right?"
    shown = examples(hard, evidence.audit.class_names, evidence.audit.span)
    if hard.targets is None:
        shares = hard.predictions.get(RIGHT, hard.losses.new_zeros(len(hard))).tolist()
        odd = [e for e, share in zip(shown, shares, strict=True) if share < 1]
        named = enumerated((f"example {e.index:,} ({e.prediction})" for e in odd[:3]), 3)
        return [Sentence("fails", "unknown", f"Of largest loss: {named}.", todo, ())] if odd else []
    pairs = zip(shown, hard.losses.isfinite().tolist(), strict=True)
    wrong = [e for e, finite in pairs if finite and e.target != e.prediction.partition(" (")[0]]
    if not wrong:
        return []
    many = hard.targets.ndim > 1 and hard.targets[0].numel() > MOST_SHOWN
    named = enumerated(
        (e.called + ("" if many else f" (is {e.target}, said {e.prediction})") for e in wrong[:3]),
        3,
    )
    return [Sentence("fails", "unknown", f"Of largest loss: {named}.", todo, ())]
