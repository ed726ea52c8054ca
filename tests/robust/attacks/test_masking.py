"""Masked gradients: flat, rounded, not finite, not to be had; found out, attacked all the same, said."""

import pytest
import torch
from torch import nn

from margin import audit
from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust import accuracy_curves
from margin.robust.accuracy_curves import measure
from margin.robust.attacks.masking import Leaky
from margin.robust.attacks.threat_models import Threat
from margin.robust.sandwich import light, linf_fgsm, linf_sandwich


class Saturated(nn.Module):
    """Scores of one sign pattern behind a softmax so sharp that its gradient is exactly 0 in float32."""

    def __init__(self, scale, model):
        super().__init__()
        self.scale, self.model = scale, model

    def forward(self, x):
        return (self.scale * self.model(x)).softmax(1)


class Steps(nn.Module):
    """Scores rounded to a grid: their gradient is 0 everywhere, their values are not flat."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return (self.model(x).detach() * 50).round() / 50


def linear(features=20, classes=3):
    torch.manual_seed(0)
    return nn.Linear(features, classes)


def subject(model, x, y):
    domain = Domain(torch.tensor(-2.0), torch.tensor(3.0))
    return Subject(model=model, test=(Batch((x,), y),), task=CLASSES, objective=risk(CLASSES), domain=domain)


def data(model, count=300):
    x = torch.rand(count, 20, generator=torch.Generator().manual_seed(0))
    return x, model(x).argmax(1)


def linear_truth(model, x, y, eps):
    """Right in the whole ball, which lies in the domain: f_y - f_j > eps ||w_y - w_j||_1 for each j."""
    w, scores = model.weight, model(x)
    gap = scores.gather(1, y[:, None]) - scores - eps * (w[y][:, None] - w[None]).abs().sum(-1)
    return (gap.scatter(1, y[:, None], torch.inf) > 0).all(1)


def test_saturated_scores_are_attacked_to_the_truth_and_the_premise_is_refuted():
    model = linear()
    x, y = data(model)
    made = subject(Saturated(1e4, model), x, y)
    shares = (0.0, 0.004, 0.01)
    finding = linf_sandwich(made, shares=shares)
    truth = [linear_truth(model, x, y, 5 * s).double().mean().item() for s in shares]
    assert truth[2] < 0.7 < truth[1]
    for found, true in zip(finding.value.tolist(), truth, strict=True):
        assert true - 1e-9 <= found <= true + 0.04
    masked = next(p for p in finding.premises if "masked" in p.text)
    flat = Saturated(1e4, model)(x.requires_grad_())
    (gradient,) = torch.autograd.grad((flat.gather(1, y[:, None]) - flat).sum(), x)
    blind = int((gradient == 0).all(1).sum())
    assert blind > 270  # nearly all
    assert masked.status == "refuted" and f"exactly 0 at {blind} of the 300" in masked.evidence
    assert linf_sandwich(made, shares=(0.0,)).verdict is Verdict.UNFOUNDED  # nothing broken, nothing seen
    assert (
        finding.verdict is Verdict.UNFOUNDED and linf_fgsm(made, shares=shares).verdict is Verdict.UNFOUNDED
    )


def test_one_vanished_gradient_among_many_refutes_nothing_and_is_stated():
    model = linear()
    x, y = data(model, 400)
    x[7], y[7] = 0.5, model(torch.full((1, 20), 0.5)).argmax(1)

    class Partly(nn.Module):
        def forward(self, x):
            at = (x == 0.5).all(1, keepdim=True)
            return torch.where(at, model(x).detach(), model(x))

    finding = linf_sandwich(subject(Partly(), x, y), shares=(0.0, 0.004))
    masked = next(p for p in finding.premises if "masked" in p.text)
    assert masked.status == "sampled" and "exactly 0 at 1 of the 400 right examples" in masked.evidence


@pytest.mark.parametrize(
    ("right", "blind", "missed", "status"),
    [
        (100, 2, [0, 0], "sampled"),
        (100, 3, [0, 0], "refuted"),
        (100, 0, [0, 2, 1], "sampled"),
        (100, 0, [0, 3, 1], "refuted"),
        (10, 0, [0, 1], "sampled"),  # one of few may be missed
        (10, 0, [0, 2], "refuted"),
        (10, 1, [0, 0], "refuted"),
    ],
)
def test_more_than_one_in_fifty_that_gradients_miss_in_some_ball_refutes(right, blind, missed, status):
    # Two chunks, whose numbers add up ball by ball.
    clean, none = torch.arange(right) >= 0, torch.zeros(right, dtype=torch.bool)
    first = none.index_put((torch.arange(blind),), torch.tensor(True))
    parts = [
        accuracy_curves._Part(clean[:5], none, none, True, first[:5], torch.tensor(missed) // 2),
        accuracy_curves._Part(
            clean[5:], none, none, True, first[5:], torch.tensor(missed) - torch.tensor(missed) // 2
        ),
    ]
    assert accuracy_curves._unmasked(parts).status == status


def test_scores_on_a_grid_are_broken_by_values_alone():
    model = linear()
    x, y = data(model)
    curves = measure(subject(Steps(model), x, y), "linf", (0.0, 0.01), 300, budget=light())
    assert torch.equal(curves.stepped[1], curves.clean)
    truth = linear_truth(model, x, y, 0.05).double().mean()
    assert curves.share(curves.attacked)[1] < truth + 0.15


def test_the_stand_in_has_a_slope_and_the_order_where_functions_are_flat():
    x = torch.tensor([[900.0, -900.0, 0.0]], requires_grad=True)
    y = Leaky(nn.Softmax(1))(x)
    (slope,) = torch.autograd.grad(y[0, 1], x)
    assert slope[0, 1] > 0 and slope[0, 0] == 0
    assert y.argsort(1)[0].tolist() == [1, 2, 0]
    assert torch.equal(nn.Softmax(1)(x), x.softmax(1))  # outside nothing leaks
    threat = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), 0.1)
    assert torch.equal(threat.project(x.detach().clamp(0, 1), x.detach().clamp(0, 1)), x.detach().clamp(0, 1))


class Rounded(torch.autograd.Function):
    """Rounding, with no backward pass written."""

    @staticmethod
    def forward(ctx, x):
        return (x * 20).round() / 20


class Quantized(nn.Module):
    """Inputs rounded to a grid of steps of .05."""

    def __init__(self, model, how):
        super().__init__()
        self.model, self.how = model, how

    def forward(self, x):
        return self.model(self.how(x))


HOWS = {
    "round": lambda x: (x * 20).round() / 20,
    "no backward": Rounded.apply,
    "detached": lambda x: x.detach(),
}


@pytest.mark.parametrize("how", HOWS)
def test_quantized_inputs_are_attacked_all_the_same_and_the_reason_is_said(how):
    model = linear()
    x, y = data(model)
    x = (x * 20).round() / 20
    y = model(x).argmax(1)
    made = subject(Quantized(model, HOWS[how]), x, y)
    finding = linf_sandwich(made, shares=(0.0, 0.02))
    truth = linear_truth(model, x, y, 0.1).double().mean().item()  # the ball's corners lie on the grid
    assert truth < 0.5 and truth - 1e-9 <= finding.value[1] <= truth + 0.25
    masked = next(p for p in finding.premises if "masked" in p.text)
    assert masked.status == "refuted" and "exactly 0 at 300 of the 300" in masked.evidence
    assert finding.verdict is Verdict.UNFOUNDED
    said = any("cannot be differentiated by its input" in r for r in finding.remarks)
    assert said == (how == "no backward")


class Cusp(nn.Module):
    """Scores plus |x - c|^(1/2), of no finite slope at c."""

    def __init__(self, model, at):
        super().__init__()
        self.model, self.at = model, at

    def forward(self, x):
        root = (x - self.at).square().sum(1, keepdim=True).sqrt().sqrt()
        return self.model(x) + root * 1e-3 * torch.tensor([1.0, 2.0, 3.0])


def test_gradients_that_are_not_finite_are_counted_and_followed_elsewhere():
    model = linear()
    x, y = data(model)
    x[:9] = 0.5
    cusp = Cusp(model, x[:1].clone())
    y = cusp(x).argmax(1)
    finding = linf_sandwich(subject(cusp, x, y), shares=(0.0, 0.01))
    masked = next(p for p in finding.premises if "masked" in p.text)
    assert "not finite at 9 (3.0%)" in masked.evidence and masked.status == "refuted"  # above 2 %
    assert "exactly 0 at 0 of the 300" in masked.evidence
    truth = linear_truth(model, x, y, 0.05).double().mean().item()
    assert abs(finding.value[1].item() - truth) < 0.05
    few = linf_sandwich(subject(cusp, x[6:], y[6:]), shares=(0.0, 0.01))
    masked = next(p for p in few.premises if "masked" in p.text)
    assert "not finite at 3 (1.0%)" in masked.evidence and masked.status == "sampled"


def test_each_attack_is_told_what_it_broke_beyond_those_before():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
    x, y = data(model, 200)
    curves = measure(subject(model, x, y), "linf", (0.0, 0.02), 200, budget=light())
    assert list(curves.struck) == ["FGSM", "APGD-CE", "APGD-DLR", "FAB", "Square"]
    total = sum(int(counts[1]) for counts in curves.struck.values())
    assert total == int(curves.clean.sum() - curves.attacked[1].sum()) > 20
    finding = linf_sandwich(subject(model, x, y), shares=(0.0, 0.02))
    assert f"FGSM 0/{int(curves.struck['FGSM'][1])}" in finding.remarks[-1]


def test_probabilities_are_attacked_by_their_logarithms_and_that_is_said():
    # Of a softmax so sharp that its probabilities have no slope, logarithms have: no premise is refuted.
    model = linear()
    x, y = data(model)
    sharp, plain = subject(Saturated(60.0, model), x, y), subject(model, x, y)
    by_log = linf_sandwich(sharp, shares=(0.0, 0.01))
    assert any("their logarithms" in r for r in by_log.remarks)
    assert not any("their logarithms" in r for r in linf_sandwich(plain, shares=(0.0, 0.01)).remarks)
    truth = linear_truth(model, x, y, 0.05).double().mean().item()
    assert truth - 1e-9 <= by_log.value[1] <= truth + 0.02


def test_the_audits_screen_says_that_gradients_are_masked():
    model = linear()
    x, y = data(model, 60)
    names = ["robust/linf.sandwich"]
    screen = " ".join(str(audit(Steps(model), (x, y), domain=(0, 1), task="logits", claims=names)).split())
    assert "Gradient masking: attacks that follow its gradients are led astray" in screen
    screen = " ".join(str(audit(model, (x, y), domain=(0, 1), task="logits", claims=names)).split())
    assert "Gradient masking" not in screen
