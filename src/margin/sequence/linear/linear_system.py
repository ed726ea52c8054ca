"""The linear system z_t = A z_{t-1} + B x_t (Kalman 1963): impulse response, diagonal form, stability.

A network has it in residual blocks (Orvieto et al. 2023), which are nonlinear at each step, not in time.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

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
    check_dropout,
    unrolled,
    without_padding,
)
from margin.sequence.recurrent import readouts
from margin.sequence.recurrent.layers import StepBatchNorm

Widths = Float[Tensor, "batch time width"]
Width = Float[Tensor, "batch width"]
Norm = Literal["layer", "batch", "none"]


class LinearBlock(nn.Module):
    r"""A residual block: norm, linear recurrence R, and what is nonlinear, at each step by itself.

    .. math:: y = R(\mathrm{norm}(x)), \qquad
        \mathrm{block}(x) = x + (W g + b) \odot \sigma(V g + c), \quad g = \mathrm{gelu}(y)

    Args:
        core: R, of ``width`` numbers in and out.
        width: Numbers of each step.
        dropout: Probability with which a number of g and of the branch is dropped in training, in [0, 1).
        norm: "layer" over the numbers of a step, which alone it reads; "batch" of each number over all steps
            of a batch; or none. A number that is rarely far from its mean, such as a mark, keeps its size
            under "batch", and what is summed over many steps has mean 0: it is what finds a few steps that
            count among hundreds.

    Raises:
        ValueError: The norm is another.

    Reference:
        Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu and De 2023, Section 2.1 and Figure 1 (batch or layer
        normalization).
    """

    def __init__(self, core: Recurrence, width: int, *, dropout: float = 0.0, norm: Norm = "layer") -> None:
        super().__init__()
        if norm not in ("layer", "batch", "none"):
            raise ValueError(f"norm must be 'layer', 'batch' or 'none': got {norm!r}")
        kinds = {"layer": nn.LayerNorm, "batch": StepBatchNorm, "none": nn.Identity}
        self.norm = kinds[norm](width)
        self.core = core
        self.gate = nn.Linear(width, 2 * width)
        self.dropout = nn.Dropout(check_dropout(dropout))

    def forward(self, x: Widths, lengths: Lengths | None, state: State) -> tuple[Widths, State]:
        """The block's outputs at all steps and its core's last state."""
        normal = self.norm(x, lengths) if isinstance(self.norm, StepBatchNorm) else self.norm(x)
        y, state = self.core(normal, lengths, state)
        return self._joined(x, y), state

    def step(self, x: Width, state: State) -> tuple[Width, State]:
        """One step of it."""
        y, state = self.core.step(self.norm(x), state)
        return self._joined(x, y), state

    def _joined(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(F.glu(self.gate(self.dropout(F.gelu(y)))))


class LinearStack(Recurrence):
    """An affine map to ``width`` numbers a step, then blocks one after the other.

    Args:
        input_size: n, numbers of x_t.
        core: Makes the linear recurrence of a block from its width.
        width: Numbers of each step between the blocks, at least 1; they are the outputs.
        layers: Number of blocks, at least 1.
        dropout: See :class:`LinearBlock`.
        norm: See :class:`LinearBlock`.

    Raises:
        ValueError: A size or the number of layers is below 1.
    """

    def __init__(
        self,
        input_size: int,
        core: Callable[[int], Recurrence],
        *,
        width: int = 64,
        layers: int = 2,
        dropout: float = 0.0,
        norm: Norm = "layer",
    ) -> None:
        super().__init__(input_size, width)
        if layers < 1:
            raise ValueError(f"layers must be at least 1: got {layers}")
        self.encoder = nn.Linear(input_size, width)
        self.blocks = nn.ModuleList(
            LinearBlock(core(width), width, dropout=dropout, norm=norm) for _ in range(layers)
        )

    def initial(self, x: Tensor) -> State:
        """The state 0 of every block, one after the other."""
        return tuple(part for block in self._blocks() for part in block.core.initial(x))

    def step(self, x: Steps, state: State) -> tuple[Width, State]:
        """One step through all blocks."""
        y, new = self.encoder(x), []
        for block, part in zip(self._blocks(), state, strict=True):
            y, (after,) = block.step(y, (part,))
            new.append(after)
        return y, tuple(new)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Widths, State]:
        """All steps, a block at a time; outputs 0 at padding and each example's state after its last step."""
        state = self.initial(x) if state is None else state
        y, new = self.encoder(without_padding(x, lengths)), []
        for block, part in zip(self._blocks(), state, strict=True):
            y, (after,) = block(y, lengths, (part,))
            new.append(after)
        return without_padding(y, lengths), tuple(new)

    def _blocks(self) -> list[LinearBlock]:
        return [block for block in self.blocks if isinstance(block, LinearBlock)]


