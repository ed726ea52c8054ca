"""The drawings of findings: each knows its curves by name, whatever the claim; tried in this order."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from margin.catalog import resolve
from margin.findings import Finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawing = Callable[["Axes", Finding], str]
"""``(axes, finding) -> what is shown, in words``; "" where the curves are absent."""

PANELS = (
    "margin.auditing.panels:recall",
    "margin.auditing.panels:components",
    "margin.auditing.panels:halfspace",
    "margin.auditing.approximation_panel:approximation",
    "margin.auditing.spectrum_panel:spectrum_density",
    "margin.auditing.regions_panel:regions",
    "margin.auditing.signal_panel:over_depth",
    "margin.auditing.initialization_panel:gains",
    "margin.auditing.landscape_panel:landscape",
    "margin.auditing.trajectory_panel:trajectories",
    "margin.auditing.alignment_panel:alignment",
    "margin.auditing.eigenvalue_panel:eigenvalues",
    "margin.auditing.lag_panel:by_lag",
    "margin.auditing.forecast_panel:forecast_and_errors",
    "margin.auditing.forecast_panel:fan",
    "margin.auditing.forecast_panel:over_steps_ahead",
    "margin.auditing.graph_panel:graph",
    "margin.auditing.smoothing_panel:smoothing",
    "margin.auditing.cloud_panel:cloud",
    "margin.auditing.critic_panel:critics",
    "margin.auditing.graph_spectrum_panel:graph_spectrum",
    "margin.auditing.density_panel:density",
    "margin.auditing.reconstruction_panel:reconstructions",
    "margin.auditing.reconstruction_panel:traversals",
    "margin.auditing.samples_panel:sample_points",
    "margin.auditing.samples_panel:sample_images",
    "margin.auditing.denoising_panel:film",
)
"""Paths of the drawings that know their curves by name, whatever the claim; imported when they are tried."""


def panels() -> Iterator[Drawing]:
    """Each of the drawings, in order."""
    for path in PANELS:
        yield resolve(path)
