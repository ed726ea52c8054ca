"""Groups of options: their place, defaults and explanations among those of a reader; all are explained."""

import inspect
from dataclasses import dataclass, field

import pytest

from margin.core.catalog import formats, resolve, sources, user_options
from margin.data.options import explanations, option_groups
from margin.data.splits import Split


@dataclass(frozen=True)
class Window:
    """How it is cut.

    Args:
        size: Rows of
            a window.
        step: Rows between two.
        seed: Seed of the draw.
    """

    size: int = 3
    step: int = 1
    seed: int = field(default=0, metadata={"option": "draw_seed"})

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1: got {self.size}")


@option_groups("step")
def read(path: str, *, name: str = "it", window: Window = Window(size=5), last: bool = False) -> tuple:
    """A reader.

    Args:
        path: The file.
        name: What it is called.
        window: The group.
        draw_seed: Seed of this reader's draw.
        last: Whether it comes last.

    Returns:
        What it was given.
    """
    return path, name, window, last


def test_the_options_stand_in_place_of_their_group() -> None:
    parameters = inspect.signature(read).parameters
    assert list(parameters) == ["path", "name", "size", "draw_seed", "last"]
    assert [p.default for p in parameters.values()][1:] == ["it", 5, 0, False]
    assert parameters["size"].annotation is int
    assert user_options(read) == ("name", "size", "draw_seed", "last")


def test_what_is_given_reaches_the_group_and_the_rest_keeps_its_default() -> None:
    assert read("a") == ("a", "it", Window(size=5), False)
    assert read("a", size=2, draw_seed=7) == ("a", "it", Window(size=2, seed=7), False)
    assert read("a", window=Window(size=4, step=2), draw_seed=1)[2] == Window(size=4, step=2, seed=1)
    with pytest.raises(ValueError, match="size must be at least 1: got 0"):
        read("a", size=0)
    with pytest.raises(TypeError):
        read("a", step=2)


def test_an_explanation_is_the_groups_unless_the_reader_has_its_own() -> None:
    told = explanations(read.__doc__ or "")
    assert list(told) == ["path", "name", "size", "draw_seed", "last"]
    assert told["size"] == "Rows of a window."
    assert told["draw_seed"] == "Seed of this reader's draw."
    assert (read.__doc__ or "").endswith("Returns:\n    What it was given.")


def readers() -> dict[str, object]:
    found = {name: resolve(part.target) for name, part in sources().items()}
    return found | {name: resolve(row.reader) for name, row in formats().items() if row.reader}


@pytest.mark.parametrize("name", readers())
def test_every_option_of_a_source_is_explained(name: str) -> None:
    reader = readers()[name]
    assert set(user_options(reader)) <= set(explanations(reader.__doc__))


@pytest.mark.parametrize(
    "name", [name for name, reader in readers().items() if "split_seed" in user_options(reader)]
)
def test_the_shares_of_a_source_are_refused_as_those_of_a_split(name: str) -> None:
    with pytest.raises(ValueError, match=r"^val must be in \[0, 1\): got 1.5$"):
        Split(val=1.5)
    reader = readers()[name]
    if all(p.kind is p.KEYWORD_ONLY for p in inspect.signature(reader).parameters.values()):
        with pytest.raises(ValueError, match=r"val must be in \[0, 1\): got 1.5"):
            reader(val=1.5)
