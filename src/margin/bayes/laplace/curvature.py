"""Gauss-Newton matrices of four structures, each kept as its eigenvalues and the rotation to them.

The precision of a Laplace posterior, s H + d I, has the eigenvectors of H whatever the prior's precision d:
its determinant, its inverse and draws of it cost no new factorization. Ritter, Botev and Barber (2018),
Section 3.1, of Kronecker factors; Martens and Grosse (2015), Section 2 and, of convolutions, Grosse and
Martens (2016).
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.bayes.laplace.factors import Factor
from margin.core.memory import byte_size, memory_here

Structure = Literal["auto", "full", "kron", "diag", "last"]
Sizes = Sequence[tuple[int, int]]
"""Of each layer, its units and what each of them weighs."""

SHARE = 4
"""The memory of a matrix is so often needed while its eigenvectors are computed."""


def bytes_of(sizes: Sizes, structure: Structure) -> int:
    """The memory that a structure takes while it is fitted."""
    if structure == "diag":
        return 8 * sum(u * i for u, i in sizes)
    if structure == "kron":
        return 8 * SHARE * sum(u * u + i * i for u, i in sizes)
    count = sum(u * i for u, i in (sizes[-1:] if structure == "last" else sizes))
    return 8 * SHARE * count**2


AUTO = 2**27
"""The memory that a full matrix of structure auto takes at most: that of 2,048 weights."""


def chosen_structure(sizes: Sizes, structure: Structure) -> tuple[Structure, str]:
    """What auto means for a network, whatever the machine, and a line that says so; another stays."""
    if structure != "auto":
        return structure, ""
    asked, count = bytes_of(sizes, "full"), sum(u * i for u, i in sizes)
    takes = f"of {count:,} weights takes {byte_size(asked)} while it is fitted"
    if asked <= AUTO:
        return "full", f"structure full: the curvature {takes}"
    return "kron", (
        f"structure kron: the full curvature {takes}, more than {byte_size(AUTO)}; kron overstates the noise "
        "where rows are few, which --model.structure full does not"
    )


def check_fits(sizes: Sizes, structure: Structure) -> None:
    """Refuse a matrix that is larger than half of this machine's memory.

    Raises:
        ValueError: It is; the message says what fits.
    """
    asked, room = bytes_of(sizes, structure), memory_here() / 2
    if asked <= room:
        return
    smaller: tuple[Structure, ...] = ("kron", "last", "diag")
    fitting = [s for s in smaller if bytes_of(sizes, s) <= room]
    told = " or ".join(f"{s} ({byte_size(bytes_of(sizes, s))})" for s in fitting)
    raise ValueError(
        f"the curvature must fit into memory: structure {structure} of {sum(u * i for u, i in sizes):,} "
        f"weights takes {byte_size(asked)}, of which there are {byte_size(room)} here; "
        + (f"choose structure {told}" if told else "no structure fits")
    )


class Curvature(nn.Module):
    """H, the sum over examples of J' S S' J, of one of the structures.

    It is handed the Jacobians times S' of some examples at a time, then :meth:`finish`.
    """

    def begin(self) -> None:
        """Forget what was added."""
        for buffer in self.buffers():
            buffer.zero_()

    def add(self, parts: Sequence[Factor], weight: Float[Tensor, " batch"]) -> None:
        """Add some examples, each as often as its weight says."""
        raise NotImplementedError

    def finish(self, total: Float[Tensor, ""], places: Sequence[int]) -> None:
        """Turn the sums into eigenvalues and rotations.

        Args:
            total: The weight of all examples.
            places: How often each layer is applied to an example.
        """
        raise NotImplementedError

    def eigenvalues(self) -> Float[Tensor, " weights"]:
        """Of H, at least 0."""
        raise NotImplementedError

    def spread(
        self, parts: Sequence[Factor], noise: Tensor, prior: Tensor
    ) -> Float[Tensor, "batch outputs outputs"]:
        """J (H / noise + prior I)^-1 J' of each example."""
        raise NotImplementedError

    def draw(
        self, count: int, noise: Tensor, prior: Tensor, generator: Generator
    ) -> Float[Tensor, "count weights"]:
        """Draws of N(0, (H / noise + prior I)^-1)."""
        raise NotImplementedError


def _normal(count: int, like: Tensor, generator: Generator) -> Tensor:
    return torch.randn(count, *like.shape, generator=generator, dtype=like.dtype)


