"""Rules of differentiation as data: each a function, its derivative in closed form, and arguments to try.

Petersen and Pedersen (2012), Chapter 2, and Magnus and Neudecker (2019), Chapter 9. Gradients of scalars have
the shape of the variable; a rule of vectors by vectors says its layout.

Integrals by quadrature, and integration by parts, in float64 (Davis and Rabinowitz 1984, Section 2.7).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

Layout = Literal["gradient", "numerator", "denominator"]


@dataclass(frozen=True, slots=True)
class Derivative:
    """A rule: the derivative of ``function`` in its first argument, the others held constant.

    Args:
        name: What it is called.
        formula: The rule as text.
        function: ``(variable, *constants) -> value``.
        closed_form: ``(variable, *constants) -> derivative``, written down, not differentiated.
        arguments: ``(generator) -> (variable, *constants)``: random ones, where the rule is valid.
        layout: ``gradient``: of a scalar, in the variable's shape; ``numerator``: (value, variable);
            ``denominator``: (variable, value).
    """

    name: str
    formula: str
    function: Callable[..., Tensor]
    closed_form: Callable[..., Tensor]
    arguments: Callable[[Generator], tuple[Tensor, ...]]
    layout: Layout = "gradient"

    def automatic(self, *arguments: Tensor) -> Tensor:
        """The same derivative by reverse accumulation, in the rule's layout."""
        jacobian: Tensor = torch.func.jacrev(self.function)(*arguments)
        return jacobian.mT if self.layout == "denominator" else jacobian


def _drawn(*shapes: tuple[int, ...]) -> Callable[[Generator], tuple[Tensor, ...]]:
    """Gaussian arguments of the given shapes."""
    return lambda g: tuple(torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes)


def _regular(*shapes: tuple[int, ...]) -> Callable[[Generator], tuple[Tensor, ...]]:
    """The same with an invertible matrix, not symmetric and of positive determinant, in front."""

    def draw(g: Generator) -> tuple[Tensor, ...]:
        noise = torch.rand((4, 4), generator=g, dtype=torch.float64) - 0.5
        return (3 * torch.eye(4, dtype=torch.float64) + noise, *_drawn(*shapes)(g))

    return draw


def _row(x: Tensor) -> Tensor:
    return x[None, :]


def _column(x: Tensor) -> Tensor:
    return x[:, None]


def _pointwise(
    name: str, formula: str, function: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]
) -> Derivative:
    """A pointwise function: its Jacobian is the diagonal matrix of its slopes."""
    return Derivative(name, formula, function, lambda x: slope(x).diag(), _drawn((5,)), "numerator")


def _softmax_jacobian(x: Tensor) -> Tensor:
    s = x.softmax(0)
    return s.diag() - torch.outer(s, s)


ELEMENTARY = (
    Derivative("inner product", "d(a^T x)/dx = a", lambda x, a: a @ x, lambda x, a: a, _drawn((4,), (4,))),
    Derivative(
        "weights of an affine map",
        "dL/dW = delta x^T for y = W x, delta = dL/dy",
        lambda W, x, delta: delta @ (W @ x),
        lambda W, x, delta: torch.outer(delta, x),
        _drawn((3, 4), (4,), (3,)),
    ),
    Derivative(
        "input of an affine map",
        "dL/dx = W^T delta for y = W x, delta = dL/dy",
        lambda x, W, delta: delta @ (W @ x),
        lambda x, W, delta: W.mT @ delta,
        _drawn((4,), (3, 4), (3,)),
    ),
    Derivative(
        "pointwise function",
        "dL/dx = delta (.) phi'(x) for y = phi(x), here phi = softplus",
        lambda x, delta: delta @ torch.nn.functional.softplus(x),
        lambda x, delta: delta * x.sigmoid(),
        _drawn((4,), (4,)),
    ),
    Derivative(
        "quadratic form",
        "d(x^T A x)/dx = (A + A^T) x",
        lambda x, A: x @ A @ x,
        lambda x, A: (A + A.mT) @ x,
        _drawn((4,), (4, 4)),
    ),
    Derivative(
        "half a squared length",
        "d(|A x|^2 / 2)/dx = A^T A x",
        lambda x, A: (A @ x).square().sum() / 2,
        lambda x, A: A.mT @ A @ x,
        _drawn((4,), (3, 4)),
    ),
    Derivative(
        "softmax",
        "ds_i/dx_j = s_i (1{i = j} - s_j)",
        lambda x: x.softmax(0),
        _softmax_jacobian,
        _drawn((5,)),
        "numerator",
    ),
    _pointwise(
        "sigmoid", "sigma' = sigma (1 - sigma)", torch.sigmoid, lambda x: x.sigmoid() * (-x).sigmoid()
    ),
    _pointwise("tanh", "tanh' = 1 - tanh^2", torch.tanh, lambda x: 1 / x.cosh().square()),
    _pointwise("cosine", "cos' = -sin", torch.cos, lambda x: -x.sin()),
    _pointwise("sine", "sin' = cos", torch.sin, torch.cos),
    _pointwise("relu", "relu' = 1{x > 0}, so 0 at 0", torch.relu, lambda x: (x > 0).to(x)),
    _pointwise("modulus", "|x|' = x / |x| for x != 0", torch.abs, lambda x: x / x.abs()),
    Derivative(
        "quotient",
        "(u / v)' = (u' v - u v') / v^2, here u = sin, v = 2 + cos",
        lambda x: x.sin() / (2 + x.cos()),
        lambda x: ((x.cos() * (2 + x.cos()) + x.sin() * x.sin()) / (2 + x.cos()).square()).diag(),
        _drawn((5,)),
        "numerator",
    ),
    Derivative(
        "product",
        "(u v)' = u' v + u v', here u = sin, v = exp",
        lambda x: x.sin() * x.exp(),
        lambda x: (x.cos() * x.exp() + x.sin() * x.exp()).diag(),
        _drawn((5,)),
        "numerator",
    ),
    Derivative(
        "chain of several variables",
        "dL/dx_i = sum_j dL/dy_j dy_j/dx_i, here L = |y|^2, y = sin(B x)",
        lambda x, B: (B @ x).sin().square().sum(),
        lambda x, B: 2 * (B @ x).sin() @ ((B @ x).cos().diag() @ B),
        _drawn((4,), (3, 4)),
    ),
)
"""Rules of single functions."""

