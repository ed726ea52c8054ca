"""Options of linear models that are none of a Literal's: our own refusal, which the shape hook forestalls."""

import pytest

from margin.classic.linear.ridge import KernelRidge, Ridge


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ValueError, match="scaling must be one of mean, sum, undivided: got 'half'"):
        Ridge(3, scaling="half")


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="kernel must be gaussian, polynomial or linear: got 'rbf'"):
        KernelRidge(3, 10, kernel="rbf")
