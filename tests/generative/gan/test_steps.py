"""Rounds of a game: on the bilinear one the steps are the theory's; what moves when, what is refused."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, NonFiniteError, State
from margin.generative.gan.extragradient import (
    alternating,
    extragradient,
    optimistic,
    saddle_field,
    simultaneous,
)
from margin.generative.gan.gradient_penalty import penalized_slope, slopes
from margin.generative.gan.model import GAN, points
from margin.generative.gan.steps import rounds, wasserstein_rounds
from margin.nn.preprocessed import Preprocessed

CPU = torch.device("cpu")


class Constant(nn.Module):
    """G(z) = theta."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.num_classes, self.bounds = 0, None

    def draw(self, count: int, generator: Generator) -> Tensor:
        return torch.zeros(count, 1, dtype=torch.float64)

    def forward(self, z: Tensor, labels: None) -> Tensor:
        return self.theta.expand(len(z), 1)


class Proportional(nn.Module):
    """D(x) = phi x."""

    def __init__(self) -> None:
        super().__init__()
        self.phi = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.batchwise = None

    def features(self, x: Tensor) -> Tensor:
        return x

    def judge(self, f: Tensor, labels: None) -> Tensor:
        return self.phi * f[:, 0]

    def forward(self, x: Tensor, labels: None) -> Tensor:
        return self.judge(x, labels)


def state(core: nn.Module, lr: float = 0.1, kind: type = torch.optim.SGD) -> State:
    optimizers = {
        name: kind(core.get_submodule(name).parameters(), lr=lr) for name in ("critic", "generator")
    }
    return State({"model": Preprocessed(nn.Identity(), core)}, optimizers)


def advance(state: State, step: object, batch: Batch, steps: int = 1) -> dict[str, float]:
    for _ in range(steps):
        state.reseed(CPU)
        said = step(state, batch)
        state.step += 1
    return said


def dirac(method: str, steps: int) -> list[float]:
    """Data at 0: V = phi (0 - theta), min over theta, max over phi; the critic's box never binds."""
    core = nn.Module()
    core.generator, core.critic = Constant(), Proportional()
    step = wasserstein_rounds(
        GradientUpdate(),
        constraint="clipping",
        clip=1e9,
        critic_rounds=1,
        method=method,  # type: ignore[arg-type]
    )
    played = state(core)
    advance(played, step, Batch((torch.zeros(2, 1, dtype=torch.float64),)), steps)
    return [core.generator.theta.item(), core.critic.phi.item()]


@pytest.mark.parametrize(
    ("method", "norm"), [("simultaneous", 17.02), ("extragradient", 0.1176), ("alternating", None)]
)
def test_on_the_bilinear_game_the_steps_are_those_of_the_theory(method: str, norm: float | None) -> None:
    theory = {"simultaneous": simultaneous, "extragradient": extragradient, "alternating": alternating}
    field = saddle_field(lambda theta, phi: -theta * phi)
    w = [torch.ones((), dtype=torch.float64)] * 2
    for _ in range(500):
        w = theory[method](field, w, 0.1)
    got = dirac(method, 500)
    assert got == pytest.approx([float(x) for x in w], rel=1e-9)
    assert norm is None or math.hypot(*got) == pytest.approx(norm, rel=5e-4)


def test_optimistic_steps_are_those_of_the_theory() -> None:
    field = saddle_field(lambda theta, phi: -theta * phi)
    w = [torch.ones((), dtype=torch.float64)] * 2
    before = field(w)
    for _ in range(200):
        w, before = optimistic(field, w, before, 0.1)
    assert dirac("optimistic", 200) == pytest.approx([float(x) for x in w], rel=1e-9)


def small(**options: object) -> GAN:
    torch.manual_seed(0)
    return points(2, hidden=(8,), **options)


def batch(n: int = 16) -> Batch:
    return Batch((torch.randn(n, 2, generator=Generator().manual_seed(0)),))


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_the_generator_moves_at_every_so_many_steps() -> None:
    core = small()
    played, step = state(core), wasserstein_rounds(GradientUpdate(), critic_rounds=3)
    moved = []
    for _ in range(7):
        before = weights(core.generator), weights(core.critic)
        said = advance(played, step, batch())
        assert not torch.equal(before[1], weights(core.critic))
        moved.append(not torch.equal(before[0], weights(core.generator)))
        assert set(said) == {"critic_loss", "generator_loss", "gap", "slope"}  # at every step the same
    assert moved == [False, False, True, False, False, True, False]


