"""The bounds of first-order methods: they hold on random cases, are tight on chosen ones, refuse the rest."""

import math

import pytest
import torch
from torch import Generator

from margin.math.convexity.landscapes import landscape, valley
from margin.optim.momentum import HeavyBall, Nesterov, gain
from margin.theory.dynamics import rates
from margin.theory.dynamics.rates import fitted_rate, follow


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def descend(f, start, lr, steps):
    return follow(f, start, lambda ps: torch.optim.SGD(ps, lr=lr), steps)


def logistic(seed, ridge=0.0):
    """A logistic loss of 40 random examples, its L, and its minimizer by Newton's method."""
    g = Generator().manual_seed(seed)
    X = torch.randn(40, 3, generator=g, dtype=torch.float64)
    y = (X @ f64(1.0, -2.0, 0.5) + 2 * torch.randn(40, generator=g, dtype=torch.float64) > 0).double()
    h = lambda w: (
        torch.nn.functional.binary_cross_entropy_with_logits(X @ w, y) + ridge / 2 * w.square().sum()
    )
    w = torch.zeros(3, dtype=torch.float64)
    for _ in range(30):
        p = torch.sigmoid(X @ w)
        H = X.T @ (X * (p * (1 - p))[:, None]) / 40 + ridge * torch.eye(3)
        w = w - torch.linalg.solve(H, X.T @ (p - y) / 40 + ridge * w)
    return h, torch.linalg.eigvalsh(X.T @ X)[-1].item() / 160 + ridge, w


# gradient descent and the flow


@pytest.mark.parametrize("lr", [0.02, 0.4, 1.0, 1.9, 2.1])
def test_descent_on_a_parabola_is_a_power(lr):
    lam, x0 = 1.0, 3.0
    x = descend(lambda x: lam / 2 * x.square().sum(), f64(x0), lr, 60).points[:, 0]
    t = torch.arange(61, dtype=torch.float64)
    assert torch.allclose(x, (1 - lr * lam) ** t * x0, rtol=1e-9, atol=1e-12)
    assert bool(x[-1].abs() < abs(x0)) is not rates.diverges(lr, lam)


def test_the_deviation_from_the_flow_is_of_the_order_of_the_step():
    def deviation(lr):
        steps = round(3 / lr)
        x = descend(lambda x: x.square().sum() / 2, f64(1.0), lr, steps).points[:, 0]
        flow = (-lr * torch.arange(steps + 1, dtype=torch.float64)).exp()  # of d x / dt = -x
        return (x - flow).abs().max().item()

    d = [deviation(lr) for lr in (0.1, 0.05, 0.025)]
    assert [d[0] / d[1], d[1] / d[2]] == pytest.approx([2, 2], rel=0.05)
    assert d[2] == pytest.approx(0.025 / (2 * math.e), rel=0.05)  # t e^-t / 2 is largest at t = 1


@pytest.mark.parametrize(("factor", "grows"), [(1.999, False), (2.001, True)])
def test_divergence_begins_exactly_at_two_over_L(factor, grows):
    L = 7.0
    path = descend(valley(f64(1.0, 3.0, L)), f64(1.0, 1.0, 1.0), factor / L, 1200)
    assert (path.values[-1] > path.values[0]).item() is grows is rates.diverges(factor / L, L)


def test_at_two_over_L_it_oscillates_for_ever():
    path = descend(lambda x: 4 / 2 * x.square().sum(), f64(1.5), 2 / 4, 500)
    assert path.points.abs().flatten().tolist() == pytest.approx([1.5] * 501)


# the descent lemma


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0, 1.5, 1.99])
def test_the_descent_lemma_holds_along_a_run(seed, share):
    h, L, _ = logistic(seed)
    path = descend(h, 3 * torch.randn(3, generator=Generator().manual_seed(seed)).double(), share / L, 50)
    for fell, norm in zip((-path.values.diff()).tolist(), path.gradient_norms.tolist(), strict=False):
        assert fell >= rates.sufficient_decrease(norm, share / L, L) - 1e-15


def test_the_descent_lemma_is_tight_on_the_parabola_and_broken_with_too_small_an_L():
    path = descend(lambda x: 5 / 2 * x.square().sum(), f64(2.0), 0.3, 1)
    fell, norm = (path.values[0] - path.values[1]).item(), path.gradient_norms[0].item()
    assert fell == pytest.approx(rates.sufficient_decrease(norm, 0.3, 5.0), rel=1e-12)
    assert fell < rates.sufficient_decrease(norm, 0.3, 2.5)
    assert rates.sufficient_decrease(1.0, 1 / 5, 5.0) == pytest.approx(1 / 10)
    # 004 ends with "=": of a smaller curvature the step gains more
    gentle = descend(lambda x: 1 / 2 * x.square().sum(), f64(2.0), 0.3, 1)
    assert (gentle.values[0] - gentle.values[1]).item() > rates.sufficient_decrease(2.0, 0.3, 5.0) + 0.1


