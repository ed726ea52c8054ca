"""Distillation: whose gradient it follows, what the teacher is asked, and what it must not leave behind."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn

from margin.auditing.asking.side_effects import Snapshot
from margin.core.findings import Subject
from margin.core.tasks import BINARY, CLASSES, SCORES, VALUES
from margin.core.types import Batch
from margin.engine.evaluation import capture, weighted_mean
from margin.engine.loop import GradientUpdate, State, autocast, descent, fit, risk
from margin.engine.methods.distillation import answers, distillation, distilled
from margin.engine.objectives import mixed, smoothed

OBJECTIVE = risk(CLASSES)


def data(n=40, d=5, k=3, seed=0):
    generator = Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return Batch((x,), torch.randint(0, k, (n,), generator=generator))


def network(seed=0, k=3, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, k)
    ).to(dtype)


def linear(seed=1, k=3):
    torch.manual_seed(seed)
    return nn.Linear(5, k).double()


def trained(step, model, batch, steps=1, lr=0.1):
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=lr)})
    fit(state, lambda _: batch, step, max_steps=steps)
    return model


@pytest.mark.parametrize(("temperature", "share"), [(4.0, 0.9), (1.0, 0.5), (2.0, 1.0)])
def test_a_step_follows_the_difference_of_tempered_probabilities_and_the_labels(temperature, share):
    """d/dG of share T^2 l_T + (1 - share) l is share T (q_T - p_T) + (1 - share) (q - e_y); by hand here."""
    batch, teacher, start = data(), network(), linear()
    x, y = batch.inputs[0], batch.targets
    student = trained(
        distillation(OBJECTIVE, GradientUpdate(), CLASSES, teacher, temperature=temperature, share=share),
        copy.deepcopy(start),
        batch,
    )
    with torch.no_grad():
        f, g = teacher.eval()(x), start(x)
        along = share * temperature * ((g / temperature).softmax(1) - (f / temperature).softmax(1))
        along += (1 - share) * (g.softmax(1) - F.one_hot(y, 3))
        expected = start.weight - 0.1 * along.T @ x / len(x)
    torch.testing.assert_close(student.weight, expected, rtol=0, atol=1e-12)


def test_share_0_is_the_plain_descent_and_share_1_ends_at_the_teacher():
    batch, teacher = data(), linear(7)
    plain = trained(descent(OBJECTIVE, GradientUpdate()), linear(), batch, 5)
    same = trained(distillation(OBJECTIVE, GradientUpdate(), CLASSES, teacher, share=0.0), linear(), batch, 5)
    torch.testing.assert_close(same.weight, plain.weight)
    pupil = trained(
        distillation(OBJECTIVE, GradientUpdate(), CLASSES, teacher, share=1.0), linear(), batch, 300, 1.5
    )
    x = batch.inputs[0]
    torch.testing.assert_close(pupil(x).softmax(1), teacher(x).softmax(1), rtol=0, atol=1e-6)
    objective = distilled(OBJECTIVE, CLASSES, teacher, temperature=4.0, share=1.0)
    assert objective(pupil, batch, Generator()).abs().max() < 1e-9  # its least value is 0


def test_asking_the_teacher_leaves_no_trace_and_no_graph():
    batch, teacher, student = data(), network().train(), linear()
    teacher[0].weight.grad = torch.ones_like(teacher[0].weight)
    subject = Subject(model=teacher, test=[batch], task=CLASSES, objective=OBJECTIVE)
    before = Snapshot.of(subject)
    trained(distillation(OBJECTIVE, GradientUpdate(), CLASSES, teacher), student, batch, 2)
    assert not before.difference(subject)
    assert all(m.training for m in teacher.modules())
    assert not answers(teacher, batch.inputs, CLASSES).requires_grad


def test_the_teacher_is_asked_in_its_own_type():
    batch, teacher = data(), network(dtype=torch.float32)
    got = answers(teacher, batch.inputs, CLASSES)
    assert got.dtype == torch.float32
    assert torch.equal(got, teacher.eval()(batch.inputs[0].float()))
    trained(distillation(OBJECTIVE, GradientUpdate(), CLASSES, teacher), linear(), batch)


def test_the_student_is_asked_once_and_dropout_drawn_once():
    batch, teacher = data(), linear()
    student = network(3)
    with capture([student]) as calls:
        distilled(OBJECTIVE, CLASSES, teacher, temperature=2.0, share=0.5)(student, batch, Generator())
    assert len(calls) == 1
    assert student[1].num_batches_tracked == 1
    assert not student._forward_hooks


def test_the_teacher_sees_the_mixed_inputs_that_the_student_sees():
    """The teacher's answer is a function of the input (Beyer et al. 2022): a mixed one has its own."""
    batch, student = data(), linear()
    asked = []
    teacher = linear(5)
    teacher.register_forward_pre_hook(lambda _, args: asked.append(args[0]))

    def once(model, batch, generator):  # an objective that changes its inputs
        return OBJECTIVE(model, batch._replace(inputs=(batch.inputs[0] + 1,)), generator)

    losses = distilled(once, CLASSES, teacher, temperature=2.0, share=1.0)(student, batch, Generator())
    x = batch.inputs[0] + 1
    assert torch.equal(asked[0], x)
    log_q, log_p = ((m(x) / 2).log_softmax(1) for m in (student, linear(5)))
    torch.testing.assert_close(losses, 4 * F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(1))
    assert not student._forward_hooks
    smooth = distilled(smoothed(CLASSES, smoothing=0.1), CLASSES, teacher, temperature=2.0, share=0.0)
    torch.testing.assert_close(
        smooth(student, batch, Generator()),
        F.cross_entropy(student(batch.inputs[0]), batch.targets, reduction="none", label_smoothing=0.1),
    )
    mix = distilled(mixed(OBJECTIVE, "mixup"), CLASSES, teacher, temperature=2.0, share=0.5)
    asked.clear()
    mix(student.train(), batch, Generator().manual_seed(0))
    assert not torch.equal(asked[0], batch.inputs[0])


