"""Steps of adversarial training: rounds of a critic and a generator (Goodfellow et al. 2014, Algorithm 1).

A step is one round of the critic on one batch. Every ``critic_rounds``-th is one of the generator too.
Where both players move at once (simultaneous, extragradient, optimistic) every step moves both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.batch_loss import elsewhere, refuse_shares
from margin.engine.loop import GradientUpdate, State, Step
from margin.engine.parallel.processes import averaged_number, world
from margin.generative.gan.games import Game, Terms
from margin.generative.gan.gradient_penalty import clip_weights
from margin.nn.preprocessed import device_of

Method = Literal["alternating", "simultaneous", "extragradient", "optimistic"]
"""How the two players move."""

Move = Callable[[Game, GradientUpdate, State, Terms], Metrics]
"""``(game, descend, state, terms) -> metrics``: both players move once."""

PLAYERS = ("critic", "generator")


def rounds(
    descend: GradientUpdate,
    *,
    objective: Literal["nonsaturating", "minimax", "feature_matching"] = "nonsaturating",
    method: Method = "alternating",
    critic_rounds: int = 1,
    penalty: float = 0.1,
    where: Literal["between", "data"] = "data",
) -> Step:
    """Rounds of a discriminator, by cross-entropy, and a generator.

    The metrics are the losses of both, the share of examples that the discriminator tells rightly
    (``accuracy``: 1/2 at the solution) and the share of steps in which it has won (``won``: it gives the
    truth a probability of .99; then the generator has next to nothing to learn from).

    Args:
        descend: How a loss moves an optimizer.
        objective: What the generator minimizes: -log D, log(1 - D), or the distance of mean features.
        method: How the two move: one after the other; both at once; both along the gradients at where that
            would lead (extragradient); both along twice their step less the one before (optimistic).
        critic_rounds: Rounds of the discriminator for one of the generator, at least 1.
        penalty: Weight of the penalty on the discriminator's slope, at least 0; 0 is the first authors' game,
            which loses modes and needs luck.
        where: Where the slope is penalized: at the data for being other than 0, or between the data and the
            samples for being other than 1.

    Raises:
        ValueError: An option is out of range, or does not go with another.

    Reference:
        Goodfellow et al. 2014, Algorithm 1; Salimans et al. 2016, Section 3.1 (feature matching); Mescheder,
        Geiger and Nowozin 2018, Equation 9 (penalty at the data; theirs is half of ours).
    """
    matching = objective == "feature_matching"
    played = Game("nonsaturating" if objective == "feature_matching" else objective, matching, penalty, where)
    return _step(played, descend, method, critic_rounds, clip=0.0)


def wasserstein_rounds(
    descend: GradientUpdate,
    *,
    constraint: Literal["penalty", "clipping"] = "penalty",
    method: Method = "alternating",
    critic_rounds: int = 5,
    penalty: float = 1.0,
    clip: float = 0.01,
) -> Step:
    """Rounds of a critic whose gap of means estimates a Wasserstein distance, and a generator that closes it.

    The metrics are the losses of both, the ``gap`` and, with the penalty, the mean ``slope`` between the data
    and the samples. Only the gap over the slope is a distance.

    Args:
        descend: How a loss moves an optimizer.
        constraint: What keeps the critic's slope near 1 or below: a penalty, or a box for its weights.
        method: How the two move (see :func:`rounds`).
        critic_rounds: Rounds of the critic for one of the generator, at least 1.
        penalty: Weight lambda of the penalty, above 0; the source has 10, slow in few dimensions.
        clip: Half-width of the box, above 0.

    Raises:
        ValueError: An option is out of range, or does not go with another.

    Reference:
        Arjovsky, Chintala and Bottou 2017, Algorithm 1 (clipping); Gulrajani et al. 2017, Algorithm 1.
    """
    clipping = constraint == "clipping"
    if not (clip if clipping else penalty) > 0:
        name, value = ("clip", clip) if clipping else ("penalty", penalty)
        raise ValueError(f"{name} must be positive: got {value}")
    played = Game("wasserstein", penalty=0.0 if clipping else penalty, where="between")
    return _step(played, descend, method, critic_rounds, clip=clip if clipping else 0.0)


def _step(game: Game, descend: GradientUpdate, method: Method, critic_rounds: int, *, clip: float) -> Step:
    if critic_rounds < 1 or not game.penalty >= 0:
        raise ValueError(
            f"critic_rounds must be at least 1 and penalty at least 0: got {critic_rounds}, {game.penalty}"
        )
    if critic_rounds > 1 and method != "alternating":
        raise ValueError(f"critic_rounds must be 1 where both players move at once: got {critic_rounds}")
    if descend.pieces > 1:
        raise ValueError(f"accumulate must be 1: the players see whole batches, got {descend.pieces} pieces")
    refuse_shares("adversarial training", descend)
    if game.matching and world().size > 1:
        raise ValueError("feature matching compares means of whole batches: set --processes 1")
    alternate = partial(alternating, every=critic_rounds, clip=clip)
    move: Move = alternate if method == "alternating" else partial(AT_ONCE[method], clip=clip)

    def step(state: State, batch: Batch) -> Metrics:
        check_minibatch(state.core, game)
        metrics = move(game, descend, state, game.terms(state, batch))
        if world().size == 1:
            return metrics
        return {name: averaged_number(float(x), device_of(state.model)) for name, x in metrics.items()}

    return step


def check_minibatch(core: Any, game: Game) -> None:
    """Refuse minibatch discrimination where examples must be judged one by one.

    Raises:
        ValueError: The slope is penalized, or a batch is divided between processes.
    """
    if core.critic.batchwise is None:
        return
    if game.penalty:
        raise ValueError(
            "minibatch discrimination judges no example alone, as a penalty on the slope at each does: "
            f"set --step.penalty 0, got {game.penalty:g}"
        )
    if world().size > 1:
        raise ValueError("minibatch discrimination compares whole batches: set --processes 1")


def clipped(core: Any, clip: float) -> None:
    """Bring the critic's weights into their box, where there is one."""
    if clip:
        clip_weights(core.critic, clip)


