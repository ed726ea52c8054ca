"""Judges of functions that a theorem bounds or balances: of learning rules, energies, laws, certificates.

The right answers come from elsewhere than the formula that is asked for: mistakes are counted, states and
vertices enumerated, Gaussians conditioned in a table of covariances, flows of a chain balanced.
"""

import math
from collections.abc import Iterator
from itertools import product

import torch
from torch import Generator, Tensor

from margin.auditing.exercises.judging import Answer, Trial, equal, shown
from margin.core.findings import Premise

Found = Iterator[Trial | Premise]


STRICT = 1e-6
"""A number that is well above what rounding leaves of 0."""


def _seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def _vector(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=_seeded(seed), dtype=torch.float64)


# the perceptron rule


def perceptron_step(answer: Answer) -> Found:
    """Mistakes beside Novikoff's bound, and what is left: n orthonormal examples reach the bound n."""
    for n in (1, 4):
        x, y = torch.eye(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)
        yield from _mistakes(answer, f"{n} orthonormal", x, y, torch.full((n,), n**-0.5, dtype=torch.float64))
    for seed, direction in ((1, [5.0, -3.0, 2.0]), (2, [5.0, -7.0, 3.0, 2.0])):
        u = _vector(direction) / _vector(direction).norm()
        grid = torch.randint(-4, 5, (60, len(u)), generator=_seeded(seed)).double()
        x = grid[(grid @ u).abs() >= 0.6]
        yield from _mistakes(answer, f"{len(x)} on a grid", x, (x @ u).sign(), u)


def _mistakes(answer: Answer, label: str, x: Tensor, y: Tensor, u: Tensor) -> Found:
    """Passes over the examples until none of them moves the weights, or more mistakes than are allowed."""
    margin, radius = float((y * (x @ u)).min()), float(x.norm(dim=1).max())
    bound = math.floor((radius / margin) ** 2 + 1e-9)
    yield Premise(
        "a unit vector separates the examples with a margin gamma > 0",
        "proved",
        f"{label}: gamma = {margin:.4g}, R = {radius:.4g}",
    )
    w, count, moved, last = torch.zeros_like(u), 0, True, ""
    while moved and count <= bound:
        moved = False
        for point, sign in zip(x, y, strict=True):
            after = answer.one(w.shape, w, point, sign)
            if not torch.equal(after, w):
                moved, count = True, count + 1
                last = shown("w, x, y", w, point, sign)
            w = after
    least = len(x) if label.endswith("orthonormal") else 0
    over = f"after {bound} mistakes, all that Novikoff allows, the weights still move: {last}"
    yield Trial(f"{label}: mistakes", count, least, bound, over if count > bound else _at_rest(w, x, y))
    yield Trial(f"{label}: least y <w, x>", float((y * (x @ w)).min()), STRICT, math.inf, _at_rest(w, x, y))


def _at_rest(w: Tensor, x: Tensor, y: Tensor) -> str:
    worst = int((y * (x @ w)).argmin())
    value = float(y[worst] * (x[worst] @ w))
    return f"it rests though y <w, x> = {value:g} for {shown('w, x, y', w, x[worst], y[worst])}"


# Hopfield's energy


def hopfield_energy(answer: Answer) -> Found:
    """Setting a unit from -1 to 1 changes the energy by -2 h_i; along a run of the network it never rises."""
    yield Premise("the weights are symmetric, without a diagonal", "proved", "by construction")
    for n in (2, 5, 9):
        w, b = _normal(n, n, seed=n).triu(1), _normal(n, seed=n + 1)
        w = w + w.T
        x = torch.where(_normal(n, seed=n + 2) > 0, 1.0, -1.0).double()
        worst, told = 0.0, ""
        for i in range(n):
            up, down = x.clone(), x.clone()
            up[i], down[i] = 1.0, -1.0
            change = float(answer.one((), up, w, b) - answer.one((), down, w, b))
            right = -2 * float(w[i] @ x - b[i])
            if not abs(change - right) <= worst:
                worst = abs(change - right)
                told = (
                    f"setting unit {i} from -1 to 1 changes it by {change:.4g}, where -2 h_i = {right:.4g}, "
                    f"for {shown('x, W, b', down, w, b)}"
                )
        yield Trial(f"{n} units: |change + 2 h_i|", worst, told=told)
        yield _largest_rise(answer, x, w, b)


