"""Fast generation from a WaveNet (Paine et al. 2016): what each layer will read again waits in a ring."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.nn.recurrence import State
from margin.sequence.convolution.gated_convolutions import GatedConvolutions

TABLE = 1024
"""Steps whose places in the rings are worked out at once."""


class CachedSteps:
    r"""Gated convolutions a step at a time, in place: earlier inputs are kept, not computed again.

    A layer of dilation d with k taps keeps its last (k-1) d inputs in a ring: at step t its place
    t mod (k-1) d holds the oldest tap, is read, and takes the new input. The earlier taps of all layers are
    known before the step, so one batched product does them; what is left is a chain of two products a layer,
    in memory that is allocated once. A step costs some 6 L + 10 calls, whatever the receptive field: as long
    as the width is small, these calls bound it, not arithmetic.

    The weights are copies, of the moment when it was made; there are no gradients.

    Args:
        trunk: The gated convolutions.
        state: The trunk's state to go on from; it is copied.

    Reference:
        Paine, Khorrami, Chang, Zhang, Ramachandran, Hasegawa-Johnson and Huang 2016, Section 2.
    """

    @torch.no_grad()
    def __init__(self, trunk: GatedConvolutions, state: State) -> None:
        layers = trunk.convolutions
        self.time = 0
        self.reach = [layer.reach for layer in layers]
        self.dilation = [layer.dilation for layer in layers]
        # (places, batch, width), a layer's ring behind the other's; each begins with its oldest input
        self.rings = torch.cat([past.transpose(0, 1) for past in state])
        taps = torch.stack([layer.weight for layer in layers]).permute(3, 0, 2, 1)
        self.older_weight = taps[:-1].transpose(0, 1).flatten(1, 2)  # (layers, earlier taps x width, 2 width)
        self.newest_weight = taps[-1].unbind(0)
        self.bias = torch.stack([layer.bias for layer in layers])[:, None]
        self.residual = [(layer.weight.T.clone(), layer.bias.clone()) for layer in trunk.residuals]
        self.skip = trunk.skip.bias.clone(), trunk.skip.weight.T.clone()
        batch, width = self.rings.shape[1:]
        self.memory = self.rings.new_empty(len(layers), batch, width)
        self.inputs = self.memory.unbind(0)
        self.units = self.rings.new_empty(batch, len(layers) * width)
        self.z = self.units.split(width, 1)
        self.a = [self.rings.new_empty(batch, 2 * width) for _ in layers]
        self.halves = [a.split(width, 1) for a in self.a]

    @torch.no_grad()
    def __call__(self, x: Float[Tensor, "batch width"]) -> Float[Tensor, "batch outputs"]:
        """The trunk's output y_t at its next input x_t."""
        if self.time % TABLE == 0:
            self.places = self._places().unbind(0)
        places = self.places[self.time % TABLE]
        self.inputs[0].copy_(x)
        for i, before in enumerate(self._before(places).unbind(0)):
            torch.addmm(before, self.inputs[i], self.newest_weight[i], out=self.a[i])
            filtered, gate = self.halves[i]
            torch.mul(filtered.tanh_(), gate.sigmoid_(), out=self.z[i])
            if i < len(self.residual):
                weight, bias = self.residual[i]
                torch.addmm(self.inputs[i], self.z[i], weight, out=self.inputs[i + 1]).add_(bias)
        if len(places):
            self.rings.index_copy_(0, places[0], self.memory)
        self.time += 1
        bias, weight = self.skip
        return torch.addmm(bias, self.units, weight)

    def _places(self) -> Int[Tensor, "steps older layers"]:
        """The places of the earlier taps of every layer in the next steps, the oldest tap first."""
        reach, dilation = torch.tensor(self.reach), torch.tensor(self.dilation)
        older = torch.arange(self.older_weight.shape[1] // self.memory.shape[2])[:, None]
        time = self.time + torch.arange(TABLE)[:, None, None]
        ring = (time + older * dilation) % reach.clamp_min(1)
        return (reach.cumsum(0) - reach + ring).to(self.rings.device)

    def _before(self, places: Int[Tensor, "older layers"]) -> Float[Tensor, "layers batch twice"]:
        """What the earlier taps and the bias give to each layer's filter and gate."""
        if not len(places):
            return self.bias.expand(-1, self.memory.shape[1], -1)
        taps = self.rings.index_select(0, places.flatten()).view(*places.shape, *self.memory.shape[1:])
        return torch.baddbmm(self.bias, taps.permute(1, 2, 0, 3).flatten(2), self.older_weight)
