"""The tasks by hand: losses, scores, columns, and what a tie or a NaN counts as."""

import math

import pytest
import torch

from margin.core.tasks import (
    BINARY,
    CLASSES,
    CODES,
    HALFSPACE,
    LEVELS,
    POINT_CLASSES,
    QUANTILES,
    SCORES,
    SERIES,
    TOKENS,
    VALUES,
    class_accuracy,
)


def test_a_row_with_a_nan_is_never_right() -> None:
    scores = torch.tensor([[0.0, 1.0], [math.nan, 1.0], [0.0, math.nan], [1.0, 0.0]])
    assert class_accuracy(scores, torch.tensor([1, 1, 1, 1])).tolist() == [1, 0, 0, 0]
    assert class_accuracy(scores, torch.tensor([0, 0, 0, 0])).tolist() == [0, 0, 0, 1]


def test_a_point_on_the_boundary_is_of_class_0_to_the_score_and_to_the_prediction() -> None:
    score = torch.tensor([0.0, 0.0, 2.0, 2.0, -1.0, -1.0, -0.0, math.nan, math.nan])
    labels = torch.tensor([0, 1, 1, 0, 0, 1, 0, 0, 1])
    right = HALFSPACE.scores["accuracy"](score, labels)
    assert right.tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 0]
    number = ~score.isnan()
    assert torch.equal(right[number] == 1, HALFSPACE.predict(score)["class"][number] == labels[number])
    assert torch.equal(right, class_accuracy(HALFSPACE.classes(score), labels))
    columns = HALFSPACE.predict(torch.tensor([-1.0, 0.0, 1.0]))
    assert columns["class"].tolist() == [0, 0, 1]
    assert columns["score"].tolist() == [-1, 0, 1]


def test_the_perceptron_loss_is_the_distance_to_the_right_side() -> None:
    score, labels = torch.tensor([2.0, 2.0, -3.0, -3.0]), torch.tensor([1, 0, 1, 0])
    assert HALFSPACE.loss(score, labels).tolist() == [0, 2, 3, 0]


def test_its_gradient_step_is_the_mistake_rule() -> None:
    w = torch.tensor([1.0, -1.0], requires_grad=True)
    x, labels = torch.tensor([[1.0, 3.0], [2.0, 0.0]]), torch.tensor([1, 1])  # scores -2, 2: one mistake
    (grad,) = torch.autograd.grad(HALFSPACE.loss(x @ w, labels).sum(), w)
    assert (w - grad).tolist() == [2, 2]  # w + y x of the first row


def test_the_two_sides_differ_by_the_margin() -> None:
    score, labels = torch.tensor([2.0, -3.0]), torch.tensor([1, 1])
    sides = HALFSPACE.classes(score)
    margin = sides.gather(1, labels[:, None]) - sides.gather(1, 1 - labels[:, None])
    assert margin[:, 0].tolist() == [2, -3]


def test_the_probability_is_that_of_the_class_shown() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]]))
    columns = CLASSES.predict(logits)
    assert columns["class"].tolist() == [1, 0]
    assert torch.allclose(columns["probability"], torch.tensor([0.5, 0.9]), atol=1e-6)


def test_the_loss_of_scores_is_what_the_best_rival_leads_by() -> None:
    scores = torch.tensor([[1.0, 4.0, 2.0], [5.0, 4.0, 2.0], [3.0, 3.0, 1.0]])
    assert SCORES.loss(scores, torch.tensor([0, 0, 1])).tolist() == [3, 0, 0]
    columns = SCORES.predict(scores)
    assert columns["class"].tolist() == [1, 0, 0]
    assert columns["score"].tolist() == [4, 5, 3]
    assert SCORES.scores["accuracy"](scores, torch.tensor([0, 0, 1])).tolist() == [0, 1, 0]


def test_errors_of_values() -> None:
    outputs, targets = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 1.0])
    assert VALUES.scores["mse"](outputs, targets).tolist() == [4, 9]
    assert VALUES.scores["mae"](outputs, targets).tolist() == [2, 3]