def _largest_rise(answer: Answer, x: Tensor, w: Tensor, b: Tensor) -> Trial:
    n, state, rise, told = len(x), x.clone(), -math.inf, ""
    for i in (*range(n), *range(n)):
        after = state.clone()
        after[i] = 1.0 if w[i] @ state >= b[i] else -1.0
        change = float(answer.one((), after, w, b) - answer.one((), state, w, b))
        if not change <= rise:
            rise, told = (
                change,
                f"the step from {shown('x', state)} to {shown('x', after)} raises it by {change:.4g}",
            )
        state = after
    return Trial(f"{n} units: largest rise", rise, -math.inf, 0.0, told)


# ridge regression


def ridge(answer: Answer) -> Found:
    """Beside least squares with the penalty as further examples: of sqrt(N lam) e_i the target is 0."""
    yield Premise("lam > 0, so that the minimizer is unique", "proved", "lam is .5, .1 and 2")
    for n, d, lam in ((4, 2, 0.5), (30, 3, 0.1), (3, 5, 2.0)):
        x, y = _normal(n, d, seed=n), _normal(n, seed=d)
        rows = torch.cat([x, math.sqrt(n * lam) * torch.eye(d, dtype=torch.float64)])
        right = torch.linalg.lstsq(rows, torch.cat([y, y.new_zeros(d)])[:, None]).solution[:, 0]
        given = shown("X, y, lam", x, y, lam)
        yield equal(f"{n} examples, {d} features", answer.one((d,), x, y, lam), right, given)


# the posterior of a diffusion


def diffusion_posterior(answer: Answer) -> Found:
    """Beside the joint Gaussian of x_s and x_t given x_0, from whose covariances the condition follows."""
    yield Premise("each step adds independent Gaussian noise", "proved", "0 < alpha_bar_t < alpha_bar_s <= 1")
    for label, before, after in (
        ("first step", 1.0, 0.9),
        ("middle", 0.6, 0.5),
        ("near the end", 0.02, 0.001),
    ):
        x0, xt = _normal(3, seed=1), _normal(3, seed=2)
        s, t = torch.tensor([before, after], dtype=torch.float64)
        shared = (t / s).sqrt() * (1 - s)  # the covariance of x_s and x_t
        mean = s.sqrt() * x0 + shared / (1 - t) * (xt - t.sqrt() * x0)
        variance = (1 - s) - shared**2 / (1 - t)
        got = answer.several(((3,), ()), x0, xt, s, t)
        given = shown("x_0, x_t, alpha_bar_s, alpha_bar_t", x0, xt, s, t)
        yield equal(f"{label}: mean", got[0], mean, given)
        yield equal(f"{label}: variance", got[1], variance, given)


# Metropolis and Hastings


def metropolis_hastings(answer: Answer) -> Found:
    """A chain of five states, each step proposed by Q: detailed balance, with one of two ways always open."""
    yield Premise("every proposal can be undone", "proved", "all entries of Q are positive")
    for label, shift in (("five states", 0.0), ("log p near -900", -900.0)):
        log_p = _normal(5, seed=3) + shift
        log_q = _normal(5, 5, seed=4).log_softmax(1)
        here, there = log_p[:, None].expand(5, 5), log_p[None, :].expand(5, 5)
        accepted = answer.one((5, 5), there, here, log_q, log_q.T).exp()
        flow = (log_p - shift).exp()[:, None] * log_q.exp() * accepted
        gap = (flow - flow.T).abs() / flow.max()
        i, j = divmod(int(gap.nan_to_num(nan=math.inf).argmax()), 5)
        case = (
            f"{shown('log_p_new, log_p_old, log_q_forth', log_p[j], log_p[i], log_q[i, j])}, "
            f"{shown('log_q_back', log_q[j, i])}: the probability {float(accepted[i, j]):.4g} forth and "
            f"{float(accepted[j, i]):.4g} back"
        )
        yield Trial(f"{label}: imbalance", float(gap.max()), told=f"the flows differ for {case}")
        most = float(accepted.max())
        yield Trial(f"{label}: largest probability", most, 0.0, 1.0, f"a probability is {most:.4g}")
        either = float(torch.maximum(accepted, accepted.T).min())
        told = f"some pair accepts neither way for sure, {either:.4g} at most: it balances, but moves less"
        yield Trial(f"{label}: the easier way", either, 1.0, 1.0, told)


