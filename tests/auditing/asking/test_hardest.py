import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from margin.auditing.asking.worst_examples import _of_examples, _together, worst_examples
from margin.auditing.report.plots import examples, picture
from margin.auditing.subject.outputs import PLACE_CLASSES
from margin.core.findings import Subject
from margin.core.tasks import CLASSES, HALFSPACE, MULTILABEL, SERIES, TOKENS, VALUES
from margin.core.types import Batch
from margin.theory.prediction.held_out import held_out_answers, held_out_losses


def stated(outputs, targets, task=CLASSES, weight=None, size=2):
    def objective(model, batch, generator):
        return task.loss(model(*batch.inputs), batch.targets)

    cut = []
    for i in range(0, len(outputs), size):
        part = slice(i, i + size)
        cut.append(Batch((outputs[part],), targets[part], None if weight is None else weight[part]))
    return Subject(model=nn.Identity(), test=cut, task=task, objective=objective)


LOGITS = torch.tensor([[5.0, 0.0], [0.0, 3.0], [1.0, 0.0], [0.0, 9.0], [2.0, 2.0]])
LABELS = torch.tensor([0, 0, 1, 0, 0])


def test_the_largest_losses_come_first_across_batches():
    found = worst_examples(stated(LOGITS, LABELS), count=3)
    # losses: log(1 + exp(-5)), log(1 + e^3), log(1 + e), log(1 + e^9), log 2
    assert found.index.tolist() == [3, 1, 2]
    expected = torch.log1p(torch.exp(torch.tensor([9.0, 3.0, 1.0], dtype=torch.float64)))
    torch.testing.assert_close(found.losses, expected, rtol=1e-6, atol=0)
    assert found.margins.tolist() == [-9.0, -3.0, -1.0]
    assert found.predictions["class"].tolist() == [1, 1, 0]
    assert torch.equal(found.inputs, LOGITS[[3, 1, 2]])


def test_nan_is_the_hardest_of_all():
    logits = LOGITS.clone()
    logits[2] = float("nan")
    assert worst_examples(stated(logits, LABELS), count=2).index.tolist() == [2, 3]


def test_ties_of_the_loss_go_by_the_margin():
    score = torch.tensor([3.0, 0.5, 2.0, -1.0])  # perceptron losses 0, 0, 0, 1
    found = worst_examples(stated(score, torch.tensor([1, 1, 1, 1]), HALFSPACE), count=4)
    assert found.index.tolist() == [3, 1, 2, 0]


def test_an_example_of_weight_0_does_not_count():
    found = worst_examples(stated(LOGITS, LABELS, weight=torch.tensor([1.0, 1, 1, 0, 1])), count=9)
    assert found.index.tolist() == [1, 2, 3, 0]  # positions among those that count


def test_values_have_no_margin_and_several_terms_are_averaged():
    outputs = torch.tensor([[1.0, 1.0], [0.0, 3.0], [2.0, 2.0]])
    found = worst_examples(stated(outputs, torch.zeros(3, 2), VALUES), count=3)
    assert found.index.tolist() == [1, 2, 0]
    assert found.losses.tolist() == [4.5, 4.0, 1.0]
    assert found.margins is None


def test_a_loss_that_belongs_to_no_example_has_no_hardest():
    subject = replace(stated(LOGITS, LABELS), objective=lambda m, b, g: m(*b.inputs).mean())
    assert worst_examples(subject) is None
    without = replace(subject, test=[Batch((LOGITS,))])
    assert worst_examples(without) is None


def test_what_claims_have_computed_is_not_computed_again():
    """Of an objective that is no loss of the outputs, a bound for instance, whose passes are dear."""
    subject, passes = stated(LOGITS, LABELS), []
    held_out_answers(subject), held_out_losses(subject)
    subject.model.register_forward_hook(lambda *_: passes.append(1))
    assert worst_examples(subject, count=3).index.tolist() == [3, 1, 2]
    assert not passes


def test_count_must_be_positive():
    with pytest.raises(ValueError, match="count must be at least 1: got 0"):
        worst_examples(stated(LOGITS, LABELS), count=0)


def decoded(uri):
    import base64
    import io

    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))) as image:
        return torch.tensor(np.array(image.convert("RGB"))).long()


