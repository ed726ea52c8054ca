"""What linear networks promise: one matrix of bounded rank, conserved balance, exact learning curves."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from margin.classic.linear.least_squares_claims import solved
from margin.classic.linear.networks import (
    LinearNetwork,
    Weights,
    aligned,
    balance,
    flow,
    half_time,
    mode_strength,
    one_layer_flow,
    product,
    two_layer_gradients,
)
from margin.classic.linear.rows import Rows, scaled, training_rows
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES, class_loss
from margin.core.types import Batch
from margin.data.sets.tiny.tables import classes
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of, dtype_of

START = 0.01
"""Strength at time 0 of the modes whose learning is followed, as a share of the largest singular value."""

WEAKEST = 0.1
"""Modes weaker than this share of the largest are left out: they take longer than the rest together."""

MOST_ROWS = 2000
"""Examples whose loss drives the flow of which the balance is watched: it is kept under any loss."""

STEPS = 800
"""Runge-Kutta steps of a flow: its error, of order 4, is below 1e-6."""

SAXE = "Saxe, McClelland and Ganguli 2013"


def is_linear_network(subject: Subject) -> bool:
    """Whether the model is the catalog's linear network."""
    return isinstance(core_of(subject.model), LinearNetwork)


def is_deep_linear_network(subject: Subject) -> bool:
    """Whether the model is the catalog's linear network, of two layers or more."""
    return is_linear_network(subject) and len(core_of(subject.model).weights) > 1


def is_two_layer_network(subject: Subject) -> bool:
    """Whether the model is the catalog's linear network, of two layers."""
    return is_linear_network(subject) and len(core_of(subject.model).weights) == 2


def weights_of(subject: Subject) -> Weights:
    """The layers' matrices in float64, the first layer's first."""
    return tuple(weight.detach().double().cpu() for weight in core_of(subject.model).weights)


