"""Parallel distributed processing (Rumelhart, Hinton and McClelland 1986): a network as seven parts.

A set of units with a state of activation, an output function, a pattern of connectivity, a rule of
propagation, a rule of activation, a rule of learning, and an environment. The environment is where stimuli
come from; a loss, if there is one, belongs to the rule of learning.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from margin.classic.memory.associative_memory import check_signs

Vector = Float[Tensor, " _"]
Matrix = Float[Tensor, "_ _"]
Rule = Callable[["PDPModel", Tensor | None], None]
"""``(model, teacher) -> None``: moves the weights of the model in place; the teacher is what was wanted."""


class Projection(NamedTuple):
    """Connections from one group of units to another.

    Args:
        source: The units they come from.
        target: The units they lead to.
        weight: Their weights, one row a target.
    """

    source: slice
    target: slice
    weight: Float[Tensor, "targets sources"]


@dataclass(frozen=True, slots=True, eq=False)
class PDPModel:
    """A network of units, as the seven parts of Rumelhart, Hinton and McClelland.

    Args:
        state: The activation of every unit, changed in place.
        output: ``activation -> output`` of units.
        connectivity: Projections, in the order in which they take effect.
        propagate: ``(weights, outputs of the sources) -> net input`` of the targets.
        activate: ``(net input, activation) -> activation`` of the targets.
        learn: Moves the weights after a stimulus has been passed on.
        environment: Stimuli, each with what is wanted, or None.

    Reference: Rumelhart, Hinton and McClelland 1986, Chapter 2 of "Parallel Distributed Processing".
    """

    state: Float[Tensor, " units"]
    output: Callable[[Tensor], Tensor]
    connectivity: Sequence[Projection]
    propagate: Callable[[Tensor, Tensor], Tensor]
    activate: Callable[[Tensor, Tensor], Tensor]
    learn: Rule
    environment: Iterable[tuple[Tensor, Tensor | None]]


def clamp(model: PDPModel, stimulus: Float[Tensor, " inputs"]) -> None:
    """Set the first units to a stimulus."""
    model.state[: len(stimulus)] = stimulus


def pass_on(model: PDPModel) -> None:
    """Let every projection take effect once, in order."""
    for source, target, weight in model.connectivity:
        net = model.propagate(weight, model.output(model.state[source]))
        model.state[target] = model.activate(net, model.state[target])


def settle(model: PDPModel, *, most: int = 100) -> int:
    """Pass on until nothing changes; how often something did.

    Raises:
        ValueError: The state still changes after ``most`` times.
    """
    for times in range(most):
        before = model.state.clone()
        pass_on(model)
        if torch.equal(before, model.state):
            return times
    raise ValueError(f"the state must come to rest within {most} passes: it does not")


def experience(model: PDPModel) -> None:
    """Meet every stimulus of the environment once: clamp it, pass it on, learn."""
    for stimulus, wanted in model.environment:
        clamp(model, stimulus)
        pass_on(model)
        model.learn(model, wanted)


def generalized_delta(
    weights: Sequence[Matrix], outputs: Sequence[Vector], slopes: Sequence[Vector], gradient: Vector
) -> list[Matrix]:
    r"""The gradient of a loss in every layer's weights, by the deltas passed back from the outputs.

    .. math:: \delta_L = \nabla_a \ell \odot \phi'(z_L), \quad
              \delta_l = (W_{l+1}^\top \delta_{l+1}) \odot \phi'(z_l), \quad
              \partial\ell / \partial W_l = \delta_l x_{l-1}^\top

    Args:
        weights: W_1, ..., W_L. Where a layer's first source is a unit that is always 1, its column is that of
            the biases; such a unit has no row.
        outputs: x_0, ..., x_{L-1}: what each layer reads, that unit included.
        slopes: phi'(z_1), ..., phi'(z_L).
        gradient: The gradient of the loss in the last layer's activations.

    Returns:
        One gradient a layer.

    Reference: Rumelhart, Hinton and Williams 1986, Section "The generalized delta rule".
    """
    delta = gradient * slopes[-1]
    gradients = [torch.outer(delta, outputs[-1])]
    for layer in range(len(weights) - 2, -1, -1):
        back = weights[layer + 1].T @ delta
        delta = back[len(back) - len(slopes[layer]) :] * slopes[layer]
        gradients.insert(0, torch.outer(delta, outputs[layer]))
    return gradients


# three networks in seven parts


def identity(activation: Tensor) -> Tensor:
    """The output function of units that show their activation."""
    return activation


def weighted_sum(weight: Tensor, outputs: Tensor) -> Tensor:
    """The rule of propagation of all three: net input = weights x outputs."""
    return weight @ outputs


def replaced(net: Tensor, activation: Tensor) -> Tensor:
    """The rule of activation of linear units: the net input."""
    return net


def perceptron(x: Float[Tensor, "rows inputs"], sign: Float[Tensor, " rows"]) -> PDPModel:
    """Rosenblatt's perceptron: one linear unit, corrected by y x where y times its activation is at most 0.

    Args:
        x: Rows of inputs; a unit that is always 1, the first, is added for the bias.
        sign: The side y of each row, -1 or +1.
    """
    inputs = torch.cat((torch.ones_like(x[:, :1]), x), 1)
    count = inputs.shape[1]
    weight = torch.zeros_like(inputs[:1])

    def learn(model: PDPModel, wanted: Tensor | None) -> None:
        if wanted is not None and bool(wanted * model.state[-1] <= 0):
            weight.add_(wanted * model.state[:-1])

    return PDPModel(
        state=torch.zeros_like(torch.cat((inputs[0], inputs[0, :1]))),
        output=identity,
        connectivity=(Projection(slice(0, count), slice(count, count + 1), weight),),
        propagate=weighted_sum,
        activate=replaced,
        learn=learn,
        environment=list(zip(inputs, sign, strict=True)),
    )


def hopfield(patterns: Float[Tensor, "patterns units"]) -> PDPModel:
    """Hopfield's network: every unit reads every other, one projection a unit, learning by coincidence.

    The weights are n times those of the Hebbian rule, whole numbers. While it learns the stimulus is held:
    learning reads the clamped pattern from the environment, not the state to which it has moved.

    Args:
        patterns: Patterns of -1 and +1, one a row.

    Raises:
        ValueError: An entry is neither -1 nor +1; the message names row and unit.
    """
    check_signs(patterns)
    units = patterns.shape[1]
    weight = torch.zeros_like(patterns[:1]).expand(units, units).clone()

    def sign(net: Tensor, activation: Tensor) -> Tensor:
        return torch.where(net >= 0, 1.0, -1.0).to(net.dtype)

    def learn(model: PDPModel, wanted: Tensor | None) -> None:
        if wanted is not None:
            weight.add_(torch.outer(wanted, wanted)).fill_diagonal_(0)

    return PDPModel(
        state=torch.zeros_like(patterns[0]),
        output=identity,
        connectivity=tuple(
            Projection(slice(0, units), slice(i, i + 1), weight[i : i + 1]) for i in range(units)
        ),
        propagate=weighted_sum,
        activate=sign,
        learn=learn,
        environment=[(pattern, pattern) for pattern in patterns],
    )


def multilayer(
    weights: Sequence[Matrix],
    x: Float[Tensor, "rows inputs"],
    y: Float[Tensor, "rows outputs"],
    *,
    lr: float,
) -> PDPModel:
    """A multilayer perceptron of tanh units that learns by the generalized delta rule.

    The loss of a stimulus is half the squared distance of the outputs from what is wanted.

    Args:
        weights: One matrix a layer, moved in place; the first column is that of the biases.
        x: Rows of inputs.
        y: What is wanted of each row.
        lr: Length of a step.
    """
    sizes = [x.shape[1], *(len(weight) for weight in weights)]
    starts = [sum(size + 1 for size in sizes[:layer]) for layer in range(len(sizes))]
    # a layer is a unit that is always 1, then its own
    sources = [slice(start, start + size + 1) for start, size in zip(starts, sizes, strict=True)]
    targets = [slice(start + 1, start + 1 + size) for start, size in zip(starts, sizes, strict=True)]
    state = x.new_zeros(starts[-1] + sizes[-1] + 1)
    state[starts] = 1

    def learn(model: PDPModel, wanted: Tensor | None) -> None:
        if wanted is None:
            return
        outputs = [model.state[source] for source in sources[:-1]]
        activations = [model.state[target] for target in targets[1:]]
        slopes = [1 - activation.square() for activation in activations]
        found = generalized_delta(weights, outputs, slopes, activations[-1] - wanted)
        for weight, gradient in zip(weights, found, strict=True):
            weight.sub_(lr * gradient)

    return PDPModel(
        state=state,
        output=identity,
        connectivity=[
            Projection(source, target, weight)
            for source, target, weight in zip(sources, targets[1:], weights, strict=False)
        ],
        propagate=weighted_sum,
        activate=lambda net, activation: net.tanh(),
        learn=learn,
        environment=[(torch.cat((row.new_ones(1), row)), wanted) for row, wanted in zip(x, y, strict=True)],
    )
