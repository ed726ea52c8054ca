r"""The conditions of Robbins and Monro (1951) on the step sizes of a stochastic approximation.

.. math:: \sum_t \alpha_t = \infty, \qquad \sum_t \alpha_t^2 < \infty

The first lets the iterates go as far as they must, the second stills the noise. On a function that is not
convex the limit is a stationary point, not always a minimum.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from margin.optim.schedules import DROP, schedule_of


class Conditions(NamedTuple):
    """Whether the rates of a schedule that never ends sum to infinity, and their squares do not."""

    rates_diverge: bool
    squares_converge: bool

    @property
    def met(self) -> bool:
        """Both."""
        return self.rates_diverge and self.squares_converge


def robbins_monro(name: str, options: Mapping[str, Any] | None = None) -> Conditions:
    """The two conditions for a named schedule, from the order t^-p of its rates.

    A sum of t^-p is infinite exactly for p <= 1, that of its squares exactly for p <= 1/2. A constant has
    p = 0, a geometric sequence and one that ends at 0 decay faster than any power. Warmup changes neither.

    Args:
        name: One of ``margin.optim.schedules.SCHEDULES``.
        options: The schedule's own numbers.

    Raises:
        ValueError: There is no such schedule, or an option is missing, unknown or out of range.

    Reference: Robbins and Monro (1951), "A stochastic approximation method".
    """
    options = dict(options or {})
    schedule_of(name, total=1, warmup=0, options=options)  # refuses what is wrong
    p = _order(name, options)
    return Conditions(p <= 1, p > 0.5)


def _order(name: str, options: Mapping[str, Any]) -> float:
    if name == "power":
        return float(options["p"])
    if name == "inverse_sqrt":
        return 0.5
    if name in ("step", "exponential"):
        return math.inf if options.get("factor", DROP) < 1 else 0.0
    return 0.0 if name == "constant" else math.inf
