"""PointNet (Qi, Su, Mo and Guibas 2017): a network of each point alone, and the maximum over the points.

PointNet's loss (Qi et al. 2017): cross-entropy, and how far its second transform is from orthogonal.
"""

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.tasks import term_loss
from margin.core.types import Batch, ClassScores
from margin.geometric.sets.deep_sets import Codes, Elements, Mask, Outputs, SetPool, without_padding
from margin.nn.preprocessed import core_of, features_of

Transforms = Literal["both", "input", "none"]
Norm = Literal["batch", "layer", "none"]
Matrices = Float[Tensor, "batch size size"]
PerCloud = Float[Tensor, " batch"]

LOCAL = 64
"""Numbers of a point behind the first layers: the size of the second transform, too."""


def distance_from_orthogonal(A: Matrices) -> PerCloud:
    r"""The squared Frobenius norm :math:`\|I - A A^\top\|_F^2` of each matrix: 0 for rotations and mirrors.

    Reference: Qi, Su, Mo and Guibas 2017, Equation 2.
    """
    return (torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) - A @ A.mT).square().sum((-2, -1))


def layer(fan_in: int, fan_out: int, norm: Norm) -> list[nn.Module]:
    """An affine map, its normalization, and a rectifier.

    Raises:
        ValueError: The normalization is unknown.
    """
    match norm:
        case "batch":  # subtracts any bias
            return [nn.Linear(fan_in, fan_out, bias=False), nn.BatchNorm1d(fan_out), nn.ReLU()]
        case "layer":
            return [nn.Linear(fan_in, fan_out), nn.LayerNorm(fan_out), nn.ReLU()]
        case "none":
            return [nn.Linear(fan_in, fan_out), nn.ReLU()]
    raise ValueError(f"norm must be batch, layer or none: got {norm!r}")


def layers(sizes: list[int], norm: Norm) -> nn.Sequential:
    """Layers from each size to the next."""
    return nn.Sequential(*(one for sizes_of in pairwise(sizes) for one in layer(*sizes_of, norm)))


