"""A figure for any page: its colors are the page's, or its own where the page has none."""

import re

from margin.figures.svg import ALONE, SERIES, VARIABLES, Picture, drawing


def test_a_picture_has_a_text_alternative_identifiers_and_colors_of_its_own():
    with drawing() as (figure, axes):
        axes.plot([0, 1], [0, 1], color=SERIES[0])
        axes.fill_between([0, 1], [0, 1], [1, 2], color=SERIES[1])
        one, other = Picture(figure, "a < b"), Picture(figure, "the same")
    html = one._repr_html_()
    assert repr(one) == "Picture: a < b"
    assert 'role="img" aria-label="a &lt; b"' in html
    assert "var(--series-1, #4f86b8)" in html
    assert not re.findall(r"var\(--[\w-]+\)", html)
    names = [set(re.findall(r' id="([^"]+)"', shown._repr_html_())) for shown in (one, other)]
    assert names[0]
    assert not names[0] & names[1]


def test_every_color_of_a_page_has_one_to_fall_back_on():
    assert set(VARIABLES.values()) <= set(ALONE)
