r"""A sparse matrix times dense columns, :math:`y_r = \sum_{e \in r} w_e x_{c(e)}`, differentiable in w and x.

Every aggregation over the edges of a graph is one, and so is a layer on features that are mostly 0. Entries
are sorted by row once and by column once; then the sums and their derivatives are read in order, and nothing
of size entries x columns is formed. Torch's kernel for bags of embeddings does the sums, the fastest it has.
"""

import warnings
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.utils.weak import WeakIdKeyDictionary

Values = Float[Tensor, " entries"]
MOST = 2**31 - 1
"""Rows, columns and entries that can be counted in 32 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Where a sparse matrix has entries: by row, and how the same entries lie by column.

    Two entries at one place are added. All numbers are of 32 bits.

    Args:
        shape: Rows and columns.
        column: The column of each entry, entries by row.
        starts: Where each row begins among the entries, and where the last ends.
        order: The place of each entry in the list from which the pattern was made.
        turn: The place, by row, of each entry in the order by column.
        turned_row: The row of each entry, entries by column.
        turned_starts: Where each column begins, and where the last ends.
    """

    shape: tuple[int, int]
    column: Int[Tensor, " entries"]
    starts: Int[Tensor, " rows_and_end"]
    order: Int[Tensor, " entries"]
    turn: Int[Tensor, " entries"]
    turned_row: Int[Tensor, " entries"]
    turned_starts: Int[Tensor, " columns_and_end"]

    @property
    def row(self) -> Int[Tensor, " entries"]:
        """The row of each entry, entries by row."""
        numbers = torch.arange(self.shape[0], dtype=torch.int32, device=self.column.device)
        return numbers.repeat_interleave(self.starts.diff(), output_size=len(self.column))

    @property
    def turned(self) -> "Pattern":
        """The pattern of the transposed matrix, whose entries lie by column of this one."""
        back = torch.empty_like(self.turn)
        back[self.turn.long()] = torch.arange(len(back), dtype=torch.int32, device=back.device)
        return Pattern(
            shape=(self.shape[1], self.shape[0]),
            column=self.turned_row,
            starts=self.turned_starts,
            order=self.order.index_select(0, self.turn),
            turn=back,
            turned_row=self.column,
            turned_starts=self.starts,
        )


def pattern(row: Int[Tensor, " entries"], column: Int[Tensor, " entries"], shape: tuple[int, int]) -> Pattern:
    """The pattern of a list of entries, which may come in any order.

    Raises:
        ValueError: There are more rows, columns or entries than 32 bits can count.
    """
    if max(*shape, len(row)) > MOST:
        raise ValueError(
            f"a sparse matrix has at most {MOST} rows, columns and entries: got {shape}, {len(row)}"
        )
    order = row.argsort(stable=True)
    by_row = column[order]
    turn = by_row.argsort(stable=True)
    return Pattern(
        shape=shape,
        column=by_row.int(),
        starts=_starts(row, shape[0]),
        order=order.int(),
        turn=turn.int(),
        turned_row=row[order[turn]].int(),
        turned_starts=_starts(column, shape[1]),
    )


def _starts(place: Tensor, count: int) -> Tensor:
    found = torch.zeros(count + 1, dtype=torch.int32, device=place.device)
    found[1:] = place.bincount(minlength=count).cumsum(0)
    return found


def product(where: Pattern, values: Values, x: Float[Tensor, "columns width"]) -> Float[Tensor, "rows width"]:
    """The matrix with these values times ``x``; a row without entries gives 0.

    Differentiable in both any number of times, forward and backward, and under ``torch.vmap``.

    Args:
        where: Where the entries are.
        values: The entry at each place, by row.
        x: What the matrix is applied to, of the type of the values.
    """
    if torch.compiler.is_compiling():
        return plain_product(where, values, x)
    found: Tensor = _Product.apply(values, x, where)
    return found


