"""The sandwich: certificate <= attack example by example, closed forms of linear models, every refusal."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import beta, binomtest
from torch import nn

from margin.core.catalog import claims, parts, resolve, rules
from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, HALFSPACE
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust import CLAIMS, accuracy_curves
from margin.robust.certificates.certify import Certificates
from margin.robust.certificates.intervals import margin_bounds
from margin.robust.sandwich import contradiction, demo, l2_attack, linf_fgsm, linf_sandwich

CLAIM_FUNCTIONS = [linf_sandwich, linf_fgsm, l2_attack]
SHARES = (0.0, 0.01, 0.03, 0.1, 0.2)


def moons(count, seed):
    generator = torch.Generator().manual_seed(seed)
    angle = torch.pi * torch.rand(count, generator=generator)
    y = torch.arange(count) % 2
    x = torch.stack([angle.cos(), angle.sin()], 1)
    x = torch.where(y[:, None] == 1, torch.tensor([1.0, 0.5]) - x, x)
    return x + 0.1 * torch.randn(count, 2, generator=generator), y


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    x, y = moons(400, 0)
    net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    net.zero_grad()
    return net


def subject(model, x, y, *, low=-2.0, high=3.0, task=CLASSES, batch=50, **options):
    test = tuple(Batch((a,), b) for a, b in zip(x.split(batch), y.split(batch), strict=True))
    domain = Domain(torch.tensor(low), torch.tensor(high))
    return Subject(model=model, test=test, task=task, objective=risk(task), domain=domain, **options)


def linear_accuracy(shares, size, length):
    """The share of the demonstration's examples of margin above eps ||w||_q."""
    x, y = demo().test[0].inputs[0].double(), demo().test[0].targets
    margin = (2 * y - 1) * (2 * x[:, 0] - x[:, 1])
    return [(margin > share * size * length).double().mean().item() for share in shares]


def test_attack_and_certificate_meet_in_the_closed_form_of_a_linear_model():
    shares = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1)
    finding = linf_sandwich(demo())
    expected = linear_accuracy(shares, 8.0, 3.0)
    assert len(set(expected)) >= 4
    assert finding.value.tolist() == pytest.approx(expected, abs=1e-12)
    assert finding.low.tolist() == pytest.approx(expected, abs=1e-12)
    assert finding.verdict is Verdict.HOLDS
    assert linf_fgsm(demo()).value.tolist() == pytest.approx(expected, abs=1e-12)
    euclidean = linear_accuracy(shares, 8.0 * 2**0.5, 5**0.5)
    assert l2_attack(demo()).value.tolist() == pytest.approx(euclidean, abs=1e-12)


def test_a_trained_network_is_certified_in_part_attacked_in_part_and_vacuous_at_last(trained):
    x, y = moons(150, 1)
    finding = linf_sandwich(subject(trained, x, y), shares=SHARES)
    clean = (trained(x).argmax(1) == y).double().mean()
    certified, attacked = finding.curves["certified"], finding.curves["attacked"]
    assert finding.value[0] == clean and finding.curves["clean"][0] == clean
    assert (certified <= attacked).all() and (attacked <= finding.curves["fgsm"]).all()
    assert (attacked.diff() <= 0).all() and (finding.curves["fgsm"].diff() <= 0).all()
    assert 0 < certified[1] < clean
    assert attacked[-1] < clean
    assert finding.low[-1] == 0 and finding.verdicts[-1] is Verdict.VACUOUS
    assert finding.verdicts[0] is Verdict.HOLDS
    assert finding.labels[1] == "eps 0.05 (1% of the range)"
    assert finding.curves["eps"].tolist() == pytest.approx([0, 0.05, 0.15, 0.5, 1.0])


def test_the_measured_accuracy_is_not_below_a_search_on_a_grid(trained):
    # Every point of a grid of the ball and the domain is an attack; the measured one must nearly match it.
    x, y = moons(60, 2)
    finding = linf_sandwich(subject(trained, x, y), shares=(0.0, 0.06), steps=20)
    side = torch.linspace(-0.3, 0.3, 61)
    offsets = torch.cartesian_prod(side, side)
    right = (trained((x[:, None] + offsets).reshape(-1, 2)).argmax(1).reshape(60, -1) == y[:, None]).all(1)
    assert abs(finding.value[1] - right.double().mean()) <= 1 / 60 + 1e-9
    assert finding.low[1] <= right.double().mean()


