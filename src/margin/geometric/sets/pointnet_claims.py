"""What a maximum over points promises (Qi, Su, Mo and Guibas 2017): few points decide, and all of it."""

import math

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import capture, in_double
from margin.engine.loop import risk
from margin.geometric.sets.claims import has_sets, pools, sets_of
from margin.geometric.sets.deep_sets import SetPool
from margin.geometric.sets.pointnet import PointNet, TransformNet, distance_from_orthogonal

ROUNDING = 1e-9
"""In parts of the largest output, in float64."""

CLOUDS = 128
"""Clouds that are turned at most."""

TURNS = 4
"""Turns of each cloud."""

MIXING = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.RNNBase, nn.Conv1d)
"""Layers that may let an element see another without a pooling; a convolution of one step does not."""


def critical(model: nn.Module, cloud: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """The outputs for one cloud, which of its points attain a maximum, and how many do so of each pooling.

    Of points that attain it together the first is taken. A pooling of d numbers therefore has d such points
    at most, and those that a T-Net reads are among them.

    Args:
        model: A model that pools sets by the maximum, in evaluation mode.
        cloud: Its points (M, k).
    """
    with capture(module for module in model.modules() if isinstance(module, SetPool)) as calls:
        outputs: Tensor = model(cloud[None])
    attaining = [call.args[0][0].argmax(0) for call in calls]
    kept = torch.zeros(len(cloud), dtype=torch.bool, device=cloud.device)
    for one in attaining:
        kept[one] = True
    return outputs, kept, [len(one.unique()) for one in attaining]


def alone(model: nn.Module) -> Premise:
    """Whether points see each other by the maxima alone: known of our models, refuted by layers that mix."""
    text = "every point is read alone, but for the maxima"
    mixing = [
        f"{name} ({type(one).__name__})"
        for name, one in model.named_modules()
        if isinstance(one, MIXING) and getattr(one, "kernel_size", (0,)) != (1,)
    ]
    if mixing:
        return Premise(text, "refuted", f"{', '.join(mixing)} may mix points")
    core = getattr(model, "model", model)
    if vars(type(core)).get("elements_alone"):  # not by inheritance: a derived class may do otherwise
        return Premise(text, "proved", f"{type(core).__name__} is built so")
    return Premise(text, "assumed", f"{type(core).__name__} was not looked into")


def of_points(outputs: Tensor, kept: Tensor) -> Tensor:
    """The outputs of the points that are kept, or those of the cloud."""
    return outputs[:, kept] if outputs.ndim == 3 else outputs


@torch.no_grad()
def critical_set(subject: Subject) -> Finding:
    """How much the outputs change where only critical points are kept, or half of the others are left out.

    Args:
        subject: A model that pools sets by the maximum alone.
    """
    model, found = in_double(subject.model), sets_of(subject)
    generator = Generator().manual_seed(0)
    changes, counts, shares, scale = [], [0], [], 1.0
    for cloud in found:
        outputs, kept, each = critical(model, cloud)
        some = kept | (torch.rand(len(cloud), generator=generator) < 0.5).to(kept.device)
        changes.append(
            torch.stack(
                [(model(cloud[rows][None]) - of_points(outputs, rows)).abs().max() for rows in (kept, some)]
            )
        )
        counts.append(max(each))
        shares.append(float(kept.double().mean()))
        scale = max(scale, float(outputs.abs().max()))
    first, (outputs, kept, _) = found[0], critical(model, found[0])
    curves = {"cloud points": first.cpu(), "cloud critical": kept.cpu()}
    if outputs.ndim == 3:
        curves["cloud classes"] = outputs[0].argmax(-1).cpu()
    return Finding(
        statement="The points that attain a maximum decide alone: the largest change of an output where only "
        f"they are kept, and where half of the others are left out. They are {100 * min(shares):.3g} to "
        f"{100 * max(shares):.3g} % of {len(found)} held-out sets, {max(counts)} of one pooling at most.",
        value=torch.stack(changes).amax(0).cpu(),
        unit="output units",
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING * scale,
        labels=("critical points alone", "half of the others left out"),
        premises=(alone(subject.model),),
        curves=curves,
    )


def transforms(model: nn.Module) -> dict[str, TransformNet]:
    """The T-Nets of a model by name."""
    named = model.named_modules()
    return {n.removeprefix("model."): one for n, one in named if isinstance(one, TransformNet)}


def has_transform(subject: Subject) -> bool:
    """Whether the model has a T-Net, and is asked of sets."""
    return has_sets(subject) and bool(transforms(subject.model))


@torch.no_grad()
def orthogonality(subject: Subject) -> Finding:
    r"""The least and largest factor by which each learned transform stretches, over the held-out clouds.

    The eigenvalues of :math:`A A^\top` are the squares of the singular values s, so
    :math:`|s^2 - 1| \le \|I - A A^\top\|_F`: the penalty bounds how far a transform is from a turn.

    Args:
        subject: A model with T-Nets.
    """
    model = in_double(subject.model)
    found = transforms(model)
    with capture(found.values()) as calls:
        for cloud in sets_of(subject):
            model(cloud[None])
    matrices = {name: [call.output[0] for call in calls if call.module is one] for name, one in found.items()}
    values, bounds, labels = [], list[Tensor](), list[str]()
    for name, of_clouds in matrices.items():
        A = torch.stack(of_clouds)
        s, far = torch.linalg.svdvals(A), distance_from_orthogonal(A).sqrt()
        values += [s.min(), s.max()]
        low, high = (1 - far).clamp(min=0).sqrt().min(), (1 + far).sqrt().max()
        bounds += [torch.stack((low, high))] * 2
        labels += [f"{name}: least", f"{name}: largest"]
    far_text = ", ".join(f"{distance_from_orthogonal(torch.stack(a)).mean():.2g}" for a in matrices.values())
    return Finding(
        statement="How much each learned transform A stretches a vector, at least and at most, over the held-"
        f"out clouds: a turn has 1 and 1. ||I - A A^T||_F^2 is {far_text} in the mean.",
        value=torch.stack(values).cpu(),
        range=(0.0, math.inf),
        low=torch.stack(bounds)[:, 0].cpu(),
        high=torch.stack(bounds)[:, 1].cpu(),
        tolerance=ROUNDING * max(1.0, float(torch.stack(values).max())),
        labels=tuple(labels),
    )


def decides_clouds_in_space(subject: Subject) -> bool:
    """Whether the model decides a class for each cloud of points whose first three numbers are a place."""
    classes = subject.task.name == CLASSES.name
    return classes and has_sets(subject) and subject.test[0].inputs[0].shape[2] >= 3 and pooled(subject)


def pooled(subject: Subject) -> bool:
    """Whether the model pools sets."""
    return bool(pools(subject.model))


def turns(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Rotations (count, 3, 3) in float64: about the third axis, and about any (Haar's law)."""
    angle = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    upright = torch.eye(3, dtype=torch.float64).repeat(count, 1, 1)
    upright[:, 0, 0] = upright[:, 1, 1] = angle.cos()
    upright[:, 0, 1], upright[:, 1, 0] = -angle.sin(), angle.sin()
    Q, R = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator, dtype=torch.float64))
    Q = Q * R.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    return upright, Q * torch.linalg.det(Q)[:, None, None]


@torch.no_grad()
def rotation(subject: Subject) -> Finding:
    """The share of held-out clouds whose class changes where the cloud is turned about its mean.

    Args:
        subject: A model that decides a class for each cloud of points of space.
    """
    model, generator = in_double(subject.model), Generator().manual_seed(0)
    changed: list[list[Tensor]] = [[], []]
    for cloud in sets_of(subject, CLOUDS):
        before = model(cloud[None]).argmax(1)
        place, center = cloud[:, :3], cloud[:, :3].mean(0)
        for kind, Q in enumerate(turns(TURNS, generator)):
            turned = (place - center) @ Q.to(cloud) + center
            moved = torch.cat((turned, cloud[None, :, 3:].expand(TURNS, -1, -1)), 2)
            changed[kind].append((model(moved).argmax(1) != before).double().mean().cpu())
    shares = torch.stack([torch.stack(one) for one in changed])
    count = shares.shape[1]
    return Finding(
        statement=f"The share of {count} held-out clouds whose class changes where they are turned, about "
        f"the third axis and about any, {TURNS} times each: transforms undo what they have learned to.",
        value=shares.mean(1),
        range=(0.0, 1.0),
        kind="estimate",
        stderr=shares.std(1) / math.sqrt(count) if count > 1 else torch.full((2,), 1.0, dtype=torch.float64),
        labels=("about the third axis", "about any axis"),
    )


def demo() -> Subject:
    """A small PointNet with random weights, and clouds of 20 points."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = PointNet(3, 3, features=16).eval()
    x = torch.randn(4, 20, 3, generator=Generator().manual_seed(0))
    batch = Batch((x,), torch.arange(4) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
