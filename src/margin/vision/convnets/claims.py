"""The shape of a convolutional network: its maps shrink and become more, and where its weights lie.

Lecture notes say of these networks that space shrinks while channels grow, and that most weights are those
of dense layers. The first fails in AlexNet, where a later convolution has fewer maps than an earlier one, and
in DenseNet, whose transitions halve them; the second is true of AlexNet and VGG, and false of GoogLeNet and
ResNet.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of
from margin.vision.convnets.lenet5 import LeNet5


def convolves(subject: Subject) -> bool:
    """Whether the model is a network that convolves images, and there is one held out."""
    layers = any(isinstance(module, nn.Conv2d) for module in subject.model.modules())
    return layers and len(subject.test) > 0 and subject.test[0].inputs[0].ndim == 4


def trunk(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers that follow each other: children of the model, those of nn.Sequential in their place."""
    for name, child in model.named_children():
        if isinstance(child, nn.Sequential):
            yield from ((f"{name}.{inner}", layer) for inner, layer in trunk(child))
        else:
            yield name, child


def map_sizes(model: nn.Module, x: Tensor) -> list[tuple[str, tuple[int, ...]]]:
    """Channels, rows and columns of the images, then behind each layer of the trunk that yields images.

    Args:
        model: A network of images, in the user's units.
        x: Images.
    """
    found = [("the images", tuple(x.shape[1:]))]

    def sized(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and output.ndim == 4:
                found.append((name, tuple(output.shape[1:])))

        return hook

    handles = [layer.register_forward_hook(sized(name)) for name, layer in trunk(core_of(model))]
    try:
        with eval_mode(model), torch.no_grad():
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return found


def pyramid(subject: Subject) -> Finding:
    """How many layers of the trunk enlarge the maps, or yield fewer maps than came in.

    Args:
        subject: A network of images; the first held-out one is asked.
    """
    sizes = map_sizes(subject.model, subject.test[0].inputs[0][:1])
    pairs = list(pairwise(sizes))
    larger = [name for (_, old), (name, new) in pairs if new[1] > old[1] or new[2] > old[2]]
    fewer = [f"{name} ({old[0]} to {new[0]})" for (_, old), (name, new) in pairs if new[0] < old[0]]
    told = [("larger maps", larger), ("fewer maps", fewer)]
    return Finding(
        statement="How many layers along the trunk of a convolutional network enlarge rows or columns, and "
        "how many yield fewer maps than the one before them; of a pyramid none does.",
        value=torch.tensor([float(len(larger)), float(len(fewer))], dtype=torch.float64),
        range=(0.0, math.inf),
        unit="layers",
        labels=tuple(name for name, _ in told),
        failure="" if len(sizes) > 1 else "no layer of the trunk yields images",
        remarks=tuple(f"{name}: {', '.join(names)}" for name, names in told if names),
        curves={"maps": torch.tensor([channels for _, (channels, *_) in sizes])},
    )


def dense_share(subject: Subject) -> Finding:
    """Which part of all parameters is that of dense layers (nn.Linear, weights and biases).

    Args:
        subject: A network of images.
    """
    model = core_of(subject.model)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    dense = {id(p): p.numel() for layer in layers for p in layer.parameters(recurse=False)}
    every = sum(p.numel() for p in model.parameters())
    return Finding(
        statement=f"The share of dense layers in the {every:,} parameters of the network: most of them in "
        "AlexNet and VGG, few in GoogLeNet and ResNet.",
        value=torch.tensor(sum(dense.values()) / every, dtype=torch.float64),
        range=(0.0, 1.0),
    )


def lenet_demo() -> Subject:
    """LeNet-5 on two images of 28 x 28: 59,134 of its 61,706 parameters are dense."""
    torch.manual_seed(0)
    model = LeNet5(1, 10).eval()
    batch = Batch((torch.rand(2, 1, 28, 28),), torch.tensor([0, 1]))
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