VECTOR = (
    Derivative(
        "linear map",
        "d(A x)/dx = A^T",
        lambda x, A: A @ x,
        lambda x, A: A.mT,
        _drawn((4,), (3, 4)),
        "denominator",
    ),
    Derivative(
        "bilinear form",
        "d(b^T A x)/dx = A^T b",
        lambda x, A, b: b @ A @ x,
        lambda x, A, b: A.mT @ b,
        _drawn((4,), (3, 4), (3,)),
    ),
    Derivative(
        "quadratic form",
        "d(x^T A x)/dx = (A + A^T) x",
        lambda x, A: x @ A @ x,
        lambda x, A: (A + A.mT) @ x,
        _drawn((4,), (4, 4)),
    ),
    Derivative(
        "squared length of a map",
        "d|f(x)|^2/dx = 2 J^T f with J_ij = df_i/dx_j, here f = sin(B x)",
        lambda x, B: (B @ x).sin().square().sum(),
        lambda x, B: 2 * ((B @ x).cos().diag() @ B).mT @ (B @ x).sin(),
        _drawn((4,), (3, 4)),
    ),
    Derivative(
        "scalar times vector",
        "d(u f)/dx = (du/dx) f^T + u df/dx, here u = |x|^2, f = sin(B x)",
        lambda x, B: x.square().sum() * (B @ x).sin(),
        lambda x, B: _column(2 * x) * _row((B @ x).sin()) + x.square().sum() * B.mT * _row((B @ x).cos()),
        _drawn((4,), (3, 4)),
        "denominator",
    ),
    Derivative(
        "inner product of two maps",
        "d(f^T g)/dx = (df/dx) g + (dg/dx) f, here f = sin(B x), g = cos(C x)",
        lambda x, B, C: (B @ x).sin() @ (C @ x).cos(),
        lambda x, B, C: (
            (B.mT * _row((B @ x).cos())) @ (C @ x).cos() - (C.mT * _row((C @ x).sin())) @ (B @ x).sin()
        ),
        _drawn((4,), (3, 4), (3, 4)),
    ),
    Derivative(
        "entrywise product",
        "d(a (.) x)/dx = diag(a)",
        lambda x, a: a * x,
        lambda x, a: a.diag(),
        _drawn((4,), (4,)),
        "denominator",
    ),
)
"""Rules of vectors and scalars by a vector; of vectors in denominator layout."""