class FullCurvature(Curvature):
    """H itself, of all layers or of the last.

    Args:
        sizes: Of the layers.
    """

    values: Tensor
    vectors: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        count = sum(u * i for u, i in sizes)
        self.only = sizes[0] if len(sizes) == 1 else None
        self.register_buffer("values", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("vectors", torch.zeros(count, count, dtype=torch.float64))

    @staticmethod
    def _rows(parts: Sequence[Factor]) -> Tensor:
        return torch.cat([part.jacobian() for part in parts], 2).double()

    def add(self, parts: Sequence[Factor], weight: Float[Tensor, " batch"]) -> None:
        """Add the squares of the rows; of one layer at one place H is the sum of (g g') x (a a')."""
        if self.only is None or parts[0].given.shape[1] > 1:
            rows = (weight.sqrt()[:, None, None] * self._rows(parts)).flatten(0, 1)
            self.vectors += (rows.mT @ rows).to(self.vectors)
            return
        a, g = parts[0].given[:, 0].double(), parts[0].back[:, :, 0].double()
        squares = (weight.double()[:, None, None] * g).mT @ g
        units, inputs = self.only
        for u in range(units):
            # a unit with itself and those behind it: the rest is its mirror image
            scaled = (squares[:, u, u:, None] * a[:, None]).flatten(1)
            block = (a.mT @ scaled).to(self.vectors)
            own = slice(u * inputs, (u + 1) * inputs)
            self.vectors[own, u * inputs :] += block
            self.vectors[(u + 1) * inputs :, own] += block[:, inputs:].mT

    def finish(self, total: Float[Tensor, ""], places: Sequence[int]) -> None:
        """The eigenvectors; rounding makes no eigenvalue negative."""
        values, vectors = torch.linalg.eigh(self.vectors.double())
        self.values.copy_(values.clamp_min(0))
        self.vectors.copy_(vectors)

    def eigenvalues(self) -> Float[Tensor, " weights"]:
        """Of H."""
        return self.values.double()

    def spread(
        self, parts: Sequence[Factor], noise: Tensor, prior: Tensor
    ) -> Float[Tensor, "batch outputs outputs"]:
        """J (H / noise + prior I)^-1 J' of each example."""
        if self.only is None or parts[0].given.shape[1] > 1:
            turned = self._rows(parts) @ self.vectors.double()
        else:
            units = self.vectors.double().unflatten(0, self.only)
            seen = torch.einsum("bi,uip->bup", parts[0].given[:, 0].double(), units)
            turned = parts[0].back[:, :, 0].double() @ seen
        return (turned / (self.eigenvalues() / noise + prior)) @ turned.mT

    def draw(
        self, count: int, noise: Tensor, prior: Tensor, generator: Generator
    ) -> Float[Tensor, "count weights"]:
        """Draws of N(0, (H / noise + prior I)^-1)."""
        values = self.eigenvalues()
        scaled = _normal(count, values, generator) / (values / noise + prior).sqrt()
        return scaled @ self.vectors.double().mT


class DiagonalCurvature(Curvature):
    """The diagonal of H.

    Args:
        sizes: Of the layers.
    """

    values: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(sum(u * i for u, i in sizes), dtype=torch.float64))

    def add(self, parts: Sequence[Factor], weight: Float[Tensor, " batch"]) -> None:
        """Add the squares of each weight's derivatives."""
        w = weight.double()
        start = 0
        for given, back in parts:
            if given.shape[1] == 1:  # the square of a product is the product of the squares
                scaled = torch.einsum("b,bcu->bu", w, back[:, :, 0].double().square())
                found = scaled.mT @ given[:, 0].double().square()
            else:
                rows = Factor(given, back).jacobian().double()
                found = torch.einsum("b,bcw->w", w, rows.square())
            self.values[start : start + found.numel()] += found.flatten()
            start += found.numel()

    def finish(self, total: Float[Tensor, ""], places: Sequence[int]) -> None:
        """The sums are the eigenvalues."""

    def eigenvalues(self) -> Float[Tensor, " weights"]:
        """Of the diagonal."""
        return self.values.double()

    def spread(
        self, parts: Sequence[Factor], noise: Tensor, prior: Tensor
    ) -> Float[Tensor, "batch outputs outputs"]:
        """J (H / noise + prior I)^-1 J' of each example."""
        rows = FullCurvature._rows(parts)
        return (rows / (self.eigenvalues() / noise + prior)) @ rows.mT

    def draw(
        self, count: int, noise: Tensor, prior: Tensor, generator: Generator
    ) -> Float[Tensor, "count weights"]:
        """Draws of N(0, (H / noise + prior I)^-1)."""
        values = self.eigenvalues()
        return _normal(count, values, generator) / (values / noise + prior).sqrt()


