"""The first screen's sentences: true of networks that are wrong in a known way, and by their numbers."""

import re
from dataclasses import replace

import pytest
import torch
from rich.text import Text
from scipy.stats import binomtest
from sklearn.datasets import load_digits
from torch import nn

import margin
from margin.auditing.asking.answers import Answer, Audit
from margin.auditing.asking.worst_examples import RIGHT, WorstExamples
from margin.auditing.report.evidence import LEVELS, Sentence, relabeled
from margin.auditing.report.screen import MOST_LINES, _fitting, plain
from margin.auditing.report.sentences import sentences
from margin.auditing.subject.trained import CHOSE_NOTHING
from margin.core.catalog import QUESTIONS, Claim, claims
from margin.core.findings import Premise
from margin.theory.bounds.ladder import CONSTANT

ASKED = (
    "risk",
    "confusion",
    "baseline",
    "memorization",
    "calibration",
    "failures",
    "evidence",
    "residuals",
    "linf.sandwich",
)


def digits():
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(data.data, dtype=torch.float32)[order], torch.tensor(data.target)[order]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def fitted(x, y, steps=150):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Parameter(torch.arange(10.0))

    def forward(self, x):
        return self.scores.expand(len(x), 10)


class Ignoring(nn.Module):
    """Scores that change with the input and know nothing of it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(1, 10)

    def forward(self, x):
        return self.layer(torch.sin(1e4 * x.sum(1, keepdim=True)))


class Nan(nn.Module):
    """Not a number where pixel 20 is above 15.5."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        out = self.model(x)
        return torch.where(x[:, 20:21] > 15.5, out * float("nan"), out)


def drawn(count, seed):
    return torch.randint(0, 10, (count,), generator=torch.Generator().manual_seed(seed))


def built(kind):
    """The model, its held-out part and its training part."""
    x, y = digits()
    train, test = (x[:900], y[:900]), (x[900:1300], y[900:1300])
    swap = torch.tensor([0, 1, 2, 5, 4, 3, 6, 7, 8, 9])
    if kind == "untrained":
        return network(), test, train
    if kind == "constant":
        return Constant(), test, train
    if kind == "nan":
        return Nan(fitted(*train)), test, train
    if kind == "ignoring":
        return Ignoring(), test, train
    if kind == "swapped":
        return fitted(train[0], swap[train[1]]), test, train
    if kind == "shifted labels":
        return fitted(train[0], (train[1] + 1) % 10), test, train
    if kind == "memorizing":
        noise = (x[:300], drawn(300, 1))
        return fitted(*noise, steps=400), (test[0], drawn(400, 2)), noise
    if kind == "leaking":
        both = (torch.cat((x[:60], test[0])), torch.cat((y[:60], test[1])))
        return fitted(*train), both, train
    return fitted(*train), test, train


@pytest.fixture(scope="module")
def audits():
    known = {}

    def asked(kind):
        if kind not in known:
            model, test, train = built(kind)
            known[kind] = margin.audit(model, test, train=train, domain=(0.0, 16.0), claims=ASKED)
        return known[kind]

    return asked


def by(audit, question, level=None):
    return [s for s in sentences(audit) if s.question == question and level in (None, s.level)]


def accuracy_of(kind):
    model, (x, y), _ = built(kind)
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


def starts(number, text):
    """Whether the first measured number of a text is the rounded ``number``."""
    shown = re.search(r"(-?[\d.]+(?:e-?\d+)?) \[", text)[1]
    digits = len(shown.partition(".")[2])
    return "e" in shown or abs(float(shown) - number) <= 0.51 * 10.0**-digits


