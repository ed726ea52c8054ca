"""Label smoothing against torch in every combination, a naive sum over classes, and closed-form optima."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from margin.nn.losses import smoothed_cross_entropy, term_weight


def sample(n=13, k=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, k, (n,), generator=generator)
    weight = torch.rand(k, generator=generator, dtype=torch.float64) + 0.1
    rows = torch.rand(k, k, generator=generator, dtype=torch.float64)
    return logits, labels, weight, rows / rows.sum(1, keepdim=True)


def naive(logits, labels, q, weight):
    """Written with loops and exponentials, from the definition."""
    losses = []
    for f, y in zip(logits.tolist(), labels.tolist(), strict=True):
        normalizer = sum(math.exp(v) for v in f)
        losses.append(
            -sum(q[y][j] * weight[j] * math.log(math.exp(f[j]) / normalizer) for j in range(len(f)))
        )
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize(
    ("smoothing", "weighted", "ignored"),
    list(itertools.product((0.0, 0.1, 0.9), (False, True), (False, True))),
)
def test_the_uniform_case_is_torchs_in_every_combination_and_both_reductions(smoothing, weighted, ignored):
    logits, labels, weight, _ = sample()
    weight = weight if weighted else None
    if ignored:
        labels[[0, 4, 12]] = -100
    losses = smoothed_cross_entropy(logits, labels, smoothing=smoothing, class_weight=weight)
    options = {"weight": weight, "label_smoothing": smoothing}
    counts = term_weight(labels, weight)
    torch.testing.assert_close(
        losses.sum(), F.cross_entropy(logits, labels, reduction="sum", **options), rtol=1e-12, atol=0
    )
    mean = losses.sum() / counts.sum()
    torch.testing.assert_close(mean, F.cross_entropy(logits, labels, **options), rtol=1e-12, atol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_both_cases_are_the_sum_over_classes_of_the_definition(weighted):
    logits, labels, weight, confusion = sample()
    k, eps = 5, 0.3
    w = weight if weighted else torch.ones(k, dtype=torch.float64)
    given = weight if weighted else None
    uniform = [[(1 - eps) * (y == j) + eps / k for j in range(k)] for y in range(k)]
    torch.testing.assert_close(
        smoothed_cross_entropy(logits, labels, smoothing=eps, class_weight=given),
        naive(logits, labels, uniform, w.tolist()),
        rtol=1e-12,
        atol=1e-12,
    )
    torch.testing.assert_close(
        smoothed_cross_entropy(logits, labels, confusion, class_weight=given),
        naive(logits, labels, confusion.tolist(), w.tolist()),
        rtol=1e-12,
        atol=1e-12,
    )


def test_a_confusion_is_read_by_rows_its_transpose_is_another_loss():
    """Kills the mutant that reads the column-stochastic matrix of the literature."""
    logits = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    confusion = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    log_p = logits.log_softmax(1)[0]
    loss = smoothed_cross_entropy(logits, torch.tensor([0]), confusion)
    torch.testing.assert_close(loss, -(0.5 * log_p[0] + 0.5 * log_p[1])[None])


@pytest.mark.parametrize("confused", [False, True])
def test_ignored_rows_count_for_nothing_with_class_weights_too(confused):
    """pytorch#73205 (they were counted), #69339, #72056 and #91383 (index error with class weights)."""
    logits, labels, weight, confusion = sample()
    given = {"confusion": confusion} if confused else {"smoothing": 0.2}
    labels[::3] = -100
    kept = labels != -100
    losses = smoothed_cross_entropy(logits, labels, class_weight=weight, **given)
    alone = smoothed_cross_entropy(logits[kept], labels[kept], class_weight=weight, **given)
    assert torch.equal(losses[kept], alone)
    assert not losses[~kept].any()
    mean = losses.sum() / term_weight(labels, weight).sum()
    torch.testing.assert_close(mean, alone.sum() / weight[labels[kept]].sum(), rtol=1e-14, atol=0)
    counted = losses.mean()  # the bug
    assert abs(counted - mean) > 0.01


