import re
from html.parser import HTMLParser

import pytest
import torch

from margin.auditing.answers import Answer, Audit
from margin.auditing.hardest import Hardest
from margin.auditing.plots import DRAWINGS, learning_curves, plot
from margin.auditing.report import page, typeset, write_report
from margin.catalog import Claim

VOID = {"meta", "img", "br", "link", "input", "hr", "path", "line", "rect", "circle", "use"}
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


@pytest.fixture(scope="module")
def hard():
    return Hardest(
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
        hardest=hard,
        class_names=(EVIL, "b"),
    )


@pytest.fixture(scope="module")
def html(audit):
    return page(audit)


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
    text = " ".join(" ".join(checked(html).text).split())
    marks = ["61,706", "What was assumed", "task: classes", "Verdicts", "assuming examples are independent",
             "does not apply: needs a domain", "Findings", "A statement.",
             "Author 2000, theorem 1", "Training", "Hardest held-out examples"]  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_the_fragment_for_a_notebook_is_well_formed(audit):
    html = audit._repr_html_()
    parser = checked(html)
    assert "script" not in parser.tags
    assert "does not apply: needs a domain" in html


@pytest.mark.parametrize("name", CURVES)
def test_every_drawing_draws_in_the_colors_of_the_page(finding, name):
    svg = plot(name, finding(curves=CURVES[name]), "one")
    checked(svg)
    assert "var(--series-" in svg
    assert not re.search(r"#[0-9a-f]{6}", svg.replace("#000000", ""))
    assert plot(name, finding(curves=CURVES[name]), "one") == svg  # the same to the byte
    assert set(re.findall(r' id="([^-"]*)', svg)) <= {"one"}


def test_a_dollar_is_a_dollar(finding):
    svg = plot("other/claim.own", finding(curves={"x": torch.arange(3.0), "a $b$": torch.ones(3)}), "one")
    assert ">a $b$</text>" in svg


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_without_its_curves_falls_back_to_lines(finding, name):
    assert "<svg" in plot(name, finding(curves={"something": torch.arange(4.0)}), "one")
    assert plot(name, finding(curves={}), "one") == ""
    assert plot(name, finding(curves={"empty": torch.empty(0), "square": torch.ones(2, 2)}), "one") == ""


def test_margins_are_divided_at_0(finding):
    svg = plot("theory/margins.distribution", finding(curves=CURVES["theory/margins.distribution"]), "one")
    assert "2 above 0, 2 at or below" in svg
    assert "right: 2" in svg
    assert "wrong or tied: 2" in svg


@pytest.mark.parametrize("seed", range(20))
def test_no_margin_is_lost_and_no_bar_mixes_right_and_wrong(finding, seed):
    from margin.auditing.plots import margins
    from margin.auditing.svg import drawing

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


def test_learning_curves_show_what_changes(audit):
    assert [title for title, _ in learning_curves(audit.history, "t")] == ["loss", "accuracy"]
    assert learning_curves([], "t") == []
    assert learning_curves([{"step": 1, "train_loss": 2.0}], "t") == []


def test_a_long_history_stays_small():
    rows = [{"step": i, "train_loss": 1.0 + i * 7919 % 1009} for i in range(100_000)]
    ((_, svg),) = learning_curves(rows, "t")
    assert len(svg) < 60_000


def test_bars_place_value_reach_and_promise(finding):
    from margin.auditing.report import _bars

    def f64(x):
        return torch.tensor(x, dtype=torch.float64)

    found = finding(kind="estimate", stderr=f64(0.025), low=f64(0.3), range=(0.0, 2.0))
    window, (bar,) = _bars(found, 1)
    assert window == ("0", "2")
    assert bar.value == 25.0
    assert bar.reach == pytest.approx((20.0, 30.0), abs=1e-3)
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


def test_an_audit_without_findings_is_a_page_too():
    checked(page(Audit(title="empty", answers=())))
