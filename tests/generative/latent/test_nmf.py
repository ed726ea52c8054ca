"""Nonnegative factorization: against scikit-learn, never uphill, planted parts, what is refused."""

import math
from typing import Any

import pytest
import torch
from sklearn import decomposition
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.engine.loop import State
from margin.generative.latent.nmf import (
    NMF,
    divergence,
    divergence_of,
    multiplicative_updates,
    nonnegative,
    updated,
)

LOSSES = ("frobenius", "kl")


def counts(n: int = 60, d: int = 12) -> Tensor:
    g = Generator().manual_seed(0)
    rate = 6 * torch.rand(n, 3, generator=g) @ torch.rand(3, d, generator=g).square()
    return torch.poisson(rate, generator=g).double()


def trained(
    x: Tensor, steps: int, *, weight: Tensor | None = None, **options: Any
) -> tuple[State, list[dict[str, float]]]:
    torch.manual_seed(0)
    model = NMF(x.shape[1], **options)
    state = State(modules={"model": model.double()})
    step, found = multiplicative_updates(), []
    for _ in range(steps):
        found.append({k: float(v) for k, v in step(state, Batch((x,), weight=weight)).items()})
        state.step += 1
    return state, found


def test_divergences_are_those_of_the_definition() -> None:
    x, y = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 3.0]])
    assert float(divergence(x, y, "frobenius")) == pytest.approx(1.0)
    assert float(divergence(x, y, "kl")) == pytest.approx(1 + 2 * math.log(2 / 3) + 1)
    assert float(divergence(x, x, "kl")) == 0.0
    assert float(divergence(y, torch.tensor([[0.0, 3.0]]), "kl")) == math.inf


def test_the_kl_divergence_is_the_poisson_deviance() -> None:
    x, y = counts(5), 0.5 + counts(5)
    nll = -torch.distributions.Poisson(y).log_prob(x).sum(1)
    best = -torch.distributions.Poisson(x.clamp_min(1e-300)).log_prob(x).sum(1)
    torch.testing.assert_close(divergence(x, y, "kl"), nll - best)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_update_makes_any_row_worse(loss: Any) -> None:
    x, g = counts(), Generator().manual_seed(1)
    Z, B = (torch.rand(60, 3, generator=g).double(), torch.rand(3, 12, generator=g).double())
    for _ in range(60):
        before = divergence(x, Z @ B, loss)
        Z = updated(x, Z, B, loss)
        after = divergence(x, Z @ B, loss)
        assert bool((after <= before * (1 + 1e-12) + 1e-12).all())
        columns = divergence(x.T, (Z @ B).T, loss)
        B = updated(x.T, B.T, Z.T, loss).T
        assert bool((divergence(x.T, (Z @ B).T, loss) <= columns * (1 + 1e-12) + 1e-12).all())
    assert bool((Z >= 0).all()) and bool((B >= 0).all())


@pytest.mark.parametrize("loss", LOSSES)
def test_a_factorization_that_is_exact_stays(loss: Any) -> None:
    g = Generator().manual_seed(2)
    Z, B = torch.rand(9, 2, generator=g).double(), torch.rand(2, 5, generator=g).double()
    torch.testing.assert_close(updated(Z @ B, Z, B, loss), Z)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_divergence_is_scikit_learns_within_a_hundredth(loss: Any) -> None:
    x = counts()
    name = {"frobenius": "frobenius", "kl": "kullback-leibler"}[loss]
    peers = [
        decomposition.NMF(
            3, beta_loss=name, solver="mu", init="random", random_state=s, max_iter=2000, tol=1e-5
        )
        for s in range(2)
    ]
    fits = [peer.fit_transform(x.numpy()) @ peer.components_ for peer in peers]
    theirs = min(float(divergence(x, torch.from_numpy(fit), loss).mean()) for fit in fits)
    _, found = trained(x, 40, components=3, loss=loss)
    assert found[-1]["loss"] == pytest.approx(theirs, rel=0.01)
    assert all(row["gain"] >= -1e-12 for row in found)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_of_two_is_two_rows(loss: Any) -> None:
    x = counts(12)
    weight = 1.0 + (torch.arange(12) < 4).double()
    one, _ = trained(x, 2, components=2, loss=loss, weight=weight)
    two, _ = trained(torch.cat((x, x[:4])), 2, components=2, loss=loss)
    torch.testing.assert_close(one.core.parts, two.core.parts)


@pytest.mark.parametrize("loss", LOSSES)
def test_codes_of_given_parts_are_the_best_and_each_row_is_alone(loss: Any) -> None:
    x = counts(20)
    state, _ = trained(x, 4, components=2, loss=loss, updates=1200)
    model: Any = state.core
    with torch.no_grad():
        codes = model.encode(x)
        gaps = divergence(x, model.decode(codes), loss)
        # the gradient by a code is 0 where it is positive, and at least 0 at 0
        codes.requires_grad_()
        with torch.enable_grad():
            grad = torch.autograd.grad(divergence(x, model.decode(codes), loss).sum(), codes)[0]
        assert float((grad * codes).abs().max()) < 1e-3 * float(gaps.max())
        assert float(grad.min()) > -1e-2 * float(gaps.max())
        torch.testing.assert_close(model(x[3:4]), codes[3:4].detach(), rtol=1e-9, atol=1e-9)
        assert model.reconstruct(x.reshape(20, 1, 3, 4)).shape == (20, 1, 3, 4)
        losses = divergence_of(model, Batch((x,)), Generator())
    torch.testing.assert_close(losses, gaps)


def test_rows_and_columns_of_zeros_leave_no_nan() -> None:
    x = counts(20)
    x[3], x[:, 5] = 0.0, 0.0
    for loss in LOSSES:
        state, found = trained(x, 4, components=3, loss=loss)
        model: Any = state.core
        assert all(math.isfinite(row["loss"]) for row in found)
        assert bool(model.encode(x).isfinite().all())
        assert float(model.encode(x)[3].detach().abs().max()) == 0.0
        assert float(model.parts[:, 5].detach().abs().max()) == 0.0
    _, found = trained(torch.zeros(4, 3).double(), 2, components=2)
    assert found[-1]["loss"] == 0.0


def test_negative_inputs_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"at least 0: got -0.42; train with --scale none, or --scale unit"):
        nonnegative(torch.tensor([1.0, -0.42]))
    with pytest.raises(ValueError, match="got nan"):
        NMF(2)(torch.tensor([[1.0, torch.nan]]))
    assert float(nonnegative(torch.zeros(1))) == 0.0
    with pytest.raises(ValueError, match="at least 0"):
        trained(-counts(5), 1)


@pytest.mark.parametrize("name", ["components", "updates"])
def test_no_part_and_no_update_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1: got 0"):
        NMF(2, **{name: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="iterations must be at least 1: got 0"):
        multiplicative_updates(iterations=0)
