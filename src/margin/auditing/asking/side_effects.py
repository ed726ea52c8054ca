"""Side effects that no claim may have: on weights, buffers, gradients, flags, hooks, generators, data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.engine.evaluation import same_bits

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The state that a question can disturb, copied before it is asked.

    Args:
        tensors: Parameters and buffers by name: the object itself and a copy of its bits.
        grads: ``.grad`` and ``requires_grad`` of every parameter, the gradient copied.
        modules: Training flag and registered hooks of every submodule.
        settings: State of torch's and NumPy's global generators, gradient mode and default type.
        examples: How often each example tensor in memory was written to, and its ``requires_grad``.
    """

    tensors: dict[str, tuple[Tensor, Tensor]]
    grads: dict[str, tuple[Tensor | None, bool]]
    modules: dict[str, tuple[bool, tuple[tuple[int, ...], ...]]]
    settings: dict[str, Any]
    examples: dict[str, tuple[int, bool]]

    @classmethod
    def of(cls, subject: Subject) -> "Snapshot":
        """Copy what is to be compared; one more copy of the weights is held meanwhile."""
        return cls(
            {name: (tensor, tensor.detach().clone()) for name, tensor in _tensors(subject.model)},
            {
                name: (None if p.grad is None else p.grad.detach().clone(), p.requires_grad)
                for name, p in subject.model.named_parameters()
            },
            {name: (m.training, _hooks(m)) for name, m in subject.model.named_modules()},
            _settings(),
            _written(subject),
        )

    def difference(self, subject: Subject) -> str:
        """What has changed since, the first thing found, or ""."""
        return (
            self._changed_tensor(dict(_tensors(subject.model)))
            or self._changed_grad(subject.model)
            or self._changed_module(subject.model)
            or next(
                (f"it moved {k}" for k, v in _settings().items() if not _same(v, self.settings.get(k))), ""
            )
            or next(
                (f"it changed {k}" for k, v in _written(subject).items() if v != self.examples.get(k)), ""
            )
        )

    def _changed_tensor(self, now: dict[str, Tensor]) -> str:
        if odd := sorted(now.keys() ^ self.tensors.keys()):
            return f"it added or removed the tensor {odd[0]!r}"
        for name, (tensor, bits) in self.tensors.items():
            if now[name] is not tensor or not same_bits(tensor, bits):
                return f"it changed the tensor {name!r}"
        return ""

    def _changed_grad(self, model: nn.Module) -> str:
        for name, parameter in model.named_parameters():
            before, required = self.grads[name]
            if parameter.requires_grad != required:
                return f"it changed requires_grad of {name!r}"
            after = parameter.grad
            if (before is None) != (after is None):
                return f"it {'left' if before is None else 'dropped'} a gradient in {name!r}"
            if before is not None and after is not None and not same_bits(before, after):
                return f"it changed the gradient of {name!r}"
        return ""

    def _changed_module(self, model: nn.Module) -> str:
        now = dict(model.named_modules())
        if odd := sorted(now.keys() ^ self.modules.keys()):
            return f"it added or removed the module {odd[0]!r}"
        for name, module in now.items():
            training, hooks = self.modules[name]
            where = f"of module {name!r}" if name else "of the model"
            if module.training != training:
                return f"it changed the training flag {where}"
            if _hooks(module) != hooks:
                return f"it changed the hooks {where}"
        return ""


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _hooks(module: nn.Module) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(getattr(module, kind, ())) for kind in HOOKS)


def _settings() -> dict[str, Any]:
    import numpy as np

    # Python's own generator is left out: a run-time type checker draws from it at every call.
    settings: dict[str, Any] = {
        "torch's global generator": torch.get_rng_state(),
        "NumPy's global generator": np.random.get_state(legacy=False)["state"],
        "the gradient mode": torch.is_grad_enabled(),
        "the default type": torch.get_default_dtype(),
    }
    if torch.cuda.is_initialized():
        for i in range(torch.cuda.device_count()):
            settings[f"the generator of cuda:{i}"] = torch.cuda.get_rng_state(i)
    return settings


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return all(
            bool((a[key] == b[key]).all()) if hasattr(a[key], "all") else a[key] == b[key] for key in a
        )
    return bool(a == b)


def _written(subject: Subject) -> dict[str, tuple[int, bool]]:
    found = {}
    for part, batches in (("test", subject.test), ("training", subject.train)):
        if not isinstance(batches, list | tuple):
            continue  # batches made when asked for: what is written into one is lost with it
        for i, batch in enumerate(batches):
            tensors = {f"input {j}": x for j, x in enumerate(batch.inputs)}
            tensors |= {k: x for k in ("targets", "weight") if (x := getattr(batch, k)) is not None}
            for role, tensor in tensors.items():
                version = 0 if tensor.is_inference() else tensor._version
                found[f"{role} of {part} batch {i}"] = (version, tensor.requires_grad)
    return found