def test_a_picture_is_scaled_by_the_span_and_channels_are_colors():
    gray = decoded(picture(torch.tensor([[[0.0, 16.0], [8.0, 4.0]]]), (0.0, 16.0)))
    assert gray[..., 0].tolist() == [[0, 255], [128, 64]]
    assert torch.equal(gray[..., 0], gray[..., 2])
    color = torch.zeros(3, 2, 2)
    color[0] = 1
    assert decoded(picture(color, (0.0, 1.0)))[0, 0].tolist() == [255, 0, 0]


def test_a_large_picture_is_averaged_down_and_a_flat_one_does_not_divide_by_0():
    assert decoded(picture(torch.rand(1, 300, 150), None)).shape == (96, 48, 3)
    assert decoded(picture(torch.full((1, 2, 2), float("nan")), None)).sum() == 0


def test_examples_are_named_and_rows_of_a_table_show_their_features():
    shown = examples(worst_examples(stated(LOGITS, LABELS), count=1), class_names=("cat", "dog"))
    assert (shown[0].target, shown[0].prediction) == (
        "cat",
        "dog (> .999)",
    )  # exp(9) / (1 + exp(9)) is .99988
    assert shown[0].features == ("0", "9")
    assert shown[0].picture == ""


def test_terms_of_a_padded_example_count_as_its_weights_say() -> None:
    losses = torch.tensor([[1.0, 3.0, math.nan], [2.0, 2.0, 5.0]])
    weight = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    assert _of_examples(losses, weight).tolist() == [2.0, 3.0]
    assert _of_examples(losses[:, 0], None).tolist() == [1.0, 2.0]


def test_batches_of_other_lengths_are_joined() -> None:
    short, long = torch.ones(1, 2, 3), torch.ones(2, 4, 3)
    both = _together(short, long)
    assert both.shape == (3, 4, 3)
    assert both[0, 2:].abs().sum() == 0
    assert both[1:].equal(long)
    assert _together(torch.zeros(1), torch.ones(2)).tolist() == [0, 1, 1]


def test_forecasts_of_several_steps_are_in_no_table() -> None:
    """Numbers in a row would say neither when nor of what."""
    assert worst_examples(stated(torch.zeros(2, 4, 3), torch.zeros(2, 4, 3), SERIES)) is None


@pytest.mark.parametrize("task", [TOKENS, PLACE_CLASSES])
def test_a_class_at_each_place_goes_by_the_mean_loss_of_its_example(task) -> None:
    """Three texts of 4 places, the second padded to 2 that count, the third of weight 0; two batches."""
    labels = torch.zeros(4, 4, dtype=torch.long)
    logits = torch.zeros(4, 4, 2)
    logits[0, :, 0] = torch.tensor([3.0, 3, 3, -1])  # one of four wrong
    logits[1, :, 0] = torch.tensor([2.0, -5, -9, -9])  # one of two wrong, and by more
    logits[3, :, 0] = 1.0
    weight = torch.ones(4, 4)
    weight[1, 2:] = weight[2] = 0
    found = worst_examples(stated(logits, labels, task, weight), count=5)
    assert found.index.tolist() == [1, 0, 2]  # among those that count
    assert found.predictions["share right"].tolist() == [0.5, 0.75, 1.0]
    each = torch.nn.functional.softplus(-logits[..., 0]).double()
    expected = [each[1, :2].mean(), each[0].mean(), each[3].mean()]
    assert found.losses.tolist() == pytest.approx([float(loss) for loss in expected], rel=1e-6)
    assert torch.equal(found.inputs, logits[[1, 0, 3]])
    assert found.targets is None
    assert list(found.as_json()[0]) == ["index", "share right", "loss"]
    said = [e.prediction for e in examples(found)]
    assert said == [f"right at {p}% of its places" for p in ("50.0", "75.0", "100.0")]


def test_several_labels_at_once_go_by_the_mean_loss_of_their_example() -> None:
    labels = torch.tensor([[0, 1, 1], [1, 0, 0], [1, 1, 1]])
    logits = 4.0 * labels - 2
    logits[1] = torch.tensor([-1.0, 1, 1])
    logits[2, 0] = -3
    found = worst_examples(stated(logits, labels, MULTILABEL), count=2)
    assert found.index.tolist() == [1, 2]
    each = torch.nn.functional.softplus(torch.where(labels == 1, -logits, logits)).mean(1)
    assert found.losses.tolist() == pytest.approx(each[[1, 2]].tolist(), rel=1e-6)
    shown = examples(found)
    assert (shown[0].target, shown[0].prediction) == ("1, 0, 0", "0, 1, 1")
