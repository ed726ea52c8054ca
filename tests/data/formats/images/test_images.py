"""An image file is read as it is shown, or refused: every mode, orientation and depth."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from margin.data.formats.images.images import header_of, pixels_of

COLORS = np.random.default_rng(0).integers(0, 256, (6, 4, 3), np.uint8)
LEVELS = COLORS[:, :, 0]


def read(path: Path, channels: int = 3, resize: tuple[int, int] | None = None) -> np.ndarray:
    return pixels_of(path.read_bytes(), path, channels=channels, resize=resize).numpy()


def png(path: Path, depth: int, kind: int, rows: list[bytes], *chunks: tuple[bytes, bytes]) -> Path:
    """A PNG written by hand (ISO 15948): depth bits a sample, color type, rows of samples."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 2, len(rows), depth, kind, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    inner = b"".join(chunk(*one) for one in chunks)
    signature = b"\x89PNG\r\n\x1a\n"
    path.write_bytes(signature + chunk(b"IHDR", header) + inner + chunk(b"IDAT", body) + chunk(b"IEND", b""))
    return path


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "ppm", "webp"])
def test_colors_are_kept_channels_first(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    Image.fromarray(COLORS).save(path, **({"lossless": True} if ending == "webp" else {}))
    assert header_of(path).size == (6, 4)
    assert not header_of(path).gray
    assert np.array_equal(read(path), COLORS.transpose(2, 0, 1))


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "pgm", "gif"])
def test_gray_is_one_channel_or_three_equal_ones(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    Image.fromarray(LEVELS).save(path)
    assert header_of(path).gray
    assert np.array_equal(read(path, 1), LEVELS[None])
    assert np.array_equal(read(path, 3), np.stack([LEVELS] * 3))


def test_one_channel_of_a_color_is_its_luma(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(COLORS).save(path)
    luma = COLORS @ np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
    assert np.abs(read(path, 1)[0] - luma).max() < 1


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    palette = (b"PLTE", bytes([9, 8, 7, 0, 0, 255]))
    path = png(tmp_path / "a.png", 8, 3, [bytes([0, 1]), bytes([1, 1])], palette)
    assert not header_of(path).gray
    assert read(path).tolist() == [[[9, 0], [0, 0]], [[8, 0], [0, 0]], [[7, 255], [255, 255]]]


def test_one_bit_is_black_or_white(tmp_path: Path) -> None:
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png", 1).tolist() == [[[255, 0]]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_exif_is_applied(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(COLORS).save(tmp_path / "a.png", exif=exif)
    # TIFF 6.0, page 36: where row 0 and column 0 of what is stored are seen.
    shown = {
        1: COLORS,
        2: COLORS[:, ::-1],
        3: COLORS[::-1, ::-1],
        4: COLORS[::-1],
        5: COLORS.transpose(1, 0, 2),
        6: np.rot90(COLORS, -1),
        7: COLORS.transpose(1, 0, 2)[::-1, ::-1],
        8: np.rot90(COLORS),
    }[orientation]
    assert header_of(tmp_path / "a.png").size == shown.shape[:2]
    assert np.array_equal(read(tmp_path / "a.png"), shown.transpose(2, 0, 1))


def test_opaque_alpha_is_dropped_and_transparency_refused(tmp_path: Path, refused) -> None:
    opaque = np.concatenate([COLORS, np.full((6, 4, 1), 255, np.uint8)], 2)
    Image.fromarray(opaque).save(tmp_path / "a.png")
    assert np.array_equal(read(tmp_path / "a.png"), COLORS.transpose(2, 0, 1))
    Image.fromarray(LEVELS).convert("LA").save(tmp_path / "b.png")
    assert header_of(tmp_path / "b.png").gray
    assert np.array_equal(read(tmp_path / "b.png", 1), LEVELS[None])
    opaque[5, 3, 3] = 254
    Image.fromarray(opaque).save(tmp_path / "c.png")
    palette = ((b"PLTE", bytes([9, 8, 7, 0, 0, 255])), (b"tRNS", bytes([255, 0])))
    png(tmp_path / "d.png", 8, 3, [bytes([0, 1])], *palette)
    for name in ("c.png", "d.png"):
        with refused(f"{name}: an image must have no transparent pixel: lay it on a background"):
            read(tmp_path / name)
    png(tmp_path / "e.png", 8, 3, [bytes([0, 0])], *palette)  # the transparent color is not used
    assert read(tmp_path / "e.png").tolist() == [[[9, 9]], [[8, 8]], [[7, 7]]]


def test_more_than_eight_bits_are_refused(tmp_path: Path, refused) -> None:
    png(tmp_path / "gray.png", 16, 0, [bytes(4)])
    png(tmp_path / "color.png", 16, 2, [bytes(12)])
    (tmp_path / "color.ppm").write_bytes(b"P6 1 1 65535\n" + bytes(6))
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "float.tif")
    Image.fromarray(np.zeros((2, 2), np.uint16)).save(tmp_path / "gray.tif")
    for name in ("gray.png", "color.png", "color.ppm", "float.tif", "gray.tif"):
        with refused(f"{name}: an image must have 8 bits a channel: got more; convert it to 8 bits"):
            read(tmp_path / name)
        with refused("8 bits a channel"):
            header_of(tmp_path / name)


def test_two_bits_are_spread_over_the_range(tmp_path: Path) -> None:
    assert read(png(tmp_path / "a.png", 2, 0, [bytes([0b01100000])]), 1).tolist() == [[[85, 170]]]


def test_ink_and_several_pictures_are_refused(tmp_path: Path, refused) -> None:
    Image.fromarray(COLORS).convert("CMYK").save(tmp_path / "a.jpg")
    with refused("a.jpg: an image must be gray or RGB: got CMYK; convert it to RGB"):
        header_of(tmp_path / "a.jpg")
    frames = [Image.fromarray(COLORS[i:]) for i in (0, 0, 0)]
    frames[1].putpixel((0, 0), (1, 2, 3))
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    with refused("a.tif: an image file must hold one picture: got 3"):
        read(tmp_path / "a.tif")


def test_broken_files_are_named(tmp_path: Path, refused) -> None:
    Image.fromarray(COLORS).save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty.png").write_bytes(b"")
    for name in ("cut.png", "text.png", "empty.png"):
        with refused(f"{tmp_path / name}: the image does not decode: "):
            read(tmp_path / name)
    with refused("no such file", error=FileNotFoundError):
        header_of(tmp_path / "none.png")


def test_resizing_averages_what_it_shrinks(tmp_path: Path) -> None:
    board = np.indices((8, 8)).sum(0) % 2 * 255
    Image.fromarray(board.astype(np.uint8)).save(tmp_path / "a.png")
    small = read(tmp_path / "a.png", 1, (2, 4))
    assert small.shape == (1, 2, 4)
    assert np.abs(small.astype(int) - 127).max() <= 8  # without antialiasing: 0 or 255
    Image.fromarray(COLORS).save(tmp_path / "b.png")
    assert np.array_equal(read(tmp_path / "b.png", 3, (6, 4)), COLORS.transpose(2, 0, 1))
