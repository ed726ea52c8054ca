"""The drawings of findings: each knows its curves by name, whatever the claim; tried in this order."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from margin.auditing.alignment_panel import alignment
from margin.auditing.approximation_panel import approximation
from margin.auditing.cloud_panel import cloud
from margin.auditing.critic_panel import critics
from margin.auditing.denoising_panel import film
from margin.auditing.density_panel import density
from margin.auditing.eigenvalue_panel import eigenvalues
from margin.auditing.forecast_panel import fan, forecast_and_errors, over_steps_ahead
from margin.auditing.graph_panel import graph
from margin.auditing.graph_spectrum_panel import graph_spectrum
from margin.auditing.initialization_panel import gains
from margin.auditing.lag_panel import by_lag
from margin.auditing.landscape_panel import landscape
from margin.auditing.panels import components, halfspace, recall
from margin.auditing.reconstruction_panel import reconstructions, traversals
from margin.auditing.regions_panel import regions
from margin.auditing.samples_panel import sample_images, sample_points
from margin.auditing.signal_panel import over_depth
from margin.auditing.smoothing_panel import smoothing
from margin.auditing.spectrum_panel import spectrum_density
from margin.auditing.trajectory_panel import trajectories
from margin.findings import Finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawing = Callable[["Axes", Finding], str]
"""``(axes, finding) -> what is shown, in words``; "" where the curves are absent."""

PANELS: tuple[Drawing, ...] = (
    recall,
    components,
    halfspace,
    approximation,
    spectrum_density,
    regions,
    over_depth,
    gains,
    landscape,
    trajectories,
    alignment,
    eigenvalues,
    by_lag,
    forecast_and_errors,
    fan,
    over_steps_ahead,
    graph,
    smoothing,
    cloud,
    critics,
    graph_spectrum,
    density,
    reconstructions,
    traversals,
    sample_points,
    sample_images,
    film,
)
"""Drawings that know their curves by name, whatever the claim."""
