"""The linear recurrent unit (Orvieto et al. 2023): a diagonal complex recurrence, stable by its form.

Its last state remembers the whole input (Orvieto et al. 2024), which one solve reads back: an MLP on such a
state can therefore be any function of the sequence. How many digits it must read the state to is the
condition number of the solve, see :func:`reconstructed`.
"""

import math
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float
from torch import Tensor, nn

from margin.nn.recurrence import (
    Lengths,
    Recurrence,
    Sequences,
    State,
    Steps,
    kept,
    wide_type,
    without_padding,
)
from margin.nn.scan import scan
from margin.sequence.linear.linear_system import LinearStack, Norm
from margin.sequence.recurrent import readouts

Units = Float[Tensor, " units"]


def wide(x: Tensor) -> Tensor:
    """Numbers in float32 at least: no complex number that is computed with has 16 bits."""
    return x.to(wide_type(x.dtype))


def eigenvalues(nu: Units, phi: Units) -> Complex[Tensor, " units"]:
    r"""The eigenvalues :math:`\lambda = \exp(-e^\nu + i\varphi)`, of modulus below 1 for every nu and phi.

    Reference: Orvieto et al. 2023, Section 3.3.
    """
    return torch.polar(torch.exp(-wide(nu).exp()), wide(phi))


def normalization(nu: Units) -> Units:
    r"""The gain :math:`\gamma = \sqrt{1 - |\lambda|^2} = \sqrt{-\mathrm{expm1}(-2 e^\nu)}` of each input.

    White input of variance 1 then gives a state of stationary variance ||B_i||^2. The form by expm1 keeps its
    digits where |lambda| is near 1 and 1 - |lambda|^2 has none.

    Reference: Orvieto et al. 2023, Section 3.4.
    """
    return (-torch.expm1(-2 * wide(nu).exp())).sqrt()


def ring(u: Units, r_min: float, r_max: float) -> Units:
    r"""The nu of eigenvalues that lie uniformly in the area of a ring, from u uniform in [0, 1].

    .. math:: \nu = \log\left(-\tfrac12 \log(u\,(r_{\max}^2 - r_{\min}^2) + r_{\min}^2)\right)

    Then |lambda|^2, not |lambda|, is uniform, as it is for a large matrix of independent entries of variance
    1 / size, whose eigenvalues fill the disc evenly (the circular law): their mean modulus is 2/3.

    Args:
        u: Numbers in (0, 1).
        r_min: Inner radius, at least 0.
        r_max: Outer radius, above r_min and at most 1.

    Raises:
        ValueError: The radii are not 0 <= r_min < r_max <= 1.

    Reference: Orvieto et al. 2023, Lemma 3.2.
    """
    if not 0 <= r_min < r_max <= 1:
        raise ValueError(f"a ring needs 0 <= r_min < r_max <= 1: got r_min={r_min:g}, r_max={r_max:g}")
    return (-0.5 * (u * (r_max**2 - r_min**2) + r_min**2).log()).log()