def test_the_alternating_generator_sees_where_the_critic_went() -> None:
    """The gradient of -log D(G(z)) under the moved critic, times the rate."""
    core = small()
    played, step = state(core, lr=0.5), rounds(GradientUpdate(), penalty=0.0)
    start = [p.detach().clone() for p in core.generator.parameters()]
    advance(played, step, batch())
    ends = [p.detach().clone() for p in core.generator.parameters()]
    random = Generator()
    played.step = 0
    played.reseed(CPU)
    random.set_state(played.generator.get_state())
    core.generator.draw(16, random)  # the critic's round
    with torch.no_grad():
        for p, value in zip(core.generator.parameters(), start, strict=True):
            p.copy_(value)
    loss = nn.functional.softplus(-core(core.generator(core.generator.draw(16, random)))).mean()
    grads = torch.autograd.grad(loss, list(core.generator.parameters()))
    for a, b, g in zip(start, ends, grads, strict=True):
        torch.testing.assert_close(b, a - 0.5 * g)


@pytest.mark.parametrize("method", ["alternating", "simultaneous", "extragradient", "optimistic"])
def test_clipped_weights_stay_in_their_box(method: str) -> None:
    core = small()
    step = wasserstein_rounds(
        GradientUpdate(),
        constraint="clipping",
        critic_rounds=1,
        method=method,  # type: ignore[arg-type]
    )
    advance(state(core, lr=1.0), step, batch(), 3)
    assert float(weights(core.critic).abs().max()) <= 0.01
    assert float(weights(core.generator).abs().max()) > 0.01


@pytest.mark.parametrize("method", ["simultaneous", "extragradient", "optimistic"])
def test_every_method_closes_in_on_data_elsewhere(method: str) -> None:
    core = small()
    played = state(core, lr=2e-3, kind=torch.optim.RMSprop)
    step = rounds(GradientUpdate(), penalty=1.0, method=method)  # type: ignore[arg-type]
    given = Batch((3 + 0.3 * batch(64).inputs[0],))
    advance(played, step, given, 150)
    center = core.sample(256, generator=Generator().manual_seed(0)).detach().mean(0)
    assert float((center - 3).norm()) < 2  # it begins at a distance of 4.3


def test_a_loss_that_is_no_number_stops_before_anything_moves() -> None:
    for method in ("alternating", "simultaneous", "extragradient", "optimistic"):
        core = small()
        before = weights(core)
        step = rounds(GradientUpdate(), method=method)  # type: ignore[arg-type]
        with pytest.raises(NonFiniteError):
            advance(state(core), step, Batch((torch.full((4, 2), math.nan),)))
        assert torch.equal(weights(core), before)


def test_a_penalized_critic_has_the_slope_of_the_theory() -> None:
    """Two points at distance 2, a critic that is affine there, alone: 1 + 2 / 20, and a gap of 2.2."""
    core = points(1, hidden=())
    core.critic.network[1][0].bias.data.fill_(9.0)  # the kink of its leaky ReLU is far away
    core.critic.network[1][0].weight.data.fill_(1.0)
    core.critic.head.weight.data.fill_(0.5)
    for p in core.generator.parameters():
        p.data.zero_()
    step = wasserstein_rounds(GradientUpdate(), critic_rounds=1000, penalty=10.0)  # the critic alone
    played = state(core, lr=5e-3)
    said = advance(played, step, Batch((torch.full((4, 1), 2.0),)), 250)
    assert float(said["slope"]) == pytest.approx(penalized_slope(2.0, 10.0), rel=1e-3)
    assert float(said["gap"]) == pytest.approx(2.2, rel=1e-3)
    slope = float(slopes(core, torch.ones(1, 1)))
    assert float(said["gap"]) / slope == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (rounds, {"critic_rounds": 0}, "critic_rounds must be at least 1 and penalty at least 0: got 0"),
        (rounds, {"penalty": -1.0}, "penalty at least 0: got 1, -1"),
        (rounds, {"penalty": math.nan}, "penalty at least 0: got 1, nan"),
        (rounds, {"critic_rounds": 2, "method": "optimistic"}, "critic_rounds must be 1 where both .* got 2"),
        (wasserstein_rounds, {"method": "extragradient"}, "critic_rounds must be 1 where both .* got 5"),
        (wasserstein_rounds, {"penalty": 0.0}, "penalty must be positive: got 0"),
        (wasserstein_rounds, {"constraint": "clipping", "clip": 0.0}, "clip must be positive: got 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    make: object, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(GradientUpdate(), **options)


def test_what_the_players_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match="accumulate must be 1: the players see whole batches, got 2 pieces"):
        rounds(GradientUpdate(pieces=2))
    with pytest.raises(ValueError, match="needs whole weights: set --strategy ddp"):
        rounds(replace(GradientUpdate(), synchronized=True))
    core = small(minibatch=2)
    with pytest.raises(ValueError, match=r"set --step.penalty 0, got 0.1"):
        advance(state(core), rounds(GradientUpdate()), batch())
    said = advance(state(core), rounds(GradientUpdate(), penalty=0.0), batch())
    assert set(said) == {"critic_loss", "generator_loss", "accuracy", "won"}
    said = advance(state(core), rounds(GradientUpdate(), penalty=0.0, objective="feature_matching"), batch())
    assert float(said["generator_loss"]) >= 0
