"""The limit of stability against the optimizers themselves, the sharpness against dense matrices."""

import math

import pytest
import torch
from torch import Generator, nn

import margin
from margin import Training
from margin.core.findings import Subject, Verdict
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.data.sets.tiny.tables import moons
from margin.engine.loop import State, risk
from margin.optim.heavy_ball import HeavyBall
from margin.optim.lion import Lion
from margin.optim.nesterov import Nesterov
from margin.theory.dynamics.edge_of_stability import demo, edge_of, has_edge, ratio, track

ZEROS = torch.zeros(2, dtype=torch.float64)
EXAMPLE = Batch((ZEROS,), ZEROS)


class Bowl(nn.Module):
    """w' A w / 2 of two parameters, of two numbers and of one."""

    def __init__(self, A):
        super().__init__()
        self.register_buffer("A", A)
        self.first = nn.Parameter(torch.tensor([1.0, -0.5], dtype=torch.float64))
        self.second = nn.Parameter(torch.tensor([0.7], dtype=torch.float64))

    def forward(self, x):
        w = torch.cat((self.first, self.second))
        return (w @ self.A @ w / 2).expand(len(x))


def objective(model, batch, generator):
    return model(*batch.inputs)


def sharp(scale):
    q, _ = torch.linalg.qr(torch.randn(3, 3, generator=Generator().manual_seed(5), dtype=torch.float64))
    return scale * q @ torch.diag(torch.tensor([1.0, 0.3, 0.05], dtype=torch.float64)) @ q.T


NEVER = 1 - 1e-12
"""A decay by which second moments stay as they are."""

SETTLED = torch.tensor(1e13)
"""Steps after which no correction of a moment is left, and one more is none."""


def second_moments(optimizer, **kept):
    for group in optimizer.param_groups:
        for i, p in enumerate(group["params"]):
            v = torch.linspace(0.5, 2.0, p.numel(), dtype=torch.float64) * (1 + i)
            state = {
                name: v.clone() if value is None else torch.full_like(v, value)
                for name, value in kept.items()
            }
            optimizer.state[p] = {"step": SETTLED.clone(), **state}
    return optimizer


def adaptive(kind, **options):
    def build(groups):
        kept = {
            "Adam": {"exp_avg": 0.0, "exp_avg_sq": None},
            "AdamW": {"exp_avg": 0.0, "exp_avg_sq": None},
            "RMSprop": {"square_avg": None, "momentum_buffer": 0.0},
            "Adagrad": {"sum": None},
        }[kind]
        if options.get("centered"):
            kept["grad_avg"] = 0.3
        return second_moments(getattr(torch.optim, kind)(groups, foreach=False, **options), **kept)

    return build


CASES = {
    "gradient descent": lambda g: torch.optim.SGD(g),
    "penalty": lambda g: torch.optim.SGD(g, weight_decay=0.4),
    "heavy ball": lambda g: torch.optim.SGD(g, momentum=0.9),
    "dampened": lambda g: torch.optim.SGD(g, momentum=0.8, dampening=0.5),
    "nesterov": lambda g: torch.optim.SGD(g, momentum=0.9, nesterov=True),
    "ours, heavy ball": lambda g: HeavyBall(g, momentum=0.7),
    "ours, nesterov": lambda g: Nesterov(g, momentum=0.7, weight_decay=0.2),
    "adam": adaptive("Adam", betas=(0.9, NEVER)),
    "adam, penalty": adaptive("Adam", betas=(0.5, NEVER), weight_decay=0.3),
    "adamw": adaptive("AdamW", betas=(0.8, NEVER), weight_decay=0.6),
    "rmsprop": adaptive("RMSprop", alpha=NEVER),
    "rmsprop, momentum, centered": adaptive("RMSprop", alpha=NEVER, momentum=0.6, centered=True),
}


def started(case, scale, rates=(0.5, 0.2)):
    model = Bowl(sharp(scale))
    groups = [{"params": [p], "lr": lr} for p, lr in zip(model.parameters(), rates, strict=True)]
    return State({"model": model}, {"": CASES[case](groups)})