Square = Float[Tensor, "states states"]
Stability = Literal["asymptotic", "marginal", "unstable"]


def impulse_response(
    A: Square, B: Float[Tensor, "states inputs"], C: Float[Tensor, "outputs states"], length: int
) -> Float[Tensor, "length outputs inputs"]:
    """The outputs C A^k B, k = 0 .. length - 1, that an input of 1 leaves k steps later.

    Args:
        A: The transition.
        B: How inputs enter.
        C: How the state is read.
        length: How many, at least 1.

    Raises:
        ValueError: The length is below 1.

    Reference: Antsaklis and Michel 2006, Section 2.7.
    """
    if length < 1:
        raise ValueError(f"length must be at least 1: got {length}")
    states = [B]
    for _ in range(length - 1):
        states.append(A @ states[-1])
    return torch.stack([C @ state for state in states])


class Diagonal(NamedTuple):
    """A linear system in the basis of its eigenvectors, zeta = P^{-1} z.

    Args:
        eigenvalues: The diagonal of L, where A = P L P^{-1}.
        basis: P, eigenvectors of length 1 in its columns.
        B: P^{-1} B.
        C: C P.
        condition: ||P|| ||P^{-1}||: how much of rounding the change of basis may blow up; 1 for normal A.
    """

    eigenvalues: Complex[Tensor, " states"]
    basis: Complex[Tensor, "states states"]
    B: Complex[Tensor, "states inputs"]
    C: Complex[Tensor, "outputs states"]
    condition: float


def diagonalized(
    A: Square, B: Float[Tensor, "states inputs"], C: Float[Tensor, "outputs states"]
) -> Diagonal:
    r"""The same system in the basis of its eigenvectors, where each state goes its own way.

    .. math:: A = P \Lambda P^{-1}, \qquad \zeta_t = \Lambda \zeta_{t-1} + P^{-1} B x_t, \qquad
        y_t = C P \zeta_t

    Args:
        A: The transition.
        B: How inputs enter.
        C: How the state is read.

    Raises:
        ValueError: A has no basis of eigenvectors, to rounding: its condition times eps is 1 or more.

    Reference: Horn and Johnson 2013, Theorem 1.3.7; Orvieto et al. 2023, Section 3.2.
    """
    values, P = torch.linalg.eig(A)
    singular = torch.linalg.svdvals(P)
    condition = float(singular[0] / singular[-1])
    if not condition * torch.finfo(A.dtype).eps < 1:
        raise ValueError(
            "a diagonal form needs a basis of eigenvectors: the eigenvectors of A have condition "
            f"{condition:.1e}, no basis in {A.dtype}"
        )
    return Diagonal(values, P, torch.linalg.solve(P, B.to(P.dtype)), C.to(P.dtype) @ P, condition)


def stability(A: Square, *, tolerance: float = 1e-6) -> Stability:
    r"""Whether the powers of A vanish, stay bounded or grow, by its eigenvalues.

    They vanish where every modulus is below 1 ("asymptotic"). They stay bounded ("marginal") where none is
    above 1 and those of modulus 1 are semisimple: as many eigenvectors as their multiplicity. Else they
    grow: |lambda| <= 1 alone is not enough, for [[1, 1], [0, 1]]^k = [[1, k], [0, 1]].

    Args:
        A: The transition; float64 is computed in.
        tolerance: Distance at which eigenvalues count as equal, a modulus as 1, and a matrix as 0. The
            eigenvalues of a Jordan block of size s move by the s-th root of rounding, 1e-8 for 2: a smaller
            tolerance would take them for distinct ones. Of a larger block one moves out of the disc by more
            than that.

    Raises:
        ValueError: The tolerance is not in (0, 1).

    Reference: Antsaklis and Michel 2006, Section 4.8; Horn and Johnson 2013, Section 5.6 (power bounded).
    """
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be in (0, 1): got {tolerance:g}")
    A = A.detach().double()
    values = torch.linalg.eigvals(A)
    moduli = values.abs()
    if bool((moduli > 1 + tolerance).any()):
        return "unstable"
    edge = values[moduli >= 1 - tolerance]
    if not all(norm <= tolerance for norm in _couplings(A, edge, 2 * tolerance)):
        return "unstable"
    return "marginal" if len(edge) else "asymptotic"


