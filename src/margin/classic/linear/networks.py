"""Linear networks (Baldi and Hornik 1989; Saxe, McClelland and Ganguli 2013) and how exactly they learn.

With whitened inputs, E[x x^T] = I, and G = E[y x^T] a map A has the risk tr(A A^T) - 2 tr(A G^T) + const.
Gradient flow on it is solved exactly: for A itself, and for A = Q W, mode by mode.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import ClassScores

Map = Float[Tensor, "out in"]
Left = Float[Tensor, "out hidden"]
Right = Float[Tensor, "hidden in"]
Weights = tuple[Tensor, ...]


class LinearNetwork(nn.Module):
    """Class logits W_L ... W_1 x: one matrix, of rank at most the least width, in many factors.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Number of logits.
        hidden: Widths of the hidden layers; () is a single matrix.

    Raises:
        ValueError: A width is below 1.

    Reference:
        Saxe, McClelland and Ganguli 2013, Equation 1.
    """

    def __init__(self, in_features: int, num_classes: int, *, hidden: tuple[int, ...] = (32,)) -> None:
        super().__init__()
        if min(hidden, default=1) < 1:
            raise ValueError(f"every width must be at least 1: got hidden={hidden}")
        widths = (in_features, *hidden, num_classes)
        pairs = pairwise(widths)
        self.layers = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairs))

    @property
    def weights(self) -> Weights:
        """The matrices, the first layer's first."""
        return tuple(layer.weight for layer in self.layers)  # type: ignore[misc]

    def forward(self, x: Float[Tensor, " batch *features"]) -> ClassScores:
        """The logits of each row."""
        return self.layers(x.flatten(1))


def product(weights: Sequence[Tensor]) -> Map:
    """The matrix W_L ... W_1 of layers given first to last."""
    total = weights[0]
    for weight in weights[1:]:
        total = weight @ total
    return total


def balance(weights: Sequence[Tensor]) -> Weights:
    """The matrices W_{l+1}^T W_{l+1} - W_l W_l^T of adjacent layers, which gradient flow keeps as they are.

    Reference: Arora, Cohen and Hazan 2018, Theorem 1 (its proof); Du, Hu and Lee 2018, Theorem 2.1.
    """
    return tuple(b.T @ b - a @ a.T for a, b in pairwise(weights))


def whitened_risk(A: Map, G: Map) -> Float[Tensor, ""]:
    r"""tr(A A^T) - 2 tr(A G^T): E\|y - A x\|^2 less E\|y\|^2, for whitened inputs. Its gradient is 2 (A - G).

    Args:
        A: The map.
        G: E[y x^T].

    Reference: Saxe, McClelland and Ganguli 2013, Equation 2.
    """
    return (A * A).sum() - 2 * (A * G).sum()


def two_layer_gradients(Q: Left, W: Right, G: Map) -> tuple[Left, Right]:
    """The gradients 2 (Q W - G) W^T and 2 Q^T (Q W - G) of the risk of A = Q W.

    Args:
        Q: The second layer.
        W: The first.
        G: E[y x^T].

    Reference: Saxe, McClelland and Ganguli 2013, Equation 3.
    """
    error = 2 * (Q @ W - G)
    return error @ W.T, Q.T @ error


def one_layer_flow(
    A: Map, G: Map, t: Float[Tensor, " times"], rate: float = 1.0
) -> Float[Tensor, "times out in"]:
    """The solution G + exp(-2 eta t) (A - G) of dA/dt = -eta grad: one rate for all modes.

    Descent with step eta gives G + (1 - 2 eta)^n (A - G) after n steps.

    Args:
        A: The map at time 0.
        G: E[y x^T].
        t: Times.
        rate: eta.

    Reference: Saxe, McClelland and Ganguli 2013, Section 1 (the shallow network).
    """
    return G + (-2 * rate * t).exp()[:, None, None] * (A - G)


def mode_strength(
    s: Float[Tensor, "#*modes"], a: Float[Tensor, "#*modes"], t: Float[Tensor, "#*modes"]
) -> Float[Tensor, "*modes"]:
    r"""The strength at time t of a mode under two-layer gradient flow, a sigmoid in time.

    .. math:: \frac{da}{dt} = 4 a (s - a), \quad a(t) = \frac{s}{1 + (s / a_0 - 1) e^{-4 s t}}

    It holds for Q = U D R^T and W = R D V^T with D^2 the strengths, U and V the singular vectors of G, and R
    with orthonormal columns (balanced and aligned weights). Larger singular values are learned first.

    Args:
        s: Singular values of G, positive.
        a: a_0, the strengths at time 0, positive.
        t: Times.

    Reference: Saxe, McClelland and Ganguli 2013, Equations 9 and 12; here for gradients with the factor 2.
    """
    return s / (1 + (s / a - 1) * (-4 * s * t).exp())


def half_time(s: float, a: float) -> float:
    """When a mode reaches half its singular value: log(s / a_0 - 1) / (4 s)."""
    return math.log(s / a - 1) / (4 * s)


def aligned(G: Map, modes: int, strength: float, hidden: int) -> tuple[Left, Right]:
    """Balanced weights Q = U sqrt(a) R^T, W = R sqrt(a) V^T on the top modes of G; R are unit vectors.

    Args:
        G: E[y x^T].
        modes: How many, at most ``hidden`` and the rank of G.
        strength: a > 0.
        hidden: The width.
    """
    U, _, Vh = torch.linalg.svd(G, full_matrices=False)
    R = torch.eye(hidden, modes, dtype=G.dtype, device=G.device) * math.sqrt(strength)
    return U[:, :modes] @ R.T, R @ Vh[:modes]


def flow(
    gradient: Callable[[Weights], Sequence[Tensor]], start: Weights, time: float, steps: int
) -> list[Weights]:
    """Gradient flow d(weights)/dt = -gradient from ``start``, by the classic Runge-Kutta method of order 4.

    Args:
        gradient: ``weights -> the gradient in each``.
        start: Weights at time 0.
        time: Length of the flow.
        steps: Steps of equal length.

    Returns:
        The weights at time 0 and after each step.

    Reference: Hairer, Norsett and Wanner 1993, Section II.1, Table 1.2.
    """
    h = time / steps
    path = [tuple(start)]
    for _ in range(steps):
        here = path[-1]
        slopes: list[Sequence[Tensor]] = []
        for fraction in (0.0, 0.5, 0.5, 1.0):
            last = slopes[-1] if slopes else [torch.zeros_like(w) for w in here]
            slopes.append(
                [-g for g in gradient(tuple(w + h * fraction * k for w, k in zip(here, last, strict=True)))]
            )
        mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(*slopes, strict=True)]
        path.append(tuple(w + h * k for w, k in zip(here, mean, strict=True)))
    return path
