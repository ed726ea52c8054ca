"""The first screen of models that are wrong in a known way: what must be said, with its number, and what not.

The weights are set by hand, so what is wrong is known; each number is recomputed from the outputs with numpy,
scipy or scikit-learn.
"""

import re

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from torch import nn

import margin
from margin.auditing.report.sentences import sentences
from margin.core.types import Batch

ASKED = ("risk", "confusion", "baseline", "memorization", "calibration", "mislabeled", "evidence",
         "residuals", "auroc", "behavior.finite", "behavior.random", "label_order",
         "finished.gradient", "along_gradient")  # fmt: skip

CLASSES, SURE = 3, float(np.log(18))
"""exp(SURE) / (exp(SURE) + 2) = .9: right as often as it says where a tenth of the labels is another's."""


def draws(seed):
    return torch.Generator().manual_seed(seed)


def classed(count, seed, *, wrong=0.1):
    """Corners of a simplex with noise, and their labels, a share of which is another's."""
    generator = draws(seed)
    corner = torch.randint(CLASSES, (count,), generator=generator)
    x = torch.eye(CLASSES)[corner] + 0.05 * torch.randn(count, CLASSES, generator=generator)
    moved = torch.zeros(count, dtype=torch.long)
    moved[torch.randperm(count, generator=generator)[: round(wrong * count)]] = 1
    return x, (corner + moved) % CLASSES


def valued(count, seed):
    """Values |x_0| + 2 x_1 with a noise of .3."""
    generator = draws(seed)
    x = torch.randn(count, 2, generator=generator)
    return x, x[:, 0].abs() + 2 * x[:, 1] + 0.3 * torch.randn(count, generator=generator)


class Scores(nn.Module):
    """Scores sharpness * x + bias, not a number where ``odd`` exceeds its bound."""

    def __init__(self, sharpness=SURE, bias=(0.0,) * CLASSES, nan_above=None):
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(float(sharpness)))
        self.bias = nn.Parameter(torch.tensor(bias))
        self.nan_above = nan_above

    def forward(self, x):
        out = self.sharpness * x + self.bias
        return out if self.nan_above is None else out.masked_fill(x[:, :1] > self.nan_above, torch.nan)


class Drawing(Scores):
    """Scores of inputs to which noise is added at every call."""

    def forward(self, x):
        return super().forward(x + 0.2 * torch.randn_like(x))


class Ignoring(nn.Module):
    """Scores that change with the input and know nothing of it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(CLASSES, CLASSES)

    def forward(self, x):
        return self.layer(torch.sin(1e4 * x[:, [1, 2, 0]]))


class Nearest(nn.Module):
    """What the nearest training row was labeled: it has learned all of them by heart."""

    def __init__(self, x, y):
        super().__init__()
        self.rows = nn.Parameter(x)
        self.answers = nn.Parameter(5.0 * torch.eye(CLASSES)[y] if y.dtype == torch.long else y)

    def forward(self, x):
        return self.answers[torch.cdist(x, self.rows).argmin(1)]


class Values(nn.Module):
    """|x_0| + 2 x_1 by hand, or a constant."""

    def __init__(self, slope=1.0, level=0.0):
        super().__init__()
        self.slope, self.level = (nn.Parameter(torch.tensor(value)) for value in (slope, level))

    def forward(self, x):
        return self.slope * (x[:, 0].abs() + 2 * x[:, 1]) + self.level


class OneLogit(nn.Module):
    """The logarithm of the odds of class 1, ``sharpness`` times the first feature."""

    def __init__(self, sharpness=1.0):
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(sharpness))

    def forward(self, x):
        return self.sharpness * x[:, 0]


def binary(count, seed):
    generator = draws(seed)
    x = 3 * torch.randn(count, 2, generator=generator)
    return x, (torch.rand(count, generator=generator) < x[:, 0].sigmoid()).long()


def rare(count, seed):
    """97 % in class 0; the second feature is larger for class 1."""
    x, y = torch.randn(count, 2, generator=draws(seed)), (torch.arange(count) % 100 < 3).long()
    return x + 2 * torch.stack((torch.zeros(count), y), 1), y


def nothing(x, seed):
    return x, torch.randint(CLASSES, (len(x),), generator=draws(seed))


def nearly(train, test, count):
    """Held-out rows of which the first are training rows, each moved by a millionth."""
    moved = train[0][:count] + 1e-6 * torch.randn(count, CLASSES, generator=draws(14))
    return torch.cat((moved, test[0][count:])), torch.cat((train[1][:count], test[1][count:]))


def several(count, seed):
    """Three labels an example, one of which is 1 but for a tenth that is another's."""
    x, _ = classed(count, seed)
    moved = torch.rand(count, CLASSES, generator=draws(seed + 20)) < 0.1
    return x, ((x > 0.5) ^ moved).float()