class LRU(Recurrence):
    r"""A linear recurrence of complex diagonal gate.

    .. math:: \zeta_t = \lambda \odot \zeta_{t-1} + \gamma \odot (B x_t), \qquad
        y_t = \mathrm{Re}(C \zeta_t) + d \odot x_t

    with :math:`\lambda = \exp(-e^\nu + i\varphi)` and :math:`\gamma = \sqrt{1 - |\lambda|^2}`. All steps are
    one scan; a state is its complex zeta, of float32 pairs where the parameters have 16 bits.

    Args:
        width: Numbers of x_t and of y_t.
        states: Number m of complex states.
        r_min: Inner radius of the ring in whose area the eigenvalues begin.
        r_max: Outer radius.
        max_phase: Their phases begin uniform in [0, max_phase], in radians, in (0, 2 pi].

    Raises:
        ValueError: A size is below 1, or the radii or the phase are out of range.

    Reference:
        Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu and De 2023, Sections 3.2 to 3.4. There gamma is
        learned from this beginning and the phase is the exponential of a parameter; here gamma stays what
        keeps the variance, and the phase is itself the parameter.
    """

    def __init__(
        self,
        width: int,
        *,
        states: int = 64,
        r_min: float = 0.9,
        r_max: float = 0.999,
        max_phase: float = 2 * math.pi,
    ) -> None:
        super().__init__(width, width)
        if states < 1:
            raise ValueError(f"states must be at least 1: got {states}")
        if not 0 < max_phase <= 2 * math.pi:
            raise ValueError(f"max_phase must be in (0, 2 pi]: got {max_phase:g}")
        self.ring = (r_min, r_max, max_phase)
        dtype = torch.get_default_dtype()
        # in float64, for a float32 u of 0 would be met once in 2^24 draws and has no nu
        u, v = torch.rand(2, states, dtype=torch.float64)
        self.nu = nn.Parameter(ring(u, r_min, r_max).to(dtype))
        self.phi = nn.Parameter((max_phase * v).to(dtype))
        self.B = nn.Parameter(torch.randn(states, 2, width) / math.sqrt(2 * width))
        self.C = nn.Parameter(torch.randn(width, states, 2) / math.sqrt(states))
        self.d = nn.Parameter(torch.randn(width))

    @property
    def eigenvalues(self) -> Complex[Tensor, " states"]:
        """The lambda of each state."""
        return eigenvalues(self.nu, self.phi)

    def driven(self, x: Float[Tensor, "*batch width"]) -> Complex[Tensor, "*batch states"]:
        """What each step adds to the state, gamma B x_t."""
        weight = (normalization(self.nu)[:, None, None] * self.B).flatten(0, 1).to(self.B.dtype)
        pairs = F.linear(x, weight).unflatten(-1, (-1, 2))
        return torch.view_as_complex(pairs.to(wide(self.nu).dtype))

    def read(
        self, zeta: Complex[Tensor, "*batch states"], x: Float[Tensor, "*batch width"]
    ) -> Float[Tensor, "*batch width"]:
        """The outputs Re(C zeta) + d x."""
        weight = torch.stack((self.C[..., 0], -self.C[..., 1]), -1).flatten(1)
        return F.linear(torch.view_as_real(zeta).flatten(-2).to(weight.dtype), weight) + self.d * x

    def initial(self, x: Tensor) -> State:
        """The state 0."""
        dtype = wide(self.nu).dtype.to_complex()
        return (torch.zeros(x.shape[0], len(self.nu), dtype=dtype, device=x.device),)

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the output and the new state."""
        zeta = self.eigenvalues * state[0] + self.driven(x)
        return self.read(zeta, x), (zeta,)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """All steps by a scan; outputs 0 at padding and each example's state after its own last step."""
        start = self.initial(x)[0] if state is None else state[0]
        x = without_padding(x, lengths)
        if x.shape[1] == 0:
            return torch.zeros_like(x), (start,)
        zeta = scan(self.eigenvalues, self.driven(x), None if state is None else start)
        y = without_padding(self.read(zeta, x), lengths)
        return y, (last_state(zeta, start, lengths),)


def last_state(
    zeta: Complex[Tensor, "batch time states"],
    start: Complex[Tensor, "batch states"],
    lengths: Lengths | None,
) -> Complex[Tensor, "batch states"]:
    """The state after each example's own last step; of length 0, the one it came with."""
    if lengths is None:
        return zeta[:, -1]
    index = (lengths.long() - 1).clamp_min(0)
    return kept(lengths > 0, zeta[torch.arange(len(zeta), device=zeta.device), index], start)


# a constructor's parameters: they are the model's options
def recurrence(
    input_size: int,
    *,
    width: int = 64,
    states: int = 64,
    layers: int = 2,
    dropout: float = 0.0,
    norm: Norm = "layer",
    r_min: float = 0.9,
    r_max: float = 0.999,
    max_phase: float = 2 * math.pi,
) -> LinearStack:
    """The stack of blocks whose linear recurrence is an :class:`LRU`.

    Args:
        input_size: n, numbers of x_t.
        width: Numbers of each step between the blocks, and of a token's vector.
        states: Complex states of each block.
        layers: Number of blocks.
        dropout: Probability with which a number is dropped in training, in [0, 1).
        norm: Before each recurrence, "layer" over the numbers of a step, "batch" of each number over all
            steps of a batch, or none: batch where few steps count.
        r_min: Inner radius of the ring in which the eigenvalues begin.
        r_max: Outer radius: a state of eigenvalue r forgets to 1/e in -1 / log r steps.
        max_phase: Largest phase at the beginning, in radians: small ones look for slow change.
    """
    core = partial(LRU, states=states, r_min=r_min, r_max=r_max, max_phase=max_phase)
    return LinearStack(input_size, core, width=width, layers=layers, dropout=dropout, norm=norm)


