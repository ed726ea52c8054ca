"""Judges of functions that a network computes: its layers, their gradients, their first weights, their steps.

What is right is what PyTorch computes another way, by autograd, its own cell or its own optimizer, or a loop
over entries that is as slow as it is plain.
"""

import math
from collections.abc import Iterator

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from margin.auditing.exercises.judging import Answer, Trial, equal, shown
from margin.core.findings import Premise

Found = Iterator[Trial | Premise]


def _normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def backward(answer: Answer) -> Found:
    """Beside autograd, on a square layer first, where a transposed matrix has the right shape."""
    yield Premise("the activation is differentiable", "proved", "tanh")
    for n, d, m in ((1, 2, 2), (5, 3, 4)):
        x, w, b, delta = (
            _normal(*shape, seed=i).requires_grad_() for i, shape in enumerate(((n, d), (m, d), (m,), (n, m)))
        )
        right = torch.autograd.grad((delta.detach() * torch.tanh(x @ w.T + b)).sum(), (x, w, b))
        given = [part.detach() for part in (x, w, b, delta)]
        got = answer.several(((n, d), (m, d), (m,)), *given)
        inputs = shown("x, W, b, delta", given[0], given[1], given[2], given[3])
        for name, one, other in zip(("x", "W", "b"), got, right, strict=True):
            yield equal(f"{n} x {d} to {m}: gradient of {name}", one, other, inputs)


def he_uniform(answer: Answer) -> Found:
    """On evenly spread numbers in place of random ones, whose moments are known exactly."""
    yield Premise("u is uniform on [0, 1]", "proved", "its numbers are the midpoints of equal intervals")
    for fan_out, fan_in in ((8, 50), (50, 8), (1, 3)):
        count = fan_out * fan_in
        order = torch.randperm(count, generator=Generator().manual_seed(count))
        u = ((order.double() + 0.5) / count).reshape(fan_out, fan_in)
        w = answer.one((fan_out, fan_in), u)
        square = float(w.square().mean() * fan_in / 2)
        right = 1 - 1 / count**2
        told = (
            f"the variance is {2 * square / fan_in:.4g} with {fan_in} inputs and {fan_out} outputs: "
            f"a layer multiplies the mean square by {square:.4g}, ten layers by {square**10:.2g}"
        )
        yield Trial(f"{fan_in} to {fan_out}: fan_in Var W / 2", square, right, right, told)
        spread = float(w.abs().max() / w.square().mean().sqrt())
        edge = math.sqrt(3) * (1 - 1 / count) / math.sqrt(right)
        told = f"of a uniform law the largest is {edge:.4g} deviations: got {spread:.4g}"
        yield Trial(f"{fan_in} to {fan_out}: largest, in deviations", spread, edge, edge, told)
        mean = float(w.mean().abs())
        yield Trial(f"{fan_in} to {fan_out}: |mean|", mean, told=f"the mean is {mean:.4g}, not 0")


def adamw(answer: Answer) -> Found:
    """Beside PyTorch's own optimizer, over three steps of small gradients, where eps matters."""
    rate, betas, eps, decay = 0.1, (0.9, 0.99), 1e-2, 0.5
    yield Premise("t counts from 1, and both means begin at 0", "proved", "by construction")
    theta = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    twin = theta.clone().requires_grad_()
    optimizer = torch.optim.AdamW([twin], lr=rate, betas=betas, eps=eps, weight_decay=decay)
    m, v = torch.zeros_like(theta), torch.zeros_like(theta)
    for t in (1, 2, 3):
        gradient = _normal(3, seed=t) * torch.tensor([1.0, 0.01, 0.0])
        twin.grad = gradient.clone()
        given = shown("theta, grad, m, v, t, eps, decay", theta, gradient, m, v, t, eps, decay)
        optimizer.step()
        theta, m, v = answer.several(((3,),) * 3, theta, gradient, m, v, t, rate, betas, eps, decay)
        yield equal(f"step {t}: theta", theta, twin.detach(), given)


