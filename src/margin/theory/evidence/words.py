"""A bag of words: of a text how often each token stands in it, and nothing of their order.

Counts are weighed as Salton and Buckley (1988) do: (1 + log count) times the logarithm of the share of texts
that hold the token, the other way up, and the rows are scaled to length 1. A linear model of that is what a
text classifier is to be compared with: it is often as good (Joulin, Grave, Bojanowski and Mikolov 2017).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from margin.core.findings import Subject, has_real_input, why_not_movable
from margin.core.types import Batch

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

PADDING = ("<pad>", "[PAD]")
"""What a vocabulary calls the filler behind a short text, its first entry."""


def has_tokens(subject: Subject) -> bool:
    """Whether the first input is a row of tokens an example; lengths or a mask may stand beside it."""
    if not (subject.independent and len(subject.test) and subject.test[0].divisible):
        return False
    first = subject.test[0].inputs[0]
    return first.dtype in (torch.int64, torch.int32) and first.ndim == 2


def why_no_columns(subject: Subject) -> str:
    """Why the inputs are neither rows of real numbers nor tokens, in one line."""
    found = why_not_movable(subject)
    return f"{found}, or tokens" if found.endswith("real numbers") else found


def has_columns(subject: Subject) -> bool:
    """Whether a linear model can be made of the inputs: of one real input, or of the words of a text."""
    return has_real_input(subject) or has_tokens(subject)


def counted(batch: Batch, padding: int | None = None) -> tuple[Tensor, Tensor]:
    """The example and the number of each token of a batch, without fillers.

    Args:
        batch: Its first input is tokens; where another one is a length of each, or a mask of 0 and 1, these
            say which tokens count.
        padding: The number of the filler; None: there is none, or it is not known.
    """
    tokens = batch.inputs[0].detach().cpu().long()
    keep = torch.ones_like(tokens, dtype=torch.bool) if padding is None else tokens != padding
    for other in batch.inputs[1:]:
        x = other.detach().cpu()
        if x.shape == tokens.shape and bool(((x == 0) | (x == 1)).all()) and bool(x.any()):
            keep &= x.bool()
        elif x.shape == tokens.shape[:1] and not x.is_floating_point():
            keep &= torch.arange(tokens.shape[1]) < x[:, None]
    example = torch.arange(len(tokens))[:, None].expand_as(tokens)
    return example[keep], tokens[keep]


class Bag(NamedTuple):
    """What turns texts into rows of weighed counts: the tokens of the training part, and their weights.

    Args:
        columns: How many tokens are known: those of a larger number stand in no training text.
        weigh: scikit-learn's transformer of counts, fitted to the training part.
        padding: The number of the filler, or None.
    """

    columns: int
    weigh: Any
    padding: int | None

    @classmethod
    def of(cls, batches: Sequence[Batch], vocabulary: Sequence[str] = ()) -> "Bag":
        """The bag of the words of these texts."""
        from sklearn.feature_extraction.text import TfidfTransformer

        padding = 0 if vocabulary and vocabulary[0] in PADDING else None
        seen = torch.cat([torch.zeros(1).long(), *(counted(batch, padding)[1] for batch in batches)])
        columns = 1 + int(seen.max())
        bag = cls(columns, TfidfTransformer(sublinear_tf=True), padding)
        bag.weigh.fit(bag.counts(batches))
        return bag

    def counts(self, batches: Sequence[Batch]) -> "csr_matrix":
        """How often each known token stands in each text."""
        from scipy.sparse import csr_matrix

        rows, columns, first = [], [], 0
        for batch in batches:
            example, token = counted(batch, self.padding)
            known = (token >= 0) & (token < self.columns)
            rows.append(example[known] + first)
            columns.append(token[known])
            first += len(batch.inputs[0])
        at = torch.cat(rows).numpy(), torch.cat(columns).numpy()
        return csr_matrix((torch.ones(len(at[0])).double().numpy(), at), shape=(first, self.columns))

    def __call__(self, batches: Sequence[Batch]) -> "csr_matrix":
        """The weighed counts of each text."""
        return self.weigh.transform(self.counts(batches))
