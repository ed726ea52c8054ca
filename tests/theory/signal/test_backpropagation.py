"""Written-out deltas against autograd and finite differences; a doubled slope fails by exactly that slope."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.mlp.model import MLP
from margin.theory.signal.backpropagation import SLOPES, pull_back, unit_gradients
from margin.theory.signal.backpropagation_claims import demo, is_affine_chain, recursion

ACTIVATIONS = [
    nn.Identity(),
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.LeakyReLU(0.2),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.SiLU(),
    nn.ELU(0.7),
    nn.ELU(0.7, inplace=True),
    nn.Softplus(2.0, 3.0),
    nn.Softsign(),
]


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(widths, activation, seed=0):
    layers = []
    for i, (a, b) in enumerate(pairwise(widths)):
        linear = nn.Linear(a, b, bias=i != 1).double()
        with torch.no_grad():
            for j, parameter in enumerate(linear.parameters()):
                parameter.copy_(randn(*parameter.shape, seed=seed + 10 * i + j) / a**0.5)
        layers += [linear, copy.deepcopy(activation)]
    return nn.Sequential(*layers[:-1])


def upstream_of(outputs):
    return outputs.cos() / 7  # the gradient of sum(sin) / 7


def automatic(model, x):
    outputs = model(x)
    return torch.autograd.grad(outputs.sin().sum() / 7, list(model.parameters()))


# slopes


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_every_slope_is_autograds_at_the_kink_and_in_the_tails_too(activation):
    z = torch.tensor([-30.0, -3.0, -0.3, 0.0, 0.3, 1.4, 1.6, 3.0, 30.0], dtype=torch.float64)
    variable = z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(activation(variable.clone()).sum(), variable)
    found = SLOPES[type(activation)](activation, z)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-16)


def test_every_activation_of_the_table_is_tried():
    assert set(SLOPES) == {type(activation) for activation in ACTIVATIONS}


# any chain


@pytest.mark.parametrize("depth", [1, 2, 5, 8])
@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU()], ids=repr)
def test_deltas_through_random_networks_are_autograds(depth, activation):
    model = network([4, *[6] * (depth - 1), 3], activation, seed=depth)
    x = randn(5, 4, seed=99)
    found = pull_back(list(model), x, upstream_of)
    gradients = [gradient for each in found.gradients for gradient in each.values()]
    for own, expected in zip(gradients, automatic(model, x), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-12)
    assert len(found.deltas) == len(model) + 1
    probe = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(probe).sin().sum() / 7, probe)
    torch.testing.assert_close(found.deltas[0], expected, rtol=1e-10, atol=1e-12)


def test_any_layers_make_a_chain():
    layers = [nn.Conv2d(1, 2, 3), nn.Softmax(1), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 2)]
    model = nn.Sequential(*layers).double()
    x = randn(3, 1, 4, 4)
    found = pull_back(layers, x, upstream_of)
    gradients = [gradient for each in found.gradients for gradient in each.values()]
    for own, expected in zip(gradients, automatic(model, x), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-12)


def test_a_delta_is_the_transposed_jacobian_times_the_next():
    model = network([3, 4, 2], nn.Tanh())
    x = randn(3)
    found = pull_back(list(model), x, upstream_of)
    h = x
    for i, layer in enumerate(model):
        J = torch.func.jacrev(layer)(h)
        torch.testing.assert_close(found.deltas[i], J.mT @ found.deltas[i + 1], rtol=1e-12, atol=1e-12)
        h = layer(h)


class Counting(nn.Module):
    runs = 0

    def forward(self, x):
        Counting.runs += 1
        return x.tanh()


@pytest.mark.parametrize("depth", [1, 10, 100])
def test_the_cost_is_linear_in_depth(depth):
    Counting.runs = 0
    pull_back([Counting() for _ in range(depth)], randn(2), upstream_of)
    assert Counting.runs == depth


def test_an_empty_chain_and_a_delta_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="a chain must have a layer: got none"):
        pull_back([], randn(2), upstream_of)
    with pytest.raises(ValueError, match=r"the shape of h_L \(2,\): got \(\)"):
        pull_back([nn.Tanh()], randn(2), lambda h: h.sum())


# an MLP by the formulas of a unit


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_the_formulas_of_a_unit_give_autograds_gradients(activation):
    model = network([4, 6, 5, 3], activation)
    x = randn(7, 4, seed=5)
    with torch.no_grad():
        found = unit_gradients(list(model), x, upstream_of(model(x)))
    expected = iter(automatic(model, x))
    for weight, bias, layer in zip(
        found.weights, found.biases, [m for m in model if isinstance(m, nn.Linear)], strict=True
    ):
        torch.testing.assert_close(weight, next(expected), rtol=1e-10, atol=1e-13)
        if layer.bias is not None:
            torch.testing.assert_close(bias, next(expected), rtol=1e-10, atol=1e-13)


def test_finite_differences_give_the_same_weight_gradient():
    model = network([2, 3, 1], nn.Tanh())
    x = randn(4, 2, seed=5)
    with torch.no_grad():
        found = unit_gradients(list(model), x, upstream_of(model(x)))
        weight, step = model[0].weight, 1e-6
        weight[1, 0] += step
        up = model(x).sin().sum() / 7
        weight[1, 0] -= 2 * step
        down = model(x).sin().sum() / 7
    assert float(found.weights[0][1, 0]) == pytest.approx(float(up - down) / (2 * step), rel=1e-7)


def test_the_slope_counted_twice_is_wrong_by_exactly_the_slope():
    # One layer and its activation: delta is the gradient in the activation, so the slope enters once.
    layer, x = nn.Linear(3, 2).double(), randn(1, 3)
    z = layer(x).detach()
    found = unit_gradients([layer, nn.Tanh()], x, upstream_of(z.tanh()))
    (expected, _) = automatic(nn.Sequential(layer, nn.Tanh()), x)
    slope = 1 - z.tanh().square()
    torch.testing.assert_close(found.weights[0], expected, rtol=1e-10, atol=1e-13)
    delta = upstream_of(z.tanh()) * slope  # as the notes print it: the slope in delta and in the formula
    doubled = (delta * slope).mT @ x
    torch.testing.assert_close(doubled / found.weights[0], slope.mT.expand(2, 3), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(doubled, expected, rtol=1e-3)


def test_inputs_of_more_axes_and_layers_that_only_move_numbers():
    model = nn.Sequential(
        nn.Linear(4, 3), nn.Tanh(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(15, 2)
    ).double()
    model.eval()
    x = randn(6, 5, 4)
    with torch.no_grad():
        found = unit_gradients(list(model), x, upstream_of(model(x)))
    for own, expected in zip(found.weights, automatic(model, x)[::2], strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-13)


def test_another_layer_is_refused_by_name():
    with pytest.raises(ValueError, match=r"a layer must be one of Linear, .*: got BatchNorm1d"):
        unit_gradients([nn.BatchNorm1d(2)], randn(2, 2), randn(2, 2))


# the claim


def subject_of(model, targets=None, task=CLASSES, x=None, objective=None):
    x = randn(6, 4) if x is None else x
    targets = torch.arange(6) % 3 if targets is None else targets
    dtype = next(model.parameters()).dtype
    return Subject(
        model=model,
        test=[Batch((x.to(dtype),), targets)],
        task=task,
        objective=objective or risk(task),
    )


def test_the_demonstration_holds_layer_by_layer():
    finding = recursion(demo())
    assert finding.verdict == Verdict.HOLDS
    assert finding.labels == ("0", "2", "4")
    assert float(finding.value.max()) < 1e-14


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu", "leaky_relu", "identity"])
def test_it_holds_for_random_networks_in_float32(activation, seed):
    torch.manual_seed(seed)
    finding = recursion(subject_of(MLP(4, 3, hidden=(7, 5), activation=activation, dropout=0.3)))
    assert finding.verdict == Verdict.HOLDS


def test_it_holds_at_a_minimum_where_gradients_cancel():
    x = randn(6, 4)
    layer = nn.Linear(4, 1).double()
    y = randn(6, 1, seed=1)
    design = torch.cat((x, torch.ones(6, 1).double()), 1)
    solution = torch.linalg.lstsq(design, y).solution
    with torch.no_grad():
        layer.weight.copy_(solution[:4].mT)
        layer.bias.copy_(solution[4])
    finding = recursion(subject_of(layer, y, VALUES, x))
    assert finding.verdict == Verdict.HOLDS


def test_rounding_is_measured_in_units_of_the_terms_not_of_what_they_leave():
    # two examples nearly cancel: a billionth of the terms is left, and a ten-millionth of that is rounding
    x = randn(1, 4) * torch.tensor([[1.0], [1 + 1e-9]], dtype=torch.float64)
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)

    def objective(model, batch, generator):
        return sign * model(*batch.inputs).sum(1)

    for seed in range(5):
        model = network([4, 8, 8, 3], nn.Sigmoid(), seed)
        finding = recursion(subject_of(model, torch.zeros(2), x=x, objective=objective))
        assert finding.verdict == Verdict.HOLDS


def test_a_backward_pass_that_was_tampered_with_is_found():
    model = network([4, 5, 3], nn.Tanh())
    model[1].register_full_backward_hook(lambda module, inputs, outputs: (1.001 * inputs[0],))
    finding = recursion(subject_of(model))
    assert finding.verdicts == [Verdict.VIOLATED, Verdict.HOLDS]


def test_one_activation_may_serve_everywhere():
    activation = nn.Tanh()
    layers = (nn.Linear(4, 5), activation, activation, nn.Linear(5, 3), activation)
    assert recursion(subject_of(nn.Sequential(*layers).double())).verdict == Verdict.HOLDS


@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_examples_count(weighted):
    model = network([4, 5, 3], nn.Tanh())
    subject = subject_of(model)
    if weighted:
        weight = torch.tensor([0.0, 1, 2, 0, 1, 3], dtype=torch.float64)
        subject = Subject(
            model=model,
            test=[subject.test[0]._replace(weight=weight)],
            task=CLASSES,
            objective=risk(CLASSES),
        )
    assert recursion(subject).verdict == Verdict.HOLDS


def test_what_cannot_be_compared_fails_and_says_why():
    model = network([4, 5, 3], nn.Tanh())
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken[0].weight[0, 0] = math.nan
    assert recursion(subject_of(broken)).verdict == Verdict.FAILED

    def twice(model, batch, generator):
        return (model(*batch.inputs) + model(*batch.inputs)).square().sum(1)

    assert recursion(subject_of(model, objective=twice)).failure == (
        "the objective must run the model once: it ran it 2 times"
    )

    def constant(model, batch, generator):
        return 0 * model(*batch.inputs).sum(1)

    finding = recursion(subject_of(model, objective=constant))
    assert finding.verdict == Verdict.FAILED
    assert "nothing to compare" in finding.failure
    with pytest.raises(ValueError, match="examples must be at least 1: got 0"):
        recursion(demo(), examples=0)


@pytest.mark.parametrize(
    ("model", "is_one"),
    [
        (MLP(4, 3), True),
        (nn.Linear(4, 3), True),
        (MLP(4, 3, norm="batch"), False),
        (MLP(4, 3, norm="layer"), False),
        (nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), False),
        (nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.Flatten()), False),
    ],
)
def test_it_is_asked_only_of_affine_chains(model, is_one):
    assert is_affine_chain(subject_of(model)) == is_one
