r"""Training a linearized network: kernel regression with its tangent kernel, reached in closed form in time.

:math:`f_{\mathrm{lin}}(x) = f(x; \theta_0) + \nabla f(x; \theta_0)^\top \beta` is linear in beta. Under
gradient flow on :math:`\frac12 \sum_i |f(x_i) - y_i|^2` the outputs obey :math:`\dot f = K (y - f)`, and end
at the interpolant of least norm, kernel regression without ridge (Jacot et al. 2018; Lee et al. 2019).
Weight decay about the start ends at kernel ridge regression.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from margin.engine.evaluation import copied
from margin.math.linear_algebra.positive_definite import factored
from margin.theory.kernels.structured import pushed

Matrix = Float[Tensor, "n n"]
Cross = Float[Tensor, "m n"]
Targets = Float[Tensor, "..."]
"""A row an example; that all are of one shape is looked at when they are used."""


class Linearized(nn.Module):
    r"""The first-order Taylor polynomial of a network in its weights, as a module whose parameters are beta.

    .. math:: f_{\mathrm{lin}}(x; \beta) = f(x; \theta_0) + \nabla f(x; \theta_0)^\top \beta

    It is asked as the network is in evaluation mode, whatever its own mode: it is one function. Trained with
    any optimizer, it is a linear model.

    Args:
        model: The network at theta_0, which is copied; one in half precision to float32. Weights that
            require no gradient stay constants.

    Reference: Lee, Xiao, Schoenholz, Bahri, Novak, Sohl-Dickstein and Pennington 2019, Section 2.2.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        half = any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())
        base = copied(model).float() if half else copied(model)
        self.names = [name for name, p in base.named_parameters() if p.requires_grad]
        if not self.names:
            raise ValueError("a linearized network needs weights that require a gradient: the model has none")
        own = dict(base.named_parameters())
        self.beta = nn.ParameterList(torch.zeros_like(own[name]) for name in self.names)
        self.base = base.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "Linearized":
        """Sets the mode of the module itself; the network that it is made from stays in evaluation mode."""
        super().train(mode)
        self.base.eval()
        return self

    def forward(self, *inputs: Tensor) -> Tensor:
        """The outputs, of the network's own shape."""
        own = dict(self.base.named_parameters())
        weights: dict[str, Tensor] = {name: own[name] for name in self.names}
        direction: dict[str, Tensor] = dict(zip(self.names, self.beta, strict=True))
        with sdpa_kernel(SDPBackend.MATH):
            value, change = pushed(
                lambda given: functional_call(self.base, given, inputs), weights, direction
            )
        return value + change


class Regression(NamedTuple):
    """The predictions of kernel regression, and what had to be added to the kernel's diagonal.

    ``fitted`` are those at the training examples. ``jitter`` is 0 where the kernel is positive definite; of
    duplicate rows it is not, and the predictions are those of a ridge of this size.
    """

    mean: Float[Tensor, " m *outputs"]
    fitted: Targets
    jitter: float


def kernel_regression(
    K: Matrix,
    cross: Cross,
    y: Targets,
    *,
    ridge: float = 0.0,
    f0: Targets | None = None,
    f0_new: Targets | None = None,
) -> Regression:
    r"""What a linearized network converges to, at new examples.

    .. math:: h(x) = f_0(x) + k(x)^\top (K + \lambda I)^{-1} (y - f_0)

    With K the NNGP kernel, f_0 = 0 and the ridge the variance of noise it is the posterior mean of the
    network as a Gaussian process.

    Args:
        K: The kernel between training examples; of all pairs of outputs one flattened to (N C, N C).
        cross: The kernel of new examples with the training ones.
        y: Targets, a row a training example.
        ridge: lambda, at least 0: a weight decay of |theta - theta_0|^2 lambda / 2.
        f0: Outputs at the start at the training examples; None: 0.
        f0_new: Those at the new examples; None: 0.

    Raises:
        ValueError: The ridge is negative, sizes do not fit, the kernel is not finite or indefinite.

    Reference: Jacot, Gabriel and Hongler 2018, Section 5; Lee et al. 2019, Section 2.2 (t to infinity).
    """
    _check(K, cross, y, f0, f0_new)
    if not ridge >= 0:
        raise ValueError(f"ridge must be at least 0: got {ridge}")
    K, cross = K.double(), cross.double()
    gap = y.double() if f0 is None else y.double() - f0.double()
    ridged = K + ridge * torch.eye(len(K), dtype=K.dtype, device=K.device) if ridge else K
    factor = factored(ridged)
    alpha = factor.solve(gap)
    fitted, mean = K @ alpha, cross @ alpha
    return Regression(
        mean if f0_new is None else mean + f0_new.double(),
        fitted if f0 is None else fitted + f0.double(),
        factor.jitter,
    )