KINDS = {
    "untrained": ("bad", "No better than one constant answer"),
    "constant": ("bad", "Answers '9' to all of 400 held-out examples"),
    "ignoring": ("bad", "No better than one constant answer"),
    "swapped": ("bad", "were classes renamed"),
    "shifted labels": ("bad", "were classes renamed"),
    "memorizing": ("bad", "No better than one constant answer"),
    "good": ("good", "Right for"),
    "leaking": ("unknown", "Right for"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whether_it_is_right_is_said_with_its_number(audits, kind):
    level, words = KINDS[kind]
    first = next(s for s in by(audits(kind), "right") if "theory/risk.accuracy" in s.claims)
    assert (first.level, words in first.text) == (level, True)
    assert starts(accuracy_of(kind), first.text)


def test_what_is_wrong_as_a_whole_has_no_worst_class_and_no_rows_to_look_at(audits):
    for kind in ("untrained", "constant", "ignoring", "swapped", "shifted labels", "memorizing"):
        assert by(audits(kind), "fails") == by(audits(kind), "moves") == []
        assert all(not s.todo for s in by(audits(kind), "probabilities"))
        assert by(audits(kind), "memorized", "good") == []


def test_classes_of_another_order_are_named_with_what_renaming_gives(audits):
    model, (x, y), _ = built("swapped")
    with torch.no_grad():
        answers = model(x).argmax(1)
    swap = torch.tensor([0, 1, 2, 5, 4, 3, 6, 7, 8, 9])
    renamed = float((swap[answers] == y).double().mean())
    (first,) = [s for s in by(audits("swapped"), "right") if "renamed" in s.text]
    assert f"{renamed:.3g}".lstrip("0") in first.text
    assert "'3' is answered '5', '5' is answered '3'" in first.text


@pytest.mark.parametrize(
    ("rows", "moved"),
    [
        ([[0, 9, 1], [8, 0, 2], [0, 1, 9]], {0: 1, 1: 0}),
        ([[0, 9, 1], [0, 1, 9], [9, 0, 1]], {0: 1, 1: 2, 2: 0}),
        ([[2, 8, 0], [1, 9, 0], [0, 0, 9]], {}),  # one class is taken for another that is right
        ([[4, 5, 1], [5, 4, 1], [0, 0, 9]], {}),  # confused, none for more than half
        ([[0, 2, 0], [2, 0, 0], [0, 0, 2]], {}),  # too few to tell
        ([[9, 0, 0], [0, 9, 0], [0, 0, 9]], {}),
    ],
)
def test_a_relabeling_is_one_to_one_and_of_more_than_half(rows, moved):
    assert relabeled(torch.tensor(rows).double()) == moved


def test_memorizing_is_said_with_the_three_numbers(audits):
    model, (x, y), (z, noise) = built("memorizing")
    with torch.no_grad():
        own, held = (float((model(a).argmax(1) == b).double().mean()) for a, b in ((z, noise), (x, y)))
    (said,) = by(audits("memorizing"), "memorized")
    assert said.level == "bad" and said.todo
    numbers = [float(n) for n in re.findall(r"(-?[\d.]+) \[", said.text)]
    assert numbers == pytest.approx([own, held, own - held], abs=0.006)
    assert by(audits("good"), "memorized")[0].level in ("good", "warn")


def test_outputs_that_are_no_numbers_are_counted_and_the_first_is_named(audits):
    _, (x, _), _ = built("nan")
    odd = (x[:, 20] > 15.5).nonzero().flatten()
    first = sentences(audits("nan"))[0]
    assert first.level == "bad"
    assert f"not finite for {len(odd)} of 400 terms, the first of index {int(odd[0])}" in first.text
    failed = [n for n, f in audits("nan").findings.items() if f.verdict == "failed"]
    assert set(failed) == set(first.claims)
    assert by(audits("nan"), "right", "good") == by(audits("nan"), "fails", "good") == []


def test_what_the_numbers_rest_on_is_said_where_it_does_not_hold(audits):
    (said,) = by(audits("leaking"), "rests", "bad")
    assert "60 of 460 held-out rows stand in the training part" in said.text
    assert "theory/risk.accuracy" in said.claims
    assert not [s for s in sentences(audits("leaking")) if s.level == "good" and s.question != "rests"]
    assert by(audits("good"), "rests", "bad") == []


def test_probabilities_are_over_confident_by_so_much(audits):
    model, (x, y), _ = built("swapped")
    with torch.no_grad():
        confidence, answer = model(x).softmax(1).max(1)
    (said,) = by(audits("swapped"), "probabilities")
    assert said.level == "bad" and said.text.startswith("Overconfident")
    found = float(audits("swapped")["calibration.ece"].value)
    assert starts(found, said.text)
    assert found >= float(confidence.mean() - (answer == y).double().mean()) - 1e-6


@pytest.mark.parametrize("kind", [*KINDS, "nan"])
@pytest.mark.parametrize("width", [80, 120])
def test_the_first_screen_fits_and_says_the_worst_first(audits, kind, width):
    text = plain(audits(kind), width)
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines)
    said = sentences(audits(kind))
    assert len(said) <= 10
    assert [s.rank for s in said] == sorted(s.rank for s in said)
    assert all(" ".join(s.text.split()) in " ".join(text.split()) for s in said if s.level == "bad")
    shown = [
        LEVELS.index({"?": "unknown"}.get(m, m)) for m in re.findall(r"^(bad|warn|good|\?) ", text, re.M)
    ]
    assert shown == sorted(shown)


def claim(name, question=""):
    known = claims().get(name)
    return known or Claim(name=name, summary="", ask="", demo="", reference="", question=question)


def audit_of(found, facts=(), refused=(), **given):
    answers = [Answer(claim(name), f, "", 0.1) for name, f in found.items()]
    answers += [Answer(claim(name), None, why, 0.0) for name, why in refused]
    known = {"held-out examples": 400} | dict(facts)
    return Audit(title="a model", answers=tuple(answers), facts=known, **given)


def f64(*values):
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


def test_an_audit_of_nothing_says_nothing():
    assert sentences(audit_of({})) == []
    assert len(plain(audit_of({}), 80).splitlines()) == 4


def test_a_question_is_one_of_the_catalog():
    with pytest.raises(ValueError, match="question must be a key of QUESTIONS: got 'why'"):
        Sentence("why", "bad", "")
    assert all(s.question in QUESTIONS for s in [Sentence(q, "bad", "") for q in QUESTIONS])


def test_what_is_violated_or_failed_always_has_a_sentence(every_verdict):
    audit = audit_of({f"room/topic.{name}": found for name, found in every_verdict.items()})
    said = sentences(audit)
    text = " ".join(s.text for s in said if s.level == "bad")
    assert "room/topic.violated is violated: promised <= .4, measured .5." in text
    assert "room/topic.failed has no number: the value or its reach is not a finite number" in text
    assert any("layer 'deep.3' is not" in s.text and s.level == "unknown" for s in said)
    many = {f"room/topic.{i}": every_verdict["violated"] for i in range(30)}
    (one,) = [s for s in sentences(audit_of(many)) if "violated" in s.text]
    assert len(one.claims) == 30 and "and 26 more" in one.text


RADII = torch.tensor([0.0, 0.1, 0.2, 0.5, 1.0, 2.0]).double()


def sandwich(finding, attacked, certified, shares=(0, 0.005, 0.01, 0.025, 0.05, 0.1)):
    attacked, certified = f64(*attacked), f64(*certified)
    curves = {"eps": RADII, "share": f64(*shares), "certified": certified, "attacked": attacked}
    labels = tuple(f"eps {e:g}" for e in RADII)
    bracket = (certified * 0.9, attacked * 0.5 + 0.5)
    found = finding(value=attacked, low=certified, labels=labels, curves=curves, sandwich=bracket)
    return audit_of({"robust/linf.sandwich": found})


@pytest.mark.parametrize(
    ("attacked", "certified", "level", "words"),
    [
        ((0.9, 0.89, 0.7, 0.4, 0.1, 0.0), (0.9, 0.85, 0.3, 0, 0, 0), "bad",
         "by .2 (1 % of the range) leaves at most .70 [<= .85] right, of .9, by .5 under half; "
         "certified: .85 up to .1."),
        ((0.9, 0.9, 0.89, 0.88, 0.6, 0.2), (0.9, 0, 0, 0, 0, 0), "warn",
         "by 1 (5 % of the range) leaves at most .60 [<= .80] right, of .9, by 2 under half; nothing is"),
        ((0.9, 0.9, 0.89, 0.88, 0.86, 0.6), (0.9, 0.9, 0.89, 0.85, 0.5, 0.1), "good",
         "by 2 (10 % of the range) leaves at most .60 [<= .80] right, of .9; certified: .85 up to .5."),
        # a failed attack is no proof: proved to 1 % of the range, and only to half of it
        ((0.9, 0.9, 0.89, 0.88, 0.86, 0.6), (0.9, 0.9, 0.81, 0, 0, 0), "good", "certified: .81 up to .2"),
        ((0.9, 0.9, 0.89, 0.88, 0.86, 0.6), (0.9, 0.9, 0.79, 0, 0, 0), "unknown", "certified: .9 up to .1"),
        ((0.9, 0.9, 0.89, 0.88, 0.86, 0.85), (0.9, 0.9, 0.79, 0, 0, 0), "unknown", "leaves at most .85"),
        ((0.9, 0.9, 0.9, 0.9, 0.9, 0.9), (0.9, 0, 0, 0, 0, 0), "warn", "moves one right answer"),
        # what is wrong without an attack needs no defense
        ((0.4, 0.4, 0.2, 0.1, 0.0, 0.0), (0.4, 0.3, 0, 0, 0, 0), "unknown", "leaves at most .20 [<= .60]"),
    ],
)  # fmt: skip
def test_what_moves_it_is_the_smallest_radius_that_costs_ten_points(
    finding, attacked, certified, level, words
):
    (said,) = by(sandwich(finding, attacked, certified), "moves")
    assert (said.level, words in said.text) == (level, True)


def test_an_attack_on_some_of_the_examples_says_on_how_many(finding):
    audit = sandwich(finding, (0.9, 0.9, 0.9, 0.9, 0.9, 0.5), (0.9, 0, 0, 0, 0, 0))
    found = replace(
        audit["linf.sandwich"], statement="Of 128 of 449 test examples, drawn at random, the share"
    )
    (said,) = by(audit_of({"robust/linf.sandwich": found}), "moves")
    assert "of .9 (128 of 449 test examples); nothing is certified" in said.text


def test_without_a_domain_it_is_not_known_what_moves_it():
    refused = [("robust/linf.sandwich", "needs a domain (where one input may be moved)")]
    (said,) = by(audit_of({}, refused=refused), "moves")
    assert said.level == "unknown" and "--domain" in said.todo
    (run,) = by(audit_of({}, refused=refused, facts={"run": "r"}.items()), "moves")
    assert run.todo == ""
    assert by(audit_of({}, refused=[("robust/linf.sandwich", "needs class labels")]), "moves") == []


@pytest.mark.parametrize(
    ("why", "words", "todo"),
    [
        ("has no gradient", ": it has no gradient.", ""),
        ("needs about 2 min of the 46 s that remain", ": finding it out needs about 2 min of", "--minutes"),
        ("stopped after 20 s: a pass needs", ": finding it out stopped after 20 s", "--minutes"),
    ],
)
def test_why_it_is_not_known_what_moves_it_is_a_sentence_with_a_way_on(why, words, todo):
    (told,) = by(audit_of({}, refused=[("robust/linf.sandwich", why)]), "moves")
    assert told.text.startswith("What moves it is not known") and words in told.text
    assert todo in told.todo and bool(todo) is bool(told.todo)


@pytest.mark.parametrize(("value", "words"), [(0.0588158, ".059"), (0.0581, ".059"), (0.25, ".25")])
def test_a_bound_is_rounded_up(finding, value, words):
    found = finding(
        value=f64(value, 1.0), range=(0.0, 1.0), labels=("held-out examples", "training examples")
    )
    texts = [
        s.text for s in by(audit_of(memorized_of(finding) | {"theory/bounds.ladder": found}), "memorized")
    ]
    assert any(f"wrong for at most {words} of new examples" in text for text in texts)


def memorized_of(finding):
    labels = ("training", "held-out", "gap")
    return {
        "theory/memorization.accuracy": finding(value=f64(0.9, 0.9, 0.0), range=(-1.0, 1.0), labels=labels)
    }


def estimate(finding, value, below, above, **given):
    ends = {"interval": (f64(below), f64(above)), "kind": "estimate", "range": (-float("inf"), float("inf"))}
    return finding(value=f64(value), **(ends | given))


@pytest.mark.parametrize(
    ("gain", "level", "words"),
    [
        ((-0.05, -0.08, -0.02), "bad", "Worse than a linear model of the inputs (gain in accuracy: -.050"),
        ((0.01, -0.02, 0.04), "warn", "No better than a linear model"),
        ((0.05, 0.02, 0.08), "good", "Better than a linear model"),
    ],
)
def test_a_linear_model_is_compared(finding, gain, level, words):
    found = {
        "theory/risk.accuracy": estimate(finding, 0.9, 0.87, 0.93),
        "theory/baseline.constant": estimate(finding, 0.6, 0.5, 0.7, low=f64(0.0)),
        "theory/baseline.linear": estimate(finding, *gain),
    }
    said = by(audit_of(found), "right")
    assert any(s.level == level and s.text.startswith(words) for s in said)
    assert any("Right for .900 [.870, .930] of 400 held-out examples; one constant answer for .300" in s.text
               for s in said)  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "level", "words"),
    [
        ((0.8, 0.7, 0.9), "good", "Explains .80 [.70, .90]"),
        ((0.3, 0.2, 0.4), "warn", "Explains .30 [.20, .40]"),
        ((0.1, -0.1, 0.3), "bad", "Not told apart from always answering the mean"),
        ((0.05, -0.4, 0.51), "unknown", "Not told apart from always answering the mean"),
        ((-0.1, -0.3, 0.1), "bad", "Not told apart from always answering the mean"),
        ((-0.5, -0.7, -0.3), "bad", "Worse than always answering the mean"),
    ],
)
def test_values_are_held_against_their_mean(finding, ends, level, words):
    found = {
        "theory/residuals.r2": estimate(finding, *ends),
        "theory/residuals.rmse": estimate(finding, 60.0, 55.0, 68.0),
    }
    (said,) = by(audit_of(found), "right")
    assert (said.level, said.text.startswith(words)) == (level, True)
    assert "root mean square error 60" in said.text


