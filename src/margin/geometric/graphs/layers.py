"""The layers of a graph model that pass messages, and what they are given when the model is asked once.

A layer is found by how it is called: with one row of features a node and with edges. So a user's own layer is
found as ours are; a module that calls such layers is none itself.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Premise, Subject
from margin.engine.evaluation import eval_mode, in_double
from margin.geometric.graphs.hops import steps_to
from margin.geometric.graphs.subjects import first_inputs, is_graph

PROBED = 8
"""Nodes at which derivatives are looked at."""


class Heard(NamedTuple):
    """A call of a layer inside a model, part of one graph of derivatives.

    Args:
        name: Of the layer in the model.
        layer: The layer, in float64.
        given: What it was called with, by position; the features of the nodes are first.
        options: What it was called with by name.
        gave: What it answered.
    """

    name: str
    layer: nn.Module
    given: tuple[Any, ...]
    options: dict[str, Any]
    gave: Float[Tensor, "nodes outputs"]

    @property
    def x(self) -> Float[Tensor, "nodes features"]:
        """The features of the nodes that the layer read."""
        x: Tensor = self.given[0].detach()
        return x

    def ask(self, x: Float[Tensor, "nodes features"]) -> Float[Tensor, "nodes outputs"]:
        """The layer's answer to other features on the same graph."""
        answer: Tensor = self.layer(x, *self.given[1:], **self.options)
        return answer


class Listened(NamedTuple):
    """A model asked once: the inputs that it got, the calls of its layers in their order, its output."""

    inputs: tuple[Tensor, ...]
    calls: list[Heard]
    output: Tensor


def listened(subject: Subject) -> Listened:
    """The model's layers that pass messages, on the first held-out batch, with a graph of derivatives.

    Args:
        subject: A model of graphs.
    """
    model, inputs = in_double(subject.model), first_inputs(subject)
    # features that need a derivative are read as they are, not sparsely
    inputs = (inputs[0].detach().requires_grad_(), *inputs[1:])
    calls: list[Heard] = []

    def listen(name: str) -> Any:
        def hook(module: nn.Module, given: Any, options: dict[str, Any], answer: Any) -> None:
            if _passes_messages(given, options, answer, len(inputs[0])):
                calls.append(Heard(name or type(module).__name__, module, given, options, answer))

        return hook

    handles = [
        module.register_forward_hook(listen(name), with_kwargs=True) for name, module in model.named_modules()
    ]
    with torch.enable_grad(), eval_mode(model):
        output = model(*inputs)
    for handle in handles:
        handle.remove()
    found = {id(call.layer) for call in calls}
    innermost = [
        call
        for call in calls
        if not any(id(module) in found for module in call.layer.modules() if module is not call.layer)
    ]
    return Listened(inputs, innermost, output)


def _passes_messages(given: Any, options: dict[str, Any], answer: Any, nodes: int) -> bool:
    everything = [*given, *options.values()]
    edges = any(
        isinstance(e, Tensor) and e.dtype == torch.int64 and e.ndim == 2 and len(e) == 2 for e in everything
    )
    features = bool(given) and isinstance(given[0], Tensor) and given[0].is_floating_point()
    rows = isinstance(answer, Tensor) and answer.ndim == 2 and len(answer) == nodes
    return edges and features and len(given[0]) == nodes and rows


def probed(nodes: int, most: int = PROBED) -> list[int]:
    """At most so many nodes, evenly spread over the list."""
    return sorted(set(torch.linspace(0, max(nodes - 1, 0), min(most, nodes)).round().long().tolist()))


def steps_of(call: Heard) -> int:
    """How many edges a message goes in one layer: what its attribute ``hops`` says, 1 without it."""
    return int(getattr(call.layer, "hops", 1))


def reads_neighbors(call: Heard, edge_index: Tensor) -> Premise:
    """The premise that a node reads those nearby alone: a layer's derivatives by all others are exactly 0.

    Args:
        call: The layer.
        edge_index: The edges of the graph that it was asked on.
    """
    nodes = probed(len(call.x))
    far = steps_to(torch.tensor(nodes, dtype=torch.int64), edge_index, len(call.x)) > steps_of(call)
    x = call.x.requires_grad_()
    with torch.enable_grad():
        answer = call.ask(x)
        v = torch.randn(answer.shape[1], generator=Generator().manual_seed(0), dtype=answer.dtype)
        beyond = [
            torch.autograd.grad(answer[node] @ v.to(answer), x, retain_graph=True, materialize_grads=True)[0]
            .abs()
            .amax(1)[far[place].to(x.device)]
            for place, node in enumerate(nodes)
        ]
    largest = float(torch.cat(beyond).amax()) if sum(map(len, beyond)) else 0.0
    text = f"in {call.name} a node reads those within {steps_of(call)} steps alone"
    if largest == 0:
        return Premise(text, "sampled", f"its derivatives at {len(nodes)} nodes by all further ones are 0")
    return Premise(text, "refuted", f"{call.name} has a derivative of {largest:.3g} by a node further away")


def passes_messages(subject: Subject) -> bool:
    """Whether the model has layers that are called with features of nodes and edges, and differentiably."""
    calls = listened(subject).calls if is_graph(subject) else []
    return bool(calls) and all(call.gave.requires_grad for call in calls)