def descended(part, steps, *, wide=0, rate=0.5):
    """A linear model, or a network of one wide layer, after steps of gradient descent on its mean loss."""
    torch.manual_seed(0)
    model = nn.Linear(CLASSES, CLASSES)
    if wide:
        model = nn.Sequential(nn.Linear(CLASSES, wide), nn.ReLU(), nn.Linear(wide, CLASSES))
    for _ in range(steps):
        slopes = torch.autograd.grad(nn.functional.cross_entropy(model(part[0]), part[1]), model.parameters())
        with torch.no_grad():
            for p, slope in zip(model.parameters(), slopes, strict=True):
                p -= rate * slope
    return model


DESCENDED = {
    "half trained": (20, {"wide": 32, "rate": 0.1}),
    "converged": (1000, {}),
    "random labels": (1000, {"wide": 300, "rate": 0.1}),
    "random labels, linear": (1000, {}),
}


def shuffled(part, seed):
    return part[0], part[1][torch.randperm(len(part[1]), generator=draws(seed))]


def likely(count, seed):
    """Labels that are drawn by the probabilities of the scores 2 x: none is wrong."""
    generator = draws(seed)
    x = torch.randn(count, CLASSES, generator=generator)
    return x, torch.multinomial((2 * x).softmax(1), 1, generator=generator)[:, 0]


def built(kind):
    """The model, its held-out and its training part, and the task."""
    train, test = classed(600, 1), classed(200, 2)
    fit, held = valued(300, 3), valued(200, 4)
    both, other = binary(600, 5), binary(200, 6)
    leaked = tuple(torch.cat((a[:31], b[31:])) for a, b in zip(train, test, strict=True))
    noise, some = nothing(train[0], 7), classed(90, 1, wrong=0.4)
    above = Scores(SURE, (-SURE / 2,) * CLASSES)
    torch.manual_seed(0)
    if kind in DESCENDED:
        steps, options = DESCENDED[kind]
        few, many = (nothing(3 * torch.randn(n, CLASSES, generator=draws(n)), n + 1) for n in (60, 200))
        pairs = {"random labels": (few, many), "random labels, linear": (noise, nothing(test[0], 8))}
        learned, asked = pairs.get(kind, (train, test))
        return descended(learned, steps, **options), asked, learned, None
    known = {
        "good": (Scores(), test, train),
        "untrained": (nn.Linear(CLASSES, CLASSES), test, train),
        "constant": (Scores(0.0, (-1.0, 0.5, 2.0)), test, train),
        "nan": (Scores(nan_above=1.05), test, train),
        "memorizing": (Nearest(*noise), nothing(test[0], 8), noise),
        "memorizing some": (Nearest(*some), test, some),
        "a gap on either side of a tenth": (Scores(), test, classed(600, 1, wrong=0.02)),
        "ignoring": (Ignoring(), test, train),
        "swapped": (Scores(), (test[0], torch.tensor([1, 0, 2])[test[1]]), train),
        "permuted": (Scores(), (test[0], (test[1] + 1) % CLASSES), train),
        "shuffled": (Scores(), shuffled(test, 9), train),
        "overconfident": (Scores(10 * SURE), test, train),
        "underconfident": (Scores(SURE / 10), test, train),
        "leaking": (Scores(), leaked, train),
        "shifted": (Scores(), (test[0] + torch.tensor([1.0, 0.0, 0.0]), test[1]), train),
        "ten": (Scores(), (test[0][:10], test[1][:10]), train),
        "thirty": (Scores(), (test[0][:30], test[1][:30]), train),
        "five": (Scores(), (test[0][:5], test[1][:5]), train),
        "one": (Scores(), (test[0][:1], test[1][:1]), train),
        "three": (Scores(), (test[0][:3], (test[1][:3] + torch.tensor([0, 1, 1])) % CLASSES), train),
        "drawn labels": (Scores(2.4), likely(1000, 15), likely(600, 16)),
        "drawing": (Drawing(), test, train),
        "permuted in both": (Scores(), *((x, (y + 1) % CLASSES) for x, y in (test, train))),
        "nearly copied": (Scores(), nearly(train, test, 40), train),
        "its own inputs": (Scores(0.5), (test[0], test[0]), (train[0], train[0]), "values"),
        "several labels": (above, several(200, 2), several(600, 1), "multilabel"),
        "rare": (Scores(1.0, (9.0, -9.0)), rare(400, 10), rare(600, 11)),
        "one logit": (OneLogit(), other, both, "binary"),
        "one logit swapped": (OneLogit(-1.0), other, both, "binary"),
        "one logit overconfident": (OneLogit(10.0), other, both, "binary"),
        "values": (Values(), held, fit, "values"),
        "values constant": (Values(0.0, 0.75), held, fit, "values"),
        "values in other units": (Values(), (held[0], 10 * held[1] + 5), fit, "values"),
        "values memorizing": (Nearest(*shuffled(fit, 12)), shuffled(held, 13), shuffled(fit, 12), "values"),
    }  # fmt: skip
    model, test, train, task = (*known[kind], None)[:4]
    return model, test, train, task


