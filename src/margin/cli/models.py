"""``margin models [AREA]``."""

from collections.abc import Sequence

from margin.cli.output import Output, columns
from margin.cli.parsing import call
from margin.core import catalog


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed."""
    return call(models, words, "margin models")


def models(area: str = "") -> Output:
    """List the models of the catalog.

    Args:
        area: Only those of this area, such as vision.
    """
    rows = [row for name, row in catalog.models().items() if not area or name.startswith(f"{area}/")]
    if not rows:
        areas = sorted({name.partition("/")[0] for name in catalog.models()})
        raise ValueError(f"no models in {area!r}; areas with models: {', '.join(areas)}")
    document = [{"name": row.name, "summary": row.summary, "reference": row.reference} for row in rows]
    return Output(document, columns([(row.name, row.summary) for row in rows]))
