"""ELMo as two language models (Peters et al., 2018), and as the body of a classifier of texts."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.composition import headed
from margin.nn.decoding import State, drawn, sampled
from margin.nn.recurrence import Lengths, mean, reversed_in_time, without_padding
from margin.text.embeddings.elmo import ELMo, Mix

SHIFT = 2.7
"""Of the law p ~ 1 / (rank + shift) of the frequencies of words (Zipf; Mandelbrot 1953)."""


class LanguageModel(nn.Module):
    """ELMo as a language model: the next word by the forward states, the word before by the backward ones.

    The bias of the output begins with the law of Zipf and Mandelbrot, for words come in the order of their
    frequency.

    Args:
        elmo: The body.
        vocab_size: V, words of the vocabulary, the most frequent first.

    Reference:
        Peters et al. 2018, Section 3.1 (the bias apart).
    """

    def __init__(self, elmo: ELMo, vocab_size: int) -> None:
        super().__init__()
        self.elmo = elmo
        self.vocab_size = vocab_size
        self.head = nn.Linear(elmo.width, vocab_size)
        with torch.no_grad():  # else both LSTMs saturate to say how frequent words are, and read nothing
            self.head.bias.copy_(-(torch.arange(vocab_size) + SHIFT).log())

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """The logits of the word after each, given those up to it; 0 at padding."""
        return self._ahead(self.elmo.embedded(tokens), lengths)

    def before(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """The logits of the word before each, given those from it on; 0 at padding."""
        return self._back(self.elmo.embedded(tokens), lengths)

    def both(
        self, tokens: Int[Tensor, "batch more"], lengths: Lengths | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], Float[Tensor, "batch time vocab"]]:
        """Of texts of T + 1 words the logits of the last T by those before, of the first T by those behind.

        Args:
            tokens: The texts; each word is spelled out once for both directions.
            lengths: T of each; None is one less than there are places.
        """
        x = self.elmo.embedded(tokens)
        return self._ahead(x[:, :-1], lengths), self._back(x, None if lengths is None else lengths + 1)[:, 1:]

    def _ahead(self, x: Float[Tensor, "batch time width"], lengths: Lengths | None) -> Tensor:
        states = self.elmo.read(x, self.elmo.ahead)[-1]
        return without_padding(self.head(self.elmo.dropout(states)), lengths)

    def _back(self, x: Float[Tensor, "batch time width"], lengths: Lengths | None) -> Tensor:
        states = reversed_in_time(self.elmo.read(reversed_in_time(x, lengths), self.elmo.back)[-1], lengths)
        return without_padding(self.head(self.elmo.dropout(states)), lengths)

    def initial(self, tokens: Int[Tensor, " batch *rest"]) -> State:
        """The forward states before the first word."""
        zero = self.head.weight.new_zeros(len(tokens), self.elmo.width)
        return tuple(zero for _ in range(2 * len(self.elmo.ahead)))

    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the word after this one, and the new states."""
        x, new = self.elmo.embedded(token)[:, None], []
        for k, layer in enumerate(self.elmo.ahead):
            h, c = (part[None].contiguous() for part in state[2 * k : 2 * k + 2])
            x, (h, c) = layer(self.elmo.dropout(x), (h, c))
            new += [h[0], c[0]]
        return self.head(self.elmo.dropout(x[:, 0])), tuple(new)

    @torch.no_grad()
    def sample(
        self,
        count: int,
        *,
        generator: Generator,
        length: int = 100,
        prefix: Int[Tensor, " prefix"] | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
    ) -> Int[Tensor, "count length"]:
        """Continuations drawn from the forward model, word by word.

        Args:
            count: How many, at least 1.
            generator: Where the draws come from.
            length: Words of each, at least 0.
            prefix: What they continue; None begins with a word drawn evenly, which is the first of each.
            temperature: 0 takes the likeliest word each time, 1 samples the model.
            top_k: Of how many of the likeliest words is drawn; 0 is all.

        Raises:
            ValueError: The count is below 1, or an option is out of range.
        """

        def draw(logits: Tensor) -> Tensor:
            return drawn(logits, generator, temperature=temperature, top_k=top_k)

        return sampled(self, count, length, prefix, draw, generator)


class Classifier(nn.Module):
    """Class logits of a text: an affine map of the mean over its words of the mixture of ELMo's layers.

    Args:
        elmo: The body; with ``--init-from`` that of a language model.
        num_classes: Number of logits.

    Reference:
        Peters et al. 2018, Sections 3.2 and 3.3.
    """

    def __init__(self, elmo: ELMo, num_classes: int) -> None:
        super().__init__()
        self.elmo = elmo
        self.mix = Mix(len(elmo.ahead) + 1)
        self.head = nn.Linear(2 * elmo.width, num_classes)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch classes"]:
        """The logits of each text; of an empty one those of no word."""
        layers = self.elmo.both(self.elmo.embedded(tokens), lengths)
        return self.head(self.elmo.dropout(mean(self.mix(layers), lengths)))


language = headed(ELMo, LanguageModel, "Forward and backward language models on words from their characters.")
classifier = headed(ELMo, Classifier, "A learned mixture of ELMo's layers to class logits.")
