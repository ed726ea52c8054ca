"""``margin audit RUN | pkg.module:build [DATA]``."""

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from margin.cli.output import Output, say, waiting
from margin.cli.parsing import call, taken_out
from margin.cli.tables import width_of_stderr
from margin.core.catalog import Claim
from margin.data.files.writing import write_whole

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_FRAMES = 0.1


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed; --require, --claims and --fail-on may be repeated."""
    rest, required = taken_out(switched(words), "--require", ", as 'accuracy>=.9'")
    for option in ("--claims", "--fail-on"):
        rest, listed = taken_out(rest, option, ", names separated by commas")
        rest += [option, ",".join(listed)] if listed else []
    with terminated_as_by_ctrl_c():
        return call(
            audit_model, [*rest, *(["--require", json.dumps(required)] if required else [])], "margin audit"
        )


def switched(words: Sequence[str]) -> list[str]:
    """The words in which --all and --force alone are said in full: --all true."""
    said: list[str] = []
    for word, after in zip(words, [*words[1:], ""][: len(words)], strict=True):
        alone = word in ("--all", "--force") and after not in ("true", "false")
        said += [word, "true"] if alone else [word]
    return said


# 20 parameters: each is an option of the command
def audit_model(
    model: str,
    data: str = "",
    *,
    weights: str = "",
    reference: str = "",
    ood: str = "",
    claims: str = "*",
    require: list[str] | None = None,
    fail_on: str = "violated,failed",
    junit: str = "",
    minutes: float = 2.0,
    task: Literal[
        "classes", "binary", "multilabel", "terms", "logits", "probabilities", "scores", "halfspace", "values"
    ]
    | None = None,
    output: str = "",
    target: str = "",
    tokenizer: str = "",
    train: str = "",
    class_names: str = "",
    domain: list[float] | None = None,
    selected_on_test: int | None = None,
    out: str = "",
    force: bool = False,
    all: bool = False,  # an option is named as users say it
) -> Output:
    """Compare theoretical guarantees with measurements of a model.

    Args:
        model: Model: a run's directory, or pkg.module:build, a function that returns a module; or, without
            a model, an .npz file of its arrays predictions and targets.
        data: Held-out data, a name or a file; a run has its own.
        weights: Weights of the module: a .safetensors file, a .pt file of tensors alone, or a folder as
            transformers writes it.
        reference: Reference model for claims that compare two: a second run of the same model, or a second
            file of weights.
        ood: Out-of-distribution data, a file or a name: examples of another source, whose targets are not
            read; the audit tells whether the model is less sure of them than of the held-out ones.
        claims: Claims to check: names or patterns, separated by commas; may be repeated.
        require: Requirement on the model, as 'accuracy>=.9' or 'linf.sandwich@.1>=.5'; may be repeated.
        fail_on: Verdicts that make the exit status 1, beside a requirement that is not met, separated by
            commas; none for requirements alone.
        junit: JUnit XML file to write, for continuous integration.
        minutes: Time budget in minutes: the most telling claims come first, then the cheapest; dear ones are
            asked of fewer examples, and those that do not fit are listed.
        task: Task: how the module's outputs are read; inferred if not given. Outputs in [0,1] are
            logits or probabilities; multilabel is several labels of 0 and 1, terms a class at each place.
        output: Output part of a module that returns several things: a key, an attribute or an index, as
            logits or 0; the obvious one if not given.
        target: Target column of a table.
        tokenizer: Tokenizer of a language model, a folder or file as transformers writes it: DATA is a text
            then, whose tokens the module predicts.
        train: Training data of the module, for the claims that need them.
        class_names: Class names in the order of the module's outputs, separated by commas.
        domain: Input domain: least and largest value of an input of the module, as [0,1].
        selected_on_test: Models that the held-out data have compared, this one among them: bounds of its risk
            by them pay for the choice. 1: they chose nothing, which is assumed if not given.
        out: Output directory of findings.json and report.html; RUN/audit or ./audit if not given. Findings
            that are there, of the same weights, data and code, are taken over.
        force: Whether findings and report in that directory are overwritten, and everything is asked anew.
        all: Whether every finding is printed, by question, and what was left out.
    """
    waiting(f"reading {model}")  # torch comes next, which takes a second
    from margin.auditing.asking.answers import Interrupted, check_free
    from margin.auditing.asking.audit import audit
    from margin.auditing.asking.reuse import earlier_of

    patterns = [pattern for pattern in claims.split(",") if pattern]
    numbers = model.endswith(".npz")
    is_run = ":" not in model and not numbers
    directory = Path(out) if out else Path(model) / "audit" if is_run else Path("audit")
    there = (directory / "findings.json").is_file()
    earlier = earlier_of(directory, binding=bool(out)) if there and not force else None
    check_free(directory, force=force or not out or there)  # before anything is asked
    if is_run and (weights or task or domain or train or class_names or output or tokenizer):
        raise ValueError(
            "a run knows its weights, task, domain, training data, classes and tokenizer: leave out "
            "--weights, --task, --domain, --train, --class-names, --output, --tokenizer"
        )
    named = tuple(name.strip() for name in class_names.split(",")) if class_names else ()
    given = Given(data, train, target, named, task, domain, output or None, tokenizer)
    if numbers:
        asked = numbers_of(Path(model), given, (weights, reference, ood))
    else:
        asked = model if is_run else stranger(model, given, (weights, reference))
    held_out = data or None if is_run else None
    shown = Shown()
    try:
        found = audit(
            asked,
            held_out,
            claims=patterns,
            reference=reference or None if is_run else None,
            ood=ood or None,
            selected_on_test=selected_on_test,
            require=require or [],
            fail_on=[]
            if fail_on == "none"
            else [name.strip() for name in fail_on.split(",") if name.strip()],
            minutes=minutes,
            progress=shown,
            reuse=earlier,
        )
    except Interrupted as stopped:
        found = stopped.audit
    finally:
        shown.clear()
    with signals_wait() as came:  # what took minutes is not lost in the seconds in which it is written
        report = found.save(directory, force=force or not out)
        if junit:
            write_whole(Path(junit), found.junit())
    return kept(replace(found, interrupted=found.interrupted or bool(came)), directory, report, whole=all)


def kept(found: Any, directory: Path, report: Path, *, whole: bool) -> Output:
    """What is answered of an audit that was written; one that was interrupted has status 130 and says so.

    Args:
        found: The audit.
        directory: Where it is.
        report: The report there.
        whole: Whether every finding is printed, or the first screen.
    """
    from margin.auditing.report.screen import Screen

    if said := found.facts.get("earlier audit"):
        say(f"margin: {said}")
    if found.interrupted:
        answered = f"{len(found.findings)} of {len(found.answers)} claims were answered"
        say(f"margin: interrupted; {answered}; kept in {directory}")
    last = f"report in {report}{'' if whole else '; --all prints every finding'}"
    text = Screen(found, last, whole=whole)
    status = 130 if found.interrupted else int(found.failed)
    return Output({**found.as_json(), "report": str(report)}, text, status)


@contextmanager
def terminated_as_by_ctrl_c() -> Iterator[None]:
    """Meanwhile SIGTERM, which a scheduler or a container sends, does what Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # another thread cannot say what a signal does
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def signals_wait() -> Iterator[list[int]]:
    """Meanwhile a first Ctrl-C or SIGTERM is only noted, in what is given; a second one interrupts."""
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Given(NamedTuple):
    """What is said of a module: its data, held out and trained on, and how both are read."""

    data: str
    train: str
    target: str
    class_names: tuple[str, ...]
    task: str | None
    domain: list[float] | None
    output: str | None
    tokenizer: str = ""


