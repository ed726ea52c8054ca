"""Contrastive divergence: the exact gradient in the limit, chains, the pseudolikelihood."""

import itertools
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, State
from margin.generative.latent.contrastive_divergence import (
    contrast,
    contrastive_divergence,
    pseudo_likelihood,
)
from margin.generative.latent.rbm import RBM


def states(n: int) -> Tensor:
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=n))).double()


def small(visible: int = 5, hidden: int = 3) -> RBM:
    torch.manual_seed(0)
    model = RBM(visible, hidden_units=hidden).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return model


def test_the_contrast_with_the_models_own_law_has_the_exact_gradient() -> None:
    """-d log p(v) = dF(v) - E_p[dF]: the expectation over all states, weighted, against autograd of log p."""
    model, v = small(), states(5)[[1, 7, 30]]
    exact = torch.autograd.grad(-model.log_prob(v).mean(), list(model.parameters()))
    p = model.log_prob(states(5)).exp().detach()
    at_data = torch.autograd.grad(model.free_energy(v).mean(), list(model.parameters()))
    at_model = torch.autograd.grad((p * model.free_energy(states(5))).sum(), list(model.parameters()))
    for whole, data, own in zip(exact, at_data, at_model, strict=True):
        torch.testing.assert_close(whole, data - own)
    # the same from rows that stand for the law: each state as often as 10^5 p says
    rows = states(5).repeat_interleave((1e5 * p).round().long(), 0)
    found = torch.autograd.grad(contrast(model, v, rows).mean(), list(model.parameters()))
    for whole, near in zip(exact, found, strict=True):
        torch.testing.assert_close(whole, near, atol=2e-3, rtol=0)


def test_the_gradient_is_that_of_hintons_rule() -> None:
    """<h v> of data less <h v> of the model, h in the mean."""
    model, v, f = small(), states(5)[[3, 9]], states(5)[[8, 21, 4]]
    grad = torch.autograd.grad(contrast(model, v, f).mean(), model.weight)[0]
    rule = model(v).T @ v / 2 - model(f).T @ f / 3
    torch.testing.assert_close(-grad, rule.detach())


@torch.no_grad()
def test_the_pseudolikelihood_is_that_of_all_conditionals_in_the_mean() -> None:
    model, v = small(4), states(4)[6]
    p = model.log_prob(states(4)).exp()
    exact = 0.0
    for i in range(4):
        other = v.clone()
        other[i] = 1 - v[i]
        here, there = (p[int(s @ torch.tensor([8.0, 4.0, 2.0, 1.0]).double())] for s in (v, other))
        exact -= float((here / (here + there)).log())
    found = pseudo_likelihood(model, Batch((v.repeat(20_000, 1),)), Generator().manual_seed(0))
    assert len(found.unique()) == 4
    error = float(found.std()) / 20_000**0.5
    assert float(found.mean()) == pytest.approx(exact, abs=4.5 * error)  # one seed in 10^5


@pytest.mark.parametrize("chains", ["data", "persistent"])
def test_training_raises_the_exact_likelihood(chains: Any) -> None:
    """Two patterns of four bits: log 2 = 0.69 nats is the best, 4 log 2 = 2.77 knows nothing."""
    torch.manual_seed(0)
    model = RBM(4, hidden_units=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
    state = State(modules={"model": model}, optimizers={"": optimizer})
    step = contrastive_divergence(GradientUpdate(), steps=2, chains=chains)
    x = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]).repeat(16, 1)
    state.generator.manual_seed(0)
    for _ in range(120):
        step(state, Batch((x,)))
    nats = -float(model.log_prob(x).detach().mean())
    assert 0.69 < nats < 1.2
    assert ("chains" in state.modules) == (chains == "persistent")


def test_persistent_chains_go_on_where_they_were() -> None:
    model = small()
    state = State(modules={"model": model}, optimizers={"": torch.optim.SGD(model.parameters(), lr=0.0)})
    state.generator.manual_seed(0)
    step = contrastive_divergence(GradientUpdate(), chains="persistent", count=7)
    step(state, Batch((states(5),)))
    kept: Any = state.modules["chains"]
    before = kept.state.clone()
    assert before.shape == (7, 5)
    state.generator.manual_seed(1)
    step(state, Batch((states(5),)))
    g = Generator().manual_seed(1)
    torch.rand(32, 5, generator=g, dtype=torch.float32)  # the batch's bits come first
    torch.testing.assert_close(kept.state, model.gibbs(before, 1, g))


def test_options_and_inputs_are_checked() -> None:
    options: Any
    for name in ("steps", "count"):
        options = {name: 0}
        with pytest.raises(ValueError, match=f"{name} must be at least 1: got 0"):
            contrastive_divergence(GradientUpdate(), **options)
    model = small()
    state = State(modules={"model": model}, optimizers={"": torch.optim.SGD(model.parameters(), lr=0.0)})
    with pytest.raises(ValueError, match="train with --scale unit"):
        contrastive_divergence(GradientUpdate())(state, Batch((2 * states(5),)))
