"""Copies of rows, and what chance gives of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.model_selection import train_test_split
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.evidence.duplicates import (
    _near,
    _nearness,
    _unusual,
    duplicates,
    evenness,
    leak,
    near_duplicates,
    overlap,
    spectra,
    unseen_draws,
)
from margin.theory.prediction.held_out import independent_draws
from margin.theory.prediction.risk import accuracy


def subject_of(x, y, x_train, y_train, *, batch: int = 64, classes: int = 10) -> Subject:
    """Batches of several sizes, and a model that answers something."""

    def batches(inputs, labels):
        inputs, labels = torch.as_tensor(inputs).double(), torch.as_tensor(labels).long()
        return [Batch((a,), b) for a, b in zip(inputs.split(batch), labels.split(batch), strict=True)]

    model = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(x.shape[1:])), classes, dtype=torch.float64))
    return Subject(
        model=model,
        test=batches(x, y),
        train=batches(x_train, y_train),
        task=CLASSES,
        objective=risk(CLASSES),
    )


def split(data, seed: int, held_out: float = 0.25) -> Subject:
    x, y = data
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=held_out, random_state=seed)
    return subject_of(x_test, y_test, x_train, y_train)


def counted(subject: Subject) -> dict[str, float]:
    found = duplicates(subject)
    return dict(zip(found.labels, found.value.tolist(), strict=True))


def test_a_planted_leak_makes_what_rests_on_it_unfounded() -> None:
    subject = leak(31)
    premise = independent_draws(subject)
    assert (premise.status, premise.evidence) == (
        "refuted",
        "31 of 200 held-out rows stand in the training part",
    )
    assert accuracy(subject).verdict is Verdict.UNFOUNDED
    assert counted(subject)["held-out rows that stand in the training part"] == 31
    # The rows by brute force.
    test, train = (part[0].inputs[0] for part in (subject.test, subject.train))
    equal = (test[:, None] == train).all(2)
    found = overlap(subject)
    assert found.leaked.tolist() == equal.any(1).nonzero().flatten().tolist() == list(range(31))
    assert found.twins.tolist() == equal.int().argmax(1)[:31].tolist()
    assert accuracy(leak(0)).verdict is Verdict.MEASURED
    assert accuracy(leak(1)).verdict is Verdict.MEASURED  # .5 % of the rows move nothing


@pytest.mark.parametrize("seed", range(5))
def test_iris_repeats_by_chance(seed: int) -> None:
    """Iris is measured in tenths of a centimeter: one pair of equal flowers (scikit-learn's copy)."""
    subject = split(load_iris(return_X_y=True), seed, held_out=1 / 3)
    assert unseen_draws(subject) == ""


def test_the_two_equal_flowers_of_iris_in_both_parts_are_chance() -> None:
    x, y = load_iris(return_X_y=True)
    order = np.r_[101, np.setdiff1d(np.arange(150), [101])]  # 101 and 142 are equal
    subject = subject_of(x[order[:50]], y[order[:50]], x[order[50:]], y[order[50:]])
    found = overlap(subject)
    assert len(found.leaked) >= 1
    assert found.by_chance
    assert unseen_draws(subject) == ""


def test_digits_have_no_equal_rows_and_a_copied_digit_is_no_chance() -> None:
    """A random split of a file that holds 40 digits twice passes a test of random splits; it leaks."""
    x, y = load_digits(return_X_y=True)
    subject = split((x, y), 0)
    assert counted(subject)["held-out rows that stand in the training part"] == 0
    twice = (np.concatenate((x, x[:200])), np.concatenate((y, y[:200])))
    found = overlap(doubled := split(twice, 1))
    assert not found.by_chance
    assert abs(len(found.leaked) - found.expected) < 4 * found.deviation
    assert "stand in the training part" in unseen_draws(doubled)


@pytest.mark.parametrize("seed", range(5))
def test_three_binary_features_always_repeat(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (400, 3)).astype(float)
    subject = split((x, rng.integers(0, 2, 400)), seed)
    found = overlap(subject)
    assert len(found.leaked) == 100
    assert found.by_chance
    assert unseen_draws(subject) == ""
    assert counted(subject)["rows whose equals have another label"] == 400
    rare = (rng.random((400, 15)) < 0.02).astype(float)  # most rows are 0
    assert unseen_draws(split((rare, rng.integers(0, 2, 400)), seed)) == ""
    sexes = np.eye(2)[rng.integers(0, 2, 400)]  # two features, each of which tells the other
    assert unseen_draws(split((sexes, rng.integers(0, 2, 400)), seed)) == ""
    one_hot = np.eye(5)[rng.integers(0, 5, (400, 3))].reshape(400, 15)  # correlated features
    assert unseen_draws(split((one_hot, rng.integers(0, 2, 400)), seed)) == ""


def test_more_than_a_random_split_gives_is_a_leak_of_coarse_data_too() -> None:
    """Of 12 binary features equal rows are chance; that each of 60 held-out rows has a twin is none."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (600, 12)).astype(float)
    y = rng.integers(0, 2, 600)
    clean = subject_of(x[:60], y[:60], x[60:], y[60:])
    assert unseen_draws(clean) == ""
    found = overlap(subject_of(x[60:120], y[60:120], x[60:], y[60:]))
    assert found.by_chance
    assert found.leak == "60 of 60 held-out rows stand in the training part"


def test_rows_that_repeat_evenly_are_copies_though_of_few_kinds() -> None:
    """A file written four times; mutant: rows of few kinds are chance whatever their multiplicities."""
    rng = np.random.default_rng(0)
    for x in (rng.normal(size=(100, 5)), rng.integers(0, 50, (100, 5)), rng.integers(0, 2, (600, 12))):
        rows = np.repeat(x, 4, 0)[rng.permutation(4 * len(x))].astype(float)
        nobody = np.zeros(len(rows), dtype=int)
        alone = replace(subject_of(rows, nobody, rows[:0], nobody[:0]), train=())
        assert not overlap(alone).by_chance
        assert "repeat another held-out row" in unseen_draws(alone)
        assert "stand in the training part" in unseen_draws(split((rows, nobody), 1))


@pytest.mark.parametrize("seed", range(5))
def test_draws_of_a_law_of_few_kinds_are_chance_without_a_training_part(seed: int) -> None:
    """A grid of integers by draws and as a design, an attribute of 60 levels told by two features."""
    rng = np.random.default_rng(seed)
    design = np.stack(np.meshgrid(*[np.arange(5.0)] * 3), -1).reshape(-1, 3)
    level = rng.integers(0, 60, 600)
    for x in (rng.integers(0, 3, (1000, 2)), np.tile(design, (8, 1)), np.stack((level, level % 7), 1)):
        x, nobody = x.astype(float), np.zeros(len(x), dtype=int)
        alone = replace(subject_of(x, nobody, x[:0], nobody[:0]), train=())
        assert overlap(alone).by_chance
        assert unseen_draws(alone) == ""
        assert counted(split((x, nobody), seed))["held-out rows nearly equal to a training row"] == 0


def test_evenness_is_in_standard_deviations_of_draws_as_likely_each() -> None:
    """By hand: F = 400, 1200, 2400; 1,030 rows; and over 4,000 draws of 700 kinds its law is N(0, 1)."""
    assert evenness(torch.full((100,), 4)) == pytest.approx(1200 / math.sqrt(400 * 108))
    few = torch.cat((torch.full((30,), 2), torch.ones(970, dtype=torch.int64)))
    c = 60 / 1030
    assert evenness(few) == pytest.approx(60 * c / math.sqrt(1030 * (2 * c**3 + 6 * c**2)))
    assert evenness(torch.ones(9, dtype=torch.int64)) == 0
    rng = np.random.default_rng(0)
    counts = rng.poisson(3, (4000, 700))
    seen = np.array([evenness(torch.tensor(row[row > 0])) for row in counts])
    assert abs(seen.mean()) < 0.2
    assert abs(seen.std() - 1) < 0.1
    uneven = rng.poisson(rng.gamma(2, 1.5, (400, 700)))  # no law is more even than that
    assert max(evenness(torch.tensor(row[row > 0])) for row in uneven) < 0


@pytest.mark.parametrize("levels", [3, 12])
def test_on_an_exact_grid_a_row_beside_a_training_row_is_a_copy(levels: int) -> None:
    """No training row lies nearer than others; mutant: without a tail nothing is named."""
    rng = np.random.default_rng(0)
    grid = torch.tensor(np.stack(np.meshgrid(*[np.arange(levels)] * 3), -1).reshape(-1, 3)).double()
    x = grid[rng.integers(0, len(grid), 200)]
    assert len(near_duplicates(x, grid).rows) == 0
    x[:7] += 1e-7 * torch.tensor(rng.normal(size=(7, 3)))
    assert near_duplicates(x, grid).rows.tolist() == list(range(7))
    between = torch.tensor(rng.uniform(0, levels - 1, (200, 3)))  # measured finer, no copies
    assert len(near_duplicates(between, grid).rows) == 0


def test_what_a_random_split_gives_by_simulation() -> None:
    """Against 4,000 random splits of rows with sets of 2, 3 and 7 equal ones; the mean is known to 1 %."""
    sizes = [2] * 30 + [3] * 10 + [7] * 2
    rows = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.concatenate((rows, 1000 + np.arange(1000 - len(rows))))[:, None].astype(float)
    rng = np.random.default_rng(1)
    subject = split((np.hstack((rows, rows)), np.zeros(1000)), 0, held_out=0.3)
    found = overlap(subject)
    counts = []
    for _ in range(4000):
        order = rng.permutation(rows[:, 0])
        counts.append(np.isin(order[:300], order[300:]).sum())
    assert abs(found.expected - np.mean(counts)) < 5 * np.std(counts) / np.sqrt(4000) + 0.05
    assert abs(found.deviation - np.std(counts)) < 0.1 * np.std(counts)


def test_copies_inside_the_held_out_part_make_errors_too_narrow() -> None:
    subject = leak(0)
    batch = subject.test[0]
    twice = batch._replace(inputs=(batch.inputs[0].repeat(2, 1),), targets=batch.targets.repeat(2))
    copied = replace(subject, test=[twice])
    assert unseen_draws(copied) == "200 of 400 held-out rows repeat another held-out row"
    assert unseen_draws(replace(copied, train=())) == unseen_draws(copied)
    assert unseen_draws(replace(copied, groups="patient")) == ""


def test_rows_of_weight_0_and_minus_0_and_other_batches() -> None:
    subject = leak(31)
    (batch,) = subject.test
    x = batch.inputs[0].clone()
    weight = torch.ones(200)
    weight[:10] = 0
    pieces = [Batch((x[i],), batch.targets[i], weight[i]) for i in torch.arange(200).split(33)]
    found = overlap(replace(subject, test=pieces))
    assert found.leaked.tolist() == list(range(10, 31))
    assert found.held_out == 190
    zero = subject_of(np.array([[0.0, 1.0]]), [0], np.array([[-0.0, 1.0]]), [0])
    assert len(overlap(zero).leaked) == 1


def test_the_data_are_looked_at_once() -> None:
    subject = leak(31)
    assert overlap(subject) is overlap(subject)
    assert overlap(replace(subject)) is not overlap(subject)


def test_labels_that_contradict_are_counted() -> None:
    x = np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0], [5.0, 6.0]])
    subject = subject_of(x, [0, 1, 1, 1, 0], x[:1], [0])
    assert counted(subject)["rows whose equals have another label"] == 3


@pytest.mark.parametrize("dim", [1, 2, 8, 40])
def test_near_duplicates_are_those_that_were_planted(dim: int) -> None:
    """Named by chance with probability .002 in data without one: four seeded samples name none."""
    generator = torch.Generator().manual_seed(dim)
    x, train = (torch.randn(n, dim, generator=generator, dtype=torch.float64) for n in (200, 1000))
    assert len(near_duplicates(x, train).rows) == 0
    x[:7] = train[:7] + 1e-8 * torch.randn(7, dim, generator=generator, dtype=torch.float64)
    assert near_duplicates(x, train).rows.tolist() == list(range(7))
    x[7] = train[9]  # equal rows are counted elsewhere
    assert near_duplicates(x, train).rows.tolist() == list(range(7))
    twice = torch.cat((train, train))  # a row that is in training twice has a copy all the same
    assert near_duplicates(x, twice).rows.tolist() == list(range(7))


def test_equal_rows_are_found_in_batches_of_several_widths() -> None:
    """As tokens that were padded batch by batch; a half of one width fits no other."""
    generator = torch.Generator().manual_seed(0)
    test, train = (
        [
            Batch((torch.randint(50, (30, width), generator=generator),), torch.zeros(30).long())
            for width in sizes
        ]
        for sizes in ((8, 13), (13, 8, 11))
    )
    train[1].inputs[0][:5] = test[0].inputs[0][:5]
    found = overlap(
        Subject(model=nn.Linear(1, 2), test=test, train=train, task=CLASSES, objective=risk(CLASSES))
    )
    assert found.leaked.tolist() == list(range(5)) and not found.by_chance


def test_a_table_is_compared_in_the_units_of_its_columns() -> None:
    """Mutant: one scale for all, by which rows that share an identifier of large numbers are copies."""
    rng = np.random.default_rng(0)
    train, test = (rng.normal(size=(n, 4)) * (1e4, 1, 1, 1) for n in (500, 100))
    test[:20, 0] = train[:20, 0]
    assert len(_near(subject_of(test, np.zeros(100), train, np.zeros(500))).rows) == 0
    test[:5] = train[:5] + 1e-6 * rng.normal(size=(5, 4)) * (1e4, 1, 1, 1)
    assert _near(subject_of(test, np.zeros(100), train, np.zeros(500))).rows.tolist() == list(range(5))


def test_on_a_grid_a_row_is_no_copy_at_more_than_half_the_distance_to_the_next() -> None:
    train = torch.arange(500.0).double()[:, None]
    train += 1e-3 * torch.rand(500, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = train[100:107] + torch.tensor([0.4, 0.36, 0.3, 0.2, 0.1, 0.05, 0.01]).double()[:, None]
    assert near_duplicates(x, train).rows.tolist() == [2, 3, 4, 5, 6]  # .7 / .3 is above 2, .64 / .36 below


@pytest.mark.parametrize("slower", ["median", "mean"])
def test_the_tail_falls_at_the_slower_of_both_rates(slower: str) -> None:
    excess = np.array([1.0] * 9 + [2.0]) if slower == "median" else np.array([0.1] * 9 + [2.0])
    usual = np.concatenate((np.linspace(0, 1, 90), 1 + excess))
    tail = np.quantile(usual, 0.9)
    beyond = usual[usual > tail] - tail
    decay = {"median": np.median(beyond) / math.log(2), "mean": beyond.mean()}
    assert decay[slower] == max(decay.values())
    expected = tail + math.log(0.1 * 200 / 0.002) * decay[slower]
    assert _unusual(torch.tensor(usual), 200) == pytest.approx(max(expected, usual.max()))


def test_the_nearness_by_loops() -> None:
    """min(second nearest of x, nearest of its neighbor) over the distance; a training row without itself."""
    generator = torch.Generator().manual_seed(3)
    x, train = (torch.randn(n, 3, generator=generator, dtype=torch.float64).numpy() for n in (20, 30))

    def near(row, others):
        return sorted((float(np.linalg.norm(row - other)), i) for i, other in others)

    def expected(row, own=None):
        (first, b), (second, _), *_ = near(row, [(i, r) for i, r in enumerate(train) if i != own])
        others = [(i, r) for i, r in enumerate(train) if i not in (b, own)]
        return math.log(min(second, near(train[b], others)[0][0]) / first), b

    for rows, own in ((x, None), (train, torch.arange(30))):
        nearness, nearest = _nearness(torch.tensor(rows), torch.tensor(train), own)
        found = [expected(row, None if own is None else i) for i, row in enumerate(rows)]
        assert nearness.tolist() == pytest.approx([t for t, _ in found], abs=1e-9)
        assert nearest.tolist() == [b for _, b in found]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("load", [load_digits, load_iris, load_breast_cancer, load_diabetes])
def test_data_without_copies_have_no_near_duplicates(load, seed: int) -> None:
    """Random splits of sets as they are, digits as tables and as images."""
    x, y = load(return_X_y=True)
    name = "held-out rows nearly equal to a training row"
    assert counted(split((x, (y > y.mean()).astype(int)), seed))[name] == 0
    if load is load_digits:
        assert counted(split((x.reshape(-1, 1, 8, 8), y), seed))[name] == 0


def shifted(images):
    moved = np.zeros_like(images)
    moved[..., 1:] = images[..., :-1]
    return moved


EDITS = {
    "noise": lambda x, rng: x + 0.3 * rng.normal(size=x.shape),  # 2 % of the range
    "shift": lambda x, rng: shifted(x),
    "brightness": lambda x, rng: np.clip(x + 1, 0, 16),
    "contrast": lambda x, rng: 0.7 * x,
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize(("planted", "least"), [(0, 0), (3, 2), (40, 34), (300, 255)])
def test_edited_copies_of_images_are_found(edit: str, planted: int, least: int) -> None:
    """Of the copies seven in eight at least, and nothing else; mutants: without spectra no shift is found."""
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 1, 8, 8)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=1)
    x_test = x_test.copy()
    x_test[:planted] = EDITS[edit](x_train[:planted], np.random.default_rng(0))
    near = _near(subject_of(x_test, y_test, x_train, y_train))
    assert int((near.rows < planted).sum()) >= least
    assert int((near.rows >= planted).sum()) == 0


@pytest.mark.parametrize("edit", ["shift", "contrast"])
def test_copies_are_found_where_training_has_its_own(edit: str) -> None:
    """A set that was made larger by edited copies before its split: a third of training has a twin."""
    x, _ = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    x = x[rng.permutation(len(x))[:1200]].reshape(-1, 1, 8, 8)
    both, origin = np.concatenate((x, EDITS[edit](x[:360], rng))), np.r_[np.arange(1200), np.arange(360)]
    order = rng.permutation(1560)
    test, train = order[:390], order[390:]
    near = _near(subject_of(both[test], 0 * test, both[train], 0 * train))
    copied = np.isin(origin[test], origin[train])
    assert copied.sum() > 100
    assert copied[near.rows.numpy()].all()
    assert len(near.rows) >= 0.8 * copied.sum()


def test_what_shift_and_light_change_is_not_in_a_spectrum() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(5, 3, 6, 7, generator=generator, dtype=torch.float64)
    moved = 0.4 * images.roll((2, -1), (2, 3)) + 3
    torch.testing.assert_close(spectra(moved), spectra(images), rtol=0, atol=1e-12)
    assert not torch.allclose(spectra(images.flip(2)), spectra(images), atol=1e-3)
    blank = torch.full((2, 1, 4, 4), 7.0, dtype=torch.float64)
    assert spectra(blank).tolist() == torch.zeros(2, 16).tolist()


def test_near_duplicates_of_digits() -> None:
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=0)
    clean = subject_of(x_test, y_test, x_train, y_train)
    assert counted(clean)["held-out rows nearly equal to a training row"] == 0
    edited = x_test.copy()
    edited[:20] = x_train[:20]
    edited[:20, 30] += 1  # one pixel by one level of 16
    planted = subject_of(edited, y_test, x_train, y_train)
    assert counted(planted)["held-out rows that stand in the training part"] == 0
    assert counted(planted)["held-out rows nearly equal to a training row"] >= 18
    assert "copies that were edited: 0, 1, 2, 3, 4, 5, 6, 7 and " in duplicates(planted).remarks[-1]


@pytest.mark.parametrize(("features", "chance"), [(1, True), (2, False)])
def test_rows_of_two_features_that_are_written_four_times_are_no_chance(features: int, chance: bool) -> None:
    """Of one feature equal rows are expected, of two real ones not. Mutant: of two they are."""
    x = np.tile(np.random.default_rng(0).normal(size=(50, features)), (4, 1))
    nobody = np.zeros(len(x), dtype=int)
    alone = replace(subject_of(x, nobody, x[:0], nobody[:0]), train=())
    assert overlap(alone).by_chance == chance