def seen(state):
    found = track(state, objective, [EXAMPLE])
    return found["sharpness"] / found["stability_limit"]


@pytest.mark.parametrize("case", CASES)
def test_just_below_the_limit_an_optimizer_contracts_and_just_above_it_does_not(case):
    low, high = 1e-2, 1e4
    for _ in range(24):
        scale = math.sqrt(low * high)
        low, high = (scale, high) if seen(started(case, scale)) < 1 else (low, scale)
    below, above = (farthest(started(case, low * factor)) for factor in (0.98, 1.02))
    assert below[-1] < 0.5 * below[0]
    assert above[-1] > 20 * above[0]


@torch.no_grad()
def farthest(state):
    """Distances from the minimum over a descent, until they are 20 times the first."""
    (optimizer,) = state.optimizers.values()
    model, far = state.model, []
    for _ in range(400):
        w = torch.cat((model.first, model.second))
        far.append(float(w.norm()))
        if far[-1] > 20 * far[0]:
            break
        model.first.grad, model.second.grad = (model.A @ w).split((2, 1))
        optimizer.step()
    return far


def test_the_limits_in_print():
    w = [nn.Parameter(torch.zeros(1))]
    assert edge_of(torch.optim.SGD(w, lr=0.025), w).limit == pytest.approx(80)
    assert edge_of(torch.optim.SGD(w, lr=0.025, momentum=0.9), w).limit == pytest.approx(2 * 1.9 / 0.025)
    nesterov = torch.optim.SGD(w, lr=0.1, momentum=0.9, nesterov=True)
    assert edge_of(nesterov, w).limit == pytest.approx(3.8 / (0.1 * 2.8))
    assert edge_of(torch.optim.Adam(w, lr=0.1), w).limit == pytest.approx(38 / 0.1)
    assert edge_of(torch.optim.RMSprop(w, lr=0.1), w).limit == pytest.approx(20)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_is_corrected_for_both_moments(amsgrad):
    w = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    adam = torch.optim.Adam([w], lr=0.1, betas=(0.9, 0.99), eps=1e-3, amsgrad=amsgrad)
    v = largest = torch.zeros(2, dtype=torch.float64)
    for g in (torch.tensor([4.0, -3.0]), torch.tensor([0.1, 0.5]), torch.tensor([0.2, 0.1])):
        w.grad = g.double()
        adam.step()
        v = 0.99 * v + 0.01 * g.double().square()
        largest = torch.maximum(largest, v)
    P = (1 - 0.9**3) * (((largest if amsgrad else v) / (1 - 0.99**3)).sqrt() + 1e-3)
    assert torch.allclose(edge_of(adam, [w]).scale, P**-0.5, rtol=1e-12)


def test_adagrad_slows_down():
    w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    adagrad = torch.optim.Adagrad([w], lr=0.1, lr_decay=0.5)
    for g in (3.0, 4.0):
        w.grad = torch.tensor([g], dtype=torch.float64)
        adagrad.step()
    # the second of two steps divides the rate by 1 + 0.5, and the gradient by |(3, 4)|
    assert float(edge_of(adagrad, [w]).scale) == pytest.approx((5 * 1.5) ** -0.5, rel=1e-9)


def test_a_parameter_that_never_moved_has_no_part():
    state = started("gradient descent", 1.0)
    model = state.model
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    state.optimizers[""] = adam
    assert math.isnan(track(state, objective, [EXAMPLE])["sharpness"])
    model.second.grad = torch.ones(1, dtype=torch.float64)
    adam.step()
    edge = edge_of(adam, list(model.parameters()))
    assert edge.scale[:2].tolist() == [0, 0] and edge.scale[2] > 0
    expected = edge.scale[2] ** 2 * model.A[2, 2]
    assert track(state, objective, [EXAMPLE])["sharpness"] == pytest.approx(float(expected), rel=1e-6)


