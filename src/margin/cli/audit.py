"""``margin audit RUN | pkg.module:build [DATA]``."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from margin.catalog import Claim
from margin.cli.output import Output
from margin.cli.parsing import call
from margin.cli.streams import say


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed; --require may be repeated."""
    rest, required = gathered(words, "--require")
    return call(
        audit_model, [*rest, *(["--require", json.dumps(required)] if required else [])], "margin audit"
    )


def gathered(words: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """The words without an option, and every value that it was given.

    Raises:
        ValueError: The option is the last word.
    """
    rest, values = [], []
    left = iter(words)
    for word in left:
        if word.startswith(f"{option}="):
            values.append(word.partition("=")[2])
        elif word == option:
            value = next(left, None)
            if value is None:
                raise ValueError(f"{option} takes a requirement, as 'accuracy>=.9'")
            values.append(value)
        else:
            rest.append(word)
    return rest, values


# 12 parameters: each is an option of the command
def audit_model(
    model: str,
    data: str = "",
    *,
    weights: str = "",
    beside: str = "",
    claims: str = "*",
    require: list[str] | None = None,
    minutes: float = math.inf,
    task: Literal["classes", "binary", "halfspace", "values"] | None = None,
    target: str = "",
    domain: list[float] | None = None,
    out: str = "",
    force: bool = False,
) -> Output:
    """Hold what theory promises of a model beside what is measured.

    Args:
        model: A run's directory, or pkg.module:build, a function that returns a module.
        data: Held-out data: a name, or a file. A run has its own.
        weights: Weights of the module: safetensors, or .pt of tensors alone.
        beside: A second run of the same model, or a second file of weights, for claims that compare two.
        claims: Names or patterns of claims, separated by commas.
        require: What is required of the model, as 'accuracy>=.9' or 'linf.sandwich@.1>=.5'; may be repeated.
        minutes: What the questions may take: the cheapest first; what does not fit is listed.
        task: How a module's outputs are read; inferred if not given.
        target: Column of a table to predict.
        domain: Least and largest value of an input of a module, as [0,1].
        out: Directory of findings.json and report.html; RUN/audit or ./audit if not given.
        force: Whether findings and report in that directory are replaced.
    """
    from margin.auditing.answers import Interrupted
    from margin.auditing.audit import audit

    patterns = [pattern for pattern in claims.split(",") if pattern]
    is_run = ":" not in model
    directory = Path(out) if out else Path(model) / "audit" if is_run else Path("audit")
    if directory.exists() and not directory.is_dir():
        raise FileExistsError(f"{directory} is a file: choose another --out")
    if out and (directory / "findings.json").exists() and not force:
        raise FileExistsError(f"{directory} holds an audit: choose another --out, or --force to replace it")
    if is_run and (weights or task or domain):
        raise ValueError("a run knows its weights, task and domain: leave out --weights, --task, --domain")
    asked = model if is_run else stranger(model, data, (weights, beside), task, domain, target)
    held_out = data or None if is_run else None
    try:
        found = audit(
            asked,
            held_out,
            claims=patterns,
            beside=beside or None if is_run else None,
            require=require or [],
            minutes=minutes,
            progress=tell,
        )
    except Interrupted as stopped:
        return kept(stopped.audit, directory)
    return kept(found, directory)


def kept(found: Any, directory: Path) -> Output:
    """Write findings and report, and answer with both; what was interrupted has status 130 and says so."""
    from margin.auditing.report import write_report
    from margin.data.writing import write_whole

    report, findings = directory / "report.html", directory / "findings.json"
    directory.mkdir(parents=True, exist_ok=True)
    document = found.as_json()
    write_whole(findings, json.dumps(document, indent=1, allow_nan=False).encode())
    write_report(found, report)
    if found.interrupted:
        answered = f"{len(found.findings)} of {len(found.answers)} claims were answered"
        say(f"margin: interrupted; {answered}; kept in {directory}")
    text = f"{found}\nreport in {report}, findings in {findings}"
    return Output({**document, "report": str(report)}, text, 130 if found.interrupted else int(found.failed))


def stranger(
    path: str,
    data: str,
    weights: tuple[str, str],
    task: str | None,
    domain: list[float] | None,
    target: str,
) -> Any:
    """The subject of a module that a function of the user's builds, with every example of a file."""
    from margin.auditing.modules import load_builder, load_weights
    from margin.auditing.subjects import subject_of

    if not data:
        raise ValueError("a module needs held-out data: margin audit pkg.module:build DATA")
    if domain is not None and len(domain) != 2:
        raise ValueError(f"--domain takes two numbers, as [0,1]: got {domain}")
    module, second = load_builder(path), None
    if weights[0]:
        noted(load_weights(module, weights[0]))
    if weights[1]:
        second = load_builder(path)
        noted(load_weights(second, weights[1]))
    examples, box, names = held_out_examples(data, target)
    box = tuple(domain) if domain else box
    return replace(subject_of(module, examples, task=task, domain=box, class_names=names), beside=second)


def noted(text: str) -> None:
    """Say on stderr what was done to read the weights, if anything."""
    if text:
        say(f"margin: {text}")


def held_out_examples(data: str, target: str) -> tuple[Any, Any, Sequence[str]]:
    """All examples of a file, or the test part of a named set; their domain; the names of their classes.

    A file of arrays is taken as it is: held-out examples need not show every class.
    """
    from margin.data.arrays import load_arrays
    from margin.data.opening import open_data

    if Path(data).suffix in (".npz", ".npy"):
        arrays = load_arrays(Path(data))
        part = "_test" if "x_test" in arrays else ""
        if f"y{part}" not in arrays:
            raise ValueError(f"{data} holds no targets: an audit needs an array y{part} beside x{part}")
        return (arrays[f"x{part}"], arrays[f"y{part}"]), None, ()
    named = not Path(data).exists()
    options: dict[str, Any] = {} if named else {"test": 0.0, "val": 0.0}
    opened = open_data(data, options | ({"target": target} if target else {}))
    part = opened.splits.get("test", opened.splits["train"])
    return part, opened.domain, tuple(str(name) for name in opened.encoding.get("classes", ()))


def tell(claim: Claim, position: int, count: int) -> None:
    """Say on stderr which claim is asked."""
    say(f"[{position}/{count}] {claim.name}")
