"""PointNet: its published size, its symmetries and what it lacks, its transforms, clouds of several sizes."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.sets.equivariance import check_equivariant, check_invariant
from margin.geometric.sets.pointnet import (
    PointFeatures,
    PointNet,
    PointNetSegmentation,
    TransformNet,
    distance_from_orthogonal,
    of_points,
)


def clouds(count: int = 3, points: int = 10, seed: int = 0) -> Tensor:
    generator = Generator().manual_seed(seed)
    return torch.randn(count, points, 3, generator=generator, dtype=torch.float64)


def small(kind: type = PointNet, seed: int = 0, **options: object) -> PointNet | PointNetSegmentation:
    """In evaluation mode after a batch in training, so that the running statistics are no longer 0 and 1."""
    torch.manual_seed(seed)
    model = kind(3, 4, features=32, **options).double()
    with torch.no_grad():
        model(clouds(8, 12, seed=9))
    return model.eval()


def shaken(model: PointNet | PointNetSegmentation) -> PointNet | PointNetSegmentation:
    """With transforms that are far from the identity."""
    for one in model.modules():
        if isinstance(one, TransformNet):
            torch.nn.init.normal_(one.affine.weight, std=0.1)
    return model


@pytest.mark.parametrize(("transforms", "millions"), [("none", 0.8), ("both", 3.5)])
def test_it_has_as_many_weights_as_published(transforms: str, millions: float) -> None:
    # Qi et al. 2017, Table 6, for the 40 classes of ModelNet40
    model = PointNet(3, 40, transforms=transforms)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == millions


def test_segmentation_joins_64_and_1024_numbers() -> None:
    assert PointNetSegmentation(3, 5).first.in_features == 1088


@torch.no_grad()
@pytest.mark.parametrize("transforms", ["both", "input", "none"])
def test_the_logits_do_not_depend_on_order_or_repetition(transforms: str) -> None:
    model, x = shaken(small(transforms=transforms)), clouds()
    assert check_invariant(model, x) <= 1e-12
    torch.testing.assert_close(model(torch.cat((x, x[:, :4]), 1)), model(x), rtol=0, atol=1e-12)
    assert float(model(x).var(0).max()) > 1e-8  # and they say something


@torch.no_grad()
def test_those_of_points_follow_their_order() -> None:
    model, x = shaken(small(PointNetSegmentation)), clouds()
    assert check_equivariant(model, x) <= 1e-12
    twice = model(torch.cat((x, x), 1))
    torch.testing.assert_close(twice[:, :10], model(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(twice[:, 10:], model(x), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_turn_changes_the_logits() -> None:
    model, x = small(), clouds()
    Q = torch.linalg.qr(torch.randn(3, 3, generator=Generator().manual_seed(1), dtype=torch.float64)).Q
    assert float((model(x @ Q) - model(x)).abs().max()) > 1e-4


@torch.no_grad()
@pytest.mark.parametrize("kind", [PointNet, PointNetSegmentation])
@pytest.mark.parametrize("training", [True, False])
def test_padding_is_not_read_by_batch_statistics_either(kind: type, training: bool) -> None:
    # The dense pass over clouds of one size, and the same points with padding behind: NaN would show.
    x = clouds()
    padded = torch.cat((x, torch.full((3, 5, 3), math.nan, dtype=torch.float64)), 1)
    mask = torch.arange(15).expand(3, 15) < 10
    outputs, statistics = [], []
    for inputs in ((x,), (padded, mask)):
        model = small(kind, **({"dropout": 0.0} if kind is PointNet else {})).train(training)
        outputs.append(model(*inputs))
        statistics.append([b.clone() for b in model.buffers()])
    own = outputs[1][:, :10] if kind is PointNetSegmentation else outputs[1]
    torch.testing.assert_close(own, outputs[0], rtol=0, atol=1e-10)
    for one, other in zip(*statistics, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-10)
    if kind is PointNetSegmentation:
        assert not bool(outputs[1][:, 10:].any())


@torch.no_grad()
def test_clouds_of_several_sizes_do_not_see_each_other() -> None:
    model, x = shaken(small()), clouds(4, 6)
    sizes = torch.tensor([6, 1, 0, 3])
    together = model(x, torch.arange(6) < sizes[:, None])
    for k, size in enumerate(sizes.tolist()):
        torch.testing.assert_close(model(x[k : k + 1, :size])[0], together[k], rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_the_joined_affine_map_is_that_of_the_joined_numbers(norm: str) -> None:
    model = small(PointNetSegmentation, norm=norm)
    local, whole = clouds()[..., :1].expand(-1, -1, 64), torch.randn(3, 32, dtype=torch.float64)
    joined = torch.cat((local, whole[:, None].expand(-1, 10, -1)), -1)
    torch.testing.assert_close(model.beside(local, whole), model.first(joined), rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_transform_multiplies_rows_and_begins_near_the_identity() -> None:
    torch.manual_seed(0)
    turn = TransformNet(3, features=32).double()
    A = turn(clouds(8))
    assert float((A - torch.eye(3, dtype=torch.float64)).abs().max()) < 0.1
    features = PointFeatures(3, features=32, transforms="input").double().eval()
    x = clouds()
    Q = features.turn(x)
    expected = of_points(features.low, torch.einsum("bmi,bij->bmj", x, Q), None)
    torch.testing.assert_close(features(x)[0], expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_places_are_turned_and_other_numbers_kept() -> None:
    torch.manual_seed(0)
    features = PointFeatures(5, features=16, transforms="input").double().eval()
    assert features.turn.size == 3
    assert PointFeatures(2, features=16).turn.size == 2
    heard: list[Tensor] = []
    features.low.register_forward_pre_hook(lambda module, given: heard.append(given[0]))
    x = torch.randn(1, 4, 5, generator=Generator().manual_seed(0), dtype=torch.float64)
    features(x)
    assert torch.equal(heard[0][:, 3:], x[0, :, 3:])
    torch.testing.assert_close(heard[0][:, :3], x[0, :, :3] @ features.turn(x[..., :3])[0])


def test_the_penalty_is_zero_for_turns_and_mirrors_and_known_elsewhere() -> None:
    Q = torch.linalg.qr(torch.randn(4, 8, 8, generator=Generator().manual_seed(0), dtype=torch.float64)).Q
    assert float(distance_from_orthogonal(Q).max()) <= 1e-24
    eye = torch.eye(3, dtype=torch.float64)[None]
    # of c I, (1 - c^2)^2 for each axis: c = 2 gives 27; the square root or a mean would not
    assert distance_from_orthogonal(2 * eye).tolist() == [27.0]
    shear = torch.tensor([[[1.0, 1.0], [0.0, 1.0]]])
    # I - A A^T = [[-1, -1], [-1, 0]]
    assert distance_from_orthogonal(shear).tolist() == [3.0]


def test_options_out_of_range_are_refused() -> None:
    for weight in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="orthogonality must be a finite number of at least 0"):
            PointNet(3, 2, features=4, orthogonality=weight)
    with pytest.raises(ValueError, match="sizes must be at least 1"):
        PointNet(3, 2, features=0)
