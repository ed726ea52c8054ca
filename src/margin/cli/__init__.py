"""The command line: one typed function a command, found by name, imported when called.

stdout carries the result, stderr the progress. Exit status: 0; 1 where a finding is violated or failed
or a training met numbers that are not finite; 2 for the user's mistake, told in one line; 130 where it
was interrupted and saved.
"""

import errno
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import NamedTuple, NoReturn

from margin.cli.output import discard, open_closed, say, speaks, tell_result
from margin.cli.tables import fitted


class Command(NamedTuple):
    """A command.

    Args:
        summary: What it does.
        target: Its function, in a module of this package.
        typed: Whether its options are the function's own parameters; else that takes the words as they are.
    """

    summary: str
    target: str
    typed: bool = True


COMMANDS = {
    "models": Command("list the models, all or of one area", "listing:models"),
    "list": Command("list every row of the catalog: models, rules, parts, claims", "listing:list_rows"),
    "data": Command("list the data sets; describe a file; download a set", "data:run", typed=False),
    "train": Command("train a model on data; leaves a run", "train:run", typed=False),
    "audit": Command("compare theoretical guarantees with measurements of a model", "audit:run", typed=False),
    "predict": Command("predictions of a run for new data", "runs:predict"),
    "sample": Command("samples of a run's generative model", "runs:sample_run", typed=False),
    "export": Command("export a run's model: state dict, torch.export, ONNX", "runs:export_run"),
    "compare": Command("compare runs or audits side by side", "runs:compare"),
    "claims": Command("check claims on their own examples", "listing:claims"),
    "exercise": Command("an exercise a chapter, and a verdict on your answer", "exercises:show_exercise"),
    "demo": Command("train and audit LeNet-5 on scanned digits", "train:demo"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        open_closed()
    except OSError as error:
        return _mistake(str(error))
    if wrong := misspelled(words):
        return _mistake(wrong)
    if not words or words[0] in ("-h", "--help"):
        return _told(usage())
    if words[0] == "--version":
        from importlib.metadata import version

        return _told(f"margin {version('margin')}")
    name, *rest = words
    if name not in COMMANDS:
        from margin.core.catalog import nearest

        near = ", ".join(nearest(name, COMMANDS)) or "none; see margin --help"
        return _mistake(f"unknown command {name!r}; nearest: {near}")
    return _guarded(name, rest)


def program() -> NoReturn:
    """Run a command and end this process with its exit status."""
    status = main()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Once DistributedDataParallel has run, gloo's threads outlive the process group; one that still drops
        # a tensor while the interpreter is taken down would abort a process whose work is done.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def misspelled(words: Sequence[str]) -> str:
    """What is wrong with how a word is written, whatever the command; "" where nothing is."""
    for word in words:
        if "\0" in word:
            return f"a word must hold no null byte, which no path has: got {word!r}"
        if word.startswith("--help="):
            return f"--help takes its word after a space, as --help all: got {word}"
        if re.match("-[A-Za-z][A-Za-z_-]", word):
            return (
                f"an option of several letters has two hyphens: got {word}; write -{word}, "
                f"or --option={word} where it is a value"
            )
    return ""


def usage() -> str:
    """The first page of help."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return fitted(
        "usage: margin COMMAND ...\n\n"
        "Deep learning from the perceptron to diffusion, with what theory promises\n"
        "written in the margin of what is measured.\n\n"
        f"commands:\n{rows}\n\n"
        "margin COMMAND --help tells more; every command takes --json.\n\n"
        "  margin demo\n"
        "  margin train lenet5 digits --out my-run\n"
        "  margin audit my-run"
    )


def _guarded(name: str, words: list[str]) -> int:
    from margin.cli.output import show
    from margin.cli.parsing import call
    from margin.core.catalog import resolve

    try:
        function = resolve(f"margin.cli.{COMMANDS[name].target}")
        plain = [word for word in words if word != "--json"]
        asks = {"-h", "--help"} & {*words}
        # a module of the user's own may print: of a JSON document it would be a part
        with redirect_stdout(sys.stderr) if "--json" in words and not asks else nullcontext():
            result = call(function, plain, f"margin {name}") if COMMANDS[name].typed else function(plain)
        return show(result, as_json="--json" in words) if speaks() else result.status
    except KeyboardInterrupt as stopped:
        _say(f"interrupted; {stopped}" if str(stopped) else "interrupted")
        return 130
    except (ArithmeticError, ChildProcessError) as error:  # numbers are not finite, or a process was killed
        if "--json" in words and speaks():
            print(json.dumps({"error": str(error)}))
        _say(str(error))
        return 1
    except BrokenPipeError:
        discard(sys.stdout.fileno())  # head closed the pipe: not an error
        return 0
    except SystemExit as ended:
        if {"-h", "--help"} & {*words}:
            raise  # the parser's own, after its help
        return _mistake(f"code that was called ended the program by sys.exit({ended.code}): nothing is done")
    except (ValueError, OSError) as error:
        if os.environ.get("MARGIN_TRACEBACK"):
            raise
        return _mistake(_reason(error), getattr(error, "place", ""))
    except Exception:
        raise  # a defect of ours: its traceback is wanted
    except BaseException as error:  # of a class of the user's own, whose code the audit alone calls
        if name != "audit":
            raise
        told = "".join(f": {line}" for line in str(error).splitlines()[:1])
        return _mistake(f"code that was called raised {type(error).__name__}{told}: nothing is done")


def _reason(error: Exception) -> str:
    """What an error says; a path that is too long is cut, since the whole of it would hide the message."""
    if not isinstance(error, OSError) or not str(error).startswith("[Errno"):
        return str(error)
    if error.errno in (errno.EACCES, errno.EPERM) and error.filename:
        path = os.fsdecode(error.filename).removesuffix(".new")
        return f"a file must be one that you may read, or write: got {path}: {error.strerror}; choose another"
    if error.errno != errno.ENAMETOOLONG:
        return str(error)
    path = os.fsdecode(error.filename or "")
    longest = max(len(os.fsencode(name)) for name in path.split("/"))
    return (
        "a path must be at most 4,095 bytes and each name in it 255: "
        f"got {len(os.fsencode(path))} bytes, the longest name {longest}, in {path[:40]}..."
    )


def _told(text: str) -> int:
    """Print a text; return the status."""
    try:
        tell_result(text)
    except BrokenPipeError:
        discard(sys.stdout.fileno())  # head closed the pipe: not an error
    except OSError as error:
        return _mistake(str(error))
    return 0


def _mistake(message: str, place: str = "") -> int:
    """Say what is wrong in one line, and below it where in the user's own code."""
    _say(" ".join(message.split()) + (f"\n{place}" if place else ""))
    return 2


def _say(message: str) -> None:
    if speaks():
        say(f"margin: {message}")
