"""The seven parts: perceptron, Hopfield network and multilayer perceptron, beside their direct versions."""

import dataclasses

import pytest
import torch

from margin.classic.memory import pdp
from margin.classic.memory.hopfield import correlations
from margin.classic.memory.hopfield_dynamics import asynchronous
from margin.classic.perceptron.model import mistakes_of_pass


def test_the_perceptron_is_the_direct_one_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    y = (x @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64) > 0.2).double() * 2 - 1
    model = pdp.perceptron(x, y)
    w, b = torch.zeros(4, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    mistakes = 0
    for _ in range(5):
        pdp.experience(model)
        mistakes += len(mistakes_of_pass(w, b, x, y))
    assert mistakes > 5
    weight = model.connectivity[0].weight[0]
    assert weight[0].item() == b.item()
    assert weight[1:].tolist() == w.tolist()


def test_the_hopfield_network_is_the_direct_one_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(1)
    patterns = 2.0 * torch.randint(0, 2, (6, 40), generator=generator) - 1
    probes = torch.where(torch.rand(6, 40, generator=generator) < 0.25, -patterns, patterns)
    model = pdp.hopfield(patterns)
    pdp.experience(model)
    W = torch.cat([projection.weight for projection in model.connectivity])
    assert torch.equal(W, correlations(patterns))
    direct = asynchronous(W, torch.zeros(40), probes)
    for probe, state, sweeps in zip(probes, direct.state, direct.sweeps, strict=True):
        pdp.clamp(model, probe)
        assert pdp.settle(model) == int(sweeps)
        assert torch.equal(model.state, state)
    assert int(direct.sweeps.max()) > 0


def direct_step(
    weights: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor, lr: float
) -> list[torch.Tensor]:
    """One step of backpropagation through two tanh layers, written out."""
    W1, W2 = weights
    x0 = torch.cat((x.new_ones(1), x))
    a1 = (W1 @ x0).tanh()
    x1 = torch.cat((x.new_ones(1), a1))
    a2 = (W2 @ x1).tanh()
    d2 = (a2 - y) * (1 - a2.square())
    d1 = (W2.T @ d2)[1:] * (1 - a1.square())
    return [W1 - lr * torch.outer(d1, x0), W2 - lr * torch.outer(d2, x1)]


def test_the_multilayer_perceptron_is_the_direct_one_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(12, 2, generator=generator, dtype=torch.float64).tanh()
    start = [torch.randn(5, 4, generator=generator).double(), torch.randn(2, 6, generator=generator).double()]
    weights = [weight.clone() for weight in start]
    model = pdp.multilayer(weights, x, y, lr=0.1)
    direct = start
    for _ in range(3):
        pdp.experience(model)
        for row, wanted in zip(x, y, strict=True):
            direct = direct_step(direct, row, wanted, 0.1)
    for ours, theirs in zip(weights, direct, strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(weights[0], start[0])


def test_the_deltas_are_autograds_gradients() -> None:
    generator = torch.Generator().manual_seed(3)
    weights = [
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((6, 4), (5, 7), (2, 6))
    ]
    x, y = torch.randn(3, generator=generator).double(), torch.randn(2, generator=generator).double()
    outputs, activation = [], x
    slopes = []
    for weight in weights:
        outputs.append(torch.cat((activation.new_ones(1), activation)))
        activation = (weight @ outputs[-1]).tanh()
        slopes.append(1 - activation.square())
    loss = (activation - y).square().sum() / 2
    expected = torch.autograd.grad(loss, weights, retain_graph=True)
    found = pdp.generalized_delta(weights, outputs, slopes, activation - y)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() <= 1e-10


def test_layers_without_bias_units_pass_deltas_too() -> None:
    generator = torch.Generator().manual_seed(4)
    W1, W2 = (
        torch.randn(3, 3, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    x = torch.randn(3, generator=generator).double()
    a1 = (W1 @ x).sigmoid()
    a2 = (W2 @ a1).sigmoid()
    expected = torch.autograd.grad(a2.sum(), (W1, W2), retain_graph=True)
    found = pdp.generalized_delta([W1, W2], [x, a1], [a1 * (1 - a1), a2 * (1 - a2)], torch.ones_like(a2))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() <= 1e-10


def test_it_learns_xor() -> None:
    x = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    y = torch.tensor([[-0.9], [0.9], [0.9], [-0.9]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    weights = [
        torch.randn(4, 3, generator=generator).double(),
        torch.randn(1, 5, generator=generator).double(),
    ]
    model = pdp.multilayer(weights, x, y, lr=0.2)
    for _ in range(1000):  # of four steps each
        pdp.experience(model)
    for row, wanted in zip(x, y, strict=True):
        pdp.clamp(model, torch.cat((row.new_ones(1), row)))
        pdp.pass_on(model)
        assert model.state[-1].item() == pytest.approx(wanted.item(), abs=0.1)


def test_a_state_that_never_rests_is_refused() -> None:
    model = pdp.PDPModel(
        state=torch.tensor([1.0]),
        output=pdp.identity,
        connectivity=(pdp.Projection(slice(0, 1), slice(0, 1), torch.tensor([[-1.0]])),),
        propagate=pdp.weighted_sum,
        activate=pdp.replaced,
        learn=lambda model, wanted: None,
        environment=(),
    )
    with pytest.raises(ValueError, match="must come to rest within 7 passes"):
        pdp.settle(model, most=7)


def test_a_network_has_seven_parts_and_the_loss_is_none_of_them() -> None:
    names = [field.name for field in dataclasses.fields(pdp.PDPModel)]
    rules = ["propagate", "activate", "learn"]
    assert names == ["state", "output", "connectivity", *rules, "environment"]


def test_patterns_of_anything_but_signs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must consist of -1 and \+1: got 0.5 \(row 1, unit 0\)"):
        pdp.hopfield(torch.tensor([[1.0, -1.0], [0.5, 1.0]]))
