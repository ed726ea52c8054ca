"""Options of the perceptrons that type checks would refuse before the constructor can."""

import pytest

from margin.classic.perceptron.kernel_perceptron import KernelPerceptron
from margin.classic.perceptron.multiclass_perceptron import multiclass_mistake_rule


def test_a_kernel_and_an_update_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel must be one of polynomial, gaussian: got 'cubic'"):
        KernelPerceptron(2, 2, 5, kernel="cubic")
    with pytest.raises(ValueError, match="update must be one of highest, uniform: got 'all'"):
        multiclass_mistake_rule(update="all")
