"""Which models state their density (Goodfellow 2016): exactly, by a bound or a sum, or not at all."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.catalog import Entry, call_with, models, resolve

Density = Literal["explicit, tractable", "explicit, approximate", "implicit", "none"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model stands, as its methods tell.

    Args:
        name: Of its entry.
        density: Explicit and tractable: ``log_prob`` is exact at any size. Explicit and approximate: there is
            a ``bound``, or a partition function that only small models can sum (``log_partition``). Implicit:
            it draws samples, and states no density. None: it codes, and has no law.
        can_sample: Whether it draws samples.
        can_logprob: Whether it has ``log_prob``.
        has_encoder: Whether it has ``encode``.
    """

    name: str
    density: Density
    can_sample: bool
    can_logprob: bool
    has_encoder: bool


def density_of(core: nn.Module) -> Density:
    """How a model states its density; see :class:`Place`."""
    if has(core, "bound") or has(core, "log_partition"):
        return "explicit, approximate"
    if has(core, "log_prob"):
        return "explicit, tractable"
    return "implicit" if has(core, "sample") else "none"


def has(core: nn.Module, method: str) -> bool:
    """Whether a model has a method."""
    return callable(getattr(core, method, None))


def place_of(entry: Entry) -> Place:
    """Where an entry stands, its model built as its smallest data dictate."""
    with torch.random.fork_rng([]):
        core: nn.Module = call_with(resolve(entry.build), resolve(entry.tiny)().spec, {}, entry.name)
    verbs = (has(core, method) for method in ("sample", "log_prob", "encode"))
    return Place(entry.name, density_of(core), *verbs)


def taxonomy(area: str = "generative") -> tuple[Place, ...]:
    """Where every entry of an area stands, in the order of its table.

    Reference: Goodfellow 2016, Section 2.3 and Figure 9.
    """
    return tuple(place_of(entry) for name, entry in models().items() if name.startswith(f"{area}/"))


def exact_log_prob(core: Any, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, " batch"]:
    """The exact log-density of each row, in nats, of a model that states it.

    Raises:
        ValueError: The model is implicit, has no law, or only a bound of its density.
    """
    if not has(core, "log_prob"):
        raise ValueError(
            f"log_prob is of models with an explicit density: {type(core).__name__} is {density_of(core)}"
        )
    log_density: Tensor = core.log_prob(x)
    return log_density
