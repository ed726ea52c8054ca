"""What the linear recurrent unit promises: kept at the edge, broken on purpose, refused where unfounded."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Generator

from margin.core.findings import Subject, Verdict
from margin.sequence.linear.lru import LRU
from margin.sequence.linear.lru_claims import (
    demo,
    distance_to_uniform,
    has_lru,
    least_nu,
    mean_squares,
    ring,
    stability,
    steps_of,
    variance,
    white_response,
    white_state,
    worst_state,
)


def of(*layers: LRU) -> Subject:
    model = torch.nn.Sequential(*layers)
    return dataclasses.replace(demo(), model=model, initial=model)


def begun(states: int = 64, seed: int = 0, **options: float) -> LRU:
    torch.manual_seed(seed)
    return LRU(4, states=states, **options)


def edited(name: str, value: object, layer: LRU) -> LRU:
    with torch.no_grad():
        getattr(layer, name).copy_(torch.as_tensor(value))
    return layer


@pytest.mark.parametrize("seed", range(10))
def test_any_parameters_are_stable(seed: int) -> None:
    g = Generator().manual_seed(seed)
    layer = edited("nu", 6 * torch.randn(64, generator=g).clamp_min(-2.6), begun())
    found = stability(of(edited("phi", 100 * torch.randn(64, generator=g), layer)))
    assert found.verdict == Verdict.HOLDS
    assert float(found.value) < 1


@pytest.mark.parametrize(("dtype", "edge"), [(torch.float32, -16.0), (torch.float64, -37.0)])
def test_stability_reaches_to_the_edge_of_rounding_and_no_further(dtype: torch.dtype, edge: float) -> None:
    assert least_nu(dtype) == edge
    found = stability(of(edited("nu", torch.full((64,), edge).to(dtype), begun().to(dtype))))
    assert found.verdict == Verdict.HOLDS
    assert 1 - float(found.value) == pytest.approx(math.exp(edge), abs=torch.finfo(dtype).eps)  # tight
    beyond = begun().to(dtype)
    with torch.no_grad():
        beyond.nu[3] = edge - 0.01
    for ask in (stability, variance):
        found = ask(of(begun().to(dtype), beyond))
        assert found.verdict == Verdict.UNFOUNDED
        assert found.premises[0].evidence == f"below it: 1 (nu = {edge - 0.01:.3f})"


def test_stability_is_of_the_largest_modulus() -> None:
    found = stability(of(edited("nu", [3.0, 1.0, -2.0, 0.0, 2.0], begun(5))))
    assert float(found.value) == pytest.approx(math.exp(-math.exp(-2.0)), rel=1e-6)


class Grown(LRU):
    """A unit that multiplies its state by 1.0001 at most, whatever nu says."""

    @property
    def eigenvalues(self) -> torch.Tensor:
        return 1.0001 * torch.polar(torch.ones_like(self.phi), self.phi)


def test_stability_is_of_what_the_state_is_multiplied_by() -> None:
    found = stability(of(Grown(4, states=5)))
    assert float(found.value) == pytest.approx(1.0001, abs=1e-6)
    assert found.verdict == Verdict.VIOLATED


@pytest.mark.parametrize("seed", range(3))
def test_white_input_leaves_the_promised_variance(seed: int) -> None:
    """4 standard errors on either side: each of 9 layers is missed with probability 6e-5; seeds are fixed."""
    rings = ({"r_min": 0.0, "r_max": 0.5}, {"r_min": 0.9, "r_max": 0.999}, {"r_min": 0.99, "r_max": 0.9999})
    layers = [begun(seed=seed, **options) for options in rings]
    with torch.no_grad():
        layers[0].B.mul_(7.0)  # of any size
    assert variance(of(*layers)).verdict == Verdict.HOLDS


def test_a_memory_longer_than_the_input_has_its_variance_after_so_many_steps() -> None:
    """With moduli of .9998 and more, 2,048 steps leave a third to a half of ||B_i||^2, as is promised."""
    layer = begun(r_min=0.9998, r_max=0.9999)
    assert variance(of(layer)).verdict == Verdict.HOLDS
    ratio, steps = white_response(layer, Generator().manual_seed(0))
    assert steps == 2048
    assert float(ratio.mean()) == pytest.approx(1.0, abs=4 * float(ratio.std()) / math.sqrt(len(ratio)))


def test_few_states_are_given_more_sequences_until_the_interval_is_narrow() -> None:
    ratio, steps = white_response(begun(states=2), Generator().manual_seed(0))
    assert len(ratio) > 1000
    assert steps >= 64
    assert 4 * float(ratio.std()) / math.sqrt(len(ratio)) <= 0.05


class Unnormalized(LRU):
    """The unit without gamma, as the notes have it."""

    def driven(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(
            torch.nn.functional.linear(x, self.B.flatten(0, 1)).unflatten(-1, (-1, 2))
        )


def test_without_the_gain_the_variance_is_not_what_is_promised() -> None:
    torch.manual_seed(0)
    found = variance(of(Unnormalized(4, states=64)))
    assert found.verdicts == [Verdict.VIOLATED, Verdict.VIOLATED]
    assert float(found.value.min()) > 5


class Loud(LRU):
    """A unit some of whose states are driven louder than they are to be."""

    def driven(self, x: torch.Tensor) -> torch.Tensor:
        return super().driven(x) * self.gains


def loud(gains: torch.Tensor) -> LRU:
    torch.manual_seed(0)
    layer = Loud(4, states=64)
    layer.register_buffer("gains", gains)
    return layer


def test_a_drive_a_tenth_louder_is_violated_in_the_mean_and_in_each_state() -> None:
    found = variance(of(loud(torch.full((64,), 1.1))))
    assert found.verdicts == [Verdict.VIOLATED, Verdict.VIOLATED]
    assert found.value.tolist() == pytest.approx([1.21, 1.21], abs=0.06)
    assert float(found.value[1]) == pytest.approx(1.21, rel=1e-6)  # 1.1 in float32


@pytest.mark.parametrize("gain", [1.5, 0.5, 1.0001])
def test_one_wrong_state_of_many_is_seen_though_their_mean_is_right(gain: float) -> None:
    gains = torch.ones(64)
    gains[5] = gain
    found = variance(of(loud(gains)))
    assert found.labels == ("0, mean", "0, worst state")
    assert found.verdicts == [Verdict.HOLDS, Verdict.VIOLATED]
    assert float(found.value[1]) == pytest.approx(gain**2, rel=1e-6)


@pytest.mark.parametrize("dead", [[3], list(range(8))])
def test_a_state_that_hears_nothing_is_to_stay_at_0(dead: list[int]) -> None:
    layer = begun(8)
    with torch.no_grad():
        layer.B[dead] = 0
    assert variance(of(layer)).verdict == Verdict.HOLDS

    class Humming(LRU):
        def driven(self, x: torch.Tensor) -> torch.Tensor:
            return super().driven(x) + 1e-20

    torch.manual_seed(0)
    humming = Humming(4, states=8)
    humming.load_state_dict(layer.state_dict())
    found = variance(of(humming))
    assert found.verdicts == [Verdict.HOLDS, Verdict.VIOLATED]


@pytest.mark.parametrize("seed", range(5))
def test_what_impulses_leave_is_the_mean_square_of_sampled_states(seed: int) -> None:
    """Of each of 8 states to 6 standard errors, where even |z|^2 of a real normal z has probability 1e-5."""
    layer = begun(8, seed, r_min=0.3, r_max=0.9).double()
    steps = steps_of(layer)
    generator = Generator().manual_seed(seed)
    states = torch.cat([white_state(layer, steps, generator) for _ in range(32)]).detach()
    squares = states.abs().square()
    error = squares.std(0) / math.sqrt(len(squares))
    assert bool(((squares.mean(0) - mean_squares(layer, steps)).abs() < 6 * error).all())
    assert worst_state(layer, steps) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("r_min", "r_max"), [(0.0, 1.0), (0.4, 0.9), (0.9, 0.999)])
@pytest.mark.parametrize("seed", range(5))
def test_the_ring_is_told_from_nothing_else(r_min: float, r_max: float, seed: int) -> None:
    """Two distances of 15 beginnings, each beyond its bound with probability <= 1e-4; seeds fixed."""
    assert ring(of(begun(400, seed, r_min=r_min, r_max=r_max, max_phase=1.0))).verdict == Verdict.HOLDS


def test_a_radius_that_is_itself_uniform_is_told_from_the_ring() -> None:
    """nu = log(-log r), r uniform on [0, 1], as the notes print it: its square is 1/4 from uniform."""
    r = torch.rand(400, generator=Generator().manual_seed(0), dtype=torch.float64)
    layer = edited("nu", (-r.log()).log(), begun(400, r_min=0.0, r_max=1.0))
    found = ring(of(layer))
    assert found.verdicts == [Verdict.VIOLATED, Verdict.HOLDS]
    assert float(found.value[0]) == pytest.approx(0.25, abs=0.06)  # Massart, 1e-4: .11 at most, .06 seen


def test_phases_on_half_of_their_range_are_told_from_all_of_it() -> None:
    layer = begun(400)
    found = ring(of(edited("phi", layer.phi.detach() / 2, layer)))
    assert found.verdicts == [Verdict.HOLDS, Verdict.VIOLATED]


def test_the_promise_is_massarts() -> None:
    found = ring(of(begun(100), begun(28)))
    assert found.high is not None
    assert 2 * math.exp(-2 * 128 * float(found.high) ** 2) == pytest.approx(1e-4)


@pytest.mark.parametrize("count", [1, 2, 17])
def test_the_distance_is_that_of_kolmogorov_and_smirnov(count: int) -> None:
    x = torch.rand(count, generator=Generator().manual_seed(count), dtype=torch.float64)
    assert distance_to_uniform(x) == pytest.approx(kstest(x.numpy(), "uniform").statistic, abs=1e-12)
    outside = np.append(x.numpy(), [-0.5, 1.5])
    assert distance_to_uniform(torch.tensor(outside)) == pytest.approx(
        kstest(outside, "uniform").statistic, abs=1e-12
    )


def test_nan_fails_every_question() -> None:
    layer = begun()
    with torch.no_grad():
        layer.nu[0] = math.nan
    for ask in (stability, variance, ring):
        assert ask(of(layer)).verdict in (Verdict.FAILED, Verdict.UNFOUNDED)
    layer = begun()
    with torch.no_grad():
        layer.B[0] = math.nan
    assert variance(of(layer)).verdict == Verdict.FAILED


def test_what_the_questions_need() -> None:
    assert has_lru(demo())
    assert not has_lru(dataclasses.replace(demo(), model=torch.nn.GRU(2, 3)))
    with pytest.raises(ValueError, match="needs the weights that the training began with"):
        ring(dataclasses.replace(demo(), initial=None))
