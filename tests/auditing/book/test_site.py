"""The site is built whole: the written pages, the book, the gallery and the reference."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


# four minutes on both cores: every demonstration is measured and drawn, and a model of each kind trained;
# it lies among the first tests, so that the others run beside it
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for needed in ("sphinx", "nbclient", "ipykernel"):
        pytest.importorskip(needed)
    command = [sys.executable, str(ROOT / "docs" / "build_site.py"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("index", "commands", "catalog", "results", "verdicts", "reference/margin.robust"):
        assert (tmp_path / f"{name}.html").stat().st_size > 5_000
    assert "classic/perceptron" in (tmp_path / "catalog.html").read_text()
    assert "margin train" in (tmp_path / "commands.html").read_text()
    assert "Float[Tensor" in re.sub("<[^>]+>", "", (tmp_path / "reference/margin.classic.html").read_text())
    for path in NOTEBOOKS:
        shown = (tmp_path / "tutorials" / f"{path.stem}.html").read_text()
        assert shown.count('class="shown"') + shown.count('class="printed') >= 6
        assert re.findall(r'<svg[^>]*role="img" aria-label="[^"]{20}', shown)
        assert f"{path.stem}.ipynb" in shown
    faults = [p.name for p in tmp_path.rglob("*.html") if "system-message" in p.read_text()]
    assert not faults
