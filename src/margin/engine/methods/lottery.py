r"""Lottery tickets: weights pruned by magnitude in rounds, what is left rewound to where it began.

Frankle and Carbin (2019): train, prune the smallest weights, give the others back the values that they had at
first, train again. What is left after some rounds, a winning ticket, trains as well as the whole network; the
same number of weights chosen at random does not. Large networks are rewound not to their first weights but
to those of an early step (Frankle et al., 2020).
"""

import copy
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics, Objective
from margin.engine.batch_loss import BatchLoss, refuse_shares
from margin.engine.loop import GradientUpdate, State, Step
from margin.math.seeds import mix

Choice = Literal["magnitude", "random"]

NAME = "lottery_ticket"
"""Under which the state keeps the ticket."""


class Ticket(nn.Module):
    """What rounds must remember: values to rewind to, a mask of each matrix, the length of the training.

    Args:
        model: Its parameters of two axes or more that require a gradient are pruned.
        total_steps: Of all rounds together.
    """

    def __init__(self, model: nn.Module, total_steps: int) -> None:
        super().__init__()
        self.rewound = copy.deepcopy(model).requires_grad_(False)
        self.register_buffer("total_steps", torch.tensor(total_steps))
        for i, weight in enumerate(prunable(model)):
            self.register_buffer(f"mask_{i}", torch.ones(weight.shape, dtype=torch.bool))

    @property
    def masks(self) -> list[Tensor]:
        """Which weights are left, a mask for each tensor of :func:`prunable`."""
        return [buffer for name, buffer in self.named_buffers(recurse=False) if name.startswith("mask_")]

    @property
    def left(self) -> float:
        """The share of the weights that is left."""
        masks = self.masks
        return sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)

    @torch.no_grad()
    def remember(self, model: nn.Module) -> None:
        """Rewind to the present values of the model from now on."""
        for kept, value in zip(_tensors(self.rewound), _tensors(model), strict=True):
            kept.copy_(value)

    @torch.no_grad()
    def rewind(self, model: nn.Module) -> None:
        """Give the model the values that were remembered, 0 where a weight is pruned."""
        for value, kept in zip(_tensors(model), _tensors(self.rewound), strict=True):
            value.copy_(kept)
        self.apply_to(model)

    @torch.no_grad()
    def apply_to(self, model: nn.Module) -> None:
        """Set pruned weights to 0."""
        for weight, mask in zip(prunable(model), self.masks, strict=True):
            weight.masked_fill_(~mask, 0)

    @torch.no_grad()
    def prune(self, scores: list[Tensor], count: int) -> None:
        """Keep the ``count`` weights of largest score among those that are left, over all tensors together.

        Args:
            scores: One for each weight, at least 0 and finite.
            count: At most as many as are left; of equal scores the first are kept.
        """
        masks = self.masks
        alive = torch.cat([mask.flatten() for mask in masks])
        flat = torch.cat([score.flatten() for score in scores])
        order = torch.where(alive, flat, -1).argsort(descending=True, stable=True)
        chosen = torch.zeros_like(alive)
        chosen[order[:count]] = True
        for mask, part in zip(masks, chosen.split([mask.numel() for mask in masks]), strict=True):
            mask.copy_(part.view_as(mask))