@pytest.mark.parametrize(("wrong", "said"), [(0, False), (1, True), (6, True), (40, False)])
def test_targets_of_another_unit_are_told_from_a_model_that_is_wrong(wrong, said):
    """Six targets in thousandths make all of the squared error; of 40 in 300 nobody says they are few."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 2, generator=generator)
    y = x @ torch.tensor([1.0, 2.0]) + 0.3 * torch.randn(600, generator=generator)
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0]]))
        model.bias.zero_()
    given = y[300:].clone()
    given[:wrong] *= 1000
    asked = ["risk", "residuals", "baseline.constant"]
    audit = margin.audit(model, (x[300:], given[:, None]), train=(x[:300], y[:300, None]), claims=asked)
    told = [s for s in by(audit, "right") if "of the squared error" in s.text]
    assert bool(told) is said
    if said:
        count = "One held-out example makes" if wrong == 1 else "6 of 300 held-out examples make"
        assert told[0].text.startswith(count) and told[0].level == "warn"
        rest = float((model(x[300:]).detach()[wrong:, 0] - y[300 + wrong :]).square().mean().sqrt())
        shown = float(re.search(r"its root mean is ([.\d]+)\.", told[0].text)[1])
        assert shown == pytest.approx(rest, rel=6e-3)


def test_one_temperature_is_the_remedy_where_it_gains(finding):
    ends = {"kind": "estimate", "range": (-float("inf"), float("inf"))}
    curves = {"confidence": f64(0.5, 0.9), "accuracy": f64(0.4, 0.7), "count": f64(100, 300)}
    ece = finding(
        value=f64(0.175, 0.1)[:1], interval=(f64(0.14, 0)[:1], f64(0.21, 0)[:1]), curves=curves, **ends
    )
    labels = ("temperature", "NLL gained", "ECE before", "ECE after")

    def audited(gained, fits=(1.8, 1.5, 2.1)):
        value, low, high = (
            f64(*column) for column in zip(fits, gained, (0.2,) * 3, (0.02,) * 3, strict=True)
        )
        found = finding(value=value, interval=(low, high), labels=labels, **ends)
        return audit_of({"theory/calibration.ece": ece, "theory/calibration.temperature": found})

    (said,) = by(audited((0.3, 0.2, 0.4)), "probabilities")
    assert said.text.startswith("Overconfident: probabilities are off by .175 [.140, .210]")
    assert said.todo.startswith(
        "Divide the logits by 1.80 [1.50, 2.10]: the log loss falls by .30 [.20, .40]"
    )
    (unsure,) = by(audited((0.1, -0.1, 0.3)), "probabilities")
    assert unsure.todo == "Divide the logits by 1.80 [1.50, 2.10]; what that gains is not known here."
    (none,) = by(audited((0.1, -0.1, 0.3), (1.1, 0.9, 1.3)), "probabilities")
    assert none.todo.startswith("No one temperature is known to repair that")


def test_labels_are_likely_wrong_where_fewer_may_be_right(finding):
    def audited(count):
        curves = {"row": torch.arange(count), "given": torch.zeros(count), "likely": torch.ones(count),
                  "right": f64(2.0, 4.0)}  # fmt: skip
        found = finding(value=f64(float(count)), range=(0.0, 400.0), curves=curves)
        return audit_of({"theory/failures.mislabeled": found}, class_names=("cat", "dog"))

    (said,) = by(audited(5), "fails")
    assert said.text.startswith(
        "5 labels are likely wrong (about 2 of them right): row 0 (cat, likelier dog), row 1"
    )
    assert by(audited(4), "fails") == []


def test_a_rare_class_that_the_scores_tell_apart_is_no_sign_that_inputs_are_not_read():
    """6 of 300 are rare, 3 of them found and 3 others called so: right as often as the constant."""
    labels = (torch.arange(300) < 6).long()
    score = torch.full((300,), -3.0)
    score[:3], score[3:6], score[6:9] = 1.0, -0.5, 0.5
    scores = torch.stack((torch.zeros(300), score), 1)
    audit = margin.audit(predictions=scores, targets=labels, claims=["risk", "baseline", "ranking.auroc"])
    (told,) = [s for s in by(audit, "right") if "constant" in s.text]
    assert "No better than one constant answer: right for .980" in told.text
    # of 6 x 294 pairs 3 x 3 are lost, by the three below .5
    ranked = float(re.search(r"under the ROC curve ([.\d]+) \[", told.text)[1])
    assert ranked == pytest.approx(1 - 9 / (6 * 294), abs=6e-4)
    assert told.todo == "Judge it by recall and precision, move the threshold."


@pytest.mark.parametrize(("count", "words"), [(1, "1 held-out example"), (2, "2 held-out examples")])
def test_one_example_is_called_one(count, words):
    assert re.search(rf"a model: {words}\b", str(audit_of({}, facts={"held-out examples": count})))


def test_accuracy_that_nothing_was_compared_with_is_good_where_it_is_surely_most(finding):
    for low, level in ((0.49, "unknown"), (0.51, "good")):
        (said,) = by(audit_of({"theory/risk.accuracy": estimate(finding, 0.6, low, 0.7)}), "right")
        assert said.level == level


@pytest.mark.parametrize(("count", "right", "fewer"), [(3, 3, 8), (10, 5, 42), (20, 20, 41), (50, 25, 194)])
def test_as_many_examples_as_are_advised_halve_the_interval(finding, count, right, fewer):
    """By scipy's own exact interval; at the ends of the range they are not four times as many."""

    def width(examples):
        test = binomtest(round(right / count * examples), examples)
        low, high = test.proportion_ci(0.95, method="exact")
        return high - low

    low, high = binomtest(right, count).proportion_ci(0.95, method="exact")
    found = estimate(finding, right / count, low, high)
    facts = {"held-out examples": count}
    said = next(
        s for s in sentences(audit_of({"theory/risk.accuracy": found}, facts=facts)) if "halve" in s.todo
    )
    advised = int(re.search(r"About ([\d,]+) would halve", said.todo)[1].replace(",", ""))
    assert width(advised) <= width(count) / 2 * 1.03 and width(fewer) > width(count) / 2
    assert advised >= fewer


