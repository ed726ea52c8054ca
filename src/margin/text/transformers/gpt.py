"""GPT (Radford et al. 2018, 2019): the next token's distribution, by a transformer that reads the past."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.nn.attention import Activation, EncoderBlock, KeysValues
from margin.nn.decoding import State, beginning, check_counts, continued, drawn
from margin.nn.positions import LearnedPositions, SinusoidalPositions
from margin.nn.recurrence import Lengths, check_dropout, without_padding

SPREAD = 0.02
"""Standard deviation of the initial weights; of a matrix that adds to the residual path 1 / sqrt(2 depth)."""

Beyond = Literal["refuse", "slide"]
Kept = list[KeysValues]


def kept_of(state: State, room: int = 1) -> Kept:
    """The keys and values of each block in a state, with room for more places."""
    return [KeysValues(keys, values, room) for keys, values in zip(state[::2], state[1::2], strict=True)]


class GPT(nn.Module):
    r"""A decoder-only transformer: causal self-attention over token vectors, to the logits of the next token.

    .. math:: z^0 = E[w] + P, \qquad z^l = \mathrm{block}_l(z^{l-1}), \qquad
        p(w_{t+1} \mid w_{1:t}) = \mathrm{softmax}(W\, \mathrm{LN}(z^L_t))

    Vectors are normalized before attention and perceptron. GPT-2 small is width 768, depth 12, heads 12,
    places 1024, gelu_tanh, 50,257 tokens: 124,439,808 parameters. A text is generated with the keys and
    values of its past kept, each token in time linear in its place.

    Args:
        vocab_size: Number V of tokens.
        time: Tokens of a block of the training text.
        width: Numbers of a token's vector.
        depth: Number of blocks.
        heads: Heads of the attention, a divisor of the width.
        hidden: Units of a block's perceptron; 0 is 4 times the width.
        places: Places that have a learned position, at least ``time``; 0 is as many as a block of training.
        positions: Learned as in the papers, sinusoidal, rotary, or none; the last three know no longest text.
        activation: Of the perceptrons; GPT-2's weights are for "gelu_tanh".
        readout: W = E ("tied"), or a matrix of its own.
        dropout: Probability with which a number of an embedding, an output or a unit is set to 0 in training.
        attention_dropout: That of a weight of the attention; on a CPU any but 0 is several times slower.
        eps: What normalizations add to the variance.

    Raises:
        ValueError: A size is too small, the heads do not divide the width, or the dropout is not in [0, 1).

    Reference: Radford, Wu, Child, Luan, Amodei and Sutskever 2019, Section 2.3; Radford et al. 2018, Section
        3.1; Press and Wolf 2017 (tied).
    """

    # more than 10 parameters: each is a choice of the papers or of published weights
    def __init__(
        self,
        vocab_size: int,
        time: int,
        *,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        hidden: int = 0,
        places: int = 0,
        positions: Literal["learned", "sinusoidal", "rotary", "none"] = "learned",
        activation: Activation = "gelu",
        readout: Literal["tied", "own"] = "tied",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if min(vocab_size, width, depth) < 1 or min(hidden, places) < 0:
            raise ValueError(
                "vocab_size, width and depth must be at least 1, hidden and places at least 0: "
                f"got {vocab_size}, {width}, {depth}, {hidden}, {places}"
            )
        if 0 < places < time:
            raise ValueError(
                f"places must be at least a block of {time} tokens: got {places}; set --data.time {places}"
            )
        self.vocab_size, self.width, self.heads = vocab_size, width, heads
        self.embedding = nn.Embedding(vocab_size, width)
        self.positions: nn.Module | None = None
        if positions == "learned":
            self.positions = LearnedPositions(places or time, width)
        elif positions == "sinusoidal":
            self.positions = SinusoidalPositions(width)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.blocks = nn.ModuleList(
            EncoderBlock(
                width,
                heads,
                hidden=hidden,
                activation=activation,
                causal=True,
                dropout=dropout,
                attention_dropout=attention_dropout,
                eps=eps,
                positions="rotary" if positions == "rotary" else "none",
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width, eps)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self._draw()
        if readout == "tied":
            self.head.weight = self.embedding.weight

    def _draw(self) -> None:
        """Weights normal of deviation 0.02, less where they add to the residual path; biases 0."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim > 1:
                onto_path = name.endswith(("attention.output.weight", "mlp.3.weight"))
                nn.init.normal_(
                    parameter, std=SPREAD / (2 * len(self.blocks)) ** 0.5 if onto_path else SPREAD
                )

    @property
    def longest(self) -> int | None:
        """Tokens of a text at most; None is any number."""
        return self.positions.longest if isinstance(self.positions, LearnedPositions) else None

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """The logits of the token after each; 0 at padding.

        Raises:
            ValueError: The texts are longer than there are learned positions.
        """
        return without_padding(self.head(self.read(tokens)), lengths)

    def read(
        self, tokens: Int[Tensor, "batch time"], past: Kept | None = None
    ) -> Float[Tensor, "batch time width"]:
        """The last, normalized vector of each token, behind those whose keys and values ``past`` keeps."""
        z = self.embedding(tokens)
        if self.positions is not None:
            z = self.positions(z, past[0].count if past else 0)
        z = self.dropout(z)
        for k, block in enumerate(self.blocks):
            z = block(z, None, past[k] if past else None)
        return self.norm(z)

    def initial(self, tokens: Int[Tensor, " batch *rest"]) -> State:
        """The state before the first token: of each block, keys and values of no place."""
        empty = self.embedding.weight.new_empty(len(tokens), self.heads, 0, self.width // self.heads)
        return (empty,) * (2 * len(self.blocks))

    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the token after this one, and the new state; the old one stays as it was.

        Raises:
            ValueError: There is no learned position left.
        """
        past = kept_of(state)
        z = self.read(token[:, None], past)
        return self.head(z[:, 0]), tuple(part for one in past for part in one.all)

    # 8 parameters: the options of a draw
    @torch.no_grad()
    def sample(
        self,
        count: int,
        *,
        generator: Generator,
        length: int | None = None,
        prefix: Int[Tensor, " prefix"] | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        beyond: Beyond = "refuse",
    ) -> Int[Tensor, "count length"]:
        """Continuations drawn from the model, token by token, each in time linear in its place.

        Args:
            count: How many, at least 1.
            generator: Where the draws come from.
            length: Tokens of each, at least 0; None is as many as have a position, or 200.
            prefix: What they continue; None begins with a token drawn evenly, which is the first of each.
            temperature: 0 takes the likeliest token each time, 1 samples the model.
            top_k: Of how many of the likeliest tokens is drawn; 0 is all.
            top_p: Of how much probability the likeliest are that are drawn of; 1 is all.
            beyond: Whether a text longer than the positions is refused, or each of its tokens is drawn after
                as many of the last ones as have a position ("slide"), which are read anew.

        Raises:
            ValueError: The text is longer than the positions, the count is below 1, or an option is out of
                range.
        """
        start, new = beginning(prefix, count, self.vocab_size, generator)
        room, given = self.longest, start.shape[1] - new
        if length is None:
            length = 200 if room is None else max(room - given, 0) or 200
        check_counts(count, length)
        if room is not None and given + length > room and beyond == "refuse":
            raise ValueError(
                f"prefix and continuation must fit the {room} positions: got {given} and {length} tokens; "
                "--sample.beyond slide reads the last ones alone"
            )

        def draw(logits: Tensor) -> Tensor:
            return drawn(logits, generator, temperature=temperature, top_k=top_k, top_p=top_p)

        cached = CachedSteps(self, start[:, :-1], given + length)
        rest, _ = continued(cached, (), start[:, -1:], max(length - new, 0), draw)
        return torch.cat((start, rest), 1)[:, :length] if new else rest


class CachedSteps:
    """The steps of a GPT with the keys and values of the past in one place, written and not copied.

    Where a text grows beyond the learned positions, its last tokens are read anew for each token.

    Args:
        model: The model.
        start: Tokens that come before the first step, read at once.
        room: Tokens in all.
    """

    def __init__(self, model: GPT, start: Int[Tensor, "batch time"], room: int) -> None:
        self.model, self.tokens, self.most = model, start, model.longest or max(room, 1)
        self.past = self._kept(min(room, self.most))
        if start.shape[1]:
            model.read(start[:, -self.most :], self.past)

    def _kept(self, room: int) -> Kept:
        return kept_of(self.model.initial(self.tokens), room)

    def __call__(self, token: Int[Tensor, " batch"], state: State) -> tuple[Tensor, State]:
        """The logits of the token after this one; the state is kept here."""
        self.tokens = torch.cat((self.tokens, token[:, None]), 1)
        if self.tokens.shape[1] <= self.most:
            z = self.model.read(token[:, None], self.past)
        else:
            z = self.model.read(self.tokens[:, -self.most :])
        return self.model.head(z[:, -1]), state
