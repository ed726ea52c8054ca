"""The tutorials: notebooks of docs/tutorials, executed by one kernel, as pages with what they showed."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

HERE = Path(__file__).parent / "tutorials"
NAMES = ("audit", "forecast", "hessian", "diffusion", "graphs", "certify")
"""In the order of the pages."""

SECONDS = 300
"""A cell may take at most."""


FORGET = "%reset -f\nimport os; os.chdir({room!r}); del os"
"""What is run before a notebook, as its first cell: of the one before nothing is left."""


def write(folder: Path) -> None:
    """Execute the notebooks, each in an empty directory and namespace, and write their pages.

    One kernel serves them all: what they import is imported once. An error in a cell ends the build.

    Args:
        folder: Where the pages are written.
    """
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as room:
        kernel = AsyncKernelManager(kernel_name="python3")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPYTHONDIR": room}
        quiet = ["--log-level=ERROR"]  # it warns of TCP, which stays on this machine
        run_sync(kernel.start_kernel)(extra_arguments=quiet, env=environment, cwd=room)
        try:
            for name in NAMES:
                own = Path(room) / name
                own.mkdir()
                (folder / f"{name}.md").write_text(page(name, kernel, own))
        finally:
            run_sync(kernel.shutdown_kernel)(now=True)


def page(name: str, kernel: AsyncKernelManager, room: Path) -> str:
    """The page of a notebook that a kernel executes in a directory, as Markdown of MyST."""
    notebook = nbformat.read(HERE / f"{name}.ipynb", as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(FORGET.format(room=str(room))))
    client = NotebookClient(notebook, km=kernel, timeout=SECONDS, coalesce_streams=True)
    client.execute()
    client.kc.stop_channels()
    parts = [part(cell) for cell in notebook.cells[1:]]
    parts.insert(
        1, f"{{download}}`The notebook <{name}.ipynb>` of this page, whose cells ran when it was built."
    )
    return "\n\n".join(parts) + "\n"


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