# the inverse of the binary divergence


def kl_inverse(answer: Answer) -> Found:
    """The divergence of a known pair is inverted: its second member must come back."""
    yield Premise("q is the larger of the two that have this divergence from p", "proved", "by construction")
    pairs = ((0.0, 0.2), (0.1, 0.3), (0.5, 0.95), (0.02, 0.021), (0.9, 0.999))
    for p, q in pairs:
        c = _divergence(p, q)
        got = answer.one((), p, c)
        yield equal(f"p = {p:g}, q = {q:g}", got, torch.tensor(q, dtype=torch.float64), shown("p, c", p, c))
    yield equal(
        "p = 1", answer.one((), 1.0, 0.3), torch.ones((), dtype=torch.float64), shown("p, c", 1.0, 0.3)
    )


def _divergence(p: float, q: float) -> float:
    terms = ((p, q), (1 - p, 1 - q))
    return sum(a * math.log(a / b) for a, b in terms if a > 0)


# the radius of a linear classifier


def certified_radius(answer: Answer) -> Found:
    """Beside the vertices of the ball, by enumeration: a linear score is largest on one of them."""
    yield Premise("the scores are affine in the input", "proved", "W x + b")
    for norm in (1.0, 2.0, math.inf):
        for classes, d in ((2, 2), (4, 5)):
            w, b = _normal(classes, d, seed=classes), _normal(classes, seed=d)
            x = _normal(d, seed=classes + d)
            scores = w @ x + b
            y = int(scores.argmax())
            rivals = [j for j in range(classes) if j != y]
            right = torch.stack([(scores[y] - scores[j]) / _reach(w[j] - w[y], norm) for j in rivals]).min()
            got = answer.one((), w, b, x, norm)
            yield equal(f"l{norm:g}, {classes} classes", got, right, shown("W, b, x, norm", w, b, x, norm))


def _reach(direction: Tensor, norm: float) -> Tensor:
    """The largest inner product of a direction with a point of the unit ball."""
    d = len(direction)
    if norm == 2:
        return direction @ (direction / direction.norm())
    signs = torch.tensor([*product((-1.0, 1.0), repeat=d)], dtype=torch.float64)
    eye = torch.eye(d, dtype=torch.float64)
    return ((signs if norm == math.inf else torch.cat([eye, -eye])) @ direction).max()


# the calibration error


def calibration_error(answer: Answer) -> Found:
    """Beside sums bin by bin; the first case has an error of 0 with signs, the last an empty bin."""
    yield Premise("each confidence lies in (0, 1]", "proved", "by construction")
    cases = {
        "errors that cancel": ([0.6, 0.6, 0.9, 0.9], [1.0, 1.0, 1.0, 0.0]),
        "bins of unequal size": ([0.15, 0.95, 0.95, 0.85, 0.92], [1.0, 1.0, 0.0, 1.0, 1.0]),
        "an empty bin": ([0.05, 0.07, 0.99], [0.0, 1.0, 1.0]),
    }
    for label, (confidence, correct) in cases.items():
        for bins in (4, 10):
            sums: dict[int, float] = {}
            for p, hit in zip(confidence, correct, strict=True):
                place = math.ceil(p * bins)
                sums[place] = sums.get(place, 0.0) + hit - p
            right = torch.tensor(sum(map(abs, sums.values())) / len(confidence), dtype=torch.float64)
            given = _vector(confidence), _vector(correct), bins
            inputs = shown("confidence, correct, bins", given[0], given[1], bins)
            yield equal(f"{label}, {bins} bins", answer.one((), *given), right, inputs)
