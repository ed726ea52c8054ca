"""``margin compare RUN RUN ...``: runs, or audits, side by side with their errors."""

from margin.cli.output import Output
from margin.cli.tables import columns, told


def compare(first: str, others: tuple[str, ...]) -> Output:
    """Compare runs by paired differences on the same held-out examples, or audits finding by finding.

    Args:
        first: Baseline: the run or audit with which the others are compared.
        others: Further runs or audits.
    """
    from margin.auditing.asking.comparing import compare as compared

    found = compared(first, *others)
    tables = "\n\n".join(columns(rows, lead=found.lead) for rows in found.tables)
    return Output(found.document, f"{tables}\n{told(found.note)}" if found.note else tables)
