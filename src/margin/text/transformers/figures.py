"""The attention of one text: a row a token that reads, a column one that is read, the words on both axes."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.attention import drawable, shaded

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def attention_map(axes: "Axes", finding: Finding) -> str:
    """The weights of the last layer for one text, with its words where the tokenizer is known."""
    weights = finding.curves.get("attention")
    if weights is None or not drawable(weights):
        return ""
    said = next((line for line in finding.remarks if line.startswith("tokens: ")), "")
    words = said.removeprefix("tokens: ").split(" ") if said else []
    words = words if len(words) == weights.shape[1] else []
    shaded(axes, weights, words[: len(weights)], words)
    axes.set(xlabel="token that is read", ylabel="token that reads")
    return (
        f"attention of {len(weights)} tokens of one held-out text in the last layer, the mean over its heads"
    )