def test_a_class_of_pixels_is_worse_where_images_show_it(finding):
    """480 of 600 pixels against .9 of all is no chance, were pixels draws; of six images it may be."""
    confusion = f64(420.0, 0.0, 120.0, 480.0).reshape(2, 2)
    half = f64(0.5)[None]
    hard = WorstExamples(torch.tensor([0]), torch.zeros(1, 3), None, {RIGHT: half}, half, None)

    def said(low, high, worst=hard):
        names, ends = ("class 0", "class 1"), (f64(0.95, low), f64(1.0, high))
        recall = finding(value=f64(1.0, 0.8), interval=ends, range=(0.0, 1.0), kind="estimate", labels=names,
                         curves={"confusion": confusion})  # fmt: skip
        accuracy = estimate(finding, 0.9, 0.85, 0.94)
        audit = audit_of({"theory/risk.accuracy": accuracy, "theory/confusion.recall": recall})
        audit = replace(audit, worst_examples=worst)
        return by(audit, "right")[0].text, by(audit, "fails")[0].text

    right, wide = said(0.6, 0.92)
    assert "of 1,020 labels in" in right
    assert wide.startswith("No class is told apart as worse")
    assert said(0.77, 0.83)[1].startswith("Class '1' is recognized for .8")
    # 49 hits of 61 by the interval, where .9 are usual: a chance of .017, twice that of the worst of two
    assert said(0.7, 0.9)[1].startswith("Class '1' is recognized for .8")
    assert said(0.6, 0.92, None)[1].startswith("Class '1' is recognized for .8")


@pytest.mark.parametrize(
    ("hits", "words"), [(16, "No class is told apart as worse"), (12, "Class '3' is recognized for")]
)
def test_the_worst_of_ten_classes_is_worse_than_the_worst_of_ten_alike(finding, hits, words):
    """16 hits of 20, where .95 are usual, have a chance of .016 in one class, and of .15 in one of ten."""
    recalls = f64(*(1.0 if i != 3 else hits / 20 for i in range(10)))
    confusion = torch.diag(20 * recalls)
    confusion[3, 4] = 20 - hits
    recall = finding(value=recalls, interval=((recalls - 0.2).clamp(0), (recalls + 0.1).clamp(max=1)),
                     range=(0.0, 1.0), kind="estimate", labels=tuple(f"class {i}" for i in range(10)),
                     curves={"confusion": confusion})  # fmt: skip
    accuracy = estimate(finding, 0.95, 0.92, 0.98)
    (said, *_) = by(audit_of({"theory/risk.accuracy": accuracy, "theory/confusion.recall": recall}), "fails")
    assert said.text.startswith(words)


@pytest.mark.parametrize(("below", "said"), [(0.05, True), (-0.05, False)])
def test_inputs_that_lie_otherwise_are_a_reason_where_it_is_surely_right_less_often(finding, below, said):
    moved = finding(value=f64(0.001), range=(0.0, 1.0), remarks=("The inputs have moved: feature 2.",))
    found = {
        "theory/risk.accuracy": estimate(finding, 0.7, 0.6, 0.8),
        "theory/baseline.constant": estimate(finding, 0.4, 0.3, 0.5, low=f64(0.0)),
        "theory/evidence.shift": moved,
        "theory/memorization.accuracy": finding(
            value=f64(0.9, 0.7, 0.2), interval=(f64(0.8, 0.6, below), f64(0.95, 0.8, 0.35)),
            range=(-1.0, 1.0), kind="estimate", labels=("training", "held-out", "gap"),
        ),
    }  # fmt: skip
    text = " ".join(s.text for s in by(audit_of(found), "right"))
    assert ("and these are unlike those. The inputs have moved" in text) is said


@pytest.mark.parametrize(
    ("low", "high", "level", "words"),
    [
        (
            0.55,
            0.7,
            "warn",
            "Class 'line' is segmented worst: its Dice coefficient is .60 [.55, .70]; the next, .90",
        ),
        (0.3, 0.49, "bad", "Class 'line' is segmented worst"),
        (0.55, 0.89, "unknown", "No class is known to be segmented worse; the lowest Dice is .60 [.55, .89]"),
        (0.55, 0.9, "unknown", "No class is known to be segmented worse; the lowest Dice is .60 [.55, .90]"),
    ],
)
def test_the_class_that_is_segmented_worst_is_named(finding, low, high, level, words):
    """Below a half it is bad, apart from the next a warning, else not known."""
    value = f64(0.9, 0.6, 0.95) if high > 0.5 else f64(0.9, 0.4, 0.95)
    ends = (f64(0.88, low, 0.9), f64(0.92, high, 0.99))
    names = ("ground", "line", "sky")
    dice = finding(value=value, interval=ends, range=(0.0, 1.0), kind="estimate", labels=names)
    (said,) = by(audit_of({"vision/segmentation.dice": dice}), "fails")
    assert said.level == level
    assert said.text.startswith(words)


