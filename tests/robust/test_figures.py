"""Figures of robustness: what is drawn is what the finding holds."""

from dataclasses import replace

import torch

from margin.figures.svg import drawing
from margin.robust.figures import radii
from margin.robust.smoothing_claims import demo, l2_smoothing


def test_the_histogram_of_radii_counts_every_example_once():
    finding = l2_smoothing(demo())
    with drawing() as (_, axes):
        said = radii(axes, finding)
        *bars, none = axes.patches
        counts = [bar.get_height() for bar in bars]
        assert sum(counts) == 5
        assert none.get_height() == 1
        assert none.get_x() + none.get_width() <= 0
        radius = finding.curves["radius"]
        for bar in bars:
            low, high = bar.get_x(), bar.get_x() + bar.get_width()
            last = bar is bars[-1]
            inside = (radius >= low - 1e-6) & ((radius <= high + 1e-6) if last else (radius < high - 1e-6))
            assert bar.get_height() == int((inside & (radius > 0)).sum())
        assert axes.get_xlabel() == "certified radius (input units)"
    assert said == "certified radii: 5 examples, none at 1 (wrong, or nothing is proved)"


def test_without_a_certificate_the_histogram_says_none_at_all():
    finding = l2_smoothing(demo())
    nothing = replace(finding, curves={**finding.curves, "radius": torch.full((6,), -1.0)})
    with drawing() as (_, axes):
        assert radii(axes, nothing) == "certified radii: 0 examples, none at 6 (wrong, or nothing is proved)"
        assert radii(axes, replace(finding, curves={})) == ""
