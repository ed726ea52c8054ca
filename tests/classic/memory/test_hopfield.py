"""Hopfield's network: energy and its sign, Hebbian weights, fixed points, storing, options, bad inputs."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import margin
from margin.classic.memory.associative_memory import WithoutTargets, nearest, store, wrong_units
from margin.classic.memory.hopfield import Hopfield, check_weights, correlations, energy, hebbian, local_field
from margin.classic.memory.hopfield_dynamics import asynchronous, trajectory
from margin.core.tasks import MEMORY
from margin.core.types import Batch
from margin.data.examples import Arrays, Data
from margin.data.preprocess import Standardize
from margin.engine.loop import State
from margin.nn.preprocessed import Preprocessed


def patterns_of(seed: int, rows: int, n: int) -> torch.Tensor:
    return 2.0 * torch.randint(0, 2, (rows, n), generator=torch.Generator().manual_seed(seed)) - 1


def random_weights(seed: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    W = torch.randn(n, n, generator=generator, dtype=torch.float64).triu(1)
    return W + W.T, torch.randn(n, generator=generator, dtype=torch.float64)


# the energy


@pytest.mark.parametrize("seed", range(4))
def test_a_flip_changes_the_energy_by_twice_the_field(seed: int) -> None:
    W, b = random_weights(seed, 9)
    x = patterns_of(seed, 20, 9).double()
    for i in range(9):
        up, down = x.clone(), x.clone()
        up[:, i], down[:, i] = 1, -1
        difference = energy(W, b, up) - energy(W, b, down)
        assert (difference + 2 * local_field(W, b, x)[:, i]).abs().max() <= 1e-12


def test_the_energy_is_the_double_sum() -> None:
    W, b = random_weights(0, 6)
    x = patterns_of(1, 1, 6).double()[0]
    pairs = sum(float(W[i, j] * x[i] * x[j]) for i, j in product(range(6), repeat=2) if i < j)
    assert energy(W, b, x).item() == pytest.approx(-pairs + float(b @ x), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_form_printed_without_the_minus_sign_rises(seed: int) -> None:
    # the quadratic term with a plus sign, as some notes print it, goes up under the rule it should explain
    W, _ = random_weights(seed, 20)
    b = torch.zeros(20, dtype=torch.float64)
    path = trajectory(W, b, patterns_of(seed, 1, 20).double()[0])
    assert (energy(W, b, path).diff() <= 1e-12).all()
    printed = ((path @ W) * path).sum(1) / 2
    assert (printed.diff() >= -1e-12).all()
    assert printed[-1] > printed[0]


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        ((1, 2), 5.0, r"w\[1, 2\] = 5, but w\[2, 1\] = 0"),
        ((3, 3), 0.25, r"w\[3, 3\] = 0.25, not 0"),
        ((0, 2), math.inf, r"w\[0, 2\] = inf is not finite"),
        ((0, 1), math.nan, r"w\[0, 1\] = nan is not finite"),
    ],
)
def test_weights_without_an_energy_are_refused(entry: tuple[int, int], value: float, said: str) -> None:
    W = torch.zeros(4, 4)
    W[entry] = value
    with pytest.raises(ValueError, match=rf"must be finite, symmetric and of zero diagonal: got {said}"):
        energy(W, torch.zeros(4), torch.ones(1, 4))
    with pytest.raises(ValueError, match="zero diagonal"):
        check_weights(W)


# Hebbian storage


def test_the_weights_are_the_mean_coincidences() -> None:
    P = patterns_of(2, 5, 7)
    W = hebbian(P)
    for i, j in product(range(7), repeat=2):
        expected = sum(float(P[t, i] * P[t, j]) for t in range(5)) / 7 if i != j else 0.0
        assert W[i, j].item() == pytest.approx(expected, abs=1e-7)
    assert (W.diagonal() == 0).all()


def test_the_form_printed_with_one_identity_keeps_a_diagonal() -> None:
    P = patterns_of(3, 5, 7)
    printed = (P.T @ P - torch.eye(7)) / 7
    assert torch.allclose(printed.diagonal(), torch.full((7,), 4 / 7))
    right = (P.T @ P - 5 * torch.eye(7)) / 7
    assert torch.allclose(hebbian(P), right)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_one_stored_pattern_and_its_negative_are_the_only_fixed_points(n: int) -> None:
    x = patterns_of(n, 1, n)
    every = torch.tensor(list(product((-1.0, 1.0), repeat=n)))
    found = asynchronous(correlations(x), torch.zeros(n), every)
    fixed = every[found.sweeps == 0]
    assert {tuple(row) for row in fixed.tolist()} == {tuple(x[0].tolist()), tuple((-x[0]).tolist())}


@pytest.mark.parametrize("value", [0.0, 0.5, 2.0, math.inf, math.nan])
def test_patterns_of_anything_else_are_refused(value: float) -> None:
    P = patterns_of(4, 3, 4)
    P[1, 2] = value
    with pytest.raises(ValueError, match=r"must consist of -1 and \+1: got .* \(row 1, unit 2\)"):
        hebbian(P)


# the entry


def memory_of(patterns: torch.Tensor, **options: object) -> Hopfield:
    memory = Hopfield(patterns.shape[1], len(patterns), num_patterns=len(patterns), inputs="signs", **options)
    memory.store(patterns, lambda x: x)
    return memory


def test_storing_one_by_one_is_storing_at_once() -> None:
    P = patterns_of(5, 8, 30)
    whole = memory_of(P, bias="hebbian")
    slow = Hopfield(30, 8, num_patterns=8, inputs="signs", bias="hebbian")
    for pattern in P:
        slow.store(pattern[None], lambda x: x)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(slow.state_dict()[name], tensor), name
    assert torch.allclose(whole.weight, hebbian(P))


def test_the_hebbian_bias_is_the_weight_from_a_unit_that_is_always_on() -> None:
    P = patterns_of(6, 5, 12)
    W = hebbian(torch.cat((P, torch.ones(5, 1)), 1)) * 13 / 12
    memory = memory_of(P, bias="hebbian")
    assert torch.allclose(memory.thresholds, -W[:12, 12])
    assert torch.equal(memory_of(P).thresholds, torch.zeros(12))


def test_noisy_patterns_are_recalled() -> None:
    P = patterns_of(7, 5, 100)
    flipped = torch.rand(P.shape, generator=torch.Generator().manual_seed(0)) < 0.1
    assert torch.equal(memory_of(P)(torch.where(flipped, -P, P)), P)


@pytest.mark.parametrize("update", ["asynchronous", "synchronous"])
@pytest.mark.parametrize("order", ["fixed", "random"])
def test_a_probe_does_not_depend_on_the_others(update: str, order: str) -> None:
    P = patterns_of(8, 20, 40)
    memory = memory_of(P, update=update, order=order)
    probes = patterns_of(9, 30, 40)
    alone = torch.cat([memory(probe[None]) for probe in probes])
    assert torch.equal(memory(probes), alone)


def test_float64_and_images_of_more_axes() -> None:
    memory = memory_of(patterns_of(10, 2, 16)).double()
    found = memory(torch.randn(3, 1, 4, 4, dtype=torch.float64))
    assert found.dtype == torch.float64
    assert found.shape == (3, 16)


def test_beyond_float32_the_fields_are_computed_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memory_of(patterns_of(11, 4, 20))
    seen = []
    monkeypatch.setattr("margin.classic.memory.hopfield.EXACT", 80)
    monkeypatch.setattr(
        "margin.classic.memory.hopfield.asynchronous",
        lambda C, d, x, **more: seen.append((C.dtype, x.dtype)) or asynchronous(C, d, x, **more),
    )
    memory(patterns_of(12, 2, 20))
    assert seen == [(torch.float64, torch.float64)]


def test_the_number_of_patterns_is_that_of_which_all_are_recalled() -> None:
    assert len(Hopfield(784, 51000).patterns) == int(784 / (4 * math.log(784))) == 29
    assert len(Hopfield(784, 10).patterns) == 10
    assert len(Hopfield(1, 10).patterns) == 1
    assert len(Hopfield(50, 400, num_patterns=300).patterns) == 300


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="num_patterns must be at least 1: got 0"):
        Hopfield(4, 4, num_patterns=0)
    with pytest.raises(ValueError, match="max_sweeps must be at least 1: got 0"):
        Hopfield(4, 4, max_sweeps=0)
    with pytest.raises(ValueError, match="threshold must be finite: got nan"):
        Hopfield(4, 4, threshold=math.nan)
    with pytest.raises(ValueError, match=r"inputs of signs have no threshold: got threshold=0\.5"):
        Hopfield(4, 4, inputs="signs", threshold=0.5)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinite_inputs_are_refused(value: float) -> None:
    x = torch.zeros(3, 4)
    x[2, 1] = value
    with pytest.raises(ValueError, match=r"inputs must be finite: got .* \(row 2, unit 1\)"):
        Hopfield(4, 4)(x)


def test_a_probe_that_does_not_rest_is_refused() -> None:
    memory = memory_of(patterns_of(13, 30, 40), max_sweeps=1)
    with pytest.raises(ValueError, match=r"within max_sweeps=1 sweeps: \d+ of 20 do not; raise max_sweeps"):
        memory(patterns_of(14, 20, 40))


# storing by training


def trained_step(memory: Hopfield, x: torch.Tensor, preprocess: torch.nn.Module, **more: object) -> dict:
    return store()(State({"model": Preprocessed(preprocess, memory)}), Batch((x,), **more))


def test_the_threshold_is_in_the_users_units() -> None:
    x = torch.tensor([[0.0, 10.0, 127.0, 128.0], [255.0, 200.0, 0.0, 50.0]])
    scale = Standardize(torch.tensor(33.0), torch.tensor(78.0))
    memory = Hopfield(4, 2, num_patterns=2, threshold=128.0)
    trained_step(memory, x, scale)
    assert memory.patterns.tolist() == [[-1, -1, -1, 1], [1, 1, -1, -1]]
    mean = Hopfield(4, 2, num_patterns=2)
    trained_step(mean, x, scale)
    assert mean.patterns.tolist() == [[-1, -1, 1, 1], [1, 1, -1, 1]]  # at the mean, 33


def test_signs_are_checked_in_the_users_units() -> None:
    P = patterns_of(15, 4, 6)
    scale = Standardize(torch.full((6,), 0.25), torch.full((6,), 0.5))
    memory = Hopfield(6, 4, num_patterns=4, inputs="signs")
    trained_step(memory, P, scale)
    assert torch.equal(memory.patterns, P)
    P[3, 5] = 0.5
    with pytest.raises(ValueError, match=r"got 0.5 \(row 3, unit 5\)"):
        trained_step(Hopfield(6, 4, num_patterns=4, inputs="signs"), P, scale)


def test_storing_stops_when_there_is_no_room() -> None:
    memory = Hopfield(6, 10, num_patterns=3, inputs="signs")
    P = patterns_of(16, 2, 6)
    identity = torch.nn.Identity()
    assert trained_step(memory, P, identity) == {"stored": 2.0, "room": 1.0}
    assert trained_step(memory, -P, identity) == {"stored": 3.0, "room": 0.0}
    assert trained_step(memory, -P, identity) == {"stored": 3.0, "room": 0.0}
    assert torch.equal(memory.correlation, correlations(torch.cat((P, -P[:1]))))


def test_an_example_of_weight_zero_is_not_stored() -> None:
    memory = Hopfield(6, 10, num_patterns=4, inputs="signs")
    P = patterns_of(17, 3, 6)
    trained_step(memory, P, torch.nn.Identity(), weight=torch.tensor([1.0, 0.0, 1.0]))
    assert torch.equal(memory.patterns[:2], P[[0, 2]])
    assert int(memory.stored) == 2


def random_data(rows: int, n: int) -> Data:
    P = patterns_of(18, rows, n)
    return Data(
        name="signs",
        splits={"train": Arrays((P,), torch.zeros(rows)), "val": Arrays((P[:10],), torch.zeros(10))},
        spec={"in_features": n, "num_examples": rows},
    )


def test_it_trains_saves_loads_and_predicts(tmp_path: Path) -> None:
    data = random_data(12, 200)
    options = {"num_patterns": 12, "inputs": "signs"}
    run = margin.train("classic/hopfield", data, options, out=tmp_path / "run")
    memory = margin.load(run)
    P = data.splits["train"].inputs[0]
    assert torch.equal(memory(P), P)
    assert run.metrics["val_loss"] == 0.0
    assert run.reason == "room <= 0"
    columns = MEMORY.predict(memory(P))
    assert list(columns)[:2] == ["unit 1", "unit 2"]
    assert torch.equal(columns["unit 200"], P[:, 199])


def test_it_trains_beyond_capacity(tmp_path: Path) -> None:
    data = random_data(100, 60)
    options = {"num_patterns": 100, "inputs": "signs"}
    run = margin.train("classic/hopfield", data, options, out=tmp_path / "run")
    assert int(margin.load(run).model.stored) == 100
    assert run.metrics["val_loss"] > 0.1


def test_storing_in_batches_is_storing_at_once(tmp_path: Path) -> None:
    data = random_data(20, 50)
    options = {"num_patterns": 20, "inputs": "signs"}
    runs = [
        margin.train(
            "classic/hopfield",
            data,
            options,
            margin.Training(batch_size=size),
            out=tmp_path / str(size),
        )
        for size in (3, "all")
    ]
    one, other = (margin.load(run).model.correlation for run in runs)
    assert torch.equal(one, other)


# the loss of a probe


def test_the_nearest_pattern_is_found_by_brute_force() -> None:
    generator = torch.Generator().manual_seed(0)
    patterns, x = torch.randn(9, 4, generator=generator), torch.randn(30, 4, generator=generator)
    distances = np.linalg.norm(x.numpy()[:, None] - patterns.numpy()[None], axis=2)
    assert torch.equal(nearest(patterns, x), patterns[torch.from_numpy(distances.argmin(1))])


def test_the_loss_is_the_share_of_wrong_units() -> None:
    P = patterns_of(19, 2, 10)
    memory = memory_of(P)
    memory.correlation.zero_()  # every field is 0: every unit goes up
    batch = Batch((P,))
    wrong = wrong_units(memory, batch, torch.Generator())
    assert torch.equal(wrong, (P == -1).float().mean(1))
    with pytest.raises(ValueError, match="must hold a pattern before it is judged"):
        wrong_units(Hopfield(10, 2), batch, torch.Generator())


def test_targets_are_left_out() -> None:
    cut = WithoutTargets(Arrays((torch.ones(4, 2),), torch.arange(4)))
    batch = cut.take(torch.tensor([1, 2]), torch.Generator())
    assert batch.targets is None
    assert len(batch.inputs[0]) == 2
    assert len(cut) == 4


def test_overlap_and_exact_recall() -> None:
    states = torch.tensor([[1.0, 1, -1, -1], [1, 1, 1, 1]])
    patterns = torch.tensor([[1.0, 1, -1, -1], [1, 1, 1, -1]])
    assert MEMORY.scores["overlap"](states, patterns).tolist() == [1, 0.5]
    assert MEMORY.scores["exact_recall"](states, patterns).tolist() == [1, 0]
