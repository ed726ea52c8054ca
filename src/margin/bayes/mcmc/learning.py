"""How chains of weights advance: Hamiltonian trajectories on all examples, Langevin steps on some of them.

Neal (2011), Section 5.5; Welling and Teh (2011); Chen, Fox and Guestrin (2014). A step of the training is one
step of every chain; the first half is the warm-up, of which nothing is kept.
"""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor

from margin.bayes.laplace.learning import adopt, examples_of
from margin.bayes.mcmc.adaptation import first_step
from margin.bayes.mcmc.chains import Energy, Moved, Point, point_at, transition
from margin.bayes.mcmc.no_u_turn import MAX_DEPTH, no_u_turn_transition
from margin.bayes.mcmc.posterior import MIN_PROPOSALS, ChainRegressor, SampledPosterior
from margin.core.types import Batch, Metrics
from margin.engine.build import names_run
from margin.engine.loop import NonFiniteError, State, Step

JITTER = 0.2
"""A trajectory's step size is uniform within this share of it: a fixed length resonates (Neal 2011, 4.2)."""

ROUNDS, PROBES = 4, 12
"""Of scaling by the diagonal of the second derivative, and products with it in each."""

STABLE = 0.5
"""Step size times the largest curvature: at 4 a chain diverges, at 1/2 its variance is 8/7 of the law's."""

SPREAD = 2.0
"""The deviation of the logarithm of the noise's variance under its prior."""


def losses_of(model: SampledPosterior, theta: Tensor, x: Tensor, y: Tensor) -> Float[Tensor, "chains rows"]:
    """Each network's squared error, or cross-entropy, of each row."""
    outputs = model.outputs(theta, x)
    if isinstance(model, ChainRegressor):
        return (outputs[..., 0] - y).square()
    labels = y[None].expand(outputs.shape[:2])
    return F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)


def energy_of(
    model: SampledPosterior, x: Tensor, y: Tensor, weight: Tensor, share: float | Tensor = 1.0
) -> Energy:
    r"""The negative log joint density of targets and weights, up to a constant.

    .. math:: E = \sum_i w_i \ell_i(\theta) + \tfrac12 \sum_j d_j \theta_j^2, \quad
        \ell = (y - f)^2 / (2 s^2) + \log s

    Args:
        model: Whose prior and network.
        x: Inputs.
        y: Values in units of their standard deviation, or labels.
        weight: How often each row counts.
        share: Of a batch, which part of all rows it is: it stands for all of them.
    """
    total, count = weight.sum() / share, len(model.precisions)

    def energy(theta: Tensor) -> Tensor:
        loss = (weight * losses_of(model, theta, x, y)).sum(1) / share
        prior = (model.precisions * theta[:, :count].square()).sum(1) / 2
        if not isinstance(model, ChainRegressor):
            return loss + prior
        log_noise = model.log_noise_of(theta)
        if model.learn == "noise":
            prior = prior + ((log_noise - model.log_noise) / SPREAD).square() / 2
        return loss / (2 * log_noise.exp()) + total / 2 * log_noise + prior

    return energy


def taken(model: SampledPosterior, after: int, room: int) -> None:
    """Keep where the chains are, if it is time.

    Args:
        model: Its draws.
        after: Steps since the warm-up, this one among them.
        room: Such steps in all.
    """
    size = len(model.draws)
    if after * size // max(room, size) > (after - 1) * size // max(room, size) and int(model.taken) < size:
        model.draws[int(model.taken)] = model.positions
        model.taken += 1


def begun(state: State, model: Any) -> None:
    """Chains that begin at a run's weights are put there."""
    if names_run(model.base):
        adopt(state, model.base)
        flat = torch.cat([p.detach().reshape(-1) for p in model.net.parameters()])
        model.positions[:, : len(flat)] = flat


