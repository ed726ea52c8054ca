"""The README's own example runs as it stands, and its commands exist."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from margin.cli import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_audits_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    np.save("inputs.npy", generator.random((40, 1, 4, 4)).astype(np.float32))
    np.save("labels.npy", np.arange(40) % 3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))
    torch.save(model.state_dict(), "weights.pt")
    example = re.search(r"```python\n(import margin.*?)```", README, re.DOTALL)[1]
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert "40 held-out examples" in capsys.readouterr().out
    assert "linf.sandwich" in str(names["audit"].table())
    assert (tmp_path / "audit" / "report.html").stat().st_size > 20_000


def test_every_command_it_names_exists() -> None:
    named = set(re.findall(r"^margin (\w+)", README, re.MULTILINE)) | set(
        re.findall(r"`margin (\w+)", README)
    )
    assert named <= set(COMMANDS)
    assert len(named) >= 6


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_what_it_links_to_is_there(name: str) -> None:
    """The site's own links are checked by Sphinx as it is built."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []
    assert links or name != "README.md"
