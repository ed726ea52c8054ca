"""The mean loss of one batch as a function of the weights, for steps that ask for it more than once.

Every answer sees the same draws (dropout, noise) and the batch's statistics are counted once, so that all
answers of a step are of one function.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from margin.core.types import TERMS, Batch, Metrics, Objective
from margin.engine.evaluation import weighted_sum
from margin.engine.loop import GradientUpdate, NonFiniteError, State, cut, total_norm
from margin.engine.parallel.processes import summed, world
from margin.nn.preprocessed import device_of

Grads = list[Tensor | None]


class BatchLoss:
    """The mean loss sum(w l) / sum(w) of a batch, at whatever weights the model holds when it is asked.

    Both sums run over all pieces and all processes, and so does every gradient.

    Args:
        state: Its model is asked, in its own mode.
        objective: The loss of each term.
        descend: Which pieces a batch is cut into, and how gradients come together.
        batch: The terms.
    """

    def __init__(self, state: State, objective: Objective, descend: GradientUpdate, batch: Batch) -> None:
        self.state, self.objective, self.descend = state, objective, descend
        self.parameters = descend.parameters(state)
        self._pieces = list(cut(batch, descend.pieces)) if descend.pieces > 1 else [batch]
        self._draws = self._generators()
        self._asked = False
        self._terms = 0.0

    def gradient(self) -> tuple[Grads, float]:
        """The gradient with respect to each parameter, None where it has no part in the loss; the loss.

        Raises:
            NonFiniteError: One of them is not finite.
        """
        grads: Grads = [None] * len(self.parameters)
        sums: list[Tensor] = []
        with self._again():
            for piece in self._pieces:
                total, count = self._sum(piece)
                sums.append(torch.stack((total.detach(), count)).double())
                found = self.descend.gradients(self.state, total)
                grads = [
                    b if a is None else a if b is None else a + b for a, b in zip(grads, found, strict=True)
                ]
        total, terms = summed(torch.stack(sums).sum(0)).tolist()
        self._terms = terms
        # where a backward pass averages over the processes already, their sum is size times that
        factor = world().size / terms if self.descend.synchronized else 1 / terms
        whole = grads if self.descend.synchronized else [None if g is None else summed(g) for g in grads]
        grads = [None if g is None else g * factor for g in whole]
        self.check(grads, total / terms)
        return grads, total / terms

    @torch.no_grad()
    def value(self) -> float:
        """The loss alone; it may be infinite or no number."""
        with self._again():
            sums = [torch.stack(self._sum(piece)).double() for piece in self._pieces]
        total, terms = summed(torch.stack(sums).sum(0)).tolist()
        return float(total / terms)

    def differentiable(self) -> Tensor:
        """The loss with its graph, for second derivatives: of one process and one piece."""
        with self._again():
            total, count = self._sum(self._pieces[0])
        return total / count

    def step(self, grads: Sequence[Tensor | None], loss: float) -> Metrics:
        """Step the optimizer along a gradient of the whole batch: clipped, and refused, as in any descent."""
        moved = replace(self.descend, synchronized=True).apply(self.state, grads, loss)
        return moved | ({TERMS: self._terms} if self._terms else {})

    def _sum(self, piece: Batch) -> tuple[Tensor, Tensor]:
        return weighted_sum(self.objective(self.state.model, piece, self.state.generator), piece.weight)

    @contextmanager
    def _again(self) -> Iterator[None]:
        """One more question; the batch's statistics stay as the first one left them."""
        buffers = list(self.state.model.buffers()) if self._asked else []
        before = [buffer.clone() for buffer in buffers]
        if self._asked:
            self._restart()
        self._asked = True
        try:
            yield
        finally:
            for buffer, value in zip(buffers, before, strict=True):
                buffer.detach().copy_(value)

    def _generators(self) -> tuple[Tensor, Tensor, Tensor | None]:
        device = device_of(self.state.model)
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return self.state.generator.get_state(), torch.get_rng_state(), cuda

    def _restart(self) -> None:
        own, everywhere, cuda = self._draws
        self.state.generator.set_state(own)
        torch.set_rng_state(everywhere)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device_of(self.state.model))

    def check(self, grads: Grads, loss: float) -> None:
        """Refuse a loss or gradient that is not finite.

        Raises:
            NonFiniteError: One is; the message names the first parameter concerned.
        """
        present = [g for g in grads if g is not None]
        if math.isfinite(loss) and math.isfinite(total_norm(present)):
            return
        ids = {id(p): name for name, p in self.state.model.named_parameters()}
        found = zip(self.parameters, grads, strict=True)
        bad = [ids[id(p)] for p, g in found if g is not None and not bool(g.isfinite().all())]
        if bad or not math.isfinite(
            loss
        ):  # else every gradient is finite: the sum of their squares overflowed
            where = f"the first gradient concerned is that of {bad[0]}" if bad else "every gradient is finite"
            raise NonFiniteError(f"loss {loss:g} at step {self.state.step}: {where}")


def norm_of(grads: Sequence[Tensor | None]) -> float:
    """The Euclidean norm of all gradients together, in double precision where the squares overflow."""
    present = [g for g in grads if g is not None]
    norm = total_norm(present)
    return norm if math.isfinite(norm) else total_norm([g.double() for g in present])


@contextmanager
def elsewhere(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """For a while the parameters may be moved; afterwards they are where they were, to the bit.

    Yields their values before.
    """
    before = [p.detach().clone() for p in parameters]
    try:
        yield before
    finally:
        put(parameters, before)


@torch.no_grad()
def put(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Give the parameters these values, in place."""
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)


def refuse_clip(rule: str, descend: GradientUpdate) -> None:
    """Refuse a bound on a gradient that a rule does not move along.

    Raises:
        ValueError: There is a bound.
    """
    if descend.clip < math.inf:
        raise ValueError(f"{rule} does not move along the gradient: clip must be inf, got {descend.clip:g}")


def refuse_shares(rule: str, descend: GradientUpdate) -> None:
    """Refuse weights that lie in shares (fsdp), where a rule copies whole ones.

    Raises:
        ValueError: They do.
    """
    if descend.synchronized:
        raise ValueError(f"{rule} needs whole weights: set --strategy ddp, got shares of them (fsdp)")