class KroneckerCurvature(Curvature):
    r"""Of each layer the Kronecker product of two factors, layers apart from each other (KFAC).

    .. math:: H_l \approx \tfrac{1}{N T} \sum_{n,t} g_{nt} g_{nt}^\top \otimes \sum_{n,t} a_{nt} a_{nt}^\top

    a is what the layer sees, with a 1 for its bias, g the derivative by what it sends, times S. Exact where
    the squares of both are independent over examples, as of one example, or of one layer under squared
    errors.

    Args:
        sizes: Of the layers.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.count = len(sizes)
        for k, pair in enumerate(sizes):
            for side, size in zip(("units", "inputs"), pair, strict=True):
                self.register_buffer(f"{side}_values_{k}", torch.zeros(size, dtype=torch.float64))
                self.register_buffer(f"{side}_vectors_{k}", torch.zeros(size, size, dtype=torch.float64))

    def _side(self, side: str, k: int) -> tuple[Tensor, Tensor]:
        values, vectors = self.get_buffer(f"{side}_values_{k}"), self.get_buffer(f"{side}_vectors_{k}")
        return values.double(), vectors.double()

    def add(self, parts: Sequence[Factor], weight: Float[Tensor, " batch"]) -> None:
        """Add the squares of both sides of each layer."""
        root = weight.double().sqrt()[:, None, None]
        for k, (given, back) in enumerate(parts):
            a = (root * given.double()).flatten(0, 1)
            g = (root[..., None] * back.double()).flatten(0, 2)
            for side, rows in (("inputs", a), ("units", g)):
                total = self.get_buffer(f"{side}_vectors_{k}")
                total += (rows.mT @ rows).to(total)

    def finish(self, total: Float[Tensor, ""], places: Sequence[int]) -> None:
        """The eigenvectors of both sides; the share 1 / (N T) is with the units."""
        for k, often in enumerate(places):
            for side, scale in (("inputs", 1.0), ("units", 1 / (float(total) * often))):
                values, vectors = torch.linalg.eigh(self.get_buffer(f"{side}_vectors_{k}").double())
                self.get_buffer(f"{side}_values_{k}").copy_(scale * values.clamp_min(0))
                self.get_buffer(f"{side}_vectors_{k}").copy_(vectors)

    def _grids(self) -> list[Tensor]:
        """The eigenvalues of each layer, (units, inputs)."""
        return [
            self._side("units", k)[0][:, None] * self._side("inputs", k)[0][None] for k in range(self.count)
        ]

    def eigenvalues(self) -> Float[Tensor, " weights"]:
        """The products of those of both sides."""
        return torch.cat([grid.flatten() for grid in self._grids()])

    def spread(
        self, parts: Sequence[Factor], noise: Tensor, prior: Tensor
    ) -> Float[Tensor, "batch outputs outputs"]:
        """J (H / noise + prior I)^-1 J' of each example."""
        found = []
        for k, (part, grid) in enumerate(zip(parts, self._grids(), strict=True)):
            a = part.given.double() @ self._side("inputs", k)[1]
            g = part.back.double() @ self._side("units", k)[1]
            inverse = 1 / (grid / noise + prior)
            if a.shape[1] == 1:  # the outer products need not be written down
                scaled = g[:, :, 0] * (a[:, 0].square() @ inverse.mT)[:, None]
                found.append(scaled @ g[:, :, 0].mT)
            else:
                rows = Factor(a, g).jacobian()
                found.append((rows * inverse.flatten()) @ rows.mT)
        return torch.stack(found).sum(0)

    def draw(
        self, count: int, noise: Tensor, prior: Tensor, generator: Generator
    ) -> Float[Tensor, "count weights"]:
        """Draws of N(0, (H / noise + prior I)^-1)."""
        found = []
        for k, grid in enumerate(self._grids()):
            scaled = _normal(count, grid, generator) / (grid / noise + prior).sqrt()
            turned = self._side("units", k)[1] @ scaled @ self._side("inputs", k)[1].mT
            found.append(turned.flatten(1))
        return torch.cat(found, 1)


def curvature_of(sizes: Sizes, structure: Structure) -> Curvature:
    """The empty curvature of a structure.

    Raises:
        ValueError: There is no such structure, or it does not fit into memory.
    """
    if structure not in ("full", "kron", "diag", "last"):
        raise ValueError(f"structure must be auto, full, kron, diag or last: got {structure!r}")
    check_fits(sizes, structure)
    if structure == "last":
        return FullCurvature(sizes[-1:])
    kinds = {"full": FullCurvature, "kron": KroneckerCurvature, "diag": DiagonalCurvature}
    return kinds[structure](sizes)


def entropy_of(curvature: Curvature, noise: Tensor, prior: Tensor) -> Tensor:
    """The entropy of the posterior, in nats."""
    values = curvature.eigenvalues()
    return (len(values) * (1 + math.log(2 * math.pi)) - (values / noise + prior).log().sum()) / 2
