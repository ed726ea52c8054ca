r"""A law over a network's weights that is trained for its risk certificate: PAC-Bayes with backpropagation.

Perez-Ortiz, Rivasplata, Shawe-Taylor and Szepesvari (2021); Dziugaite and Roy (2017); Blundell et al. (2015).
Some of the training rows choose the prior; on the others, which it has not seen, a posterior of independent
normal weights descends on a bound of its own risk,

.. math:: \min_{\mu, \sigma} B\big(E_{w \sim N(\mu, \sigma^2)} \hat\ell(w),\; c\big), \qquad
          c = \frac{\mathrm{KL}(N(\mu, \sigma^2) \| N(\mu_0, \sigma_0^2)) + \ln(2 \sqrt n / \delta)}{n}

with the loss cut off to lie in [0, 1], one draw of the weights a step, and the gradient of KL in closed form.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.tasks import Task
from margin.core.types import Batch, Examples, Metrics, Objective
from margin.data.examples import Batches, InOrder, Rows, evaluation_batch
from margin.data.preprocess import Moments, Standardize
from margin.engine.batch_loss import BatchLoss, refuse_shares
from margin.engine.loop import GradientUpdate, State, Step, descent
from margin.math.seeds import mix
from margin.nn.preprocessed import Preprocessed
from margin.theory.bounds.binary_kl import kl_upper
from margin.theory.bounds.pac_bayes import check_sample, complexity, gaussian_kl

KEPT = "pac_bayes"
"""The name under which the posterior and its optimizer are kept in the state."""

PURPOSE = 61
"""What its draws are for, among the seeds of a training."""

Weights = Float[Tensor, " weights"]

Bound = Literal["quadratic", "classic", "catoni"]


class Posterior(nn.Module):
    """Independent normal weights, and the normal prior of one deviation from which their divergence counts.

    Args:
        weights: The prior's mean, at which the posterior's mean begins.
        prior_std: The prior's deviation, at which each weight's begins.
        prior_rows: The training rows that the prior has seen.
        steps: Of the whole training.
    """

    def __init__(self, weights: Weights, prior_std: float, prior_rows: Tensor, steps: int = 0) -> None:
        super().__init__()
        start = weights.detach().clone()
        self.mean = nn.Parameter(start)
        self.log_std = nn.Parameter(torch.full_like(start, math.log(prior_std)))
        self.register_buffer("prior_mean", start.clone())
        self.register_buffer("prior_std", torch.tensor(prior_std, dtype=torch.float64))
        self.register_buffer("prior_rows", prior_rows)
        self.register_buffer("steps", torch.tensor(steps))

    @property
    def scale(self) -> float:
        """The prior's deviation."""
        return float(self.get_buffer("prior_std"))

    @torch.no_grad()
    def start(self, weights: Weights) -> None:
        """Let the posterior's mean begin at these weights."""
        self.mean.copy_(weights)

    @torch.no_grad()
    def draw(self, generator: Generator) -> tuple[Weights, Weights]:
        """Weights mean + std z, and std z."""
        z = torch.randn(self.mean.shape, generator=generator, dtype=self.mean.dtype).to(self.mean.device)
        moved = z.mul_(self.log_std.exp())
        return self.mean + moved, moved

    @torch.no_grad()
    def divergence(self) -> tuple[Tensor, Weights, Weights]:
        """KL from the prior in nats, and its gradient by the mean and by the logarithm of the deviation."""
        ratio = 2 * (self.log_std - math.log(self.scale))
        by_log_std = torch.expm1(ratio)
        apart = (self.mean - self.get_buffer("prior_mean")) / self.scale
        kl = 0.5 * (torch.dot(apart, apart) + (by_log_std - ratio).sum())
        return kl, apart / self.scale, by_log_std

    @torch.no_grad()
    def kl(self) -> float:
        """KL from the prior in nats, in double precision."""
        prior = self.get_buffer("prior_mean").double()
        return float(gaussian_kl(self.mean.double(), self.log_std.double().exp(), prior, self.scale))

    @torch.no_grad()
    def log_ratio(self, weights: Weights) -> float:
        """The logarithm of the density at these weights by the prior's, in nats, in double precision."""
        w, log_std = weights.double(), self.log_std.double()
        own = ((w - self.mean.double()) / log_std.exp()).square()
        other = ((w - self.get_buffer("prior_mean").double()) / self.scale).square()
        return float(((other - own) / 2 - log_std + math.log(self.scale)).sum())


def trained(model: nn.Module) -> list[Tensor]:
    """The parameters over which there is a law: those that are trained."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def flat(tensors: Sequence[Tensor]) -> Weights:
    """All entries, one tensor behind another."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def put_flat(parameters: Sequence[Tensor], weights: Weights) -> None:
    """Give the parameters these entries, in place."""
    parts = weights.split([parameter.numel() for parameter in parameters])
    torch._foreach_copy_(
        list(parameters), [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]
    )