def outputs(kind, part="held out"):
    model, test, train, _ = built(kind)
    x, y = test if part == "held out" else train
    with torch.no_grad():
        return model(x).double().numpy(), y.numpy()


def answers(kind, part="held out"):
    out, y = outputs(kind, part)
    return (out > 0).astype(int) if out.ndim == 1 else out.argmax(1), y


def share(kind, part="held out"):
    said, y = answers(kind, part)
    return (said == y).mean()


def constant(kind):
    (_, y), (_, given) = outputs(kind), outputs(kind, "training")
    return (y == np.bincount(given).argmax()).mean()


def gap(kind):
    return share(kind, "training") - share(kind)


def renamed(kind):
    """The best share of right answers over all orders of three classes or two."""
    from itertools import permutations

    said, y = answers(kind)
    return max((np.array(order)[said] == y).mean() for order in permutations(range(y.max() + 1)))


def training_loss(kind):
    """The mean cross-entropy of the training part."""
    out, y = outputs(kind, TRAINING)
    return log_loss(y, softmax(out, axis=1))


def temperature(kind):
    out, y = outputs(kind)
    scores = out if out.ndim > 1 else np.stack((np.zeros_like(out), out), 1)

    def loss(x):
        s = scores / np.exp(x)
        return np.mean(np.logaddexp.reduce(s, 1) - s[np.arange(len(y)), y])

    return np.exp(minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-8}).x)


def share_of_labels(kind, label=None):
    """The share of all labels that are answered, or of those that are 0 or 1."""
    out, y = outputs(kind)
    right = (out > 0) == y
    return right.mean() if label is None else right[y == label].mean()


def explained(kind, part="held out"):
    out, y = outputs(kind, part)
    return r2_score(y, out)


def explained_gap(kind):
    return explained(kind, "training") - explained(kind)


def auroc(kind):
    out, y = outputs(kind)
    return roc_auc_score(y, out[:, 1] - out[:, 0])


def entropy(kind):
    """The least mean cross-entropy of a constant on the training part."""
    return scipy_entropy(np.bincount(outputs(kind, TRAINING)[1]))


def gain(kind):
    """The accuracy less that of the commonest training label."""
    return share(kind) - constant(kind)


def largest_rate(kind):
    """2 |g|^2 / g'Hg of the mean training loss, by the whole Hessian."""
    model, _, (x, y), _ = built(kind)
    model, x = model.double(), x.double()
    names, values = zip(*model.named_parameters(), strict=True)

    def loss(*parameters):
        out = torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), (x,))
        return nn.functional.cross_entropy(out, y)

    g = torch.cat([p.flatten() for p in torch.autograd.grad(loss(*values), values)])
    rows = torch.autograd.functional.hessian(loss, tuple(values))
    sizes = [len(p.flatten()) for p in values]
    H = torch.cat(
        [torch.cat([h.reshape(size, -1) for h in row], 1) for row, size in zip(rows, sizes, strict=True)]
    )
    return float(2 * g @ g / (g @ H @ g))


