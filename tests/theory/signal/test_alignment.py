"""Weight matching against planted permutations and brute force; the copy computes the same function."""

import copy
import math
from itertools import permutations, product

import pytest
import torch
from torch import nn

from margin.data.preprocess import Standardize
from margin.feedforward.mlp.model import MLP
from margin.nn.preprocessed import Preprocessed
from margin.theory.signal.alignment import Ascent, aligned, assignment, matching
from margin.theory.signal.path import NotAChainError, chain_of
from margin.theory.signal.symmetry import permute_hidden, permuted, slots
from margin.vision.convnets.lenet5 import LeNet5

X = torch.randn(9, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def drawn(model, seed):
    model = copy.deepcopy(model).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64).abs() + 0.1)
        for parameter in model.parameters():
            parameter.mul_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64).sign())
    return model


def same(one, other):
    return all(
        torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


def shuffled(model, units, seed, inputs=None):
    generator = torch.Generator().manual_seed(seed)
    perms = [torch.randperm(count, generator=generator) for count in units]
    for layer, perm in enumerate(perms):
        model = permute_hidden(model, layer, perm, inputs=inputs)
    return model, perms


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("model", "units"),
    [
        (MLP(4, 3, hidden=(16,)), (16,)),
        (MLP(4, 3, hidden=(16, 9, 12, 7), activation="tanh"), (16, 9, 12, 7)),
        (MLP(4, 3, hidden=(12, 12), norm="batch", dropout=0.2), (12, 12)),
        (MLP(4, 3, hidden=(12, 12, 12), norm="layer"), (12, 12, 12)),
    ],
    ids=["one layer", "four layers", "batch norm", "layer norm"],
)
def test_a_planted_permutation_is_found_exactly(model, units, seed):
    model = drawn(model, seed)
    planted, perms = shuffled(model, units, seed + 100)
    back = aligned(model, planted)
    assert same(back, model)
    found = matching(model, planted)
    assert found.settled
    assert found.after == 0 < found.before
    # unit perm[i] of the planted one is unit i: the inverse of what was done
    for perm, done in zip(found.perms, perms, strict=True):
        assert torch.equal(done[perm], torch.arange(len(perm)))


def test_a_planted_permutation_of_channels_is_found():
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    model = drawn(LeNet5(1, 10), 0)
    planted, _ = shuffled(model, (6, 16, 120, 84), 5, (images,))
    assert same(aligned(model, planted, inputs=(images,)), model)
    with pytest.raises(NotAChainError, match="give inputs to follow the layers"):
        aligned(model, planted)


def test_a_planted_permutation_is_found_under_noise():
    model = drawn(MLP(4, 3, hidden=(16, 9)), 0)
    planted, perms = shuffled(model, (16, 9), 7)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for parameter in planted.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    for perm, done in zip(matching(model, planted).perms, perms, strict=True):
        assert torch.equal(done[perm], torch.arange(len(perm)))


