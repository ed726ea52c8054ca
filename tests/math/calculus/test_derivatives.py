"""Every rule of the table against finite differences and autograd; what the notes print wrongly fails."""

import pytest
import torch

from margin.math.calculus.derivatives import (
    DERIVATIVES,
    ELEMENTARY,
    SCALAR_BY_MATRIX,
    TRACE_DETERMINANT,
    VECTOR,
)

STEP = 1e-6


def differences(rule, variable, *constants):
    """Central differences, one entry of the variable after the other, in the rule's layout."""
    columns = []
    for i in range(variable.numel()):
        move = torch.zeros_like(variable).flatten()
        move[i] = STEP
        move = move.reshape(variable.shape)
        up, down = (rule.function(variable + s * move, *constants) for s in (1, -1))
        columns.append((up - down) / (2 * STEP))
    jacobian = torch.stack(columns, -1)
    if rule.layout == "gradient":
        return jacobian.reshape(variable.shape)
    return jacobian.mT if rule.layout == "denominator" else jacobian


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("rule", DERIVATIVES, ids=lambda rule: rule.formula)
def test_a_rule_is_what_finite_differences_and_autograd_give(rule):
    for seed in range(3):
        arguments = rule.arguments(generator(seed))
        stated = rule.closed_form(*arguments)
        assert stated.shape == rule.automatic(*arguments).shape
        torch.testing.assert_close(stated, rule.automatic(*arguments), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(stated, differences(rule, *arguments), rtol=1e-6, atol=1e-7)


def test_the_tables_hold_the_rules_that_the_specification_lists():
    counts = [len(table) for table in (ELEMENTARY, VECTOR, SCALAR_BY_MATRIX, TRACE_DETERMINANT)]
    assert counts == [16, 7, 4, 4]
    assert len({rule.formula for rule in DERIVATIVES}) == len(DERIVATIVES) - 1  # the quadratic form is in two
    square = next(rule for rule in TRACE_DETERMINANT if rule.name == "log det A")
    (A,) = square.arguments(generator())
    assert float(torch.linalg.det(A)) > 0
    assert not torch.allclose(A, A.mT)  # a symmetric one would hide a forgotten transpose


def by_name(name):
    return next(rule for rule in DERIVATIVES if rule.name == name)


def test_the_squared_length_of_a_map_needs_the_map_itself():
    rule = by_name("squared length of a map")
    x, B = rule.arguments(generator())
    J = (B @ x).cos().diag() @ B
    assert (2 * J).shape != rule.automatic(x, B).shape  # 2 J without f is not even a gradient
    printed = 2 * J.mT @ torch.ones(3, dtype=torch.float64)
    assert not torch.allclose(printed, rule.automatic(x, B), rtol=0.1)


def test_the_trace_of_an_inverse_has_the_inverse_on_both_sides():
    rule = by_name("tr(S A^-1)")
    A, S = rule.arguments(generator())
    for printed in (-torch.linalg.inv(A) @ S, -torch.linalg.inv(A) @ S @ torch.linalg.inv(A)):
        assert not torch.allclose(printed, rule.automatic(A, S), rtol=0.05, atol=1e-3)


def test_the_slope_of_relu_at_0_is_torchs():
    rule = by_name("relu")
    zero = torch.zeros(1, dtype=torch.float64)
    assert rule.closed_form(zero).item() == 0 == rule.automatic(zero).item()


def test_steep_slopes_do_not_round_to_nothing():
    for name, x, expected in (("sigmoid", -40.0, 4.248354255291589e-18), ("tanh", 20.0, 1.699341702e-17)):
        found = by_name(name).closed_form(torch.tensor([x], dtype=torch.float64)).item()
        assert found == pytest.approx(expected, rel=1e-6)
