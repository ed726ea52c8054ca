"""The report as a browser shows it: on a phone, a desk and paper, in light and dark, by keyboard."""

import re
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from margin.auditing.asking.answers import Answer, Interrupted
from margin.auditing.asking.audit import audit as audit_of
from margin.auditing.report.report import write_report
from margin.core.catalog import Claim

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no chromium on this machine", allow_module_level=True)

REPORTS = ("classes", "regression", "interrupted", "names")
PHONE, TABLET, DESK = 390, 850, 1400
PAPER = 673
"""CSS pixels of an A4 page's width less the margins of 16 mm that the report sets."""

OUTSIDE = """() => {
  const scrolled = e => { for (let p = e.parentElement; p; p = p.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(p).overflowX)) return true; return false; };
  const out = [...document.body.querySelectorAll("*")].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && (box.right > innerWidth + .5 || box.left < -.5) && !scrolled(e); });
  const wide = document.scrollingElement.scrollWidth;
  return [...(wide > innerWidth ? [`page of ${wide}`] : []), ...out.map(e => e.outerHTML.slice(0, 80))]; }"""
"""What is wider than the window and lies in nothing that scrolls."""

OVERLAPPING = """() => {
  const drawn = e => { const range = document.createRange(); range.selectNodeContents(e);
    return [...range.getClientRects()]; };
  return [...document.querySelectorAll(".pictures dt")].filter(e => drawn(e).some(a =>
    drawn(e.nextElementSibling).some(b => a.right > b.left && a.top < b.bottom && b.top < a.bottom)))
    .map(e => e.textContent); }"""
"""Words beside a picture that stand over what they name."""

BROKEN = """() => [...document.querySelectorAll(".topics dt a, .topics dd a")].filter(e => {
  const range = document.createRange(); range.selectNodeContents(e);
  return range.getClientRects().length > 1; }).map(e => e.textContent)"""
"""Names of the contents that stand in more than one line."""

FAINT = """least => {
  const parse = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = ([r, g, b, a], below) => [r, g, b].map((x, i) => a * x + (1 - a) * below[i]);
  const linear = x => (x /= 255) <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.map(linear); return .2126 * r + .7152 * g + .0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((x, y) => y - x);
    return (x + .05) / (y + .05); };
  const opacity = e => { let o = 1; for (; e && e.nodeType === 1; e = e.parentElement)
    o *= Number(getComputedStyle(e).opacity); return o; };
  const paint = (e, what, alpha) => { const s = getComputedStyle(e);
    if (s[what] === "none") return [0, 0, 0, 0];
    const [r, g, b, a] = parse(s[what]);
    return [r, g, b, a * Number(alpha ? s[alpha] : 1) * opacity(e)]; };
  const ground = e => { const stack = []; for (; e && e.nodeType === 1; e = e.parentElement) stack.unshift(e);
    return stack.reduce((c, e) => over(parse(getComputedStyle(e).backgroundColor), c), [255, 255, 255]); };
  const drawn = new Map(), shapes = svg => { if (!drawn.has(svg)) drawn.set(svg,
    [...svg.querySelectorAll("path, rect, circle, use")].filter(s => !s.closest("defs"))
      .map(s => [s, s.getBoundingClientRect(), paint(s, "fill", "fillOpacity")])); return drawn.get(svg); };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
    if (!text || !e.getClientRects().length || e.closest("style")) continue;
    const svg = e.closest("svg"), box = e.getBoundingClientRect();
    const x = box.x + box.width / 2, y = box.y + box.height / 2;
    let below = ground(e);
    if (svg) for (const [shape, b, fill] of shapes(svg))
      if (b.left <= x && x <= b.right && b.top <= y && y <= b.bottom && shape.compareDocumentPosition(e) & 4)
        below = over(fill, below);
    const found_ratio = ratio(over(svg ? paint(e, "fill", "fillOpacity") : paint(e, "color"), below), below);
    seen += 1;
    if (!(found_ratio >= least)) found.push(`${text.slice(0, 40)}: ${found_ratio.toFixed(2)}`);
  }
  return [seen, found]; }"""
"""How many pieces of text there are, and those whose contrast with what lies behind them is too small."""

PLACE = """() => {
  const target = document.querySelector(":target"), page = document.scrollingElement;
  const last = page.scrollTop + innerHeight >= page.scrollHeight - 1;
  return [target.id, target.getBoundingClientRect().top, last]; }"""
"""Where a link has led: the element, its distance from the top, whether the page ends there."""

