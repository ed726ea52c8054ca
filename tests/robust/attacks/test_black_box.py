"""Random search and the stand-in that is nowhere flat: in the ball, better than chance."""

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust import accuracy_curves
from margin.robust.accuracy_curves import measure
from margin.robust.attacks.black_box import Leaky, random_search
from margin.robust.attacks.goals import margin_loss
from margin.robust.attacks.gradient import Search
from margin.robust.attacks.threat_models import Threat
from margin.robust.sandwich import linf_fgsm, linf_sandwich


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
    curves = measure(subject(Steps(model), x, y), "linf", (0.0, 0.01), 300, search=Search())
    assert torch.equal(curves.stepped[1], curves.clean)
    truth = linear_truth(model, x, y, 0.05).double().mean()
    assert curves.share(curves.attacked)[1] < truth + 0.15


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("shape", [(20,), (1, 4, 5)])
def test_random_search_stays_in_the_ball_and_beats_as_many_random_points(norm, shape):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 3))
    x = torch.rand(100, *shape)
    batch = Batch((x,), model(x).argmax(1))
    loss, generator = margin_loss(CLASSES), torch.Generator().manual_seed(0)
    threat = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), 0.2, norm)
    found = random_search(model, batch, loss, threat, generator, queries=100)
    assert (threat.size(found, x) <= 0.2 * (1 + 1e-6)).all() and threat.domain.contains(found)
    with torch.no_grad():
        own = loss(model, batch._replace(inputs=(found,)), generator)
        points = [threat.random_point(x, generator) for _ in range(100)]
        chance = torch.stack([loss(model, batch._replace(inputs=(y,)), generator) for y in points]).amax(0)
    assert own.mean() > chance.mean() + 0.2 * chance.std()
    assert (own > chance).double().mean() > 0.8


def test_with_one_query_the_ball_is_left_at_a_corner():
    x = torch.full((6, 8), 0.5)
    threat = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), 0.1)
    batch = Batch((x,), torch.zeros(6, dtype=torch.long))
    generator = torch.Generator().manual_seed(0)
    found = random_search(nn.Linear(8, 2), batch, margin_loss(CLASSES), threat, generator, queries=1)
    torch.testing.assert_close((found - x).abs(), torch.full((6, 8), 0.1))


def test_the_stand_in_has_a_slope_and_the_order_where_functions_are_flat():
    x = torch.tensor([[900.0, -900.0, 0.0]], requires_grad=True)
    y = Leaky(nn.Softmax(1))(x)
    (slope,) = torch.autograd.grad(y[0, 1], x)
    assert slope[0, 1] > 0 and slope[0, 0] == 0
    assert y.argsort(1)[0].tolist() == [1, 2, 0]
    assert torch.equal(nn.Softmax(1)(x), x.softmax(1))  # outside nothing leaks
    threat = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), 0.1)
    assert torch.equal(threat.project(x.detach().clamp(0, 1), x.detach().clamp(0, 1)), x.detach().clamp(0, 1))
