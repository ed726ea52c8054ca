"""The book of theorems: a section a claim, blocks that run, and pages that a browser shows from a disk."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.test_violable import BROKEN

from margin.auditing.book.chapters import Section, chapters, parsed
from margin.auditing.book.theorems import broken, contents, output, page
from margin.cli import main
from margin.core.catalog import claims

NOVIKOFF = "classic/perceptron.novikoff"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def test_every_claim_has_one_section_with_a_formula() -> None:
    written = Counter(name for chapter in chapters() for name in chapter.sections)
    assert {name: count for name, count in written.items() if count > 1} == {}
    assert sorted(set(claims()) - set(written)) == []
    assert sorted(set(written) - set(claims())) == []
    bare = [n for c in chapters() for n, section in c.sections.items() if "$" not in section.text]
    assert bare == []


def test_every_chapter_is_opened() -> None:
    for chapter in chapters():
        assert len(chapter.text.split()) >= 80, chapter.name
        assert chapter.title != chapter.name


def test_what_is_promised_is_also_shown_to_break_or_as_it_is_often_printed() -> None:
    # a default claim promises where the table of wrong models has it; of others the reason
    # for which they are asked by name alone says so
    shown = {name for c in chapters() for name, part in c.sections.items() if part.broken or part.printed}
    known = {claim.name for claim in claims().values() if claim.by_name not in ("", "it takes long")}
    measured = {"vision/convnet.pyramid"}  # a habit, no theorem
    assert sorted((known | set(BROKEN)) - measured - shown) == []


def test_a_chapter_is_parsed() -> None:
    text = (
        "# Title\n\nOpening.\n\n## a/b.c: A name\n\nWords $x$.\n\n```python broken\nsubject = 1\n```\n"
        "\nMore.\n\n## a/d: Another\n\n```python printed\nprint(2)\n```\n"
    )
    chapter = parsed("one", text)
    assert (chapter.title, chapter.text) == ("Title", "Opening.")
    assert chapter.sections == {
        "a/b.c": Section("A name", "Words $x$.\n\n\nMore.", broken="subject = 1\n"),
        "a/d": Section("Another", "", printed="print(2)\n"),
    }


def test_a_chapter_ends_with_its_exercise() -> None:
    blocks = {
        "text exercise": "claim: a/b.c\njudge: laws:f\nminutes: 5\n",
        "python stub": "def f(): ...\n",
        "python answer": "def f():\n    return 1\n",
        "python wrong: it is 2": "def f():\n    return 2\n",
    }
    told = "\n".join(f"```{kind}\n{code}```\n" for kind, code in blocks.items())
    chapter = parsed("one", f"# T\n\nOpening.\n\n## exercise f: A term\n\nWrite it.\n\n{told}")
    task = chapter.exercises["f"]
    assert chapter.sections == {}
    assert (task.name, task.title, task.text, task.claim) == ("f", "A term", "Write it.", "a/b.c")
    assert (task.judge, task.minutes) == ("margin.auditing.exercises.laws:f", 5)
    assert task.wrong == {"it is 2": blocks["python wrong: it is 2"]}
    shown = contents(chapter, [("b-c", "Title", "what")])
    before, _, answer = shown.partition("<details>")
    assert "## Exercise: A term" in before
    assert "The theorem: [Title](one/b-c.md)." in before
    assert "The theorem" not in contents(chapter, [])
    assert blocks["python stub"] in before
    assert "margin exercise f f.py" in before
    assert blocks["python answer"] in answer
    assert "return 2" not in shown
    assert answer.index("</details>") < answer.index("toctree")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Opening.\n", "a chapter must begin with its title"),
        ("# T\n\n## a/b\n\nWords\n", "headed 'claim: title', once"),
        ("# T\n\n## a/b: One\n\n## a/b: Two\n", "headed 'claim: title', once"),
        ("# T\n\n## exercise f: One\n\n```python stub\npass\n```\n", "a stub and an answer: f has stub"),
    ],
)
def test_a_chapter_that_is_misshapen_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed("one", text)


def test_what_is_to_break_must_break() -> None:
    claim = claims()[NOVIKOFF]
    with pytest.raises(ValueError, match=r"was to break classic/perceptron\.novikoff gave holds"):
        broken(claim, "from margin.classic.perceptron.claims import demo\nsubject = demo()\n")
    with pytest.raises(ValueError, match="must make a subject"):
        broken(claim, "x = 1\n")


def test_a_printed_form_is_run() -> None:
    assert output("n = 4\nprint('mistakes:', n)\n") == "mistakes: 4"


def test_a_page_has_the_demonstration_the_break_and_the_code() -> None:
    section = next(c.sections[NOVIKOFF] for c in chapters() if NOVIKOFF in c.sections)
    text = page(claims()[NOVIKOFF], section)
    assert text.startswith(f"# {section.title}\n")
    demonstration, _, rest = text.partition("## Where it breaks")
    assert re.search(r'verdict holds">holds', demonstration)
    assert re.search(r'verdict unfounded">unfounded', rest)
    assert "*refuted*: some hyperplane separates the examples" in rest
    assert "nan" not in re.sub(r"```.*?```", "", rest, flags=re.DOTALL)
    assert "def novikoff(subject: Subject" in rest
    assert f"margin audit RUN --claims {NOVIKOFF}" in rest
    assert "Novikoff 1962" in rest


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    assert main(["claims", NOVIKOFF, "--book", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# in a browser, from the disk


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    out = tmp_path_factory.mktemp("book")
    command = (sys.executable, "-m", "margin", "claims", NOVIKOFF, "calibration.ece", "--book", str(out))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with sync_api.sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def opened(browser: Any, address: str, width: int, scheme: str = "light") -> tuple[Any, list[str]]:
    """A page, and what it said on the console or asked of anyone but the disk."""
    found = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    found.on("console", lambda message: said.append(message.text))
    found.on("request", lambda request: request.url.startswith("file:") or said.append(request.url))
    found.goto(address)
    return found, said


def test_search_finds_a_name_from_the_disk(site: Path, browser: Any) -> None:
    shown, said = opened(browser, f"{(site / 'search.html').as_uri()}?q=Novikoff", 1280)
    shown.wait_for_selector("#search-results li a", timeout=20_000)
    titles = shown.locator("#search-results li a").all_text_contents()
    assert any("Novikoff" in title for title in titles)
    assert said == []
    shown.close()


@pytest.mark.parametrize("width", [1280, 1100, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_shown_whole(site: Path, browser: Any, width: int, scheme: str) -> None:
    place = site / "theorems" / "perceptrons" / "perceptron-novikoff.html"
    shown, said = opened(browser, place.as_uri(), width, scheme)
    box = shown.locator("math").nth(0).bounding_box()
    assert box is not None
    assert box["width"] > 10
    assert box["height"] > 10
    fraction = shown.locator(".formula mfrac").first.bounding_box()
    assert fraction is not None
    assert fraction["height"] > 20  # R stands above gamma
    assert shown.locator("merror").count() == 0
    pictures = shown.locator(".finding figure svg")
    assert pictures.count() == 1
    assert len(pictures.first.get_attribute("aria-label")) > 10
    assert shown.evaluate("document.scrollingElement.scrollWidth") <= width
    text, beside = (
        shown.locator("article p").nth(1).bounding_box(),
        shown.locator(".toc-drawer").bounding_box(),
    )
    assert text["x"] + text["width"] <= max(beside["x"], 0) or beside["x"] >= width or beside["width"] == 0
    paper, ink = shown.evaluate(
        "[document.body, document.querySelector('h1')].map((e, i) =>"
        " getComputedStyle(e)[['backgroundColor', 'color'][i]].match(/\\d+/g).slice(0, 3).map(Number))"
    )
    assert (sum(paper) > sum(ink)) == (scheme == "light")
    assert said == []
    shown.close()
