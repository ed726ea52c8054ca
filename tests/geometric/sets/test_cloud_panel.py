"""A cloud is drawn with its critical points large and its classes apart; other curves are left alone."""

import math

import torch

from margin.auditing.report.plots import plot
from margin.figures.svg import drawing
from margin.geometric.sets.figures import LARGE, SMALL, cloud, seen


def curves() -> dict[str, torch.Tensor]:
    return {"cloud points": torch.randn(6, 3), "cloud critical": torch.tensor([1, 0, 0, 1, 0, 0]).bool()}


def test_critical_points_are_large(finding):
    with drawing() as (_, axes):
        words = cloud(axes, finding(curves=curves()))
        drawn = {one.get_label(): one for one in axes.collections}
        assert len(drawn["critical points"].get_offsets()) == 2 and len(drawn["others"].get_offsets()) == 4
        assert drawn["critical points"].get_sizes().tolist() == [LARGE]
        assert drawn["others"].get_sizes().tolist() == [SMALL]
    assert words == "6 points, of which 2 attain a maximum, large"


def test_classes_have_a_color_each(finding):
    classes = {"cloud classes": torch.tensor([0, 0, 2, 2, 0, 2])}
    with drawing() as (_, axes):
        words = cloud(axes, finding(curves=curves() | classes))
        assert [t.get_text() for t in axes.get_legend().get_texts()] == ["class 0", "class 2"]
        assert sum(len(one.get_offsets()) for one in axes.collections) == 6
    assert "colored by the class" in words


def test_points_are_projected_along_one_direction():
    # lengths along the third axis are foreshortened by the cosine of the height, and it points up
    up = seen(torch.tensor([[0.0, 0.0, 1.0]]))[0]
    assert up[0] == 0 and math.isclose(float(up[1]), math.cos(math.radians(20)), rel_tol=1e-6)
    # an orthonormal projection: the two rows are orthonormal
    P = seen(torch.eye(3, dtype=torch.float64)).T
    torch.testing.assert_close(P @ P.T, torch.eye(2, dtype=torch.float64))
    assert seen(torch.ones(4, 2)).shape == (4, 2) and seen(torch.ones(4, 1)).shape == (4, 2)


def test_other_curves_are_left_to_others(finding):
    with drawing() as (_, axes):
        assert cloud(axes, finding(curves={"cloud points": torch.ones(3, 3)})) == ""
    assert "critical" in plot("margin.geometric.sets.figures:cloud", finding(curves=curves()), "a")
