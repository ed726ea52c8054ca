"""Restricted Boltzmann machines (Smolensky 1986): visible bits that interact through hidden bits.

Contrastive divergence (Hinton 2002) is their gradient by short Gibbs chains, from the data or persistent.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import GradientUpdate, State, Step, mean_loss
from margin.generative.autoencoder.distributions import unit_inputs
from margin.nn.preprocessed import core_of, features_of

Visible = Float[Tensor, "*batch visible"]
Hidden = Float[Tensor, "*batch hidden"]
PerRow = Float[Tensor, " batch"]

MOST = 20
"""Bits of the smaller layer at most, of which all states can be summed over."""

AT_ONCE = 4096
"""States that are summed over at a time."""


def bits(x: Float[Tensor, "*shape"], generator: Generator) -> Float[Tensor, "*shape"]:
    """Bits that are 1 with the given probabilities."""
    # u < 1, so a probability of 1 always gives 1, and one of 0 never
    return (torch.rand(x.shape, generator=generator).to(x.device) < x).to(x.dtype)


def energy(
    v: Visible,
    h: Hidden,
    W: Float[Tensor, "hidden visible"],
    a: Float[Tensor, " visible"],
    b: Float[Tensor, " hidden"],
) -> Float[Tensor, "*batch"]:
    r"""The energy :math:`-h^\top W v - a^\top v - b^\top h` of bits: p(v, h) is e^(-E) / Z.

    Reference: Hinton 2002, Section 5.
    """
    return -(F.linear(v, W) * h).sum(-1) - v @ a - h @ b


def free_energy(
    v: Visible,
    W: Float[Tensor, "hidden visible"],
    a: Float[Tensor, " visible"],
    b: Float[Tensor, " hidden"],
) -> Float[Tensor, "*batch"]:
    r"""The energy of v with all h summed out: :math:`-a^\top v - \sum_j \log(1 + e^{(W v + b)_j})`.

    The energy is bilinear, so with W^T, b and a it is that of h with all v summed out.

    Reference: Bengio 2009, Section 5.3.
    """
    return -(v @ a) - F.softplus(F.linear(v, W, b)).sum(-1)


def all_states(count: int, start: int, stop: int) -> Float[Tensor, "states bits"]:
    """The states of ``count`` bits from number ``start`` to before ``stop``, float64."""
    index = torch.arange(start, min(stop, 2**count))[:, None]
    return ((index >> torch.arange(count)) & 1).double()


class RBM(nn.Module):
    r"""The law of D bits :math:`p(v) = \frac1Z \sum_h e^{h^\top W v + a^\top v + b^\top h}`.

    Args:
        in_features: D; an input of more axes is flattened.
        hidden_units: Hidden bits, at least 1.

    Raises:
        ValueError: There is no hidden bit.

    Reference:
        Smolensky 1986, Section 2; Hinton 2002, Section 5. Weights begin as of Hinton 2012, Section 8.
    """

    def __init__(self, in_features: int, *, hidden_units: int = 64) -> None:
        super().__init__()
        if hidden_units < 1:
            raise ValueError(f"hidden_units must be at least 1: got {hidden_units}")
        self.weight = nn.Parameter(0.01 * torch.randn(hidden_units, in_features))
        self.visible = nn.Parameter(torch.zeros(in_features))
        self.hidden = nn.Parameter(torch.zeros(hidden_units))

    def free_energy(self, v: Visible) -> Float[Tensor, "*batch"]:
        """-log p(v) - log Z of bits, in nats."""
        return free_energy(v, self.weight, self.visible, self.hidden)

    def encode(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "batch hidden"]:
        """The probability of each hidden bit given a row, whose numbers count as they are.

        Raises:
            ValueError: A number is outside of [0, 1].
        """
        x = unit_inputs(x.flatten(1), "a Boltzmann machine")
        return F.linear(x, self.weight, self.hidden).sigmoid()

    def decode(self, codes: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch visible"]:
        """The probability of each visible bit given the hidden ones."""
        return F.linear(codes, self.weight.T, self.visible).sigmoid()

    def reconstruct(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, " batch *shape"]:
        """The probabilities of visible bits given those of hidden bits."""
        return self.decode(self.encode(x)).reshape(x.shape)

    @torch.no_grad()
    def gibbs(
        self, v: Float[Tensor, "batch visible"], steps: int, generator: Generator
    ) -> Float[Tensor, "batch visible"]:
        """Bits after steps of Gibbs sampling: hidden given visible, then visible given hidden.

        Raises:
            ValueError: There is no step.
        """
        if steps < 1:
            raise ValueError(f"steps of Gibbs sampling must be at least 1: got {steps}")
        for _ in range(steps):
            v = bits(self.decode(bits(F.linear(v, self.weight, self.hidden).sigmoid(), generator)), generator)
        return v

    @torch.no_grad()
    def sample(
        self, count: int, *, generator: Generator, steps: int = 1000
    ) -> Float[Tensor, "batch visible"]:
        """Rows of bits after steps of Gibbs sampling from even bits; of the model's law as steps grow.

        Args:
            count: Rows.
            generator: What is drawn from.
            steps: Of Gibbs sampling, at least 1.

        Raises:
            ValueError: There is no step.
        """
        even = torch.full((count, len(self.visible)), 0.5).to(self.weight)
        return self.gibbs(bits(even, generator), steps, generator)

    def log_partition(self) -> Float[Tensor, ""]:
        """Log Z, by a sum over all states of the smaller layer, in float64.

        Raises:
            ValueError: Both layers have more than :data:`MOST` bits.
        """
        W, a, b = (p.double() for p in (self.weight, self.visible, self.hidden))
        if len(b) < len(a):
            W, a, b = W.T, b, a  # a is of the layer that is summed over last
        if len(a) > MOST:
            raise ValueError(
                f"an exact likelihood sums over all states of the smaller layer, at most {MOST} bits: "
                f"got {len(a)}"
            )
        parts = [
            (-free_energy(all_states(len(a), start, start + AT_ONCE).to(a), W, a, b)).logsumexp(0)
            for start in range(0, 2 ** len(a), AT_ONCE)
        ]
        return torch.stack(parts).logsumexp(0)

    def log_prob(self, x: Float[Tensor, " batch *shape"]) -> PerRow:
        """The exact log-probability of the bits x >= 1/2 of each row, in nats, of a small machine.

        Raises:
            ValueError: A number is outside of [0, 1], or both layers have more than :data:`MOST` bits.
        """
        v = (unit_inputs(x.flatten(1), "a Boltzmann machine") >= 0.5).to(x.dtype)
        return -self.free_energy(v) - self.log_partition().to(x.dtype)

    def forward(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, "batch hidden"]:
        """The probability of each hidden bit given the row."""
        return self.encode(x)


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
    cancel, so it is known of machines of any size, in nats; it is not the likelihood.

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
