"""Deep ensembles (Lakshminarayanan, Pritzel and Blundell 2017): networks that differ in their first weights.

In training all members take their steps at once: their weights are stacked, and one vectorized pass
(torch.func) computes every member's outputs. In evaluation they answer one after another, as modules that can
be looked into.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from margin.math.probability.mixtures import Mixture, law_of

Builder = Callable[[], nn.Module]
BASE = "feedforward/mlp"


def members_of(builder: Builder, members: int) -> nn.ModuleList:
    """So many networks, each with weights of its own.

    Raises:
        ValueError: There are fewer than two, or they cannot be trained in one pass.
    """
    if members < 2:
        raise ValueError(f"members must be at least 2: got {members}; one network has no spread")
    made = nn.ModuleList(builder() for _ in range(members))
    if norm := next((m for m in made[0].modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)), None):
        raise ValueError(
            "members are trained in one vectorized pass, which batch normalization's running means do not "
            f"allow: got {type(norm).__name__}; layer normalization does"
        )
    return made


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, one that is shared once: in one walk, which each step makes anew."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for path, inner in module.named_modules():
        for name, tensor in (*inner._parameters.items(), *inner._buffers.items()):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found[f"{path}.{name}" if path else name] = tensor
    return found


def each(members: nn.ModuleList, x: Tensor, *, own: bool = False) -> Tensor:
    """The outputs of every member, (members, batch, outputs), in one vectorized pass.

    Args:
        members: Networks of one shape.
        x: Inputs, the same for all.
        own: Whether x has a leading axis of members instead, each with its own inputs.
    """
    template: nn.Module = members[0]
    held = [_tensors(member) for member in members]
    stacked = {name: torch.stack([tensors[name] for tensors in held]) for name in held[0]}
    for tensor in stacked.values():
        if tensor.requires_grad:  # laid out once, and not for each member
            tensor.register_hook(Tensor.contiguous)

    def one(tensors: dict[str, Tensor], inputs: Tensor) -> Any:
        return functional_call(template, tensors, (inputs,))

    found: Tensor = torch.vmap(one, in_dims=(0, 0 if own else None), randomness="different")(stacked, x)
    return found


class DeepEnsemble(nn.Module):
    """The mean of the class probabilities of several networks, as its logarithm.

    Args:
        builder: Makes a network from inputs to class logits: the recipe of ``base``.
        num_classes: Number of classes.
        base: Name of the model of the catalog that the members are; it predicts classes.
        base_options: Its options, as {hidden: [50]}.
        members: Number of networks, at least 2.

    Raises:
        ValueError: There are fewer than two members, or they have batch normalization.

    Reference:
        Lakshminarayanan, Pritzel and Blundell 2017, Section 2.4.
    """

    def __init__(
        self,
        builder: Builder,
        num_classes: int,
        *,
        base: str = BASE,
        base_options: dict[str, Any] | None = None,
        members: int = 5,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.members = members_of(builder, members)

    def forward(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, "batch classes"]:
        """The logarithm of the mean probability of each class."""
        found = torch.stack([member(x) for member in self.members]).log_softmax(-1)
        return found.logsumexp(0) - math.log(len(self.members))


class GaussianEnsemble(nn.Module):
    """The mean of several networks' Gaussian laws of one real number; the output is the mixture's mean.

    Args:
        builder: Makes a network from inputs to two numbers, mean and variance before its softplus.
        base: Name of the model of the catalog that the members are; it predicts classes, here two outputs.
        base_options: Its options, as {hidden: [50]}.
        members: Number of networks, at least 2.

    Raises:
        ValueError: There are fewer than two members, or they have batch normalization.

    Reference:
        Lakshminarayanan, Pritzel and Blundell 2017, Sections 2.2.1 and 2.4.
    """

    OUTPUTS = 2

    def __init__(
        self,
        builder: Builder,
        *,
        base: str = BASE,
        base_options: dict[str, Any] | None = None,
        members: int = 5,
    ) -> None:
        super().__init__()
        self.members = members_of(builder, members)

    def components(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, "members batch 2"]:
        """Mean and variance before its softplus, of every member."""
        return torch.stack([member(x) for member in self.members])

    def forward(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, " batch"]:
        """The mean of the members' means."""
        return law_of(self.components(x)).mean

    @torch.no_grad()
    def predictive(self, x: Float[Tensor, " batch *input"]) -> Mixture:
        """The mixture of the members' laws, in float64."""
        law = law_of(self.components(x))
        return Mixture(law.means.double(), law.variances.double())