class Flow(NamedTuple):
    """Outputs under gradient flow at each time: at the training examples, and at new ones."""

    training: Float[Tensor, " times n *outputs"]
    new: Float[Tensor, " times m *outputs"]


def gradient_flow(
    K: Matrix,
    cross: Cross,
    y: Targets,
    times: Sequence[float] | Float[Tensor, " times"],
    *,
    f0: Targets | None = None,
    f0_new: Targets | None = None,
) -> Flow:
    r"""The outputs of a linearized network under gradient flow on half the sum of squared errors.

    .. math:: f_t = y + e^{-Kt} (f_0 - y), \qquad
        f_t(x) = f_0(x) + k(x)^\top K^{-1} (I - e^{-Kt}) (y - f_0)

    By the eigenvalues of K: no inverse is taken, so K may be singular. The mean over initializations of an
    infinitely wide network is that of f_0 = 0. A step of gradient descent of rate eta is the time eta.

    Args:
        K: The tangent kernel between training examples.
        cross: That of new examples with the training ones.
        y: Targets, a row a training example.
        times: At least 0.
        f0: Outputs at the start at the training examples; None: 0.
        f0_new: Those at the new examples; None: 0.

    Raises:
        ValueError: A time is negative, sizes do not fit, or the kernel is not finite.

    Reference: Lee, Xiao, Schoenholz, Bahri, Novak, Sohl-Dickstein and Pennington 2019, Section 2.2.
    """
    _check(K, cross, y, f0, f0_new)
    t = torch.as_tensor(times, dtype=torch.float64, device=K.device)
    if not bool((t >= 0).all()):
        raise ValueError(f"times must be at least 0: got {float(t.min())}")
    values, vectors = torch.linalg.eigh(K.double())
    values = values.clamp(min=0)  # of a positive semidefinite matrix; below 0 is rounding
    y = y.double()
    start = torch.zeros_like(y) if f0 is None else f0.double()
    along = (vectors.T @ (y - start)).reshape(len(K), -1)
    moved = -torch.expm1(-values * t[:, None])
    # (1 - e^(-lambda t)) / lambda, which is t where lambda is 0
    per = torch.where(values > 0, moved / values, t[:, None])
    training = torch.einsum("in,tn,nc->tic", vectors, moved, along)
    new = torch.einsum("in,tn,nc->tic", cross.double() @ vectors, per, along)
    training = training.reshape(len(t), *y.shape) + start
    new = new.reshape(len(t), len(cross), *y.shape[1:])
    return Flow(training, new if f0_new is None else new + f0_new.double())


def _check(K: Tensor, cross: Tensor, y: Tensor, f0: Tensor | None, f0_new: Tensor | None) -> None:
    n, m = len(y), len(cross)
    if K.shape != (n, n) or cross.shape != (m, n):
        raise ValueError(
            f"a kernel of {n:,} targets is {n} x {n}, and one of new examples m x {n}: "
            f"got {tuple(K.shape)} and {tuple(cross.shape)}"
        )
    for name, start, shape in (("f0", f0, y.shape), ("f0_new", f0_new, (m, *y.shape[1:]))):
        if start is not None and start.shape != shape:
            raise ValueError(f"{name} must be of the shape {tuple(shape)}: got {tuple(start.shape)}")
    if not bool(K.isfinite().all() and cross.isfinite().all() and y.isfinite().all()):
        raise ValueError("kernel and targets must be finite: got NaN or an infinity")


def kernel_alignment(K: Matrix, y: Targets) -> float:
    r"""The centered alignment of a kernel with the targets' own kernel y y', in [0, 1].

    .. math:: \frac{\langle H K H, Y Y^\top \rangle}{\|H K H\|\, \|H Y Y^\top H\|}, \qquad
        H = I - \tfrac1n 1 1^\top

    Args:
        K: A positive semidefinite kernel.
        y: Targets, a row an example: numbers, or classes as indicators.

    Returns:
        NaN where all targets are equal, or the kernel is constant.

    Reference: Cortes, Mohri and Rostamizadeh 2012, Section 2.
    """
    Y = y.double().reshape(len(y), -1)
    Y = Y - Y.mean(0)
    K = K.double()
    K = K - K.mean(0) - K.mean(1, keepdim=True) + K.mean()
    size = K.norm() * (Y.T @ Y).norm()
    return float(((K @ Y) * Y).sum() / size) if size > 0 else float("nan")


def relative_change(K0: Tensor, K1: Tensor) -> float:
    """The Frobenius norm of a kernel's change, in units of what it was; NaN where that was 0."""
    before = K0.double().norm()
    return float((K1.double() - K0.double()).norm() / before) if before > 0 else float("nan")