@pytest.mark.parametrize("seed", range(5))
def test_for_one_hidden_layer_no_permutation_is_nearer(seed):
    one, two = drawn(MLP(4, 3, hidden=(4,)), seed), drawn(MLP(4, 3, hidden=(4,)), seed + 50)
    found = matching(one, two)
    ends = [float(distance(one, permute_hidden(two, 0, torch.tensor(p)))) for p in permutations(range(4))]
    assert found.after == pytest.approx(min(ends), rel=1e-12)
    assert found.before == pytest.approx(float(distance(one, two)), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_for_two_layers_no_single_layer_can_be_bettered_and_nothing_is_lost(seed):
    build = MLP(4, 3, hidden=(3, 3), norm="batch")
    one, two = drawn(build, seed), drawn(build, seed + 50)
    found = matching(one, two)
    stages = chain_of(two, (X,))
    assert found.settled
    assert found.after <= found.before

    def at(first, second):
        return float(distance(one, permuted(two, stages, [first, second])))

    assert found.after == pytest.approx(at(*found.perms), rel=1e-12)
    for perm in permutations(range(3)):
        assert at(torch.tensor(perm), found.perms[1]) >= found.after - 1e-9
        assert at(found.perms[0], torch.tensor(perm)) >= found.after - 1e-9
    best = min(at(torch.tensor(p), torch.tensor(q)) for p, q in product(permutations(range(3)), repeat=2))
    assert best <= found.after + 1e-9


def test_of_two_starts_the_nearer_end_is_taken():
    nearer = set()
    for seed in range(4, 8):
        one, two = drawn(MLP(4, 3, hidden=(6, 6)), seed), drawn(MLP(4, 3, hidden=(6, 6)), seed + 50)
        stages = chain_of(one, (X,))
        weights = [{name: p.detach() for name, p in model.named_parameters()} for model in (one, two)]
        ends = []
        for first in ((), (lambda slot: slot.axis == 0,)):
            ascent = Ascent([list(slots(stages, i)) for i in (0, 1)], [6, 6], weights[0], dict(weights[1]))
            for counts in (*first, *[lambda slot: True] * 50):
                ascent.sweep(counts)
            ends.append(float(distance(one, permuted(two, stages, ascent.perms))))
        assert matching(one, two).after == pytest.approx(min(ends), rel=1e-12)
        nearer.add(ends[0] < ends[1] - 1e-9)
    assert nearer == {True, False}  # either start is needed


@torch.no_grad()
def distance(one, two):
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    return torch.stack([(a - b).square().sum() for a, b in pairs]).sum().sqrt()


def test_the_aligned_copy_computes_what_the_second_model_does():
    standard = Standardize(torch.zeros(4).double(), torch.ones(4).double())
    one, two = (
        Preprocessed(standard, drawn(MLP(4, 3, hidden=(8, 8), norm="batch"), seed)) for seed in (0, 1)
    )
    before = copy.deepcopy(two.state_dict())
    made = aligned(one, two)
    torch.testing.assert_close(made(X), two(X), rtol=1e-12, atol=1e-12)
    assert not same(made, two)
    assert all(torch.equal(before[key], value) for key, value in two.state_dict().items())
    assert float(distance(one, made)) < float(distance(one, two))


def test_a_model_is_aligned_with_itself_in_float32():
    model = MLP(4, 3, hidden=(8,))
    assert same(aligned(model, model), model)


def test_an_assignment_is_the_best_of_all():
    gain = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    best = max(permutations(range(5)), key=lambda p: float(sum(gain[i, p[i]] for i in range(5))))
    assert assignment(gain).tolist() == list(best)


def test_models_of_different_layers_and_weights_that_are_no_numbers_are_refused():
    one = MLP(4, 3, hidden=(8, 8))
    message = r"must have the same layers: got 'layers.1' \(8, 4\) and 'layers.1' \(6, 4\)"
    with pytest.raises(ValueError, match=message):
        aligned(one, MLP(4, 3, hidden=(6, 8)))
    with pytest.raises(ValueError, match=r"'layers.3' \(8, 8\) and 'layers.3' \(3, 8\)"):
        aligned(one, MLP(4, 3, hidden=(8,)))
    with pytest.raises(ValueError, match="the same layers"):
        aligned(one, MLP(4, 3, hidden=(8, 8), activation="tanh"))
    broken = copy.deepcopy(one)
    with torch.no_grad():
        broken.layers[1].weight[0, 0] = math.nan
    with pytest.raises(ValueError, match="weights must be finite"):
        aligned(one, broken)
    with pytest.raises(ValueError, match="sweeps must be at least 1: got 0"):
        matching(one, one, sweeps=0)
    odd = nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 2))
    with pytest.raises(NotAChainError, match=r"layer '1' \(Softmax\) must treat all units of '0' alike"):
        aligned(odd, copy.deepcopy(odd))
