"""What a training was made with: the versions of what it runs on, the revision of the user's own code."""

import platform
import shutil
import subprocess
from importlib.metadata import version
from typing import Any


def versions() -> dict[str, str]:
    """The versions that a training depends on."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("margin", "torch", "numpy")
    }


def git_state() -> dict[str, Any]:
    """The revision of the working directory's repository, and whether it has uncommitted changes."""

    def ask(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    if not shutil.which("git"):
        return {"revision": "", "dirty": False}
    revision = ask("rev-parse", "HEAD")
    return {"revision": revision, "dirty": bool(revision and ask("status", "--porcelain"))}
