import base64
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from margin.auditing.asking.answers import Answer, Audit
from margin.auditing.asking.requirements import Judgment, check_requirement, requirement_of
from margin.auditing.asking.worst_examples import WorstExamples
from margin.auditing.report.plots import learning_curves, plot
from margin.auditing.report.report import breakable, page, typeset, write_report
from margin.core.catalog import Claim, claims
from margin.engine.schema import sealed
from margin.figures.svg import drawing

VOID = {"meta", "img", "br", "wbr", "link", "input", "hr", "path", "line", "rect", "circle", "use"}
EVIL = "<script>alert('x')</script>"


class Checked(HTMLParser):
    """Every element closed in order, every identifier unique, every link to one of them."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.tags, self.text = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src"):
                self.links.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def checked(html):
    parser = Checked()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    for link in parser.links:
        assert link.startswith("data:image/png") or link[1:] in parser.ids
    for reference in re.findall(r"url\(#([^)]*)\)", html):
        assert reference in parser.ids
    return parser


def curves(**named):
    return {
        name.replace("_", " "): torch.as_tensor(values, dtype=torch.float64) for name, values in named.items()
    }


CURVES = {
    "theory/calibration.ece": curves(
        confidence=[0.2, float("nan"), 0.9], accuracy=[0.1, float("nan"), 0.95], count=[3.0, 0, 40]
    ),
    "theory/calibration.binary_ece": {
        "a: confidence": torch.tensor([0.5]), "a: accuracy": torch.tensor([0.5]), "a: count": torch.ones(1),
        "b: confidence": torch.tensor([0.1]), "b: accuracy": torch.tensor([0.3]), "b: count": torch.ones(1),
    },
    "theory/confusion.recall": {"confusion": torch.tensor([[8.0, 2.0], [2.0, 3.0]]).double()},
    "theory/ranking.auroc": curves(false_positive_rate=[0, 0, 0.5, 1], true_positive_rate=[0, 0.5, 1, 1]),
    "theory/residuals.r2": curves(observed=[0.0, 2, float("nan"), 4], predicted=[1.0, 2, 3, 3]),
    "theory/margins.distribution": curves(margins=[-1.0, 0.0, 0.5, 2.0]),
    "robust/linf.sandwich": curves(
        eps=[0.0, 0.1], clean=[0.9, 0.9], certified=[0.9, 0.2], fgsm=[0.9, 0.6], attacked=[0.9, 0.5]
    ),
    "robust/linf.fgsm": curves(eps=[0.0, 0.1], clean=[0.9, 0.9], fgsm=[0.9, 0.6], attacked=[0.9, 0.6]),
    "robust/l2.attack": curves(eps=[0.0, 0.1], attacked=[0.9, 0.6]),
    "theory/curvature.sharpness": curves(ritz_values=[-1.0, 0.0, 30.0], weights=[0.1, 0.8, 1e-5]),
    "theory/curvature.trace": curves(quadratic_forms=[1.0, 2.0, 3.0]),
    "other/claim.own": {EVIL: torch.arange(5.0), "a $b$": torch.arange(5.0)},
}  # fmt: skip


def figure_of(name: str) -> str:
    """The path of the drawing that the claim of that name states; "" of one that is in no table."""
    return claims()[name].figure if name in claims() else ""


@pytest.fixture(scope="module")
def hard():
    return WorstExamples(
        index=torch.tensor([7, 3]),
        inputs=torch.linspace(0, 1, 128).reshape(2, 1, 8, 8),
        targets=torch.tensor([0, 1]),
        predictions={"class": torch.tensor([1, 0]), "probability": torch.tensor([0.9, 0.8])},
        losses=torch.tensor([2.0, float("nan")]).double(),
        margins=torch.tensor([-2.0, -1.0]).double(),
    )


@pytest.fixture(scope="module")
def audit(every_verdict, finding, hard):
    def answer(name, found, refusal=""):
        claim = Claim(name=name, summary=f"{name}?", ask="", demo="", reference="")
        return Answer(claim, found, refusal, 0.5)

    found = {f"verdict/{name}": f for name, f in every_verdict.items()}
    found |= {name: finding(curves=c, statement=f"{name} {EVIL}") for name, c in CURVES.items()}
    labeled = {
        "value": torch.tensor([0.1, 0.4]),
        "labels": ("<b>one</b>", "two"),
        "range": (0.0, float("inf")),
    }
    found["labels/of"] = finding(**labeled)
    return Audit(
        title=EVIL,
        answers=(*(answer(*pair) for pair in found.items()), answer("no/attack", None, "needs a domain")),
        assumed=(f"task: classes {EVIL}",),
        facts={"parameters": 61706, EVIL: EVIL},
        history=[
            {"step": 1, "train_loss": 2.0, "val_loss": 2.5, "val_accuracy": 0.5, "lr": 0.1, "seconds": 1.0},
            {"step": 2, "train_loss": 1.0, "val_loss": None, "val_accuracy": 0.7, "lr": 0.1, "seconds": 2.0},
            {"step": 3, "train_loss": 0.5, "val_loss": 0.7, "val_accuracy": 0.6, "lr": 0.1, "seconds": 3.0},
        ],
        worst_examples=hard,
        class_names=(EVIL, "b"),
    )


@pytest.fixture(scope="module")
def html(audit):
    return page(audit)


def said_of(html):
    """Of each worst example what stands in its list or row, by name."""
    section = html[html.index('<section id="hardest">') :]
    section = section[: section.index("</section>")]
    return [
        dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", item))
        for item in re.findall(r"<li>(.*?)</li>", section, re.S)
    ], section


@pytest.mark.parametrize("channels", [1, 3])
def test_a_worst_image_stands_beside_its_label_the_prediction_and_its_probability(audit, hard, channels):
    inputs = torch.linspace(0, 1, 2 * channels * 64).reshape(2, channels, 8, 8)
    stated = hard.predictions | {"probability": torch.tensor([0.9999999, 0.8], dtype=torch.float64)}
    worst = replace(hard, inputs=inputs, predictions=stated)
    known, section = said_of(page(replace(audit, worst_examples=worst, class_names=("cat", "dog"))))
    assert [(e["label"], e["predicted"], e["no."]) for e in known] == [
        ("cat", "dog (&gt; .999)", "7"),
        ("dog", "cat (.8)", "3"),
    ]
    encoded = re.findall(r'src="data:image/png;base64,([^"]*)"', section)
    shown = [imread(io.BytesIO(base64.b64decode(each)))[..., :3] for each in encoded]
    for i, image in enumerate(shown):  # black and white are the least and the largest of each image
        x = inputs[i].numpy()
        expected = np.broadcast_to((x - x.min()) / (x.max() - x.min()), (3, 8, 8)).transpose(1, 2, 0)
        np.testing.assert_allclose(image, expected, atol=0.51 / 255)


def test_labels_beside_inputs_alone_are_no_targets(audit, hard):
    for name in ("code 1", "log density"):
        worst = replace(hard, predictions={name: torch.tensor([0.1, 0.2])}, margins=None)
        known, _ = said_of(page(replace(audit, worst_examples=worst)))
        assert [set(each) for each in known] == [{"loss", "no."}] * 2
        rows = replace(worst, inputs=torch.ones(2, 4))
        _, section = said_of(page(replace(audit, worst_examples=rows)))
        assert re.findall(r'<th scope="col">(.*?)</th>', section)[:3] == ["no.", "loss", "x<sub>1</sub>"]


def test_the_page_is_well_formed_alone_and_small(html):
    parser = checked(html)
    assert len(html.encode()) < 1.5e6
    html = re.sub(r'src="data:image/png;base64,[^"]*"', "", html)
    assert not re.search(r"https?:|//\w|@import|<script|<link|<iframe", html)
    assert not re.search(r"url\((?!#)", html)
    assert "script" not in parser.tags
    assert "prefers-color-scheme: dark" in html
    assert html.startswith("<!DOCTYPE html>")


def test_nothing_that_a_user_names_becomes_markup(html):
    parser = checked(html)
    assert EVIL in "".join(parser.text)
    assert "b" not in parser.tags


def test_the_page_says_everything_in_order(html):
    html = re.sub(r"<nav.*?</nav>", "", html, flags=re.DOTALL)  # the contents name the sections too
    text = " ".join(" ".join(checked(html).text).split())
    marks = ["verdict/violated is violated: promised ≤ .4, measured .5", "What was assumed", "task: classes",
             "61,706", "Where does it fail?", "Worst held-out examples", "Was the training finished?",
             "Training", "What does theory say", "Author 2000, theorem 1",
             "All verdicts in one table", "assuming examples are independent", "Left out: 1 claims",
             "does not apply: needs a domain"]  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    # the first screen has that of what is violated, and every finding its own
    assert text.index("A statement.") < text.index("What was assumed")
    assert text.index("A statement.", text.index("Author 2000")) < text.index("All verdicts in one table")


def test_a_remark_stands_once_beside_its_finding_and_once_in_the_table(audit, finding):
    claim = Claim(name="a/claim", summary="Is it?", ask="", demo="", reference="")
    told = replace(audit, answers=(Answer(claim, finding(remarks=("A remark to read.",)), "", 0.5),))
    html = page(told)
    article = html[html.index('<article id="a/claim"') :]
    assert article[: article.index("</article>")].count("A remark to read.") == 1
    assert html.count("A remark to read.") == 2


def test_the_fragment_for_a_notebook_is_well_formed(audit):
    html = audit._repr_html_()
    parser = checked(html)
    assert "script" not in parser.tags
    assert "does not apply: needs a domain" in html


@pytest.mark.parametrize("name", CURVES)
def test_every_drawing_draws_in_the_colors_of_the_page(finding, name):
    svg = plot(figure_of(name), finding(curves=CURVES[name]), "one")
    checked(svg)
    assert "var(--series-" in svg
    assert not re.search(r"#[0-9a-f]{6}", svg.replace("#000000", ""))
    assert plot(figure_of(name), finding(curves=CURVES[name]), "one") == svg  # the same to the byte
    assert set(re.findall(r' id="([^-"]*)', svg)) <= {"one"}


def test_a_dollar_is_a_dollar(finding):
    svg = plot(
        figure_of("other/claim.own"), finding(curves={"x": torch.arange(3.0), "a $b$": torch.ones(3)}), "one"
    )
    assert ">a $b$</text>" in svg


@pytest.mark.parametrize("name", CURVES)
def test_a_drawing_without_its_curves_falls_back_to_lines(finding, name):
    assert "<svg" in plot(figure_of(name), finding(curves={"something": torch.arange(4.0)}), "one")
    assert plot(figure_of(name), finding(curves={}), "one") == ""
    assert (
        plot(figure_of(name), finding(curves={"empty": torch.empty(0), "square": torch.ones(2, 2)}), "one")
        == ""
    )


@pytest.mark.parametrize(
    ("x", "fractions"), [([3.0, 4.0, 5.0], False), ([0.5, 1.0, 1.5], True)], ids=["counted", "measured"]
)
def test_what_is_counted_has_whole_ticks(finding, x, fractions):
    curves = {"window": torch.tensor(x), "loss": torch.tensor([1.0, 2.0, 3.0])}
    svg = plot(figure_of("other/topic.name"), finding(curves=curves), "p")
    ticks = re.findall(r">(−?[\d.]+)</text>", svg.partition("window</text>")[0])
    assert len(ticks) > 1
    assert any("." in tick for tick in ticks) == fractions


def test_margins_are_divided_at_0(finding):
    svg = plot(
        figure_of("theory/margins.distribution"), finding(curves=CURVES["theory/margins.distribution"]), "one"
    )
    assert "2 above 0, 2 at or below" in svg
    assert "right: 2" in svg
    assert "wrong or tied: 2" in svg


@pytest.mark.parametrize("seed", range(20))
def test_no_margin_is_lost_and_no_bar_mixes_right_and_wrong(finding, seed):
    from margin.figures.svg import drawing
    from margin.theory.prediction.figures import margins

    values = torch.randn(50, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 5 - 2)
    with drawing() as (_, axes):
        margins(axes, finding(curves={"margins": values}))
        bars = [patch for patch in axes.patches if patch.get_height()]
        assert sum(bar.get_height() for bar in bars) == 50
        left = [bar.get_x() + 1e-6 * bar.get_width() for bar in bars]  # an edge at 0 is drawn at 0 -+ 1e-17
        right = sum(bar.get_height() for bar, x in zip(bars, left, strict=True) if x > 0)
        assert right == int((values > 0).sum())
        assert all(
            x > 0 or x + bar.get_width() < 2e-6 * bar.get_width() for bar, x in zip(bars, left, strict=True)
        )


def confusion_axes(finding, cells, labels):
    from margin.theory.prediction.figures import confusion

    occurring = int((torch.tensor(cells).sum(1) > 0).sum())
    found = finding(
        value=torch.zeros(occurring).double(), labels=labels,
        curves={"confusion": torch.tensor(cells, dtype=torch.float64)},
    )  # fmt: skip
    with drawing() as (_, axes):
        said = confusion(axes, found)
        return axes, said


def test_a_confusion_matrix_has_the_true_classes_as_rows(finding):
    axes, said = confusion_axes(
        finding, [[8, 2, 0], [0, 3, 0], [1, 4, 5]], ("cat", "dog", "a very long name no. 7")
    )
    assert said == "confusion matrix of 3 classes: .696 of the examples lie on the diagonal"  # 16 of 23
    written = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in axes.texts}
    assert written == {(0, 0): "8", (0, 1): "2", (1, 1): "3", (2, 0): "1", (2, 1): "4", (2, 2): "5"}
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["cat", "dog", "a very…no. 7"]
    assert [label.get_text() for label in axes.get_xticklabels()] == names
    assert axes.yaxis_inverted()  # the first class is the top row
    assert (axes.get_ylabel(), axes.get_xlabel()) == (
        "true class",
        "predicted class (shade: share of the row)",
    )


def test_a_cell_is_shaded_by_its_share_of_the_row(finding):
    from matplotlib.colors import to_hex

    from margin.figures.svg import SERIES

    axes, _ = confusion_axes(finding, [[80, 20], [1, 1]], ("a", "b"))
    cells = {(round(c.get_y() + 0.5), round(c.get_x() + 0.5)): c for c in axes.patches}
    assert cells[0, 0].get_alpha() > cells[1, 1].get_alpha() > cells[0, 1].get_alpha() > 0.08
    assert cells[1, 0].get_alpha() == cells[1, 1].get_alpha()  # half a row, however few
    right, wrong = (
        {cells[k].get_facecolor()[:3] for k in keys} for keys in ([(0, 0), (1, 1)], [(0, 1), (1, 0)])
    )
    assert len(right) == len(wrong) == 1
    assert right != wrong
    assert {SERIES[0], SERIES[2]} == {to_hex(c) for c in right | wrong}


def test_a_class_without_examples_keeps_its_row_and_a_plain_name(finding):
    axes, _ = confusion_axes(finding, [[3, 0, 1], [0, 0, 0], [0, 1, 2]], ("cat", "dog"))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "class 1", "dog"]
    axes, _ = confusion_axes(finding, [[3, 1], [1, 2]], ("class 0", "class 1"))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]


@pytest.mark.parametrize(
    ("classes", "counted", "large"), [(2, True, False), (20, True, True), (21, False, True)]
)
def test_counts_are_written_for_up_to_20_classes(finding, classes, counted, large):
    cells = torch.eye(classes).double() * 12345 + 1
    found = finding(value=torch.zeros(classes).double(), labels=tuple(map(str, range(classes))),
                    curves={"confusion": cells})  # fmt: skip
    svg = plot(figure_of("theory/confusion.recall"), found, "one")
    assert svg.count(">12346</text>") == (classes if counted else 0)
    assert ("data:image/png" in svg) == (not counted)
    assert ('class="large" style="--width: ' in svg) == large
    assert f"confusion matrix of {classes} classes" in svg


def test_the_roc_curve_encloses_the_area_that_is_measured():
    from margin.theory.prediction.figures import roc
    from margin.theory.prediction.ranking import area, demo

    found = area(demo())
    with drawing() as (_, axes):
        roc(axes, found)
        (chance, curve) = axes.get_lines()
        x, y = (torch.as_tensor(ends) for ends in curve.get_data())
        assert float(torch.trapezoid(y, x)) == pytest.approx(0.75)  # 4.5 of 6 pairs
        assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
        assert [list(ends) for ends in chance.get_data()] == [[0, 1], [0, 1]]


def test_predictions_stand_against_what_was_observed(finding):
    from margin.figures.frames import MOST_DOTS
    from margin.theory.prediction.figures import agreement

    x = torch.arange(5001.0).double()
    found = finding(curves={"observed": x, "predicted": x.flip(0) / 2})
    with drawing() as (_, axes):
        said = agreement(axes, found)
        identity, dots = axes.get_lines()
        assert said.startswith("predicted against observed value of 2,000 of 5,001 examples")
        drawn = torch.as_tensor(dots.get_xdata()), torch.as_tensor(dots.get_ydata())
        assert len(drawn[0]) == MOST_DOTS
        assert torch.equal(drawn[1], (5000 - drawn[0]) / 2)  # pairs stay together
        assert list(identity.get_xdata()) == list(identity.get_ydata())
        assert axes.get_xlim() == axes.get_ylim()
        assert axes.get_xlim()[0] < 0 < 5000 < axes.get_xlim()[1]
    with drawing() as (_, axes):
        said = agreement(axes, finding(curves=CURVES["theory/residuals.r2"]))
        assert "of 3 examples" in said  # the one that is NaN is not drawn
    assert agreement(None, finding(curves=curves(observed=[float("nan")], predicted=[1.0]))) == ""


def test_axes_of_their_own_size_have_room_for_their_labels():
    from margin.figures.svg import WIDTH, sized

    with drawing() as (figure, axes):
        sized(axes, 0.7, 0.5, 3.3, 3.0)
        box = axes.get_position()
        width, height = figure.get_size_inches()
        assert width == WIDTH
        assert (box.x0 * width, box.y0 * height) == pytest.approx((0.7, 0.5))
        assert (box.width * width, box.height * height) == pytest.approx((3.3, 3.0))


def test_learning_curves_show_what_changes(audit):
    assert [title for title, _ in learning_curves(audit.history, "t")] == ["loss", "accuracy"]
    assert learning_curves([], "t") == []
    assert learning_curves([{"step": 1, "train_loss": 2.0}], "t") == []


def test_a_long_history_stays_small():
    rows = [{"step": i, "train_loss": 1.0 + i * 7919 % 1009} for i in range(100_000)]
    ((_, svg),) = learning_curves(rows, "t")
    assert len(svg) < 60_000


def test_bars_place_value_reach_and_promise(finding):
    from margin.auditing.report.report import _bars

    def f64(x):
        return torch.tensor(x, dtype=torch.float64)

    found = finding(kind="estimate", stderr=f64(0.025), low=f64(0.3), range=(0.0, 2.0))
    window, (bar,) = _bars(found, 1)
    assert window == ("0", "2")
    assert bar.value == 25.0
    assert bar.reach == pytest.approx((25 - 1.96 * 1.25, 25 + 1.96 * 1.25), abs=1e-3)
    assert bar.promise == (15.0, 100.0)
    near = finding(value=f64(412.38271), low=f64(412.3827), high=f64(412.3827), tolerance=1e-3,
                   range=(-float("inf"), float("inf")))  # fmt: skip
    (low, high), (bar,) = _bars(near, 1)
    assert low != high
    assert bar.promise[0] < bar.value < bar.promise[1]
    assert _bars(finding(value=f64(float("nan"))), 1) == (("", ""), [None])


@pytest.mark.parametrize(
    ("text", "html"),
    [
        (">= -.5", "≥ −.5"),
        ("3.2e-7 [1e-7, 2e5]", "3.2×10<sup>−7</sup> [1×10<sup>−7</sup>, 2×10<sup>5</sup>]"),
        ("[-inf, inf]", "[−∞, ∞]"),
        ("loss / weight^2", "loss / weight<sup>2</sup>"),
        ("layer-3 <i>", "layer-3 &lt;i&gt;"),
        ("information", "information"),
    ],
)
def test_numbers_are_set_as_in_print(text, html):
    assert str(typeset(text)) == html


def test_the_file_is_written_whole(audit, html, tmp_path):
    write_report(audit, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == html  # the same to the byte
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_an_audit_is_saved_as_findings_and_report(audit, html, tmp_path):
    report = audit.save(tmp_path / "new" / "place")
    assert report == tmp_path / "new" / "place" / "report.html"
    assert report.read_text(encoding="utf-8") == html
    document = json.loads(report.with_name("findings.json").read_text())
    assert document == json.loads(json.dumps(sealed(audit.as_json())))
    assert sorted(p.name for p in report.parent.iterdir()) == ["findings.json", "report.html"]
    empty = Audit(title="empty", answers=())
    with pytest.raises(FileExistsError, match=r"place holds an audit: .*, or replace it \(force"):
        empty.save(report.parent)
    assert report.read_text(encoding="utf-8") == html
    assert empty.save(report.parent, force=True) == report
    assert json.loads(report.with_name("findings.json").read_text())["title"] == "empty"
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        audit.save(tmp_path / "file")


def test_an_audit_without_findings_is_a_page_too():
    checked(page(Audit(title="empty", answers=())))


@pytest.fixture(scope="module")
def required(finding):
    """An audit with a requirement of every status, and one about a claim that was not reached."""

    def answer(name, found, skipped=""):
        claim = Claim(name=name, summary=f"{name}?", ask="", demo="", reference="")
        return Answer(claim, found, "", 0.5, skipped)

    recall = finding(value=torch.tensor([0.2, 0.9]).double(), labels=("cat", "dog"))
    loss = finding(kind="estimate", stderr=torch.tensor(0.1).double())
    judgments = [
        check_requirement(requirement_of(text), recall) for text in ("recall@dog>=.5", "recall@cat>=.9")
    ]
    judgments.append(check_requirement(requirement_of("loss<=.6"), loss))
    judgments.append(Judgment(requirement_of("ece<=.1"), {}, "not asked: interrupted"))
    answers = [answer("theory/confusion.recall", recall), answer("theory/risk.loss", loss)]
    answers.append(answer("theory/calibration.ece", None, "interrupted"))
    return Audit(title="m", answers=tuple(answers), judgments=tuple(judgments), interrupted=True)


def words(html):
    html = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    html = re.sub(r"</(td|th|p|li|dt|dd|a|span|h\d)>", r"\g<0> ", html)
    return re.sub(r" ([:,;])", r"\1", " ".join("".join(checked(html).text).split()))


def test_what_is_required_stands_at_the_top_and_beside_its_value(required):
    text = words(page(required))
    assert "2 findings: 2 measured; 1 not asked, interrupted" in text
    assert "Required: 1 missed, 2 undecided, 1 met (undecided counts as missed)" in text
    top = text[text.index("Requirements") : text.index("Contents")]
    assert top.index("recall@cat≥.9 is missed: cat: the value is .2") < top.index("loss≤.6 is undecided")
    assert "ece≤.1 is undecided: not asked: interrupted" in top
    assert "Met: recall@dog≥.5." in top
    assert text.count("recall@cat≥.9 is missed: cat: the value is .2") == 2  # at the top and beside its value
    assert "is met" not in text
    table = text[text.index("claim promised measured [95 %] verdict required") :]
    assert "cat – .2 measured ≥ .9 missed dog – .9 measured ≥ .5 met" in table
    assert "not asked: interrupted theory/calibration.ece" in text
    assert "#theory/calibration.ece" not in page(required)  # nothing to go to


def test_the_notebook_shows_what_is_required(required):
    text = words(required._repr_html_())
    assert "Required: 1 missed, 2 undecided, 1 met" in text
    assert "recall@cat≥.9 is missed: cat: the value is .2" in text
    assert "claim promised measured [95 %] verdict required" in text
    assert "cat – .2 measured ≥ .9 missed dog – .9 measured ≥ .5 met" in text


def test_nothing_is_said_of_requirements_where_there_are_none(audit):
    for html in (page(audit), audit._repr_html_()):
        assert "required" not in words(html).lower()


def test_the_contents_lead_to_every_section_and_finding(html, audit):
    contents = re.search(r"<nav.*?</nav>", html, flags=re.DOTALL)[0]
    linked = re.findall(r'href="#([^"]*)"', contents)
    places = re.findall(r'<(?:section|article|details) id="([^"]*)"', html)
    assert sorted(linked) == sorted(places)
    assert set(audit.findings) <= set(linked)


def test_findings_stand_under_their_question_the_pictures_first(finding):
    names = {"theory/risk.loss": "right", "theory/confusion.precision": "fails", "a/b": "",
             "theory/confusion.recall": "fails", "theory/risk.gap": "memorized"}  # fmt: skip
    claims = [
        Claim(name=n, summary=f"{n}?", ask="", demo="", reference="", question=q) for n, q in names.items()
    ]
    found = Audit(title="t", answers=tuple(Answer(claim, finding(), "", 0.1) for claim in claims))
    html = page(found)
    body = html[html.index('<div id="findings">') :]
    order = ["question-right", "theory/risk.loss", "question-fails", "theory/confusion.recall",
             "theory/confusion.precision", "question-memorized", "theory/risk.gap", "question-theory",
             "a/b"]  # fmt: skip
    assert [i for i in re.findall(r'id="([^"]*)"', body) if i in order] == order
    assert all(f'href="#{i}"' in html for i in order)
    assert "question-moves" not in html


def test_a_name_breaks_after_its_marks():
    assert str(breakable("a/b.c_d<./")) == "a/<wbr>b.<wbr>c_d&lt;./"