def test_a_signed_score_is_attacked_though_its_loss_is_flat():
    class Score(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 1, bias=False)
            self.linear.weight.data = torch.tensor([[2.0, -1.0]])

        def forward(self, x):
            return self.linear(x)[:, 0]

    x, y = demo().test[0].inputs[0], demo().test[0].targets
    finding = linf_sandwich(subject(Score(), x, y, low=-4.0, high=4.0, task=HALFSPACE))
    expected = linear_accuracy((0.0, 0.001, 0.005, 0.02, 0.05, 0.1), 8.0, 3.0)
    assert finding.curves["fgsm"].tolist() == pytest.approx(expected, abs=1e-12)
    assert finding.value.tolist() == pytest.approx(expected, abs=1e-12)
    assert finding.low.tolist() == pytest.approx(expected, abs=1e-12)


def test_an_unknown_layer_is_named_and_the_attack_still_measured(trained):
    model = nn.Sequential(trained[0], nn.Softmin(1), *trained[1:])
    x, y = moons(40, 1)
    finding = linf_sandwich(subject(model, x, y), shares=(0.0, 0.1))
    assert finding.verdict is Verdict.MEASURED
    assert finding.remarks[0].startswith("not certified: no interval rule for layer '1' (Softmin)")
    assert finding.value.isfinite().all() and finding.low is None
    right = int((model(x).argmax(1) == y).sum())
    plain = binomtest(right, 40).proportion_ci(0.95, method="exact").low  # at radius 0 nothing moves
    assert finding.sandwich[0].tolist() == pytest.approx([plain, 0.0], abs=1e-12)
    assert not any("interval rule" in premise.text for premise in finding.premises)
    assert linf_fgsm(subject(model, x, y), shares=(0.0, 0.1)).verdict is Verdict.MEASURED


def test_an_example_that_is_certified_and_broken_is_a_failure(trained, monkeypatch):
    def wrong(model, x, labels, threats, classes, hopeful, **work):
        every = torch.zeros(len(threats), len(x), dtype=torch.long)
        return Certificates(every >= 0, every)

    x, y = moons(40, 1)
    monkeypatch.setattr(accuracy_curves, "certified", wrong)
    finding = linf_sandwich(subject(trained, x, y), shares=(0.0, 0.2))
    assert finding.verdict is Verdict.FAILED
    assert "are certified and broken" in finding.failure


def test_the_contradiction_names_ball_and_examples(trained):
    x, y = moons(40, 1)
    curves = accuracy_curves.measure(subject(trained, x, y), "linf", (0.0, 0.2), 40, certify=True)
    assert contradiction(curves) == ""
    broken = curves.attacked.clone()
    broken[1, [3, 7]] = False
    certified = torch.zeros_like(broken)
    certified[1, [2, 7]] = True
    certified[1, 2] = bool(broken[1, 2])
    message = contradiction(
        accuracy_curves.Curves(
            curves.threats, curves.clean, broken, broken, certified, curves.weight, (), curves.note
        )
    )
    assert "eps 1 examples 7 are" in message


@pytest.mark.parametrize("ask", CLAIM_FUNCTIONS)
def test_a_model_that_returns_nan_fails_without_a_crash(ask):
    class Nan(nn.Module):
        def forward(self, x):
            return x * torch.nan

    x, y = moons(20, 1)
    finding = ask(subject(Nan(), x, y))
    assert finding.verdict is Verdict.FAILED
    assert "NaN" in finding.failure and finding.value.isnan().all()


@pytest.mark.parametrize("ask", CLAIM_FUNCTIONS)
def test_a_nan_next_to_the_examples_is_no_success_of_anybody(ask):
    class Cliff(nn.Module):
        def forward(self, x):
            return torch.where((x - x.round()).abs() > 1e-6, torch.nan, x) + x * 0

    x = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    finding = ask(subject(Cliff(), x, torch.tensor([1, 0])))
    assert finding.verdict is Verdict.FAILED


def test_masked_gradients_are_flagged_and_random_search_tried(trained):
    class Killer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return torch.zeros_like(grad)

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = trained

        def forward(self, x):
            return self.net(Killer.apply(x))

    x, y = moons(60, 1)
    for ask in CLAIM_FUNCTIONS:
        finding = ask(subject(Masked(), x, y), shares=(0.0, 0.2))
        assert finding.verdict is Verdict.UNFOUNDED
        assert any(p.status == "refuted" and "(100.0%)" in p.evidence for p in finding.premises)
    curves = accuracy_curves.measure(subject(Masked(), x, y), "linf", (0.0, 0.2), 60)
    assert torch.equal(curves.stepped[1], curves.clean)
    assert curves.attacked[1].sum() < 0.9 * curves.clean.sum()
    assert torch.equal(curves.attacked[0], curves.clean)


