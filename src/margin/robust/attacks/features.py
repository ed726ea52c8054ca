"""What the features of a table may be besides numbers of a range: fixed, whole, or one of a category's.

A category is stored as one feature a value, 1 at its own and 0 elsewhere (all 0: none of them). An attack
that moved such features apart would judge inputs that cannot occur (Ballet et al., 2019, Section 3).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from margin.data.formats.encodings import width, zero_one


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Which coordinates of an input are fixed, whole numbers, or together the values of a category.

    Args:
        fixed: Whether each coordinate may not be moved; broadcasts against one input. None: none.
        whole: Whether each is a whole number, in the input's shape or broadcast; None: none.
        groups: The coordinates of each category, by their places in the input laid out in a row.
        marks: Whether each is 0 or 1, whatever the box: of a category, a boolean, a missing cell; None: none.
    """

    fixed: Bool[Tensor, "..."] | None = None
    whole: Bool[Tensor, "..."] | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    marks: Bool[Tensor, "..."] | None = None

    @staticmethod
    def of_table(
        encoding: Mapping[str, Any],
        examples: Float[Tensor, "rows features"] | None = None,
        fixed: tuple[str, ...] = (),
    ) -> "Features":
        """What the record of a table knows of its features.

        Categories are groups; 0/1 columns are whole. What follows from a cell, as that it is missing, and the
        parts of a date, which belong together, are fixed.

        Args:
            encoding: The data's ``encoding``.
            examples: Rows by which it is seen which numbers are whole; None takes numbers for real ones.
            fixed: Names of the columns that nobody can move.

        Raises:
            ValueError: The encoding is not of a table, or it has no column of a name.
        """
        if encoding.get("format") != "table":
            raise ValueError(f"features are those of a table: got {encoding.get('format')!r}")
        records = encoding["columns"]
        if unknown := set(fixed) - {record["name"] for record in records}:
            raise ValueError(f"the table has no column {sorted(unknown)[0]!r}")
        still: list[bool] = []
        whole: list[bool] = []
        groups: list[tuple[int, ...]] = []
        for record in records:
            start, size, marks = len(still), width(record), bool(record.get("indicator"))
            own, kind = size - marks, record["kind"]
            if kind == "category" and record["name"] not in fixed:
                groups.append(tuple(range(start, start + own)))
            held = record["name"] in fixed or kind == "date"
            still += [held] * own + [True] * marks
            whole += [kind == "boolean"] * own + [False] * marks
            if kind == "number" and examples is not None:
                seen = examples[:, start : start + own]
                whole[start : start + own] = (seen == seen.round()).all(0).tolist()
        zero_ones = [mark for record in records for mark in zero_one(record)]
        return Features(torch.tensor(still), torch.tensor(whole), tuple(groups), torch.tensor(zero_ones))

    def grouped(self, x: Float[Tensor, "batch ..."]) -> Bool[Tensor, "..."]:
        """Whether each coordinate of one input is of a category."""
        flat = torch.zeros(x[0].numel(), dtype=torch.bool, device=x.device)
        flat[[place for group in self.groups for place in group]] = True
        return flat.reshape(x.shape[1:])

    def problem(self, y: Float[Tensor, "batch ..."], x: Float[Tensor, "batch ..."] | None = None) -> str:
        """The first example that is not valid, in words; "" where all are.

        Args:
            y: Inputs.
            x: From which they were moved; None does not ask what is fixed.
        """
        flat = y.flatten(1)
        if self.whole is not None:
            broken = ((y != y.round()) & self.whole.to(y.device)).flatten(1).any(1)
            if broken.any():
                return f"example {int(broken.nonzero()[0])} has a part of a whole number"
        for group in self.groups:
            part = flat[:, list(group)]
            broken = ~((part == 0) | (part == 1)).all(1) | (part.sum(1) > 1)
            if broken.any():
                return f"example {int(broken.nonzero()[0])} is not of one category at features {group}"
        if x is not None and self.fixed is not None:
            broken = ((y != x) & self.fixed.to(y.device)).flatten(1).any(1)
            if broken.any():
                return f"example {int(broken.nonzero()[0])} was moved in a fixed feature"
        return ""

    def switched(
        self, y: Float[Tensor, "batch ..."], x: Tensor, eps: float, order: float, unit: Tensor
    ) -> tuple[Tensor, Float[Tensor, " batch"]]:
        """``x`` with the categories that ``y`` points to, and the radius that is left to other features.

        A category takes the feature that is largest in y. What the ball does not hold stays as in x, of
        several categories first those for which y has gone the largest part of the way.

        Args:
            y: Points of the ball and the box.
            x: Valid inputs, the centers.
            eps: Radius of the ball.
            order: The norm's order: inf, 2 or 1.
            unit: Length of one unit along each coordinate.
        """
        flat, moved = y.double().flatten(1), x.double().flatten(1).clone()
        scale, full = unit.expand(x.shape[1:]).flatten(), torch.full((len(y),), eps, device=y.device).double()
        if not self.groups:
            return x, full
        goals, costs, gone = [], [], []
        for group in map(list, self.groups):
            here, now = flat[:, group], moved[:, group]
            top = here.max(1, keepdim=True)
            own = torch.where(now.any(1), (here * now).sum(1), 1 - here.sum(1))[:, None]
            chosen = torch.zeros_like(now).scatter(1, top.indices, 1)
            goals.append(torch.where(top.values > own, chosen, now))
            costs.append(torch.linalg.vector_norm((goals[-1] - now) / scale[group], order, dim=1))
            gone.append(torch.linalg.vector_norm((here - now) / scale[group], order, dim=1))
        cost = torch.stack(costs, 1)
        first = (torch.stack(gone, 1) / cost.clamp(min=1e-300)).argsort(1, descending=True)
        power = 1.0 if order == math.inf else order
        sorted_cost = cost.gather(1, first) ** power
        spent = sorted_cost if order == math.inf else sorted_cost.cumsum(1)
        taken = torch.zeros_like(cost, dtype=torch.bool).scatter(1, first, spent <= eps**power)
        for k, group in enumerate(map(list, self.groups)):
            moved[:, group] = torch.where(taken[:, k, None], goals[k], moved[:, group])
        left = eps**power - (cost**power * taken).sum(1)
        left = full if order == math.inf else left.clamp(min=0) ** (1 / power)
        return moved.reshape(x.shape).to(x.dtype), left
