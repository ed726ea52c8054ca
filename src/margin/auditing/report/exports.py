"""An audit for other programs: a table of numbers, one finding by its name, its worst examples, JUnit's XML.

JUnit's is the form that continuous integration reads: a test case an answer.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from margin.auditing.asking.requirements import Judgment, Status
from margin.auditing.report.table import Row, elements, promise, rows
from margin.core.catalog import UnknownName, nearest

if TYPE_CHECKING:
    from polars import DataFrame

    from margin.auditing.asking.answers import Answer, Audit


def full_name(audit: "Audit", name: str) -> str:
    """The claim that a user names in full, by what follows its last ``/``, or by what follows its last dot.

    Of several the one that says whether the model is right, as in a requirement.

    Raises:
        UnknownName: No claim of that name has a finding, or several have; it says why there is none.
    """
    if name in audit.findings:
        return name
    asked = {answer.claim.name: answer for answer in audit.answers}
    short = [full for full in asked if name in (full, full.rpartition("/")[2], full.rpartition(".")[2])]
    found = [full for full in short if full in audit.findings]
    found = [full for full in found if asked[full].claim.question == "right"] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownName(f"finding {name!r} could be {', '.join(found)}: give the full name")
    if short:
        raise UnknownName(f"{short[0]} has no finding: it {asked[short[0]].absence}".replace("it not", "not"))
    forms = {full.rpartition(".")[2]: full for full in reversed(audit.findings)}  # the first counts
    near = [forms[form] for form in nearest(name, forms)] + nearest(name, audit.findings)
    raise UnknownName(f"no finding {name!r}; nearest: {', '.join(dict.fromkeys(near)) or 'none'}")


def frame(audit: "Audit") -> "DataFrame":
    """One row an element of a finding.

    Columns: question, claim, label, value, low95 and high95 (its interval; both the value where it is exact),
    unit, promise in words, verdict, and n, the examples of the part that it was measured on, where that is
    known and all of them were.

    Args:
        audit: What was found.
    """
    import polars as pl

    schema: dict[str, Any] = dict.fromkeys(("question", "claim", "label"), pl.String)
    schema |= dict.fromkeys(("value", "low95", "high95"), pl.Float64)
    schema |= dict.fromkeys(("unit", "promise", "verdict"), pl.String)
    schema["n"] = pl.Int64
    records: list[dict[str, Any]] = []
    for answer in audit.answers:
        if answer.finding is None:
            continue
        for element in elements(answer.finding):
            records.append(
                {
                    "question": answer.claim.question,
                    "claim": answer.claim.name,
                    "label": element.label,
                    "value": element.value,
                    "low95": element.below,
                    "high95": element.above,
                    "unit": answer.finding.unit,
                    "promise": promise(element, answer.finding.scope),
                    "verdict": str(element.verdict),
                    "n": _examples(audit, answer),
                }
            )
    return pl.DataFrame(records, schema=schema)


def _examples(audit: "Audit", answer: "Answer") -> int | None:
    """The examples of the part that a claim asks; None where it asks none, or not all of them."""
    cost = answer.claim.cost
    known = audit.facts.get(f"{'held-out' if cost.part == 'test' else 'training'} examples")
    if (
        not isinstance(known, int)
        or not (cost.passes or cost.beside)
        or answer.finding is None
        or answer.finding.sample
    ):
        return None
    return None if 0 < cost.limit < known else known


def worst(audit: "Audit", count: int) -> "DataFrame":
    """The held-out examples of largest loss, the worst first.

    Columns: row, target, the task's (class and probability, or value), loss, and margin where there are
    classes. Where an example has a class at each of many places, the share that is right stands for both.
    Classes are named where names are known.

    Raises:
        ValueError: Losses belong to no single example, or ``count`` is below 1.
    """
    import polars as pl

    if count < 1:
        raise ValueError(f"count must be at least 1: got {count}")
    hard = audit.worst_examples
    if hard is None:
        raise ValueError("worst examples need a loss of each example: this audit has none")
    columns: dict[str, list[Any]] = {"row": hard.index.tolist()}
    if hard.texts:
        columns["text"] = list(hard.texts)
    if hard.targets is not None:
        columns["target"] = hard.targets.tolist()
    columns |= {name: column.tolist() for name, column in hard.predictions.items()}
    columns["loss"] = hard.losses.tolist()
    if hard.margins is not None:
        columns["margin"] = hard.margins.tolist()
    names = audit.class_names
    if "class" in columns and names:
        for column in ("target", "class"):
            columns[column] = [names[k] if 0 <= k < len(names) else str(k) for k in columns[column]]
    return pl.DataFrame(columns).head(count)


KINDS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""How many test cases have an element of this kind, by the attribute that counts them."""


def junit(audit: "Audit") -> bytes:
    """A suite of the findings, with a failure where the audit fails by one, and a suite of the requirements.

    What was not asked is skipped with its reason; what does not apply to the model is left out.
    """
    root = Element("testsuites", name="margin audit")
    _suite(root, audit.title, (_finding(audit, answer) for answer in audit.answers if not answer.refusal))
    if audit.judgments:
        _suite(root, "requirements", map(_requirement, audit.judgments))
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True))


def _suite(root: Element, name: str, made: Iterable[Element]) -> None:
    cases = list(made)
    suite = SubElement(root, "testsuite", name=_text(name), tests=str(len(cases)))
    for counted, kind in KINDS.items():
        suite.set(counted, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    suite.extend(cases)


def _finding(audit: "Audit", answer: "Answer") -> Element:
    area, _, name = answer.claim.name.rpartition("/")
    case = Element("testcase", classname=area, name=name, time=f"{answer.seconds:.3f}")
    found = answer.finding
    if answer.broken:
        SubElement(case, "error", message=_text(answer.absence)).text = _text(answer.broken)
    elif found is None:
        SubElement(case, "skipped", message=_text(answer.absence))
    else:
        text = _text("\n".join([found.statement, *map(_line, rows(answer.claim.name, found))]))
        failing = audit.failing(found)
        kind = "failure" if failing else "system-out"
        SubElement(case, kind, {"message": failing} if failing else {}).text = text
    return case


def _requirement(judgment: Judgment) -> Element:
    claim = judgment.requirement.claim.name
    case = Element("testcase", classname=claim, name=_text(judgment.requirement.text), time="0.000")
    if judgment.status is not Status.MET:
        SubElement(case, "failure", message=_text(judgment.sentence))
    return case


def _line(row: Row) -> str:
    label = f"{row.label}: " if row.label else ""
    promised = f", promised {row.promised}" if row.promised else ""
    return f"{label}{row.measured} {row.unit}".rstrip() + f"{promised}: {row.verdict}"


def _text(text: str) -> str:
    """Text without the control characters that XML cannot hold."""
    return "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text)
