"""Torch's Dataset and DataLoader: read once, checked, held in memory or fetched, always the same batches."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from margin.data.examples import Arrays, InOrder, Shuffled
from margin.data.formats.objects.datasets import read_dataset
from margin.data.formats.objects.survey import Fetched, drawing
from margin.data.open import encode, open_data
from margin.data.preprocess import Moments, fit_standardize
from margin.data.sampling.loading import Prefetched

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1
Y = torch.arange(60) % 3


class Listed(Dataset):
    """Items of a list."""

    def __init__(self, items: list) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> object:
        return self.items[i]


class Noisy(Listed):
    """Items with noise of each of the three global generators on the inputs."""

    def __getitem__(self, i: int) -> object:
        x, y = self.items[i]
        return x + torch.rand(4) + np.random.rand() + random.random(), y


ITEMS = [(x, int(y)) for x, y in zip(X, Y, strict=True)]


@pytest.mark.parametrize("kind", ["tensors", "list", "numpy", "subset", "loader"])
def test_a_dataset_is_read_as_the_same_arrays_are(kind: str) -> None:
    source = {
        "tensors": TensorDataset(X, Y),
        "list": Listed(ITEMS),
        "numpy": Listed([(x.numpy(), y) for x, y in ITEMS]),
        "subset": Subset(TensorDataset(torch.cat([X, X]), torch.cat([Y, Y])), range(60, 120)),
        "loader": DataLoader(TensorDataset(X, Y), batch_size=7, shuffle=True),
    }[kind]
    data, arrays = open_data(source, {}), open_data((X, Y), {})
    for part, expected in arrays.splits.items():
        assert torch.equal(data.splits[part].inputs[0], expected.inputs[0])
        assert torch.equal(data.splits[part].targets, expected.targets)
    assert (data.spec, data.encoding) == (arrays.spec, arrays.encoding)
    assert torch.equal(data.preprocess.mean, arrays.preprocess.mean)
    said = [note for note in data.notes if "collate_fn" in note]
    assert len(said) == (kind == "loader")


def test_in_memory_or_fetched_the_batches_are_the_same() -> None:
    held = open_data(TensorDataset(X, Y), {})
    fetched = open_data(TensorDataset(X, Y), {"memory": "never"})
    assert isinstance(held.splits["train"], Arrays)
    assert isinstance(fetched.splits["train"], Fetched)
    for step in range(12):
        one, other = (Shuffled(data.splits["train"], 8, seed=3)(step) for data in (held, fetched))
        assert torch.equal(one.inputs[0], other.inputs[0])
        assert torch.equal(one.targets, other.targets)
    assert (held.spec, held.encoding, held.fingerprint) == (
        fetched.spec,
        fetched.encoding,
        fetched.fingerprint,
    )
    torch.testing.assert_close(held.preprocess.mean, fetched.preprocess.mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(held.preprocess.std, fetched.preprocess.std, rtol=1e-12, atol=0)
    assert "items are fetched from the dataset when they are taken" in fetched.notes
    other = open_data(TensorDataset(X.clone().index_fill(0, torch.tensor([3]), 0.0), Y), {})
    assert other.fingerprint != held.fingerprint


def test_images_of_bytes_are_images_either_way() -> None:
    pixels = torch.randint(0, 256, (40, 5, 6), generator=torch.Generator().manual_seed(0)).byte()
    sets = [open_data(TensorDataset(pixels, Y[:40]), {"memory": memory}) for memory in ("auto", "never")]
    for data in sets:
        assert data.spec["channels"] == 1
        assert data.spec["image_size"] == (5, 6)
        assert (data.domain.low.item(), data.domain.high.item()) == (0, 255)
        batch = InOrder(data.splits["test"], 4)[0]
        assert batch.inputs[0].shape == (4, 1, 5, 6)
        assert batch.inputs[0].dtype == torch.float32
    assert sets[0].encoding == sets[1].encoding
    torch.testing.assert_close(sets[0].preprocess.std, sets[1].preprocess.std, rtol=1e-12, atol=0)


def test_values_several_inputs_and_float64() -> None:
    values = open_data(TensorDataset(X.double(), X[:, 0]), {"memory": "never"})
    batch = values.splits["test"].take(torch.arange(2), torch.Generator())
    assert (values.encoding["task"], batch.inputs[0].dtype, batch.targets.dtype) == (
        "values",
        torch.float64,
        torch.float64,
    )
    for memory in ("auto", "never"):
        several = open_data(TensorDataset(X, Y + 5, Y), {"memory": memory})
        batch = InOrder(several.splits["test"], 15)[0]
        assert [x.dtype for x in batch.inputs] == [torch.float32, torch.int64]
        assert torch.equal(batch.inputs[1], batch.targets + 5)
    assert open_data(TensorDataset(X, Y), {"task": "values"}).encoding["task"] == "values"


def test_what_items_draw_is_a_function_of_the_step() -> None:
    data = read_dataset(Noisy(ITEMS))
    part = data.splits["train"]
    assert isinstance(part, Fetched)
    assert any("drawn at random" in note and "anew" in note for note in data.notes)
    one, other = Shuffled(part, 8, seed=3), Shuffled(part, 8, seed=3)
    steps = [other(step) for step in (9, 4)]
    torch.manual_seed(77)
    torch.rand(3)
    assert torch.equal(one(4).inputs[0], steps[1].inputs[0])
    assert torch.equal(one(9).inputs[0], steps[0].inputs[0])
    take = [part.take(torch.arange(3), torch.Generator().manual_seed(s)).inputs[0] for s in (0, 1)]
    assert not torch.equal(*take)
    assert data.fingerprint == read_dataset(Noisy(ITEMS)).fingerprint


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), np.random.rand, random.random])
def test_each_global_generator_is_seeded(draw) -> None:
    class One(Listed):
        def __getitem__(self, i: int) -> object:
            return self.items[i][0] + draw(), self.items[i][1]

    part = read_dataset(One(ITEMS)).splits["train"]
    index = torch.arange(3)

    def taken(seed: int) -> torch.Tensor:
        return part.take(index, torch.Generator().manual_seed(seed)).inputs[0]

    first = taken(0)
    draw()
    assert torch.equal(taken(0), first)
    assert not torch.equal(taken(1), first)


def test_the_global_generators_stay_where_they_are() -> None:
    torch.manual_seed(123)
    np.random.seed(123)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    read_dataset(Noisy(ITEMS))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    pythons = random.getstate()  # the checker of shapes draws from it: not across a checked call
    with drawing(5):
        random.random()
    assert random.getstate() == pythons


def test_workers_fetch_the_same_batches() -> None:
    part = open_data(TensorDataset(X, Y), {"memory": "never"}).splits["train"]
    expected, ahead = Shuffled(part, 8, seed=3), Prefetched(Shuffled(part, 8, seed=3), 2, 6)
    for step in range(6):
        assert torch.equal(ahead(step).inputs[0], expected(step).inputs[0])


def test_a_loaders_own_collate_is_used() -> None:
    def padded(items: list) -> tuple[torch.Tensor, torch.Tensor]:
        rows = [torch.nn.functional.pad(x, (0, 6 - len(x))) for x, _ in items]
        return torch.stack(rows), torch.tensor([y for _, y in items])

    ragged = [(x[: 2 + k % 3], y) for k, (x, y) in enumerate(ITEMS)]
    data = open_data(DataLoader(Listed(ragged), collate_fn=padded), {})
    assert data.spec["in_features"] == 6


def test_streamed_moments_are_those_of_all() -> None:
    x = torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(0)) + 1000
    x[:, 1] = 0.1  # sums of it round
    tenths = torch.full((50, 1), 0.1, dtype=torch.float64)
    for inputs, per in ((x, "channel"), (x, "feature"), (tenths, "feature")):
        moments = Moments(per)
        for chunk in inputs.split([1, 30, 19]):
            moments.add(chunk)
        fitted, expected = moments.standardize(), fit_standardize(inputs, per=per)
        torch.testing.assert_close(fitted.mean, expected.mean, rtol=1e-10, atol=0)
        torch.testing.assert_close(fitted.std, expected.std, rtol=1e-8, atol=0)


def test_new_data_are_read_by_the_record(refused) -> None:
    data = open_data(TensorDataset(X, Y), {})
    new = encode(TensorDataset(X[:5], Y[:5]), data.encoding)
    assert torch.equal(new.inputs[0], X[:5])
    assert new.targets.tolist() == [0, 1, 2, 0, 1]
    with refused("labels must be 0 .. 2: got 3 at index 1"):
        encode(TensorDataset(X[:2], torch.tensor([0, 3])), data.encoding)
    with refused("inputs must have shape (N, 4): got (N, 3)"):
        encode(TensorDataset(X[:, :3], Y), data.encoding)
    drawn = encode(Noisy(ITEMS), data.encoding)
    assert isinstance(drawn, Fetched)
    assert InOrder(drawn, 60)[0].targets.tolist() == Y.tolist()


def test_targets_that_change_are_refused(refused) -> None:
    class Moving(Listed):
        later = False

        def __getitem__(self, i: int) -> object:
            return self.items[i][0], 0 if self.later else self.items[i][1]

    source = Moving(ITEMS)
    part = open_data(source, {"memory": "never"}).splits["train"]
    source.later = True
    with refused("targets must be what they were when the dataset was first read", "batch of items '"):
        Shuffled(part, 8, seed=0)(0)


@pytest.mark.parametrize("memory", ["always", "never"])
def test_items_without_a_target_are_read_as_the_array_is(memory: str) -> None:
    array = open_data(X, {})
    for source in (TensorDataset(X), Listed(list(X)), DataLoader(TensorDataset(X), batch_size=7)):
        data = open_data(source, {"memory": memory})
        assert data.encoding == array.encoding
        for part, expected in array.splits.items():
            batch = data.splits[part].take(torch.arange(len(expected)), torch.Generator())
            assert batch.targets is None
            assert torch.equal(batch.inputs[0], expected.inputs[0])
        assert encode(source, array.encoding).targets is None
    left_out = open_data(TensorDataset(X, Y), {"task": "none", "memory": memory})
    assert left_out.encoding == {**array.encoding, "options": {"task": "none"}}
    assert left_out.splits["train"].targets is None
