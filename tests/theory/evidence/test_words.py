"""A bag of words against scikit-learn's own, and the linear model of it beside classifiers of texts."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from margin.core.catalog import claims
from margin.core.findings import NotAsked, Subject
from margin.core.tasks import CLASSES, PIXEL_CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.evidence.words import Bag, counted
from margin.theory.prediction.baselines import OF_WORDS, linear

VOCABULARY = 40


class ByOrder(nn.Module):
    """Class 1 where token 1 stands before token 2: what no bag of words tells. Lengths are read or not."""

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        first, second = ((tokens == k).long().argmax(1) for k in (1, 2))
        return nn.functional.one_hot((first < second).long(), 2).double()


class Always(nn.Module):
    """The first class, or a value of 0."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, tokens: Tensor) -> Tensor:
        scores = torch.zeros(len(tokens), self.outputs, dtype=torch.float64)
        scores[:, 0] = 1
        return scores if self.outputs > 1 else scores[:, 0] - 1


def texts(n: int, seed: int) -> Tensor:
    """Texts of 12 tokens of which a few are frequent; each holds 1 and 2 once."""
    rng = np.random.default_rng(seed)
    rows = 3 + np.minimum(rng.geometric(0.12, (n, 12)), VOCABULARY - 4)
    places = np.array([rng.choice(12, 2, replace=False) for _ in range(n)])
    rows[np.arange(n), places[:, 0]], rows[np.arange(n), places[:, 1]] = 1, 2
    return torch.tensor(rows)


def subject_of(model: nn.Module, rule, n: int = 300, task=CLASSES) -> Subject:
    parts = []
    for seed, count in ((1, n), (2, 2 * n)):
        x = texts(count, seed)
        parts.append([Batch((rows,), rule(rows)) for rows in x.split(64)])
    return Subject(model=model, test=parts[0], train=parts[1], task=task, objective=risk(task))


def test_weighed_counts_are_those_of_scikit_learns_vectorizer() -> None:
    """Texts written in words; a token that training has not seen is left out."""
    train, test = texts(50, 1), texts(20, 2)
    test[0, 0] = 1000
    written = [[" ".join(f"w{k}" for k in row) for row in part.tolist()] for part in (train, test)]
    known = [f"w{k}" for k in range(int(train.max()) + 1)]
    theirs = TfidfVectorizer(sublinear_tf=True, vocabulary=known, token_pattern=r"w\d+").fit(written[0])
    bag = Bag.of([Batch((rows,)) for rows in train.split(7)])
    mine = bag([Batch((rows,)) for rows in test.split(6)])
    assert bag.columns == len(known)
    assert np.allclose(mine.toarray(), theirs.transform(written[1]).toarray(), atol=1e-12)


def test_fillers_do_not_count() -> None:
    """By their number in the vocabulary, by lengths, and by a mask: [5, 6] and [5, 5, 7] are left."""
    tokens = torch.tensor([[5, 6, 0], [5, 5, 7]])
    expected = ([0, 0, 1, 1, 1], [5, 6, 5, 5, 7])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    for batch, padding in (
        (Batch((tokens,)), 0),
        (Batch((tokens, torch.tensor([2, 3]))), None),
        (Batch((tokens, mask)), None),
        (Batch((tokens, mask, torch.zeros_like(mask))), None),  # the second kind of every token is none
    ):
        assert tuple(x.tolist() for x in counted(batch, padding)) == expected
    assert len(counted(Batch((tokens,)))[0]) == 6
    assert Bag.of([Batch((tokens,))], ("[PAD]", "a")).padding == 0
    assert Bag.of([Batch((tokens,))], ("a", "[PAD]")).padding is None


def test_what_only_the_order_tells_a_bag_of_words_does_not() -> None:
    """The model is always right, a linear one of words no more often than a coin: .5 of 300, to .12."""
    model = ByOrder()
    found = linear(subject_of(model, lambda x: model(x).argmax(1)))
    assert float(found.value) == pytest.approx(0.5, abs=0.12)
    assert float(found.interval[0]) > 0.3
    assert found.remarks == (OF_WORDS,)
    assert "a logistic regression of a bag of words" in found.statement


def test_where_words_tell_all_a_bag_of_them_is_nearly_right_and_scikit_learns_own() -> None:
    def rule(x: Tensor) -> Tensor:
        return ((x == 4).sum(1) > 0).long()

    subject = subject_of(Always(2), rule)
    found = linear(subject)
    train, test = (torch.cat([b.inputs[0] for b in part]) for part in (subject.train, subject.test))
    words = [[" ".join(f"w{k}" for k in row) for row in part.tolist()] for part in (train, test)]
    theirs = TfidfVectorizer(sublinear_tf=True, token_pattern=r"w\d+")
    fitted = LogisticRegression(C=10, max_iter=1000).fit(theirs.fit_transform(words[0]), rule(train).numpy())
    right = (fitted.predict(theirs.transform(words[1])) == rule(test).numpy()).mean()
    assert right > 0.95
    constant = float((rule(test) == 0).double().mean())
    assert float(found.value) == pytest.approx(constant - right, abs=0.004)  # one of 300 on the edge


def test_values_are_told_by_a_ridge_regression_of_words() -> None:
    """Twice a count, of which the model knows nothing: the words explain most of it."""
    subject = subject_of(Always(1), lambda x: 2.0 * (x == 4).sum(1).double(), task=VALUES)
    found = linear(subject)
    assert float(found.value) < -1
    assert "a ridge regression of a bag of words" in found.statement


def test_a_label_for_each_token_is_not_asked_and_the_claim_says_what_it_needs() -> None:
    subject = subject_of(nn.Embedding(VOCABULARY, 2), lambda x: x % 2, task=PIXEL_CLASSES)
    with pytest.raises(NotAsked, match="one label for each example"):
        linear(subject)
    claim = claims()["theory/baseline.linear"]
    assert not claim.refusal(subject_of(Always(2), lambda x: x[:, 0] % 2))
    two = [Batch((torch.zeros(4, 2), torch.zeros(4, 2)), torch.arange(4) % 2)]
    real = Subject(model=nn.Bilinear(2, 2, 2), test=two, train=two, task=CLASSES, objective=risk(CLASSES))
    assert "one input of real numbers, or tokens" in claim.refusal(real)
