"""Batches read ahead are those of the step, for any number of workers, from any step on."""

from multiprocessing import active_children

import pytest
import torch

from margin.core.types import Batch
from margin.data.examples import Arrays, Shuffled
from margin.data.sampling.loading import Prefetched


def shuffled(count: int = 30) -> Shuffled:
    return Shuffled(Arrays((torch.arange(count)[:, None].float(),), torch.arange(count)), 4, seed=5)


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.inputs[0], other.inputs[0]) and torch.equal(one.targets, other.targets)


# six seconds: processes that read ahead are started anew for each number of them
@pytest.mark.parametrize(
    ("workers", "steps"),
    [
        (0, (0, 1, 2, 11, 12, 5, 19, 20)),  # 11 and 5 are jumps; 20 is past the end
        (1, (0, 1, 2, 11, 12, 5, 19, 20)),
        (2, (0, 1, 2, 17, 18, 19, 20)),  # after a jump workers are started anew
    ],
)
def test_any_number_of_workers_gives_the_same_batches(workers: int, steps: tuple[int, ...]) -> None:
    expected, ahead = shuffled(), Prefetched(shuffled(), workers, 20)
    assert (ahead.per_epoch, ahead.batch_size) == (expected.per_epoch, expected.batch_size) == (8, 4)
    before = torch.get_rng_state()
    for step in steps:
        assert same(ahead(step), expected(step))
    assert torch.equal(torch.get_rng_state(), before)
    assert not active_children()  # the last step stopped the workers


def test_workers_read_on_and_stop_when_closed() -> None:
    ahead = Prefetched(shuffled(), 1, 100)
    ahead(3)
    first = active_children()
    ahead(4)
    assert len(first) == 1
    assert active_children() == first
    ahead.close()
    assert not active_children()
    assert same(ahead(4), shuffled()(4))
    ahead.close()


def test_a_mistake_in_a_worker_is_told_in_its_own_words(tmp_path) -> None:
    from margin.data.formats.images.folders import Pictures
    from margin.data.formats.images.images import Fit

    (tmp_path / "a.png").write_text("no image")
    pictures = Pictures((tmp_path / "a.png",) * 3, torch.zeros(3).long(), 1, Fit(), (5, 7))
    with pytest.raises(ValueError) as caught:
        Prefetched(Shuffled(pictures, 2, seed=0), 1, 9)(0)
    assert str(caught.value).startswith(f"{tmp_path}/a.png: the image does not decode")
    assert "\n" not in str(caught.value)
    assert not active_children()


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="workers must be at least 0: got -1"):
        Prefetched(shuffled(), -1, 5)


def test_examples_that_cannot_be_sent_are_refused() -> None:
    class Local(Arrays):
        pass

    with pytest.raises(ValueError, match=r"must be picklable .* set workers to 0"):
        Prefetched(Shuffled(Local((torch.zeros(4, 1),)), 2, seed=0), 1, 9)(0)
    assert not active_children()