def test_another_ignore_index_may_be_negative_or_a_class():
    logits, labels, _, confusion = sample()
    labels[:4] = torch.tensor([2, -1, 2, -1])
    for index in (2, -1):
        marked = torch.where(labels == -1, 0, labels) if index == 2 else labels
        losses = smoothed_cross_entropy(logits, marked, confusion, ignore_index=index)
        assert torch.equal(losses == 0, marked == index)
        assert torch.equal(term_weight(marked, ignore_index=index), (marked != index).float())


@pytest.mark.parametrize(("eps", "k"), [(0.1, 10), (0.3, 3), (0.02, 2)])
def test_the_optimal_logit_gap_is_log_of_the_ratio_of_the_smoothed_probabilities(eps, k):
    logits = torch.zeros(1, k, dtype=torch.float64, requires_grad=True)
    label = torch.tensor([1])
    optimizer = torch.optim.LBFGS(
        [logits], max_iter=200, tolerance_grad=1e-12, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = smoothed_cross_entropy(logits, label, smoothing=eps).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    gap = logits[0, 1] - logits[0, 0]
    assert gap.item() == pytest.approx(math.log((1 - eps + eps / k) / (eps / k)), abs=1e-6)


def test_the_optimum_of_a_confusion_is_its_row():
    _, _, _, confusion = sample()
    logits = confusion.log().requires_grad_()
    loss = smoothed_cross_entropy(logits, torch.arange(5), confusion)
    (grad,) = torch.autograd.grad(loss.sum(), logits)
    assert grad.abs().max() < 1e-14
    torch.testing.assert_close(loss, -(confusion * confusion.log()).sum(1))


def test_a_class_of_probability_zero_may_have_a_logit_of_minus_infinity():
    logits = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
    confusion = torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]])
    loss = smoothed_cross_entropy(logits, torch.tensor([0]), confusion)
    assert loss.isfinite().all()


def test_gradients_agree_with_finite_differences():
    logits, labels, weight, confusion = sample(4)
    labels[0] = -100
    assert torch.autograd.gradcheck(
        lambda x: smoothed_cross_entropy(x, labels, confusion, class_weight=weight), logits.requires_grad_()
    )


def test_what_is_no_distribution_or_no_class_is_refused():
    logits, labels, _, confusion = sample()
    for eps in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"smoothing must be in \[0, 1\)"):
            smoothed_cross_entropy(logits, labels, smoothing=eps)
    short = confusion.clone()
    short[3] *= 0.9
    with pytest.raises(ValueError, match=r"must be a distribution: got row 3 with sum 0\.9"):
        smoothed_cross_entropy(logits, labels, short)
    negative = confusion.clone()
    negative[2, :2] = torch.tensor([-0.1, 0.1]) + confusion[2, :2].sum() / 2 * torch.tensor([0.0, 2.0])
    with pytest.raises(ValueError, match=r"got row 2 with sum 1, least entry -0\.1"):
        smoothed_cross_entropy(logits, labels, negative)
    with pytest.raises(ValueError, match="got row 0 with sum nan"):
        smoothed_cross_entropy(logits, labels, torch.full((5, 5), torch.nan, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"confusion must have shape \(5, 5\).*got \(4, 4\)"):
        smoothed_cross_entropy(logits, labels, torch.eye(4, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"got both, smoothing=0\.1"):
        smoothed_cross_entropy(logits, labels, confusion, smoothing=0.1)
    with pytest.raises(ValueError, match="one weight a class: got 4 for 5"):
        smoothed_cross_entropy(logits, labels, class_weight=torch.ones(4, dtype=torch.float64))
    labels[6] = -1
    with pytest.raises(ValueError, match=r"labels must be 0 \.\. 4: got -1 at index 6"):
        smoothed_cross_entropy(logits, labels, confusion)
    labels[6] = 5
    with pytest.raises(ValueError, match=r"got 5 at index 6"):
        smoothed_cross_entropy(logits, labels, smoothing=0.1)
