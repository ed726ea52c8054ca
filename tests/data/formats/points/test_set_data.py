"""Sets as data: sizes, the unit ball, elements that are drawn, classes of elements."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, nn

from margin.data.examples import Arrays
from margin.data.formats.points.sets import RawSets, Sets, in_ball, new_sets, prepared, set_data, sets_of
from margin.data.preprocess import Standardize
from margin.data.splits import Split


def sets(*sizes: int, width: int = 3, seed: int = 0) -> Sets:
    generator = Generator().manual_seed(seed)
    return sets_of([torch.randn(size, width, generator=generator) * 4 + 1 for size in sizes])


def raw(**changes: Any) -> RawSets:
    given: dict[str, Any] = {"name": "many", "sets": sets(*[5] * 20), "targets": torch.arange(20) % 2}
    return RawSets(**{**given, **changes})


def test_sets_of_one_size_are_a_plain_array() -> None:
    data = set_data(raw(), Split())
    train = data.splits["train"]
    assert isinstance(train, Arrays)
    assert train.inputs[0].shape == (12, 5, 3)
    assert dict(data.spec) == {"element_size": 3, "num_examples": 12, "points": 5, "num_classes": 2}
    assert data.encoding["shape"] == [5, 3]
    assert data.encoding["format"] == "points"
    layer = data.preprocess
    assert isinstance(layer, Standardize)
    assert torch.allclose(layer.mean, train.inputs[0].double().mean((0, 1)))
    assert torch.allclose(layer.std, train.inputs[0].double().flatten(0, 1).std(0, correction=0))


def test_sets_of_several_sizes_are_padded_when_taken() -> None:
    data = set_data(raw(sets=sets(*[k % 4 for k in range(20)])), Split())
    train = data.splits["train"]
    assert isinstance(train, Sets)
    assert dict(data.spec) == {"element_size": 3, "num_examples": 12, "most_points": 3, "num_classes": 2}
    assert data.encoding["shape"] == [0, 3]
    assert dict(data.encoding["about"])["empty"] == "5 sets have no elements"
    x, mask = train.take(torch.arange(12), Generator()).inputs
    assert x.shape[:2] == mask.shape
    assert torch.allclose(data.preprocess.mean, train.elements.double().mean(0))


def test_a_ball_holds_each_set() -> None:
    balls = in_ball(sets(4, 1, 0, 7, width=4))
    first = 0
    for size in balls.sizes.tolist():
        place = balls.elements[first : first + size, :3]
        if size > 1:
            assert torch.allclose(place.mean(0), torch.zeros(3), atol=1e-6)
            assert place.norm(dim=1).max() == pytest.approx(1, abs=1e-6)
        if size == 1:
            assert place.tolist() == [[0, 0, 0]]
        first += size
    assert torch.equal(balls.elements[:, 3], sets(4, 1, 0, 7, width=4).elements[:, 3])  # no coordinate
    flat = in_ball(sets_of([torch.ones(3, 2)]))
    assert flat.elements.tolist() == [[0, 0]] * 3


def test_a_ball_does_not_depend_on_place_and_size() -> None:
    one = sets(6)
    moved = Sets(one.elements * 7 + 100, one.sizes)
    assert torch.allclose(in_ball(one).elements, in_ball(moved).elements, atol=1e-5)


def test_a_cloud_in_its_ball_is_not_standardized() -> None:
    assert isinstance(set_data(raw(scale="sphere"), Split()).preprocess, nn.Identity)


@pytest.mark.parametrize("points", [1, 3, 5, 6, 12])
def test_elements_are_drawn_without_replacement_as_far_as_there_are_some(points: int) -> None:
    whole = Sets(torch.arange(10.0)[:, None], torch.tensor([5, 5]))
    drawn = prepared(whole, "none", points, 0, "many")
    assert drawn.sizes.tolist() == [points] * 2
    for k, one in enumerate(drawn.elements.flatten().split(points)):
        counts = one.long().bincount(minlength=10)[5 * k : 5 * k + 5]
        assert counts.sum() == points
        assert int((counts > 0).sum()) == min(points, 5)
    again = prepared(whole, "none", points, 0, "many")
    assert torch.equal(again.elements, drawn.elements)


def test_elements_are_drawn_by_the_seed(refused: Callable) -> None:
    whole = Sets(torch.arange(200.0)[:, None], torch.tensor([100, 100]))
    one, two = (prepared(whole, "none", 20, seed, "many").elements for seed in (0, 1))
    assert not torch.equal(one, two)
    assert not torch.equal(one[:20], one[20:] - 100)  # two sets do not draw alike
    with refused("points must be at least 1: got 0"):
        prepared(whole, "none", 0, 0, "many")
    with refused("many: a set without elements has none to draw: set 1"):
        prepared(sets(2, 0), "none", 3, 0, "many")


def test_classes_of_elements(refused: Callable) -> None:
    labels = torch.arange(100).reshape(20, 5) % 3
    data = set_data(raw(task="point_classes", targets=labels, classes=("a", "b", "c")), Split())
    assert data.splits["train"].targets.shape == (12, 5)
    assert data.spec["num_classes"] == 3
    assert data.encoding["task"] == "point_classes"
    assert set_data(raw(task="point_classes", targets=labels), Split()).encoding["classes"] == ["0", "1", "2"]
    with refused("whole numbers (sets, elements)", "got (20, 4)"):
        set_data(raw(task="point_classes", targets=labels[:, :4]), Split())
    with refused("element 2 of set 0 is not"):
        set_data(raw(task="point_classes", targets=labels, classes=("a", "b")), Split())
    with refused("cannot be drawn anew"):
        set_data(raw(task="point_classes", targets=labels, points=3), Split())


def test_official_parts_and_values() -> None:
    official = {"train": torch.arange(12), "test": torch.tensor([15, 14])}
    data = set_data(raw(official=official, targets=torch.arange(20) / 2), Split(val=0.25))
    assert data.splits["test"].targets.tolist() == [7.5, 7.0]
    assert len(data.splits["train"]) == 9
    assert data.encoding["split"]["official"]
    assert "num_classes" not in data.spec


def test_a_domain_is_a_box_around_sets_of_one_size(refused: Callable) -> None:
    data = set_data(raw(domain=(-100, 100)), Split())
    assert data.domain.low == -100
    with refused("domain must contain every input"):
        set_data(raw(domain=(0, 100)), Split())
    with refused("a domain needs sets of one size: got 2 to 3 elements"):
        set_data(raw(domain=(-100, 100), sets=sets(*[2 + k % 2 for k in range(20)])), Split())


def test_new_sets_fit_the_record(refused: Callable) -> None:
    record = dict(set_data(raw(), Split()).encoding)
    new = new_sets(sets(5, 5, seed=3), [1, 0], record, "new")
    assert new.inputs[0].shape == (2, 5, 3)
    assert new.targets.tolist() == [1, 0]
    assert new_sets(sets(5), None, record, "new").targets is None
    with refused("new: the run's elements have 3 numbers: got 2"):
        new_sets(sets(5, width=2), None, record, "new")
    with refused("new: the run's sets have 5 elements: set 1 has 4"):
        new_sets(sets(5, 4), None, record, "new")
    ragged = dict(set_data(raw(sets=sets(*[k % 4 for k in range(20)])), Split()).encoding)
    assert isinstance(new_sets(sets(9), None, ragged, "new"), Sets)
    drawn = dict(set_data(raw(points=3, scale="sphere"), Split()).encoding)
    assert new_sets(sets(9, 2), None, drawn, "new").inputs[0].shape == (2, 3, 3)