def test_a_binary_logit_is_the_softmax_of_two_scores_that_differ_by_it() -> None:
    logit = torch.tensor([-800.0, -2.0, 0.0, 0.5, 800.0], dtype=torch.float64)
    labels = torch.tensor([1, 0, 1, 1, 1])
    pair = torch.stack((torch.zeros_like(logit), logit), -1)
    torch.testing.assert_close(BINARY.loss(logit, labels), CLASSES.loss(pair, labels), rtol=1e-12, atol=0)
    probabilities = BINARY.probabilities(logit)
    torch.testing.assert_close(probabilities, CLASSES.probabilities(pair), rtol=1e-12, atol=0)
    gap = BINARY.classes(logit).diff(dim=-1)[:, 0]
    torch.testing.assert_close(gap, logit, rtol=0, atol=0)
    assert BINARY.loss(logit, labels)[0] == 800  # no probability is rounded to 0 first


def test_a_binary_prediction_is_class_1_above_one_half() -> None:
    logit = torch.tensor([-1.0, 0.0, 0.0, 2.0, math.nan, math.nan])
    labels = torch.tensor([0, 0, 1, 0, 0, 1])
    assert BINARY.scores["accuracy"](logit, labels).tolist() == [1, 1, 0, 0, 0, 0]
    columns = BINARY.predict(torch.tensor([-math.log(3), math.log(9)]))
    assert columns["class"].tolist() == [0, 1]
    torch.testing.assert_close(columns["probability"], torch.tensor([0.75, 0.9]))


def test_codes_are_shown_a_column_each() -> None:
    columns = CODES.predict(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert {name: column.tolist() for name, column in columns.items()} == {"code 1": [1, 3], "code 2": [2, 4]}


def test_a_token_costs_its_surprise_at_its_own_place() -> None:
    probabilities = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]])
    labels = torch.tensor([[1, 1]])
    loss = TOKENS.loss(probabilities.log(), labels)
    assert torch.allclose(loss, torch.tensor([[math.log(4), -math.log(0.8)]]))
    assert TOKENS.scores["accuracy"](probabilities, labels).tolist() == [[0, 1]]
    assert TOKENS.predict(probabilities.log())["class"].tolist() == [1]  # the continuation: the last place's
    assert POINT_CLASSES.predict(probabilities.log())["class"].tolist() == [[0, 1]]


def test_the_least_mean_pinball_loss_is_at_the_quantiles() -> None:
    values = torch.arange(1.0, 102.0)  # the quantile of level q is 1 + 100 q
    grid = torch.linspace(0, 102, 1021)
    outputs = torch.stack([grid] * 3, -1)[:, None, None, :].expand(-1, len(values), 1, 3)
    targets = values[None, :, None].expand(len(grid), -1, 1)
    # the three levels share one loss: each is moved alone, the others held
    for k, level in enumerate(LEVELS):
        held = torch.full_like(outputs, 50.0)
        held[..., k] = outputs[..., k]
        best = grid[QUANTILES.loss(held, targets).mean((1, 2)).argmin()]
        assert best.item() == pytest.approx(1 + 100 * level, abs=0.11)


def test_a_target_on_an_outer_quantile_is_covered() -> None:
    outputs = torch.tensor([1.0, 2.0, 3.0]).expand(4, 1, 1, 3)
    targets = torch.tensor([0.9, 1.0, 3.0, 3.1])[:, None, None]
    assert QUANTILES.scores["coverage"](outputs, targets).flatten().tolist() == [0, 1, 1, 0]
    assert QUANTILES.scores["mae"](outputs, targets).flatten().tolist() == pytest.approx([1.1, 1, 1, 1.1])


def test_quantiles_and_series_are_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"and 3 levels: got outputs \(2, 4, 1, 3\), targets \(2, 4\)"):
        QUANTILES.loss(torch.zeros(2, 4, 1, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="one shape"):
        SERIES.loss(torch.zeros(2, 4, 1), torch.zeros(2, 4))


def test_a_forecast_has_a_column_a_step_and_target() -> None:
    assert list(SERIES.predict(torch.zeros(2, 2, 1))) == ["value +1", "value +2"]
    outputs = torch.arange(8.0).reshape(1, 2, 4)[..., :2]
    columns = SERIES.predict(outputs)
    assert list(columns) == ["value of 1 +1", "value of 1 +2", "value of 2 +1", "value of 2 +2"]
    assert [column.item() for column in columns.values()] == [0, 4, 1, 5]
    names = list(QUANTILES.predict(torch.zeros(1, 1, 1, 3)))
    assert names == ["value +1 q0.1", "value +1 q0.5", "value +1 q0.9"]
