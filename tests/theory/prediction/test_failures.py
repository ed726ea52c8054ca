"""Where a model fails: labels that were swapped on purpose, and segments that were made bad."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from margin.core.findings import Verdict
from margin.theory.prediction.failures import (
    by_chance,
    confident_errors,
    mislabeled,
    mislabeled_demo,
)
from margin.theory.prediction.held_out import stated


def by_loops(p, y):
    """Northcutt et al. 2021, Equations 1 and 2, as they stand, where the label is not the likeliest."""
    classes = range(p.shape[1])
    t = {j: np.mean([p[i, j] for i in range(len(y)) if y[i] == j]) for j in classes if j in y}
    found = {}
    for i in range(len(y)):
        reached = [j for j in t if p[i, j] >= t[j] - 1e-12]
        if reached:
            j = max(reached, key=lambda j: p[i, j])
            if j != y[i] and p[i, j] > p[i, y[i]]:
                found[i] = j
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_suspects_are_an_independent_implementations(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([0.4] * 4, size=80)
    y = np.array([rng.choice(4, p=row) if rng.random() < 0.7 else rng.integers(3) for row in p])
    if seed == 3:
        y[y == 3] = 0  # a class without an example
    found = confident_errors(torch.tensor(p), torch.tensor(y))
    rows = found.found.nonzero().flatten().tolist()
    expected = by_loops(p, y)
    assert rows == list(expected) and len(rows) > 3
    assert found.likely[rows].tolist() == list(expected.values())


def swapped(seed=0):
    """Digits that a linear model has not seen, 40 of 797 with another label; which those are."""
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    X, y = X[order] / 16, y[order]
    fitted = LogisticRegression(C=10.0, max_iter=500).fit(X[:1000], y[:1000])
    model = nn.Linear(64, 10).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor(fitted.coef_))
        model.bias.copy_(torch.tensor(fitted.intercept_))
    given, rows = y[1000:].copy(), rng.choice(797, 40, replace=False)
    given[rows] = (given[rows] + rng.integers(1, 10, 40)) % 10
    subject = stated(torch.tensor(X[1000:]), torch.tensor(given))
    return dataclasses.replace(subject, model=model), torch.tensor(y[1000:]), set(rows.tolist())


def test_swapped_labels_are_found_and_right_ones_are_not():
    subject, truth, wrong = swapped()
    found = mislabeled(subject)
    rows = found.curves["row"].tolist()
    assert len(rows) == found.value.item()
    assert len(wrong & set(rows)) / len(rows) > 0.85  # precision
    assert len(wrong & set(rows)) / len(wrong) > 0.7  # recall
    assert set(rows[:10]) <= wrong  # the gravest first
    assert found.value.item() > 2 * found.curves["by chance"][1].item()
    right = sum(
        int(truth[row]) == likely for row, likely in zip(rows, found.curves["likely"].tolist(), strict=True)
    )
    assert right / len(rows) > 0.85
    assert found.remarks[0].startswith(f"Held-out example {rows[0]}: labeled 'class ")
    (batch,) = subject.test
    clean = mislabeled(dataclasses.replace(subject, test=[batch._replace(targets=truth)]))
    assert clean.value.item() <= 5


def test_labels_drawn_from_the_stated_probabilities_are_suspected_as_chance_says():
    # Of 60 samples 3 exceed the 95 % quantile on average, more than 11 with probability 4e-5.
    g = torch.Generator().manual_seed(5)
    p = (1.5 * torch.randn(300, 3, generator=g).double()).softmax(-1)
    chance = by_chance(p, torch.ones(300))
    counts = torch.stack(
        [confident_errors(p, torch.multinomial(p, 1, generator=g).squeeze(1)).found.sum() for _ in range(60)]
    ).double()
    assert int((counts > chance.quantile(0.95)).sum()) <= 11
    assert counts.mean().item() == pytest.approx(chance.mean().item(), rel=0.06)


def test_rows_are_counted_among_all_held_out_examples():
    subject = mislabeled_demo()
    (batch,) = subject.test
    weight = torch.ones(40)
    weight[:4] = 0  # not counted, but they keep their place
    found = mislabeled(dataclasses.replace(subject, test=[batch._replace(weight=weight)]))
    assert sorted(found.curves["row"].tolist()) == [4, 10]
    cut = [type(batch)((batch.inputs[0][i : i + 7],), batch.targets[i : i + 7]) for i in range(0, 40, 7)]
    named = dataclasses.replace(subject, test=cut, class_names=("good", "bad"))
    again = mislabeled(named)
    assert again.value.item() == 2 and "labeled 'bad', of probability 0.1; 'good' has 0.9" in again.remarks[0]


def test_a_constant_model_suspects_no_more_than_chance_and_a_broken_one_fails():
    labels = torch.tensor([0] * 60 + [1] * 40)
    constant = stated(torch.tensor([0.6, 0.4]).double().log().expand(100, 2), labels)
    found = mislabeled(constant)
    assert found.value.item() == 40 and found.curves["by chance"].tolist() == pytest.approx([40, 48], abs=2)
    broken = torch.zeros(100, 2).double()
    broken[7] = math.nan
    failed = mislabeled(stated(broken, labels))
    assert failed.verdict is Verdict.FAILED and "index 7" in failed.failure and not failed.remarks