def hamiltonian_sampling(
    total_steps: int,
    *,
    sampler: Literal["hmc", "nuts"] = "hmc",
    leapfrog_steps: int = 30,
    tree_depth: int = MAX_DEPTH,
    target: float = 0.8,
) -> Step:
    """One Hamiltonian trajectory of every chain, on all examples.

    It reports the mean loss of where the chains are, the acceptance, the step size, the leapfrog steps of a
    trajectory and the deepest tree of NUTS, and the trajectories that diverged since the warm-up.

    Args:
        total_steps: Steps of the training: the first half warms up.
        sampler: ``hmc`` takes trajectories of one length, ``nuts`` doubles each until it turns back (NUTS).
        leapfrog_steps: Of ``hmc``, the leapfrog steps of a trajectory, each a gradient of all chains.
        tree_depth: Of ``nuts``, the doublings of a trajectory at most: 2^depth - 1 leapfrog steps.
        target: Acceptance that the step size is adapted to; of ``nuts`` the mean over a trajectory.

    Raises:
        ValueError: An option is out of range.
        NonFiniteError: Every chain diverged, every time.

    Reference: Neal 2011, Section 5.5; Hoffman and Gelman 2014, Algorithms 3 and 5.
    """
    if leapfrog_steps < 1:
        raise ValueError(f"leapfrog_steps must be at least 1: got {leapfrog_steps}")
    if tree_depth < 1:
        raise ValueError(f"tree_depth must be at least 1: got {tree_depth}")
    if not 0 < target < 1:
        raise ValueError(f"target must be in (0, 1): got {target}")
    warm = total_steps // 2

    def fixed(energy: Energy, at: Point, inverse: Tensor, step: float, draw: Generator) -> Moved:
        step *= 1 + JITTER * (2 * float(torch.rand((), generator=draw)) - 1)
        return transition(energy, at, inverse=inverse, step=step, steps=leapfrog_steps, generator=draw)

    def turning(energy: Energy, at: Point, inverse: Tensor, step: float, draw: Generator) -> Moved:
        return no_u_turn_transition(energy, at, inverse=inverse, step=step, depth=tree_depth, generator=draw)

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        model: Any = state.core
        if state.step == 0:
            begun(state, model)
        x, y, weight = examples_of(state, batch, "a Markov chain")
        found = model.adaptation
        energy = found.within(energy_of(model, x, y, weight))
        at = point_at(energy, found.inside(model.positions))
        if state.step == 0:
            _enough(model, warm)
            found.begin(first_step(energy, at, found.inverse, state.generator))
        adapting = state.step < warm
        size = found.step(adapting)
        moved = (turning if sampler == "nuts" else fixed)(energy, at, found.inverse, size, state.generator)
        model.positions.copy_(found.outside(moved.at.theta))
        if adapting:
            _adapted(model, moved, state.step, warm, target)
        else:
            _counted(model, moved)
            taken(model, state.step - warm + 1, total_steps - warm)
        told = _told(model, model.positions, x, y, weight) | _traveled(model, moved, sampler)
        return told | {"step_size": size}

    return step


