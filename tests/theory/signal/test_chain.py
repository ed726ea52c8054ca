"""A chain is found by running a model, and what is none is refused by name."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from margin.auditing.asking.side_effects import Snapshot
from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.engine.evaluation import capture
from margin.engine.loop import risk
from margin.feedforward.mlp.model import MLP, MLPRegressor
from margin.nn.preprocessed import Preprocessed
from margin.theory.signal.chain import NotAChainError, chain_in, chain_of, probe
from margin.vision.convnets.lenet5 import LeNet5

X = (torch.linspace(-1, 1, 12).reshape(3, 4),)


def names(stages):
    return [(stage.name, [name for name, _ in stage.after]) for stage in stages]


def test_a_catalog_model_behind_its_preprocessing_is_a_chain():
    standard = Standardize(torch.zeros(4).double(), torch.ones(4).double())
    model = Preprocessed(standard, MLP(4, 3, hidden=(5, 6), norm="batch", dropout=0.5))
    found = chain_of(model, X)
    assert names(found) == [
        ("model.layers.1", ["model.layers.2", "model.layers.3", "model.layers.4"]),
        ("model.layers.5", ["model.layers.6", "model.layers.7", "model.layers.8"]),
        ("model.layers.9", []),
    ]
    assert [stage.units for stage in found] == [5, 6, 3]
    # one that flattens its answer is one too
    assert len(chain_of(MLPRegressor(4, hidden=(5,)), X)) == 2


def test_activations_in_place_stand_in_a_chain():
    layers = (nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True))
    assert names(chain_of(nn.Sequential(*layers), X)) == [("0", ["1"]), ("2", ["3"])]


def test_a_convolutional_model_that_resizes_its_images_is_a_chain():
    found = chain_of(LeNet5(1, 10), (torch.rand(2, 1, 8, 8),))
    assert [stage.units for stage in found] == [6, 16, 120, 84, 10]


PASSES = []


class Counting(nn.Sequential):
    def forward(self, x):
        PASSES.append(len(x))  # an attribute of the model would be as before after each
        return super().forward(x)


def test_a_subject_is_followed_once_until_its_weights_change():
    PASSES.clear()
    model = Counting(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    subject = Subject(
        model=model, test=[Batch(X, torch.arange(3) % 2)], task=CLASSES, objective=risk(CLASSES)
    )
    assert names(chain_in(subject)) == names(chain_of(model, X)) == names(chain_in(subject))
    assert PASSES == [2, 3]
    with torch.no_grad():
        model[2].weight.mul_(2)
    assert chain_in(subject)[1].layer is model[2]
    assert PASSES == [2, 3, 2]


def test_a_subject_that_is_no_chain_is_refused_in_the_same_words_each_time():
    PASSES.clear()
    subject = Subject(
        model=Counting(Residual()),
        test=[Batch(X, torch.arange(3) % 2)],
        task=CLASSES,
        objective=risk(CLASSES),
    )
    for _ in range(2):
        with pytest.raises(NotAChainError, match=r"layer '0\.outer' must take what layer '0\.inner' gave"):
            chain_in(subject)
    assert PASSES == [2]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.outer(x + self.inner(x))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.outer(F.relu(self.inner(x)))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.inner(x)
        h += x
        return self.outer(h)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(())), nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(self.scale * x)


class More(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x) + 1


class MoreInPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x).add_(1)


def tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


def twice():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


def normed_twice():
    norm = nn.BatchNorm1d(4, affine=False)
    return nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 4), norm)


class Masked(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.tril(), self.bias)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Residual(), "layer 'outer' must take what layer 'inner' gave: something else is between"),
        (InPlace(), "layer 'outer' must take what layer 'inner' gave"),
        (Functional(), "layer 'outer' must take what layer 'inner' gave"),
        (More(), "answer what its last layer 'inner' gave"),
        (MoreInPlace(), "answer what its last layer 'inner' gave"),
        (Scaled(), "the parameter 'scale' belongs to no layer"),
        (tied(), "the parameter '0.weight' belongs to several layers"),
        (twice(), "layer '0' must be run once: it is run 2 times"),
        (normed_twice(), "layer '1' must be run once: it is run 2 times"),
        (nn.Sequential(nn.Tanh()), "the model has none"),
        (nn.Sequential(nn.Conv1d(3, 3, 1), nn.Flatten(0), nn.Linear(12, 1)), "the parameter '0.weight'"),
        (nn.Sequential(Masked(4, 4)), "the model has none"),
        (nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4))), "layer '0' must be parameters"),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_chain_is_refused_by_name(model, message):
    with pytest.raises(NotAChainError, match=message):
        chain_of(model, X)


def test_following_a_model_leaves_no_trace():
    model = MLP(4, 3, norm="batch", dropout=0.5).train()
    subject = Subject(
        model=model, test=[Batch(X, torch.zeros(3).long())], task=CLASSES, objective=risk(CLASSES)
    )
    before = Snapshot.of(subject)
    chain_of(model, X)
    assert not before.difference(subject)


def test_a_probe_fits_a_model_that_begins_with_a_linear_layer_alone():
    core, inputs = probe(MLP(4, 3))
    assert len(chain_of(core, inputs)) == 2
    with pytest.raises(NotAChainError, match=r"give inputs to follow the layers: .* no Linear but Conv2d"):
        probe(LeNet5(1, 10))


class Drawn(nn.Module):
    """A layer that answers for two draws of its weights at once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        draws = torch.stack([self.layer.weight, 2 * self.layer.weight])
        one = lambda weight: torch.func.functional_call(self.layer, {"weight": weight}, (x,))
        return torch.func.vmap(one)(draws).mean(0)


def test_layers_within_a_transform_are_not_looked_at():
    with pytest.raises(NotAChainError, match="the model has none"):
        chain_of(Drawn(), X)
    model = Drawn()
    with capture([model.layer, model]) as calls:
        model(*X)
    assert [call.module for call in calls] == [model]