def test_the_loss_rises_at_a_step_above_two_over_L():
    path = descend(lambda x: 5 / 2 * x.square().sum(), f64(2.0), 2.1 / 5, 5)
    assert bool((path.values.diff() > 0).all()) and rates.sufficient_decrease(1.0, 2.1 / 5, 5.0) < 0


# smooth functions


@pytest.mark.parametrize("dim", [1, 5])
@pytest.mark.parametrize("name", ["quotient", "wavy"])
def test_the_best_iterate_of_a_smooth_function_is_soon_nearly_critical(name, dim):
    found = landscape(name)
    start = 4 * torch.randn(dim, generator=Generator().manual_seed(dim), dtype=torch.float64)
    path = descend(found.value, start, 1 / found.smoothness, 300)
    gap = float(path.values[0]) - found.least
    squares = path.gradient_norms.square().cummin(0).values
    for T in (1, 2, 10, 100, 300):
        assert squares[T - 1] <= rates.stationary_bound(gap, found.smoothness, T)
    for epsilon in (1.0, 0.3, 0.1):
        T = rates.stationary_steps(gap, found.smoothness, epsilon)
        assert path.gradient_norms[: min(T, 301)].min() <= epsilon


def test_the_bound_for_smooth_functions_is_tight_on_the_parabola_and_counts_whole_steps():
    # from x_0 the first iterate has |grad|^2 = L^2 x_0^2 = 2 L h_0: equality at T = 1
    assert rates.stationary_bound(3 / 2 * 4, 3.0, 1) == pytest.approx((3 * 2) ** 2)
    assert rates.stationary_steps(1.0, 1.0, 1.5) == 1  # 2 / 2.25, rounded up
    assert rates.stationary_steps(1.0, 1.0, 1.0) == 2
    assert rates.stationary_steps(0.0, 1.0, 1.0) == 0


# convex functions


@pytest.mark.parametrize("seed", range(3))
def test_the_convex_bounds_hold_at_every_step_on_logistic_regression(seed):
    h, L, best = logistic(seed)
    start = 3 * torch.randn(3, generator=Generator().manual_seed(seed), dtype=torch.float64)
    distance, least = (start - best).norm().item(), h(best).item()
    plain = descend(h, start, 1 / L, 300).values
    fast = follow(h, start, lambda ps: Nesterov(ps, lr=1 / L, momentum="convex"), 300).values
    for t in range(1, 301):
        assert plain[t] - least <= rates.convex_bound(distance, 1 / L, t) + 1e-15
        assert fast[t] - least <= rates.nesterov_bound(distance, L, t) + 1e-15
        assert rates.convex_bound(distance, 1 / L, t) <= 2 * L * distance**2 / (t + 1)  # 003's, loose
    z = start / 2  # any z will do
    assert plain[50] - h(z) <= rates.convex_bound((start - z).norm().item(), 1 / L, 50)


def test_the_convex_bounds_hold_where_no_curvature_is_left():
    # x^4 on [-1, 1], |x| clipped linear outside: 12-smooth and convex everywhere
    h = lambda x: torch.where(x.abs() <= 1, x.pow(4), 4 * x.abs() - 3).sum()
    start, L = f64(1.0), 12.0
    plain = descend(h, start, 1 / L, 500).values
    fast = follow(h, start, lambda ps: Nesterov(ps, lr=1 / L, momentum="convex"), 500).values
    for t in range(1, 501):
        assert plain[t] <= rates.convex_bound(1.0, 1 / L, t)
        assert fast[t] <= rates.nesterov_bound(1.0, L, t)
    # and it is sublinear, not linear as 003 says: the factor a step tends to 1
    assert plain[500] / plain[499] > 0.995


def test_the_convex_bound_is_tight_to_a_constant_on_the_worst_huber_function():
    # |x| rounded off below |x| < d: gradient descent moves by d a step; at d = x_0 / (2 t + 1) it attains
    # L x_0^2 / (4 t + 2) (Drori and Teboulle 2014, Theorem 3), half of the bound as t grows
    for t in (1, 5, 50):
        d = 1 / (2 * t + 1)
        h = lambda x, d=d: torch.where(x.abs() < d, x.square() / (2 * d), x.abs() - d / 2).sum()
        value = descend(h, f64(1.0), d, t).values[-1].item()
        assert value == pytest.approx(1 / d / (4 * t + 2), rel=1e-9)
        assert value <= rates.convex_bound(1.0, d, t)
        assert value > 0.3 * rates.convex_bound(1.0, d, t)