def _couplings(A: Square, values: Complex[Tensor, " some"], near: float) -> Iterator[float]:
    """How far A is from a multiple of I on the invariant subspace of the eigenvalues near each of these.

    The rest of A, of whatever size, plays no part: with those eigenvalues first in the Schur form
    A = Q T Q^H, the subspace is spanned by the first columns of Q and T's leading block is A on it. It is
    semisimple where nothing is above the block's diagonal.
    """
    from scipy.linalg import schur
    from scipy.linalg.lapack import ztrsen

    T, Q = schur(A.cpu().numpy(), output="complex")
    diagonal = T.diagonal()
    for value in values.tolist():
        chosen = abs(diagonal - value) <= near
        count = int(chosen.sum())
        if count > 1:
            block = torch.from_numpy(ztrsen(chosen, T, Q, job="N")[0][:count, :count])
            yield float(torch.linalg.matrix_norm(block.triu(1), 2))


class LinearSystem(Recurrence):
    r"""A linear recurrence of dense real transition.

    .. math:: z_t = A z_{t-1} + B x_t, \qquad y_t = C z_t + d \odot x_t

    Args:
        width: Numbers of x_t and of y_t.
        states: Number m of real states.
        gain: A begins with independent entries of variance gain^2 / m, whose eigenvalues fill a disc of
            radius about ``gain``.

    Raises:
        ValueError: A size is below 1 or the gain is not positive.

    Reference:
        Orvieto et al. 2023, Section 3.1 (dense linear recurrence); Glorot and Bengio 2010, Equation 12, up to
        the law of the entries.
    """

    def __init__(self, width: int, *, states: int = 64, gain: float = 0.95) -> None:
        super().__init__(width, width)
        if states < 1:
            raise ValueError(f"states must be at least 1: got {states}")
        if not 0 < gain < math.inf:
            raise ValueError(f"gain must be positive: got {gain:g}")
        self.A = nn.Parameter(gain * torch.randn(states, states) / math.sqrt(states))
        self.B = nn.Parameter(torch.randn(states, width) / math.sqrt(width))
        self.C = nn.Parameter(torch.randn(width, states) / math.sqrt(states))
        self.d = nn.Parameter(torch.randn(width))

    @property
    def eigenvalues(self) -> Complex[Tensor, " states"]:
        """The eigenvalues of A."""
        return torch.linalg.eigvals(self.A)

    def driven(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch states"]:
        """What each step adds to the state, B x_t."""
        return F.linear(x, self.B)

    def read(
        self, z: Float[Tensor, "*batch states"], x: Float[Tensor, "*batch width"]
    ) -> Float[Tensor, "*batch width"]:
        """The outputs C z + d x."""
        return F.linear(z, self.C) + self.d * x

    def initial(self, x: Tensor) -> State:
        """The state 0."""
        return (torch.zeros(x.shape[0], len(self.A), dtype=self.A.dtype, device=x.device),)

    def step(self, x: Steps, state: State) -> tuple[Steps, State]:
        """One step: the output and the new state."""
        z = torch.addmm(self.driven(x), state[0], self.A.T)
        return self.read(z, x), (z,)

    def forward(
        self, x: Sequences, lengths: Lengths | None = None, state: State | None = None
    ) -> tuple[Sequences, State]:
        """All steps; outputs 0 at padding and each example's state after its own last step."""
        x = without_padding(x, lengths)
        start = self.initial(x) if state is None else state
        z, last = unrolled(self._moved, self.driven(x), lengths, start)
        return without_padding(self.read(z, x), lengths), last

    def _moved(self, driven: Tensor, state: State) -> tuple[Tensor, State]:
        z = torch.addmm(driven, state[0], self.A.T)
        return z, (z,)


def recurrence(
    input_size: int,
    *,
    width: int = 64,
    states: int = 64,
    layers: int = 2,
    dropout: float = 0.0,
    gain: float = 0.95,
) -> LinearStack:
    """The stack of blocks whose linear recurrence is a :class:`LinearSystem`.

    Args:
        input_size: n, numbers of x_t.
        width: Numbers of each step between the blocks.
        states: Real states of each block.
        layers: Number of blocks.
        dropout: Probability with which a number is dropped in training, in [0, 1).
        gain: About the largest modulus of an eigenvalue at the beginning; above 1 states explode.
    """
    core = partial(LinearSystem, states=states, gain=gain)
    return LinearStack(input_size, core, width=width, layers=layers, dropout=dropout)


classifier = readouts.classifier(
    recurrence,
    "Blocks of dense linear systems, to class logits of a sequence: what the LRU is when not diagonal.",
    defaults={"pool": "mean"},
    without=("head.dropout",),
)
