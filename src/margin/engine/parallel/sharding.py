"""Weights in shares: FSDP2 (Zhao et al. 2023) over all processes, whole tensors in every file.

A checkpoint has one layout whatever the number of processes: on the way out a share is gathered, on the
way in a whole tensor is cut.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def shard(module: nn.Module) -> None:
    """Leave each process its share of every parameter; each block of a list or sequence is a unit."""
    from torch.distributed.fsdp import fully_shard

    for part in reversed(list(module.modules())):  # inner units before those around them
        if isinstance(part, nn.Sequential | nn.ModuleList):
            for block in part:
                if next(block.parameters(), None) is not None:
                    fully_shard(block, reshard_after_forward=True)
    fully_shard(module, reshard_after_forward=True)


def whole(tensor: Tensor) -> Tensor:
    """A tensor gathered from its shares; every process must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def like(tensor: Tensor, reference: Any) -> Tensor:
    """A whole tensor cut as ``reference`` is; as it is where that is whole too."""
    if not hasattr(reference, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh = reference.device_mesh
    # every process has read the whole tensor: nothing is sent
    return distribute_tensor(tensor.to(mesh.device_type), mesh, reference.placements, src_data_rank=None)


def state_like(tree: dict[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """An optimizer's state dict whose tensors are cut as the parameters that they belong to.

    Args:
        tree: The state dict, its tensors whole.
        optimizer: What it will be loaded into.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [i for group in tree["param_groups"] for i in group["params"]]
    places: Mapping[Any, Tensor] = dict(zip(numbers, parameters, strict=True))

    def cut(value: Any, parameter: Tensor) -> Any:
        fits = isinstance(value, Tensor) and value.shape == parameter.shape
        return like(value, parameter) if fits else value

    state = {
        number: {key: cut(value, places[number]) for key, value in entries.items()}
        if number in places
        else entries
        for number, entries in tree["state"].items()
    }
    return {**tree, "state": state}


def norms(tensors: list[Tensor]) -> list[float]:
    """The Euclidean norm of each tensor; of shares, that of the whole."""
    return torch.stack([whole(one) for one in torch._foreach_norm(tensors)]).tolist()
