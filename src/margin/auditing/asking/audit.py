"""``margin.audit``: theoretical guarantees and measurements of a model, a run's or anybody's, compared."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from margin.auditing.asking.answers import FAIL_ON, Audit, Progress, ask
from margin.auditing.asking.named import claims_named
from margin.auditing.asking.requirements import requirement_of
from margin.auditing.asking.reuse import Earlier, earlier_of
from margin.auditing.subject.predictions import (
    is_estimator,
    subject_of_predictions,
    subject_of_predictor,
)
from margin.auditing.subject.trained import (
    Estimator,
    is_held_out,
    own_data,
    subject_of_estimator,
    subject_of_run,
)
from margin.auditing.subject.user_modules import is_exported
from margin.core import catalog
from margin.core.findings import Subject, Verdict
from margin.core.types import Domain
from margin.engine.runs import Run

MINUTES = 2.0
"""What an audit may take, where nothing else is said."""

TRYING = 1 / 8
"""The part of the budget that is for finding out what a module does besides answering."""


# 18 parameters: the model, its data and how both are read; what is asked, required and allowed
def audit(
    model: Any = None,
    data: Any = None,
    *,
    claims: str | Sequence[str] = "*",
    task: str | None = None,
    train: Any = None,
    domain: Domain | tuple[float, float] | None = None,
    class_names: Sequence[str] = (),
    output: str | int | None = None,
    predictions: Any = None,
    targets: Any = None,
    reference: nn.Module | Run | str | Path | None = None,
    ood: Any = None,
    selected_on_test: int | None = None,
    require: Sequence[str] = (),
    fail_on: Sequence[str] = FAIL_ON,
    minutes: float = MINUTES,
    progress: Progress | None = None,
    reuse: str | Path | Audit | Earlier | None = None,
) -> Audit:
    """Put every claim that applies to a model, and collect the findings.

    Args:
        model: Any module, a run or its directory, a fitted estimator of margin's or of scikit-learn's kind,
            or a subject.
        data: Held-out examples: arrays ``(x, y)``, inputs by name with their target, a DataLoader, batches,
            or Data. A run brings its own.
        claims: Patterns of claim names, such as ``theory/*`` or ``calibration``; without them every claim but
            those whose answer is known before or takes long, which are listed.
        task: How a module's outputs are read: classes, binary, multilabel, terms (a class at each place),
            logits, probabilities, halfspace or values; inferred if not given, and refused where it cannot be
            told.
        train: The examples that a module was trained on, for the claims that need them.
        domain: Where one input of a module may lie, in the data's units.
        class_names: Names of a module's classes, in the order of its outputs; text targets need them.
        output: Which part of what a module returns is its outputs, an index, a key or an attribute, if it
            returns several things; if not given a tensor, the first of a tuple, ``logits``, or the only one.
        predictions: In place of a model and data, its predictions: a row of probabilities, logits or values
            per example, or the predicted classes; what can be asked of numbers alone is asked.
        targets: The truth of the predictions.
        reference: Reference model: a second one of the same kind, a run for a run or a module for a module,
            for claims that compare two.
        ood: Examples of another source (out of distribution), of which the model should be less sure: inputs
            alone, or what held-out data may be; targets are not read. Of a run a path or a name too.
        selected_on_test: How many models the held-out examples have compared, this one among them: bounds of
            its risk by them hold for all of these at once. 1 says that they chose nothing; if not given that
            is assumed.
        require: What is required of the model, as ``accuracy>=.9`` or ``linf.sandwich@.1>=.5``; the claims
            that this names are asked too.
        fail_on: The verdicts by which ``audit.failed``, beside a requirement that is not met.
        minutes: What the audit may take, the reading of the model and the report counted: the most telling
            and the cheapest claims come first, dear ones are asked of fewer examples, which their findings
            say, and what does not fit is listed as not asked. inf for any time.
        progress: Called before each claim is asked.
        reuse: An earlier audit, or the directory where one was saved. If it is of the same weights, data,
            settings, code and versions, its findings are taken over, those of other claims too; else none is.
            What became of it is the fact "earlier audit".

    Returns:
        The audit; it prints itself, and ``save(directory)`` writes findings and report.

    Raises:
        FileNotFoundError: There is no earlier audit to reuse.
        Interrupted: Ctrl-C came; its ``audit`` holds what was answered.
        ValueError: The data do not fit the model, no claim has such a name, or a requirement is about a claim
            that does not apply.
    """
    began = time.perf_counter()
    requirements = [requirement_of(text) for text in ([require] if isinstance(require, str) else require)]
    named = claims_named([claims] if isinstance(claims, str) else claims)
    required = [requirement.claim for requirement in requirements]
    chosen = [claim for claim in catalog.claims().values() if claim in named or claim in required]
    put = partial(
        _put,
        compared=selected_on_test,
        claims=chosen,
        progress=progress,
        requirements=requirements,
        fail_on=verdicts_named(fail_on),
        minutes=minutes,
        began=began,
        everything=claims != "*" and list(claims) != ["*"],
        earlier=None if reuse is None else earlier_of(reuse),
    )
    if predictions is not None or targets is not None:
        if model is not None or data is not None or ood is not None:
            raise ValueError("predictions stand in place of a model and data: leave out both, and ood")
        numbers = subject_of_predictions(predictions, targets, task=task, class_names=tuple(class_names))
        return put(numbers, title="predictions")
    if isinstance(model, Estimator):
        if task or reference is not None:
            raise ValueError(
                "an estimator knows its task and has no reference model: leave out task and reference"
            )
        asked = subject_of_estimator(model, data, train=train, domain=domain)
        return put(_beside(asked, ood), title=type(model).__name__)
    if is_estimator(model) and not isinstance(model, Run | Subject):
        if task or reference is not None or output is not None:
            raise ValueError("an estimator knows its task and its outputs: leave out task, reference, output")
        asked = subject_of_predictor(model, data, train=train, domain=domain, class_names=class_names)
        return put(_beside(asked, ood), title=type(model).__name__)
    _check_kind(model)
    if isinstance(model, str | Path):
        model = Run(model)
    if isinstance(model, Run):
        if task or train is not None or domain is not None or len(class_names):
            raise ValueError("a run knows its task, training examples, domain and classes: leave them out")
        record, data = model.record, own_data(model, data)
        facts = {
            "model": record["recipe"]["model"],
            "run": str(model.path),
            "data": record["data"]["name"],
            "data fingerprint": record["data"]["fingerprint"][:16],
            "trained": model.reason,
        }
        judged_on = record["data"]["name"]
        if not is_held_out(model, data):
            judged_on = Path(data).name if isinstance(data, str | Path) else "data that were handed over"
            facts["audited on"] = judged_on
        if isinstance(reference, Run | str | Path):
            facts["reference"] = str(_path(reference))
        title = f"{record['recipe']['model']} on {judged_on}"
        if isinstance(reference, nn.Module):
            raise ValueError("reference must be a run where the model is one: got a module")
        subject = subject_of_run(model, data, None if reference is None else Run(_path(reference)))
        subject = _beside(subject, ood, model)
        return put(subject, title=title, facts=facts, history=subject.history)
    if isinstance(model, Subject):
        return put(_beside(model, ood))
    if data is None:
        raise ValueError("a module is audited on held-out data: give them as (x, y)")
    if not (reference is None or isinstance(reference, nn.Module)):
        raise ValueError("reference must be a module where the model is one: got a run")
    from margin.auditing.subject.subjects import alike, subject_of

    names = tuple(class_names)
    subject = subject_of(
        model,
        data,
        task=task,
        train=train,
        domain=domain,
        class_names=names,
        output=output,
        seconds=60 * minutes * TRYING,
    )
    second, subject = _second(model, reference), _beside(subject, ood)
    return put(replace(subject, reference_model=None if second is None else alike(subject.model, second)))


def _put(subject: Subject, *, compared: int | None, **asking: Any) -> Audit:
    """The claims put to a subject, whose held-out examples compared so many models by the user's word."""
    return ask(subject if compared is None else replace(subject, compared=compared), **asking)


def _beside(subject: Subject, ood: Any, run: Run | None = None) -> Subject:
    """The subject with the examples of another source, where they are given."""
    if ood is None:
        return subject
    from margin.auditing.subject.other_source import with_other_source

    return with_other_source(subject, ood, run)


def verdicts_named(names: str | Sequence[str]) -> tuple[Verdict, ...]:
    """The verdicts of these names.

    Raises:
        ValueError: There is none of a name.
    """
    found = [names] if isinstance(names, str) else list(names)
    if odd := [name for name in found if name not in list(Verdict)]:
        raise ValueError(f"an audit fails by a verdict, one of {', '.join(Verdict)}: got {odd[0]!r}")
    return tuple(map(Verdict, found))


def _check_kind(model: Any) -> None:
    if not isinstance(model, nn.Module | Run | Subject | str | Path) and not is_exported(model):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        remedy = "; wrap its scores in one: forward(x) returns a tensor of a row an example"
        if isinstance(model, type) and issubclass(model, nn.Module):
            remedy = f": give an instance, {kind}(...)"
        raise ValueError(
            f"an audit takes a torch module, a run or its directory, one of margin's estimators or a "
            f"subject: got {kind}{remedy}"
        )


def _path(run: Run | str | Path) -> str | Path:
    return run.path if isinstance(run, Run) else run


def _second(model: Any, reference: nn.Module | None) -> nn.Module | None:
    if reference is None:
        return None
    own, other = ({name: tuple(p.shape) for name, p in m.named_parameters()} for m in (model, reference))
    if own != other:
        odd = next(name for name in {**own, **other} if own.get(name) != other.get(name))
        raise ValueError(f"reference must have the model's own parameters: they differ in {odd}")
    return reference