TRAINING = "training"
STEP = "One gradient step"
N = r"(?P<n>-?[\d.]+(?:e-?\d+)?)"

# A row: question, level, the words with a place N for the number, and what the number is.
SAID = {
    "good": [
        ("right", "good", rf"^Right for {N} \[.* of 200 held-out examples", share),
        ("right", "good", rf"one constant answer for {N}\.", constant),
        ("probabilities", "good", r"^Probabilities are off by .* in the mean", None),
        ("memorized", "good", rf"^Right for .* a gap of {N} ", gap),
        ("rests", "good", r"and not found: equal rows, a shift from the training part", None),
    ],
    "untrained": [
        ("right", "bad", r"one constant answer|linear model", None),
        ("trained", "warn", rf"^{STEP} still lowers the training loss, {N} ", training_loss),
        ("trained", "warn", rf"^{STEP} .* \(a constant's: {N}\), .* Train longer", entropy),
        ("trained", "warn", rf"\(a plain step lowers it at learning rates below {N}, to", largest_rate),
    ],
    "half trained": [
        ("trained", "warn", rf"^{STEP} still lowers the training loss, {N} ", training_loss),
        ("trained", "warn", rf"\(a plain step lowers it at learning rates below {N}, to", largest_rate),
    ],
    "converged": [("trained", "good", rf"^{STEP} hardly lowers the training loss, {N} ", training_loss)],
    "random labels": [
        ("trained", "unknown", rf"^{STEP} lowers the training loss, {N} ", training_loss),
        ("memorized", "bad", rf"a gap of {N} ", gap),
    ],
    "random labels, linear": [
        ("trained", "warn", rf"^The training loss, {N}, is hardly below", training_loss),
        ("trained", "warn", rf"is hardly below a constant's, {N}, and one gradient step does not", entropy),
    ],
    "constant": [
        ("right", "bad", rf"^Answers '2' to all of 200 held-out examples: right for {N} ", share),
        ("trained", "warn", rf"^{STEP} still lowers the training loss, {N} ", training_loss),
    ],
    "nan": [
        ("right", "bad", rf"not finite for {N} of 200 terms", lambda k: np.isnan(outputs(k)[0]).any(1).sum()),
        ("right", "bad", rf"the first of index {N}", lambda k: np.isnan(outputs(k)[0]).any(1).argmax()),
    ],
    "memorizing": [
        ("right", "bad", rf"^No better than one constant answer: right for {N} ", share),
        ("right", "bad", rf"\(difference {N} ", gain),
        ("right", "bad", rf"though for {N} \[.*of the training examples", lambda k: share(k, TRAINING)),
        ("memorized", "bad", rf"a gap of {N} ", gap),
        ("trained", "unknown", rf"^{STEP} lowers the training loss, {N} .*by 0\.", training_loss),
    ],
    "memorizing some": [
        ("memorized", "bad", rf"^Memorized: right for {N} ", lambda k: share(k, TRAINING)),
        ("memorized", "bad", rf"training examples, {N} \[.* of the held-out", share),
        ("memorized", "bad", rf"a gap of {N} ", gap),
        ("right", "bad", r"^Worse than a linear model of the inputs .* Use it, or regularize this one", None),
    ],
    "a gap on either side of a tenth": [("memorized", "warn", rf"^Right for .* a gap of {N} ", gap)],
    "ignoring": [("right", "bad", rf"constant answer.*[dr]ight for {N} ", share)],
    "swapped": [
        ("right", "bad", rf"^Only right for {N} \[", share),
        ("right", "bad", rf"were classes renamed, {N} would be: '0' is answered '1', '1' is", renamed),
    ],
    "permuted": [("right", "bad", rf"were classes renamed, {N} would be", renamed)],
    "shuffled": [
        ("right", "bad", rf"one constant answer.*though for {N} ", lambda k: share(k, TRAINING)),
        ("memorized", "bad", rf"^Right for .* a gap of {N} ", gap),
    ],
    "overconfident": [
        ("probabilities", "bad", rf"^Overconfident: .*Divide the logits by {N} ", temperature),
        ("right", "good", rf"^Right for {N} ", share),
    ],
    "underconfident": [
        ("probabilities", "bad", rf"^Underconfident: .*Divide the logits by {N} ", temperature),
    ],
    "leaking": [
        ("rests", "bad", rf"\({N} of 200 held-out rows stand in the training part\)", lambda k: 31),
        ("right", "unknown", rf"^Right for {N} ", share),
    ],
    "shifted": [
        ("right", "bad", rf"^Right for {N} \[", lambda k: share(k, TRAINING)),
        ("right", "bad", rf"examples, {N} \[.*unlike.* differ in feature 0", share),
    ],
    "ten": [("rests", "warn", rf"^10 held-out examples cannot tell the accuracy any better .*: {N} ", share)],
    "thirty": [("rests", "warn|unknown", rf"^30 held-out examples .* than this: {N} ", share)],
    "five": [
        ("right", "unknown", rf"^Not told apart from one constant answer: right for {N} ", share),
        ("right", "unknown", r"More held-out examples", None),
    ],
    "three": [("right", "unknown", rf"^Not told apart from one constant answer: right for {N} ", share)],
    "one": [("rests", "warn", rf"^1 held-out example cannot tell the accuracy any better.*: {N} ", share)],
    "drawing": [("rests", "warn", r"^The model draws at random in evaluation mode: every other", None)],
    "permuted in both": [("right", "bad", rf"were classes renamed, {N} would be", renamed)],
    "nearly copied": [("rests", "warn", rf"{N} lie far nearer to a training row", lambda k: 40)],
    "its own inputs": [("right", "good", r"^Restores its inputs, which are .* no bottleneck", None)],
    "several labels": [
        ("right", "good", rf"^Right for {N} \[.* of 600 labels in 200 held-out", share_of_labels),
        ("memorized", "good", r"^Right for .* of the training labels, ", None),
        ("fails", "warn", rf"^A label that is 1 is recognized for {N} ", lambda k: share_of_labels(k, 1)),
    ],
    "rare": [
        ("right", "bad", rf"^Answers '0' to all of 400 held-out examples: right for {N} ", share),
        ("right", "bad", rf"area under the ROC curve {N}[ ).]", auroc),
    ],
    "one logit": [("right", "good", rf"^Right for {N} ", share)],
    "one logit swapped": [("right", "bad", rf"were classes renamed, {N} would be", renamed)],
    "one logit overconfident": [
        ("probabilities", "bad", rf"^Overconfident: .*Divide the logits by {N} ", temperature),
    ],
    "values": [
        ("right", "good", rf"^Explains {N} ", explained),
        ("right", "good", r"^Better than a linear model", None),
        ("memorized", "good", rf"a gap of {N} ", explained_gap),
    ],
    "values constant": [("right", "bad", rf"^Answers {N} to all of 200", lambda k: 0.75)],
    "values in other units": [
        ("right", "bad", rf"variance, {N} \[.* differ in the targets", explained),
        ("right", "bad", rf"R\^2 is {N} ", explained),
    ],
    "values memorizing": [
        ("right", "bad", rf"^Worse than always answering the mean: R\^2 is {N} ", explained),
        ("memorized", "bad", rf"a gap of {N}\.? ?", explained_gap),
    ],
}  # fmt: skip

