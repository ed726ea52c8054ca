"""margin: deep learning, with what theory promises written in the margin of what is measured.

Importing this package imports no torch; a name is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from margin.auditing.audit import audit as audit
    from margin.catalog import claims as claims
    from margin.catalog import models as models
    from margin.catalog import parts as parts
    from margin.catalog import rules as rules
    from margin.engine.loading import load as load
    from margin.engine.runs import Run as Run
    from margin.estimators import MarginClassifier as MarginClassifier
    from margin.estimators import MarginRegressor as MarginRegressor
    from margin.exporting import export as export
    from margin.findings import Finding as Finding
    from margin.findings import Subject as Subject
    from margin.options import Training as Training
    from margin.training import open_source as open_source
    from margin.training import resume as resume
    from margin.training import train as train

_HOMES = {
    "Finding": "margin.findings",
    "MarginClassifier": "margin.estimators",
    "MarginRegressor": "margin.estimators",
    "Run": "margin.engine.runs",
    "Subject": "margin.findings",
    "Training": "margin.options",
    "audit": "margin.auditing.audit",
    "claims": "margin.catalog",
    "export": "margin.exporting",
    "load": "margin.engine.loading",
    "models": "margin.catalog",
    "open_source": "margin.training",
    "parts": "margin.catalog",
    "resume": "margin.training",
    "rules": "margin.catalog",
    "train": "margin.training",
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

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