def test_the_nesterov_bound_is_needed_at_its_first_step():
    # one step of descent on the worst Huber function: L x_0^2 / 6 of the bound L x_0^2 / 2
    assert rates.nesterov_bound(1.0, 3.0, 1) == rates.convex_bound(1.0, 1 / 3, 1) == pytest.approx(1.5)


# the Polyak-Lojasiewicz condition and strong convexity


def test_the_linear_rate_without_convexity():
    found = landscape("wavy")
    assert float(torch.func.jacrev(torch.func.jacrev(found.value))(f64(1.57)).min()) < 0
    for x0 in (-9.3, 2.9, 7.7):
        path = descend(found.value, f64(x0), 1 / found.smoothness, 400)
        factor = rates.linear_factor(found.pl, found.smoothness)
        for t in range(401):
            assert path.values[t] <= factor**t * path.values[0] + 1e-15


@pytest.mark.parametrize("seed", range(3))
def test_the_linear_rate_of_underdetermined_least_squares(seed):
    g = Generator().manual_seed(seed)
    X = torch.randn(4, 9, generator=g, dtype=torch.float64)
    y = torch.randn(4, generator=g, dtype=torch.float64)
    h = lambda w: (X @ w - y).square().mean() / 2
    spectrum = torch.linalg.eigvalsh(X.T @ X / 4)
    assert float(spectrum[:5].abs().max()) < 1e-12  # not strongly convex
    mu, L = spectrum[5].item(), spectrum[-1].item()
    start = torch.randn(9, generator=g, dtype=torch.float64)
    path = descend(h, start, 1 / L, 300)
    ratios = path.gradient_norms.square() / 2 / path.values
    assert float(ratios[path.values > 1e-20].min()) >= mu * (1 - 1e-6)
    for t in range(301):
        assert path.values[t] <= rates.linear_factor(mu, L) ** t * path.values[0] + 1e-25
    # with the smallest eigenvalue, 0, nothing would be promised; with a larger mu the promise breaks
    assert any(path.values[t] > (1 - 1.5 * mu / L) ** (2 * t) * path.values[0] for t in range(301))


def test_the_linear_rate_is_tight_where_mu_is_L():
    path = descend(lambda x: 3 / 2 * x.square().sum(), f64(1.0, -2.0), 1 / 3, 1)
    assert path.values[1] == pytest.approx(0, abs=1e-30) and rates.linear_factor(3.0, 3.0) == 0


@pytest.mark.parametrize("seed", range(2))
def test_strongly_convex_rates_on_a_ridge_logistic_loss(seed):
    h, L, best = logistic(seed, ridge=0.05)
    mu, start = 0.05, 3 * torch.randn(3, generator=Generator().manual_seed(seed), dtype=torch.float64)
    least, distance = h(best).item(), (start - best).norm().item()
    gap = h(start).item() - least
    path = descend(h, start, 1 / L, 200)
    far = (path.points - best).norm(dim=1)
    best_step = descend(h, start, rates.best_step(mu, L), 200)
    fast = follow(h, start, lambda ps: Nesterov(ps, *rates.nesterov_options(mu, L)), 200)
    for t in range(201):
        assert path.values[t] - least <= rates.linear_factor(mu, L) ** t * gap + 1e-14
        assert far[t] ** 2 <= rates.linear_factor(mu, L) ** t * distance**2 + 1e-14
        bound = rates.best_step_factor(mu, L) ** t * distance
        assert (best_step.points[t] - best).norm() <= bound + 1e-8
        assert fast.values[t] - least <= rates.nesterov_linear_bound(gap, distance, mu, L, t) + 1e-14


