"""Objectives without targets: by hand, behind the preprocessing, and the same through a training."""

import torch
from torch import Tensor, nn

from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.engine.objectives import core_of, features_of, negative_log_density, reconstruction_error
from margin.nn.preprocessed import Preprocessed


class Halving(nn.Module):
    """Codes that forget half of every coordinate; a density that is the sum of the coordinates."""

    def encode(self, x: Tensor) -> Tensor:
        return x / 2

    def decode(self, codes: Tensor) -> Tensor:
        return codes

    def log_prob(self, x: Tensor) -> Tensor:
        return x.sum(1)


X = torch.tensor([[[3.0, 5.0]], [[1.0, 1.0]]])  # two inputs of more than one axis


def test_each_term_is_an_examples_and_the_targets_are_ignored() -> None:
    for targets in (None, torch.tensor([1, 0])):
        batch = Batch((X,), targets)
        assert reconstruction_error(Halving(), batch, torch.Generator()).tolist() == [8.5, 0.5]
        assert negative_log_density(Halving(), batch, torch.Generator()).tolist() == [-8, -2]


def test_they_speak_of_the_features_behind_the_preprocessing() -> None:
    core = Halving()
    model = Preprocessed(Standardize(torch.ones(1, 2), torch.tensor([[2.0, 4.0]])), core)
    batch = Batch((X,))
    assert core_of(model) is core
    assert core_of(core) is core
    assert features_of(model, X).tolist() == [[[1, 1]], [[0, 0]]]
    assert features_of(core, X) is X
    assert reconstruction_error(model, batch, torch.Generator()).tolist() == [0.5, 0]
    assert negative_log_density(model, batch, torch.Generator()).tolist() == [-2, 0]
