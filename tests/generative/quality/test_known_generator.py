"""The generator of known law draws that law and states its density."""

import math

import torch
from scipy.stats import kstest, multivariate_normal
from torch import Generator

from margin.generative.quality.claims import RoundMixture, ring_subject

MEANS = torch.tensor([[0.0, 0.0], [3.0, -1.0], [5.0, 5.0]])


def test_the_density_is_that_of_scipy() -> None:
    x = torch.randn(20, 2, generator=Generator().manual_seed(0)) * 3
    parts = sum(multivariate_normal(m.numpy(), 0.49).pdf(x.numpy()) for m in MEANS) / 3
    found = RoundMixture(MEANS, std=0.7)(x)
    torch.testing.assert_close(found, torch.tensor(parts).log().float(), rtol=1e-4, atol=1e-4)


def test_samples_have_the_law() -> None:
    model = RoundMixture(MEANS, std=0.1)
    x = model.sample(3000, generator=Generator().manual_seed(0))
    apart = torch.cdist(x, MEANS)
    nearest = apart.argmin(1)
    z = (x - MEANS[nearest]) / 0.1
    assert kstest(z.flatten().numpy(), "norm").pvalue > 1e-5
    share = torch.bincount(nearest) / 3000
    assert float((share - 1 / 3).abs().max()) < 4.5 * math.sqrt(2 / 9 / 3000)


def test_the_subject_is_the_ring_beside_its_own_law() -> None:
    subject = ring_subject()
    assert sum(len(b.inputs[0]) for b in subject.test) == 200
    assert sum(len(b.inputs[0]) for b in subject.train) == 200
    assert subject.model.std == 0.02
