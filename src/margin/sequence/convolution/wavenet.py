"""WaveNet (van den Oord et al. 2016): the next of a sound's samples, by gated causal convolutions.

Its fast generation (Paine et al. 2016) keeps what each layer will read again in a ring.
"""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.nn.decoding import check_counts, continued, drawn
from margin.nn.recurrence import Lengths, State, without_padding
from margin.sequence.convolution.causal import GatedConvolutions

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


class WaveNet(nn.Module):
    r"""The distribution of the next token given those before it, by gated dilated causal convolutions.

    .. math:: p(w_{t+1} | w_{1:t}) = \mathrm{softmax}(A_2 \varphi(A_1 \varphi(y_t))), \qquad
        y = \textstyle\sum_l S^l z^l, \qquad z^l = \tanh(W_f^l * x^{l-1}) \odot \sigma(W_g^l * x^{l-1})

    with phi = ReLU, affine A_1 and A_2, x^0 a vector for each token and x^l = x^{l-1} + V^l z^l. For sound
    the tokens are the 256 levels of the mu-law. The prediction at t is that of token t + 1, so it reads
    w_{t+1-R} .. w_t; the paper shifts its input by one instead, and what it calls output t, which sees
    x_{<t}, is the output t - 1 here. The first token of a sequence is given, not predicted.

    Args:
        vocab_size: Number V of tokens.
        width: Numbers of each x_t and units of each z_t.
        skip: Numbers of y_t and of the hidden layer behind it.
        layers: Layers of a stack, with dilations 1, 2, .. 2^(layers-1).
        stacks: How often the stack is repeated.
        kernel: Taps k of every convolution; R = 1 + stacks (k-1) (2^layers - 1), 1,024 by default.

    Raises:
        ValueError: A number is below 1.

    Reference:
        van den Oord, Dieleman, Zen, Simonyan, Vinyals, Graves, Kalchbrenner, Senior and Kavukcuoglu 2016,
        Equations 1 and 2, Section 2. Their first causal convolution, before the layers, is of one tap here,
        which makes the receptive field of ten layers 1,024; they do not condition the initial token either.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        width: int = 32,
        skip: int = 64,
        layers: int = 10,
        stacks: int = 1,
        kernel: int = 2,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size, width)
        self.trunk = GatedConvolutions(width, skip=skip, layers=layers, stacks=stacks, kernel=kernel)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(skip, skip), nn.ReLU(), nn.Linear(skip, vocab_size))

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """The logits of the token after each; 0 at padding."""
        y, _ = self.trunk(self.embedding(tokens), lengths)
        return without_padding(self.head(y), lengths)

    def initial(self, tokens: Int[Tensor, " batch *rest"]) -> State:
        """The state before the first token."""
        return self.trunk.initial(self.embedding.weight.new_empty(len(tokens), 0))

    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the token after this one, and the new state; the old one stays as it was."""
        y, state = self.trunk.step(self.embedding(token), state)
        return self.head(y), state

    @torch.no_grad()
    def sample(
        self,
        count: int,
        *,
        generator: Generator,
        length: int = 8000,
        prefix: Int[Tensor, " prefix"] | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> Int[Tensor, "count length"]:
        """Continuations drawn from the model, token by token, by :class:`CachedSteps`.

        Args:
            count: How many, at least 1.
            generator: Where the draws come from.
            length: Tokens of each, at least 0.
            prefix: What they continue; None begins with the middle level, which is silence, not returned.
            temperature: 0 takes the likeliest token each time, 1 samples the model.
            top_k: Of how many of the likeliest tokens is drawn; 0 is all.
            top_p: Of how much probability the likeliest are that are drawn of; 1 is all.

        Raises:
            ValueError: The count is below 1, or an option is out of range.
        """
        check_counts(count, length)
        start = torch.tensor([self.vocab_size // 2]) if prefix is None or not len(prefix) else prefix
        start = start.to(self.embedding.weight.device).expand(count, -1)
        _, state = self.trunk(self.embedding(start[:, :-1]))
        steps = CachedSteps(self.trunk, state)

        def step(token: Tensor, state: State) -> tuple[Tensor, State]:
            return self.head(steps(self.embedding(token))), state

        def draw(logits: Tensor) -> Tensor:
            return drawn(logits, generator, temperature=temperature, top_k=top_k, top_p=top_p)

        return continued(step, (), start[:, -1:], length, draw)[0]
