"""Boltzmann machines of few bits: sums over all states, exact conditionals, Gibbs against the law."""

import itertools
import math

import pytest
import torch
from torch import Generator, Tensor

from margin.generative.latent.rbm import RBM, all_states, bits, energy, free_energy


def small(visible: int = 4, hidden: int = 3, scale: float = 1.0) -> RBM:
    torch.manual_seed(0)
    model = RBM(visible, hidden_units=hidden).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape))
    return model


def states(n: int) -> Tensor:
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=n))).double()


def joint(model: RBM) -> Tensor:
    """exp(-E) of every pair of states, term by term from the definition."""
    W, a, b = (p.detach() for p in (model.weight, model.visible, model.hidden))
    out = torch.empty(2 ** len(a), 2 ** len(b)).double()
    for i, v in enumerate(states(len(a))):
        for j, h in enumerate(states(len(b))):
            terms = [h[m] * W[m, k] * v[k] for m in range(len(b)) for k in range(len(a))]
            total = sum(terms) + sum(a[k] * v[k] for k in range(len(a)))
            out[i, j] = math.exp(total + sum(b[m] * h[m] for m in range(len(b))))
    return out


@torch.no_grad()
def test_energies_are_those_of_the_definition() -> None:
    model = small()
    p = joint(model)
    v, h = states(4), states(3)
    pairs = v[:, None].expand(16, 8, 4), h[None].expand(16, 8, 3)
    E = energy(*pairs, model.weight, model.visible, model.hidden)
    torch.testing.assert_close((-E).exp(), p)
    torch.testing.assert_close((-model.free_energy(v)).exp(), p.sum(1))
    other = free_energy(h, model.weight.T, model.hidden, model.visible)
    torch.testing.assert_close((-other).exp(), p.sum(0))


@torch.no_grad()
@pytest.mark.parametrize(("visible", "hidden"), [(4, 3), (3, 5), (6, 6), (1, 1), (12, 2), (2, 14)])
def test_probabilities_sum_to_one(visible: int, hidden: int) -> None:
    model = small(visible, hidden)
    assert float(model.log_prob(states(visible)).exp().sum()) == pytest.approx(1.0, abs=1e-12)


@torch.no_grad()
def test_the_partition_function_is_the_sum_over_all_pairs_whichever_layer_is_smaller() -> None:
    for sizes in ((4, 3), (3, 4)):
        model = small(*sizes)
        assert float(model.log_partition()) == pytest.approx(math.log(joint(model).sum()), abs=1e-12)


@torch.no_grad()
def test_the_sum_is_the_same_in_pieces_and_the_states_are_all() -> None:
    model = small(13, 13, scale=0.3)  # 8192 states, in two pieces
    whole = (-model.free_energy(all_states(13, 0, 2**13))).logsumexp(0)
    torch.testing.assert_close(model.log_partition(), whole)
    assert len({tuple(row) for row in all_states(5, 0, 4096).tolist()}) == 32
    assert torch.equal(all_states(5, 3, 7), all_states(5, 0, 32)[3:7])


@torch.no_grad()
def test_codes_and_decodings_are_conditional_probabilities() -> None:
    model = small()
    p, v, h = joint(model), states(4), states(3)
    torch.testing.assert_close(model(v), p @ h / p.sum(1, keepdim=True))
    torch.testing.assert_close(model.decode(h), p.T @ v / p.sum(0)[:, None])
    assert model.reconstruct(v.reshape(16, 1, 2, 2)).shape == (16, 1, 2, 2)


@torch.no_grad()
def test_long_chains_have_the_models_law() -> None:
    """Of 16 states, each frequency within 4.7 deviations: fails for one seed in 20,000."""
    model, n = small(scale=0.7), 20_000
    x = model.sample(n, generator=Generator().manual_seed(0), steps=60)
    found = (x @ (2 ** torch.arange(3, -1, -1)).double()).long().bincount(minlength=16) / n
    p = joint(model).sum(1) / joint(model).sum()
    assert bool(((found - p).abs() < 4.7 * (p * (1 - p) / n).sqrt()).all())
    again = [model.sample(3, generator=Generator().manual_seed(1), steps=2) for _ in range(2)]
    assert torch.equal(*again)


@torch.no_grad()
def test_one_gibbs_step_keeps_the_models_law() -> None:
    """Rows of the exact law before a step are rows of it after: a wrong conditional would move them."""
    model, n = small(scale=0.7), 40_000
    p = joint(model).sum(1) / joint(model).sum()
    start = states(4)[torch.multinomial(p, n, replacement=True, generator=Generator().manual_seed(2))]
    x = model.gibbs(start, 1, Generator().manual_seed(3))
    found = (x @ (2 ** torch.arange(3, -1, -1)).double()).long().bincount(minlength=16) / n
    assert bool(((found - p).abs() < 4.7 * (p * (1 - p) / n).sqrt()).all())


def test_grey_rows_count_from_a_half_and_others_are_refused() -> None:
    model = small(2, 2).float()
    grey = torch.tensor([[0.5, 0.49]])
    torch.testing.assert_close(model.log_prob(grey), model.log_prob(torch.tensor([[1.0, 0.0]])))
    for ask in (model, model.log_prob):
        with pytest.raises(ValueError, match=r"\[0, 1\]: got from -1 to 1; train with --scale unit"):
            ask(torch.tensor([[-1.0, 1.0]]))


def test_a_large_machine_has_no_exact_likelihood_and_a_lopsided_one_has() -> None:
    with pytest.raises(ValueError, match="at most 20 bits: got 21"):
        RBM(30, hidden_units=21).log_prob(torch.zeros(1, 30))
    assert bool(RBM(784, hidden_units=3).log_prob(torch.zeros(1, 784)).isfinite().all())


def test_certain_bits_are_certain_and_options_are_checked() -> None:
    ends = torch.tensor([0.0, 1.0]).repeat(2000)
    assert torch.equal(bits(ends, Generator().manual_seed(0)), ends)
    with pytest.raises(ValueError, match="hidden_units must be at least 1: got 0"):
        RBM(2, hidden_units=0)
    with pytest.raises(ValueError, match="Gibbs sampling must be at least 1: got 0"):
        RBM(2).sample(2, generator=Generator(), steps=0)
