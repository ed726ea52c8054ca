"""The track of a generator: the distance falls as the generator nears the data; nothing is left changed."""

import math

import pytest
import torch
from torch import nn

from margin.engine.loop import State
from margin.generative.quality.known_generator import RoundMixture, ring_subject
from margin.generative.quality.samples_track import track
from margin.nn.preprocessed import Preprocessed


def measured(model: nn.Module) -> float:
    before = torch.get_rng_state()
    state = State(modules={"model": Preprocessed(nn.Identity(), model).train()})
    columns = track(state, lambda model, batch, generator: torch.zeros(1), ring_subject().train)
    assert torch.equal(before, torch.get_rng_state())
    assert state.model.training
    assert list(columns) == ["sliced_wasserstein"]
    return columns["sliced_wasserstein"]


def test_the_distance_falls_as_the_law_is_neared() -> None:
    means = ring_subject().model.means
    far, near, own = (measured(RoundMixture(means + shift, std=0.02)) for shift in (3.0, 0.5, 0.0))
    assert far > near > own > 0
    # a shift by (3, 3) in a feature of deviation sqrt 2: 3 along each of two axes, over sqrt 2 directions
    assert far == pytest.approx(3 / math.sqrt(2), rel=0.2)
    assert measured(RoundMixture(means, std=0.02)) == own


def test_what_is_not_finite_is_nan() -> None:
    assert math.isnan(measured(RoundMixture(torch.full((1, 2), torch.nan), std=0.02)))


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a model that can be sampled: got Linear"):
        measured(nn.Linear(2, 1))
