"""The tutorials: notebooks of docs/tutorials, executed once, as pages with what their cells showed."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent / "tutorials"
NAMES = ("audit", "forecast", "hessian", "diffusion", "graphs", "certify")
"""In the order of the pages."""

SECONDS = 300
"""A cell may take at most."""


def write(folder: Path, name: str) -> None:
    """Execute a notebook in an empty directory, and write its page; an error in a cell ends the build.

    Args:
        folder: Where the page is written.
        name: One of :data:`NAMES`.
    """
    notebook = nbformat.read(HERE / f"{name}.ipynb", as_version=4)
    with tempfile.TemporaryDirectory() as room:
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            resources={"metadata": {"path": room}},
            coalesce_streams=True,
            extra_arguments=["--log-level=ERROR"],  # it warns of TCP, which stays on this machine
        )
        client.execute(env={**os.environ, "OMP_NUM_THREADS": "1", "IPYTHONDIR": room})
    parts = [part(cell) for cell in notebook.cells]
    parts.insert(
        1, f"{{download}}`The notebook <{name}.ipynb>` of this page, whose cells ran when it was built."
    )
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text("\n\n".join(parts) + "\n")


def part(cell: Any) -> str:
    """A cell as Markdown of MyST, with what it showed."""
    if cell.cell_type == "markdown":
        return str(cell.source)
    return "\n\n".join([f"```python\n{cell.source}\n```", *filter(None, map(shown, cell.outputs))])


def shown(output: Any) -> str:
    """An output: HTML as it is, else text.

    Raises:
        ValueError: It is a picture, which takes no color of the page and tells the blind nothing.
    """
    if output.output_type == "stream":
        return text(output.text)
    if html := output.data.get("text/html"):
        return f'``````{{raw}} html\n<div class="shown">{html}</div>\n``````'
    if "image/png" in output.data:
        raise ValueError("a picture must be drawn by margin.figures.svg: got a PNG")
    return text(output.data["text/plain"])


def text(printed: str) -> str:
    """What a cell printed."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", printed).rstrip()
    return f"``````{{code-block}} text\n:class: printed\n\n{plain}\n``````" if plain else ""
