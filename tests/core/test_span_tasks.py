"""Spans and tags: the best span against brute force, losses and scores by hand."""

import torch

from margin.core.tasks import SPANS, TAGS, best_span, span_exact, span_f1, span_loss


def test_the_best_span_is_that_of_a_search_over_all() -> None:
    logits = torch.randn(200, 2, 7, generator=torch.Generator().manual_seed(0))
    logits[::2, :, :3] = -torch.inf  # a question that no answer lies in
    start, end = best_span(logits)
    for row, i, j in zip(logits, start.tolist(), end.tolist(), strict=True):
        sums = {(a, b): float(row[0, a] + row[1, b]) for a in range(7) for b in range(a, 7)}
        assert (i, j) == max(sums, key=sums.__getitem__)
    assert (start[::2] >= 3).all()
    apart = logits.argmax(2)
    assert (apart[:, 0] > apart[:, 1]).any()  # the two largest alone are no span


def test_the_loss_is_the_sum_of_two_cross_entropies() -> None:
    logits = torch.tensor([[[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]])
    p, q = logits[0, 0].softmax(0), logits[0, 1].softmax(0)
    assert torch.allclose(span_loss(logits, torch.tensor([[1, 2]])), -(p[1].log() + q[2].log()))
    assert torch.allclose(SPANS.predict(logits)["probability"], p[1] * q[2])


def test_scores_count_shared_tokens() -> None:
    logits = torch.zeros(3, 2, 9)
    logits[:, 0, 2] = logits[:, 1, 5] = 9.0  # tokens 2 .. 5
    logits[2, 0, 0] = torch.nan
    truth = torch.tensor([[2, 5], [4, 7], [2, 5]])
    assert span_exact(logits, truth).tolist() == [1, 0, 0]
    assert span_f1(logits, truth)[:2].tolist() == [1, 0.5]  # two of four and four
    assert span_f1(logits[:1], torch.tensor([[6, 8]])).tolist() == [0]
    assert span_f1(logits[2:], truth[2:]).nan_to_num(-1) <= 0


def test_tags_are_classes_term_by_term() -> None:
    logits = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(3, (2, 5))
    loss = TAGS.loss(logits, labels)
    assert torch.allclose(loss[1, 2], -logits[1, 2].log_softmax(0)[labels[1, 2]])
    assert TAGS.predict(logits)["class"].shape == (2, 5)
    assert TAGS.probabilities is not None