def _enough(model: Any, warm: int) -> None:
    """A covariance needs more positions than it has rows."""
    seen, dim = len(model.positions) * (3 * warm // 4 - warm // 4), model.positions.shape[1]
    if model.adaptation.dense and seen < 2 * dim:
        raise ValueError(
            f"mass_matrix dense needs twice as many positions of the warm-up as coordinates, {dim}: got "
            f"{seen}; take more epochs, or diagonal"
        )


def _adapted(model: Any, moved: Moved, step: int, warm: int, target: float) -> None:
    """One step of the warm-up."""
    found = model.adaptation
    found.update(float(moved.acceptance.mean()), target)
    if warm // 4 <= step < 3 * warm // 4:
        found.observe(model.positions)
    if step == 3 * warm // 4:
        found.take_masses()
        # the masses are now the positions' own: a step of 1 is of the size of their spread
        found.begin(min(1.0, len(found.inverse) ** -0.25))


def _counted(model: Any, moved: Moved) -> None:
    """One step after the warm-up: what was accepted, what diverged."""
    model.proposals += 1
    model.accepted += moved.acceptance
    model.divergent += moved.divergent
    if int(model.proposals) >= MIN_PROPOSALS and not bool(model.mixing().any()):
        raise NonFiniteError(
            "every chain diverged: a longer warm-up finds a step size that fits, --epochs; a stronger prior "
            "bends the law less, --model.prior-precision"
        )


def _traveled(model: Any, moved: Moved, sampler: str) -> Metrics:
    """How the trajectories went."""
    told: Metrics = {
        "acceptance": float(moved.acceptance.mean()),
        "divergent": float(model.divergent.sum()),
        "leapfrog_steps": float(moved.steps.mean()),
    }
    if sampler == "nuts":
        told["tree_depth"] = float(moved.steps.max().add(1).log2().ceil())
    return told


def _told(model: Any, theta: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Metrics:
    """The mean loss of where the chains are, in the unit of the targets, and the noise."""
    loss = (weight * losses_of(model, theta, x, y)).sum(1).mean() / weight.sum()
    if not isinstance(model, ChainRegressor):
        return {"loss": loss}
    noise = model.log_noise_of(theta).exp().mean().sqrt()
    return {"loss": model.unit.square() * loss, "noise": float(model.unit * noise)}


def curvature_of(
    energy: Energy, theta: Tensor, generator: Generator
) -> tuple[Float[Tensor, " dim"], Float[Tensor, ""]]:
    r"""Inverse masses 1 / |diag E''|, the mean over chains, and the largest curvature under them.

    .. math:: \operatorname{diag} E'' = \mathbb E\, z \odot E'' z, \quad z_j = \pm 1

    The largest is found by power iteration, products with E'' by differences of slopes: a network need not be
    differentiable twice.

    Reference: Bekas, Kokiopoulou and Saad 2007, Section 2 (the diagonal).
    """
    slope = point_at(energy, theta).slope

    def product(v: Tensor) -> Tensor:
        h = torch.finfo(v.dtype).eps ** 0.25 / v.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return (point_at(energy, theta + h * v).slope - slope) / h

    root = torch.ones_like(theta[0])
    for _ in range(
        ROUNDS
    ):  # a small entry drowns in the noise of a large one beside it, until both are scaled
        found = torch.zeros_like(theta)
        for _ in range(PROBES):
            z = torch.randint(0, 2, theta.shape, generator=generator).to(theta) * 2 - 1
            found += z * root * product(root * z) / PROBES
        root = root * found.mean(0).abs().clamp_min(torch.finfo(theta.dtype).eps).rsqrt()
    v = torch.randn(theta.shape, generator=generator, dtype=theta.dtype).to(theta.device)
    size = torch.zeros_like(theta[:, 0])
    for _ in range(PROBES):
        v = v / v.norm(dim=1, keepdim=True).clamp_min(1e-12)
        v = root * product(root * v)
        size = v.norm(dim=1)
    return root.square(), size.max()


def langevin_sampling(
    total_steps: int, *, step_size: float | None = None, friction: float = 0.0, batch_size: int = 32
) -> Step:
    r"""One pass of Langevin steps over batches, whose gradients stand for that of all examples.

    .. math:: \theta \leftarrow \theta - \tfrac{\epsilon}{2} \nabla \tilde E + \sqrt\epsilon\,\xi, \quad
        \tilde E = \tfrac NB \sum_{i \in \text{batch}} \ell_i + \text{prior}

    No step is rejected: the draws are those of the posterior but for the step size and the noise of the
    batches, which a smaller step size lessens. It reports the mean loss of where the chains are, and epsilon.

    Args:
        total_steps: Steps of the training: the first half warms up.
        step_size: Step size epsilon times the number of examples; if not given, each weight has its own, by
            the diagonal of the energy's second derivative, as large as its largest curvature allows: found
            where the chains begin and, once more, in the middle of the warm-up.
        friction: 0 for overdamped dynamics (SGLD), else the share of its momentum that a chain loses in a
            step (SGHMC), in (0, 1).
        batch_size: Examples of a Langevin step.

    Raises:
        ValueError: An option is out of range.
        NonFiniteError: A chain diverged.

    Reference: Welling and Teh 2011, Equation 4; Chen, Fox and Guestrin 2014, Equation 15.
    """
    if step_size is not None and not 0 < step_size < math.inf:
        raise ValueError(f"step_size must be positive: got {step_size}")
    if not 0 <= friction < 1:
        raise ValueError(f"friction must be in [0, 1): got {friction}")
    if batch_size < 1:
        raise ValueError(f"batch_size of the step must be at least 1: got {batch_size}")
    warm = total_steps // 2

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        model: Any = state.core
        if state.step == 0:
            begun(state, model)
        x, y, weight = examples_of(state, batch, "a Markov chain")
        found = model.adaptation
        if found.dense:
            raise ValueError("mass_matrix of Langevin steps must be diagonal: got dense")
        if step_size is None and state.step in (0, warm // 2):
            inverse, largest = curvature_of(energy_of(model, x, y, weight), model.positions, state.generator)
            found.inverse.copy_(inverse)
            found.begin(STABLE / max(float(largest), 1e-12))
        size = found.step(False) if step_size is None else step_size / float(weight.sum())
        root = found.inverse.sqrt().to(model.positions)  # 1 of a step size that is given
        for part in torch.randperm(len(x), generator=state.generator).split(batch_size):
            share = weight[part].sum() / weight.sum()
            slope = point_at(energy_of(model, x[part], y[part], weight[part], share), model.positions).slope
            noise = torch.randn(slope.shape, generator=state.generator, dtype=slope.dtype).to(slope.device)
            if friction:
                model.momenta.mul_(1 - friction).sub_(size / 2 * root.square() * slope)
                model.momenta.add_((friction * size) ** 0.5 * root * noise)
                model.positions += model.momenta
            else:
                model.positions += size**0.5 * root * noise - size / 2 * root.square() * slope
            if not bool(model.positions.isfinite().all()):
                raise NonFiniteError("a chain diverged: choose a smaller --step.step-size")
        if state.step >= warm:
            taken(model, state.step - warm + 1, total_steps - warm)
        return _told(model, model.positions, x, y, weight) | {"step_size": size}

    return step
