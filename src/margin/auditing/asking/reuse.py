"""A second audit of the same subject takes over what the first one answered, and asks only what is new.

Whether it is the same is told by digests: see :mod:`margin.auditing.asking.identity`. What was left out for
lack of time, interrupted or broken is asked again, and what was asked of fewer examples than now.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from margin.auditing.asking.answers import Answer, Audit
from margin.auditing.asking.identity import OUTPUTS, VERSIONS, Part, differing, outputs_digest, versions
from margin.core import catalog
from margin.core.catalog import Claim
from margin.core.findings import Finding, Subject
from margin.engine.schema import check, check_digest, parsed, text_of, wrong

REMEDY = "restore it, or replace it (force, --force)"

DOCUMENT: dict[str, Any] = {
    "identity?": dict[str, str],
    "hardest?": list[Any] | None,
    "answers": [
        {"claim": str, "refusal": str, "skipped": str, "broken": str, "seconds": float}
        | {"most?": int | None, "held_out?": int | None}
    ],
}
"""What ``findings.json`` holds, as far as it is taken over."""


@dataclass(frozen=True, eq=False)
class Earlier:
    """An earlier audit, as far as another can rest on it.

    Args:
        name: What it is called: its directory.
        identity: The digests of what was audited.
        answers: What was answered.
        showed_examples: Whether it showed the held-out examples of largest loss.
        binding: Whether an audit of another subject is refused, as it could not be written there.
        other: In what the subject of the new audit is another, in words; "".
    """

    name: str
    identity: Mapping[Part, str]
    answers: tuple[Answer, ...]
    showed_examples: bool = False
    binding: bool = False
    other: str = ""

    def of(self, subject: Subject, identity: Mapping[Part, str]) -> "Earlier":
        """What stands of it for a subject: nothing, if that is another than the one that was audited.

        The outputs on the held-out examples are compared last: they are computed for that.

        Raises:
            FileExistsError: It is another, and this audit must not be replaced.
        """
        parts = differing(self.identity, identity) if self.identity else [VERSIONS]
        if not parts and OUTPUTS in self.identity:
            parts = differing(self.identity, {**identity, OUTPUTS: outputs_digest(subject)})
        if not parts:
            return self
        other = f"of other {', '.join(parts)}"
        if self.binding:
            raise FileExistsError(
                f"{self.name} holds an audit {other}: choose another directory (--out), or replace it "
                "(force, --force)"
            )
        return Earlier(self.name, {}, (), other=other)

    def standing(self, claim: Claim, most: int | None, held_out: int | None) -> Answer | None:
        """The finding of a claim that need not be asked again; None: there is none, or of too few examples.

        Args:
            claim: The claim.
            most: How many examples it would draw now; None: as many as it says itself.
            held_out: How many held-out examples would stand for all; None: all.
        """
        answer = next((answer for answer in self.answers if answer.claim.name == claim.name), None)
        if answer is None or answer.finding is None:
            return None
        return answer if _covers(answer.most, most) and _covers(answer.held_out, held_out) else None

    def joined(self, answers: Mapping[str, Answer]) -> dict[str, Answer]:
        """New answers with those that were there before: of other claims, and where there was no time now.

        They are in the order of the catalog where there are such.
        """
        joined = dict(answers)
        for old in self.answers:
            new = joined.get(old.claim.name)
            if new is None or (old.finding is not None and new.finding is None and not new.broken):
                joined[old.claim.name] = old
        if joined.keys() == answers.keys():
            return joined
        places = {name: i for i, name in enumerate(catalog.claims())}
        return dict(sorted(joined.items(), key=lambda item: places.get(item[0], len(places))))

    def said(self, answers: Collection[Answer]) -> str:
        """How much an audit of these answers took over, and how many claims it asked, in a line."""
        if self.other:
            return f"nothing of {self.name} is taken over: it is {self.other}"
        count = sum(answer.finding is not None and answer in self.answers for answer in answers)
        asked = sum(answer.seconds > 0 and answer not in self.answers for answer in answers)
        return f"{count} finding{'' if count == 1 else 's'} of {self.name} taken over, {asked} asked"


def _covers(before: int | None, now: int | None) -> bool:
    return before is None or (now is not None and now <= before)


def earlier_of(given: "str | Path | Audit | Earlier", *, binding: bool = False) -> Earlier:
    """An earlier audit: an Audit, or the directory where one was saved.

    Raises:
        FileNotFoundError: There is none in the directory.
        ValueError: Its ``findings.json`` is damaged, or was changed.
    """
    if isinstance(given, Earlier):
        return given
    if isinstance(given, Audit):
        shown = given.worst_examples is not None
        return Earlier(f"the audit of {given.title}", given.identity, given.answers, shown)
    file = Path(given) / "findings.json"
    if not file.is_file():
        raise FileNotFoundError(f"{given} holds no audit: no findings.json")
    document = parsed(file, text_of(file, math.inf), "")
    check(document, DOCUMENT, "", file)
    check_digest(file, document)
    identity = document.get("identity", {})
    rows = document["answers"] if identity.get(VERSIONS) == versions() else ()  # another may write otherwise
    answers = tuple(_answer(row, f"answers[{i}]", file) for i, row in enumerate(rows))
    return Earlier(str(given), identity, answers, document.get("hardest") is not None, binding)


def _answer(row: Mapping[str, Any], key: str, file: Path) -> Answer:
    claim = catalog.claims().get(row["claim"])
    if claim is None:
        raise wrong(file, f"{key}.claim", f"names no claim that is here: {row['claim']!r}", REMEDY)
    try:
        finding = None if row.get("finding") is None else Finding.from_json(row["finding"])
    except ValueError as error:
        raise wrong(file, f"{key}.finding", str(error), REMEDY) from None
    return Answer(
        claim,
        finding,
        *(row["refusal"], row["seconds"], row["skipped"], row["broken"]),
        most=row.get("most"),
        held_out=row.get("held_out"),
    )


def continues(audit: Audit, directory: Path) -> bool:
    """Whether an audit has all that the one in a directory has, of the same subject.

    Raises:
        ValueError: The file there is damaged, or was changed.
    """
    earlier = earlier_of(directory)
    found = {answer.claim.name for answer in earlier.answers if answer.finding is not None}
    same = bool(earlier.identity) and not differing(earlier.identity, audit.identity)
    return same and found <= audit.findings.keys()
