"""Contrastive divergence (Hinton 2002): a Boltzmann machine's gradient by short chains, from data or on."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import GradientUpdate, State, Step, mean_loss
from margin.generative.autoencoder.unit_interval import unit_inputs
from margin.generative.latent.rbm import RBM, bits
from margin.nn.preprocessed import core_of, features_of

Bits = Float[Tensor, "batch visible"]


def contrast(model: RBM, v: Bits, fantasies: Float[Tensor, "chains visible"]) -> Float[Tensor, " batch"]:
    r"""F(v) of each row less the mean of F over bits drawn from the model, F the free energy.

    Its gradient is that of :math:`-\log p(v)` where the bits have the model's law:
    :math:`\nabla \log Z = -E_p[\nabla F]`.

    Args:
        model: The machine.
        v: Rows of bits.
        fantasies: Bits of chains; no gradient passes to them.

    Reference: Hinton 2002, Equation 5; Tieleman 2008, Section 2.
    """
    return model.free_energy(v) - model.free_energy(fantasies.detach()).mean()


def pseudo_likelihood(model: nn.Module, batch: Batch, generator: Generator) -> Float[Tensor, " batch"]:
    r"""Minus the log-pseudolikelihood :math:`\sum_i \log p(v_i | v_{-i})` of each example, estimated.

    One bit i is drawn for each example and stands for all D, without bias:
    :math:`p(v_i | v_{-i}) = \sigma(F(v \text{ with bit } i \text{ turned}) - F(v))`. Partition functions
    cancel, so it can be told of machines of any size, in nats; it is not the likelihood.

    Reference: Besag 1975, Section 2.
    """
    core = core_of(model)
    x = unit_inputs(features_of(model, batch.inputs[0]).flatten(1), "a Boltzmann machine")
    v = bits(x, generator)
    index = torch.randint(v.shape[1], (len(v),), generator=generator).to(v.device)
    turn = F.one_hot(index, v.shape[1]).to(v.dtype)
    turned = v + turn * (1 - 2 * v)
    return -v.shape[1] * F.logsigmoid(core.free_energy(turned) - core.free_energy(v))


class Chains(nn.Module):
    """The bits of persistent chains.

    Args:
        state: A row for each chain.
    """

    state: Tensor

    def __init__(self, state: Bits) -> None:
        super().__init__()
        self.register_buffer("state", state)


def contrastive_divergence(
    descend: GradientUpdate,
    *,
    steps: int = 1,
    chains: Literal["data", "persistent"] = "data",
    count: int = 64,
) -> Step:
    """Descent along the contrast of a batch's bits with bits after Gibbs steps.

    Args:
        descend: How a loss moves the parameters.
        steps: Gibbs steps, k, at least 1.
        chains: Where they begin: at the batch's bits (CD-k), or where the last step left them (persistent).
        count: Persistent chains, at least 1.

    Raises:
        ValueError: There is no step or no chain.
    """
    for name, value in (("steps", steps), ("count", count)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1: got {value}")

    def step(state: State, batch: Batch) -> Metrics:
        model: Any = state.core
        x = unit_inputs(state.features(batch).flatten(1), "a Boltzmann machine")
        v = bits(x, state.generator)
        if chains == "data":
            fantasies = model.gibbs(v, steps, state.generator)
        else:
            even = torch.full((count, v.shape[1]), 0.5).to(v)
            kept: Any = state.kept("chains", lambda: Chains(bits(even, state.generator)))
            fantasies = model.gibbs(kept.state.to(v), steps, state.generator)
            kept.state.copy_(fantasies)
        return descend(state, mean_loss(contrast(model, v, fantasies), batch.weight))

    return step