def prunable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are pruned: those of two axes or more; biases, gains and shifts never are."""
    return [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def boundaries(total_steps: int, rounds: int) -> list[int]:
    """The steps at which a new training begins: ``rounds`` of them, at equal distances."""
    return [i * total_steps // (rounds + 1) for i in range(1, rounds + 1)]


# What the frame gives, and the four options of the method.
def lottery_ticket(
    objective: Objective,
    descend: GradientUpdate,
    total_steps: int,
    *,
    rounds: int = 5,
    fraction: float = 0.2,
    rewind: int = 0,
    mask: Choice = "magnitude",
) -> Step:
    """Descent in ``rounds + 1`` trainings of equal length, each on a smaller part of the weights.

    Before each training but the first, ``fraction`` of the weights that are left are pruned, the smallest
    over all matrices together; all else, biases and batch statistics included, gets back the value that it
    had at step ``rewind``, and the optimizer forgets. Pruned weights stay 0. After round r a share
    (1 - fraction)^r is left, to one weight; the metrics hold it as ``weights_left``.

    A schedule of the learning rate runs once over all trainings, so a constant one is meant. The best weights
    of a run may be those of an earlier training: the ticket is in the last ones.

    Args:
        objective: The loss of each term.
        descend: How the gradient moves the optimizer.
        total_steps: Of all trainings together.
        rounds: How often weights are pruned, at least 1.
        fraction: Share of the weights left that a round prunes, in (0, 1).
        rewind: The step whose weights every later training begins with, within the first training.
        mask: Which weights are kept: those of largest magnitude, or as many at random, to compare with.

    Raises:
        ValueError: An option is out of range; later, the model has no matrix, the weights are averaged, a
            resumption has another length, or no weight would be left.

    Reference: Frankle and Carbin 2019, "The lottery ticket hypothesis", Section 1 (iterative
    pruning); Frankle, Dziugaite, Roy and Carbin 2020, Section 4 (rewinding).
    """
    refuse_shares("lottery_ticket", descend)
    if rounds < 1 or not 0 < fraction < 1:
        raise ValueError(f"rounds must be at least 1, fraction in (0, 1): got {rounds} and {fraction}")
    starts = boundaries(total_steps, rounds)
    if not 0 <= rewind < starts[0]:
        raise ValueError(
            f"rewind must lie within the first of {rounds + 1} trainings, of {starts[0]} steps: got {rewind}"
        )

    def step(state: State, batch: Batch) -> Metrics:
        ticket = _ticket(state, total_steps)
        if state.step == rewind:
            ticket.remember(state.model)
        if state.step in starts:
            _begin(state, ticket, (1 - fraction) ** (starts.index(state.step) + 1), mask)
        asked = BatchLoss(state, objective, descend, batch)
        grads, loss = asked.gradient()
        pruned = {id(w): ~m for w, m in zip(prunable(state.model), ticket.masks, strict=True)}
        # Masked before they are clipped and averaged, so that pruned weights have no say in either.
        for parameter, grad in zip(asked.parameters, grads, strict=True):
            if grad is not None and id(parameter) in pruned:
                grad.masked_fill_(pruned[id(parameter)], 0)
        metrics = asked.step(grads, loss)
        ticket.apply_to(state.model)
        return metrics | {"weights_left": ticket.left}

    return step


def _ticket(state: State, total_steps: int) -> Ticket:
    if "average" in state.modules:
        raise ValueError("lottery_ticket begins anew at every round: average must be 0")
    if not prunable(state.model):
        raise ValueError("lottery_ticket prunes matrices: the model has no trainable parameter of two axes")
    ticket = state.kept(NAME, lambda: Ticket(state.model, total_steps))
    if not isinstance(ticket, Ticket):
        raise TypeError(f"the state keeps another module as {NAME}: {type(ticket).__name__}")
    if (began := int(ticket.get_buffer("total_steps"))) != total_steps:
        raise ValueError(
            f"the rounds are cut from all steps: got {total_steps}, the training began with {began}"
        )
    return ticket


def _begin(state: State, ticket: Ticket, share: float, choice: Choice) -> None:
    """Prune to a share of all weights, rewind the others, and let the optimizers forget."""
    weights = prunable(state.model)
    count = round(share * sum(weight.numel() for weight in weights))
    if count == 0:
        raise ValueError("a ticket needs weights: so many rounds of so large a fraction leave none")
    scores = [weight.detach().abs() for weight in weights]
    if choice == "random":
        generator = Generator().manual_seed(mix(state.seed, state.step, 53))
        scores = [torch.rand(w.shape, generator=generator, dtype=torch.float64).to(w.device) for w in weights]
    ticket.prune(scores, count)
    ticket.rewind(state.model)
    for optimizer in state.optimizers.values():
        optimizer.state.clear()