def prior_rows(count: int, share: float, seed: int) -> Int[Tensor, " rows"]:
    """The rows by which the prior is chosen, in ascending order: a share drawn by the training's seed.

    Args:
        count: All training rows.
        share: In [0, 1); 0 leaves the prior at the initial weights.
        seed: Of the training.

    Raises:
        ValueError: The share is out of range, or leaves one of the two parts without a row.
    """
    if not 0 <= share < 1:
        raise ValueError(f"prior_share must be in [0, 1): got {share}")
    rows = round(share * count)
    if rows == count or (share > 0 and rows == 0):
        raise ValueError(f"prior_share must leave rows to the prior and to the bound: got {share} of {count}")
    order = torch.randperm(count, generator=Generator().manual_seed(mix(seed, PURPOSE)))
    return order[:rows].sort().values


def other_rows(count: int, rows: Int[Tensor, " rows"]) -> Int[Tensor, " others"]:
    """The rows that the prior has not seen, on which the bound is computed."""
    free = torch.ones(count, dtype=torch.bool)
    free[rows.cpu()] = False
    return free.nonzero()[:, 0]


class Phases(NamedTuple):
    """The batches of the prior's rows, then those of the others; an epoch is a pass through the larger part.

    Args:
        first: Of the prior; of all rows where it is left at the initial weights.
        then: Of the bound.
        boundary: Steps of the first.
    """

    first: Batches
    then: Batches
    boundary: int

    @property
    def per_epoch(self) -> int:
        """Steps an epoch."""
        return max(self.first.per_epoch, self.then.per_epoch)

    @property
    def batch_size(self) -> int:
        """Examples a batch."""
        return self.then.batch_size

    def __call__(self, step: int) -> Batch:
        """The batch of a step, counted from 0."""
        return self.first(step) if step < self.boundary else self.then(step - self.boundary)


def feed(
    examples: Examples,
    seed: int,
    cut: Callable[[Examples], Batches],
    total_of: Callable[[int], int],
    *,
    prior_share: float = 0.5,
    prior_time: float = 0.5,
) -> Phases:
    """The batches of :func:`pac_bayes`: no row of the bound is met before the prior is chosen.

    Args:
        examples: The training part.
        seed: Of the training.
        cut: Makes the batches of examples.
        total_of: The steps of the training, by those of an epoch.
        prior_share: Share of the rows that choose the prior.
        prior_time: Share of the steps that descend plainly.

    Raises:
        ValueError: An option is out of range.
    """
    if not (hasattr(examples, "__len__") and hasattr(examples, "take")):
        raise ValueError("pac_bayes needs examples that can be told apart: the data are a stream")
    rows = prior_rows(len(examples), prior_share, seed)
    then = cut(Rows(examples, other_rows(len(examples), rows)))
    phases = Phases(cut(Rows(examples, rows)) if len(rows) else then, then, 0)
    return phases._replace(boundary=boundary_of(total_of(phases.per_epoch), prior_time))


def boundary_of(total: int, prior_time: float) -> int:
    """The first step that trains the posterior.

    Raises:
        ValueError: The share of the steps is out of range, or leaves the posterior none.
    """
    if not 0 <= prior_time < 1:
        raise ValueError(f"prior_time must be in [0, 1): got {prior_time}")
    return round(prior_time * total)