def closure(subject: Subject) -> Finding:
    """Whether the network computes what the product of its matrices does.

    Args:
        subject: A linear network with its training examples.
    """
    rows, core = training_rows(subject), core_of(subject.model)
    weights, dtype = weights_of(subject), dtype_of(subject.model)
    with torch.no_grad():
        outputs = core(rows.x.to(next(core.parameters()))).double().cpu()
    gap = (outputs - rows.x @ product(weights).T).norm(dim=1)
    size = math.prod(float(torch.linalg.matrix_norm(weight)) for weight in weights)
    terms = sum(weight.shape[1] + 1 for weight in weights)
    return Finding(
        statement=f"The {len(weights)} layers compute one matrix: the largest difference of their outputs, "
        "relative to the product of the matrices' norms and the input's.",
        value=(gap / (size * rows.x.norm(dim=1)).clamp(min=1e-300)).max(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=2 * terms * torch.finfo(dtype).eps,
        reference=f"{SAXE}, Section 1; Higham 2002, Equation 3.13 (its rounding)",
    )


def rank(subject: Subject) -> Finding:
    """Whether the rank of the network's matrix is at most its least width.

    Args:
        subject: A linear network.
    """
    weights = weights_of(subject)
    widths = [weights[0].shape[1], *(weight.shape[0] for weight in weights)]
    S = torch.linalg.svdvals(product(weights))
    size = math.prod(float(torch.linalg.matrix_norm(weight, 2)) for weight in weights)
    cut = 4 * sum(widths) * torch.finfo(torch.float64).eps * size
    return Finding(
        statement=f"The rank of the product of layers of widths {widths} is at most the least of them.",
        value=(cut < S).sum(),
        range=(0.0, float(min(widths[0], widths[-1]) + 1)),
        low=torch.tensor(0),
        high=torch.tensor(min(widths)),
        reference="Baldi and Hornik 1989, Section 2; Horn and Johnson 2013, Section 0.4.5",
        curves={"singular values": S},
    )


def conservation(subject: Subject) -> Finding:
    """Whether gradient flow on the training loss keeps W_{l+1}^T W_{l+1} - W_l W_l^T, whatever the loss.

    The flow starts at the model's weights, on at most MOST_ROWS examples, and runs for a few times the
    reciprocal of the loss's largest curvature.

    Args:
        subject: A linear network of two layers or more, with its training examples.
    """
    rows, start = training_rows(subject), weights_of(subject)
    rows = Rows(*(part[:MOST_ROWS] for part in rows))

    def gradient(weights: Weights) -> tuple[Tensor, ...]:
        free = [weight.detach().requires_grad_() for weight in weights]
        losses = class_loss(rows.x @ product(free).T, rows.y.long())
        return torch.autograd.grad(rows.weight @ losses / rows.weight.sum(), free)

    time = 4 / curvature(rows, start)
    path = flow(gradient, start, time, 40)
    before = balance(start)
    size = max(float(weight.square().sum()) for weight in start)
    drift = torch.stack([_largest(balance(weights), before) for weights in path]) / size
    moved = torch.stack([_largest(weights, start) for weights in path])
    return Finding(
        statement="Gradient flow keeps W_{l+1}^T W_{l+1} - W_l W_l^T of adjacent layers: the largest change "
        f"over a time of {time:.2g}, relative to the squared norms (weights moved {float(moved[-1]):.2g}).",
        value=drift.max(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-6,
        curves={"time": torch.linspace(0, time, len(path)), "drift": drift},
    )


def curvature(rows: Rows, weights: Weights) -> float:
    """The size of the cross-entropy's second derivative in a layer: |x|^2 times the others' squared norms."""
    norms = [float(torch.linalg.matrix_norm(weight, 2)) ** 2 for weight in weights]
    others = [math.prod(norms[:i] + norms[i + 1 :]) for i in range(len(norms))]
    return max(float(rows.x.square().sum(1).mean()) * max(others), 1e-12)


def _largest(one: Weights, other: Weights) -> Tensor:
    return torch.stack([(a - b).abs().max() for a, b in zip(one, other, strict=True)]).max()


def correlation(rows: Rows, classes: int) -> Float[Tensor, "classes directions"]:
    """G = E[y x^T] of one-hot targets and whitened inputs: their coordinates have E[x x^T] = I."""
    share = rows.weight / rows.weight.sum()
    U, S, _ = torch.linalg.svd(scaled(rows.x, share), full_matrices=False)
    kept = max(rows.x.shape) * torch.finfo(S.dtype).eps * S.max() < S
    onehot = torch.nn.functional.one_hot(rows.y.long(), classes).double()
    return scaled(onehot, share).T @ U[:, kept]


def shallow_flow(subject: Subject) -> Finding:
    """Whether gradient flow of one matrix on the whitened training examples is the exponential of theory.

    The squared error of one-hot targets is followed from the network's own matrix, mapped to the whitened
    coordinates' number of columns by cutting; any start serves.

    Args:
        subject: A linear network with its training examples.
    """
    G = correlation(training_rows(subject), core_of(subject.model).layers[-1].out_features)
    start = torch.zeros_like(G)
    own = product(weights_of(subject))[:, : G.shape[1]]
    start[:, : own.shape[1]] = own
    path = torch.stack([A for (A,) in flow(lambda w: (2 * (w[0] - G),), (start,), 2.0, STEPS)])
    time = torch.linspace(0, 2, STEPS + 1, dtype=torch.float64)
    error = (path - one_layer_flow(start, G, time)).flatten(1).norm(dim=1)
    distance = (path - G).flatten(1).norm(dim=1)
    return Finding(
        statement="Gradient flow of one matrix on the whitened training examples is exponential, at rate 2 "
        "in every mode: the largest difference from theory, relative to the distance at the start.",
        value=error.max() / distance[0].clamp(min=1e-300),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-8,
        premises=(Premise("the inputs are white", "proved", "they were whitened for this question"),),
        reference=f"{SAXE}, Section 1",
        curves={"time": time, "distance": distance, "theory": distance[0] * (-2 * time).exp()},
    )


def modes(subject: Subject) -> Finding:
    """Whether two layers learn the modes of the whitened training examples along the sigmoids of theory.

    The squared error of one-hot targets is followed by gradient flow from balanced, aligned weights of the
    network's own width; the strength of mode i is u_i . Q W v_i.

    Args:
        subject: A linear network of two layers, with its training examples.
    """
    first, last = weights_of(subject)
    G = correlation(training_rows(subject), len(last))
    U, S, Vh = torch.linalg.svd(G, full_matrices=False)
    count = min(int((WEAKEST * S[0] <= S).sum()), len(first))
    S, a = S[:count], START * float(S[0])
    time = 2 * half_time(float(S[-1]), a)
    Q, W = aligned(G, count, a, len(first))
    path = flow(lambda pair: two_layer_gradients(pair[0], pair[1], G), (Q, W), time, STEPS)
    measured = torch.stack([torch.einsum("ik,ij,kj->k", U[:, :count], q @ w, Vh[:count]) for q, w in path])
    moments = torch.linspace(0, time, STEPS + 1, dtype=torch.float64)
    theory = mode_strength(S, torch.full_like(S, a), moments[:, None])
    named = {f"mode {i + 1}": measured[:, i] for i in range(count)}
    return Finding(
        statement=f"The {count} strongest modes are learned along sigmoids, the strongest first: the largest "
        "difference of each strength from theory, relative to its singular value.",
        value=((measured - theory).abs() / S).amax(0),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-4,
        labels=tuple(f"singular value {float(s):.4g}" for s in S),
        premises=(
            Premise("the inputs are white", "proved", "they were whitened for this question"),
            Premise("the weights begin balanced and aligned", "proved", "they were set so for this question"),
        ),
        reference=f"{SAXE}, Equations 9 and 12",
        curves={"time": moments} | named | {f"theory {i + 1}": theory[:, i] for i in range(count)},
    )


def demo() -> Subject:
    """An untrained linear network on three blobs."""
    data = classes()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = LinearNetwork(data.spec["in_features"], 3, hidden=(4,))
    return solved(data, core, CLASSES, risk(CLASSES))


def bottleneck_demo() -> Subject:
    """An untrained linear network from 6 features to 5 classes, through 2 units in the middle."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = LinearNetwork(6, 5, hidden=(8, 2, 8)).double()
        x = torch.randn(10, 6, dtype=torch.float64)
    batch = Batch((x,), torch.arange(10) % 5)
    return Subject(model=model, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))
