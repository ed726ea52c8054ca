"""A Gaussian process as a picture: functions of its prior, and the band that the examples leave of them."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.frames import curve
from margin.figures.svg import MUTED, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def functions(axes: "Axes", finding: Finding) -> str:
    """Draws of the prior, and the posterior mean with 95 % intervals, along one feature.

    Args:
        axes: Where it is drawn.
        finding: Of ``bayes/gp.posterior``.
    """
    along, mean, low, high = (curve(finding, name) for name in ("along", "mean", "low", "high"))
    if along is None or mean is None or low is None or high is None:
        return ""
    prior = [name for name in finding.curves if name.startswith("prior ")]
    for k, name in enumerate(prior):
        drawn = curve(finding, name)
        if drawn is not None:
            label = f"{len(prior)} functions of the prior" if k == 0 else None
            axes.plot(along, drawn, color=MUTED, linewidth=0.8, alpha=0.8, label=label)
    axes.fill_between(along, low, high, color=SERIES[0], alpha=0.25, linewidth=0, label="95% interval")
    axes.plot(along, mean, color=SERIES[0], label="posterior mean")
    axes.set(xlabel="feature of the least length scale, as the model sees it", ylabel="value")
    axes.legend()
    return (
        f"{len(prior)} functions drawn from the prior, and mean and 95% intervals of the posterior, along "
        "the feature of the least length scale, the others at their means"
    )
