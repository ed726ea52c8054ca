"""The picture of an alignment: drawn where there is one, in the proportions of its tokens."""

import pytest
import torch

from margin.auditing.report.plots import plot
from margin.core.findings import Finding
from margin.figures.svg import drawing
from margin.sequence.seq2seq.claims import alignment as ask
from margin.sequence.seq2seq.claims import demo
from margin.sequence.seq2seq.figures import alignment


def finding(weights: torch.Tensor | None) -> Finding:
    return Finding(
        statement="a",
        value=torch.tensor(0.5),
        unit="1",
        range=(0.0, 1.0),
        premises=(),
        reference="Bahdanau, Cho and Bengio 2015, Figure 3",
        curves={} if weights is None else {"alignment": weights},
    )


def test_the_most_read_token_has_the_dot() -> None:
    weights = torch.eye(4).flip(0)[:, :3] + 0.01
    with drawing() as (_, axes):
        shown = alignment(axes, finding(weights))
        (dots,) = axes.lines
        assert list(dots.get_xdata()) == weights.argmax(1).tolist()
        assert list(dots.get_ydata()) == [0, 1, 2, 3]
        assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first target token is above
        assert axes.images[0].get_array().shape == (4, 3, 4)
    assert shown == "attention of 4 target tokens over 3 source tokens, a dot on the most read"


def test_the_shade_is_the_weight() -> None:
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    with drawing() as (_, axes):
        alignment(axes, finding(weights))
        assert axes.images[0].get_array()[:, :, 3].tolist() == weights.tolist()


@pytest.mark.parametrize(
    "weights", [None, torch.zeros(0, 3), torch.zeros(3), torch.full((2, 2), float("nan"))]
)
def test_nothing_is_drawn_of_nothing(weights: torch.Tensor | None) -> None:
    with drawing() as (_, axes):
        assert alignment(axes, finding(weights)) == ""


@pytest.mark.parametrize("size", [1, 9, 60])
def test_the_report_has_it(size: int) -> None:
    text = plot("margin.sequence.seq2seq.figures:alignment", finding(torch.eye(size)), "p")
    assert f"attention of {size} target tokens" in text


def test_the_claim_is_drawn() -> None:
    assert "attention of" in plot("margin.sequence.seq2seq.figures:alignment", ask(demo()), "p")
