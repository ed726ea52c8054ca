"""An audit of every entry's own run: no claim breaks, none is violated, none leaves a trace.

Of the entries of an area that take the same data and predict the same, the first is asked everything, and the
others what their own area asks: what theory asks of any model sees a model's task and inputs, not its name.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from margin.auditing.asking.audit import audit
from margin.core.catalog import Entry, models, resolve
from margin.core.findings import Verdict
from margin.core.options import Training
from margin.data.examples import held_out_part
from margin.runs.verbs import train
from smaller import SMALLER, fewer_draws

CHEAPER = {
    "generative/image_diffusion": ("generative/diffusion",),
    "generative/realnvp_images": ("generative/made",),
    "geometric/pointnet": (),  # geometric/deepsets is of the same task, on sets too
    "sequence/stack_memory:tokens": ("sequence/elman:tokens",),
    "text/elmo": ("text/text_cnn",),
    "text/elmo:tokens": ("text/gpt",),
    "vision/vit": ("vision/lenet5",),
}
"""Who is asked everything in place of an entry whose every pass takes long; that one is asked DERIVATIVES."""

DERIVATIVES = ("theory/curvature.leading", "theory/gradient_noise.variance", "theory/loss_slices.random")
"""Claims that ask a network for second derivatives, gradients of each example, losses at other weights."""


def asked_everything() -> set[str]:
    """The first entry of each area, task and tiny data."""
    first: dict[tuple[str, str, str], str] = {}
    for name, entry in models().items():
        first.setdefault((name.partition("/")[0], entry.task, entry.tiny), name)
    return {other for name in first.values() for other in CHEAPER.get(name, (name,))}


EVERYTHING = asked_everything()


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a claim breaks on no entry and leaves no trace holds of an estimate by any number of draws."""
    fewer_draws(monkeypatch)


# five to fifteen seconds of those that are asked everything: second derivatives of recurrences and attention
@pytest.mark.parametrize("entry", models().values(), ids=lambda entry: entry.name)
def test_every_claim_can_be_put_to_a_run_of_every_entry(entry: Entry, tmp_path: Path) -> None:
    data = resolve(entry.tiny)()
    if not held_out_part(data.splits):
        data = replace(data, splits={**data.splits, "test": data.splits["train"]})
    smaller = SMALLER.get(entry.name, {})
    run = train(entry.name, data, smaller, Training(max_steps=3), out=tmp_path / "run")
    area = entry.name.partition("/")[0]
    few = [f"{area}/*", *(DERIVATIVES if entry.name in CHEAPER else ())]
    found = audit(run, data, claims="*" if entry.name in EVERYTHING else few)
    assert {a.claim.name: a.broken for a in found.answers if a.broken} == {}
    violated = {name for name, finding in found.findings.items() if finding.verdict is Verdict.VIOLATED}
    assert violated <= {"theory/baseline.constant"}  # three steps need not do better than a constant answer