SCALAR_BY_MATRIX = (
    Derivative(
        "a^T X b",
        "d(a^T X b)/dX = a b^T",
        lambda X, a, b: a @ X @ b,
        lambda X, a, b: torch.outer(a, b),
        _drawn((3, 4), (3,), (4,)),
    ),
    Derivative(
        "a^T X^T b",
        "d(a^T X^T b)/dX = b a^T",
        lambda X, a, b: a @ X.mT @ b,
        lambda X, a, b: torch.outer(b, a),
        _drawn((3, 4), (4,), (3,)),
    ),
    Derivative(
        "a^T X^T X b",
        "d(a^T X^T X b)/dX = X (a b^T + b a^T)",
        lambda X, a, b: a @ X.mT @ X @ b,
        lambda X, a, b: X @ (torch.outer(a, b) + torch.outer(b, a)),
        _drawn((3, 4), (4,), (4,)),
    ),
    Derivative(
        "a^T X X^T b",
        "d(a^T X X^T b)/dX = (a b^T + b a^T) X",
        lambda X, a, b: a @ X @ X.mT @ b,
        lambda X, a, b: (torch.outer(a, b) + torch.outer(b, a)) @ X,
        _drawn((3, 4), (3,), (3,)),
    ),
)
"""Rules of scalars by a matrix."""


def _inverse_trace_gradient(A: Tensor, S: Tensor) -> Tensor:
    inverse = torch.linalg.inv(A)
    return -(inverse @ S @ inverse).mT


TRACE_DETERMINANT = (
    Derivative(
        "tr(A A^T)",
        "d tr(A A^T)/dA = 2 A",
        lambda A: (A @ A.mT).trace(),
        lambda A: 2 * A,
        _drawn((3, 4)),
    ),
    Derivative(
        "tr(A B)",
        "d tr(A B)/dA = B^T",
        lambda A, B: (A @ B).trace(),
        lambda A, B: B.mT,
        _drawn((3, 4), (4, 3)),
    ),
    Derivative(
        "tr(S A^-1)",
        "d tr(S A^-1)/dA = -(A^-1 S A^-1)^T",
        lambda A, S: (S @ torch.linalg.inv(A)).trace(),
        _inverse_trace_gradient,
        _regular((4, 4)),
    ),
    Derivative(
        "log det A",
        "d log det A/dA = A^-T for det A > 0",
        lambda A: torch.linalg.slogdet(A).logabsdet,
        lambda A: torch.linalg.inv(A).mT,
        _regular(),
    ),
)
"""Rules of traces and determinants."""

DERIVATIVES = (*ELEMENTARY, *VECTOR, *SCALAR_BY_MATRIX, *TRACE_DETERMINANT)
"""All rules."""

Function = Callable[[Tensor], Tensor]
NODES = 16


def integrate(
    f: Function, low: Float[Tensor, "*batch"], high: Float[Tensor, "*batch"], *, panels: int = 32
) -> Float[Tensor, "*batch"]:
    """The integral of ``f`` from each ``low`` to each ``high``, by the Gauss-Legendre rule on equal panels.

    On a panel the rule of 16 nodes is exact for polynomials of degree 31. Where f jumps, end an interval.

    Args:
        f: ``x -> f(x)``, elementwise on float64 tensors of shape the batch, nodes last.
        low: Lower ends, finite.
        high: Upper ends, finite; below ``low`` the integral changes its sign.
        panels: Into how many parts each interval is cut.

    Raises:
        ValueError: There is no panel, or an end is not finite.
    """
    low, high = low.double(), high.double()
    if panels < 1:
        raise ValueError(f"panels must be at least 1: got {panels}")
    if not bool((low.isfinite() & high.isfinite()).all()):
        raise ValueError("the ends of an integral must be finite: cut it where the rest is negligible")
    nodes, weights = (torch.from_numpy(x).to(low.device) for x in np.polynomial.legendre.leggauss(NODES))
    starts = torch.arange(panels, dtype=torch.float64, device=low.device)
    share = ((starts[:, None] + (nodes + 1) / 2) / panels).flatten()
    width = high - low
    values = f(low[..., None] + width[..., None] * share)
    return (values * weights.repeat(panels)).sum(-1) * width / (2 * panels)


def integrate_by_parts(
    u: Function, v: Function, low: Float[Tensor, "*batch"], high: Float[Tensor, "*batch"], *, panels: int = 32
) -> Float[Tensor, "*batch"]:
    r"""The integral of u v', from the boundary terms and the derivative of u.

    .. math:: \int_a^b u\, v' = u(b) v(b) - u(a) v(a) - \int_a^b v\, u'

    Args:
        u: A differentiable elementwise function; its derivative is taken by automatic differentiation.
        v: Another.
        low: a, finite.
        high: b, finite.
        panels: Into how many parts each interval is cut.

    Reference: Rudin 1976, Theorem 6.22.
    """
    low, high = low.double(), high.double()

    def v_times_slope(x: Tensor) -> Tensor:
        return v(x) * torch.func.grad(lambda t: u(t).sum())(x)

    ends = u(high) * v(high) - u(low) * v(low)
    return ends - integrate(v_times_slope, low, high, panels=panels)
