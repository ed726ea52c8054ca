"""The image files in a folder, by part and class.

``FOLDER/<class>/<image>``; where every folder of FOLDER is called train, test or val, they are parts with
class folders in them, or with images without a class. Hidden files and ``Thumbs.db`` are not looked at.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from margin.data.files.reading import classes_in, regular
from margin.data.formats.images.images import is_image

PARTS = {"train": "train", "test": "test", "val": "val", "valid": "val", "validation": "val"}
"""The names of folders that are parts."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The image files of a folder.

    Args:
        files: Those of each part, sorted; the only part of a folder without parts is "".
        labels: The class of each of them; () where there are no classes.
        classes: The names of the class folders, sorted; () where there are none.
        others: Files that are no images.
    """

    files: Mapping[str, tuple[Path, ...]]
    labels: Mapping[str, tuple[int, ...]]
    classes: tuple[str, ...]
    others: tuple[Path, ...]

    def without(self, broken: Container[Path]) -> "Listing":
        """The listing without some of its files."""
        kept = {
            part: [i for i, f in enumerate(files) if f not in broken] for part, files in self.files.items()
        }
        return replace(
            self,
            files={part: tuple(self.files[part][i] for i in index) for part, index in kept.items()},
            labels={part: tuple(self.labels[part][i] for i in kept[part] if self.classes) for part in kept},
        )


def list_images(folder: Path) -> Listing:
    """The image files of a folder: of its parts and classes, or without classes.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: There are no images, an empty class folder, folders within class folders, or images
            beside class folders.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no such folder: {folder}")
    folders, images, others = _sorted(folder)
    if not folders:
        if not images:
            raise ValueError(
                f"{folder}: a folder must hold images, or class folders FOLDER/<class>/<image>: "
                f"got none among {len(others)} files"
                + f"; texts are read as corpus:{folder}"
                * any(f.suffix == ".txt" for f in others)
            )
        return Listing({"": tuple(images)}, {"": ()}, (), tuple(others))
    if images:
        raise ValueError(f"{images[0]}: an image must lie in a class folder, as the others do")
    named = all(name.name.lower() in PARTS for name in folders)
    if (
        named
        and "train" in (_name(sub).lower() for sub in folders)
        and not any(_sorted(s)[0] for s in folders)
    ):
        return _unlabeled(folders)
    own = named and any(_sorted(sub)[0] for sub in folders)
    places = {PARTS[sub.name.lower()]: _sorted(sub) for sub in folders} if own else {"": (folders, [], [])}
    if own and (len(places) < len(folders) or "train" not in places):
        raise ValueError(
            f"{folder}: parts must be train and test or val: got {', '.join(map(_name, folders))}"
        )
    names = {sub: name for subs, _, _ in places.values() for sub, name in classes_in(subs).items()}
    classes = tuple(sorted(set(names.values())))
    files: dict[str, tuple[Path, ...]] = {}
    labels: dict[str, tuple[int, ...]] = {}
    for part, (subs, loose, rest) in places.items():
        if loose:
            raise ValueError(f"{loose[0]}: an image must lie in a class folder, as the others do")
        members = {sub: _members(sub, others) for sub in subs}
        others += rest
        files[part] = tuple(file for inside in members.values() for file in inside)
        labels[part] = tuple(classes.index(names[sub]) for sub, inside in members.items() for _ in inside)
    return Listing(files, labels, classes, tuple(others))


def _unlabeled(parts: Sequence[Path]) -> Listing:
    """The images of folders that are parts, without classes."""
    others: list[Path] = []
    files = {PARTS[part.name.lower()]: tuple(_members(part, others)) for part in parts}
    return Listing(files, dict.fromkeys(files, ()), (), tuple(others))


def _name(path: Path) -> str:
    return path.name


def _sorted(folder: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """The folders, the images and the other files in a folder, by name."""
    seen = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and p.name != "Thumbs.db"]
    files = [regular(path) for path in seen if not path.is_dir()]
    images = [path for path in files if is_image(path)]
    return [p for p in seen if p.is_dir()], images, [p for p in files if not is_image(p)]


def _members(folder: Path, others: list[Path]) -> list[Path]:
    """The images of a class folder; what is none of them joins ``others``."""
    folders, images, rest = _sorted(folder)
    if folders:
        raise ValueError(f"{folders[0]}: a class folder must hold images alone: got a folder in it")
    if not images and rest and all(path.suffix.lower() in (".txt", ".md") for path in rest):
        raise ValueError(
            f"{folder}: a class folder must hold images: got {len(rest)} texts; a folder of texts in class "
            f"folders is read as texts:{folder.parent}"
        )
    if not images:
        raise ValueError(f"{folder}: a class folder must hold an image: got none; remove it, or fill it")
    others += rest
    return images