def bounded_loss(task: Task, p_min: float) -> Objective:
    """Cross-entropy min(-ln p, ln(1/p_min)) / ln(1/p_min) of each example: a loss in [0, 1].

    Args:
        task: How outputs are read as class probabilities.
        p_min: Probability below which a label costs no more, in (0, 1).

    Raises:
        ValueError: p_min is out of range, or the task states no probability of classes; at the first batch,
            an example has not one label.

    Reference: Perez-Ortiz et al. 2021, Section 5.1; Dziugaite and Roy 2018, Appendix B.
    """
    if not 0 < p_min < 1:
        raise ValueError(f"p_min must lie in (0, 1): got {p_min}")
    classes, most = task.classes, -math.log(p_min)
    if classes is None or task.probabilities is None:
        raise ValueError(f"pac_bayes needs class probabilities: the task {task.name!r} states none")

    def loss(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        logits, labels = classes(model(*batch.inputs)), labels_of(batch)
        surprise = -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return surprise.clamp(max=most) / most

    return loss


def labels_of(batch: Batch) -> Tensor:
    """The labels of a batch, one an example of equal weight.

    Raises:
        ValueError: They are not.
    """
    labels = batch.targets
    if labels is None or labels.is_floating_point() or labels.ndim != 1:
        raise ValueError("pac_bayes needs one class label an example")
    if batch.weight is not None and bool((batch.weight != batch.weight.reshape(-1)[0]).any()):
        raise ValueError("pac_bayes counts examples alike: these have weights")
    return labels.long()


# fifteen parameters: seven are filled by name
def pac_bayes(
    objective: Objective,
    descend: GradientUpdate,
    task: Task,
    examples: Examples,
    total_steps: int,
    scale: str,
    init_from: str,
    *,
    bound: Bound = "quadratic",
    delta: float = 0.05,
    prior_share: float = 0.5,
    prior_time: float = 0.5,
    prior_std: float = 0.03,
    posterior_lr: float = 0.01,
    p_min: float = 1e-5,
    draws: int = 10_000,
) -> Step:
    """A step of the prior on its rows, as plain descent; later one of a Gaussian posterior on its own bound.

    The model's own weights are the posterior's mean. In the second part the model is asked in evaluation mode
    (no dropout, statistics as the prior left them), and Adam moves the mean in units of the prior's deviation
    and the logarithm of each deviation, at a rate that falls linearly to 0. A standardization of inputs is
    fitted anew to the prior's rows, since rows of the bound must not choose the classifiers. Steps after the
    prior do not use the objective's own options, such as label smoothing. At the end
    :func:`margin.theory.bounds.certificate.certificate` bounds the risk.

    Args:
        objective: The loss of each term, on which the prior descends.
        descend: How its gradient moves the optimizer.
        task: How outputs are read as class probabilities.
        examples: The training part.
        total_steps: Steps of the training.
        scale: Which map stands before the model: "standard" has been fitted to rows.
        init_from: The run or file that the weights begin with, which may have seen the rows of the bound.
        bound: What the posterior descends on: "quadratic" solves the bound for its root, which is the linear
            one at its best slope, "classic" is McAllester's, "catoni" Catoni's at its best slope, which is
            the inverse of the divergence itself and the tightest, and begins as the quadratic one.
        delta: Probability that the certificate fails, in (0, 1), a fifth of it for the drawing of networks.
        prior_share: Share of the training rows that choose the prior, in [0, 1), drawn by the seed; 0 leaves
            it at the initial weights.
        prior_time: Share of the steps that descend plainly before there is a law, in [0, 1): on the prior's
            rows; where it has none, on all, to where the posterior begins.
        prior_std: The prior's standard deviation of each weight, > 0, fixed beforehand.
        posterior_lr: Learning rate of the posterior, in standard deviations of the prior, > 0.
        p_min: Probability below which a label costs no more, in (0, 1).
        draws: Networks drawn for the certificate, each for a batch of its own, >= 1.

    Raises:
        ValueError: An option is out of range, the task states no class probabilities, or weights are in
            shares; at the first step, there are several optimizers, or without rows of a prior inputs are
            standardized by all.

    Reference: Perez-Ortiz et al. (2021), "Tighter risk certificates for neural networks", Sections 5 and 6;
    Dziugaite and Roy (2017), "Computing nonvacuous generalization bounds", Section 3; of the best slope:
    Thiemann et al. (2017), Equation 8; of catoni: Catoni (2007), Theorem 1.2.6; Germain et al. (2009),
    Section 3.2.
    """
    for name, value in {"prior_std": prior_std, "posterior_lr": posterior_lr}.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite: got {value}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1: got {draws}")
    if init_from:
        raise ValueError(
            f"a prior must not have seen the rows of the bound: leave out init_from, got {init_from}"
        )
    check_sample(1, delta)
    refuse_shares("pac_bayes", descend)
    boundary = boundary_of(total_steps, prior_time)
    bounded, before = bounded_loss(task, p_min), descent(objective, descend)
    value_of = OBJECTIVES[bound]

    def step(state: State, batch: Batch) -> Metrics:
        rows = prior_rows(len(examples), prior_share, state.seed)
        if state.step == 0:
            _begin(state, examples, rows, scale)
        if state.step >= boundary or not len(rows):
            posterior = _posterior_of(state, prior_std, rows, total_steps)
            state.model.eval()
        if state.step < boundary:
            return before(state, batch)
        if state.step == boundary:
            posterior.start(flat(trained(state.model)))
        n = len(examples) - len(rows)
        left = (total_steps - state.step) / max(total_steps - boundary, 1)
        optimizer = state.kept_optimizer(KEPT, lambda: _optimizer(posterior, posterior_lr))
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * left
        asked = BatchLoss(state, bounded, descend, batch)
        parameters = trained(state.model)
        weights, moved = posterior.draw(Generator().manual_seed(mix(state.seed, PURPOSE, 1, state.step)))
        put_flat(parameters, weights)
        try:
            grads, risk = asked.gradient()
        finally:
            put_flat(parameters, posterior.mean)
        found = {id(p): g for p, g in zip(asked.parameters, grads, strict=True)}  # in the optimizer's order
        g = flat([torch.zeros_like(p) if (one := found.get(id(p))) is None else one for p in parameters])
        kl, by_mean, by_log_std = posterior.divergence()
        value, by_risk, by_kl = _slopes(value_of, risk, kl.double(), n, delta)
        posterior.mean.grad = by_mean.mul_(by_kl).add_(g, alpha=by_risk)
        posterior.log_std.grad = by_log_std.mul_(by_kl).addcmul_(g, moved, value=by_risk)
        optimizer.step()
        put_flat(parameters, posterior.mean)
        return {"loss": value, "bounded_loss": risk, "kl": float(kl)}

    return step


def _begin(state: State, examples: Examples, rows: Int[Tensor, " rows"], scale: str) -> None:
    """Refuse what the rule cannot train, and fit the standardization to the prior's rows."""
    if list(state.optimizers) != [""]:
        raise ValueError("pac_bayes needs a model with one optimizer")
    if "average" in state.modules:
        raise ValueError("pac_bayes hands out the mean of its law: average must be 0")
    front = state.model.preprocess if isinstance(state.model, Preprocessed) else None
    if scale != "standard" or not isinstance(front, Standardize):
        return
    if not len(rows):
        raise ValueError(
            "a prior that sees no rows needs inputs that no row has scaled: set --scale none, unit or "
            "symmetric"
        )
    batches = InOrder(Rows(examples, rows), evaluation_batch(examples), dtype=torch.float64)
    per_feature = front.mean.shape == batches[0].inputs[0].shape[1:]
    moments = Moments("feature" if per_feature else "channel")
    for batch in batches:
        moments.add(batch.inputs[0])
    fitted = moments.standardize()
    as_it_is = (front.mean == 0) & (front.std == 1) & per_feature  # indicators of categories
    front.mean.copy_(torch.where(as_it_is.cpu(), 0.0, fitted.mean))
    front.std.copy_(torch.where(as_it_is.cpu(), 1.0, fitted.std))


def _posterior_of(state: State, prior_std: float, rows: Tensor, steps: int) -> Posterior:
    parameters = trained(state.model)
    made = state.kept(KEPT, lambda: Posterior(flat(parameters), prior_std, rows, steps))
    posterior = cast(Posterior, made)
    if (began := int(posterior.get_buffer("steps"))) != steps:
        raise ValueError(
            f"the prior is chosen at a share of all steps: got {steps}, it was chosen of {began}"
        )
    return posterior


def _optimizer(posterior: Posterior, lr: float) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [
        {"params": [posterior.mean], "lr": lr * posterior.scale, "initial_lr": lr * posterior.scale},
        {"params": [posterior.log_std], "lr": lr, "initial_lr": lr},
    ]
    return torch.optim.Adam(groups, eps=1e-12, fused=True)


def quadratic(r: Tensor, c: Tensor) -> Tensor:
    """(sqrt(r + c/2) + sqrt(c/2))^2, also where it is above 1."""
    return ((r + c / 2).sqrt() + (c / 2).sqrt()).square()


def classic(r: Tensor, c: Tensor) -> Tensor:
    """R + sqrt(c/2), also where it is above 1."""
    return r + (c / 2).sqrt()


def exponential(r: Tensor, c: Tensor) -> Tensor:
    """The least over C > 0 of (1 - exp(-C r - c)) / (1 - exp(-C)), R, at C = logit(R) - logit(r).

    The certificate is computed anew, so that C need not be fixed beforehand as Catoni's theorem asks. While
    the quadratic form is 1 or more it stands in: where R is nearly 1 it is flat, and no descent comes back
    from a divergence of many times the rows.
    """
    if bool((start := quadratic(r, c)) >= 1):
        return start
    with torch.no_grad():
        least = 1e-9
        R = kl_upper(r, c).clamp(least, 1 - least)
        slope = (R.logit() - r.clamp(least, 1 - least).logit()).clamp(min=least)
    return torch.expm1(-slope * r - c) / torch.expm1(-slope)


OBJECTIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "quadratic": quadratic,
    "classic": classic,
    "catoni": exponential,
}


def _slopes(
    value_of: Callable[[Tensor, Tensor], Tensor], risk: float, kl: Tensor, n: int, delta: float
) -> tuple[float, float, float]:
    """A bound, and its derivatives by the risk and by the divergence."""
    r = torch.tensor(risk, dtype=torch.float64, requires_grad=True)
    kl = kl.cpu().clamp(min=0).requires_grad_()
    value = value_of(r, complexity(kl, n, delta))
    by_risk, by_kl = torch.autograd.grad(value, (r, kl))
    return float(value.detach()), float(by_risk), float(by_kl)