def test_a_model_that_draws_at_random_is_unfounded(trained):
    class Noisy(nn.Module):
        def forward(self, x):
            return trained(x) + torch.randn(len(x), 2)

    x, y = moons(30, 1)
    finding = linf_sandwich(subject(Noisy(), x, y), shares=(0.0, 0.1))
    assert finding.verdict is Verdict.UNFOUNDED
    assert "draws at random" in finding.premises[0].evidence


def test_examples_outside_the_domain_are_left_out_and_counted(trained):
    x, y = moons(30, 1)
    x[3], x[4, 1] = 50.0, torch.nan
    finding = linf_sandwich(subject(trained, x, y), shares=(0.0,))
    keep = torch.ones(30, dtype=torch.bool)
    keep[3:5] = False
    assert finding.value[0] == (trained(x[keep]).argmax(1) == y[keep]).double().mean()
    assert "all 28 test examples inside the domain (2 lie outside it)" in finding.statement
    nobody = linf_sandwich(subject(trained, x + 100, y))
    assert nobody.verdict is Verdict.FAILED and "no test example" in nobody.failure


def test_a_file_sorted_by_class_does_not_give_one_class():
    # Right on class 1 alone: the first 70 of a sorted file would say 0, the last 1, the truth is one half.
    x = torch.arange(2.0).repeat_interleave(500)[:, None].repeat(1, 2)
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([0.0, 1.0]))
    for ask in CLAIM_FUNCTIONS:
        finding = ask(subject(model, x, x[:, 0].long()), shares=(0.0,), limit=70)
        assert abs(finding.value[0] - 0.5) < 5 * 0.5 / 70**0.5
        assert "70 of 1,000 test examples, drawn at random" in finding.statement
        below, above = finding.sandwich or finding.verdict_interval
        assert below[0] < 0.5 < above[0]  # as the accuracy of all
    assert "all 1,000 test examples" in linf_fgsm(subject(model, x, x[:, 0].long()), limit=1000).statement


def test_weights_count_and_padding_does_not(trained):
    x, y = moons(20, 1)
    y = torch.where(torch.arange(20) < 10, trained(x).argmax(1), 1 - trained(x).argmax(1))
    weight = torch.ones(20)
    weight[:10], weight[19] = 3.0, 0.0
    x[19] = 1e9  # a filler far outside
    plain = subject(trained, x, y)
    weighted = Subject(
        model=plain.model,
        test=(Batch((x,), y, weight),),
        task=plain.task,
        objective=plain.objective,
        domain=plain.domain,
    )
    finding = linf_sandwich(weighted, shares=(0.0,))
    assert finding.value[0] == pytest.approx(30 / 39)
    assert "all 19 test examples," in finding.statement


def test_chunks_do_not_change_a_certificate(trained, monkeypatch):
    x, y = moons(100, 1)
    whole = linf_sandwich(subject(trained, x, y, batch=100), shares=(0.0, 0.02))
    monkeypatch.setattr(accuracy_curves, "CHUNK", 23)
    pieces = linf_sandwich(subject(trained, x, y, batch=33), shares=(0.0, 0.02))
    assert torch.equal(whole.low, pieces.low)
    assert torch.equal(whole.curves["fgsm"], pieces.curves["fgsm"])


