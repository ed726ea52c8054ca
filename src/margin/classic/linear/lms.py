"""The least-mean-squares rule (Widrow and Hoff 1960): least squares by one example at a time."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.classic.linear.regression import write_solution
from margin.classic.linear.rows import Matrix, Vector, rows_of
from margin.core.types import Batch, Metrics
from margin.engine.loop import NonFiniteError, State, Step


class AdaptiveLinear(nn.Module):
    """The affine map x -> w . x + b that Widrow and Hoff's adaptive linear element (Adaline) learns.

    Args:
        in_features: Number of features; an input of more axes is flattened.
    """

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(in_features))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row."""
        return x.flatten(1) @ self.weight + self.bias


def lms_pass(  # 7 parameters: a model, its examples, their order and the rate
    w: Float[Tensor, " features"],
    b: Float[Tensor, ""],
    X: Matrix,
    y: Vector,
    rate: float,
    order: Int[Tensor, " visits"],
    weight: Vector | None = None,
) -> tuple[Float[Tensor, " features"], Float[Tensor, ""]]:
    r"""Visit examples in an order; at each, a gradient step on half its squared error.

    .. math:: e = y_i - w \cdot x_i - b, \quad w \leftarrow w + \eta\, a_i e\, x_i, \quad
        b \leftarrow b + \eta\, a_i e

    From w = 0 the iterates stay in the span of the rows: with fewer rows than features they tend to the
    solution of smallest norm (of the rows with a 1 appended). The rule is sequential: it runs on the CPU.

    Args:
        w: Coefficients to begin with.
        b: Intercept to begin with.
        X: Features, one example a row.
        y: The value of each row.
        rate: eta > 0; a step shrinks an example's error where eta a (|x|^2 + 1) < 2.
        order: The rows that are visited, in turn.
        weight: a, positive; None: 1.

    Returns:
        The new w and b, in float64; not finite where the rule diverged.

    Reference: Widrow and Hoff 1960, the adaptation procedure; Haykin 2014, Equation 6.10.
    """
    wn, bn = w.detach().cpu().double().numpy().copy(), float(b.detach())
    rows, values = X.cpu().double().numpy(), y.cpu().double().tolist()
    rates = [rate] * len(values) if weight is None else (rate * weight.cpu().double()).tolist()
    for i in order.tolist():
        row = rows[i]
        move = rates[i] * (values[i] - float(row @ wn) - bn)
        if not math.isfinite(move):
            return torch.full_like(w, math.nan).double(), torch.tensor(math.nan, dtype=torch.float64)
        wn += move * row
        bn += move
    return torch.from_numpy(wn).to(w.device), torch.tensor(bn, dtype=torch.float64, device=w.device)


def lms(*, rate: float | None = None) -> Step:
    """One pass of the rule over the batch, in an order drawn anew.

    Args:
        rate: eta, above 0. If not given 1 / (2 max a (|x|^2 + 1)), at which every step shrinks its
            example's error.

    Raises:
        ValueError: The rate is not positive.
    """
    if rate is not None and not 0 < rate < math.inf:
        raise ValueError(f"rate must be positive and finite: got {rate}")

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, y, weight = rows_of(state, batch, learner="the least-mean-squares rule")
        weight = weight / weight.mean()
        size = weight * (x.square().sum(1) + 1)
        eta = rate or 1 / (2 * float(size.max()))
        order = torch.randperm(len(x), generator=state.generator)
        core: Any = state.core
        w, b = lms_pass(core.weight, core.bias, x, y, eta, order, weight)
        largest = torch.finfo(core.weight.dtype).max
        if not bool((w.abs() <= largest).all()):  # NaN compares as False
            raise NonFiniteError(
                f"the least-mean-squares rule diverged at step {state.step}: a rate below "
                f"{2 / float(size.max()):.2g} shrinks every example's error, got {eta:g}"
            )
        return {"loss": write_solution(state, w, b, x, y, weight)}

    return step
