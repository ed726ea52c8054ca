"""Settings of the weights that give one function: equal outputs, other parameters; the rest is refused."""

import copy
import math

import pytest
import torch
from torch import nn

from margin.data.preprocess import Standardize
from margin.feedforward.mlp.model import MLP
from margin.nn.preprocessed import Preprocessed
from margin.theory.signal.path import NotAChainError
from margin.theory.signal.symmetry import flip_signs, permute_hidden, rescale
from margin.vision.convnets.lenet5 import LeNet5


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shaken(model, seed=0):
    """The model in float64, every parameter and running statistic different from unit to unit."""
    model = copy.deepcopy(model).double().eval()
    with torch.no_grad():
        for i, tensor in enumerate((*model.parameters(), *model.buffers())):
            if tensor.is_floating_point():
                tensor.copy_(randn(*tensor.shape, seed=seed + i) / max(1, tensor[0].numel()) ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.abs_().add_(0.1)
    return model


def shuffled(units, seed=1):
    return torch.randperm(units, generator=torch.Generator().manual_seed(seed))


def gap(one, other, x):
    with torch.no_grad():
        return float((one(x) - other(x)).abs().max() / one(x).abs().max())


MODELS = {
    "tanh": MLP(4, 3, hidden=(6, 5), activation="tanh"),
    "relu, dropout": MLP(4, 3, hidden=(6, 5), dropout=0.5),
    "batch norm": MLP(4, 3, hidden=(6, 5), norm="batch"),
    "layer norm": MLP(4, 3, hidden=(6, 5), norm="layer"),
    "prelu": nn.Sequential(nn.Linear(4, 6), nn.PReLU(6), nn.Linear(6, 5), nn.PReLU(), nn.Linear(5, 3)),
    "no bias": nn.Sequential(nn.Linear(4, 6, bias=False), nn.GELU(), nn.Linear(6, 5, False), nn.Linear(5, 3)),
    "group norm": nn.Sequential(
        nn.Linear(4, 6), nn.GroupNorm(1, 6), nn.SiLU(), nn.Linear(6, 5), nn.Linear(5, 3)
    ),
}


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_permuted_units_compute_the_same_function_with_other_parameters(name, layer):
    model, x = shaken(MODELS[name]), randn(20, 4, seed=9)
    changed = permute_hidden(model, layer, shuffled((6, 5)[layer]))
    assert gap(model, changed, x) < 1e-12
    pairs = zip(model.parameters(), changed.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("key", ["running_mean", "running_var", "weight", "bias"])
def test_each_tensor_of_a_batch_norm_must_move_along(key):
    model, x, perm = shaken(MODELS["batch norm"]), randn(20, 4, seed=9), shuffled(6)
    changed = permute_hidden(model, 0, perm)
    norm, own = changed.layers[2], model.layers[2]
    assert torch.equal(getattr(norm, key), getattr(own, key)[perm])
    getattr(norm, key).data.copy_(getattr(own, key))
    assert gap(model, changed, x) > 1e-3


def test_a_permutation_is_what_the_matrices_say():
    model, perm = shaken(MODELS["tanh"]), shuffled(6)
    P = torch.eye(6, dtype=torch.float64)[perm]
    changed = permute_hidden(model, 0, perm)
    assert torch.equal(changed.layers[1].weight, P @ model.layers[1].weight)
    assert torch.equal(changed.layers[1].bias, P @ model.layers[1].bias)
    assert torch.equal(changed.layers[3].weight, model.layers[3].weight @ P.mT)
    # the next layer's side is needed
    changed.layers[3].weight.data.copy_(model.layers[3].weight)
    assert gap(model, changed, randn(20, 4)) > 1e-3


@pytest.mark.parametrize("layer", range(4))
def test_channels_can_be_permuted_and_so_the_pixels_of_a_flattened_channel(layer):
    model, x = shaken(LeNet5(1, 10, pooling="max")), torch.rand(3, 1, 12, 12, dtype=torch.float64)
    changed = permute_hidden(model, layer, shuffled((6, 16, 120, 84)[layer]), inputs=(x,))
    assert gap(model, changed, x) < 1e-12


def test_a_convolution_with_batch_norm_and_global_pooling():
    model = shaken(
        nn.Sequential(
            nn.Conv2d(2, 5, 3),
            nn.BatchNorm2d(5),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(5, 3),
        )
    )
    x = randn(3, 2, 6, 6)
    assert gap(model, permute_hidden(model, 0, shuffled(5), inputs=(x,)), x) < 1e-12


def test_a_model_behind_its_preprocessing_needs_no_inputs():
    standard = Standardize(randn(4), torch.full((4,), 2.0).double())
    model = Preprocessed(standard, shaken(MODELS["tanh"]))
    changed = permute_hidden(model, 1, shuffled(5))
    assert isinstance(changed, Preprocessed)
    assert gap(model, changed, randn(20, 4)) < 1e-12
    assert not torch.equal(changed.model.layers[3].weight, model.model.layers[3].weight)


def test_the_identity_changes_nothing_and_the_model_is_left_alone():
    model = shaken(MODELS["batch norm"])
    before = copy.deepcopy(model.state_dict())
    same = permute_hidden(model, 0, torch.arange(6))
    permute_hidden(model, 0, shuffled(6))
    for key, tensor in before.items():
        assert torch.equal(model.state_dict()[key], tensor)
        assert torch.equal(same.state_dict()[key], tensor)


def test_signs_of_odd_units_can_be_turned():
    signs = torch.tensor([1.0, -1, -1, 1, -1, 1])
    model, x = shaken(MODELS["tanh"]), randn(20, 4, seed=9)
    changed = flip_signs(model, 0, signs)
    assert gap(model, changed, x) < 1e-12
    assert torch.equal(changed.layers[1].bias, model.layers[1].bias * signs)
    with pytest.raises(NotAChainError, match=r"layer 'layers.2' \(ReLU\) must be odd"):
        flip_signs(MLP(4, 3, hidden=(6,)), 0, signs)
    with pytest.raises(NotAChainError, match=r"layer 'layers.2' \(BatchNorm1d\) must be odd"):
        flip_signs(MLP(4, 3, hidden=(6,), activation="tanh", norm="batch"), 0, signs)


def test_units_of_a_homogeneous_activation_can_be_rescaled():
    factors = randn(6).exp()
    model, x = shaken(MODELS["relu, dropout"]), randn(20, 4, seed=9)
    changed = rescale(model, 0, factors)
    assert gap(model, changed, x) < 1e-12
    torch.testing.assert_close(changed.layers[4].weight, model.layers[4].weight / factors)
    with pytest.raises(NotAChainError, match=r"layer 'layers.2' \(Tanh\) must be positively homogeneous"):
        rescale(MLP(4, 3, hidden=(6,), activation="tanh"), 0, factors)
    conv = shaken(LeNet5(1, 10, activation="relu", pooling="max"))
    images = torch.rand(3, 1, 12, 12, dtype=torch.float64)
    assert gap(conv, rescale(conv, 1, randn(16).exp(), inputs=(images,)), images) < 1e-12


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.outer(x + self.inner(x))


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (Residual(), randn(2, 4), "layer 'outer' must take what layer 'inner' gave"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 2)),
            randn(2, 4),
            r"layer '1' \(Softmax\)",
        ),
        (
            nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Linear(4, 2)),
            randn(2, 4),
            r"layer '1' \(GroupNorm\) must treat all units of '0' alike",
        ),
        # norms of another axis than the units', though of the same length
        (
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
            randn(2, 4, 4),
            r"\(BatchNorm1d\)",
        ),
        (nn.Sequential(nn.Linear(4, 4), nn.PReLU(4), nn.Linear(4, 2)), randn(2, 4, 4), r"\(PReLU\)"),
        (
            nn.Sequential(nn.Conv2d(1, 4, 1), nn.LayerNorm(4), nn.Conv2d(4, 2, 1)),
            randn(2, 1, 4, 4),
            "LayerNorm",
        ),
        # flattened so that the units are not in blocks, or are not what the next layer reads
        (
            nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.Linear(12, 2)),
            randn(2, 3, 4),
            "must take the units",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 4, 1), nn.Flatten(2), nn.Linear(4, 2)),
            randn(2, 1, 2, 2),
            "take the units",
        ),
        (
            nn.Sequential(nn.Conv2d(2, 4, 1, groups=2), nn.Conv2d(4, 2, 1)),
            randn(2, 2, 3, 3),
            "'0' must have one",
        ),
        (
            nn.Sequential(nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 1, groups=4)),
            randn(2, 2, 3, 3),
            "'1' must have one",
        ),
    ],
    ids=range(10),
)
def test_what_has_no_such_symmetry_is_refused_by_name(model, inputs, message):
    with pytest.raises(NotAChainError, match=message):
        permute_hidden(model.double(), 0, torch.arange(4), inputs=(inputs,))


def test_bad_layers_permutations_signs_and_factors_are_refused():
    model = MLP(4, 3, hidden=(6,), activation="identity")
    with pytest.raises(ValueError, match=r"layer must lie in 0 \.\. 0 \(hidden layers\): got 1"):
        permute_hidden(model, 1, torch.arange(3))
    for perm in (torch.zeros(6).long(), torch.arange(5), torch.arange(1, 7)):
        with pytest.raises(ValueError, match=r"perm must be a permutation of 0 \.\. 5: got \["):
            permute_hidden(model, 0, perm)
    with pytest.raises(ValueError, match=r"signs must be 1 or -1: got \[0"):
        flip_signs(model, 0, torch.zeros(6))
    with pytest.raises(ValueError, match="one number for each of the 6 units: got 2"):
        flip_signs(model, 0, torch.ones(2))
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="factors must be finite and above 0"):
            rescale(model, 0, torch.full((6,), bad))