def test_each_feature_moves_by_a_share_of_its_own_range():
    # w = (1, 1000) on sides (10, 0.01): a share s moves f by s (10 + 10), not by s 10 (1 + 1000).
    model = nn.Linear(2, 2, bias=False).double()
    model.weight.data = torch.tensor([[0.0, 0.0], [1.0, 1000.0]], dtype=torch.float64)
    x = torch.tensor([[1.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
    domain = Domain(torch.tensor([-5.0, -0.005]), torch.tensor([5.0, 0.005]))
    made = Subject(
        model=model,
        test=(Batch((x,), torch.tensor([1, 1])),),
        task=CLASSES,
        objective=risk(CLASSES),
        domain=domain,
    )
    finding = linf_sandwich(made, shares=(0.0, 0.049, 0.051, 0.149, 0.151))
    assert finding.value.tolist() == [1.0, 1.0, 0.5, 0.5, 0.0]
    assert finding.low.tolist() == [1.0, 1.0, 0.5, 0.5, 0.0]
    assert finding.labels[1] == "4.9% of each coordinate's range"


@pytest.mark.parametrize("shape", [(4,), (2, 3, 3), (5, 2)])
def test_inputs_of_any_shape(shape):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 3))
    x, y = torch.rand(10, *shape), torch.arange(10) % 3
    for ask in CLAIM_FUNCTIONS:
        finding = ask(subject(model, x, y, low=0.0, high=1.0))
        assert finding.value.shape == (6,) and finding.value.isfinite().all()


@pytest.mark.parametrize("ask", CLAIM_FUNCTIONS)
def test_asking_twice_is_the_same_and_leaves_no_trace(ask):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 2))
    model[2].eval()
    x, y = moons(30, 1)
    before, flags = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = (ask(subject(model, x, y), shares=(0.0, 0.05)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.value, second.value)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert [m.training for m in model.modules()] == flags
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("ask", CLAIM_FUNCTIONS)
@pytest.mark.parametrize("shares", [(), (0.1, 0.1), (0.2, 0.1), (-0.1, 0.1), (float("nan"),)])
def test_bad_shares_are_refused(ask, shares):
    with pytest.raises(ValueError, match="shares must be >= 0 and grow"):
        ask(demo(), shares=shares)


@pytest.mark.parametrize("ask", CLAIM_FUNCTIONS)
def test_a_bad_limit_is_refused(ask):
    with pytest.raises(ValueError, match="limit of at least 1"):
        ask(demo(), limit=0)


def test_an_unbounded_domain_is_refused_in_one_line(trained):
    x, y = moons(10, 1)
    with pytest.raises(ValueError, match="an unbounded domain"):
        linf_sandwich(subject(trained, x, y, high=float("inf")))


ROWS = [
    row for table in (claims(), rules(), parts()) for name, row in table.items() if name.startswith("robust/")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_path_of_the_tables_leads_somewhere(row):
    for field in ("ask", "demo", "step", "target"):
        if hasattr(row, field):
            assert callable(resolve(getattr(row, field)))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_demonstration_has_an_answer(claim):
    made = resolve(claim.demo)()
    assert claim.refusal(made) == ""
    assert resolve(claim.ask)(made).verdict in (Verdict.HOLDS, Verdict.MEASURED)


def test_the_brackets_ends_cover_the_truth_as_often_as_they_say():
    # An interval of level .95 misses more than 7 % of 2,000 samples with probability 2e-5 (4.1 sd).
    for n, p in ((30, 0.9), (30, 0.5), (512, 0.9)):
        generator = torch.Generator().manual_seed(n)
        drawn = torch.rand(2000, n, generator=generator) < p
        counts, hits = drawn.sum(1), 0
        for k in counts.unique().tolist():
            low, high = _curves(torch.arange(n)[None] < k).ends(torch.arange(n)[None] < k)
            exact = binomtest(k, n).proportion_ci(0.95, "exact")
            assert (low.item(), high.item()) == pytest.approx((exact.low, exact.high), abs=1e-9)
            hits += int((counts == k).sum()) if low <= p <= high else 0
        assert hits / 2000 >= 0.93


def test_unequal_weights_widen_the_brackets_ends_to_an_effective_count():
    # Weights 1 and 3 of 10 each: (40)^2 / (10 + 90) = 16 examples; share (10 + 15) / 40 of right ones.
    right = torch.cat((torch.ones(10), torch.ones(5), torch.zeros(5))).bool()
    weight = torch.cat((torch.ones(10), torch.full((10,), 3.0))).double()
    low, high = _curves(right[None], weight).ends(right[None])
    k, n = 16 * 25 / 40, 16
    assert low.item() == pytest.approx(beta.ppf(0.025, k, n - k + 1), abs=1e-9)
    assert high.item() == pytest.approx(beta.ppf(0.975, k + 1, n - k), abs=1e-9)


def test_each_end_of_the_bracket_is_of_its_own_count(trained):
    x, y = moons(150, 1)
    finding = linf_sandwich(subject(trained, x, y), shares=SHARES)
    certified, attacked = finding.curves["certified"], finding.curves["attacked"]
    assert (certified < attacked).any()
    for i in range(len(SHARES)):
        low = binomtest(round(150 * certified[i].item()), 150).proportion_ci(0.95, "exact").low
        high = binomtest(round(150 * attacked[i].item()), 150).proportion_ci(0.95, "exact").high
        assert finding.sandwich[0][i].item() == pytest.approx(low, abs=1e-9)
        assert finding.sandwich[1][i].item() == pytest.approx(high, abs=1e-9)
    step = linf_fgsm(subject(trained, x, y), shares=SHARES)
    exact = binomtest(round(150 * step.value[4].item()), 150).proportion_ci(0.95, "exact")
    assert [end[4].item() for end in step.interval] == pytest.approx([exact.low, exact.high], abs=1e-9)


def test_a_certificate_that_only_the_stronger_attack_breaks_is_a_contradiction():
    # What one step leaves and an ascent breaks: certified, it must be named.
    right = torch.ones(1, 4, dtype=torch.bool)
    attacked = torch.tensor([[True, True, False, True]])
    curves = replace(_curves(right), stepped=right, attacked=attacked, certified=right)
    assert "examples 2 are certified and broken" in contradiction(curves)
    assert contradiction(replace(curves, certified=attacked)) == ""


@pytest.mark.parametrize("label", [0, 1])
def test_a_tie_is_never_certified(label):
    # Both classes have the same score at every point: the first of equals is predicted, no margin is above 0.
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    x = torch.tensor([[0.0, 0.0]], dtype=torch.float64)  # at 0 nothing rounds: the bound is 0 itself
    assert margin_bounds(model, x, x, torch.tensor([label])).abs().max() < 1e-300
    for kind in (torch.float64, torch.float32):
        made = subject(Exact(kind), torch.zeros(1, 2, dtype=kind), torch.tensor([label]))
        curves = accuracy_curves.measure(made, "linf", (0.0, 0.1), 1, certify=True)
        assert curves.certified is not None and not curves.certified.any()
        assert curves.clean.tolist() == [label == 0]


class Exact(nn.Module):
    """Two equal scores by maps that do not round."""

    def __init__(self, kind):
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(1, dtype=kind))

    def forward(self, x):
        return torch.cat((x[:, :1], x[:, :1]), 1)


def _curves(right, weight=None):
    count = right.shape[1]
    threat = accuracy_curves.balls(
        Domain(torch.tensor(0.0), torch.tensor(1.0)), torch.zeros(1, 1), "linf", (0.1,)
    )
    weight = torch.ones(count).double() if weight is None else weight
    return accuracy_curves.Curves(threat, right[0], right, right, None, weight, (), "")


@pytest.mark.parametrize("claim", [linf_sandwich, l2_attack])
@pytest.mark.parametrize("certified", [True, False])
def test_at_radius_0_the_bracket_is_the_interval_of_the_plain_accuracy(trained, claim, certified):
    """Nothing moves: the accuracy is measured, certified or not; a ball's is bounded above alone."""

    class Uncertified(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = trained

        def forward(self, x):
            return self.net(x) + 0 * x.square().sum(1, keepdim=True).add(1).lgamma()  # has no interval rule

    x, y = moons(120, 7)
    y[:9] = 1 - y[:9]
    found = claim(subject(trained if certified else Uncertified(), x, y), shares=(0.0, 0.01))
    right = int((trained(x).argmax(1) == y).sum())
    assert right < 120
    ends = binomtest(right, 120).proportion_ci(0.95, method="exact")
    assert [float(end[0]) for end in found.sandwich] == pytest.approx([ends.low, ends.high], abs=1e-9)
    assert float(found.sandwich[0][1]) < float(found.sandwich[0][0])


def test_a_copy_is_checked_at_the_inputs_and_at_a_corner_of_the_largest_ball(trained, monkeypatch):
    """Mutants: at one of the two only; a model may round otherwise where its inputs are larger."""
    asked = []
    monkeypatch.setattr(accuracy_curves, "check_copy", lambda model, x, classes: asked.append(x.clone()))
    x, y = moons(30, 1)
    linf_sandwich(subject(trained, x, y, batch=30), shares=(0.0, 0.01, 0.1))
    assert len(asked) == 2
    torch.testing.assert_close(asked[0], x)
    torch.testing.assert_close(asked[1], (x + 0.5).clamp(-2, 3))  # 0.1 of the side of 5
