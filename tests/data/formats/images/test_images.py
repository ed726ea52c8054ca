"""An image file is read as it is shown, or refused: every mode, orientation and depth."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from margin.data.formats.images.images import Fit, header_of, pixels_of

COLORS = np.random.default_rng(0).integers(0, 256, (6, 4, 3), np.uint8)
LEVELS = COLORS[:, :, 0]
AS_IT_IS = Fit()


def read(path: Path, channels: int = 3, fit: Fit = AS_IT_IS) -> np.ndarray:
    return pixels_of(path.read_bytes(), path, channels=channels, fit=fit).numpy()


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
    assert ("turned" in header_of(tmp_path / "a.png").odd) == (orientation > 1)
    assert np.array_equal(read(tmp_path / "a.png"), shown.transpose(2, 0, 1))


def test_transparent_pixels_are_laid_on_white(tmp_path: Path) -> None:
    alpha = np.full((6, 4, 1), 255, np.uint8)
    Image.fromarray(np.concatenate([COLORS, alpha], 2)).save(tmp_path / "a.png")
    assert np.array_equal(read(tmp_path / "a.png"), COLORS.transpose(2, 0, 1))  # opaque
    alpha[5, 3], alpha[0, 0] = 0, 100
    Image.fromarray(np.concatenate([COLORS, alpha], 2)).save(tmp_path / "b.png")
    over = COLORS * (alpha / 255) + 255 * (1 - alpha / 255)  # Porter and Duff 1984, Section 4.3: over
    assert np.abs(read(tmp_path / "b.png") - over.transpose(2, 0, 1)).max() <= 0.51
    assert read(tmp_path / "b.png")[:, 5, 3].tolist() == [255] * 3
    assert header_of(tmp_path / "b.png").odd == ("transparent",)
    Image.fromarray(LEVELS).convert("LA").save(tmp_path / "c.png")
    assert header_of(tmp_path / "c.png").gray
    assert np.array_equal(read(tmp_path / "c.png", 1), LEVELS[None])
    palette = ((b"PLTE", bytes([9, 8, 7, 0, 0, 255])), (b"tRNS", bytes([255, 0])))
    png(tmp_path / "d.png", 8, 3, [bytes([0, 1])], *palette)
    assert read(tmp_path / "d.png").tolist() == [[[9, 255]], [[8, 255]], [[7, 255]]]


def test_of_sixteen_bits_the_high_byte_is_read(tmp_path: Path) -> None:
    deep = np.array([[0, 255, 256], [0x1234, 0xFF00, 0xFFFF]], np.uint16)
    gray = [row.astype(">u2").tobytes() for row in deep[:, :2]]
    png(tmp_path / "gray.png", 16, 0, gray)
    Image.fromarray(deep[:, :2]).save(tmp_path / "gray.tif")
    (tmp_path / "gray.pgm").write_bytes(b"P5 2 2 65535\n" + b"".join(gray))
    for name in ("gray.png", "gray.tif", "gray.pgm"):
        assert header_of(tmp_path / name).odd == ("deep",)
        assert header_of(tmp_path / name).gray
        assert read(tmp_path / name, 1).tolist() == [[[0, 0], [0x12, 0xFF]]]
    png(tmp_path / "color.png", 16, 2, [deep[1].astype(">u2").tobytes() * 2])
    assert header_of(tmp_path / "color.png").odd == ("deep",)
    assert read(tmp_path / "color.png")[:, 0, 0].tolist() == [0x12, 0xFF, 0xFF]
    png(tmp_path / "hole.png", 16, 0, gray, (b"tRNS", bytes([0x12, 0x34])))  # one level is transparent
    assert set(header_of(tmp_path / "hole.png").odd) == {"deep", "transparent"}
    assert read(tmp_path / "hole.png", 1).tolist() == [[[0, 0], [255, 0xFF]]]


def test_levels_without_one_meaning_are_refused(tmp_path: Path, refused) -> None:
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "float.tif")
    Image.fromarray(np.zeros((2, 2), np.int32)).save(tmp_path / "long.tif")
    for name in ("float.tif", "long.tif"):
        with refused(f"{name}: an image must have 8 or 16 bits a channel: got more; convert it to 8 bits"):
            read(tmp_path / name)
        with refused("16 bits a channel"):
            header_of(tmp_path / name)
    Image.fromarray(COLORS).convert("LAB").save(tmp_path / "lab.tif")
    with refused("lab.tif: an image must be gray, RGB or CMYK: got LAB; convert it to RGB"):
        read(tmp_path / "lab.tif")


def test_two_bits_are_spread_over_the_range(tmp_path: Path) -> None:
    assert read(png(tmp_path / "a.png", 2, 0, [bytes([0b01100000])]), 1).tolist() == [[[85, 170]]]


def test_ink_becomes_light(tmp_path: Path) -> None:
    ink = np.array([[[0, 0, 0, 0], [255, 0, 0, 0]], [[0, 255, 255, 0], [0, 0, 0, 255]]], np.uint8)
    Image.fromarray(ink, "CMYK").save(tmp_path / "a.tif")
    assert header_of(tmp_path / "a.tif").odd == ("ink",)
    white, cyan, red, black = (255, 255, 255), (0, 255, 255), (255, 0, 0), (0, 0, 0)
    expected = np.array([[white, cyan], [red, black]])
    assert np.array_equal(read(tmp_path / "a.tif").transpose(1, 2, 0), expected)
    # of an Adobe JPEG the levels are inverted, which its reader undoes
    Image.fromarray(np.full((16, 16, 4), (255, 0, 0, 0), np.uint8), "CMYK").save(
        tmp_path / "b.jpg", quality=100
    )
    assert np.abs(read(tmp_path / "b.jpg").mean((1, 2)) - cyan).max() < 3


@pytest.mark.parametrize("ending", ["gif", "png", "webp"])
def test_of_an_animation_the_first_frame_is_read(ending: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (5, 4), color) for color in ("red", "lime", "blue")]
    kind = {"lossless": True} if ending == "webp" else {}
    frames[0].save(tmp_path / f"a.{ending}", save_all=True, append_images=frames[1:], duration=90, **kind)
    assert header_of(tmp_path / f"a.{ending}").odd == ("animated",)
    assert read(tmp_path / f"a.{ending}")[:, 0, 0].tolist() == [255, 0, 0]


def test_several_pages_are_refused(tmp_path: Path, refused) -> None:
    pages = [Image.fromarray(COLORS)] * 3
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
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
    small = read(tmp_path / "a.png", 1, Fit((2, 4)))
    assert small.shape == (1, 2, 4)
    assert np.abs(small.astype(int) - 127).max() <= 8  # without antialiasing: 0 or 255
    Image.fromarray(COLORS).save(tmp_path / "b.png")
    assert np.array_equal(read(tmp_path / "b.png", 3, Fit((6, 4))), COLORS.transpose(2, 0, 1))


# sizes


@pytest.mark.parametrize(
    ("size", "resize", "scaled"),
    [
        ((100, 200), 50, (50, 100)),
        ((200, 100), 50, (100, 50)),
        ((100, 151), 50, (50, 75)),  # 75.5 rounded down, as torchvision's Resize
        ((3, 400), 2, (2, 266)),
        ((7, 7), 7, (7, 7)),
        ((100, 200), (8, 9), (8, 9)),
        ((100, 200), None, (100, 200)),
    ],
)
def test_a_shorter_side_keeps_proportions(size, resize, scaled) -> None:
    assert Fit(resize).scaled(size) == scaled
    assert Fit(resize).size_of(size, Path("x")) == scaled


def test_a_crop_keeps_the_middle(tmp_path: Path, refused) -> None:
    Image.fromarray(COLORS).save(tmp_path / "a.png")
    assert np.array_equal(
        read(tmp_path / "a.png", fit=Fit(None, (2, 2))), COLORS[2:4, 1:3].transpose(2, 0, 1)
    )
    # an odd rest: torchvision's CenterCrop begins at round(1.5) = 2 of the rows and round(0.5) = 0
    assert np.array_equal(read(tmp_path / "a.png", fit=Fit(None, (3, 3))), COLORS[2:5, :3].transpose(2, 0, 1))
    both = read(tmp_path / "a.png", fit=Fit(8, (8, 4)))
    resized = np.asarray(Image.fromarray(COLORS).resize((8, 12), Image.Resampling.BILINEAR))
    assert np.array_equal(both, resized[2:10, 2:6].transpose(2, 0, 1))
    message = "a.png: an image must be at least as large as the crop of 7 x 2 pixels: got 6 x 4 pixels"
    with refused(message, "set --data.resize 7 (shorter side)"):
        read(tmp_path / "a.png", fit=Fit(None, (7, 2)))
    with refused("crop must be a height and a width of at least 1: got (0, 2)"):
        Fit(None, (0, 2))
