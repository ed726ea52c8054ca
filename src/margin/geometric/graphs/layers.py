"""The layers of a graph model that pass messages, and what they are given when the model is asked once.

A layer is found by how it is called: with one row of features a node and with edges. So a user's own layer is
found as ours are; a module that calls such layers is none itself.

The kinds of subject that questions of this area are put to: models of graphs, of their nodes, of sets.

What a model reads is seen in its inputs, (x, edge_index, edge_attr, sizes) or (x, mask), so that a user's own
module is asked as ours are. A set of one size comes as x alone, as a sequence does; then the model says that
it reads sets, by an attribute ``reads_sets = True`` of its own or of a layer, as a pooling of sets has it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Premise, Subject
from margin.core.types import Batch
from margin.engine.evaluation import capture, eval_mode, in_double
from margin.geometric.graphs.message_passing import steps_to
from margin.math.evenly import evenly


def is_graph_input(inputs: tuple[Tensor, ...]) -> bool:
    """Whether inputs are (x (M, d), edge_index (2, E), edge_attr (E, d_e), sizes (B,))."""
    if len(inputs) != 4:
        return False
    x, edge_index, edge_attr, sizes = inputs
    whole = edge_index.dtype == sizes.dtype == torch.int64
    real = x.is_floating_point() and edge_attr.is_floating_point()
    if not (whole and real and x.ndim == edge_index.ndim == edge_attr.ndim == 2 and sizes.ndim == 1):
        return False
    fits = len(edge_index) == 2 and len(edge_attr) == edge_index.shape[1]
    return fits and int(sizes.sum()) == len(x)


def is_set_input(inputs: tuple[Tensor, ...]) -> bool:
    """Whether inputs are (x (B, M, k),), or that with a mask (B, M) of the elements that are there."""
    if not 1 <= len(inputs) <= 2 or not inputs[0].is_floating_point() or inputs[0].ndim != 3:
        return False
    return len(inputs) == 1 or (inputs[1].dtype == torch.bool and inputs[1].shape == inputs[0].shape[:2])


def is_graph(subject: Subject) -> bool:
    """Whether the model reads graphs."""
    return len(subject.test) > 0 and is_graph_input(subject.test[0].inputs)


def is_node_model(subject: Subject) -> bool:
    """Whether the model reads a graph and says something of every node."""
    return is_graph(subject) and _rows(subject) == len(subject.test[0].inputs[0])


def is_graph_model(subject: Subject) -> bool:
    """Whether the model reads graphs and says something of every graph."""
    return is_graph(subject) and not is_node_model(subject)


def is_set_model(subject: Subject) -> bool:
    """Whether the model reads sets, not sequences."""
    if not subject.test or not is_set_input(subject.test[0].inputs):
        return False
    return len(subject.test[0].inputs) == 2 or any(map(_reads_sets, subject.model.modules()))


def has_no_order(subject: Subject) -> bool:
    """Whether a model takes sets or graphs, and none of its parts knows nodes by their numbers."""
    numbered = any(getattr(module, "numbers_nodes", False) for module in subject.model.modules())
    return is_set_or_graph(subject) and not numbered


def is_set_or_graph(subject: Subject) -> bool:
    """Whether the model reads what has no order: elements of a set, or nodes of a graph."""
    return is_graph(subject) or is_set_model(subject)


def _reads_sets(module: nn.Module) -> bool:
    return getattr(module, "reads_sets", False) is True


def _rows(subject: Subject) -> int:
    """The number of the model's answers on the first batch, by its targets where there are."""
    batch = subject.test[0]
    if batch.targets is not None:
        return len(batch.targets)
    with torch.no_grad(), eval_mode(subject.model):
        return len(subject.model(*batch.inputs))


def first_inputs(subject: Subject) -> tuple[Tensor, ...]:
    """The inputs of the first held-out batch, real ones in float64."""
    return exact_inputs(subject.test[0])


def exact_inputs(batch: Batch) -> tuple[Tensor, ...]:
    """The inputs of a batch, real ones in float64."""
    return tuple(x.double() if x.is_floating_point() else x for x in batch.inputs)


PROBED = 8
"""Nodes at which derivatives are looked at."""


class LayerCall(NamedTuple):
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


class CapturedLayers(NamedTuple):
    """A model asked once: the inputs that it got, the calls of its layers in their order, its output."""

    inputs: tuple[Tensor, ...]
    calls: list[LayerCall]
    output: Tensor


def captured_layers(subject: Subject) -> CapturedLayers:
    """The model's layers that pass messages, on the first held-out batch, with a graph of derivatives.

    Args:
        subject: A model of graphs.
    """
    model, inputs = in_double(subject.model), first_inputs(subject)
    # features that need a derivative are read as they are, not sparsely
    inputs = (inputs[0].detach().requires_grad_(), *inputs[1:])
    names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
    with torch.enable_grad(), eval_mode(model), capture(model.modules()) as every:
        output = model(*inputs)
    calls = [
        LayerCall(names[id(call.module)], call.module, call.args, dict(call.kwargs), call.output)
        for call in every
        if _passes_messages(call.args, call.kwargs, call.output, len(inputs[0]))
    ]
    found = {id(call.layer) for call in calls}
    innermost = [
        call
        for call in calls
        if not any(id(module) in found for module in call.layer.modules() if module is not call.layer)
    ]
    return CapturedLayers(inputs, innermost, output)


def _passes_messages(given: Any, options: Mapping[str, Any], answer: Any, nodes: int) -> bool:
    everything = [*given, *options.values()]
    edges = any(
        isinstance(e, Tensor) and e.dtype == torch.int64 and e.ndim == 2 and len(e) == 2 for e in everything
    )
    features = bool(given) and isinstance(given[0], Tensor) and given[0].is_floating_point()
    rows = isinstance(answer, Tensor) and answer.ndim == 2 and len(answer) == nodes
    return edges and features and len(given[0]) == nodes and rows


def probed(nodes: int, most: int = PROBED) -> list[int]:
    """At most so many nodes, evenly spread over the list."""
    return sorted(set(evenly(nodes, most).tolist()))


def steps_of(call: LayerCall) -> int:
    """How many edges a message goes in one layer: what its attribute ``hops`` says, 1 without it."""
    return int(getattr(call.layer, "hops", 1))


def reads_neighbors(call: LayerCall, edge_index: Tensor) -> Premise:
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
    calls = captured_layers(subject).calls if is_graph(subject) else []
    return bool(calls) and all(call.gave.requires_grad for call in calls)