WRONG = ("untrained", "constant", "nan", "memorizing", "ignoring", "swapped", "permuted", "shuffled",
         "one logit swapped", "values constant", "values memorizing")  # fmt: skip

# A row: question ("" any), level ("" any) and words that no sentence of these may have together.
NEVER = {
    **{kind: [("right|probabilities|fails|memorized|moves", "good", "")] for kind in WRONG},
    "good": [("", "bad", ""), ("", "", "likely wrong"), ("", "", "emorized:"), ("trained", "warn", "")],
    **{kind: [("trained", "good|unknown", "")] for kind in ("half trained", "random labels, linear")},
    "converged": [("trained", "warn|unknown", ""), ("", "bad", ""), ("", "", "a linear model")],
    "random labels": [("trained", "good|warn", ""), ("", "", "Train longer")],
    "a gap on either side of a tenth": [("memorized", "bad|good", ""), ("", "", "Memorized:")],
    "swapped": [("", "good", "Right"), ("", "", "Memorized:"), ("right", "", "linear model")],
    "permuted": [("", "", "Memorized:"), ("right", "", "linear model")],
    "shuffled": [("", "", "Memorized:"), ("right", "", "The linear one is simpler")],
    "shifted": [("fails|moves", "", ""), ("", "", "Divide the logits"),
                ("memorized|rests", "bad|warn", ""), ("", "", "emorized:"), ("right|memorized", "good", "")],
    "overconfident": [("", "", "likely wrong"), ("", "", "by chance"), ("", "", "No one temperature")],
    "underconfident": [("", "", "likely wrong"), ("", "", "chance"), ("probabilities", "good", "")],
    "leaking": [("right|probabilities|fails|memorized", "good", ""), ("rests", "good", "equal rows")],
    "ten": [("memorized|probabilities|fails", "good", ""), ("", "", "The linear one is simpler")],
    "thirty": [("memorized|probabilities", "good", "")],
    "five": [("right", "bad|good", ""), ("", "", "Check that labels"), ("", "", "No better")],
    "its own inputs": [("", "", "linear model")],
 "three": [("right", "bad|good", ""), ("", "", "Does it read its input")],
    "drawn labels": [("", "", "likely wrong")],
    "one": [("", "bad", ""), ("right", "good", ""), ("", "", "has no number")],
    "drawing": [("", "", "this is of one draw"), ("", "", "the model draws")],
    "permuted in both": [("trained", "", ""), ("", "", "Train longer")],
    "several labels": [("", "", "Class '")],
    "rare": [("", "", "reads nothing"), ("right", "good", ""), ("", "", "Does it read its input")],
}  # fmt: skip