def toeplitz(answer: Answer) -> Found:
    """Beside PyTorch's cross-correlation, zeros beyond the ends, of each unit vector: the columns."""
    yield Premise("the kernel's length is odd", "proved", "1, 3 and 5")
    for k, n in ((1, 3), (3, 4), (5, 7)):
        kernel = _normal(k, seed=k)
        units = torch.eye(n, dtype=torch.float64)[:, None]
        right = F.conv1d(units, kernel[None, None], padding=k // 2)[:, 0].T
        yield equal(f"kernel {k}, signal {n}", answer.one((n, n), kernel, n), right, shown("w, n", kernel, n))


def lstm_cell(answer: Answer) -> Found:
    """Beside PyTorch's cell, over three steps that feed back what was returned."""
    yield Premise(
        "gates stand in the order input, forget, candidate, output", "proved", "as in torch.nn.LSTM"
    )
    n, d, m = 2, 3, 4
    w, u, b = _normal(4 * m, d, seed=1), _normal(4 * m, m, seed=2), _normal(4 * m, seed=3)
    h, c = _normal(n, m, seed=4), _normal(n, m, seed=5)
    for t in range(3):
        x = _normal(n, d, seed=6 + t)
        right = torch.lstm_cell(x, (h, c), w, u, b, torch.zeros_like(b))
        h, c = answer.several(((n, m), (n, m)), x, h, c, w, u, b)
        yield equal(f"step {t + 1}: h", h, right[0])
        yield equal(f"step {t + 1}: c", c, right[1])


def attention(answer: Answer) -> Found:
    """Beside a loop over queries and keys; the last case has a query that may read nothing."""
    yield Premise(
        "a query that may read nothing gets zeros", "assumed", "softmax of no number is a convention"
    )
    masks = {
        "all may be read": torch.ones(3, 4, dtype=torch.bool),
        "causal": torch.ones(4, 4, dtype=torch.bool).tril(),
        "a row of nothing": torch.tensor([[True, False, True], [False, False, False]]),
    }
    for label, mask in masks.items():
        n, m = mask.shape
        q, k, v = 2 * _normal(n, 2, seed=n), _normal(m, 2, seed=m + 1), _normal(m, 3, seed=m + 2)
        right = torch.zeros(n, 3, dtype=torch.float64)
        for i in range(n):
            read = [j for j in range(m) if mask[i, j]]
            weights = [math.exp(float(q[i] @ k[j]) / math.sqrt(2)) for j in read]
            for j, weight in zip(read, weights, strict=True):
                right[i] += weight / sum(weights) * v[j]
        got = answer.one((n, 3), q, k, v, mask)
        yield equal(label, got, right, shown("q, k, v, mask", q, k, v, mask))


def gcn_norm(answer: Answer) -> Found:
    """Beside a loop over pairs of nodes, and the eigenvalue that is exactly 1."""
    yield Premise("the graph is undirected, without loops", "proved", "by construction")
    star = torch.zeros(4, 4, dtype=torch.float64)
    star[0, 1:] = star[1:, 0] = 1.0
    path = torch.diag(torch.ones(3, dtype=torch.float64), 1)
    alone = torch.zeros(3, 3, dtype=torch.float64)
    alone[0, 1] = alone[1, 0] = 1.0
    graphs = {"star of 4": star, "path of 4": path + path.T, "a node alone": alone}
    for label, a in graphs.items():
        n = len(a)
        degree = [1 + float(sum(row)) for row in a]
        right = [
            [(float(a[i, j]) + (i == j)) / math.sqrt(degree[i] * degree[j]) for j in range(n)]
            for i in range(n)
        ]
        got = answer.one((n, n), a)
        yield equal(label, got, torch.tensor(right, dtype=torch.float64), shown("A", a))
        top = float(torch.linalg.matrix_norm(got, 2)) if bool(got.isfinite().all()) else math.nan
        told = f"the largest singular value is {top:.4g}, not 1"
        yield Trial(f"{label}: spectral norm", top, 1.0, 1.0, told)