NEXT = """() => {
  const target = document.querySelector(":target");
  const next = [...document.querySelectorAll("a[href], summary, [tabindex='0']")].find(
    e => e.checkVisibility() && target.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING);
  const now = document.activeElement;
  return next ? now === next : now === document.body || now.className === "skip"; }"""
"""Whether the focus is on the first thing behind the target; back at the page's start, if there is none."""


UNFOLD = "document.querySelectorAll('details').forEach(e => { e.open = true; })"
"""Opens what is folded."""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield started
        started.close()


def nearest_mean(x, y):
    """The linear classifier whose scores are the distances to the class means, no training needed."""
    means = torch.stack([x[y == k].flatten(1).mean(0) for k in range(10)]) / 8
    layer = nn.Linear(64, 10)
    with torch.no_grad():
        layer.weight.copy_(means / 8)
        layer.bias.copy_(-means.square().sum(1) / 2)
    return nn.Sequential(nn.Flatten(), layer)


def digits():
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32)[:, None]
    y = torch.tensor(data.target)
    return nearest_mean(x[:1000], y[:1000]), (x[1000:1300], y[1000:1300])


def classes(every_verdict):
    """Real claims with their pictures, and a finding of every verdict."""
    model, held_out = digits()
    found = audit_of(
        model, held_out, claims=["risk", "confusion", "margins", "calibration.ece"], domain=(0.0, 16.0)
    )
    names = [f"verdict/of.{name}" for name in every_verdict]
    rows = [Claim(name=name, summary="Does it hold?", ask="", demo="", reference="") for name in names]
    answers = [Answer(c, f, "", 0.1) for c, f in zip(rows, every_verdict.values(), strict=True)]
    history = [{"step": i, "train_loss": 2.0 / i, "val_loss": 2.5 / i} for i in range(1, 9)]
    return replace(found, answers=(*found.answers, *answers), history=history)


def regression():
    """All that is required is met; rows of a table as the hardest examples."""
    from sklearn.datasets import load_diabetes

    x, y = (torch.tensor(column, dtype=torch.float32) for column in load_diabetes(return_X_y=True))
    weights = torch.linalg.lstsq(torch.cat((x, torch.ones(len(x), 1)), 1), y[:, None]).solution.flatten()
    layer = nn.Linear(10, 1)
    with torch.no_grad():
        layer.weight.copy_(weights[:10])
        layer.bias.copy_(weights[10])
    return audit_of(
        nn.Sequential(layer, nn.Flatten(0)),
        (x, y),
        claims=["residuals", "risk"],
        require=["r2>=.3", "mae<=60"],
    )


def interrupted():
    """A requirement of each status, a claim that was not reached, Ctrl-C after the fourth."""

    def stop(claim, position, count):
        if position > 4:
            raise KeyboardInterrupt

    model, held_out = digits()
    required = [
        "accuracy>=.5",
        "recall@3>=.999",
        "balanced_accuracy>=.89",
        "ece<=.5",
        "margins.distribution@median>=0",
    ]
    with pytest.raises(Interrupted) as stopped:
        audit_of(model, held_out, require=required, claims=["risk", "confusion"], progress=stop)
    return stopped.value.audit


def names(finding):
    """A matrix of 20 classes as wide as the page, long names that know no break, a dotted run of text."""
    long = tuple(f"a_class_whose_name_is_long_and_has_no_blank_number_{k}" for k in range(20))
    cells = 100.0 * torch.eye(20).double() + 7.0
    found = finding(value=torch.linspace(0, 1, 20).double(), labels=long, curves={"confusion": cells})
    claim = Claim(name="theory/confusion.recall", summary="How much?", ask="", demo="", reference="")
    plain = replace(
        claim, name="other/topic.with_a_name_that_is_as_long_as_a_name_can_ever_become_in_practice"
    )
    wide = finding(value=torch.tensor(3.1234567e-9).double(), unit="loss / weight^2", range=(-1.0, 1.0))
    found = (Answer(claim, found, "", 0.1), Answer(plain, wide, "", 0.1))
    empty = audit_of(nn.Identity(), (torch.eye(3).repeat(4, 1), torch.arange(12) % 3), claims=["accuracy"])
    return replace(empty, title="a/path/without/a/blank/" + "x" * 90, answers=found, class_names=long)


@pytest.fixture(scope="module")
def audits(every_verdict, finding):
    return {
        "classes": classes(every_verdict),
        "regression": regression(),
        "interrupted": interrupted(),
        "names": names(finding),
    }


@pytest.fixture(scope="module")
def addresses(audits, tmp_path_factory):
    directory = tmp_path_factory.mktemp("reports")
    for name, found in audits.items():
        write_report(found, directory / f"{name}.html")
    return {name: (directory / f"{name}.html").as_uri() for name in audits}


