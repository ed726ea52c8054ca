"""The graph filters inside a model, what they are given, and what they do in the Laplacian's eigenbasis."""

from typing import NamedTuple

import torch
from torch import Tensor

from margin.core.findings import Subject
from margin.geometric.graphs.layers import LayerCall, captured_layers, is_graph
from margin.geometric.spectral.chebnet import ChebConv
from margin.geometric.spectral.filters import TOP, SpectralConv
from margin.geometric.spectral.graph_fourier import spectrum
from margin.geometric.spectral.laplacian import Symmetric
from margin.geometric.spectral.operators import laplacian_of, scale_of
from margin.geometric.spectral.polynomial_filter import PolynomialConv

CHUNK = 64
"""Frequencies whose responses are held at once."""

Filter = ChebConv | PolynomialConv | SpectralConv


class Asked(NamedTuple):
    """A call of a filter, the Laplacian that it filters by in float64, and what it takes lambda_max as."""

    call: LayerCall
    layer: Filter
    L: Symmetric
    largest: float

    @property
    def name(self) -> str:
        """The layer's name in the model that was handed over."""
        return self.call.name.removeprefix("model.")

    @property
    def edges(self) -> tuple[Tensor, Tensor]:
        """The edges and what they carry."""
        edge_index, edge_attr = self.call.given[1:3]
        return edge_index, edge_attr


def has_filters(subject: Subject) -> bool:
    """Whether the model reads graphs and holds filters of their Laplacian."""
    return is_graph(subject) and any(isinstance(module, Filter) for module in subject.model.modules())


def has_chebyshev(subject: Subject) -> bool:
    """Whether the model reads graphs and holds Chebyshev filters."""
    return is_graph(subject) and any(isinstance(module, ChebConv) for module in subject.model.modules())


def filters(subject: Subject) -> list[Asked]:
    """The calls of the model's filters on its first held-out batch, in float64.

    Raises:
        ValueError: The graph is not undirected: then no filter answers.
    """
    found = []
    for call in captured_layers(subject).calls:
        if isinstance(call.layer, Filter):
            edge_index, edge_attr = call.given[1:3]
            L = laplacian_of(
                edge_index,
                edge_attr,
                len(call.x),
                torch.float64,
                edge_weight=call.layer.edge_weight,
                normalization=getattr(call.layer, "normalization", "symmetric"),
            )
            scale = scale_of(L, call.layer.largest) if isinstance(call.layer, ChebConv) else TOP
            found.append(Asked(call, call.layer, L, scale or TOP))
    return found


def _response(one: Asked, values: Tensor) -> Tensor:
    """What a layer multiplies by at each eigenvalue (frequencies, out, in)."""
    if isinstance(one.layer, ChebConv):
        return one.layer.response(values, one.largest)
    return one.layer.response(values)


def spectral_output(one: Asked) -> Tensor:
    """A layer's output computed in the eigenbasis, U g(Lambda) U' X + b."""
    values, U = spectrum(one.L)
    x_hat = U.T @ one.call.x
    pieces = [
        torch.einsum("foi,fi->fo", _response(one, values[k : k + CHUNK]), x_hat[k : k + CHUNK])
        for k in range(0, len(values), CHUNK)
    ]
    return U @ torch.cat(pieces) + one.layer.bias


def gain(one: Asked, values: Tensor) -> Tensor:
    """The largest singular value of a layer's response at each eigenvalue: how much a frequency can grow."""
    if not bool(torch.cat([p.flatten() for p in one.layer.parameters()]).isfinite().all()):
        return torch.full_like(values, torch.nan)
    pieces = [
        torch.linalg.matrix_norm(_response(one, values[k : k + CHUNK]), ord=2)
        for k in range(0, len(values), CHUNK)
    ]
    return torch.cat(pieces).detach()
