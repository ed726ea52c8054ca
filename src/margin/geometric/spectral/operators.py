"""The matrices that spectral filters need of a graph, computed once and kept while its tensors live."""

from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.geometric.graphs.sparsity import cached_by_tensor
from margin.geometric.spectral.graph_fourier import Spectrum, check_size, spectrum
from margin.geometric.spectral.laplacian import (
    Normalization,
    Symmetric,
    adjacency,
    laplacian,
    largest_bound,
    largest_eigenvalue,
    rescaled,
)

EdgeWeight = Literal["none", "first"]
Largest = Literal["bound", "lanczos"]
Edges = Int[Tensor, "2 edges"]
EdgeAttr = Float[Tensor, "edges width"]


def laplacian_of(
    edge_index: Edges,
    edge_attr: EdgeAttr,
    num_nodes: int,
    dtype: torch.dtype,
    *,
    edge_weight: EdgeWeight = "none",
    normalization: Normalization = "symmetric",
) -> Symmetric:
    """The Laplacian of a graph, D - A or the normalized one.

    Args:
        edge_index: Sources and targets, each edge in both directions.
        edge_attr: What edges carry.
        num_nodes: M.
        dtype: Type of the entries.
        edge_weight: Whether an edge weighs 1, or as much as the first number that it carries.
        normalization: symmetric for the normalized one, none for D - A.

    Raises:
        ValueError: As :func:`margin.geometric.spectral.laplacian.adjacency`, or edges carry no number.
    """
    return cached_by_tensor(_laplacian, (edge_index, edge_attr), num_nodes, dtype, edge_weight, normalization)


def rescaled_of(
    edge_index: Edges,
    edge_attr: EdgeAttr,
    num_nodes: int,
    dtype: torch.dtype,
    *,
    edge_weight: EdgeWeight = "none",
    normalization: Normalization = "symmetric",
    largest: Largest = "bound",
) -> Symmetric:
    """L^ = 2 L / lambda_max - I of a graph.

    Args:
        edge_index: Sources and targets, each edge in both directions.
        edge_attr: What edges carry.
        num_nodes: M.
        dtype: Type of the entries.
        edge_weight: Whether an edge weighs 1, or as much as the first number that it carries.
        normalization: Of L.
        largest: lambda_max as a bound, or as the Lanczos process finds it, with its error added.
    """
    options = (num_nodes, dtype, edge_weight, normalization, largest)
    return cached_by_tensor(_rescaled, (edge_index, edge_attr), *options)


def spectrum_of(
    edge_index: Edges,
    edge_attr: EdgeAttr,
    num_nodes: int,
    dtype: torch.dtype,
    *,
    edge_weight: EdgeWeight = "none",
) -> Spectrum:
    """Eigenvalues and eigenvectors of the normalized Laplacian of a graph.

    Raises:
        ValueError: There are more nodes than eigenvectors are computed of.
    """
    return cached_by_tensor(_spectrum, (edge_index, edge_attr), num_nodes, dtype, edge_weight)


def checked(name: str, value: str, choices: Any) -> Any:
    """The value of an option, if it is one of its choices.

    Raises:
        ValueError: It is not.
    """
    if value not in get_args(choices):
        raise ValueError(f"{name} must be {' or '.join(get_args(choices))}: got {value!r}")
    return value


def scale_of(L: Symmetric, largest: Largest) -> float:
    """What lambda_max is taken as: a bound, or what is found with its error added."""
    return largest_bound(L) if largest == "bound" else sum(largest_eigenvalue(L))


def _laplacian(
    edge_index: Tensor,
    edge_attr: Tensor,
    num_nodes: int,
    dtype: torch.dtype,
    edge_weight: EdgeWeight,
    normalization: Normalization,
) -> Symmetric:
    if edge_weight == "first" and not edge_attr.shape[1]:
        raise ValueError("edge_weight first needs edges that carry a number: they carry none")
    weight = edge_attr[:, 0].to(dtype) if edge_weight == "first" else None
    return laplacian(adjacency(edge_index, num_nodes, weight, dtype=dtype), normalization=normalization)


def _rescaled(
    edge_index: Tensor,
    edge_attr: Tensor,
    num_nodes: int,
    dtype: torch.dtype,
    edge_weight: EdgeWeight,
    normalization: Normalization,
    largest: Largest,
) -> Symmetric:
    L = _laplacian(edge_index, edge_attr, num_nodes, dtype, edge_weight, normalization)
    return rescaled(L, scale_of(L, largest))


def _spectrum(
    edge_index: Tensor, edge_attr: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: EdgeWeight
) -> Spectrum:
    check_size(num_nodes)
    return spectrum(_laplacian(edge_index, edge_attr, num_nodes, dtype, edge_weight, "symmetric"))
