"""Modes from labels: found on the ring, covered or lost; classes that are no Gaussians are no modes."""

from dataclasses import replace

import pytest
import torch
from torch import Generator

from margin.core.findings import Subject, Verdict
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.data.sets.mixture_plane import grid
from margin.data.sets.synthetic import blobs, two_moons
from margin.generative.quality.generated import compared
from margin.generative.quality.known_generator import RoundMixture, ring_subject, subject_of
from margin.generative.quality.mode_claims import components_of, has_components, modes
from margin.generative.quality.mode_coverage import good_share


def beside(data, model=None) -> Subject:
    parts = {name: (Batch((part.inputs[0],), part.targets),) for name, part in data.splits.items()}
    return Subject(
        model=model or RoundMixture(torch.zeros(1, 2), std=1.0),
        test=parts["test"],
        train=parts["train"],
        task=DENSITY,
        objective=lambda model, batch, generator: model(*batch.inputs),
    )


def test_the_rings_components_are_found() -> None:
    found = components_of(compared(ring_subject()))
    assert found is not None
    # 25 rows a component: 5 standard errors of a mean are .02, of the common deviation .0053
    assert float((found.means - ring_subject().model.means).abs().max()) < 0.02
    assert found.std == pytest.approx(0.02, abs=0.0053)
    assert found.weights.tolist() == [1 / 8] * 8


def test_the_law_itself_covers_all_modes() -> None:
    found = modes(ring_subject())
    assert found.verdict is Verdict.MEASURED
    assert float(found.value[0]) == 1
    low, high = found.verdict_interval
    assert low[1] < good_share(2) < high[1]
    assert found.premises[0].status == "sampled"


def test_a_collapsed_generator_covers_an_eighth_of_them() -> None:
    means = ring_subject().model.means
    found = modes(subject_of(RoundMixture(means[3:4], std=0.02)))
    assert found.value[0] == 1 / 8
    assert float(found.value[1]) > 0.9
    assert "2.08 nats" in found.statement  # log 8
    bad = modes(subject_of(RoundMixture(means[:1] + 1, std=0.02)))
    assert bad.value.tolist() == [0, 0]


def test_the_grid_has_25() -> None:
    truth = grid(examples=1000).encoding["truth"]
    law = RoundMixture(torch.tensor(truth["means"]), std=truth["std"])
    found = modes(beside(grid(examples=1000), law))
    assert "Of 25 modes" in found.statement
    assert float(found.value[0]) == 1


def test_moons_and_overlapping_blobs_are_no_components() -> None:
    assert not has_components(beside(two_moons(examples=200)))
    assert not has_components(beside(blobs(examples=200)))
    assert has_components(beside(blobs(examples=200, radius=10.0)))
    with pytest.raises(ValueError, match="mode coverage needs classes that are round Gaussians"):
        modes(beside(two_moons(examples=200)))


@pytest.mark.parametrize("ratio", [1.3, 3.0])
def test_stretched_classes_are_no_components(ratio: float) -> None:
    # the ratio of the variances, of which at most 2 are allowed
    data = blobs(examples=4000, radius=20.0)
    subject = beside(data)
    stretch = torch.tensor([ratio**0.5, 1.0])
    parts = {
        name: tuple(Batch((b.inputs[0] * stretch,), b.targets) for b in getattr(subject, name))
        for name in ("train", "test")
    }
    assert has_components(replace(subject, **parts)) == (ratio < 2)


def test_round_classes_that_are_no_gaussians_are_refused() -> None:
    # uniform on a circle of radius r: the variance along an axis is r^2 / 2, so all lie within 1.5 deviations
    generator = Generator().manual_seed(0)
    angle = 6.2832 * torch.rand(4000, generator=generator)
    labels = torch.arange(4000) % 2
    x = torch.stack((angle.cos() + 20 * labels, angle.sin()), 1)
    subject = Subject(
        model=RoundMixture(torch.zeros(1, 2), std=1.0),
        test=(Batch((x[:2000],), labels[:2000]),),
        train=(Batch((x[2000:],), labels[2000:]),),
        task=DENSITY,
        objective=lambda model, batch, generator: model(*batch.inputs),
    )
    found = modes(subject)
    assert found.verdict is Verdict.UNFOUNDED
    assert found.premises[0].evidence.startswith("1.000 of 1,000 held-out examples")


def test_samples_that_are_not_finite_fail() -> None:
    found = modes(subject_of(RoundMixture(torch.full((1, 2), torch.nan), std=0.02)))
    assert found.verdict is Verdict.FAILED
