"""Streams: one pass to learn, then batches in sequence; no way back."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from margin.data.examples import Share, Shuffled
from margin.data.formats.objects.streams import InSequence, ordered
from margin.data.open import encode, open_data
from margin.data.preprocess import fit_standardize

X = torch.randn(11, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(11) % 2


class Lines(IterableDataset):
    """Examples one after another."""

    def __init__(self, *, endless: bool = False, passes: int = 99, noisy: bool = False) -> None:
        self.endless, self.passes, self.noisy = endless, passes, noisy

    def __iter__(self):
        self.passes -= 1
        while True:
            for x, y in zip(X, Y, strict=True):
                yield (x + torch.rand(3) if self.noisy else x), int(y)
                if self.passes < 0:
                    return
            if not self.endless:
                return


def test_a_stream_is_read_in_its_own_order() -> None:
    data = open_data(Lines(), {})
    assert (list(data.splits), data.resumable) == (["train"], False)
    assert data.spec == {"in_features": 3, "num_examples": 11, "num_classes": 2}
    expected = fit_standardize(X, per="feature")
    torch.testing.assert_close(data.preprocess.mean, expected.mean)
    torch.testing.assert_close(data.preprocess.std, expected.std)
    batches = ordered(data.splits["train"], 4, seed=0)
    assert isinstance(batches, InSequence)
    assert (batches.per_epoch, batches.batch_size) == (3, 4)
    for _ in range(2):  # each pass
        pieces = [batches(step + 3 * _) for step in range(3)]
        assert [len(b.targets) for b in pieces] == [4, 4, 3]
        assert torch.equal(torch.cat([b.inputs[0] for b in pieces]), X)
        assert torch.equal(torch.cat([b.targets for b in pieces]), Y)
    assert "in its own order: none is held out, it cannot be resumed" in data.notes[-1]


def test_a_remainder_of_one_joins_the_last_batch() -> None:
    batches = ordered(open_data(Lines(), {}).splits["train"], 5, seed=0)
    assert [len(batches(step).targets) for step in range(4)] == [5, 6, 5, 6]


def test_a_step_that_is_not_the_next_is_refused(refused) -> None:
    part = open_data(Lines(), {}).splits["train"]
    batches = ordered(part, 4, seed=0)
    batches(0)
    with refused("a stream gives step after step", "got step 2 where 1 is the next"):
        batches(2)
    with refused("a stream trains in one process: got 2"):
        ordered(part, 4, seed=0, share=Share(0, 2))
    with refused("every pass must give 11 examples: got 1 in a later one"):
        shorter = ordered(open_data(Lines(passes=1), {}).splits["train"], 4, seed=0)
        for step in range(9):
            shorter(step)


def test_an_endless_stream_says_how_many_examples_a_pass_has(refused) -> None:
    data = open_data(DataLoader(Lines(endless=True), batch_size=3), {"examples": 7})
    assert data.spec["num_examples"] == 7
    assert any("collate_fn" in note for note in data.notes)
    batches = ordered(data.splits["train"], 7, seed=0)
    assert torch.equal(batches(0).inputs[0], X[:7])
    with refused("examples must be at least 1: got 0"):
        open_data(Lines(), {"examples": 0})


def test_what_a_stream_draws_is_a_function_of_the_seed() -> None:
    before = torch.get_rng_state()
    part = open_data(Lines(noisy=True), {}).splits["train"]
    one, other, third = (ordered(part, 4, seed=seed) for seed in (0, 0, 1))
    for step in range(4):
        x = one(step).inputs[0]
        assert torch.equal(x, other(step).inputs[0])
        assert not torch.equal(x, third(step).inputs[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_examples_by_index_are_shuffled_as_before() -> None:
    part = open_data((X, Y), {"test": 0.2, "val": 0.0}).splits["train"]
    assert torch.equal(ordered(part, 4, seed=2)(1).inputs[0], Shuffled(part, 4, seed=2)(1).inputs[0])


@pytest.mark.parametrize("source", [Lines(), DataLoader(Lines())])
def test_new_data_are_no_stream(source, refused) -> None:
    with refused("new data must be had by index: got a stream"):
        encode(source, open_data((X, Y), {"test": 0.2, "val": 0.0}).encoding)


def test_a_stream_without_targets_gives_inputs_alone() -> None:
    class Bare(IterableDataset):
        def __iter__(self):
            yield from X

    for source in (Bare(), DataLoader(Bare(), batch_size=4)):
        data = open_data(source, {})
        assert (data.encoding["task"], data.spec) == ("none", {"in_features": 3, "num_examples": 11})
        batches = ordered(data.splits["train"], 4, seed=0)
        pieces = [batches(step) for step in range(3)]
        assert torch.equal(torch.cat([b.inputs[0] for b in pieces]), X)
        assert [b.targets for b in pieces] == [None, None, None]
