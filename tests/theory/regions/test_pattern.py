"""The cells of a layer: convex, and the network affine on them with Jacobian W_2 diag(kappa) W_1."""

import torch

from margin.theory.regions.arrangements import activation_pattern, affine_on_cell, cell_of


def layer(width=6, dim=3, out=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((width, dim), (width,), (out, width), (out,))
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]


def points(count=500, dim=3, seed=1):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_pattern_says_which_units_are_on_and_0_is_off():
    W = torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
    pattern = activation_pattern(torch.tensor([[2.0, 3.0], [0.0, -1.0]]), W, torch.zeros(3))
    assert pattern.tolist() == [[True, False, False], [False, True, False]]


def test_the_jacobian_is_constant_in_a_cell_and_the_product_of_the_active_weights():
    W_1, b_1, W_2, b_2 = layer()
    x = points()
    at = x.clone().requires_grad_()
    outputs = (at @ W_1.T + b_1).relu() @ W_2.T + b_2
    jacobians = torch.stack([torch.autograd.grad(y.sum(), at, retain_graph=True)[0] for y in outputs.T], 1)
    patterns = activation_pattern(x, W_1, b_1)
    kinds, which = patterns.unique(dim=0, return_inverse=True)
    assert 10 < len(kinds) <= 2**6
    for number, kappa in enumerate(kinds):
        J, c = affine_on_cell(kappa, W_1, b_1, W_2, b_2)
        torch.testing.assert_close(J, W_2 @ torch.diag(kappa.double()) @ W_1, rtol=0, atol=1e-12)
        own = x[which == number]
        torch.testing.assert_close(jacobians[which == number], J.expand(len(own), -1, -1), rtol=0, atol=1e-12)
        torch.testing.assert_close(own @ J.T + c, (own @ W_1.T + b_1).relu() @ W_2.T + b_2)


def test_cells_are_convex_and_their_half_spaces_hold_exactly_their_points():
    W, b, _, _ = layer()
    x = points()
    patterns = activation_pattern(x, W, b)
    for kappa in patterns[:20]:
        A, c = cell_of(kappa, W, b)
        own = (patterns == kappa).all(1)
        assert torch.equal((x @ A.T <= c).all(1), own)
        between = (x[own][:1] + x[own]) / 2
        assert bool((activation_pattern(between, W, b) == kappa).all())