@pytest.mark.parametrize(("accuracy", "named"), [(0.8, True), (0.4, False)])
def test_where_a_line_is_right_and_it_is_mostly_wrong_no_class_is_the_worst(finding, accuracy, named):
    """Worse than a linear model alone is no reason to be silent of the classes: it may be mostly right."""
    ends = (f64(0.88, 0.55), f64(0.92, 0.7))
    dice = finding(value=f64(0.9, 0.6), interval=ends, range=(0.0, 1.0), kind="estimate", labels=("a", "b"))
    found = {
        "theory/risk.accuracy": estimate(finding, accuracy, accuracy - 0.02, accuracy + 0.02),
        "theory/baseline.constant": estimate(finding, 0.2, 0.1, 0.3, low=f64(0.0)),
        "theory/baseline.linear": estimate(finding, -0.1, -0.15, -0.05),
        "vision/segmentation.dice": dice,
    }
    said = by(audit_of(found), "fails")
    assert [s.text.startswith("Class 'b' is segmented worst") for s in said] == [True] * named


def test_of_largest_loss_are_named_those_that_are_wrong_of_a_model_that_is_mostly_right(finding):
    index, losses = torch.tensor([7, 3]), f64(2.0, 1.0)

    def said(targets, predictions, accuracy=None):
        hard = WorstExamples(index, torch.zeros(2, 3), targets, predictions, losses, None)
        known = {} if accuracy is None else {"theory/risk.accuracy": estimate(finding, accuracy, 0.1, 0.95)}
        return [f"{s.text} {s.todo}" for s in by(replace(audit_of(known), worst_examples=hard), "fails")]

    places = {RIGHT: f64(0.75, 1.0)}
    assert said(None, places, 0.9) == [
        "Of largest loss: example 7 (right at 75.0% of its places). Are their labels right?"
    ]
    assert said(None, {RIGHT: f64(1.0, 1.0)}, 0.9) == []
    classes = torch.tensor([0, 1]), {"class": torch.tensor([1, 1])}
    assert said(*classes, 0.9) == ["Of largest loss: row 7 (is 0, said 1). Are their labels right?"]
    assert said(*classes, 0.4) == []
    values = {"value": torch.ones(2, 5)}
    assert said(torch.zeros(2, 5), values) == ["Of largest loss: row 7, row 3. Are their targets right?"]


def test_pixels_that_are_likely_wrong_are_named_one_an_image_with_thousands_apart(finding):
    rows = ("row", "given", "likely", "place 0", "place 1", "of example")
    columns = f64(7, 7, 0), f64(0, 0, 1), f64(1, 1, 0), f64(3, 4, 5), f64(1200, 0, 6), f64(2, 2, 1)
    curves = {**dict(zip(rows, columns, strict=True)), "right": f64(1234.0, 1300.0)}
    found = finding(value=f64(5678.0), range=(0.0, 1e6), curves=curves)
    (said,) = by(audit_of({"theory/failures.mislabeled": found}, class_names=("cat", "dog")), "fails")
    assert said.text == (
        "5,678 labels are likely wrong (about 1,234 of them right): example 7, row 3, column 1,200 (cat, "
        "likelier dog), example 0, row 5, column 6 (dog, likelier cat)."
    )


def test_a_premise_that_is_refuted_makes_no_good_news(finding):
    refuted = Premise("the held-out examples are independent", "refuted", "31 of 200 rows are copies")
    found = estimate(finding, 0.9, 0.87, 0.93)
    audit = audit_of({"theory/risk.accuracy": replace(found, premises=(refuted,))})
    assert {s.level for s in by(audit, "right")} == {"unknown"}
    (said,) = by(audit, "rests", "bad")
    assert "31 of 200 rows are copies" in said.text


@pytest.mark.parametrize(
    ("accuracy", "words"),
    [
        ((0.4, 0.7), "Overconfident: p"),
        ((0.7, 1.0), "Underconfident: p"),
        ((0.65, 0.85), "Probabilities are off"),
    ],
)
def test_over_and_underconfident_are_told_apart_by_the_bins(finding, accuracy, words):
    curves = {"confidence": f64(0.5, 0.9), "accuracy": f64(*accuracy), "count": f64(100, 300)}
    found = estimate(finding, 0.175, 0.14, 0.21, curves=curves)
    (said,) = by(audit_of({"theory/calibration.ece": found}), "probabilities")
    assert said.text.startswith(words)


def test_groups_in_both_parts_are_not_among_what_was_not_found(finding):
    why = "12 of 50 held-out examples are of 3 groups of the training part"
    refuted = Premise("the held-out examples are independent", "refuted", why)
    found = {
        "theory/evidence.groups": finding(
            remarks=(f"Every error over held-out examples is unfounded: {why}.",)
        ),
        "theory/evidence.shift": finding(
            remarks=("No shift was found, by tests at a family-wise level of 1%.",)
        ),
        "theory/risk.accuracy": replace(estimate(finding, 0.9, 0.87, 0.93), premises=(refuted,)),
    }
    (well,) = by(audit_of(found), "rests", "good")
    assert well.text == "Looked for in 400 held-out examples, and not found: a shift from the training part."
    assert why in by(audit_of(found), "rests", "bad")[0].text


@pytest.mark.parametrize(
    ("ends", "level", "words"),
    [
        (
            (-0.5, -0.6, -0.4),
            "warn",
            "The validation loss still fell when the training ended: by .45 [.36, .54] over",
        ),
        ((0.5, 0.4, 0.6), "warn", "The validation loss rose when the training ended: by .45 [.36, .54] over"),
        ((-0.001, -0.002, -0.0005), "good", "The validation loss neither fell nor rose"),
        ((-0.5, -1.1, 0.1), "unknown", "The validation loss neither fell nor rose"),
    ],
)
def test_the_end_of_a_training_is_said_with_its_slope(finding, ends, level, words):
    # 40 evaluations: the slope is of the last ten, 900 steps apart, of a loss of 2 there
    losses = torch.cat((torch.full((30,), 9.0), torch.full((10,), 2.0))).double()
    curves = {"step": torch.arange(100.0, 4100.0, 100.0).double(), "validation loss": losses}
    (said,) = by(audit_of({"theory/finished.falling": estimate(finding, *ends, curves=curves)}), "trained")
    assert (said.level, said.text.startswith(words)) == (level, True)
    assert said.text.endswith(" over its last 10 evaluations, of 2 on average.")