def stranger(path: str, given: Given, weights: tuple[str, str]) -> Any:
    """The subject of a module that a function of the user's builds, with every example of a file."""
    from margin.auditing.subject.subjects import alike, subject_of
    from margin.auditing.subject.user_modules import load_builder
    from margin.engine.transfer import load_weights

    if not given.data:
        raise ValueError("a module needs held-out data: margin audit pkg.module:build DATA")
    if given.domain is not None and len(given.domain) != 2:
        raise ValueError(f"--domain takes two numbers, as [0,1]: got {given.domain}")
    module, second = load_builder(path), None
    if weights[0]:
        noted(load_weights(module, weights[0]))
    if weights[1]:
        second = load_builder(path)
        noted(load_weights(second, weights[1]))
    if given.tokenizer:
        subject = language_model(module, given)
        return replace(subject, reference_model=None if second is None else alike(subject.model, second))
    examples, box, names = examples_of(given.data, given, "test")
    train = examples_of(given.train, given, "train", names)[0] if given.train else None
    box = tuple(given.domain) if given.domain else box
    subject = subject_of(
        module,
        examples,
        task=given.task,
        train=train,
        domain=box,
        class_names=names,
        output=given.output,
    )
    return replace(subject, reference_model=None if second is None else alike(subject.model, second))


CONTEXT = 128
"""Tokens of a block in which a language model of the user's reads a text, at most."""


def language_model(module: Any, given: Given) -> Any:
    """The subject of a module that predicts the next token of a text, read in blocks one behind another.

    A block has :data:`CONTEXT` tokens, or as many as a configuration of transformers has positions.

    Raises:
        ValueError: It is said how a table is read, or the tokenizer has more tokens than the module.
    """
    import torch

    from margin.auditing.subject.subjects import subject_of
    from margin.core.tasks import TOKENS
    from margin.data.formats.text.sources import encode_text
    from margin.data.formats.text.tokenizers import Tokenizer
    from margin.engine.loop import risk

    if given.task or given.target or given.class_names or given.domain:
        raise ValueError("a text has its next tokens: leave out --task, --target, --class-names, --domain")
    tokenizer, config = Tokenizer.from_path(given.tokenizer), getattr(module, "config", None)
    time = min(CONTEXT, getattr(config, "max_position_embeddings", None) or CONTEXT)
    size = getattr(config, "vocab_size", None) or tokenizer.size
    if tokenizer.size > size:
        raise ValueError(
            f"the tokenizer must be the module's: {given.tokenizer} has {tokenizer.size:,} tokens, the "
            f"module {size:,}"
        )
    record = {**tokenizer.as_json(), "shape": [time]}
    test = encode_text(given.data, record)
    train = encode_text(given.train, record) if given.train else None
    subject = subject_of(module, test, task="terms", train=train, output=given.output)
    with torch.no_grad():
        width = subject.model(*(x[:1] for x in subject.test[0].inputs)).shape[-1]
    return replace(
        subject,
        task=TOKENS,
        objective=risk(TOKENS),
        vocabulary=(*tokenizer.vocabulary, *(f"<unused {k}>" for k in range(tokenizer.size, width))),
        assumed=(*subject.assumed, f"the text is read in blocks of {time} tokens, one behind another"),
    )