def plain_product(where: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """As :func:`product`, entry by entry: it forms a tensor of size entries x width."""
    terms = values[:, None] * x.index_select(0, where.column)
    return x.new_zeros(where.shape[0], x.shape[1]).index_add(0, where.row, terms)


def bag(where: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """The matrix times ``x``, without derivatives."""
    if x.shape[1] == 0:
        return x.new_zeros(where.shape[0], 0)
    return F.embedding_bag(
        where.column, x, where.starts, mode="sum", per_sample_weights=values, include_last_offset=True
    )


def turned_bag(where: Pattern, values: Tensor, g: Tensor) -> Tensor:
    """The transposed matrix times ``g``, without derivatives; values by row."""
    if g.shape[1] == 0:
        return g.new_zeros(where.shape[1], 0)
    return F.embedding_bag(
        where.turned_row,
        g,
        where.turned_starts,
        mode="sum",
        per_sample_weights=values.index_select(0, where.turn),
        include_last_offset=True,
    )


def inner(where: Pattern, g: Float[Tensor, "rows width"], x: Float[Tensor, "columns width"]) -> Values:
    """The inner product g_r . x_c at every entry (r, c), by row; without derivatives."""
    if len(where.column) > where.shape[0] * where.shape[1] or g.shape[1] == 0:
        return plain_inner(where, g, x)  # the kernel takes no more entries than there are places
    wide = torch.promote_types(g.dtype, torch.float32)  # nor numbers of 16 bits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its own format beta, once a process
        ones = torch.sparse_csr_tensor(
            where.starts,
            where.column,
            torch.ones(len(where.column), dtype=wide, device=g.device),
            where.shape,
            check_invariants=False,
        )
    return torch.sparse.sampled_addmm(ones, g.to(wide), x.to(wide).T, beta=0.0).values()


class _Product(Function):
    @staticmethod
    def forward(values: Tensor, x: Tensor, where: Pattern) -> Tensor:
        return bag(where, values, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Pattern], output: Tensor) -> None:
        values, x, ctx.where = inputs
        # each is needed for the other's derivative only; a graph's own values have none
        ctx.save_for_backward(
            values if ctx.needs_input_grad[1] else None, x if ctx.needs_input_grad[0] else None
        )
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(values, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (g,), where, (values, x) = grads, ctx.where, ctx.saved_tensors
        again, of_values, of_x = torch.is_grad_enabled(), None, None
        if ctx.needs_input_grad[0]:
            of_values = (plain_inner if again else inner)(where, g, x).to(values.dtype)
        if ctx.needs_input_grad[1]:
            if again:
                of_x = product(where.turned, values.index_select(0, where.turn), g)
            else:
                of_x = turned_bag(where, values, g)
        return of_values, of_x, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (of_values, of_x, _), where, (values, x) = tangents, ctx.where, ctx.saved_tensors
        terms = [] if of_values is None else [product(where, of_values, x)]
        terms += [] if of_x is None else [product(where, values, of_x)]
        found: Tensor = sum(terms[1:], terms[0])
        return found

    @staticmethod
    def vmap(info: Any, in_dims: Any, values: Tensor, x: Tensor, where: Pattern) -> tuple[Tensor, int]:
        return torch.vmap(lambda w, z: plain_product(where, w, z), in_dims[:2])(values, x), 0


def plain_inner(where: Pattern, g: Tensor, x: Tensor) -> Tensor:
    """As :func:`inner`, differentiable; it forms tensors of size entries x width."""
    return (g.index_select(0, where.row) * x.index_select(0, where.column)).sum(1)


EdgeIndex = Int[Tensor, "2 edges"]


EdgeWeight = Literal["none", "first"]


def coupling(
    edge_index: EdgeIndex, num_nodes: int, weight: Float[Tensor, " edges"]
) -> tuple[Int[Tensor, "2 joined"], Float[Tensor, " joined"]]:
    r"""The entries :math:`(a_{ij} + \delta_{ij}) / \sqrt{d_i d_j}`, of the edges, then a loop a node.

    a_ij is the summed weight of the edges from j to i, and d_i = 1 + sum_j a_ij. A loop of weight w that is
    already there makes the diagonal w + 1, as A + I says (PyTorch Geometric leaves it at w). A node without
    edges has the diagonal 1. Of a directed graph d_i counts the edges that reach i.

    Args:
        edge_index: Row 0 is j, row 1 is i.
        num_nodes: M.
        weight: Of each edge, at least 0; differentiable.

    Returns:
        The edges with the loops appended, and the entry of each.

    Raises:
        ValueError: A weight is negative or NaN.

    Reference: Kipf and Welling 2017, Equation 2 with the renormalization of Section 2.2.
    """
    weight = _checked(weight)
    nodes = torch.arange(num_nodes, device=edge_index.device)
    both = torch.cat((edge_index, nodes.expand(2, -1)), 1)
    a = torch.cat((weight, weight.new_ones(num_nodes)))
    root = a.new_zeros(num_nodes).index_add(0, both[1], a).rsqrt()
    return both, root[both[0]] * a * root[both[1]]


def coupling_matrix(edge_index: EdgeIndex, num_nodes: int, weight: Float[Tensor, " edges"]) -> Tensor:
    """A_hat (M, M) as torch's sparse COO tensor, the entry (i, j) in row i."""
    both, values = coupling(edge_index, num_nodes, weight)
    found = torch.sparse_coo_tensor(both.flip(0), values, (num_nodes, num_nodes), check_invariants=False)
    return found.coalesce()


def weights_of(
    edge_attr: Float[Tensor, "edges edge_width"], edge_weight: EdgeWeight
) -> Float[Tensor, " edges"]:
    """What each edge weighs: 1, or its first feature.

    Raises:
        ValueError: The first feature is wanted and there is none.
    """
    if edge_weight == "none":
        return edge_attr.new_ones(len(edge_attr))
    if edge_attr.shape[1] == 0:
        raise ValueError("edge_weight=first needs edges that carry a feature: these carry none")
    return edge_attr[:, 0]


def coupled(
    edge_index: EdgeIndex,
    edge_attr: Float[Tensor, "edges edge_width"],
    num_nodes: int,
    edge_weight: EdgeWeight,
) -> tuple[Pattern, Float[Tensor, " joined"]]:
    """Where A_hat has entries, and which, by row; computed once for the same tensors of edges.

    Raises:
        ValueError: As :func:`coupling` and :func:`weights_of`.
    """
    return cached_by_tensor(_coupled, (edge_index, edge_attr), num_nodes, edge_weight)


def _coupled(
    edge_index: Tensor, edge_attr: Tensor, num_nodes: int, edge_weight: EdgeWeight
) -> tuple[Pattern, Tensor]:
    both, values = coupling(edge_index, num_nodes, weights_of(edge_attr, edge_weight))
    where = pattern(both[1], both[0], (num_nodes, num_nodes))
    return where, values.index_select(0, where.order)


def shares(
    edge_index: EdgeIndex,
    edge_attr: Float[Tensor, "edges edge_width"],
    num_nodes: int,
    edge_weight: EdgeWeight,
) -> tuple[Pattern, Float[Tensor, " edges"]]:
    r"""The entries :math:`a_{ij} / \sum_k a_{ik}` that average what reaches a node, by row; computed once.

    The row of a node that no weight reaches is 0.

    Raises:
        ValueError: A weight is negative or NaN, or the first feature is wanted and there is none.
    """
    return cached_by_tensor(_shares, (edge_index, edge_attr), num_nodes, edge_weight)


def _shares(
    edge_index: Tensor, edge_attr: Tensor, num_nodes: int, edge_weight: EdgeWeight
) -> tuple[Pattern, Tensor]:
    weight = _checked(weights_of(edge_attr, edge_weight))
    where = pattern(edge_index[1], edge_index[0], (num_nodes, num_nodes))
    total = weight.new_zeros(num_nodes).index_add(0, edge_index[1], weight)
    share = weight / total.masked_fill(total == 0, 1.0)[edge_index[1]]
    return where, share.index_select(0, where.order)


def _checked(weight: Float[Tensor, " edges"]) -> Float[Tensor, " edges"]:
    if not bool((weight >= 0).all()):
        edge = int((~(weight >= 0)).nonzero()[0])
        raise ValueError(f"edge weights must be at least 0: edge {edge} has {weight[edge].item():g}")
    return weight


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept:
    versions: tuple[int, ...]
    others: tuple[weakref.ref[Tensor], ...]
    value: Any


_SHELVES: WeakIdKeyDictionary = WeakIdKeyDictionary()


def cached_by_tensor(make: Callable[..., T], tensors: tuple[Tensor, ...], *options: Hashable) -> T:
    """``make(*tensors, *options)``, computed once for these very tensors as they are.

    Whether a tensor has changed is told by torch's own count of writes into it, which does not see what is
    written through an array of numpy that shares its memory, nor through ``.data``. For tensors that require
    a gradient, belong to ``torch.inference_mode`` or to a transform, it is computed at every call.

    Args:
        make: A pure function. It must not return its arguments nor views of them, which would not be freed.
        tensors: What it reads, at least one.
        options: Its other arguments, by which results are told apart.
    """
    if not all(map(_plain, tensors)):
        return make(*tensors, *options)
    first, *others = tensors
    shelf = _SHELVES.setdefault(first, {})
    key = (make, options, tuple(map(id, others)))
    versions = tuple(tensor._version for tensor in tensors)
    found: _Kept | None = shelf.get(key)
    if found is not None and found.versions == versions and _same(found, others):
        value: T = found.value
        return value
    # a tensor of inference mode could not be used in a training later
    with torch.inference_mode(False), torch.no_grad():
        value = make(*tensors, *options)
    for gone in [k for k, one in shelf.items() if any(ref() is None for ref in one.others)]:
        del shelf[gone]
    shelf[key] = _Kept(versions, tuple(map(weakref.ref, others)), value)
    return value


def _plain(tensor: Tensor) -> bool:
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return not (
        wrapped or tensor.requires_grad or tensor.is_inference() or torch.compiler.is_compiling()
    ) and type(tensor) in (Tensor, torch.nn.Parameter)


def _same(found: _Kept, others: list[Tensor]) -> bool:
    return all(ref() is tensor for ref, tensor in zip(found.others, others, strict=True))