@pytest.fixture(params=REPORTS)
def address(request, addresses):
    return addresses[request.param]


@pytest.fixture
def page(browser):
    """A page that notes all that a report must not cause."""
    opened = browser.new_page(viewport={"width": DESK, "height": 900})
    opened.said, opened.asked = [], []
    opened.on("console", lambda message: opened.said.append(message.text))
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.on("request", lambda request: opened.asked.append(request.url))
    yield opened
    opened.close()


def test_a_report_is_silent_and_asks_for_nothing_but_itself(page, address):
    page.goto(address)
    page.wait_for_load_state("networkidle")
    assert page.said == []
    assert [url for url in page.asked if not url.startswith("data:")] == [address]


@pytest.mark.parametrize("width", [PHONE, TABLET, DESK])
def test_words_beside_a_worst_image_stand_before_what_they_name(page, addresses, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(addresses["classes"])
    assert page.locator(".pictures dt").count() > 4
    assert page.evaluate(OVERLAPPING) == []


@pytest.mark.parametrize("width", [PHONE, TABLET, DESK])
def test_nothing_sticks_out_of_the_page(page, address, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address)
    assert page.evaluate(OUTSIDE) == []
    page.evaluate(UNFOLD)
    assert page.evaluate(OUTSIDE) == []


MATRIX = """() => { const svg = document.querySelector("figure.wide svg"), box = svg.parentElement;
  return [svg.getBoundingClientRect().width, box.clientWidth, box.scrollWidth,
    getComputedStyle(box).backgroundImage.split("linear-gradient").length - 1]; }"""
"""The width of a large figure, of what is seen of it and of all of it; the shadows at its edges."""


def test_a_confusion_matrix_of_many_classes_is_smaller_on_a_phone_and_says_that_it_scrolls(page, tmp_path):
    torch.manual_seed(0)
    model, x, names = nn.Linear(8, 18), torch.randn(200, 8), [f"the long name of kind {i}" for i in range(18)]
    audit = audit_of(model, (x, model(x).argmax(1)), claims=["confusion.recall"], class_names=names)
    page.goto(audit.save(tmp_path / "audit").as_uri())
    whole, seen, wide, shadows = page.evaluate(MATRIX)
    assert wide <= seen and shadows == 4
    page.set_viewport_size({"width": PHONE, "height": 900})
    small, seen, wide, shadows = page.evaluate(MATRIX)
    assert small == pytest.approx(0.75 * whole, abs=1) and shadows == 4
    assert seen < wide == pytest.approx(small, abs=1)  # in its own box: the page is as wide as the phone
    assert page.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("width", [PHONE, TABLET, DESK])
def test_names_of_the_contents_are_whole(page, finding, tmp_path, width):
    """The longest topics of the catalog are wider than their usual column."""
    names = (
        "classic/dense_associative_memory.energy",
        "sequence/attention_seq2seq.alignment",
        "theory/risk.loss",
    )
    claim = Claim(name="", summary="How much?", ask="", demo="", reference="")
    found = tuple(Answer(replace(claim, name=name), finding(), "", 0.1) for name in names)
    empty = audit_of(nn.Identity(), (torch.eye(3).repeat(4, 1), torch.arange(12) % 3), claims=["accuracy"])
    write_report(replace(empty, answers=found), tmp_path / "names.html")
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((tmp_path / "names.html").as_uri())
    assert page.evaluate(BROKEN) == []
    assert page.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_what_is_behind_it(page, address, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(address)
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    page.evaluate(UNFOLD)
    seen, faint = page.evaluate(FAINT, 4.5)
    assert seen > 50
    assert faint == []


def test_paper_is_white_and_cuts_nothing_off(page, address):
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": PAPER, "height": 900})
    page.goto(address)
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(OUTSIDE) == []
    scrolled = "e => ['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX)"
    assert (
        page.evaluate(f"[...document.querySelectorAll('main *:not(svg, svg *)')].filter({scrolled}).length")
        == 0
    )
    assert page.evaluate(FAINT, 4.5)[1] == []
    printed = page.pdf(format="A4", prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2


def focused(page, what):
    return page.evaluate(f"(e => {what})(document.activeElement)")


def test_the_contents_lead_everywhere_by_keyboard(page, address):
    page.goto(address)
    page.keyboard.press("Tab")
    assert focused(page, "e.textContent") == "Skip to the findings"
    assert focused(page, "e.getBoundingClientRect().top >= 0")
    links = page.evaluate("[...document.querySelectorAll('nav a')].map(e => e.getAttribute('href'))")
    parts = page.evaluate(
        "[...document.querySelectorAll('section[id], article[id], details[id]')].map(e => '#' + e.id)"
    )
    assert sorted(links) == sorted(parts)
    for _ in range(20):
        page.keyboard.press("Tab")
        if focused(page, "e.closest('nav') !== null"):
            break
    reached = []
    while focused(page, "e.closest('nav') !== null"):
        style = focused(page, "(s => [s.outlineStyle, parseFloat(s.outlineWidth)])(getComputedStyle(e))")
        assert style[0] != "none"
        assert style[1] >= 2
        reached.append(focused(page, "e.getAttribute('href')"))
        page.keyboard.press("Tab")
    assert reached == links


@pytest.mark.parametrize("name", ["classes", "interrupted"])
def test_enter_on_a_link_of_the_contents_goes_there(page, addresses, name):
    page.goto(addresses[name])
    for link in page.query_selector_all("nav a"):
        link.focus()
        page.keyboard.press("Enter")
        name, top, last = page.evaluate(PLACE)
        assert f"#{name}" == link.get_attribute("href")
        assert abs(top) < 40 or (last and 0 <= top < 900)
        page.keyboard.press("Tab")
        assert page.evaluate(NEXT)


def test_the_structure_is_what_a_screen_reader_expects(page, address):
    page.goto(address)
    count = lambda selector: len(page.query_selector_all(selector))
    assert (
        count("h1") == count("main") == count("html[lang=en]") == count("nav[aria-labelledby=contents]") == 1
    )
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(e => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    assert count("img") == count("img[alt]:not([alt=''])")
    assert count("main svg") == count("main svg[role=img][aria-label]:not([aria-label=''])")
    assert count("th") == count("th[scope]")
    bare = "e => !(e.textContent.trim() || e.getAttribute('aria-label'))"
    assert page.evaluate(f"[...document.querySelectorAll('a')].filter({bare}).length") == 0
    lost = "e => !document.getElementById(decodeURIComponent(e.hash.slice(1)))"
    assert page.evaluate(f"[...document.querySelectorAll('a')].filter({lost}).map(e => e.hash)") == []
    assert page.evaluate("[...document.body.children].map(e => e.tagName)") == ["A", "MAIN"]
    page.set_viewport_size({"width": PHONE, "height": 900})
    mute = "e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.tabIndex < 0"
    assert page.evaluate(f"[...document.querySelectorAll('body *')].filter({mute}).length") == 0


def test_a_reviewer_sees_at_once_what_is_not_met(page, addresses, audits):
    page.goto(addresses["interrupted"])
    first = page.inner_text("main > header")
    assert "not asked, interrupted" in first
    assert re.search(r"Required: \d missed, \d undecided, \d met", first)
    assert page.evaluate("document.getElementById('requirements').getBoundingClientRect().bottom") < 900
    said = " ".join(page.inner_text("#requirements").split())
    short = [j for j in audits["interrupted"].judgments if j.status != "met"]
    assert {str(j.status) for j in short} == {"missed", "undecided"}
    for judgment in short:
        assert f"is {judgment.status}: " in said
        assert judgment.why.split("[")[0].strip() in said
    page.evaluate(UNFOLD)
    assert page.inner_text(".verdicts thead").split()[-1].lower() == "required"
    page.goto(addresses["classes"])
    assert page.query_selector("#requirements") is None
    assert "required" not in page.inner_text("main").lower()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_table_in_a_notebook(page, audits, scheme):
    ink, paper = ("#111", "#fff") if scheme == "light" else ("#eee", "#111")
    html = audits["interrupted"]._repr_html_()
    page.set_viewport_size({"width": TABLET, "height": 900})
    style = f"body {{ margin: 2em; font: 14px sans-serif; color: {ink}; background: {paper}; }}"
    page.set_content(f"<style>{style}</style><table id=other><tr><th>x</th></tr></table>{html}<p>after</p>")
    assert page.said == []
    assert page.evaluate(OUTSIDE) == []
    seen, faint = page.evaluate(FAINT, 4.5)
    assert seen > 30
    assert faint == []
    assert "required" not in page.inner_text(".margin-audit details")
    page.evaluate(UNFOLD)
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(FAINT, 4.5)[1] == []
    assert page.inner_text(".margin-audit thead").split()[-1] == "required"
    assert "is missed: " in page.inner_text(".margin-audit")
    assert page.evaluate("getComputedStyle(document.querySelector('#other th')).fontWeight") == "700"
