"""Joint tables of finitely many discrete variables, and the rules of probability on them.

Sum rule, product and chain rule, Bayes' rule, conditional independence (Pearl 1988, Chapter 2).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.probability.information import entropy, mutual_information
from margin.math.probability.moments import check_law


@dataclass(frozen=True, slots=True, eq=False)
class JointTable:
    """The joint law of named variables: an axis a variable, an entry the probability of one outcome of all.

    Args:
        names: The variables, each once, in the order of the axes.
        probabilities: P(first = i, second = j, ...).

    Raises:
        ValueError: The names do not fit the axes, or the entries are no law.
    """

    names: tuple[str, ...]
    probabilities: Float[Tensor, "..."]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or len(self.names) != self.probabilities.ndim:
            raise ValueError(
                f"names must be different, one an axis: got {self.names} for {self.probabilities.ndim} axes"
            )
        check_law(self.probabilities, len(self.names))

    def marginal(self, *names: str) -> "JointTable":
        """The sum rule P(A) = sum_b P(A, b): the law of ``names``, in that order.

        Raises:
            ValueError: A name is unknown or comes twice, or none is given.
        """
        axes = self._axes(names)
        rest = [axis for axis in range(len(self.names)) if axis not in axes]
        kept = self.probabilities.sum(rest) if rest else self.probabilities
        order = [sorted(axes).index(axis) for axis in axes]
        return JointTable(names, kept.permute(order))

    def conditional(self, of: Sequence[str], given: Sequence[str]) -> Float[Tensor, "..."]:
        """The quotient P(of | given) = P(of, given) / P(given), axes in the order of ``of``, then ``given``.

        Where P(given) = 0 it is undefined: NaN.

        Raises:
            ValueError: A name is unknown or comes twice, or one side is empty.
        """
        joint = self.marginal(*of, *given).probabilities
        return joint / self.marginal(*given).probabilities

    def observe(self, name: str, outcome: int) -> "JointTable":
        """The law of the other variables given that ``name`` has this outcome.

        Raises:
            ValueError: The name is unknown, the outcome is out of range or has probability 0.
        """
        (axis,) = self._axes((name,))
        count = self.probabilities.shape[axis]
        if not 0 <= outcome < count:
            raise ValueError(f"{name} has the outcomes 0 to {count - 1}: got {outcome}")
        kept = self.probabilities.select(axis, outcome)
        if not float(kept.sum()) > 0:
            raise ValueError(f"what is observed must have probability above 0: got {name}={outcome}")
        names = tuple(other for other in self.names if other != name)
        return JointTable(names, kept / kept.sum())

    def expectation(self, values: Float[Tensor, "..."]) -> Float[Tensor, ""]:
        """The mean sum p v of a function given by its value at every outcome.

        Raises:
            ValueError: The values have another shape than the table.
        """
        if values.shape != self.probabilities.shape:
            raise ValueError(
                "values must have the table's shape: "
                f"got {tuple(values.shape)} for {tuple(self.probabilities.shape)}"
            )
        return (self.probabilities * values).sum()

    def entropy(self, *names: str, base: float = math.e) -> Float[Tensor, ""]:
        """The joint entropy of ``names``."""
        return entropy(self.marginal(*names).probabilities.flatten(), base=base)

    def information(
        self, first: Sequence[str], second: Sequence[str], given: Sequence[str] = (), *, base: float = math.e
    ) -> Float[Tensor, ""]:
        """The mutual information I(first; second | given), the mean of that given each outcome."""
        slices = self._slices(first, second, given)
        weight = slices.sum((1, 2))
        possible = weight > 0
        known = slices[possible] / weight[possible, None, None]
        return (weight[possible] * mutual_information(known, base=base)).sum()

    def independent(
        self,
        first: Sequence[str],
        second: Sequence[str],
        given: Sequence[str] = (),
        *,
        tolerance: float = 1e-9,
    ) -> bool:
        """Whether P(a, b | c) = P(a | c) P(b | c) for all outcomes of P(c) > 0.

        Args:
            first: Variables on one side.
            second: Variables on the other.
            given: What is known; none: unconditional independence.
            tolerance: Largest difference that passes for rounding; at least 8 units of the table's type.
        """
        slices = self._slices(first, second, given)
        known = slices.sum((1, 2), keepdim=True)
        gap = slices * known - slices.sum(2, keepdim=True) * slices.sum(1, keepdim=True)
        allowed = max(tolerance, 8 * torch.finfo(slices.dtype).eps)
        return bool((gap.abs() <= allowed * known.square()).all())

    def _axes(self, names: Sequence[str]) -> list[int]:
        if unknown := [name for name in names if name not in self.names]:
            raise ValueError(f"the table has the variables {', '.join(self.names)}: got {unknown[0]!r}")
        if not names or len(set(names)) != len(names):
            raise ValueError(f"variables must be named, each once: got {tuple(names)}")
        return [self.names.index(name) for name in names]

    def _slices(
        self, first: Sequence[str], second: Sequence[str], given: Sequence[str]
    ) -> Float[Tensor, "given first second"]:
        """P(given, first, second), the variables of each group on one axis."""
        shape = [math.prod(self.probabilities.shape[axis] for axis in self._axes(g)) for g in (first, second)]
        table = self.marginal(*given, *first, *second).probabilities
        return table.reshape(-1, *shape)


def chain(prior: JointTable, conditional: Float[Tensor, "..."], name: str) -> JointTable:
    """The product rule P(a, b) = P(a) P(b | a): a table with one more variable.

    Args:
        prior: The table of the variables a.
        conditional: P(b | a), the axes of a first, a law of b on the last.
        name: The new variable.

    Raises:
        ValueError: The conditional is no law for each a, or does not fit the table.
    """
    check_law(conditional, name="conditional")
    if conditional.shape[:-1] != prior.probabilities.shape:
        raise ValueError(
            "the conditional must have the prior's axes, then one: "
            f"got {tuple(conditional.shape)} for {tuple(prior.probabilities.shape)}"
        )
    return JointTable((*prior.names, name), prior.probabilities[..., None] * conditional)


def bayes(
    prior: Float[Tensor, " causes"], likelihood: Float[Tensor, "causes outcomes"]
) -> Float[Tensor, "causes outcomes"]:
    r"""Bayes' rule: the posterior of the causes for each outcome, a law down each column.

    .. math:: P(y_i | x) = \frac{P(x | y_i) P(y_i)}{\sum_j P(x | y_j) P(y_j)}

    Args:
        prior: P(y_i).
        likelihood: P(x | y_i), a law along each row.

    Returns:
        The posterior; NaN for an outcome of probability 0, given which nothing is defined.

    Raises:
        ValueError: The prior or a row of the likelihood is no law.

    Reference: Casella and Berger 2002, Theorem 1.3.5.
    """
    check_law(prior, name="prior")
    check_law(likelihood, name="likelihood")
    joint = prior[:, None] * likelihood
    return joint / joint.sum(0, keepdim=True)
