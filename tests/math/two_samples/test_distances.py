"""Two samples are checked before they are compared; blocks of distances are those of the whole."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import margin.math.two_samples.distances as two_samples
from margin.math.two_samples.distances import blocks, distances, pair, rows


def test_images_become_rows_in_float64() -> None:
    found = rows(torch.ones(3, 1, 2, 5), "the sample")
    assert found.shape == (3, 10)
    assert found.dtype == torch.float64


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(3), r"a must have a row for each example, \(n, dim\): got \(3,\)"),
        (torch.ones(0, 2), "a must have at least 1 rows: got 0"),
        (torch.tensor([[1.0, torch.nan], [2.0, 3.0]]), "a must be finite: got 1 of 2 rows that are not"),
        (torch.tensor([[1.0, torch.inf]]), "a must be finite"),
    ],
)
def test_what_is_no_sample_is_refused(x: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows(x, "a")


def test_rows_of_two_widths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rows of one width: got the first sample 4, the second sample 3"):
        pair(torch.ones(2, 2, 2), torch.ones(5, 3))


@pytest.mark.parametrize("held", [1, 7, 8, 1000])
def test_blocks_are_the_whole(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_samples, "CHUNK", held)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 3, generator=generator).double() for n in (9, 4))
    parts = list(blocks(x, y))
    assert [row for part, _ in parts for row in range(part.start, part.stop)] == list(range(9))
    np.testing.assert_allclose(torch.cat([d for _, d in parts]), cdist(x, y), atol=1e-12)


def test_equal_rows_far_from_the_origin_are_at_distance_0() -> None:
    x = 1e6 + torch.randn(40, 6, generator=torch.Generator().manual_seed(0)).double()
    assert float(distances(x, x).diagonal().max()) == 0


@pytest.mark.parametrize("dim", [16, 17, 300])
def test_distances_of_near_and_equal_rows_are_exact(dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = 1e3 + torch.randn(30, dim, generator=generator).double()
    y = torch.cat((x[:5], x[5:10] + 1e-7, x[10:15] + 1e-3, torch.randn(9, dim, generator=generator).double()))
    np.testing.assert_allclose(distances(x, y), cdist(x, y), rtol=1e-5)
    assert float(distances(x, x).diagonal().max()) == 0
    assert (distances(x, y)[:5, :5].diagonal() == 0).all()


def test_long_rows_that_cancel_are_taken_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_samples, "CHUNK", 100)
    x = torch.randn(7, 30, generator=torch.Generator().manual_seed(0)).double()
    y = torch.cat((x, x + 1e-9))
    np.testing.assert_allclose(distances(x, y), cdist(x, y), rtol=1e-5)