def alternating(
    game: Game, descend: GradientUpdate, state: State, terms: Terms, *, every: int, clip: float
) -> Metrics:
    """The critic moves; at every so many steps the generator then sees where it has gone."""
    core: Any = state.core
    with torch.no_grad():
        fake = game.fakes(core, terms, state.generator)
    loss, metrics = game.critic_loss(core, terms, fake, state.generator)
    moved = descend(state, loss, "critic")
    clipped(core, clip)
    if (state.step + 1) % every == 0:
        fake = game.fakes(core, terms, state.generator)
        descend(state, game.generator_loss(core, terms, fake), "generator")
    return {"critic_loss": moved["loss"], **metrics}


Gradients = dict[str, tuple[list[Tensor | None], float]]
"""Of each player, the gradient of its loss by its parameters, and the loss."""


def gradients(game: Game, descend: GradientUpdate, state: State, terms: Terms) -> tuple[Gradients, Metrics]:
    """The field of the game: each player's gradient at where both are."""
    core: Any = state.core
    fake = game.fakes(core, terms, state.generator)
    critic, metrics = game.critic_loss(core, terms, fake.detach(), state.generator)
    losses = {"critic": critic, "generator": game.generator_loss(core, terms, fake)}
    return {
        name: (descend.gradients(state, loss, name), loss.item()) for name, loss in losses.items()
    }, metrics


def apply(descend: GradientUpdate, state: State, found: Gradients) -> Metrics:
    """Step both optimizers; the critic's metrics."""
    moved = {name: descend.apply(state, *found[name], name) for name in PLAYERS}
    return {"critic_loss": moved["critic"]["loss"]}


def simultaneous(game: Game, descend: GradientUpdate, state: State, terms: Terms, *, clip: float) -> Metrics:
    """Both players move along the gradients at where both are."""
    found, metrics = gradients(game, descend, state, terms)
    said = apply(descend, state, found)
    clipped(state.core, clip)
    return said | metrics


def extragradient(game: Game, descend: GradientUpdate, state: State, terms: Terms, *, clip: float) -> Metrics:
    """Both players move along the gradients at where a simultaneous step would have led.

    The half-step goes through the optimizers, whose moments see both gradients (ExtraAdam). Both see the same
    draws, so that with plain descent it is the extragradient step of one function (Mishchenko et al. 2020).

    Reference: Gidel, Berard, Vignoud, Vincent and Lacoste-Julien 2019, Algorithm 4.
    """
    parameters = [p for name in PLAYERS for p in descend.parameters(state, name)]
    draws = state.generator.get_state()
    with elsewhere(parameters):
        found, metrics = gradients(game, descend, state, terms)
        said = apply(descend, state, found)
        clipped(state.core, clip)
        state.generator.set_state(draws)
        ahead, _ = gradients(game, descend, state, terms)
    apply(descend, state, ahead)
    clipped(state.core, clip)
    return said | metrics


def optimistic(game: Game, descend: GradientUpdate, state: State, terms: Terms, *, clip: float) -> Metrics:
    """Both players move by twice the step of their optimizers, less the one before.

    Reference: Daskalakis, Ilyas, Syrgkanis and Zeng 2018, Algorithm 1 (optimistic Adam).
    """
    parameters = [p for name in PLAYERS for p in descend.parameters(state, name)]
    before = [p.detach().clone() for p in parameters]
    found, metrics = gradients(game, descend, state, terms)
    said = apply(descend, state, found)
    kept = state.kept("last_moves", partial(LastMoves, parameters))
    with torch.no_grad():
        for parameter, start, last in zip(parameters, before, kept.buffers(), strict=True):
            move = parameter - start
            if state.step:  # the first step has none before it
                parameter.add_(move - last)
            last.copy_(move)
    clipped(state.core, clip)
    return said | metrics


AT_ONCE: dict[str, Callable[..., Metrics]] = {
    "simultaneous": simultaneous,
    "extragradient": extragradient,
    "optimistic": optimistic,
}
"""The methods by which both players move at once."""


class LastMoves(nn.Module):
    """By how much an optimizer last moved each parameter.

    Args:
        parameters: The parameters, in order.
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__()
        for i, parameter in enumerate(parameters):
            self.register_buffer(f"move_{i}", torch.zeros_like(parameter.detach()))
