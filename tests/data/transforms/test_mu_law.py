"""The mu-law against its formula by hand, its inverse, and the error bound where it is attained."""

import math

import pytest
import torch

from margin.data.transforms.mu_law import compress, expand, mu_law_decode, mu_law_encode, mu_law_error


def test_the_formula_at_points_known_by_hand():
    # mu = 3: ln(1 + 3 * 1/3) / ln 4 = 1/2
    x = torch.tensor([-1.0, -1 / 3, 0.0, 1 / 3, 1.0], dtype=torch.float64)
    assert compress(x, levels=4).tolist() == pytest.approx([-1.0, -0.5, 0.0, 0.5, 1.0])


def test_expand_undoes_compress():
    x = torch.linspace(-1, 1, 1001, dtype=torch.float64)
    assert (expand(compress(x)) - x).abs().max() < 1e-15


def test_codes_are_the_numbers_of_the_levels():
    assert mu_law_encode(torch.tensor([-1.0, 1.0])).tolist() == [0, 255]
    assert mu_law_encode(mu_law_decode(torch.arange(256))).tolist() == list(range(256))
    assert mu_law_encode(torch.tensor([0.0])).tolist() == [128]  # the even code has no level at 0


def test_a_code_is_the_nearest_level():
    # mu = 3, levels at -1, -1/3, 1/3, 1 of the compressed scale: the edge between the last two is 2/3
    edge = ((1 + 3) ** (2 / 3) - 1) / 3
    x = torch.tensor([edge - 1e-9, edge + 1e-9], dtype=torch.float64)
    assert mu_law_encode(x, levels=4).tolist() == [2, 3]


@pytest.mark.parametrize("levels", [2, 4, 16, 255, 256])
def test_the_round_trip_stays_within_the_bound(levels):
    x = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    back = mu_law_decode(mu_law_encode(x, levels), levels).double()
    assert bool(((back - x).abs() <= mu_law_error(x, levels) * (1 + 1e-6) + 1e-7).all())


def test_the_bound_is_attained_at_silence():
    zero = torch.zeros(1, dtype=torch.float64)
    level = (256 ** (1 / 255) - 1) / 255  # the code 128 is 1 / 255 above 0 on the compressed scale
    assert mu_law_decode(mu_law_encode(zero)).item() == pytest.approx(level, rel=1e-6)
    assert mu_law_error(zero).item() == pytest.approx(level, rel=1e-12)


def test_the_bound_is_nearly_attained_just_inside_a_decision_edge():
    edge = math.expm1(math.log(256) * (1 - 1 / 255)) / 255  # half a step below the level 1
    x = torch.tensor([edge - 1e-9], dtype=torch.float64)
    error = (mu_law_decode(mu_law_encode(x)).double() - x).abs()
    assert (error / mu_law_error(x)).item() == pytest.approx(1 / 256 ** (1 / 255), rel=1e-3)


@pytest.mark.parametrize("bad", [1.0001, -1.5, math.nan, math.inf])
def test_amplitudes_outside_are_refused(bad):
    with pytest.raises(ValueError, match=r"amplitudes must be in \[-1, 1\]: got"):
        mu_law_encode(torch.tensor([0.0, bad]))


def test_wrong_codes_and_levels_are_refused():
    for bad in (-1, 256):
        with pytest.raises(ValueError, match=r"codes must be in 0 .. 255"):
            mu_law_decode(torch.tensor([bad]))
    with pytest.raises(ValueError, match="at least 2"):
        compress(torch.zeros(1), levels=1)
