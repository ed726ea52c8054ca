"""Paths of weights: closed forms, convexity, permuted copies, batch statistics; nothing is left behind."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.connectivity import (
    Along,
    along,
    bent,
    bezier,
    check_alike,
    renormalize,
    straight,
)
from margin.theory.curvature.connectivity_claims import (
    after_alignment,
    curved,
    demo,
    from_initial,
    largest_rise,
    linear,
)
from margin.theory.signal.symmetry import permute_hidden


class Valley(nn.Module):
    """(u^2 + v^2 - 1)^2 of its two weights, whatever the input: its minima are a circle."""

    def __init__(self, u, v):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([u, v], dtype=torch.float64))

    def forward(self, x):
        return (self.w.square().sum() - 1).square().expand(len(x))


def value(model, batch, generator):
    return model(*batch.inputs)


EXAMPLE = [Batch((torch.zeros(3, dtype=torch.float64),), torch.zeros(3, dtype=torch.float64))]


def blobs(n=48, seed=0, weight=None):
    generator = Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return Batch((x,), torch.randint(3, (n,), generator=generator), weight)


def affine(seed):
    torch.manual_seed(seed)
    return nn.Linear(3, 3).double()


def looked_at(curve, batches, task=CLASSES, objective=None, **options):
    return along(curve, batches, task, objective or risk(task), **options)


def test_the_loss_on_a_line_through_a_circle_of_minima():
    path = along(straight(Valley(1, 0), Valley(-1, 0)), EXAMPLE, VALUES, value, points=5)
    assert path.t.tolist() == [0, 0.25, 0.5, 0.75, 1]
    # at t the weight is 1 - 2 t, the loss ((1 - 2 t)^2 - 1)^2
    assert torch.allclose(path.loss, ((1 - 2 * path.t) ** 2 - 1) ** 2, atol=1e-14)
    barrier, stderr = path.barrier
    assert float(barrier) == pytest.approx(1) and float(stderr) == 0
    assert bool(path.error.isnan().all())


def test_the_barrier_is_above_the_line_between_the_ends_not_above_the_lower_one():
    terms = torch.tensor([[0.0, 0.0], [1.0, 3.0], [2.0, 2.0]], dtype=torch.float64)
    none = torch.zeros(3, dtype=torch.float64)
    path = Along(torch.tensor([0, 0.5, 1]).double(), terms, torch.ones(2).double(), none, none)
    # in the middle the mean loss is 2, the line 1; the two terms exceed theirs by 0 and 2
    barrier, stderr = path.barrier
    assert float(barrier) == 1
    assert float(stderr) == pytest.approx(torch.tensor([0.0, 2.0]).std().item() / math.sqrt(2))


def test_means_and_errors_are_weighted():
    weight = torch.tensor([1.0, 2.0, 0.0, 1.0], dtype=torch.float64)
    batch = blobs(4, weight=weight)
    model = affine(0)
    path = looked_at(straight(model, model), [batch], points=2)
    losses = F.cross_entropy(model(*batch.inputs), batch.targets, reduction="none").detach()
    assert float(path.loss[0]) == pytest.approx(float((weight * losses).sum() / 4), rel=1e-12)
    assert path.terms.shape == (2, 3)  # padding is left out
    equal = looked_at(straight(model, model), [blobs(40)], points=2)
    assert float(equal.loss_stderr[0]) == pytest.approx(
        float(equal.terms[0].std() / math.sqrt(40)), rel=1e-12
    )
    share = float(equal.error[0])
    assert float(equal.error_stderr[0]) == pytest.approx(math.sqrt(share * (1 - share) / 39), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_a_convex_loss_has_no_barrier(seed):
    path = looked_at(straight(affine(seed), affine(seed + 10)), [blobs()])
    assert float(path.barrier[0]) == 0
    assert float(path.excess.mean(1).max()) <= 1e-12


def test_the_ends_are_the_models_to_the_bit_and_the_models_stay():
    one, other = affine(0), affine(1)
    before = [copy.deepcopy(m.state_dict()) for m in (one, other)]
    curve = bent(one, [torch.randn(3, 3).double(), torch.randn(3).double()], other)
    for t, model in ((0.0, one), (1.0, other)):
        at = curve(t)
        assert at is not model
        assert all(torch.equal(a, b) for a, b in zip(at.parameters(), model.parameters(), strict=True))
    middle = [torch.full_like(p, 7.0) for p in one.parameters()]
    at = bent(one, middle, other)(0.25)
    expected = 0.5625 * one.weight + 0.375 * 7 + 0.0625 * other.weight
    assert torch.allclose(at.weight, expected, rtol=1e-14)
    assert all(
        torch.equal(b[k], m.state_dict()[k]) for b, m in zip(before, (one, other), strict=True) for k in b
    )


def test_models_with_other_parameters_are_refused():
    with pytest.raises(ValueError, match=r"weight is \(3, 3\) in one, \(2, 3\) in the other"):
        straight(affine(0), nn.Linear(3, 2))
    with pytest.raises(ValueError, match=r"bias is absent in one, \(3,\) in the other"):
        check_alike(nn.Linear(3, 3, bias=False), nn.Linear(3, 3))


def test_a_bent_path_goes_round_the_hill():
    one, other = Valley(1, 0), Valley(0, 1)
    line = along(straight(one, other), EXAMPLE, VALUES, value)
    middle = bezier(one, other, value, EXAMPLE, steps=300, lr=0.05)
    path = along(bent(one, middle, other), EXAMPLE, VALUES, value)
    # in the middle of the line |w|^2 = 1/2: the loss is 1/4
    assert float(line.barrier[0]) == pytest.approx(0.25)
    assert float(path.barrier[0]) < 0.02
    # least squares over t of |phi|^2 = 1 puts theta on the diagonal, near (0.92, 0.92)
    u, v = middle[0].tolist()
    assert u == pytest.approx(v, abs=0.05)
    t = torch.linspace(0, 1, 2001, dtype=torch.float64)
    grid = torch.linspace(0.5, 1.3, 801, dtype=torch.float64)[:, None]
    a, b = (1 - t) ** 2 + 2 * t * (1 - t) * grid, t**2 + 2 * t * (1 - t) * grid
    best = float(grid[((a**2 + b**2 - 1) ** 2).mean(1).argmin()])
    assert (u + v) / 2 == pytest.approx(best, abs=0.03)


def test_the_gradient_is_taken_through_the_curve():
    class Weight(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1, dtype=torch.float64))

        def forward(self, x):
            return (self.w - 1).square().expand(len(x))

    # With both ends at 0 the curve is s theta, s = 2 t (1 - t), and E (s theta - 1)^2 is least at
    # E s / E s^2 = 5 / 2; where the factor s of the gradient is left out, the descent ends at 1 / E s = 3.
    (middle,) = bezier(Weight(), Weight(), value, EXAMPLE, steps=400, lr=0.05)
    assert float(middle) == pytest.approx(2.5, abs=0.2)


def test_without_steps_the_curve_is_the_line():
    one, other = affine(0), affine(1)
    middle = bezier(one, other, risk(CLASSES), [blobs()], steps=0)
    line, path = straight(one, other), bent(one, middle, other)
    for t in (0.1, 0.5, 0.8):
        assert torch.allclose(path(t).weight, line(t).weight, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("options", [{"steps": -1}, {"lr": 0.0}, {"batches": []}])
def test_a_bezier_refuses_what_is_out_of_range(options):
    batches = options.pop("batches", [blobs()])
    with pytest.raises(ValueError, match="steps must be at least 0, lr above 0, and batches not empty"):
        bezier(affine(0), affine(1), risk(CLASSES), batches, **options)
    with pytest.raises(ValueError, match="points must be at least 2, got 1"):
        looked_at(straight(affine(0), affine(1)), [blobs()], points=1)


def normalized(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Tanh(), nn.Linear(5, 3)
    ).double()


def test_batch_statistics_are_those_of_the_batches():
    model, batches = normalized(0), [blobs(20, 1), blobs(20, 2)]
    rng = torch.get_rng_state()
    renormalize(model, batches)
    hidden = [model[0](*b.inputs) for b in batches]
    assert torch.allclose(model[1].running_mean, torch.stack([h.mean(0) for h in hidden]).mean(0))
    assert torch.allclose(model[1].running_var, torch.stack([h.var(0) for h in hidden]).mean(0))
    assert model[1].momentum == 0.1 and model.training and torch.equal(rng, torch.get_rng_state())


def test_statistics_are_recomputed_at_every_place():
    one, other, batch = normalized(0), normalized(1), blobs(64)
    curve = straight(one, other)
    path = looked_at(curve, [batch], statistics=[batch], points=3)
    model = copy.deepcopy(one)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        p.data.lerp_(q.data, 0.5)
    model.eval()
    h = model[0](*batch.inputs)
    h = (h - h.mean(0)) / (h.var(0) + 1e-5).sqrt() * model[1].weight + model[1].bias
    loss = F.cross_entropy(model[4](h.tanh()), batch.targets).detach()
    assert float(path.loss[1]) == pytest.approx(float(loss), rel=1e-10)
    stale = looked_at(curve, [batch], points=3)
    assert abs(float(stale.loss[1] - path.loss[1])) > 1e-3
    assert all(torch.equal(m[1].running_mean, torch.zeros(5).double()) for m in (one, other))


# claims


def test_a_permuted_copy_has_a_barrier_that_alignment_takes_away():
    subject = demo()
    before, after = linear(subject), after_alignment(subject)
    assert float(before.value) > 0.03
    assert float(after.value) == pytest.approx(0, abs=1e-12)
    assert before.verdict == after.verdict == Verdict.MEASURED
    assert after.curves["loss: straight"].tolist() == before.curves["loss: straight"].tolist()


def test_a_trained_curve_is_lower_than_the_line():
    subject = demo()
    found = curved(subject)
    names = [name for name in found.curves if name.startswith("loss: ") and not name.endswith("error")]
    assert names == ["loss: straight", "loss: aligned", "loss: bent"]
    assert float(found.value) < 0.2 * float(linear(subject).value)


def test_a_model_that_is_no_chain_has_no_aligned_path():
    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.a(x) * self.b(x)

    torch.manual_seed(0)
    one, other = Doubled().double(), Doubled().double()
    subject = Subject(
        model=one, beside=other, test=[blobs()], train=[blobs()], task=CLASSES, objective=risk(CLASSES)
    )
    found = curved(subject, steps=5)
    assert "loss: aligned" not in found.curves and found.verdict == Verdict.MEASURED


def test_a_claim_refuses_a_subject_without_a_second_model():
    subject = Subject(model=affine(0), test=[blobs()], task=CLASSES, objective=risk(CLASSES))
    for ask in (linear, after_alignment, curved):
        with pytest.raises(ValueError, match="a second model beside the first: got none"):
            ask(subject)
    with pytest.raises(ValueError, match="they are not known"):
        from_initial(subject)


def test_a_loss_that_is_not_finite_fails():
    one, other = affine(0), affine(1)
    other.weight.data.fill_(math.inf)
    subject = Subject(
        model=one, beside=other, initial=other, test=[blobs()], task=CLASSES, objective=risk(CLASSES)
    )
    assert linear(subject).verdict == Verdict.FAILED
    assert from_initial(subject).verdict == Verdict.FAILED


@pytest.mark.parametrize(
    ("losses", "rise"), [([5, 3, 1, 0], 0), ([5, 1, 2, 0], 1), ([5, 1, 3, 0, 4], 4), ([0, 1, 0.5], 1)]
)
def test_the_largest_rise_of_a_path(losses, rise):
    terms = torch.tensor(losses, dtype=torch.float64)[:, None] + torch.tensor([0.0, 1.0]).double()
    none = torch.zeros(len(losses), dtype=torch.float64)
    path = Along(torch.linspace(0, 1, len(losses)).double(), terms, torch.ones(2).double(), none, none)
    assert float(largest_rise(path)[0]) == rise
    assert float(largest_rise(path)[1]) == 0  # every term rises alike


def test_statements_mention_batch_statistics_only_where_there_are_any():
    torch.manual_seed(0)
    plain = linear(demo()).statement
    subject = Subject(
        model=normalized(0),
        beside=normalized(1),
        test=[blobs()],
        train=[blobs()],
        task=CLASSES,
        objective=risk(CLASSES),
    )
    assert "batch normalization" not in plain and "batch normalization" in linear(subject).statement


def test_a_permutation_is_what_the_demonstration_hides():
    subject = demo()
    perm = torch.tensor([int((subject.beside[0].bias == b).nonzero()) for b in subject.model[0].bias])
    back = permute_hidden(subject.beside, 0, perm)
    assert torch.equal(back[0].weight, subject.model[0].weight)
