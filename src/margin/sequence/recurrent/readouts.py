"""Heads of a recurrence: a class, a number, the next token, a forecast (many to one, many to many).

A model is a body, any recurrence, with one of these heads. :func:`classifier`, :func:`regressor`,
:func:`language` and :func:`forecaster` make its constructor, whose options are those of both.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.composition import headed
from margin.core.types import ClassScores, PerExample
from margin.nn.decoding import drawn, sampled
from margin.nn.recurrence import (
    Lengths,
    Recurrence,
    Sequences,
    State,
    Steps,
    check_dropout,
    mean,
    without_padding,
)
from margin.sequence.forecast.forecasting import Forecaster, width_read

Pool = Literal["last", "mean"]
Readout = Literal["own", "tied"]


def pooled(recurrence: Recurrence, x: Tensor, lengths: Tensor | None, pool: Pool) -> Steps:
    """One vector a sequence: the output that has read all of it, or the mean output; 0 for length 0."""
    outputs, _ = recurrence(x, lengths)
    return recurrence.final(outputs, lengths) if pool == "last" else mean(outputs, lengths)


def check_pool(pool: Pool) -> Pool:
    """The pool, unless it is none of the two."""
    if pool not in ("last", "mean"):
        raise ValueError(f"pool must be 'last' or 'mean': got {pool!r}")
    return pool


class SequenceClassifier(nn.Module):
    r"""Class logits of a sequence, an affine map of a recurrence's last or mean output.

    .. math:: f(x_{1:T}) = W y_T + b \quad \text{or} \quad W \tfrac1T \textstyle\sum_t y_t + b

    A sequence of length 0 gets the logits b.

    Args:
        recurrence: The recurrence y = R(x), of m outputs.
        num_classes: Number K of logits.
        pool: The output that has read the whole sequence, or the mean over its steps.
        dropout: Probability with which a number of what is read is dropped in training, in [0, 1).

    Raises:
        ValueError: The pool is neither, or the dropout is not in [0, 1).

    Reference:
        Goodfellow, Bengio and Courville 2016, Section 10.2 (Figure 10.5).
    """

    def __init__(
        self, recurrence: Recurrence, num_classes: int, *, pool: Pool = "last", dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.recurrence = recurrence
        self.pool: Pool = check_pool(pool)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.head = nn.Linear(recurrence.output_size, num_classes)

    def forward(self, x: Sequences, lengths: Lengths | None = None) -> ClassScores:
        """The logits of each sequence."""
        return self.head(self.dropout(pooled(self.recurrence, x, lengths, self.pool)))


class SequenceRegressor(nn.Module):
    """One real number of a sequence, an affine map of a recurrence's last or mean output.

    Args:
        recurrence: The recurrence, of m outputs.
        pool: The output that has read the whole sequence, or the mean over its steps.
        dropout: Probability with which a number of what is read is dropped in training, in [0, 1).

    Raises:
        ValueError: The pool is neither, or the dropout is not in [0, 1).

    Reference:
        Goodfellow, Bengio and Courville 2016, Section 10.2 (Figure 10.5).
    """

    def __init__(self, recurrence: Recurrence, *, pool: Pool = "last", dropout: float = 0.0) -> None:
        super().__init__()
        self.recurrence = recurrence
        self.pool: Pool = check_pool(pool)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.head = nn.Linear(recurrence.output_size, 1)

    def forward(self, x: Sequences, lengths: Lengths | None = None) -> PerExample:
        """The value of each sequence."""
        return self.head(self.dropout(pooled(self.recurrence, x, lengths, self.pool))).squeeze(-1)


class TextClassifier(nn.Module):
    """Class logits of a text: a :class:`SequenceClassifier` of the vectors of its tokens.

    Args:
        recurrence: The recurrence; the token vectors have its input size.
        vocab_size: Number V of tokens.
        num_classes: Number K of logits.
        pool: The output that has read the whole text, or the mean over its tokens.
        dropout: Probability with which a number of a token's vector, and of what is read, is dropped in
            training, in [0, 1).

    Raises:
        ValueError: As :class:`SequenceClassifier`.

    Reference:
        Goodfellow, Bengio and Courville 2016, Section 10.2 (Figure 10.5).
    """

    def __init__(
        self,
        recurrence: Recurrence,
        vocab_size: int,
        num_classes: int,
        *,
        pool: Pool = "last",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, recurrence.input_size)
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.classifier = SequenceClassifier(recurrence, num_classes, pool=pool, dropout=dropout)

    def forward(self, tokens: Int[Tensor, "batch time"], lengths: Lengths | None = None) -> ClassScores:
        """The logits of each text."""
        return self.classifier(self.dropout(self.embedding(tokens)), lengths)


class Tagger(nn.Module):
    r"""Class logits of each token of a text, an affine map of a recurrence's output at it.

    .. math:: f(w_{1:T})_t = W y_t + b, \qquad y = R(E[w_1], \dots, E[w_T])

    A recurrence that reads from both ends knows what follows a token too.

    Args:
        recurrence: The recurrence R; the token vectors have its input size.
        vocab_size: Number V of tokens.
        num_classes: Number K of logits of a token.
        dropout: Probability with which a number of E[w] and of y is dropped in training, in [0, 1).

    Raises:
        ValueError: The dropout is not in [0, 1).

    Reference:
        Graves and Schmidhuber 2005, Section 2; Huang, Xu and Yu 2015, Section 2.2.
    """

    def __init__(
        self, recurrence: Recurrence, vocab_size: int, num_classes: int, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, recurrence.input_size)
        self.recurrence = recurrence
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.head = nn.Linear(recurrence.output_size, num_classes)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch time classes"]:
        """The logits of each token; 0 at padding."""
        outputs, _ = self.recurrence(self.dropout(self.embedding(tokens)), lengths)
        return without_padding(self.head(self.dropout(outputs)), lengths)


class LanguageModel(nn.Module):
    r"""The distribution of the next token given all before it, by a recurrence over token vectors.

    .. math:: p(w_{t+1} | w_{1:t}) = \mathrm{softmax}(W y_t + b), \qquad y = R(E[w_1], \dots, E[w_T])

    Args:
        recurrence: The recurrence R; the token vectors have its input size. It must be causal.
        vocab_size: Number V of tokens.
        readout: A matrix of its own, or that of the token vectors, W = E ("tied"), for which a vector must
            have as many numbers as an output (embedding = hidden).
        dropout: Probability with which a number of E[w] and of y is dropped in training, in [0, 1).

    Raises:
        ValueError: The recurrence is not causal, the readout is another, the sizes of a tied one differ, or
            the dropout is not in [0, 1).

    Reference:
        Mikolov, Karafiat, Burget, Cernocky and Khudanpur 2010, Section 2; Press and Wolf 2017 (tied).
    """

    def __init__(
        self,
        recurrence: Recurrence,
        vocab_size: int,
        *,
        readout: Readout = "own",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not recurrence.causal:
            raise ValueError("a language model needs a causal recurrence: got one that reads the future")
        if readout not in ("own", "tied"):
            raise ValueError(f"readout must be 'own' or 'tied': got {readout!r}")
        if readout == "tied" and recurrence.input_size != recurrence.output_size:
            raise ValueError(
                "a tied readout needs input_size = output_size: "
                f"got {recurrence.input_size} and {recurrence.output_size}"
            )
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size, recurrence.input_size)
        self.recurrence = recurrence
        self.head = nn.Linear(recurrence.output_size, vocab_size)
        self.dropout = nn.Dropout(check_dropout(dropout))
        if readout == "tied":
            # E has rows of variance 1: as a readout they would make logits of variance m
            nn.init.normal_(self.embedding.weight, std=recurrence.output_size**-0.5)
            self.head.weight = self.embedding.weight

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """The logits of the token after each; 0 at padding."""
        outputs, _ = self.recurrence(self.dropout(self.embedding(tokens)), lengths)
        return without_padding(self.head(self.dropout(outputs)), lengths)

    def initial(self, tokens: Int[Tensor, " batch *rest"]) -> State:
        """The state before the first token."""
        return self.recurrence.initial(self.embedding.weight.new_empty(tokens.shape[0], 0))

    def step(self, token: Int[Tensor, " batch"], state: State) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of the token after this one, and the new state."""
        y, state = self.recurrence.step(self.dropout(self.embedding(token)), state)
        return self.head(self.dropout(y)), state

    @torch.no_grad()
    def sample(
        self,
        count: int,
        *,
        generator: Generator,
        length: int = 200,
        prefix: Int[Tensor, " prefix"] | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> Int[Tensor, "count length"]:
        """Continuations drawn from the model, token by token, each in constant time.

        Args:
            count: How many, at least 1.
            generator: Where the draws come from.
            length: Tokens of each, at least 0.
            prefix: What they continue; None begins with a token drawn evenly, which is the first of each.
            temperature: 0 takes the likeliest token each time, 1 samples the model.
            top_k: Of how many of the likeliest tokens is drawn; 0 is all.
            top_p: Of how much probability the likeliest are that are drawn of; 1 is all.

        Raises:
            ValueError: The count is below 1, or an option is out of range.
        """

        def draw(logits: Tensor) -> Tensor:
            return drawn(logits, generator, temperature=temperature, top_k=top_k, top_p=top_p)

        return sampled(self, count, length, prefix, draw, generator)


Constructor = Callable[..., Any]


def classifier(
    body: Constructor,
    summary: str,
    *,
    defaults: Mapping[str, Any] | None = None,
    without: Sequence[str] = (),
) -> Constructor:
    """The constructor of a :class:`SequenceClassifier` with this body, see :func:`headed`.

    Args:
        body: The constructor of a recurrence: its input size, and options.
        summary: First sentence of its docstring.
        defaults: Options whose default is another than body and head state.
        without: Options that cannot be chosen.
    """
    return headed(body, SequenceClassifier, summary, defaults=defaults, without=without)


def regressor(body: Constructor, summary: str, *, without: Sequence[str] = ()) -> Constructor:
    """The constructor of a :class:`SequenceRegressor` with this body, see :func:`classifier`."""
    return headed(body, SequenceRegressor, summary, without=without)


def texts(body: Constructor, summary: str, *, without: Sequence[str] = ()) -> Constructor:
    """The constructor of a :class:`TextClassifier` with this body, see :func:`classifier`."""
    return _of_tokens(body, TextClassifier, summary, without)


def tagger(body: Constructor, summary: str, *, without: Sequence[str] = ()) -> Constructor:
    """The constructor of a :class:`Tagger` with this body, see :func:`classifier`."""
    return _of_tokens(body, Tagger, summary, without)


def _of_tokens(body: Constructor, head: Constructor, summary: str, without: Sequence[str]) -> Constructor:
    changed = {"embedding": 100, "hidden": 100}
    return headed(body, head, summary, defaults=changed, body_size="embedding", without=without)


def language(
    body: Constructor,
    summary: str,
    *,
    body_size: str = "embedding",
    defaults: Mapping[str, Any] | None = None,
    without: Sequence[str] = (),
) -> Constructor:
    """The constructor of a :class:`LanguageModel` with this body, see :func:`classifier`.

    Args:
        body: The constructor of a recurrence.
        summary: First sentence of its docstring.
        body_size: The option that is the length of a token's vector: one of its own, or one of the body's.
        defaults: Options whose default is another than body and head state; None: vectors of 64, 128 units.
        without: Options that cannot be chosen.
    """
    changed = {"embedding": 64, "hidden": 128} if defaults is None else defaults
    return headed(body, LanguageModel, summary, defaults=changed, body_size=body_size, without=without)


def forecaster(
    body: Constructor,
    summary: str,
    *,
    outputs: Literal["mean", "quantiles"] = "mean",
    defaults: Mapping[str, Any] | None = None,
    without: Sequence[str] = (),
) -> Constructor:
    """The constructor of a :class:`~margin.sequence.forecast.forecasting.Forecaster` with this body.

    The body reads all columns of a series, or one: so many has it as input size.

    Args:
        body: The constructor of a recurrence.
        summary: First sentence of its docstring.
        outputs: What is forecast of each value, its mean or its quantiles.
        defaults: Options whose default is another than body and head state.
        without: Options that cannot be chosen.
    """
    signature = inspect.signature(body)
    reads = inspect.signature(Forecaster).parameters["reads"]

    def _reader(input_size: int, **chosen: Any) -> Any:
        return body(width_read(input_size, chosen.pop("reads")), **chosen)

    _reader.__doc__ = inspect.getdoc(body)
    _reader.__signature__ = signature.replace(parameters=[*signature.parameters.values(), reads])  # type: ignore[attr-defined]
    changed = {"outputs": outputs, **(defaults or {})}
    return headed(_reader, Forecaster, summary, defaults=changed, without=("outputs", *without))