@pytest.mark.parametrize(
    ("ends", "level", "words"),
    [
        ((-0.5, -0.6, -0.4), "warn", "still fell"),
        ((0.5, 0.4, 0.6), "warn", "rose"),
        # .18 of 20 is below a hundredth, .9 below a tenth, of a loss of either sign
        ((-0.2, -0.3, -0.1), "good", "neither fell nor rose"),
        ((0.2, 0.1, 0.3), "good", "neither fell nor rose"),
        ((-0.2, -1.0, 0.6), "good", "neither fell nor rose"),
        ((-0.2, -3.0, 2.6), "unknown", "neither fell nor rose"),
    ],
)
@pytest.mark.parametrize("level_of_loss", [-20.0, 20.0])
def test_the_end_of_a_training_of_a_density_counts_by_its_size(finding, level_of_loss, ends, level, words):
    losses = torch.full((40,), level_of_loss).double()
    curves = {"step": torch.arange(100.0, 4100.0, 100.0).double(), "validation loss": losses}
    (said,) = by(audit_of({"theory/finished.falling": estimate(finding, *ends, curves=curves)}), "trained")
    assert (said.level, words in said.text) == (level, True)


STEP = "One gradient step"


def stepped(finding, gain, height, best, constant=None):
    curves = {"loss: the same examples": f64(height, height - best, float("nan"))}
    if constant is not None:
        curves["loss: a constant"] = f64(constant).reshape(1)
    return {"theory/finished.gradient": estimate(finding, *gain, unit="loss", curves=curves)}


@pytest.mark.parametrize(
    ("gain", "height", "best", "constant", "level", "words"),
    [
        ((0.2, 0.1, 0.3), 1.0, 0.3, 1.1, "warn", f"{STEP} still lowers the training loss, 1"),
        # on either side of a hundredth of the loss
        ((0.011, 0.01, 0.012), 1.0, 0.02, 1.1, "warn", f"{STEP} still lowers"),
        ((0.009, 0.008, 0.01), 1.0, 0.009, 2.0, "good", f"{STEP} hardly lowers"),
        # nothing that carries over
        ((0.2, -0.1, 0.3), 1.0, 0.3, 1.1, "unknown", f"{STEP} lowers the training loss, 1"),
        # nearly all of a loss that is nothing beside a constant's
        ((9e-7, 8e-7, 1e-6), 1e-6, 9e-7, 1.1, "good", "The training loss, 1e-6, is next to nothing beside a"),
        ((9e-4, 8e-4, 1e-3), 1.2e-3, 9e-4, 1.1, "good", f"{STEP} hardly lowers"),
        ((9e-7, 8e-7, 1e-6), 1e-6, 9e-7, None, "warn", f"{STEP} still lowers the training loss, 1e-6, by"),
        # on either side of .95 of a constant's
        (
            (0.0, -0.001, 0.001),
            1.05,
            0.002,
            1.1,
            "warn",
            "The training loss, 1.05, is hardly below a",
        ),
        ((0.0, -0.001, 0.001), 1.04, 0.002, 1.1, "good", f"{STEP} hardly lowers"),
        ((0.0, -0.001, 0.001), 1.15, 0.002, 1.1, "warn", "The training loss, 1.15, is not below a const"),
        # as high as a constant's, and too few examples tell whether a step helps
        ((0.1, -0.1, 0.3), 1.15, 0.2, 1.1, "unknown", f"{STEP} lowers the training loss, 1.15"),
        # a loss below 0, as of a density
        ((0.5, 0.4, 0.6), -20.0, 0.6, None, "warn", f"{STEP} still lowers the training loss, -20, by .50"),
        ((0.01, 0.005, 0.015), -20.0, 0.015, None, "good", f"{STEP} hardly lowers"),
        ((0.0, 0.0, 0.0), 0.0, 0.0, None, "good", "The training loss is 0."),
    ],
)
def test_what_a_gradient_step_gains_is_said(finding, gain, height, best, constant, level, words):
    (said,) = by(audit_of(stepped(finding, gain, height, best, constant)), "trained")
    assert (said.level, said.text[: len(words)]) == (level, words)


def test_of_which_examples_the_loss_is_where_not_of_all(finding):
    found = stepped(finding, (0.2, 0.1, 0.3), 1.0, 0.3, 1.1)["theory/finished.gradient"]
    (said,) = by(audit_of({"theory/finished.gradient": replace(found, sample="128 drawn")}), "trained")
    assert said.text.startswith(f"{STEP} still lowers the training loss of 128 drawn, 1 (")


def test_one_sentence_says_whether_the_loss_still_falls(finding):
    losses = {"step": torch.arange(100.0, 4100.0, 100.0).double(), "validation loss": torch.ones(40).double()}

    def slope(*ends):
        return {"theory/finished.falling": estimate(finding, *ends, curves=losses)}

    falls = stepped(finding, (0.2, 0.1, 0.3), 1.0, 0.3, 1.1)
    stands = stepped(finding, (0.0, -1e-4, 1e-4), 0.5, 1e-4, 1.1)
    for found, start in (
        (slope(0.5, 0.4, 0.6) | falls, "The validation loss rose"),  # where to stop, not to go on
        (slope(-0.5, -0.6, -0.4) | falls, "The validation loss still fell"),
        (slope(0.0, -1e-3, 1e-3) | falls, STEP),
        (slope(0.0, -1e-3, 1e-3) | stands, "The validation loss neither"),
        (slope(0.0, -1.0, 1.0) | stands, STEP),  # the history does not tell
        (slope(0.0, -1.0, 1.0), "The validation loss neither"),
    ):
        (said,) = by(audit_of(found), "trained")
        assert said.text.startswith(start)


def test_what_has_memorized_is_not_to_be_trained_longer(finding):
    labels = ("training", "held-out", "gap")
    value, low, high = f64(0.9, 0.5, 0.4), f64(0.87, 0.45, 0.35), f64(0.93, 0.55, 0.45)
    gap = finding(value=value, kind="estimate", interval=(low, high), range=(-1.0, 1.0), labels=labels)
    falls = stepped(finding, (0.2, 0.1, 0.3), 1.0, 0.3, 1.1)
    (said,) = by(audit_of(falls | {"theory/memorization.accuracy": gap}), "trained")
    assert (said.level, said.todo) == ("unknown", "")


@pytest.mark.parametrize(
    ("least", "words"),
    [(-1.0, "Memorized: right for .90"), (-float("inf"), "Memorized: explains .90")],
)
def test_a_gap_of_shares_is_told_from_one_of_variances_without_the_accuracy(finding, least, words):
    ends = (f64(0.87, 0.45, 0.35), f64(0.93, 0.55, 0.45))
    labels = ("training", "held-out", "gap")
    gap = finding(
        value=f64(0.9, 0.5, 0.4), kind="estimate", interval=ends, range=(least, -least), labels=labels
    )
    (said,) = by(audit_of({"theory/memorization.accuracy": gap}), "memorized")
    assert said.text.startswith(words)


RUNGS = {
    "held-out examples, exactly": (
        0.2,
        "wrong for at most .2 of new examples, by 400 held-out examples, if they chose nothing",
    ),
    "training examples, weights as stored": (0.1, "wrong for at most .1 of new examples, by its training"),
    "training examples, weights quantized": (0.1, "a copy of few values a weight is wrong for at most .1 of"),
    "training examples, a network drawn once from its law": (0.1, "one network drawn from its law is wrong"),
}


