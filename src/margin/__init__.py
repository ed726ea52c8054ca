"""margin: deep learning, with what theory promises written in the margin of what is measured.

Importing this package imports no torch; a name is loaded when it is first used.
"""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from margin import metrics as metrics
    from margin.auditing.asking.audit import audit as audit
    from margin.auditing.asking.comparing import compare as compare
    from margin.auditing.exercises.judging import exercise as exercise
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
    from margin.runs.sampling import sample as sample
    from margin.runs.training import open_source as open_source
    from margin.runs.verbs import predict as predict
    from margin.runs.verbs import resume as resume
    from margin.runs.verbs import train as train
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
    "compare": "margin.auditing.asking.comparing",
    "data": "margin.data",
    "exercise": "margin.auditing.exercises.judging",
    "export": "margin.runs.exporting",
    "load": "margin.engine.runs",
    "metrics": "margin.metrics",
    "models": "margin.core.catalog",
    "open_source": "margin.runs.training",
    "parts": "margin.core.catalog",
    "predict": "margin.runs.verbs",
    "resume": "margin.runs.verbs",
    "rules": "margin.core.catalog",
    "sample": "margin.runs.sampling",
    "train": "margin.runs.verbs",
}

_VERBS: dict[str, dict[str, str]] = {
    "audit": {},
    "compare": {},
    "export": {"out": "path"},
    "load": {},
    "open_source": {},
    "sample": {},
}
"""Functions that the command line calls too, with the arguments whose options have another name: their errors
are told in the words of Python."""

__all__ = [
    "Finding",
    "MarginClassifier",
    "MarginRegressor",
    "Run",
    "Subject",
    "Training",
    "audit",
    "claims",
    "compare",
    "data",
    "exercise",
    "export",
    "load",
    "metrics",
    "models",
    "open_source",
    "parts",
    "predict",
    "resume",
    "rules",
    "sample",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'margin' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(_HOMES[name])
    value: Any = home if home.__name__ == f"margin.{name}" else getattr(home, name)
    if name in _VERBS:
        from margin.core.arguments import by_argument

        value = by_argument(_VERBS[name])(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Data(ModuleType):
    """The package ``margin.data``, which is a verb too: ``margin.data("iris")`` describes a set or a file."""

    def __call__(self, source: Any, options: Mapping[str, Any] | None = None) -> Any:
        """What is understood of data before anything is trained."""
        from margin.runs.verbs import describe_data

        return describe_data(source, options)


class _Margin(ModuleType):
    """This package, which makes its subpackage ``data`` callable when that is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "data" and type(value) is ModuleType:
            value.__class__ = _Data
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Margin
