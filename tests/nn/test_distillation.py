"""The loss of distillation: its gradient, its minimum, its limit; the printed sign climbs without end."""

import math

import pytest
import torch

from margin.nn.losses import distillation_excess, distillation_loss


def logits(seed, n=6, k=5, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, k, generator=generator, dtype=torch.float64)


def entropy(p):
    return -torch.special.xlogy(p, p).sum(1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_loss_is_the_sum_over_classes(temperature):
    student, teacher = logits(0), logits(1)
    expected = []
    for g, f in zip(student.tolist(), teacher.tolist(), strict=True):
        p = [math.exp(v / temperature) for v in f]
        q = [math.exp(v / temperature) for v in g]
        terms = zip(p, q, strict=True)
        expected.append(-sum(a / sum(p) * math.log(b / sum(q)) for a, b in terms))
    loss = distillation_loss(student, teacher, temperature)
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("of", [distillation_loss, distillation_excess])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_gradient_is_the_difference_of_tempered_probabilities_over_the_temperature(of, temperature):
    student, teacher = logits(0).requires_grad_(), logits(1)
    (grad,) = torch.autograd.grad(of(student, teacher, temperature).sum(), student)
    q, p = (student / temperature).softmax(1), (teacher / temperature).softmax(1)
    torch.testing.assert_close(grad, (q - p) / temperature, rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(lambda x: of(x, teacher, temperature), student)


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_the_least_value_is_the_entropy_of_the_teacher_up_to_a_constant_in_the_logits(temperature):
    teacher = logits(1)
    least = entropy((teacher / temperature).softmax(1))
    at_teacher = distillation_loss(teacher + 7.0, teacher, temperature)
    torch.testing.assert_close(at_teacher, least, rtol=1e-12, atol=0)
    assert distillation_excess(teacher - 3, teacher, temperature).abs().max() < 1e-14
    for seed in range(20):
        loss = distillation_loss(logits(seed + 5), teacher, temperature)
        assert (loss > least).all()
        excess = distillation_excess(logits(seed + 5), teacher, temperature)
        torch.testing.assert_close(excess, loss - least, rtol=0, atol=1e-12)


def test_at_high_temperature_it_is_half_the_mean_squared_distance_of_centered_logits():
    student, teacher = (x - x.mean(1, keepdim=True) for x in (logits(0), logits(1)))
    limit = (student - teacher).square().sum(1) / (2 * 5)
    errors = []
    for temperature in (1e2, 1e3, 1e4):
        least = entropy((teacher / temperature).softmax(1))
        printed = temperature**2 * (distillation_loss(student, teacher, temperature) - least)
        torch.testing.assert_close(
            printed, temperature**2 * distillation_excess(student, teacher, temperature), rtol=1e-5, atol=1e-5
        )
        errors.append((printed / limit - 1).abs().max().item())
    assert errors[0] < 0.05
    assert errors[1] < 0.2 * errors[0]  # of order 1 / T
    assert errors[2] < 1e-3
    shifted = 1e4**2 * distillation_excess(student + 2, teacher, 1e4)
    torch.testing.assert_close(shifted, limit, rtol=1e-3, atol=1e-3)  # softmax centers them


def test_the_printed_sign_is_a_reward_which_descent_makes_diverge():
    teacher = logits(1)
    losses = {}
    for sign in (1, -1):
        student = logits(0).requires_grad_()
        for _ in range(300):
            (grad,) = torch.autograd.grad(sign * distillation_loss(student, teacher).sum(), student)
            student = (student - 0.5 * grad).detach().requires_grad_()
        losses[sign] = distillation_excess(student, teacher).detach()
    assert (losses[1] < 1e-2).all()
    assert (losses[-1] > 10).all()


def test_certain_teachers_and_impossible_classes_give_finite_losses():
    student = torch.tensor([[0.0, 0.0, -torch.inf]])
    teacher = torch.tensor([[5.0, 0.0, -torch.inf]])
    assert distillation_loss(student, teacher, 2.0).isfinite().all()
    assert distillation_excess(student, teacher, 2.0).isfinite().all()
    certain = distillation_loss(logits(0).float(), 1e4 * torch.eye(5)[[0, 1, 2, 3, 4, 0]])
    expected = torch.nn.functional.cross_entropy(
        logits(0).float(), torch.tensor([0, 1, 2, 3, 4, 0]), reduction="none"
    )
    torch.testing.assert_close(certain, expected)


def test_other_classes_and_temperatures_are_refused():
    with pytest.raises(
        ValueError, match=r"one logit for each of the same classes: got shapes \(6, 5\) and \(6, 4\)"
    ):
        distillation_loss(logits(0), logits(0, k=4))
    for temperature in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="temperature must be positive and finite"):
            distillation_loss(logits(0), logits(1), temperature)
