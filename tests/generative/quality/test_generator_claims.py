"""Questions to generators whose answer is known: the data's own law, a shifted one, a copier."""

import json
import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import norm
from torch import Generator, nn

from margin.core.catalog import claims
from margin.core.findings import Subject, Verdict
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.generative.quality import generator_claims as asked
from margin.generative.quality.known_generator import ring_subject, subject_of

QUESTIONS = (asked.sliced, asked.mmd, asked.two_sample, asked.precision_recall, asked.memorization)


class Answering(nn.Module):
    """A generator that is a function of (count, generator)."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def sample(self, count: int, *, generator: Generator) -> torch.Tensor:
        return self.function(count, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1).sum(1)


def normal(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, *shape, generator=Generator().manual_seed(seed))


def beside_normal(function, *shape: int, n: int = 300) -> Subject:
    """A generator beside standard normal data."""
    return Subject(
        model=Answering(function),
        test=(Batch((normal(n, *shape, seed=1),)),),
        train=(Batch((normal(n, *shape, seed=2),)),),
        task=DENSITY,
        objective=lambda model, batch, generator: model(*batch.inputs),
    )


def own_law(*shape: int) -> Subject:
    return beside_normal(lambda count, g: torch.randn(count, *shape, generator=g), *shape)


@pytest.mark.parametrize("question", QUESTIONS)
def test_samples_that_are_not_finite_fail(question) -> None:
    finding = question(beside_normal(lambda count, g: torch.full((count, 2), torch.nan), 2))
    assert finding.verdict is Verdict.FAILED
    assert finding.failure == "300 of 300 samples are not finite"
    json.dumps(finding.as_json(), allow_nan=False)


@pytest.mark.parametrize("question", QUESTIONS)
def test_nothing_is_promised_of_a_generator(question) -> None:
    finding = question(own_law(2))
    assert finding.verdict is Verdict.MEASURED
    below, above = finding.verdict_interval
    assert bool((below <= finding.value).all() and (finding.value <= above).all())


def test_a_shift_has_its_known_distances() -> None:
    shift = 1.0
    subject = beside_normal(lambda count, g: torch.randn(count, 1, generator=g) + shift, 1, n=800)
    # in standard deviations of the training part, which is 1 up to 1 in 40
    assert float(asked.sliced(subject).value) == pytest.approx(shift, abs=0.25)
    found = asked.two_sample(subject)
    truth = 2 * norm.cdf(shift / 2) - 1
    assert float(found.verdict_interval[0]) <= truth
    assert float(found.value) == pytest.approx(truth, abs=0.15)
    assert float(found.verdict_interval[1]) == 1  # the truth may be all the way up
    kernel = asked.mmd(subject)
    assert float(kernel.verdict_interval[0]) > 0
    assert "probability 0.005" in kernel.statement


def test_the_datas_own_law_is_not_told_apart() -> None:
    subject = own_law(3)
    assert float(asked.two_sample(subject).verdict_interval[0]) == 0
    low, high = asked.mmd(subject).verdict_interval
    assert low <= 0 <= high
    precision, recall, density, coverage = asked.precision_recall(subject).value.tolist()
    assert min(precision, recall) > 0.85
    assert density == pytest.approx(1, abs=0.3)
    assert coverage == pytest.approx(0.97, abs=0.06)


def test_noisy_images_that_neighbors_take_for_data_are_told_apart_by_a_kernel() -> None:
    # each sample's neighbors are data, which lie closer to everything: neighbors are at chance
    subject = beside_normal(lambda count, g: 1.6 * torch.randn(count, 64, generator=g), 64)
    found = asked.two_sample(subject)
    assert "a Gaussian kernel" in found.statement
    assert float(found.verdict_interval[0]) > 0.3


def test_a_copier_is_found_and_the_law_itself_is_not() -> None:
    train = normal(300, 2, seed=2)
    subject = beside_normal(lambda count, g: train[:count] + 1e-4, 2)
    found = asked.memorization(subject)
    assert float(found.value) < 0.02
    assert float(found.verdict_interval[1]) < 0.5
    # of the samples nearly all are beside one training row
    assert "100.0% of the samples" in found.statement or "99." in found.statement
    low, high = asked.memorization(own_law(2)).verdict_interval
    assert low < 0.5 < high
    assert found.assuming == ("held-out examples are independent of the training rows",)


def test_a_collapsed_generator_is_precise_and_recalls_little() -> None:
    subject = beside_normal(lambda count, g: 0.01 * torch.randn(count, 2, generator=g), 2)
    precision, recall, _, coverage = asked.precision_recall(subject).value.tolist()
    assert precision == 1
    assert max(recall, coverage) < 0.1


def test_the_reach_of_a_share_ends_at_1() -> None:
    found = asked.precision_recall(ring_subject())
    below, above = found.verdict_interval
    assert float(below.min()) >= 0
    assert bool((above[[0, 1, 3]] <= 1 + 1e-12).all())
    assert float(above[2]) > 1


def test_a_share_of_0_or_1_is_not_known_without_error() -> None:
    # far from the data: no sample in 200 is precise, which a share of up to 1 - 5e-5^(1/200) would give
    found = asked.precision_recall(beside_normal(lambda count, g: torch.full((count, 2), 99.0), 2, n=200))
    below, above = found.verdict_interval
    assert found.value[:2].tolist() == [0, 0]
    assert float(above[0]) == pytest.approx(1 - 5e-5 ** (1 / 200), rel=1e-6)
    assert float(below[0]) == 0


def test_the_distance_stands_beside_that_of_the_training_rows() -> None:
    words = asked.sliced(ring_subject()).statement
    own = float(words.rpartition(" at ")[2].rstrip("."))
    assert 0.02 < own < 0.5  # so many draws from eight modes have unequal shares
    assert "training" not in asked.sliced(_without_training(ring_subject())).statement


def _without_training(subject: Subject) -> Subject:
    return replace(subject, train=())


def test_points_and_images_are_handed_to_the_report() -> None:
    points = asked.sliced(own_law(2)).curves
    assert {name: tuple(c.shape) for name, c in points.items()} == {
        "sample points": (300, 2),
        "held-out points": (300, 2),
    }
    assert asked.sliced(own_law(3)).curves == {}
    images = own_law(1, 4, 3)
    assert tuple(asked.sliced(images).curves["held-out images"].shape) == (12, 1, 4, 3)
    beside = asked.memorization(images)
    near, train = (beside.curves[n] for n in ("sample images", "nearest training images"))
    apart = torch.cdist(near.flatten(1), images.train[0].inputs[0].double().flatten(1)).min(1).values
    torch.testing.assert_close((near - train).flatten(1).norm(dim=1), apart, rtol=1e-5, atol=1e-6)
    assert bool((apart.diff() >= -1e-9).all())  # the closest first


def test_every_question_is_asked_of_the_rings_own_law() -> None:
    rows = [claim for name, claim in claims().items() if name.startswith("generative/samples.")]
    assert len(rows) == 6
    assert not any(claim.refusal(ring_subject()) for claim in rows)
    token = subject_of(nn.Linear(2, 1))
    assert all(claim.refusal(token).startswith("is asked only of") for claim in rows)
    assert math.isfinite(float(asked.sliced(ring_subject()).value))