def test_an_objective_that_asks_twice_is_refused_and_the_hook_removed():
    batch, student = data(), linear()

    def twice(model, batch, generator):
        return OBJECTIVE(model, batch, generator) + OBJECTIVE(model, batch, generator)

    with pytest.raises(ValueError, match="asks the model once: it asked 2 times"):
        distilled(twice, CLASSES, linear(), temperature=1.0, share=0.5)(student, batch, Generator())
    assert not student._forward_hooks


def test_of_one_logit_it_is_the_two_classes_of_its_sigmoid():
    batch = data(k=2)
    torch.manual_seed(0)
    student, teacher = (nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)).double() for _ in range(2))
    losses = distilled(risk(BINARY), BINARY, teacher, temperature=3.0, share=1.0)(student, batch, Generator())
    p, q = ((m(batch.inputs[0]) / 3).sigmoid() for m in (teacher, student))
    kl = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    torch.testing.assert_close(losses, 9 * kl)


def test_weights_of_examples_and_pieces_of_a_batch_count_as_ever():
    batch, teacher = data(), linear(7)
    weight = torch.rand(40, dtype=torch.float64, generator=Generator().manual_seed(0))
    weight[30:] = 0
    weighted = batch._replace(weight=weight)
    objective = distilled(OBJECTIVE, CLASSES, teacher, temperature=4.0, share=0.9)
    student = linear()
    expected = (objective(student, batch, Generator()) * weight).sum() / weight.sum()
    torch.testing.assert_close(weighted_mean(objective(student, weighted, Generator()), weight), expected)
    whole = trained(distillation(OBJECTIVE, GradientUpdate(), CLASSES, teacher), linear(), weighted)
    pieces = trained(distillation(OBJECTIVE, GradientUpdate(pieces=3), CLASSES, teacher), linear(), weighted)
    torch.testing.assert_close(whole.weight, pieces.weight)


def test_a_teacher_of_other_classes_is_refused_before_anything_moves():
    batch, student = data(), linear()
    before = copy.deepcopy(student)
    step = distillation(OBJECTIVE, GradientUpdate(), CLASSES, linear(k=4))
    with pytest.raises(
        ValueError, match=r"tell the student's classes: got 4 of the teacher, 3 of the student"
    ):
        trained(step, student, batch)
    assert torch.equal(student.weight, before.weight)


def test_a_teacher_of_other_inputs_is_refused_in_words():
    torch.manual_seed(0)
    teacher = nn.Linear(4, 3).double()
    step = distillation(OBJECTIVE, GradientUpdate(), CLASSES, teacher)
    with pytest.raises(ValueError, match=r"the teacher must take inputs of shape \(5,\): mat1 and mat2"):
        trained(step, linear(), data())
    assert teacher.training  # even then it is left as it was
    with pytest.raises(ValueError, match="answer with class logits: got tuple"):
        answers(nn.LSTM(5, 3).double(), data().inputs, CLASSES)


def test_under_bfloat16_the_divergence_is_computed_in_float32():
    batch = Batch((data().inputs[0].float(),), data().targets)
    torch.manual_seed(0)
    student, teacher = nn.Linear(5, 3), nn.Linear(5, 3)
    objective = distilled(autocast(OBJECTIVE, "cpu"), CLASSES, teacher, temperature=20.0, share=1.0)
    losses = objective(student, batch, Generator())
    exact = distilled(OBJECTIVE, CLASSES, teacher, temperature=20.0, share=1.0)(student, batch, Generator())
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, exact, rtol=0.1, atol=0.02)


def test_bad_options_and_tasks_are_refused():
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="temperature must be positive and finite"):
            distillation(OBJECTIVE, GradientUpdate(), CLASSES, linear(), temperature=temperature)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"share must be in \[0, 1\]"):
            distillation(OBJECTIVE, GradientUpdate(), CLASSES, linear(), share=share)
    for task in (VALUES, SCORES):
        with pytest.raises(ValueError, match=f"the task '{task.name}' states none"):
            distillation(risk(task), GradientUpdate(), task, linear())