@pytest.mark.parametrize(("tightest", "words"), [(name, words) for name, (_, words) in RUNGS.items()])
def test_a_bound_is_said_of_whom_it_is_true_with_or_without_training_examples(finding, tightest, words):
    values = [RUNGS[name][0] if name == tightest else 0.3 for name in RUNGS]
    bounds = finding(value=f64(*values), range=(0.0, 1.0), labels=tuple(RUNGS))
    (said,) = by(audit_of({"theory/bounds.ladder": bounds}), "memorized")
    assert said.text.startswith(f"With 95% confidence {words}") and said.level == "good"
    gap = finding(
        value=f64(0.9, 0.8, 0.1), kind="estimate", interval=(f64(0.87, 0.75, 0.05), f64(0.93, 0.85, 0.15)),
        range=(-1.0, 1.0), labels=("training", "held-out", "gap"),
    )  # fmt: skip
    both = audit_of({"theory/bounds.ladder": bounds, "theory/memorization.accuracy": gap})
    assert said.text in [s.text for s in by(both, "memorized")]
    assert by(audit_of({"theory/bounds.ladder": replace(bounds, value=f64(1, 1, 1, 1))}), "memorized") == []


@pytest.mark.parametrize(("constant", "level"), [(0.35, "good"), (0.15, "unknown")])
def test_a_bound_that_a_constant_answer_meets_promises_nothing(finding, constant, level):
    """Of bounds at .2, by held-out examples, and .4, by training ones: vacuous from the constant on."""
    labels = ("held-out examples, exactly", "training examples, weights as stored")
    bound = finding(
        value=f64(0.2, 0.4), range=(0.0, 1.0), labels=labels, curves={CONSTANT: torch.tensor([constant])}
    )
    (said,) = by(audit_of({"theory/bounds.ladder": bound}), "memorized")
    assert said.level == level
    assert "its training examples alone promise nothing" in said.text
    wide = replace(bound, curves={CONSTANT: torch.tensor([0.5])})
    (said,) = by(audit_of({"theory/bounds.ladder": wide}), "memorized")
    assert "promise nothing" not in said.text and said.level == "good"


@pytest.mark.parametrize(
    ("status", "models", "words"),
    [
        ("proved", None, "400 held-out examples unseen in training"),
        ("refuted", None, "400 held-out examples, if they chose nothing"),
        ("proved", 1, "400 held-out examples that chose nothing"),
        (None, 30, "400 held-out examples that chose it among 30 models"),
    ],
)
def test_what_the_held_out_examples_chose_is_said_with_the_bound(finding, status, models, words):
    premises = (Premise(CHOSE_NOTHING, status, "by the record"),) if status else ()
    bound = finding(
        value=f64(0.2), range=(0.0, 1.0), labels=("held-out examples, exactly",), premises=premises
    )
    audit = audit_of({"theory/bounds.ladder": bound})
    facts = {**audit.facts, **({"models compared by the held-out examples": models} if models else {})}
    said = by(replace(audit, facts=facts), "memorized")
    whole = f"With 95% confidence wrong for at most .2 of new examples, by {words}."
    assert [one.text for one in said] == ([] if status == "refuted" else [whole])


def test_whether_it_is_right_is_never_left_out_for_room():
    """Nor what is bad; mutant: sentences are left out from the end, whatever they are of."""
    said = [
        Sentence("memorized", "bad", "A."),
        Sentence("trained", "warn", "B."),
        Sentence("right", "unknown", "C."),
        Sentence("right", "unknown", "D."),
        Sentence("fails", "unknown", "E."),
    ]
    blocks = [[Text(s.text)] * 3 for s in said]
    kept, left = _fitting(blocks, said, 8)
    assert [line.plain for line in kept] == ["A."] * 3 + ["C."] * 3
    assert left == 3
    assert _fitting(blocks, said, 15)[1] == 0


@pytest.mark.parametrize(("below", "said"), [(0.09, False), (0.11, True)])
def test_a_shift_by_a_pixel_is_said_where_it_surely_changes_a_tenth(finding, below, said):
    found = finding(value=f64(0.3), interval=(f64(below), f64(0.5)), kind="estimate")
    sentences_of = by(audit_of({"vision/shift.classes": found}), "moves")
    assert [s.level for s in sentences_of] == ["warn"] * said
    if said:
        assert (
            "Moved by one pixel, .3" in sentences_of[0].text and "--augment shift:1" in sentences_of[0].todo
        )


@pytest.mark.parametrize(("side", "todo"), [(15, ""), (16, "Train longer, with shifted images")])
def test_shifts_are_advised_on_images_of_sixteen_pixels(finding, side, todo):
    curves = {"shorter side": torch.tensor([float(side)])}
    found = finding(value=f64(0.3), interval=(f64(0.2), f64(0.5)), kind="estimate", curves=curves)
    (sentence,) = by(audit_of({"vision/shift.classes": found}), "moves")
    assert sentence.todo.startswith(todo) and bool(sentence.todo) == bool(todo)
    assert ("; a pixel is 1/15 of their side." in sentence.text) == (side < 16)