@pytest.fixture(scope="module")
def said():
    known = {}

    def of(kind):
        if kind not in known:
            model, test, train, task = built(kind)
            audit = margin.audit(model, test, train=train, task=task, claims=ASKED)
            known[kind] = sentences(audit)
        return known[kind]

    return of


def shows(text, number):
    """Whether a number is the other rounded to the digits that it has."""
    digits = len(text.partition("e")[0].partition(".")[2])
    return float(text) == pytest.approx(number, abs=0.51 * 10.0**-digits, rel=1e-9)


@pytest.mark.parametrize("kind", SAID)
def test_what_is_wrong_is_said_with_its_number(said, kind):
    for question, levels, words, number in SAID[kind]:
        meant = [s for s in said(kind) if s.question == question and s.level in levels.split("|")]
        matches = [match for s in meant if (match := re.search(words, f"{s.text} {s.todo}"))]
        assert matches, (question, levels, words, said(kind))
        if number is not None:
            shown = next(text for text in matches[0].groups() if text is not None)
            assert shows(shown, number(kind)), (matches[0][0], number(kind))


@pytest.mark.parametrize("kind", NEVER)
def test_nothing_that_is_not_so_is_said(said, kind):
    for questions, level, words in NEVER[kind]:
        kinds, levels = questions.split("|"), level.split("|")
        false = [
            s
            for s in said(kind)
            if words in f"{s.text} {s.todo}"
            and (not questions or s.question in kinds)
            and (not level or s.level in levels)
        ]
        assert false == [], (questions, level, words)


@pytest.mark.parametrize("kind", WRONG)
def test_the_first_sentence_is_of_what_is_wrong(said, kind):
    first = said(kind)[0]
    assert (first.question, first.level) == ("right", "bad")


@pytest.mark.parametrize("kind", SAID)
def test_a_sentence_has_a_subject_and_an_end(said, kind):
    for s in said(kind):
        assert re.match(r"[A-Z0-9]|theory/", s.text) and s.text.endswith((".", "?"))
        assert not re.match(r"(Not so|Along|By|Of) (that|the|this)?\b.*:? it\b", s.text)


def test_examples_of_several_sizes_break_no_question():
    def padded(seed):
        generator = draws(seed)
        sizes = torch.randint(10, 20, (4,), generator=generator).tolist()
        return [
            Batch((torch.randn(16, 1, size, generator=generator),), torch.arange(16) % 2) for size in sizes
        ]

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    audit = margin.audit(model, padded(1), train=padded(2), claims=(*ASKED, "regions", "separable"))
    assert [answer.broken for answer in audit.answers if answer.broken] == []
    (linear,) = [a for a in audit.answers if a.claim.name == "theory/baseline.linear"]
    assert "examples are of several sizes" in linear.refusal
