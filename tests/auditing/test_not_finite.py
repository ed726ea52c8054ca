"""NaN fails every gate: what is asked of a model whose weights are no numbers is failed, or not asked."""

import math
from dataclasses import replace

import pytest
import torch

from margin.core.catalog import claims, resolve
from margin.core.findings import Finding, NotAsked, Subject, Verdict, finding_of

NO_NUMBER = {Verdict.FAILED, Verdict.UNFOUNDED}
TOLD_OTHERWISE = {
    "theory/behavior.finite": "it says that the answers are no numbers, and is violated",
    "theory/behavior.mode": "the two modes answer alike",
}
OWN_DRAWS = ("bayes/hmc", "bayes/sgld", "bayes/langevin", "theory/ntk", "theory/nngp")
"""They draw chains or networks of their own, which takes longest, and read no weight of the subject."""


def without_numbers(subject: Subject) -> int:
    """Make every parameter NaN; how many there are."""
    real = [p for p in subject.model.parameters() if p.is_floating_point() or p.is_complex()]
    with torch.no_grad():
        for p in real:
            p.fill_(math.nan)
    return len(real)


@pytest.mark.parametrize(
    "name", ["geometric/power_sums.inversion", "generative/samples.mmd", "generative/samples.modes"]
)
def test_an_input_that_is_no_number_is_named_where_nothing_can_be_computed(name: str) -> None:
    claim = claims()[name]
    subject = resolve(claim.demo)()
    batch = subject.test[0]
    x = batch.inputs[0].clone()
    x[1].view(-1)[0] = math.nan
    odd = replace(subject, test=[batch._replace(inputs=(x, *batch.inputs[1:])), *list(subject.test)[1:]])
    with pytest.raises(NotAsked, match="an input of held-out example 1 is not finite"):
        finding_of(claim, odd)


@pytest.mark.parametrize("name", ["theory/behavior.finite", "geometric/wl.ceiling", "generative/vae.gap"])
def test_where_no_example_counts_nothing_is_asked(name: str) -> None:
    claim = claims()[name]
    subject = resolve(claim.demo)()
    batch = subject.test[0]
    shape = batch.inputs[0] if batch.targets is None else batch.targets
    with pytest.raises(NotAsked, match="no held-out example has a weight above 0"):
        finding_of(claim, replace(subject, test=[batch._replace(weight=torch.zeros(len(shape)))]))


def same(a: Finding, b: Finding) -> bool:
    """Whether all that has a number in the first is the same in the second."""
    kept = [verdict not in NO_NUMBER for verdict in a.verdicts]
    return a.value.shape == b.value.shape and torch.equal(a.value.flatten()[kept], b.value.flatten()[kept])


@pytest.mark.parametrize("package", sorted({name.rpartition(".")[0] for name in claims()} - {*OWN_DRAWS}))
def test_weights_that_are_no_numbers_are_no_answer(package: str) -> None:
    """Else the answer is that of the demonstration itself: the claim reads the data, and no weight."""
    for name, claim in claims().items():
        if name.rpartition(".")[0] != package or name in TOLD_OTHERWISE:
            continue
        subject = resolve(claim.demo)()
        if not without_numbers(subject):
            continue
        try:
            found = finding_of(claim, subject)
        except NotAsked:
            continue
        if not set(found.verdicts) <= NO_NUMBER:
            assert same(found, finding_of(claim, resolve(claim.demo)())), (name, found)