def copier(kind):
    """A module that restores 16 numbers: as it was given them, through as many, or through 4."""
    if kind == "identity":
        return nn.Identity()
    axes = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(1)))[0]
    axes = axes if kind == "rotation" else axes[:, :4]
    model = nn.Sequential(nn.Linear(16, axes.shape[1], bias=False), nn.Linear(axes.shape[1], 16, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(axes.T)
        model[1].weight.copy_(axes if kind != "half" else axes / 2)
    return model


@pytest.mark.parametrize(
    ("kind", "flat", "level", "words"),
    [
        ("identity", False, "warn", "Copies its inputs, which are its targets: 1 of their variance"),
        ("rotation", False, "warn", "no layer is narrower than the 16 numbers of an example"),
        ("code", False, "warn", "its narrowest layer gives 4 numbers for 16."),  # R^2 is a quarter
        ("code", True, "good", "Restores its inputs, which are its targets: 1"),  # of 4 directions it is all
    ],
)
def test_a_model_that_restores_its_inputs_is_called_a_copy_where_it_has_no_bottleneck(
    kind, flat, level, words
):
    """Mutants: a copy is good news; a code that keeps all that varies is called a copy."""
    model, x = copier(kind), torch.randn(300, 16, generator=torch.Generator().manual_seed(2))
    if flat:
        x = model(x).detach()
    asked = ["residuals", "baseline", "memorization"]
    audit = margin.audit(model, (x[:100], x[:100]), train=(x[100:], x[100:]), claims=asked)
    said = by(audit, "right")[0]
    assert said.level == level
    assert words in said.text
    assert said.text.startswith("Copies") == (kind in ("identity", "rotation")) == ("PCA" in said.todo)


@pytest.mark.parametrize(
    ("of_class", "right", "level", "words"),
    [
        ([0, 50], 50, "unknown", "of 50 held-out examples, which are all of class 'b'"),
        ([5, 45], 46, "unknown", "Always 'b', the commonest held out, would be right for .9."),
        ([5, 45], 40, "warn", "Always 'b', the commonest held out, would be right for .9."),
        ([25, 25], 46, "good", "one constant answer for .1"),
    ],
)
def test_a_constant_of_the_held_out_part_is_a_rival_too(finding, of_class, right, level, words):
    """The training part's commonest is 'a', which is right for .1 or for none of the held-out examples."""
    share = right / 50
    wrong = 50 - right
    confusion = f64([of_class[0] - wrong / 2, wrong / 2], [wrong / 2, of_class[1] - wrong / 2])
    near = {50: (0.93, 1.0), 46: (0.81, 0.98), 40: (0.66, 0.895)}[right]
    found = {
        "theory/risk.accuracy": estimate(finding, share, *near),
        "theory/baseline.constant": estimate(finding, share - 0.1, 0.3, 0.95),
        "theory/confusion.recall": finding(value=f64(0.5, 0.5), curves={"confusion": confusion}),
    }
    audit = audit_of(found, facts={"held-out examples": 50}, class_names=("a", "b"))
    (said, *_) = by(audit, "right")
    assert (said.level, words in said.text) == (level, True), said


@pytest.mark.parametrize(("below", "level"), [(0.11, "bad"), (0.05, "warn"), (-0.05, "unknown")])
def test_it_has_memorized_where_the_gap_is_surely_ten_points(finding, below, level):
    """Of .15 the least possible counts, not the value."""
    ends = (f64(0.85, 0.7, below), f64(0.95, 0.8, 0.25))
    labels = ("training", "held-out", "gap")
    gap = finding(value=f64(0.9, 0.75, 0.15), kind="estimate", interval=ends, range=(-1, 1), labels=labels)
    (said,) = by(audit_of({"theory/memorization.accuracy": gap}), "memorized")
    assert said.level == level and said.text.startswith("Memorized: ") == (level == "bad")


@pytest.mark.parametrize(("below", "level"), [(0.21, "bad"), (0.1, "warn"), (-0.1, "good")])
def test_a_gap_of_losses_is_bad_where_it_is_surely_half_of_the_loss(finding, below, level):
    found = {
        "theory/risk.loss": estimate(finding, 0.4, 0.35, 0.45),
        "theory/risk.gap": estimate(finding, 0.25, below, 0.3),
    }
    (said,) = by(audit_of(found), "memorized")
    assert said.level == level


@pytest.mark.parametrize(("above", "level"), [(-0.11, "unknown"), (-0.09, "good")])
def test_a_training_part_that_is_far_harder_than_the_held_out_one_is_no_good_news(finding, above, level):
    ends = (f64(0.1, 0.8, above - 0.2), f64(0.3, 0.95, above))
    value = f64(0.2, 0.9, above - 0.1)
    gap = finding(
        value=value, kind="estimate", interval=ends, range=(-1, 1), labels=("training", "held-out", "gap")
    )
    (said,) = by(audit_of({"theory/memorization.accuracy": gap}), "memorized")
    assert said.level == level and ("how were they chosen" in said.todo) == (level == "unknown")


@pytest.mark.parametrize(
    ("value", "below", "above", "level"),
    [
        (0.15, -0.01, 0.18, "unknown"),  # a gain worth having, not known from none
        (0.05, -0.2, 0.25, "unknown"),  # what is not ruled out would be
        (0.05, -0.05, 0.15, "bad"),
    ],
)
def test_what_is_not_known_to_be_better_than_a_constant_is_bad_or_unknown(
    finding, value, below, above, level
):
    """Mutant: both the gain and what is possible must be large."""
    found = {
        "theory/risk.accuracy": estimate(finding, 0.5, 0.4, 0.6),
        "theory/baseline.constant": estimate(finding, value, below, above),
    }
    (said,) = by(audit_of(found), "right")
    assert said.level == level


@pytest.mark.parametrize(("count", "moved"), [(5, {0: 1, 1: 0}), (4, {})])
def test_a_relabeling_is_told_from_five_examples_of_a_class_on(count, moved):
    assert relabeled(torch.tensor([[0, count], [count, 0]]).double()) == moved


@pytest.mark.parametrize(
    ("below", "above", "level"),
    [
        (0.45, 0.55, "good"),
        (0.52, 0.58, "unknown"),
        (0.45, 0.65, "unknown"),
        (0.3, 0.45, "warn"),
        (0.2, 0.39, "bad"),
    ],
)
def test_samples_that_lie_nearer_than_held_out_rows_are_copies(finding, below, above, level):
    """Mutants: one end of the interval alone makes it good news; any doubt makes it bad."""
    farther = estimate(finding, (below + above) / 2, below, above)
    (said,) = by(audit_of({"generative/samples.memorization": farther}), "memorized")
    assert (said.level, "It copies" in said.todo) == (level, above < 0.5)


@pytest.mark.parametrize(
    ("value", "below", "level"), [(0.6, 0.4, "warn"), (0.6, 0.51, "bad"), (0.1, -0.1, "unknown")]
)
def test_samples_are_told_from_data_by_what_is_sure(finding, value, below, level):
    """Mutant: by the value, however unsure."""
    apart = estimate(finding, value, below, 0.9)
    (said,) = by(audit_of({"generative/samples.two_sample": apart}), "right")
    assert said.level == level


@pytest.mark.parametrize(
    ("below", "above", "level", "first"),
    [
        (0.01, 0.2, "good", "Better than"),
        (-0.1, 0.2, "unknown", "Not told apart from"),
        (-0.1, 0.09, "warn", "No better, as far as is known, than"),
        (-0.2, -0.01, "bad", "Worse than"),
    ],
)
def test_a_rival_is_beaten_by_what_is_sure_and_doubted_by_what_is_possible(
    finding, below, above, level, first
):
    """Mutant: that more examples are worth their trouble is told by the value."""
    gain = estimate(finding, 0.05 if above > 0 else -0.1, below, above)
    (said,) = by(audit_of({"generative/density.gain": gain}), "right")
    assert said.level == level and said.text.startswith(f"{first} a Gaussian")


@pytest.mark.parametrize(
    ("below", "above", "level", "todo"),
    [
        (0.72, 0.87, "good", ""),
        (0.69, 0.91, "unknown", ""),
        (0.6, 0.75, "warn", "too narrow"),
        (0.85, 0.95, "warn", "too wide"),
    ],
)
def test_a_band_that_is_met_by_a_wide_interval_is_not_known_to_be(finding, below, above, level, todo):
    share = estimate(finding, (below + above) / 2, below, above, low=f64(0.8))
    (said,) = by(audit_of({"sequence/forecast.coverage": share}), "probabilities")
    assert said.level == level and todo in said.todo


@pytest.mark.parametrize(
    ("half", "level", "first"),
    [
        (0.0005, "good", "As good as PCA of 2 components"),
        (0.05, "warn", "No better, as far as is known, than PCA of 2 components"),
        (0.2, "unknown", "Not told apart from PCA of 2 components"),
    ],
)
def test_a_code_is_as_good_as_pca_where_the_whole_interval_says_so(finding, half, level, first):
    """Mutant: the value alone says so."""
    ends = (f64(-half, 0.7), f64(half, 0.9))
    labels = ("PCA of 2 components", "a constant")
    found = finding(value=f64(0, 0.8), kind="estimate", interval=ends, range=(-9, 1), labels=labels)
    (said,) = by(audit_of({"generative/codes.baselines": found}), "right")
    assert said.level == level and said.text.startswith(first)
