import math

import pytest

from margin.figures.digits import exact, figures, freed, held


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.978, ".978"),
        (-0.25, "-.25"),
        (0.0, "0"),
        (3.0, "3"),
        (-2.0, "-2"),
        (61706.0, "61706"),
        (0.5, ".5"),
        (1234.56, "1235"),
        (0.99999, "1"),
        (1e-7, "1e-7"),
        (3.2113e-7, "3.211e-7"),
        (2.5e9, "2.5e9"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (-0.0, "0"),
        (math.nan, "nan"),
    ],
)
def test_an_exact_number_has_four_digits_and_no_leading_zero(value, text):
    assert exact(value) == text


@pytest.mark.parametrize(
    ("values", "error", "texts"),
    [
        ([0.9781, 0.9573, 0.9902], 0.0329, [".978", ".957", ".990"]),
        ([12.3456, 11.9, 12.8], 0.9, ["12.35", "11.90", "12.80"]),
        ([12345.0, 12195.0, 12495.0], 300.0, ["12340", "12200", "12500"]),
        ([3.21e-7, 3.13e-7, 3.29e-7], 1.6e-8, ["3.21e-7", "3.13e-7", "3.29e-7"]),
        ([1.0, 0.5, math.inf], math.inf, ["1", ".5", "inf"]),
        ([0.0, -0.2, 0.2], 0.4, ["0", "-.20", ".20"]),
        ([-0.0004, -0.02, 0.02], 0.04, ["-4.0e-4", "-.020", ".020"]),
        ([706.34, 3.3487, 148961.0], 148957.7, ["710", "3.3", "150000"]),
        ([123000.0, 4500.0, 5.9e6], 5.9e6, ["120000", "4500", "5.9e6"]),
        ([0.00123, 0.0011, 0.0013], 0.0002, [".00123", ".00110", ".00130"]),
        ([0.000999, 0.00091, 0.00094], 3e-5, ["9.99e-4", "9.10e-4", "9.40e-4"]),
        ([-0.3, 40.0, 90.0], 900.0, ["-.30", "40", "90"]),
        ([2.1e-5, 1e-9, 0.04], 0.04, ["2.1e-5", "1.0e-9", ".040"]),
    ],
)
def test_a_number_with_an_error_keeps_two_digits_of_it(values, error, texts):
    assert figures(values, error) == texts


def test_an_error_far_below_the_value_shows_seven_digits_at_most():
    assert figures([16.627281234], 1e-12) == ["16.62728"]


@pytest.mark.parametrize(
    ("values", "error", "texts"),
    [
        ([0.123456], 0.0, [".1235"]),  # exact
        ([0.123456, 7.0], math.inf, [".1235", "7"]),  # nothing is known of the error
        ([0.123456], math.nan, [".1235"]),
        ([0.0], 0.0, ["0"]),
        ([0.0], 0.0123, ["0"]),
        ([-0.0], 0.0123, ["0"]),
        ([123.44], 9.94, ["123.4"]),  # 9.9: the tenths count
        ([123.44], 9.96, ["123"]),  # 10: the ones
        ([123.44, 113.48, 133.40], 19.92, ["123", "113", "133"]),
        ([0.5], 0.0996, [".50"]),
        ([-123.44, -133.4], 9.96, ["-123", "-133"]),
        ([1 - 1e-9, 1 - 1.1e-9, 1 - 0.9e-9], 2e-10, ["1-1.0e-9", "1-1.1e-9", "1-9.0e-10"]),
        ([1 - 2.1e-12, 1.0], 1e-15, ["1-2.1e-12", "1.000000"]),
        ([-1 + 2e-12, 0.5], 1e-15, ["-1+2.0e-12", ".5000000"]),
        ([1e8 + 0.3], 0.01, ["1.000000e8"]),
        ([1 - 1e-9], 2e-9, ["1.0000000"]),  # 1 may be the truth
        ([1.0], 1e-12, ["1.000000"]),
        ([2 + 1.5e-8], 1e-9, ["2+1.5e-8"]),
        ([1.23456789e12], 1e9, ["1.2346e12"]),
        ([9.99996e12], 1e9, ["1.00000e13"]),  # not 10.00000e12
        ([9.99996e-7], 1e-9, ["1.0000e-6"]),
        ([-1e300], 1e295, ["-1.000000e300"]),
        ([5e-324], 5e-324, ["5e-324"]),
        ([0.0034, 0.00012], 1.2e-4, [".00340", ".00012"]),  # with just two digits in the row's notation
        ([0.0034, 0.00012], 1.2e-3, [".0034", "1.2e-4"]),  # with one it has its own
        ([1e-9], 3.0, ["1.0e-9"]),  # an error beyond all measure leaves two digits
    ],
)
def test_digits_at_the_edges(values, error, texts):
    assert figures(values, error) == texts


def test_an_exact_number_that_rounds_to_a_power_of_ten_is_written_by_it():
    assert [exact(v) for v in (9.99996e-7, -9.99996e8, 9.9994e-7)] == ["1e-6", "-1e9", "9.999e-7"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a gain of -.19 [-.35, -.037]). Use", ["of", "-.19 [-.35, -.037]).", "Use"]),
        (".7 [.5, .9], -2 [-inf, +3e-5] holds", [".7 [.5, .9],", "-2 [-inf, +3e-5]", "holds"]),
        ("version 2 [the second] and 3 (of 4)", ["second]", "and", "3", "(of"]),
        ("a share in [0, 1) (0.5)", ["in", "[0, 1)", "(0.5)"]),
        ("1.6 (10 % of the range) leaves", ["(10 %", "of"]),
        ("known is 0.5 +- 0.05 and <= .8", ["is", "0.5 +- 0.05", "and", "<= .8"]),
    ],
)
def test_a_number_with_its_error_is_one_word(text, words):
    broken = [freed(word) for word in held(text).split()]
    assert " ".join(words) in " ".join(broken)
    assert set(words) <= set(broken)
    assert freed(held(text)) == text
