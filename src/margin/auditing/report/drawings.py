"""The drawings of findings: each knows its curves by name, whatever the claim; tried in this order."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from margin.core.catalog import resolve
from margin.core.findings import Finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawing = Callable[["Axes", Finding], str]
"""``(axes, finding) -> what is shown, in words``; "" where the curves are absent."""

PANELS = (
    "margin.auditing.report.panels:recall",
    "margin.auditing.report.panels:components",
    "margin.auditing.report.panels:halfspace",
    "margin.feedforward.approximation.panel:approximation",
    "margin.theory.curvature.spectrum_panel:spectrum_density",
    "margin.theory.regions.panel:regions",
    "margin.theory.signal.panel:over_depth",
    "margin.theory.signal.initialization_panel:gains",
    "margin.theory.curvature.landscape_panel:landscape",
    "margin.theory.dynamics.trajectory_panel:trajectories",
    "margin.sequence.seq2seq.alignment_panel:alignment",
    "margin.sequence.dynamics.eigenvalue_panel:eigenvalues",
    "margin.sequence.dynamics.lag_panel:by_lag",
    "margin.sequence.forecast.panel:forecast_and_errors",
    "margin.sequence.forecast.panel:fan",
    "margin.sequence.forecast.panel:over_steps_ahead",
    "margin.geometric.graphs.panel:graph",
    "margin.geometric.graphs.smoothing_panel:smoothing",
    "margin.geometric.sets.cloud_panel:cloud",
    "margin.generative.gan.critic_panel:critics",
    "margin.geometric.spectral.graph_spectrum_panel:graph_spectrum",
    "margin.generative.flow.density_panel:density",
    "margin.generative.autoencoder.reconstruction_panel:reconstructions",
    "margin.generative.autoencoder.reconstruction_panel:traversals",
    "margin.generative.quality.samples_panel:sample_points",
    "margin.generative.quality.samples_panel:sample_images",
    "margin.generative.diffusion.denoising_panel:film",
)
"""Paths of the drawings that know their curves by name, whatever the claim; imported when they are tried."""


def panels() -> Iterator[Drawing]:
    """Each of the drawings, in order."""
    for path in PANELS:
        yield resolve(path)