def numbers_of(path: Path, given: Given, others: tuple[str, ...]) -> Any:
    """The subject of predictions in a file, without their model."""
    from zipfile import BadZipFile

    import numpy as np

    from margin.auditing.subject.predictions import subject_of_predictions

    if given.data or given.train or given.domain or given.output or any(others):
        raise ValueError(
            "predictions stand in place of a model and data: leave out DATA, --train, --domain, --output, "
            "--weights, --reference and --ood"
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} must be an .npz file of arrays of numbers or text: {error}") from error
    if missing := [name for name in ("predictions", "targets") if name not in arrays]:
        raise ValueError(
            f"{path} must hold predictions and targets: it has {', '.join(arrays)}, no {missing[0]}"
        )
    return subject_of_predictions(
        arrays["predictions"], arrays["targets"], task=given.task, class_names=given.class_names
    )


def noted(text: str) -> None:
    """Say on stderr what was done to read the weights, if anything."""
    if text:
        say(f"margin: {text}")


def examples_of(
    data: str, given: Given, part: str, names: Sequence[str] = ()
) -> tuple[Any, Any, Sequence[str]]:
    """All examples of a file, or a part of a named set; their domain; the names of their classes.

    A file of arrays is taken as it is: held-out examples need not show every class. Labels of a table are
    numbered in the order of ``names``, else in the user's, else as the table numbers them.
    """
    from margin.data.formats.arrays.sources import load_arrays
    from margin.data.open import open_data

    names = names or given.class_names
    if Path(data).suffix in (".npz", ".npy"):
        arrays = load_arrays(Path(data))
        end = "_test" if part == "test" and "x_test" in arrays else ""
        if f"y{end}" not in arrays:
            raise ValueError(f"{data} holds no targets: an audit needs an array y{end} with x{end}")
        return (arrays[f"x{end}"], arrays[f"y{end}"]), None, names
    named = not Path(data).exists()
    options: dict[str, Any] = {} if named else {"test": 0.0, "val": 0.0}
    opened = open_data(data, options | ({"target": given.target} if given.target else {}))
    examples = opened.splits.get(part, opened.splits["train"])
    if not (named or given.target) and getattr(examples, "targets", ()) is None:
        say(f"margin: every column of {data} is an input, none a target: --target NAME names one")
    known = tuple(str(name) for name in opened.encoding.get("classes", ()))
    return renumbered(examples, known, names, data), opened.domain, names or known


def renumbered(examples: Any, known: Sequence[str], names: Sequence[str], data: str) -> Any:
    """Examples whose labels follow the order of the names.

    Raises:
        ValueError: A class of the data is not among the names, or the examples are no arrays.
    """
    import torch

    from margin.data.examples import Arrays

    if not known or not names or list(known) == list(names):
        return examples
    if odd := [name for name in known if name not in names]:
        raise ValueError(f"class names must be those of {data}: {odd[0]!r} is not among {', '.join(names)}")
    if not isinstance(examples, Arrays) or examples.targets is None:
        raise ValueError(f"the classes of {data} are in the order {', '.join(known)}: give them so")
    places = torch.tensor([list(names).index(name) for name in known])
    return replace(examples, targets=places[examples.targets.long()])


class Shown:
    """Which claim is asked, on stderr: one line of a terminal, rewritten; elsewhere a line in ten seconds."""

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._start = time.monotonic()
        self._last = -math.inf

    def __call__(self, claim: Claim, position: int, count: int) -> None:
        """Say which claim comes next.

        Args:
            claim: The claim.
            position: Its place, from 1.
            count: How many there are.
        """
        now = time.monotonic()
        if now - self._last < (SECONDS_BETWEEN_FRAMES if self._terminal else SECONDS_BETWEEN_LINES):
            return
        self._last = now
        line = f"[{position}/{count}] {claim.name}, {now - self._start:.0f} s"
        if self._terminal:
            line = f"\r\x1b[2K{line[: width_of_stderr() - 1]}"
        say(line, end="" if self._terminal else "\n")

    def clear(self) -> None:
        """Leave nothing on a terminal."""
        if self._terminal:
            say("\r\x1b[2K", end="")
