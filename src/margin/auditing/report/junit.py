"""JUnit's XML of an audit, the form that continuous integration reads: a test case an answer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from margin.auditing.asking.requirements import Judgment, Status
from margin.auditing.report.table import Row, rows

if TYPE_CHECKING:
    from margin.auditing.asking.answers import Answer, Audit

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
