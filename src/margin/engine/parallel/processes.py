"""Several processes that train one model: what each takes of a batch, and what they tell each other.

Every process holds the same data order, a function of the step, and takes its share of each batch. Sums
go through torch.distributed, so that every mean is sum(w v) / sum(w) over all of them. Outside of a
process group there is one process, and nothing here does anything.

Weights may be sharded by FSDP2 (Zhao et al. 2023) over all processes. A checkpoint has one layout whatever
the number of processes: on the way out a shard is gathered, on the way in a whole tensor is cut.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from margin.core.catalog import Entry
from margin.core.options import Training
from margin.core.types import Batch, Objective
from margin.data.examples import Share

T = TypeVar("T")


def world() -> Share:
    """This process's rank and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return Share(dist.get_rank(), dist.get_world_size())
    return Share()


@contextmanager
def group(rank: int, size: int, address: str, device: str) -> Iterator[None]:
    """Join ``size`` processes for a while.

    Args:
        rank: This process's number, from 0.
        size: How many there are.
        address: Where they meet: ``file:///...`` on one machine, ``env://`` under torchrun.
        device: Where the model goes; CUDA talks through NCCL, all else through gloo.
    """
    backend = "nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def gathered(device: str) -> Iterator[None]:
    """Join the processes that torchrun has started; do nothing where it has not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if "TORCHELASTIC_RUN_ID" not in os.environ or size == 1:
        yield
        return
    with group(int(os.environ["RANK"]), size, "env://", device):
        yield


PER_CPU = 8
"""How many threads or processes a training may ask for, for each CPU; far more crash the machine."""


def check_counts(training: Training) -> None:
    """Refuse more threads or processes than this machine could bear.

    Raises:
        ValueError: There are too many.
    """
    cpus = os.cpu_count() or 1
    for name in ("threads", "workers", "processes"):
        if name == "processes" and world().size > 1:
            continue  # torchrun has started them, perhaps on many machines
        number = getattr(training, name) or 0
        if number > PER_CPU * cpus:
            raise ValueError(
                f"{name} must be at most {PER_CPU * cpus}, {PER_CPU} for each of the {cpus} CPUs here: "
                f"got {number}"
            )


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """So many threads of the CPU for a while; None: torch's own choice, divided by the processes here."""
    before = torch.get_num_threads()
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world().size))
    torch.set_num_threads(number or max(1, before // here))
    try:
        yield
    finally:
        torch.set_num_threads(before)


TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
"""Options of mallopt in glibc: bytes kept free at the end of the heap; size and number of what lies apart."""

ENVIRONMENT = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
"""Where a user sets them."""

_KEEPING: ContextVar[bool] = ContextVar("keeping", default=False)


@contextmanager
def kept_memory() -> Iterator[None]:
    """For a while freed memory stays in the heap, for the next tensor; only glibc does otherwise.

    By itself it maps a large tensor apart and returns its pages at once, so that the system clears new ones
    for the next: up to a quarter of a training step of LeNet-5, a tenth of one of ResNet-18. At the end what
    is free is returned. What the environment says of this is left as it is.
    """
    tune = _of_c("mallopt")
    if tune is None or _KEEPING.get() or any(name in os.environ for name in ENVIRONMENT):
        yield
        return
    keeping = _KEEPING.set(True)
    tune(MMAP_MAX, 0)
    tune(TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        _KEEPING.reset(keeping)
        tune(MMAP_MAX, 2**16)  # glibc's default; the thresholds are the largest that its own rule would reach
        tune(MMAP_THRESHOLD, 2**25)
        tune(TRIM_THRESHOLD, 2**26)
        give_back_memory()


def give_back_memory() -> None:
    """Return what was freed to the system, where the C library can be told to (glibc).

    Graphs of many tensors leave holes that it keeps: after a question of curvature half a gibibyte, which the
    next one would add to.
    """
    if trim := _of_c("malloc_trim"):
        trim(0)


MMAP_THRESHOLD, LARGE_BLOCK, LARGEST_BLOCK = -3, 2**22, 2**25
"""An option of glibc's ``mallopt``, and from how many bytes on a block is given back at once: where that
is asked for, and where not."""


@contextmanager
def large_blocks_given_back() -> Iterator[None]:
    """Within the block memory of a few MiB or more goes back to the system when it is freed (glibc).

    The C library learns to keep blocks of up to 32 MiB for the next ones, which seldom fit: of gradients of a
    U-Net on images of 256 x 256, one after the other, it held three times what one takes. It costs a
    twentieth of the time, for pages that are cleared.
    """
    set_option = _of_c("mallopt")
    if set_option is None:
        yield
        return
    keeping = _KEEPING.set(True)  # what is asked within must not end it
    set_option(MMAP_THRESHOLD, LARGE_BLOCK)
    try:
        yield
    finally:
        _KEEPING.reset(keeping)
        set_option(MMAP_THRESHOLD, LARGEST_BLOCK)


def _of_c(name: str) -> Callable[..., int] | None:
    """A function of the C library, None where it has none of that name."""
    if sys.platform != "linux":
        return None
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found


def wait() -> None:
    """Wait until every process is here."""
    if world().size > 1:
        dist.barrier()


def summed(values: Tensor) -> Tensor:
    """The sum of the values over all processes; the values themselves where there is one."""
    if world().size > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def summed_later(values: Tensor) -> Callable[[], Tensor]:
    """Begin to sum the values over all processes; the function that is returned waits for the sum."""
    if world().size == 1:
        return lambda: values
    values = values.clone()
    work = dist.all_reduce(values, async_op=True)

    def wait_for_sum() -> Tensor:
        work.wait()
        return values

    return wait_for_sum


def broadcast_from_rank0(make: Callable[[], T]) -> T:
    """What process 0 makes, in every process; what it raises is raised in every one."""
    if world().size == 1:
        return make()
    told: list[object] = [None, None]
    if world().rank == 0:
        try:
            told = [make(), None]
        except (ValueError, OSError) as error:
            told = [None, error]
    dist.broadcast_object_list(told, 0)
    if isinstance(told[1], Exception):
        raise told[1]
    return told[0]  # type: ignore[return-value]


def averaged_number(value: float, device: torch.device) -> float:
    """The mean of a number over all processes."""
    return summed(torch.tensor(value, dtype=torch.float64, device=device)).item() / world().size


def averaged_gradients(grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The mean of each gradient over all processes; None where it is None."""
    size = world().size
    return [None if grad is None else summed(grad) / size for grad in grads]


class Asked(nn.Module):
    """A model whose forward pass is the objective: what DistributedDataParallel can wrap."""

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch, generator: Generator) -> Tensor:
        """The loss of each term."""
        return self.objective(self.model, batch, generator)


class Spread:
    """The objective behind DistributedDataParallel: its backward pass averages the gradients.

    The whole objective is wrapped, whatever methods of the model it calls.

    Args:
        objective: The loss of each term.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._wrapped: DistributedDataParallel | None = None

    def wrapped(self, model: nn.Module) -> DistributedDataParallel:
        """The model behind DistributedDataParallel, made once."""
        if self._wrapped is None:
            # gradients are views of what is sent: nothing is copied
            self._wrapped = DistributedDataParallel(
                Asked(self.objective, model), gradient_as_bucket_view=True
            )
        return self._wrapped

    def __call__(self, model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        """The loss of each term of this process's share."""
        return self.wrapped(model)(batch, generator)


def check_divisible(model: nn.Module, entry: Entry, device: str) -> None:
    """Refuse several processes where shares of a batch do not give what the whole one gives.

    Raises:
        ValueError: The entry's step needs the whole batch, or the model normalizes by the statistics of
            its batch on a device for which torch has no synchronized normalization.
    """
    if not entry.parallel:
        raise ValueError(f"{entry.name} cannot divide a batch between processes: set --processes 1")
    normalized = [key for key, module in model.named_modules() if isinstance(module, _BatchNorm)]
    if normalized and device != "cuda":
        raise ValueError(
            f"batch normalization over several processes needs CUDA: {entry.name} normalizes on {device} "
            f"(in {normalized[0]}): set --processes 1"
        )


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
