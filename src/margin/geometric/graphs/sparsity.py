r"""A sparse matrix times dense columns, :math:`y_r = \sum_{e \in r} w_e x_{c(e)}`, differentiable in w and x.

Every aggregation over the edges of a graph is one, and so is a layer on features that are mostly 0. Entries
are sorted by row once and by column once; then the sums and their derivatives are read in order, and nothing
of size entries x columns is formed. Torch's kernel for bags of embeddings does the sums, the fastest it has.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function, forward_ad

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
