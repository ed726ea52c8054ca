"""An option of a graph filter that does not exist is refused; the shape hook would forestall it."""

import pytest

from margin.geometric.spectral.chebnet import ChebConv
from margin.geometric.spectral.filters import SpectralConv
from margin.geometric.spectral.polynomial_filter import PolynomialConv


@pytest.mark.parametrize("layer", [ChebConv, PolynomialConv])
def test_an_unknown_normalization_is_refused(layer: type) -> None:
    with pytest.raises(ValueError, match="normalization must be symmetric or none: got 'sym'"):
        layer(3, 2, normalization="sym")


@pytest.mark.parametrize("layer", [ChebConv, PolynomialConv, SpectralConv])
def test_an_unknown_weight_is_refused(layer: type) -> None:
    with pytest.raises(ValueError, match="edge_weight must be none or first: got 'second'"):
        layer(3, 2, edge_weight="second")


def test_an_unknown_largest_eigenvalue_is_refused() -> None:
    with pytest.raises(ValueError, match="largest must be bound or lanczos: got 'two'"):
        ChebConv(3, 2, largest="two")
