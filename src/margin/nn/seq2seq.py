"""Encoder-decoders (Sutskever, Vinyals and Le 2014): a distribution over targets given a source, decoded."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.nn.decoding import Decoded, State, beam, greedy

BEGIN, END = 1, 2
"""The tokens that a target begins after and ends with, as every source of pairs numbers them."""

Source = Int[Tensor, "batch source"]
Lengths = Int[Tensor, " batch"]
Target = Int[Tensor, "batch time"]
Logits = Float[Tensor, "batch time vocab"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; on leaving, the mode of every submodule is as before."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


class Seq2Seq(nn.Module, ABC):
    r"""A distribution over target sequences given a source sequence, token by token.

    .. math:: p(y \mid x) = \prod_{t} p(y_t \mid y_{<t}, x)

    ``forward`` gives the logits of all factors at once for a known target; ``initial`` and ``step`` give them
    one by one for a target that is being written. Both are the same numbers.
    """

    @abstractmethod
    def forward(self, source: Source, source_lengths: Lengths, target: Target) -> Logits:
        """The logits of the next token after each token of the target."""

    @abstractmethod
    def initial(self, source: Source, source_lengths: Lengths | None = None) -> State:
        """The state before the first token of the target: the source as it was read."""

    @abstractmethod
    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the token after ``token``, and the new state."""

    def translate(
        self,
        source: Source,
        source_lengths: Lengths | None = None,
        *,
        width: int = 1,
        longest: int = 100,
        length_normalization: float = 0.0,
    ) -> Decoded:
        """The target that decoding finds for each source, in evaluation mode, which is then left.

        Args:
            source: Tokens, padded to one length.
            source_lengths: Tokens of each source; None is all of them.
            width: 1 decodes greedily, more by a beam of so many.
            longest: Tokens of a target at most, its end included; one that came to no end says so.
            length_normalization: See :func:`margin.nn.decoding.beam`; 0 for the probability itself.

        Raises:
            ValueError: An option is out of range, or the lengths disagree with the sources.
        """
        with torch.no_grad(), evaluating(self):
            state = self.initial(source, source_lengths)
            first = torch.full((len(source),), BEGIN, device=source.device)
            if width == 1 and length_normalization == 0:
                return greedy(self.step, state, first, end=END, longest=longest)
            return beam(
                self.step,
                state,
                first,
                end=END,
                longest=longest,
                width=width,
                length_normalization=length_normalization,
            )


class AligningSeq2Seq(Seq2Seq):
    """An encoder-decoder that tells how much each token of the target reads of each of the source."""

    @abstractmethod
    def alignment(
        self, source: Source, source_lengths: Lengths | None, target: Target
    ) -> Float[Tensor, "batch time source"]:
        """The weight with which target token i, the one after ``target[i]``, reads source token j."""


def check_target(target: Tensor) -> None:
    """Refuse a target without any token: its first is BEGIN."""
    if target.shape[1] == 0:
        raise ValueError(f"a target must hold its first token at least: got shape {tuple(target.shape)}")


def check_sizes(source_vocab_size: int, vocab_size: int, sizes: Mapping[str, int]) -> None:
    """Refuse a size below 1, and a target whose vocabulary lacks BEGIN or END.

    Raises:
        ValueError: A size is too small.
    """
    if source_vocab_size < 1:
        raise ValueError(f"source_vocab_size must be at least 1: got {source_vocab_size}")
    if vocab_size <= END:
        raise ValueError(f"vocab_size must be at least {END + 1}, {END} being the end: got {vocab_size}")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1: got {size}")