@pytest.mark.parametrize("kappa", [10.0, 100.0, 1000.0])
def test_measured_rates_on_quadratics_are_the_theorems(kappa):
    f, start = valley(f64(1.0, math.sqrt(kappa), kappa)), f64(1.0, 1.0, 1.0)
    root = math.sqrt(kappa)
    made = {
        "best step": (
            lambda ps: torch.optim.SGD(ps, lr=rates.best_step(1, kappa)),
            (kappa - 1) / (kappa + 1),
        ),
        "heavy ball": (
            lambda ps: HeavyBall(ps, *rates.heavy_ball_options(1, kappa)),
            (root - 1) / (root + 1),
        ),
        "Nesterov": (lambda ps: Nesterov(ps, *rates.nesterov_options(1, kappa)), 1 - 1 / root),
    }
    for name, (make, expected) in made.items():
        steps = round(min(max(300, 30 * (kappa if name == "best step" else root)), 2000))
        far = follow(f, start, make, steps).points.norm(dim=1)[steps // 2 :]
        assert fitted_rate(far).value == pytest.approx(expected, rel=0.01), name
    assert rates.best_step_factor(1, kappa) == pytest.approx((kappa - 1) / (kappa + 1))
    assert rates.heavy_ball_factor(1, kappa) == pytest.approx((root - 1) / (root + 1))
    assert rates.nesterov_factor(1, kappa) == pytest.approx(1 - 1 / root)


@pytest.mark.parametrize("seed", range(3))
def test_the_heavy_ball_bound_holds_at_every_step_and_is_attained_by_the_steepest_direction(seed):
    g = Generator().manual_seed(seed)
    spectrum = torch.cat((f64(1.0, 50.0), 1 + 49 * torch.rand(4, generator=g, dtype=torch.float64)))
    start = torch.randn(6, generator=g, dtype=torch.float64)
    make = lambda ps: HeavyBall(ps, *rates.heavy_ball_options(1, 50))
    far = follow(valley(spectrum), start, make, 200).points.norm(dim=1)
    for t in range(201):
        assert far[t] <= rates.heavy_ball_bound(start.norm().item(), 1, 50, t) * (1 + 1e-9)
    steep = follow(valley(f64(50.0)), f64(1.0), make, 60).points.abs().flatten()
    assert steep.tolist() == pytest.approx([rates.heavy_ball_bound(1, 1, 50, t) for t in range(61)], rel=1e-6)
    # the bare power, without the factor t, is no bound
    assert steep[10] > 5 * rates.heavy_ball_factor(1, 50) ** 10


def test_the_linear_nesterov_bound_begins_with_the_gap_and_the_distance():
    assert rates.nesterov_linear_bound(1.0, 2.0, 1.0, 4.0, 0) == 3  # 1 + 2^2 / 2
    assert rates.nesterov_linear_bound(1.0, 2.0, 1.0, 4.0, 3) == pytest.approx(3 / 8)


def test_nesterov_beats_descent_on_an_ill_conditioned_valley():
    f, start = valley(f64(1.0, 1e4)), f64(1.0, 1.0)
    fast = follow(f, start, lambda ps: Nesterov(ps, *rates.nesterov_options(1, 1e4)), 1000).values[-1]
    assert fast < 1e-6 * descend(f, start, rates.best_step(1, 1e4), 1000).values[-1]


def test_a_heavy_ball_that_forgets_nothing_does_not_converge():
    far = follow(
        valley(f64(1.0)), f64(1.0), lambda ps: torch.optim.SGD(ps, lr=0.5, momentum=1.0), 400
    ).points.abs()
    assert float(far[200:].max()) > 0.9


def test_momentum_multiplies_a_constant_gradient_by_its_sum():
    path = follow(lambda x: x.sum(), f64(0.0), lambda ps: HeavyBall(ps, lr=1.0, momentum=0.9), 400)
    moves = -path.points.diff(dim=0).flatten()
    for t in range(21):
        assert moves[t] == pytest.approx(sum(0.9**tau for tau in range(t + 1)), rel=1e-12)
        assert moves[t] == pytest.approx(gain(0.9, t + 1), rel=1e-12)
        assert moves[t] - sum(0.9**tau for tau in range(1, t)) >= 1 - 1e-9  # the printed sum loses tau = 0
    assert moves[-1] == pytest.approx(10)


BAD = [
    (lambda: rates.linear_factor(2.0, 1.0), r"mu must lie in \(0, L\]: got mu=2, L=1"),
    (lambda: rates.linear_factor(0.0, 1.0), r"mu must lie in \(0, L\]: got mu=0"),
    (lambda: rates.heavy_ball_options(0.0, 1.0), "mu must lie"),
    (lambda: rates.nesterov_factor(math.nan, 1.0), "mu must lie"),
    (lambda: rates.sufficient_decrease(1.0, -0.1, 1.0), "eta must be positive and finite: got -0.1"),
    (lambda: rates.convex_bound(1.0, 0.1, 0), "steps must be positive and finite: got 0"),
    (lambda: rates.nesterov_bound(1.0, math.inf, 1), "L must be positive and finite: got inf"),
    (lambda: rates.stationary_bound(-1.0, 1.0, 1), r"the gap h_0 - h\* must be >= 0: got -1"),
    (lambda: rates.stationary_steps(1.0, 1.0, 0.0), "epsilon must be positive"),
    (lambda: rates.diverges(0.0, 1.0), "eta must be positive"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_what_is_out_of_range_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
