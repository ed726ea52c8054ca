"""The kinds of subject that questions of this area are put to: models of graphs, of their nodes, of sets.

What a model reads is seen in its inputs, (x, edge_index, edge_attr, sizes) or (x, mask), so that a user's own
module is asked as ours are. A set of one size comes as x alone, as a sequence does; then the model says that
it reads sets, by an attribute ``reads_sets = True`` of its own or of a layer, as a pooling of sets has it.
"""

import torch
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.engine.evaluation import eval_mode


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
    return tuple(x.double() if x.is_floating_point() else x for x in subject.test[0].inputs)
