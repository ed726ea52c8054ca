"""What the container says of shapes and types that its annotations would already refuse."""

import pytest
import torch

from margin.data.formats.graphs.graphs import Graph, graph_of


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (torch.zeros(3, 2, dtype=torch.int64), "shape (2, edges) and type int64: got (3, 2)"),
        (torch.zeros(2, dtype=torch.int64), "got (2,)"),
        (torch.zeros(2, 3), "torch.float32"),
        (torch.zeros(2, 3, dtype=torch.int32), "torch.int32"),
    ],
)
def test_edges_are_whole_numbers_in_two_rows(index, text) -> None:
    with pytest.raises(ValueError) as caught:
        graph_of(torch.ones(4, 1), index, torch.ones(index.shape[-1], 0))
    assert text in str(caught.value)


def test_features_are_real_and_as_many_as_edges() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    with pytest.raises(ValueError, match="x must be real numbers"):
        Graph(torch.ones(4, 1, dtype=torch.int64), none, torch.ones(0, 0), torch.tensor([4]))
    with pytest.raises(ValueError, match="got 0 edges, 3 rows"):
        Graph(torch.ones(4, 1), none, torch.ones(3, 0), torch.tensor([4]))
    with pytest.raises(ValueError, match="sizes must be whole numbers"):
        Graph(torch.ones(4, 1), none, torch.ones(0, 0), torch.tensor([4.0]))
