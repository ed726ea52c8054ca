"""What a user hands over and cannot be used: each input beside the exact line that it gets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler

from margin.auditing.subject.named_inputs import Naming
from margin.auditing.subject.user_data import read
from margin.data.open import open_data

X, Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
ITEMS: list[Any] = [(x, int(y)) for x, y in zip(X, Y, strict=True)]
NAN = torch.tensor([0, float("nan"), 1])


class Listed(Dataset):
    def __init__(self, items: list) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> object:
        return self.items[i]


class NoLength(Dataset):
    def __getitem__(self, i: int) -> object:
        return ITEMS[i]


class Stream(IterableDataset):
    def __init__(self, items: list) -> None:
        self.items = items

    def __iter__(self):
        return iter(self.items)


def at(place: int, item: object) -> Listed:
    """The good items with another one at a place."""
    return Listed([*ITEMS[:place], item, *ITEMS[place + 1 :]])


def refusal(function: Callable, *arguments: object) -> str:
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        function(*arguments)
    return str(caught.value)


DATASETS = {
    "no length": (NoLength(), "a map-style dataset must have a length: NoLength has no __len__"),
    "empty": (Listed([]), "there must be at least one example: got none"),
    "empty subset": (Subset(Listed(ITEMS), []), "there must be at least one example: got none"),
    "dict": (at(0, {"x": X[0], "y": 1}), "item 0: an item must be x, (x, y) or (x1, x2, ..., y): got dict"),
    "one without a target": (
        at(3, (X[0],)),
        "item 3: all items must have a target, or none: item 0 is another",
    ),
    "one input more": (
        at(3, (X[0], X[0], 1)),
        "item 3: items must have as many inputs each: got 2, item 0 has 1",
    ),
    "another shape": (
        at(7, (torch.zeros(4), 1)),
        "item 7: inputs must have one shape: got (4,), item 0 has (3,)",
    ),
    "text target": (
        at(5, (X[0], "cat")),
        "item 5: the target must be a number, an array or a tensor: got text",
    ),
    "text input": (at(2, ("abc", 1)), "item 2: input 1 must be a number, an array or a tensor: got text"),
    "picture": (
        at(1, (Image.new("L", (3, 3)), 1)),
        "item 1: items must become tensors: default_collate: batch must contain tensors, numpy arrays, "
        "numbers, dicts or lists; found <class 'PIL.Image.Image'>",
    ),
    "target (1,)": (
        at(4, (X[0], torch.tensor([1]))),
        "item 4: the target must be one number: got shape (1,); yield y.item()",
    ),
    "target (2,)": (
        at(4, (X[0], torch.tensor([1, 2]))),
        "item 4: the target must be one number: got shape (2,)",
    ),
    "NaN": (at(5, (NAN, 1)), "item 5: every input must be finite: got nan"),
    "infinity": (at(0, (NAN.nan_to_num(torch.inf), 1)), "item 0: every input must be finite: got inf"),
    "NaN target": (at(6, (X[0], torch.nan)), "item 6: every target must be finite: got nan"),
    "a gap in labels": (
        Listed([(x, 2 * y) for x, y in ITEMS]),
        "labels must be 0 .. K-1, each of them present: got none of 1, largest 2; renumber them, or set "
        "--task values",
    ),
    "a negative label": (
        at(9, (X[0], -1)),
        "labels must be 0 .. K-1: got -1 at index 9 (1 in all); renumber them, or set --task values",
    ),
    "one class": (
        Listed([(x, 0) for x, _ in ITEMS]),
        "there must be at least two classes: all 20 examples are of one class",
    ),
    "numbers": (
        Listed([(1.0, 0), (2.0, 1)] * 5),
        "inputs must have shape (N, d), (N, H, W) or (N, C, H, W): got (10,); pass x[:, None]",
    ),
    "channels last": (
        Listed([(torch.zeros(8, 9, 3), y) for _, y in ITEMS]),
        "images must have their channels first, (N, C, H, W): got (20, 8, 9, 3); "
        "pass x.transpose(0, 3, 1, 2)",
    ),
    "unbatched loader": (
        DataLoader(Listed(ITEMS), batch_size=None),
        "a DataLoader must form batches: got batch_size=None",
    ),
    "a sampler that chooses": (
        DataLoader(Listed(ITEMS), sampler=SubsetRandomSampler([1, 2, 3])),
        "a sampler must not choose examples: SubsetRandomSampler has 3 of 20; "
        "give a DataLoader of a torch.utils.data.Subset",
    ),
}


@pytest.mark.parametrize("case", DATASETS)
def test_a_dataset_that_cannot_be_used(case: str) -> None:
    source, message = DATASETS[case]
    comma = ", " if message.startswith("item ") else ": "
    assert refusal(open_data, source, {}) == f"dataset{comma}{message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 1.0}, "test must be in [0, 1): got 1.0"),
        ({"domain": (1.0, 0.0), "memory": "never"}, "domain must have low < high: got 1.0, 0.0"),
        (
            {"tast": 0.1},
            "the reader of Listed has no option 'tast'; it has: task, test, name, domain, memory, val, "
            "split_seed, labels, pixels, random_seed",
        ),
    ],
)
def test_an_option_that_cannot_be_used(options: dict, message: str) -> None:
    assert refusal(open_data, Listed(ITEMS), options) == message


@pytest.mark.parametrize("memory", ["auto", "never"])
def test_labels_and_domains_of_a_dataset(memory: str) -> None:
    halves = Listed([(x, y + 0.5) for x, y in ITEMS])
    said = refusal(open_data, halves, {"task": "classes", "memory": memory})
    assert said == "dataset: labels must be whole numbers: got 0.5 at index 0"
    said = refusal(open_data, Listed(ITEMS), {"domain": (0.0, 1.0), "memory": memory})
    assert said.startswith("dataset: domain must contain every input: got [0, 1], the")
    few = Listed([*ITEMS, (X[0], 2)])
    said = refusal(open_data, few, {"memory": memory})
    assert said.startswith("dataset: every part (train, val, test) needs an example of every class")


STREAMS = {
    "empty": ([], ": there must be at least one example: got none"),
    "dict": ([{"a": 1}], ", item 0: an item must be x, (x, y) or (x1, x2, ..., y): got dict"),
    "another shape": (
        [*ITEMS[:3], (torch.zeros(4), 1)],
        ", item 3: inputs must have one shape: got (4,), item 0 has (3,)",
    ),
    "NaN": ([*ITEMS[:3], (NAN, 1)], ", item 3: every input must be finite: got nan"),
    "one class": (
        [(x, 0) for x, _ in ITEMS],
        ": there must be at least two classes: all 20 examples are of one class",
    ),
}


@pytest.mark.parametrize("case", STREAMS)
@pytest.mark.parametrize("loaded", [False, True])
def test_a_stream_that_cannot_be_used(case: str, loaded: bool) -> None:
    items, message = STREAMS[case]
    source = DataLoader(Stream(items)) if loaded else Stream(items)
    assert refusal(open_data, source, {}) == f"stream{message}"


def test_a_stream_has_no_test_part() -> None:
    said = refusal(open_data, Stream(ITEMS), {"test": 0.2})
    assert said == "the reader of Stream has no option 'test'; it has: task, name, domain, examples"


GIVEN = "the held-out data"
PAIR = f"{GIVEN} must be a pair (x, y), batches, Examples or Data"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            pd.DataFrame({"a": [1.0], "y": [0]}),
            f"{PAIR}: got DataFrame; of a module's data the columns that it takes must be said: "
            "(frame[inputs], frame[target])",
        ),
        (
            Listed([{"a": X[0]}]),
            f"{GIVEN}, batch 0: the target must have one of the names "
            "labels, label, targets, target, y: got a",
        ),
        (Listed([]), f"{GIVEN} must have at least one example: they are empty"),
        (Stream([]), f"{GIVEN} must have at least one example: they are empty"),
        (
            DataLoader(at(1, (torch.zeros(4), 1)), batch_size=4),
            f"{GIVEN}, batch 0: items must become tensors: stack expects each tensor to be equal size, "
            "but got [3] at entry 0 and [4] at entry 1",
        ),
        (5, f"{PAIR}: got int"),
        ([X, Y, Y], f"{PAIR}: got list of 3"),
    ],
)
def test_what_a_module_cannot_be_audited_on(source: object, message: str) -> None:
    assert refusal(read, source, (), GIVEN, Naming(nn.Linear(3, 2))) == message


FRAMES = {
    "two targets": (
        pl.DataFrame({"class": [1, 2, 3], "y": [1, 2, 3]}),
        "table: name the target column, or set --task none: class, y may be it",
    ),
    "no rows": (pl.DataFrame({"a": [], "y": []}), "table: the table has no rows"),
    "two columns of one name": (
        pd.DataFrame([[1, 2, 0], [3, 4, 1]], columns=["a", "a", "y"]),
        "table: every column must have a name of its own: 'a' names two",
    ),
    "a missing number": (
        pd.DataFrame({"a": [1.0, None] * 9, "y": ["p", "q"] * 9}),
        "table, row 2, column 'a': the cell is empty (9 such cells in the column); fill it in, set "
        "--missing drop, mean, median, mode or indicate, or set --ignore 'a'",
    ),
    "whole numbers": (
        pl.DataFrame({"a": [1.0, 2.0] * 9, "y": [0, 1] * 9}),
        "table, target 'y': whole numbers may be classes or values: set --task classes or --task values",
    ),
    "a column of lists": (
        pl.DataFrame({"a": [[1, 2]] * 9, "y": ["p"] * 9}),
        "table, column 'a': cells must be numbers, text, booleans or dates: got List(Int64); "
        "set --ignore 'a', or --data.tokens 'a' if they are tokens",
    ),
}


@pytest.mark.parametrize("case", FRAMES)
def test_a_frame_that_cannot_be_used(case: str) -> None:
    frame, message = FRAMES[case]
    assert refusal(open_data, frame, {}) == message


# folders of images: the change of a good folder, and what it gets; {} is the folder's path


def picture(path: Path, height: int = 4) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((height, 5), np.uint8)).save(path)


def emptied(folder: Path) -> None:
    for path in folder.rglob("*.png"):
        path.unlink()


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no such folder": (lambda f: f.rename(f.with_name("other")), "no such file: {}"),
    "text": (
        lambda f: (f / "b/3.png").write_text("x"),
        "{}/b/3.png: the image does not decode: not an image that Pillow can read; "
        "save it anew, or leave it out; --data.skip-unreadable true leaves out every such file",
    ),
    "sizes": (
        lambda f: picture(f / "b/7.png", 6),
        "{}/b/7.png: images must have one size: got 6 x 5 pixels, {}/a/0.png has 4 x 5 pixels; "
        "set --data.resize 4,5 (height,width), or --data.resize 4 --data.crop 4,4 (shorter side, then the "
        "middle)",
    ),
    "an empty class": (
        lambda f: (f / "c").mkdir(),
        "{}/c: a class folder must hold an image: got none; remove it, or fill it",
    ),
    "one class": (
        lambda f: (f / "b").rename(f.with_name("elsewhere")),
        "{}: there must be at least two class folders: got 'a' alone; images "
        "without labels lie in the folder itself",
    ),
    "nothing": (
        lambda f: emptied(f) or [(f / name).rmdir() for name in "ab"],
        "{}: a folder must hold images, or class folders FOLDER/<class>/<image>: got none among 0 files",
    ),
    "texts": (
        lambda f: emptied(f) or [(f / name).rmdir() for name in "ab"] + [(f / "x.txt").write_text("a")],
        "{}: a folder must hold images, or class folders FOLDER/<class>/<image>: got none among 1 files; "
        "texts are read as corpus:{}",
    ),
    "an image beside the classes": (
        lambda f: picture(f / "x.png"),
        "{}/x.png: an image must lie in a class folder, as the others do",
    ),
    "a folder in a class": (
        lambda f: picture(f / "a/deep/x.png"),
        "{}/a/deep: a class folder must hold images alone: got a folder in it",
    ),
    "parts without train": (
        lambda f: (
            [(f / new / name).mkdir(parents=True) for new in ("val", "test") for name in "ab"]
            and [(f / name).rename(f / "test" / name) for name in "ab"]
        ),
        "{}: parts must be train and test or val: got test, val",
    ),
    "a class without training images": (
        lambda f: (
            [(f / part).mkdir() for part in ("train", "test")]
            and [(f / name).rename(f / "train" / name) for name in "ab"]
            and [picture(f / "test" / name / "0.png") for name in "abc"]
        ),
        "{}: every class must have training images: got none of 'c'",
    ),
    "a class too small": (
        lambda f: picture(f / "c/0.png"),
        "{}: every part (train, val, test) needs an example of every class: class 'c' has 1 example, too few "
        "for val=0.15, test=0.25; set --data.val 0, or give more examples",
    ),
    "many pictures in a file": (
        lambda f: Image.new("L", (5, 4)).save(
            f / "a/0.tif", save_all=True, append_images=[Image.new("L", (5, 4), 9)]
        ),
        "{}/a/0.tif: an image file must hold one picture: got 2; "
        "--data.skip-unreadable true leaves out every such file",
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_that_cannot_be_used(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for name in "ab":
        for i in range(8):
            picture(folder / name / f"{i}.png")
    assert len(open_data(folder, {}).splits["train"]) == 10
    change, message = FOLDERS[case]
    change(folder)
    assert refusal(open_data, folder, {}) == message.replace("{}", str(folder))
