"""margin: deep learning, with what theory promises written in the margin of what is measured.

Importing this package imports no torch; a name is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from margin import metrics as metrics
    from margin.auditing.asking.audit import audit as audit
    from margin.core.catalog import claims as claims
    from margin.core.catalog import models as models
    from margin.core.catalog import parts as parts
    from margin.core.catalog import rules as rules
    from margin.core.findings import Finding as Finding
    from margin.core.findings import Subject as Subject
    from margin.core.options import Training as Training
    from margin.engine.runs import Run as Run
    from margin.engine.runs import load as load
    from margin.runs.exporting import export as export
    from margin.runs.training import open_source as open_source
    from margin.runs.training import resume as resume
    from margin.runs.training import train as train
    from margin.sklearn import MarginClassifier as MarginClassifier
    from margin.sklearn import MarginRegressor as MarginRegressor

_HOMES = {
    "Finding": "margin.core.findings",
    "MarginClassifier": "margin.sklearn",
    "MarginRegressor": "margin.sklearn",
    "Run": "margin.engine.runs",
    "Subject": "margin.core.findings",
    "Training": "margin.core.options",
    "audit": "margin.auditing.asking.audit",
    "claims": "margin.core.catalog",
    "export": "margin.runs.exporting",
    "load": "margin.engine.runs",
    "metrics": "margin.metrics",
    "models": "margin.core.catalog",
    "open_source": "margin.runs.training",
    "parts": "margin.core.catalog",
    "resume": "margin.runs.training",
    "rules": "margin.core.catalog",
    "train": "margin.runs.training",
}

__all__ = [
    "Finding",
    "MarginClassifier",
    "MarginRegressor",
    "Run",
    "Subject",
    "Training",
    "audit",
    "claims",
    "export",
    "load",
    "metrics",
    "models",
    "open_source",
    "parts",
    "resume",
    "rules",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'margin' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(_HOMES[name])
    value = home if home.__name__ == f"margin.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