def test_a_loss_that_is_not_finite_has_no_sharpness():
    state = started("gradient descent", math.nan)
    assert math.isnan(track(state, objective, [EXAMPLE])["sharpness"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: Lion(p), "is known of SGD, HeavyBall, .*: got Lion"),
        (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), "is of a descent"),
        (lambda p: torch.optim.SGD(p, lr=0.0), "a learning rate above 0"),
        (lambda p: Nesterov(p, momentum="convex"), "constant momentum: got momentum='convex'"),
        (
            lambda p: torch.optim.SGD(
                [{"params": p[:1]}, {"params": p[1:], "momentum": 0.5}], lr=0.1, momentum=0.9
            ),
            "needs one momentum",
        ),
    ],
)
def test_an_optimizer_without_a_known_limit_is_refused(build, message):
    w = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
    with pytest.raises(ValueError, match=message):
        edge_of(build(w), w)


def test_one_optimizer_is_needed():
    state = started("gradient descent", 1.0)
    state.optimizers["second"] = state.optimizers[""]
    with pytest.raises(ValueError, match="that of one optimizer: there are 2"):
        track(state, objective, [EXAMPLE])


def test_asking_leaves_no_trace():
    state = started("adamw", 1.0)
    state.model.train()
    state.model.first.grad = torch.ones(2, dtype=torch.float64)
    before = {name: p.detach().clone() for name, p in state.model.named_parameters()}
    moments = [kept["exp_avg_sq"].clone() for kept in state.optimizers[""].state.values()]
    rng = torch.get_rng_state()
    track(state, objective, [EXAMPLE])
    assert all(torch.equal(before[name], p) for name, p in state.model.named_parameters())
    after = [kept["exp_avg_sq"] for kept in state.optimizers[""].state.values()]
    assert all(torch.equal(a, b) for a, b in zip(moments, after, strict=True))
    assert state.model.training and state.model.first.grad is not None
    assert torch.equal(rng, torch.get_rng_state())


def subject(history):
    return Subject(model=nn.Identity(), test=[EXAMPLE], task=VALUES, objective=risk(VALUES), history=history)


def rows(*pairs):
    return [{"step": i, "sharpness": s, "stability_limit": limit} for i, (s, limit) in enumerate(pairs)]


def test_the_ratio_is_the_mean_over_the_last_third():
    history = rows((1, 10), (2, 10), (None, 10), (4, 10), (math.nan, 10), (9, 10), (11, 10), (24, 20))
    found = ratio(subject(history))
    # six rows are known: the last two are 1.1 and 1.2
    assert float(found.value) == pytest.approx(1.15)
    assert found.verdict == Verdict.MEASURED
    assert "lies above 1 in 2 of its 2" in found.statement
    assert found.curves["step"].tolist() == [0, 1, 3, 5, 6, 7]
    assert float(found.interval[1]) == pytest.approx(1.15 * 1.01)


def test_a_history_of_nothing_finite_fails():
    history = rows((None, 10), (math.nan, 10))
    assert has_edge(subject(history))
    assert ratio(subject(history)).verdict == Verdict.FAILED
    assert not has_edge(subject([{"step": 1, "sharpness": 3.0}]))


def test_the_demonstration_comes_to_rest_below_the_limit():
    found = demo()
    u, v = 3.0, 0.2
    for row in found.history:
        g = u * v - 1
        u, v = u - g * v / 4, v - g * u / 4
        middle, off = (u * u + v * v) / 2, 2 * u * v - 1
        largest = middle + math.sqrt(((u * u - v * v) / 2) ** 2 + off * off)
        assert row["sharpness"] == pytest.approx(largest, rel=1e-6)
        assert row["stability_limit"] == 8
    assert found.history[0]["sharpness"] > 8 > found.history[-1]["sharpness"]


def test_a_training_is_followed_by_name(tmp_path):
    training = Training(
        epochs=2, batch_size="all", optimizer="SGD", lr=0.05, track=["theory/edge_of_stability"]
    )
    run = margin.train("mlp", moons(), {"hidden": [4]}, training=training, out=tmp_path / "run")
    assert [row["stability_limit"] for row in run.history] == [pytest.approx(40)] * 2
    assert all(row["sharpness"] > 0 for row in run.history)