classifier = readouts.classifier(
    recurrence,
    "Blocks of linear recurrent units, to class logits of a sequence.",
    defaults={"pool": "mean"},
    without=("head.dropout",),
)
regressor = readouts.regressor(
    recurrence,
    "Blocks of linear recurrent units, to one real number of a sequence.",
    without=("head.dropout",),
)
language = readouts.language(
    recurrence,
    "Blocks of linear recurrent units over token vectors, to the logits of the next token.",
    body_size="width",
    defaults={"width": 128, "states": 128, "r_min": 0.0, "r_max": 0.99},
    without=("readout",),
)
forecaster = readouts.forecaster(
    recurrence,
    "The next values of each target by blocks of linear recurrent units that have read the context.",
    defaults={"r_min": 0.5, "r_max": 0.99},  # memories of 1 to 100 rows at the beginning
    without=("norm", "r_min", "r_max", "max_phase"),
)


class Reconstruction(NamedTuple):
    """Inputs read back from a state.

    Args:
        x: The inputs x_1 .. x_T.
        condition: sigma_max / sigma_min of the map from inputs to state.
    """

    x: Float[Tensor, "time inputs"]
    condition: float


def roots_of_unity(count: int, *, radius: float = 1.0) -> Complex[Tensor, " count"]:
    """The eigenvalues r exp(2 pi i j / m), j = 0 .. m - 1, in complex128: of condition 1 for T = m, r = 1.

    Args:
        count: m, at least 1.
        radius: r, positive.

    Raises:
        ValueError: The count is below 1, or the radius is not positive.
    """
    if count < 1 or not radius > 0:
        raise ValueError(f"roots need count >= 1 and radius > 0: got {count} and {radius:g}")
    angle = 2 * torch.pi * torch.arange(count, dtype=torch.float64) / count
    return torch.polar(torch.full_like(angle, radius), angle)


def vandermonde(eigenvalues: Complex[Tensor, " states"], time: int) -> Complex[Tensor, "states time"]:
    r"""The matrix V_{jt} = lambda_j^{T-t}, t = 1 .. T: zeta_t = lambda zeta_{t-1} + x_t ends in V x.

    It has rank min(m, T) where the eigenvalues are distinct. The powers are products, from exponent 0 on, so
    that 0^0 is 1.

    Args:
        eigenvalues: lambda_1 .. lambda_m.
        time: T, at least 1.

    Raises:
        ValueError: The time is below 1.

    Reference: Horn and Johnson 2013, Section 0.9.11; Orvieto et al. 2024, Section 3.
    """
    if time < 1:
        raise ValueError(f"time must be at least 1: got {time}")
    factors = eigenvalues[:, None].repeat(1, time)
    factors[:, 0] = 1
    return factors.cumprod(1).flip(1)


def memory(
    eigenvalues: Complex[Tensor, " states"], B: Complex[Tensor, "states inputs"], time: int
) -> Float[Tensor, "rows columns"]:
    r"""The real matrix M from inputs x_1 .. x_T to the real and imaginary parts of the last state.

    .. math:: \zeta_T = \sum_t \lambda^{T-t} \odot (B x_t)

    Args:
        eigenvalues: lambda.
        B: How inputs enter; columns are input numbers.
        time: T, at least 1.
    """
    columns = (vandermonde(eigenvalues, time)[:, :, None] * B[:, None, :]).flatten(1)
    return torch.cat((columns.real, columns.imag))


def capacity(states: int, inputs: int) -> int:
    """The most steps that m complex states may hold: T n real unknowns, 2 m real equations."""
    return 2 * states // inputs


def reconstructed(
    zeta: Complex[Tensor, " states"],
    eigenvalues: Complex[Tensor, " states"],
    B: Complex[Tensor, "states inputs"],
    time: int,
) -> Reconstruction:
    """The inputs x_1 .. x_T that lead from 0 to a state, by least squares.

    Args:
        zeta: The state after T steps.
        eigenvalues: lambda.
        B: How inputs enter.
        time: T, at least 1.

    Raises:
        ValueError: The unknowns are more than the equations, T n > 2 m.

    Reference: Orvieto et al. 2024, Section 3.
    """
    states, inputs = B.shape
    if time * inputs > 2 * states:
        raise ValueError(
            f"{states} complex states hold {capacity(states, inputs)} steps of {inputs} numbers: got {time}"
        )
    U, singular, Vh = torch.linalg.svd(memory(eigenvalues, B, time), full_matrices=False)
    x = Vh.T @ ((U.T @ torch.cat((zeta.real, zeta.imag))) / singular)
    return Reconstruction(x.unflatten(0, (time, inputs)), float(singular[0] / singular[-1]))