def of_points(network: nn.Module, x: Elements, mask: Mask | None) -> Outputs:
    """A network put to each point alone; batch statistics are those of the points that are there.

    Args:
        network: Maps rows to rows.
        x: Points of each cloud.
        mask: True where a point is; None: all are there.
    """
    if mask is None or not network.training:  # points do not see each other: padding goes along, unread
        return network(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    rows = network(x[mask])
    return rows.new_zeros(*mask.shape, rows.shape[1]).index_put((mask,), rows)


class TransformNet(nn.Module):
    r"""A T-Net: from a cloud the matrix A by which its points, rows, are multiplied.

    .. math:: A = I + \mathrm{affine}\big(\mathrm{MLP}(\max_m \mathrm{MLP}(x_m))\big)

    The matrix is unconstrained: it is no rotation, and near one only as far as it is drawn to it.

    Args:
        size: k: A is k x k.
        features: Numbers over which the maximum is taken.
        norm: Of every layer.

    Reference:
        Qi, Su, Mo and Guibas 2017, Section 4.2 and Appendix C. There A begins as the identity exactly, so
        that in the first step nothing before the affine map learns; here its weights are of size 1e-3.
    """

    def __init__(self, size: int, *, features: int = 1024, norm: Norm = "batch") -> None:
        super().__init__()
        self.size = size
        self.points = layers([size, 64, 128, features], norm)
        self.pool = SetPool("max")
        self.head = layers([features, 512, 256], norm)
        self.affine = nn.Linear(256, size * size)
        nn.init.normal_(self.affine.weight, std=1e-3)
        nn.init.zeros_(self.affine.bias)

    def forward(self, x: Elements, mask: Mask | None = None) -> Matrices:
        """The matrix of each cloud."""
        whole = self.pool(of_points(self.points, x, mask), mask)
        A = self.affine(self.head(whole)).unflatten(1, (self.size, self.size))
        return A + torch.eye(self.size, dtype=A.dtype, device=A.device)


class PointFeatures(nn.Module):
    """What PointNet sees of a cloud: 64 numbers of each point, and the maximum of its 1024 over the points.

    Args:
        element_size: k, numbers of a point; the first three at most are its place, which is transformed.
        features: Numbers of the maximum.
        transforms: Whether the places and the 64 numbers are transformed, the places alone, or neither.
        norm: Of every layer.

    Raises:
        ValueError: ``transforms`` is something else, or a size is below 1.

    Reference:
        Qi, Su, Mo and Guibas 2017, Figure 2.
    """

    def __init__(
        self,
        element_size: int,
        *,
        features: int = 1024,
        transforms: Transforms = "both",
        norm: Norm = "batch",
    ) -> None:
        super().__init__()
        if transforms not in ("both", "input", "none"):
            raise ValueError(f"transforms must be both, input or none: got {transforms!r}")
        if element_size < 1 or features < 1:
            raise ValueError(f"sizes must be at least 1: got {element_size} numbers, {features} features")
        place = min(element_size, 3)
        self.turn = None if transforms == "none" else TransformNet(place, features=features, norm=norm)
        self.low = layers([element_size, 64, LOCAL], norm)
        both = transforms == "both"
        self.mix = TransformNet(LOCAL, features=features, norm=norm) if both else None
        self.high = layers([LOCAL, 64, 128, features], norm)
        self.pool = SetPool("max")

    def forward(self, x: Elements, mask: Mask | None = None) -> tuple[Outputs, Codes, Matrices | None]:
        """The numbers of each point, those of the cloud, and the matrix of the second transform."""
        x = without_padding(x, mask)
        if self.turn is not None:
            place = self.turn.size
            x = torch.cat((x[..., :place] @ self.turn(x[..., :place], mask), x[..., place:]), -1)
        local = of_points(self.low, x, mask)
        A = None if self.mix is None else self.mix(local, mask)
        local = local if A is None else local @ A
        return local, self.pool(of_points(self.high, local, mask), mask), A


class PointNet(nn.Module):
    r"""Class logits of a cloud of points.

    .. math:: f(x_1, \dots, x_M) = \gamma\big(\max_m h(x_m)\big)

    h is one network put to every point, behind transforms that depend on the cloud. The logits do not depend
    on the order of the points, nor on how often a point is listed. Turning a cloud changes them: the
    transforms may learn to undo a turn, but nothing makes them.

    Args:
        element_size: Numbers of a point: its place (three, or two in the plane), then what else is known.
        num_classes: Number of logits.
        features: Numbers of which the maximum is taken.
        transforms: Whether the places and the 64 numbers of a point are transformed, the places alone, or
            neither.
        norm: Of every layer: by the batch's statistics, by each row's own, or none.
        dropout: Probability with which a number before the logits is dropped in training, in [0, 1).
        orthogonality: Weight of ||I - A A^T||_F^2 in the loss, at least 0; A is the 64 x 64 transform.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Qi, Su, Mo and Guibas 2017, Section 4.2, Figure 2 and Appendix C.
    """

    elements_alone = True

    def __init__(
        self,
        element_size: int,
        num_classes: int,
        *,
        features: int = 1024,
        transforms: Transforms = "both",
        norm: Norm = "batch",
        dropout: float = 0.3,
        orthogonality: float = 1e-3,
    ) -> None:
        super().__init__()
        self.orthogonality = checked(orthogonality)
        self.features = PointFeatures(element_size, features=features, transforms=transforms, norm=norm)
        self.head = layers([features, 512, 256], norm)
        self.dropout = nn.Dropout(dropout)
        self.logits = nn.Linear(256, num_classes)

    def forward(self, x: Elements, mask: Mask | None = None) -> ClassScores:
        """The logits of each cloud; ``mask`` is True where a point is, None where all are there."""
        return self.with_transform(x, mask)[0]

    def with_transform(self, x: Elements, mask: Mask | None = None) -> tuple[ClassScores, Matrices | None]:
        """The logits, and the matrix of the second transform where there is one."""
        _, whole, A = self.features(x, mask)
        return self.logits(self.dropout(self.head(whole))), A


class PointNetSegmentation(nn.Module):
    r"""Class logits of each point of a cloud, from its own 64 numbers beside the cloud's 1024.

    .. math:: f(x)_m = \gamma\big(h_1(x_m), \max_j h_2(h_1(x_j))\big)

    The logits follow the points when these are listed in another order.

    Args:
        element_size: Numbers of a point: its place (three, or two in the plane), then what else is known.
        num_classes: Number of logits of a point.
        features: Numbers of which the maximum is taken.
        transforms: Whether the places and the 64 numbers of a point are transformed, the places alone, or
            neither.
        norm: Of every layer: by the batch's statistics, by each row's own, or none.
        orthogonality: Weight of ||I - A A^T||_F^2 in the loss, at least 0; A is the 64 x 64 transform.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Qi, Su, Mo and Guibas 2017, Section 4.2 and Figure 2 (segmentation network).
    """

    elements_alone = True

    def __init__(
        self,
        element_size: int,
        num_classes: int,
        *,
        features: int = 1024,
        transforms: Transforms = "both",
        norm: Norm = "batch",
        orthogonality: float = 1e-3,
    ) -> None:
        super().__init__()
        self.orthogonality = checked(orthogonality)
        self.features = PointFeatures(element_size, features=features, transforms=transforms, norm=norm)
        self.first = nn.Linear(LOCAL + features, 512, bias=norm != "batch")
        self.rest = nn.Sequential(*layer(512, 512, norm)[1:], *layers([512, 256, 128, 128], norm))
        self.logits = nn.Linear(128, num_classes)

    def forward(self, x: Elements, mask: Mask | None = None) -> Outputs:
        """The logits of each point; 0 at padding."""
        return self.with_transform(x, mask)[0]

    def with_transform(self, x: Elements, mask: Mask | None = None) -> tuple[Outputs, Matrices | None]:
        """The logits, and the matrix of the second transform where there is one."""
        local, whole, A = self.features(x, mask)
        return without_padding(self.logits(of_points(self.rest, self.beside(local, whole), mask)), mask), A

    def beside(self, local: Elements, whole: Codes) -> Outputs:
        """The first affine map of the joined numbers, that of the cloud's taken once a cloud."""
        W_local, W_whole = self.first.weight.split((local.shape[2], whole.shape[1]), 1)
        return F.linear(local, W_local) + F.linear(whole, W_whole, self.first.bias)[:, None]


def checked(weight: float) -> float:
    """The weight of the penalty.

    Raises:
        ValueError: It is not a finite number of at least 0.
    """
    if not 0 <= weight < float("inf"):
        raise ValueError(f"orthogonality must be a finite number of at least 0: got {weight}")
    return weight


def penalized(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    r"""The loss of each cloud or point, with :math:`w \|I - A A^\top\|_F^2` of its cloud added.

    Args:
        model: A PointNet, classification or segmentation, whose option ``orthogonality`` is w.
        batch: Clouds, and a class for each or for each of its points.
        generator: Nothing is drawn.

    Raises:
        ValueError: There are no targets.

    Reference: Qi, Su, Mo and Guibas 2017, Equation 2 and Appendix C (w = 0.001).
    """
    if batch.targets is None:
        raise ValueError("a PointNet is judged by classes: the batch has no targets")
    core, (first, *rest) = core_of(model), batch.inputs
    logits, A = core.with_transform(features_of(model, first), *rest)
    loss = term_loss(logits, batch.targets)
    if A is None or core.orthogonality == 0:
        return loss
    penalty: Tensor = core.orthogonality * distance_from_orthogonal(A)
    return loss + penalty.reshape(-1, *[1] * (loss.ndim - 1))
