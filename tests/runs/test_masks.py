"""Predicted masks: sizes, order, names and values of the images' own, from tiles and from resized images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import margin
from margin import Training, open_source, train
from margin.cli import main as command

FEW = Training(max_steps=3, batch_size=2, threads=1)
NET = {"width": 2, "levels": 2}


def folder(root: Path, sizes: list[tuple[int, int]], *, colors: bool = False) -> Path:
    """Images whose left half is dark, and masks that say so, by values 7 and 200 or by colors."""
    rng = np.random.default_rng(0)
    for k, size in enumerate(sizes):
        right = np.broadcast_to(np.arange(size[1]) >= size[1] // 2, size)
        pixels = np.clip(60 + 130 * right + 10 * rng.standard_normal(size), 0, 255)
        values = np.array([[255, 0, 0], [0, 0, 255]]) if colors else np.array([7, 200])
        for kind, made in (("images", pixels), ("masks", values[right.astype(int)])):
            (root / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(made.astype(np.uint8)).save(root / kind / f"im{k}.png")
    return root


def test_masks_come_back_in_the_sizes_and_names_of_their_images(tmp_path: Path) -> None:
    """Tiles of 8 x 8, some that overlap. Kills tiles put together in another order, and lost edges."""
    sizes = [(8, 8), (9, 13), (5, 20), (16, 8), (12, 12), (8, 11)]
    cells = folder(tmp_path / "cells", sizes)
    data = open_source(str(cells), {"crop": (8, 8)})
    how = Training(epochs=30, batch_size=2, lr=0.02, threads=1, patience=0)
    run = train("unet", data, {"width": 4, "levels": 2}, how, out=tmp_path / "run")
    frame = margin.predict(run, cells / "images", out=tmp_path / "masks")
    assert [Path(name).name for name in frame["file"]] == [f"im{k}.png" for k in range(6)]
    wrong = total = 0
    for k, size in enumerate(sizes):
        found = np.asarray(Image.open(tmp_path / "masks" / f"im{k}.png"))
        true = np.asarray(Image.open(cells / "masks" / f"im{k}.png"))
        assert found.shape == size
        assert set(np.unique(found)) <= {7, 200}
        assert frame["share of 200"][k] == pytest.approx(float((found == 200).mean()))
        wrong, total = wrong + int((found != true).sum()), total + found.size
    assert wrong < 0.1 * total


def test_a_resized_run_predicts_in_the_images_own_size_and_colors(tmp_path: Path) -> None:
    cells = folder(tmp_path / "cells", [(8, 10)] * 5, colors=True)
    (cells / "classes.txt").write_text("255 0 0 left\n0 0 255 right\n")
    run = train("unet", open_source(str(cells), {"resize": (6, 6)}), NET, FEW, out=tmp_path / "run")
    frame = margin.predict(run, cells / "images" / "im3.png", out=tmp_path / "one")
    assert frame.columns == ["file", "mask", "share of left", "share of right"]
    found = np.asarray(Image.open(tmp_path / "one" / "im3.png"))
    assert found.shape == (8, 10, 3)
    assert {tuple(color) for color in found.reshape(-1, 3).tolist()} <= {(255, 0, 0), (0, 0, 255)}


def test_the_command_writes_a_folder_or_prints_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = folder(tmp_path / "cells", [(8, 8)] * 5)
    run = tmp_path / "run"
    train("unet", open_source(str(cells), {}), NET, FEW, out=run)
    assert command(["predict", str(run), str(cells / "images"), "--out", str(tmp_path / "masks")]) == 0
    assert f"5 masks in {tmp_path / 'masks'}" in capsys.readouterr().out
    assert sorted(file.name for file in (tmp_path / "masks").iterdir()) == [f"im{k}.png" for k in range(5)]
    assert command(["predict", str(run), str(cells)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "file,share of 7,share of 200"
    assert command(["predict", str(run), str(cells), "--out", str(tmp_path / "masks")]) == 2
    assert "exists: choose another --out" in capsys.readouterr().err


def test_a_set_by_name_gives_the_part_that_was_held_out(tmp_path: Path) -> None:
    data = open_source("thin-lines", {"examples": 8, "size": 8})
    frame = margin.predict(train("unet", data, NET, FEW, out=tmp_path / "run"), "thin-lines")
    assert frame["file"].to_list() == ["0", "1"]
