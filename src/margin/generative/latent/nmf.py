"""Nonnegative matrix factorization (Lee and Seung 2001): rows as sums of parts, X = Z B."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics, unseen
from margin.engine.loop import State, Step
from margin.engine.weighted_rows import batch_rows
from margin.nn.preprocessed import core_of, features_of

Rows = Float[Tensor, "batch dim"]
Codes = Float[Tensor, "batch components"]
Parts = Float[Tensor, "components dim"]
PerRow = Float[Tensor, " batch"]
Loss = Literal["frobenius", "kl"]


def divergence(x: Rows, fitted: Rows, loss: Loss) -> PerRow:
    r"""How far each row is from the fitted one.

    .. math:: D_F = \tfrac12 \|x - y\|^2, \qquad D_{KL} = \sum_j x_j \log \frac{x_j}{y_j} - x_j + y_j

    The second is the negative log-likelihood of Poisson counts, up to what depends on x alone.

    Args:
        x: Rows, at least 0.
        fitted: y, at least 0; where y is 0 and x is not, the second is infinite.
        loss: Which.

    Reference: Lee and Seung 2001, Equations 2 and 3.
    """
    if loss == "frobenius":
        return 0.5 * (x - fitted).square().sum(1)
    return (torch.xlogy(x, x) - torch.xlogy(x, fitted) - x + fitted).sum(1)


def updated(x: Rows, Z: Codes, B: Parts, loss: Loss) -> Codes:
    r"""Codes after one multiplicative update: the divergence of no row grows.

    .. math:: Z \odot \frac{X B^\top}{Z B B^\top}, \qquad
        Z \odot \frac{(X / ZB) B^\top}{1 B^\top}

    As X^T = B^T Z^T, ``updated(X.T, B.T, Z.T).T`` updates the parts. A code of 0 stays 0.

    Args:
        x: Rows, at least 0.
        Z: Codes, at least 0.
        B: Parts, at least 0.
        loss: Of which divergence.

    Reference: Lee and Seung 2001, Theorems 1 and 2.
    """
    # 0 / 0 is 0 then: of a row, a part or a code that is 0 throughout
    tiny = torch.finfo(x.dtype).tiny
    if loss == "frobenius":
        return Z * (x @ B.T) / (Z @ (B @ B.T)).clamp_min(tiny)
    return Z * ((x / (Z @ B).clamp_min(tiny)) @ B.T) / B.sum(1).clamp_min(tiny)


def nonnegative(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The inputs themselves, checked to be neither negative nor NaN.

    Inside of torch.func.vmap or a compiled graph no value can be looked at, and none is.

    Raises:
        ValueError: A number is negative or NaN.
    """
    if unseen(x):
        return x
    least = float(x.detach().amin()) if x.numel() else 0.0
    if not least >= 0:
        raise ValueError(
            f"a nonnegative factorization needs inputs of at least 0: got {least:.3g}; train with "
            "--scale none, or --scale unit"
        )
    return x


class NMF(nn.Module):
    """Rows as sums of parts: x = z B with z and B at least 0.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        components: Number of parts, at least 1.
        loss: Squared error, or the divergence of Poisson counts.
        updates: Updates by which a new row gets its code, from equal codes; in training 1.

    Raises:
        ValueError: There is no part, or no update.

    Reference:
        Lee and Seung 2001, Theorems 1 and 2.
    """

    fitted: Tensor

    def __init__(
        self, in_features: int, *, components: int = 8, loss: Loss = "frobenius", updates: int = 200
    ) -> None:
        super().__init__()
        for name, value in (("components", components), ("updates", updates)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1: got {value}")
        self.loss: Loss = loss
        self.updates = updates
        self.parts = nn.Parameter(torch.rand(components, in_features) + 0.5)
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    def encode(self, x: Float[Tensor, " batch *shape"]) -> Codes:
        """Codes of each row by multiplicative updates, the parts as they are.

        Raises:
            ValueError: A number is negative.
        """
        x = nonnegative(x.flatten(1))
        Z = self.level(x)
        for _ in range(self.updates):
            Z = updated(x, Z, self.parts, self.loss)
        return Z

    def level(self, x: Rows) -> Codes:
        """Equal codes, with which the sum of a row is right."""
        scale = x.sum(1, keepdim=True) / self.parts.sum().clamp_min(torch.finfo(x.dtype).tiny)
        return scale.expand(x.shape[0], len(self.parts))

    def decode(self, codes: Codes) -> Rows:
        """The sum of parts that a code stands for."""
        return codes @ self.parts

    def reconstruct(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, " batch *shape"]:
        """The sum of parts nearest to each row."""
        return self.decode(self.encode(x)).reshape(x.shape)

    def forward(self, x: Float[Tensor, " batch *shape"]) -> Codes:
        """The code of each row."""
        return self.encode(x)


def divergence_of(model: nn.Module, batch: Batch, generator: Generator) -> PerRow:
    """The divergence of each example from the nearest sum of parts."""
    core, x = core_of(model), features_of(model, batch.inputs[0]).flatten(1)
    return divergence(nonnegative(x), core.decode(core.encode(x)), core.loss)


class Kept(nn.Module):
    """The codes of the training examples between steps.

    Args:
        codes: One a row.
    """

    def __init__(self, codes: Codes) -> None:
        super().__init__()
        self.codes = nn.Parameter(codes, requires_grad=False)


def multiplicative_updates(*, iterations: int = 50) -> Step:
    """Updates of codes and parts in turn, on all rows: the divergence never grows.

    Codes are kept with the state, so that steps go on where the last one ended.

    Args:
        iterations: Updates a step; ``gain`` is the share of the mean divergence that they take away.

    Raises:
        ValueError: There is no iteration.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1: got {iterations}")

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        rows = batch_rows(state, batch, learner="a nonnegative factorization", targets=False).double()
        x, weight, model = nonnegative(rows.x), rows.weight, core_of(state.model)
        if not model.fitted:  # the parts' mean becomes the rows'
            model.parts *= (weight @ x / weight.sum()).mean() / model.parts.mean()
        kept: Any = state.kept("codes", lambda: Kept(model.level(x).clone()))
        Z, B = kept.codes.double(), model.parts.double()
        # what makes a row count as weight many in the update of the parts
        scale = weight.sqrt() if model.loss == "frobenius" else weight
        before = weight @ divergence(x, Z @ B, model.loss) / weight.sum()
        for _ in range(iterations):
            Z = updated(x, Z, B, model.loss)
            B = updated(x.T * scale, B.T, Z.T * scale, model.loss).T
        after = weight @ divergence(x, Z @ B, model.loss) / weight.sum()
        kept.codes.copy_(Z)
        model.parts.copy_(B)
        model.fitted.fill_(True)
        return {"loss": after, "gain": (before - after) / max(float(before), math.ulp(0.0))}

    return step
