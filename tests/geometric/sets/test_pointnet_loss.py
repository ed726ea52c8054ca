"""PointNet's loss: the cross-entropy and the weighted penalty of each cloud, behind the preprocessing too."""

import pytest
import torch
from torch import Generator, nn

from margin.core.tasks import class_loss, term_loss
from margin.core.types import Batch
from margin.geometric.sets.pointnet import PointNet, PointNetSegmentation, distance_from_orthogonal
from margin.geometric.sets.pointnet_loss import penalized
from margin.nn.preprocessed import Preprocessed


class Halved(nn.Module):
    """Half of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


@torch.no_grad()
@pytest.mark.parametrize("kind", [PointNet, PointNetSegmentation])
def test_it_is_the_cross_entropy_and_the_weighted_penalty(kind: type) -> None:
    torch.manual_seed(0)
    model = kind(3, 4, features=16, orthogonality=0.5).double().eval()
    nn.init.normal_(model.features.mix.affine.weight, std=0.1)
    x = torch.randn(3, 6, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(18).reshape(3, 6) % 4 if kind is PointNetSegmentation else torch.arange(3)
    loss = penalized(Preprocessed(Halved(), model), Batch((x,), labels), Generator())
    logits, A = model.with_transform(x / 2)
    own = (term_loss if kind is PointNetSegmentation else class_loss)(logits, labels)
    penalty = 0.5 * distance_from_orthogonal(A)
    assert float(penalty.min()) > 0.01
    expected = own + (penalty[:, None] if kind is PointNetSegmentation else penalty)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    assert loss.shape == labels.shape


@torch.no_grad()
@pytest.mark.parametrize("options", [{"orthogonality": 0.0}, {"transforms": "input"}, {"transforms": "none"}])
def test_without_a_weight_or_a_second_transform_it_is_the_cross_entropy(options: dict[str, object]) -> None:
    torch.manual_seed(0)
    model = PointNet(3, 2, features=16, **options).eval()
    x, labels = torch.randn(4, 6, 3), torch.arange(4) % 2
    loss = penalized(model, Batch((x,), labels), Generator())
    torch.testing.assert_close(loss, class_loss(model(x), labels))


def test_the_mask_goes_along() -> None:
    torch.manual_seed(0)
    model = PointNet(3, 2, features=16).eval()
    x, labels = torch.randn(4, 6, 3), torch.arange(4) % 2
    padded = torch.cat((x, torch.full((4, 2, 3), torch.nan)), 1)
    mask = torch.arange(8).expand(4, 8) < 6
    with torch.no_grad():
        one = penalized(model, Batch((padded, mask), labels), Generator())
        other = penalized(model, Batch((x,), labels), Generator())
    torch.testing.assert_close(one, other)


def test_targets_are_needed() -> None:
    with pytest.raises(ValueError, match="the batch has no targets"):
        penalized(PointNet(3, 2, features=4), Batch((torch.randn(2, 3, 3),)), Generator())
